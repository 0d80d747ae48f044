"""Fourier transforms by numpy, which is loaded already: scipy's take longer to load than to use."""


def fast_length(least: int) -> int:
    """The first number from `least` on without prime factors above 5, for which they are quick."""
    best = 1 << max(least - 1, 0).bit_length()
    fives = 1
    while fives < best:
        threes = fives
        while threes < best:
            rest = -(-least // threes)
            best = min(best, threes << max(rest - 1, 0).bit_length())
            threes *= 3
        fives *= 5
    return best

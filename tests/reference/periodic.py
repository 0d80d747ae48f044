"""The shift problem of equal steps, participation by participation, in multiprecision.

Pool adjacent violators on (mass, variance) of each participation and the steps up to the next,
in final units, which 60 digits and unbounded exponents hold however far they spread.
"""

from mpmath import mp, mpf


def gdp_of_periodic_run(*, gap, period, participations, tail, release_noise):
    """mu for arrivals 1 and noise 1, no cap."""
    with mp.workdps(60):
        c = 1 - mpf(gap)

        def variance(ahead, steps):
            """Of `steps` steps followed by `ahead` more."""
            if c == 1:
                return mpf(steps)
            return c ** (2 * ahead) * (1 - c ** (2 * steps)) / (1 - c**2)

        blocks = []
        for later in reversed(range(participations)):
            mass = c ** (tail + later * period)
            if later:
                size = variance(tail + (later - 1) * period + 1, period)
            else:
                size = variance(0, tail + 1) + mpf(release_noise) ** 2
            while blocks and blocks[-1][0] / blocks[-1][1] >= mass / size:
                mass, size = mass + blocks[-1][0], size + blocks[-1][1]
                blocks.pop()
            blocks.append((mass, size))
        return mp.sqrt(sum(mass**2 / size for mass, size in blocks))

"""The floored normal by rejection from boxes, read literally: one word at a time, in many digits.

Words are taken from a list, each once.  The order is that of the library: one for every number,
then two for every pending number in every round, ordinates first.
"""

import mpmath

BOX_BITS, BIN_BITS, FRACTION_BITS = 14, 5, 49
CORE, WEDGE, DEEPER, WASTE = range(4)


def is_below(table, level, at, fraction, ordinate, more):
    """Whether the point lies below the graph, by its first bits and further ones as needed."""
    known = 0
    with mpmath.workprec(4_000):
        while True:
            left = (int(table.bin[level][at]) + mpmath.mpf(fraction) / 2 ** (49 + known)) / 32
            right = left + mpmath.mpf(2) ** -(49 + known + 5)
            height = mpmath.mpf(float(table.height[level]))
            low = (int(table.box[level][at]) + mpmath.mpf(ordinate) / 2 ** (64 + known)) * height
            high = low + height / 2 ** (64 + known)
            if high < mpmath.exp(-(right**2) / 2):
                return True
            if low > mpmath.exp(-(left**2) / 2):
                return False
            fraction, ordinate = (fraction << 64) | more(), (ordinate << 64) | more()
            known += 64


def near(table, level, at, fraction, ordinate):
    """How far the middle of the rectangle is from the graph, relatively."""
    with mpmath.workprec(200):
        x = (int(table.bin[level][at]) + (mpmath.mpf(fraction) + 0.5) / 2**49) / 32
        t = (int(table.box[level][at]) + (mpmath.mpf(ordinate) + 0.5) / 2**64) * mpmath.mpf(
            float(table.height[level])
        )
        return float(t / mpmath.exp(-(x**2) / 2) - 1)


def number(table, level, word, bits):
    at, sign, fraction = word & 0x3FFF, (word >> 14) & 1, word >> 15
    found = (int(table.bin[level][at]) << FRACTION_BITS | fraction) >> (BIN_BITS + 49 - bits)
    return -found - 1 if sign else found


def draw(table, words, count, bits, *, margin=2.0**-40):
    """The numbers; `words` is a function that hands out so many words, as a list of integers."""
    spare = count // 12 + 64
    stock = words(count + spare)
    out, pending = [None] * count, []
    for k in range(count):
        pending.append((k, stock.pop(0), 0))
        k, word, level = pending[-1]
        if table.kind[0][word & 0x3FFF] == CORE:
            out[k] = number(table, 0, word, bits)
            pending.pop()
    while pending:
        if len(stock) < 2 * len(pending):
            stock = words(max(2 * len(pending), spare))
        ordinates = [stock.pop(0) for _ in pending]
        following = [stock.pop(0) for _ in pending]
        left, late = [], []
        for one, ordinate, word in zip(pending, ordinates, following, strict=True):
            k, old, level = one
            at = old & 0x3FFF
            kind = table.kind[level][at]
            keep, further = False, left
            if kind == WEDGE:
                if abs(near(table, level, at, old >> 15, ordinate)) <= margin:
                    further = late
                keep = is_below(table, level, at, old >> 15, ordinate, lambda: words(1)[0])
            if keep:
                out[k] = number(table, level, old, bits)
                continue
            level = level + 1 if kind == DEEPER else 0
            if table.kind[level][word & 0x3FFF] == CORE:
                out[k] = number(table, level, word, bits)
            else:
                further.append((k, word, level))
        pending = left + late
    return out

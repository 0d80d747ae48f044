"""The law of the floored Gaussian by enumeration: every box, a few bits of all else.

Of each level all words are tried whose fraction has three bits, with all ordinates of four bits.
What is kept in a column of the graph is then the area below it, to within half a rectangle.
"""

import mpmath
import numpy as np
import pytest

from lastiterate.train import noise as law
from tests.slow import slow_if

TABLES = law.tables()
PARTS, ORDINATES = 8, 16  # of a bin, of a box
WIDTH = 1.0 / (PARTS * 2**law.BIN_BITS)
BITS = law.MOST_BITS
MARKER = 2**law.FRACTION_BITS - 1  # the fraction of a word that follows what was not kept


def numpy_rounds():
    return law._rounds


def compiled_rounds():
    return pytest.importorskip("lastiterate.train.compiled.rounded_normal").rounds


def enumerated():
    """Every box with every part of its bin, at the middle of the part, and both signs."""
    box = np.arange(2**law.BOX_BITS, dtype=np.uint64)
    part = np.arange(PARTS, dtype=np.uint64)
    middle = 2 * part + np.uint64(1) << np.uint64(law.FRACTION_BITS - 4)
    sign = np.arange(2, dtype=np.uint64)
    words = (
        box[:, None, None]
        | sign[:, None] << np.uint64(law.BOX_BITS)
        | middle << np.uint64(law.BOX_BITS + 1)
    )
    return words.ravel()


def kept(rounds, level):
    """The column of every rectangle that is kept, and whether its sign is negative.

    The words follow what was to go deeper from the level before; at the first, what was wasted.
    """
    words = enumerated()
    kind = law.DEEPER if level else law.WASTE
    above = max(level - 1, 0)
    before = np.uint64(np.flatnonzero(TABLES.kind[above] == kind)[0])
    count, out = words.size, np.full(words.size, np.iinfo(np.int64).min)
    begun = law.Pending(
        np.arange(count), np.full(count, before), np.full(count, above, dtype=np.intp)
    )
    unused = np.full(count, 2**63, np.uint64)
    done = rounds(begun, np.concatenate([unused, words]), out, BITS)
    assert done.used == 2 * count
    assert not done.doubtful.size
    left = done.left
    assert (left.level == level).all()
    core = np.setdiff1d(np.arange(count), left.where)
    found = [np.repeat(out[core], ORDINATES)]
    core_box = int(np.flatnonzero(TABLES.kind[0] == law.CORE)[0])
    marker = np.uint64(MARKER << law.BOX_BITS + 1 | core_box)
    for k in range(ORDINATES):
        ordinate = np.full(left.where.size, (2 * k + 1) << 59, np.uint64)
        following = np.full(left.where.size, marker, np.uint64)
        again = rounds(
            law.Pending(*(one.copy() for one in left)), np.append(ordinate, following), out, BITS
        )
        assert not again.doubtful.size
        there = np.setdiff1d(left.where, again.left.where)
        found.append(out[there])
    numbers = np.concatenate(found)
    # What was not kept is a marker of level 0.
    whole = np.where(numbers < 0, ~numbers, numbers)
    fraction = whole & (2**law.FRACTION_BITS - 1)
    real = fraction != MARKER
    column = whole[real] >> (law.FRACTION_BITS - 3)
    return column, numbers[real] < 0


def mean_of_graph(column):
    with mpmath.workdps(60):
        a, b = (mpmath.mpf(int(column) + k) / (PARTS * 2**law.BIN_BITS) for k in (0, 1))
        root = mpmath.sqrt(2)
        area = mpmath.sqrt(mpmath.pi / 2) * (mpmath.erfc(a / root) - mpmath.erfc(b / root))
        return area / (b - a)


@pytest.mark.parametrize("rounds", [numpy_rounds, compiled_rounds])
@pytest.mark.parametrize("level", slow_if(lambda level: level % 4, range(law.LEVELS)))
def test_what_is_kept_in_a_column_is_the_area_below_the_graph(rounds, level):
    column, negative = kept(rounds(), level)
    first, after = TABLES.bins[level]
    rectangle = mpmath.mpf(float(TABLES.height[level])) / ORDINATES
    for side in (False, True):
        counts = np.bincount(column[negative == side], minlength=PARTS * after)
        assert not counts[: PARTS * first].any()
        assert counts.size == PARTS * after
        for at in range(PARTS * first, PARTS * after):
            exact = mean_of_graph(at) / rectangle
            # Half a rectangle, and what the graph at the middle differs from its mean.
            bent = (max((at + 1) * WIDTH, 1.0) * WIDTH) ** 2 / 24.0
            assert abs(int(counts[at]) - exact) <= 0.5 + 1.1 * bent * exact

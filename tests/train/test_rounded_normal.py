"""The floored Gaussian: tables that are proved, decisions that are right, words used once."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import special, stats

from lastiterate.train import noise as law
from lastiterate.train.noise import Randomness, SeededBits

from ..reference import box_sampler

TABLES = law.tables()
PATHS = ["numpy", "compiled"]


@pytest.fixture(params=PATHS)
def path(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(law, "compiled", lambda name, size: None)
    else:
        module = pytest.importorskip("lastiterate.train.compiled.rounded_normal")
        monkeypatch.setattr(law, "compiled", lambda name, size: module)
    return request.param


def prove(found):
    """Every statement of finite size on which the law rests, in interval arithmetic."""
    iv = mpmath.ctx_iv.MPIntervalContext()
    iv.prec = 200
    width = iv.mpf(2) ** -law.BIN_BITS

    def graph(edge):
        return iv.exp(-((edge * width) ** 2) / 2)

    assert found.bins[0][0] == 0
    assert len(found.bins) == law.LEVELS == len(found.height) == len(found.kind)
    for level, (first, after) in enumerate(found.bins):
        height = iv.mpf(float(found.height[level]))
        kind, bins, box = found.kind[level], found.bin[level], found.box[level]
        deeper = law.DEEPER_BOXES if level + 1 < law.LEVELS else 0
        assert int((kind == law.DEEPER).sum()) == deeper
        if deeper:
            # No bin between two levels is left out, and areas are equal.
            assert found.bins[level + 1][0] == after
            areas = [Fraction(float(found.height[one])) for one in (level, level + 1)]
            assert areas[0] * deeper == areas[1] * 2**law.BOX_BITS
        standing = np.isin(kind, (law.CORE, law.WEDGE))
        assert int((kind == law.WASTE).sum()) == kind.size - deeper - int(standing.sum())
        assert ((bins[standing] >= first) & (bins[standing] < after)).all()
        for own in range(first, after):
            stack = standing & (bins == own)
            order = np.argsort(box[stack])
            numbers, kinds = box[stack][order], kind[stack][order]
            assert numbers.tolist() == list(range(numbers.size))  # each once, without gaps
            assert (numbers.size * height).a >= graph(own).b  # they cover the graph
            core = numbers[kinds == law.CORE]
            if core.size:
                assert ((int(core.max()) + 1) * height).b <= graph(own + 1).a  # these are below
            # Where the graph meets a box it is not far below the box's height.
            assert (graph(own + 1) / height).a >= 0.7
    core_bins = np.where(found.kind[0] == law.CORE, found.bin[0], law.NOT_CORE)
    assert np.array_equal(core_bins, found.core_bin)
    assert found.bin[0].max() < law.NOT_CORE
    # What is left out, of both tails together.
    beyond = mpmath.erfc(mpmath.mpf(found.bins[-1][1]) / 2**law.BIN_BITS / mpmath.sqrt(2))
    assert beyond <= law.TOTAL_VARIATION


def changed(name, level, at, value):
    array = getattr(TABLES, name).copy()
    array[(level, at) if array.ndim == 2 else at] = value
    return TABLES._replace(**{name: array})


WASTED = int(np.flatnonzero(TABLES.kind[0] == law.WASTE)[0])
EDGE = int(np.flatnonzero(TABLES.kind[0] == law.WEDGE)[0])
CORE = int(np.flatnonzero(TABLES.kind[0] == law.CORE)[500])
MUTANTS = {
    "a core box far out": changed("kind", 0, WASTED, law.CORE)._replace(
        bin=changed("bin", 0, WASTED, 339).bin
    ),
    "a wedge called core": changed("kind", 0, EDGE, law.CORE),
    "a core box thrown away": changed("kind", 0, CORE, law.WASTE),
    "a box in the next bin": changed("bin", 0, CORE, TABLES.bin[0, CORE] + 1),
    "a box twice": changed("box", 0, CORE, TABLES.box[0, CORE] - 1),
    "one deeper box too few": changed("kind", 2, -1, law.WASTE),
    "one deeper box at the end": changed("kind", law.LEVELS - 1, -1, law.DEEPER),
    "a height": changed("height", 0, 3, TABLES.height[3] * (1 + 2.0**-40)),
    "a quick bin": changed("core_bin", 0, CORE, TABLES.core_bin[CORE] + 1),
    "a wedge that is quick": changed("core_bin", 0, EDGE, TABLES.bin[0, EDGE]),
    "a level that ends early": TABLES._replace(bins=(*TABLES.bins[:-1], (335, 354))),
    "a level that is missing": TABLES._replace(bins=TABLES.bins[:-1], height=TABLES.height[:-1]),
}


class TestTables:
    def test_are_proved(self):
        prove(TABLES)

    @pytest.mark.parametrize("name", MUTANTS)
    def test_the_proof_sees(self, name):
        with pytest.raises(AssertionError):
            prove(MUTANTS[name])

    def test_cannot_be_changed(self):
        for array in TABLES[:5]:
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0


def wedge_points(count, seed, *, off=None):
    """Levels, boxes, fractions and ordinates of points in wedges, `off` from the graph."""
    rng = np.random.default_rng(seed)
    found = []
    while len(found) < count:
        level = int(rng.integers(law.LEVELS))
        at = int(rng.choice(np.flatnonzero(TABLES.kind[level] == law.WEDGE)))
        fraction = int(rng.integers(2**law.FRACTION_BITS))
        ordinate = int(rng.integers(2**64, dtype=np.uint64))
        if off is not None:
            with mpmath.workprec(200):
                x = (int(TABLES.bin[level, at]) + mpmath.mpf(fraction + 0.5) / 2**49) / 32
                t = mpmath.exp(-(x**2) / 2) * (1 + off()) / float(TABLES.height[level])
                ordinate = int((t - int(TABLES.box[level, at])) * 2**64)
            if not 0 <= ordinate < 2**64:
                continue
        found.append((level, at, fraction, ordinate))
    return found


def no_more():
    raise AssertionError("the rectangle of the first bits is not on one side")


class TestDecisions:
    def test_floats_decide_only_what_they_know(self):
        """As close to the margin as can be: on either side the whole rectangle must agree."""
        rng = np.random.default_rng(1)
        points = wedge_points(300, 0)
        for power in range(36, 45):
            points += wedge_points(
                40, power, off=lambda power=power: rng.choice([-1, 1]) * 2.0**-power
            )
        level, at, fraction, ordinate = (np.array(one) for one in zip(*points, strict=True))
        word = (fraction.astype(np.uint64) << np.uint64(15)) | at.astype(np.uint64)
        below, above = law._sides(
            TABLES, level.astype(np.intp), at.astype(np.intp), word, ordinate.astype(np.uint64)
        )
        assert not (below & above).any()
        doubts = 0
        for point, low, high in zip(points, below, above, strict=True):
            if low or high:
                assert box_sampler.is_below(TABLES, *point, no_more) == low
            else:
                doubts += 1
        assert 100 < doubts < 400

    @pytest.mark.parametrize("seed", range(40))
    def test_many_digits_decide_the_rest(self, seed):
        (point,) = wedge_points(1, seed, off=lambda: 0)
        rng = np.random.default_rng(seed)
        further = [int(one) for one in rng.integers(2**64, size=40, dtype=np.uint64)]
        mine, theirs = iter(further), iter(further)
        found = law.is_below(*point, lambda: next(mine))
        assert found == box_sampler.is_below(TABLES, *point, lambda: next(theirs))
        assert list(mine) == list(theirs)


class Handed:
    """Words that are handed out once; the first of them may be given."""

    def __init__(self, seed, given=()):
        self._bits, self._given, self.asked = SeededBits(seed), list(given), []

    def words(self, count):
        self.asked.append(count)
        drawn = self._bits.words(count).copy()
        if self._given:
            for k, word in self._given.pop(0).items():
                drawn[k] = word
        return drawn

    def listed(self, count):
        return [int(word) for word in self.words(count)]


class TestWords:
    @pytest.mark.parametrize("count, bits", [(1, 40), (3, 54), (700, 40), (3_000, 6)])
    def test_each_is_used_once_and_in_order(self, path, count, bits):
        """The reference takes words from a list, so that it cannot use one twice."""
        mine, theirs = Handed(count), Handed(count)
        found = law.rounded_normals(mine.words, count, bits)
        assert found.tolist() == box_sampler.draw(TABLES, theirs.listed, count, bits)
        assert mine.asked == theirs.asked

    @pytest.mark.parametrize("seed", range(12))
    def test_undecided_ones_too(self, path, seed):
        """Points made so that floats cannot decide, at level 0, among others."""
        points = [one for one in wedge_points(60, seed, off=lambda: 0) if one[0] == 0][:3]
        count, spare = 50, 50 // 12 + 64
        first = {7 * k: (f << 15) | at for k, (_, at, f, _) in enumerate(points)}
        plain = [k for k in range(count) if k not in first]
        core = np.flatnonzero(TABLES.kind[0] == law.CORE)
        given = first | {k: (k << 20) | int(core[k]) for k in plain}
        given |= {count + k: ordinate for k, (_, _, _, ordinate) in enumerate(points)}
        waste = int(np.flatnonzero(TABLES.kind[0] == law.WASTE)[0])
        given |= {count + len(points): waste}  # goes on, if the first is above the graph
        mine, theirs = Handed(seed, [given]), Handed(seed, [given])
        found = law.rounded_normals(mine.words, count, 40)
        assert found.tolist() == box_sampler.draw(TABLES, theirs.listed, count, 40)
        assert mine.asked == theirs.asked
        assert mine.asked[:3] == [count + spare, 1, 1]  # further bits were drawn

    def test_words_that_run_out(self, path):
        """Boxes that are wasted again and again, as no stock of words would do."""
        waste = int(np.flatnonzero(TABLES.kind[0] == law.WASTE)[0])
        given = [dict.fromkeys(range(200 + 80), waste)] + [dict.fromkeys(range(400), waste)] * 3
        mine, theirs = Handed(1, list(given)), Handed(1, list(given))
        found = law.rounded_normals(mine.words, 200, 40)
        assert found.tolist() == box_sampler.draw(TABLES, theirs.listed, 200, 40)
        assert mine.asked == theirs.asked
        assert len(mine.asked) >= 4

    def test_fewer_bits_are_the_floor_of_more(self, path):
        fine = law.rounded_normals(SeededBits(3).words, 5_000, 54)
        for bits in (53, 40, 6):
            coarse = law.rounded_normals(SeededBits(3).words, 5_000, bits)
            np.testing.assert_array_equal(coarse, fine >> (54 - bits))

    def test_shapes(self):
        drawn = Randomness(SeededBits(0)).rounded_normals((3, 5), 40)
        assert drawn.shape == (3, 5)
        assert drawn.dtype == np.int64


def p_value(total, *, bits=7, seed=0):
    """Of the counts of all floors within six standard deviations."""
    edge, bits_ = 6 * 2**bits, SeededBits(seed)
    counts, left = np.zeros(2 * edge, np.int64), total
    while left:
        drawn = law.rounded_normals(bits_.words, min(left, 1 << 19), bits)
        left -= drawn.size
        counts += np.bincount(np.clip(drawn, -edge, edge - 1) + edge, minlength=2 * edge)
    ends = special.ndtr(np.arange(-edge, edge + 1) / 2**bits)
    ends[0], ends[-1] = 0.0, 1.0
    expected = total * np.diff(ends)
    many = expected > 20
    seen = np.append(counts[many], counts[~many].sum())
    awaited = np.append(expected[many], expected[~many].sum())
    return stats.chisquare(seen, awaited * seen.sum() / awaited.sum()).pvalue


class TestLaw:
    def test_chi_square(self, path):
        assert p_value(400_000) > 1e-3

    @pytest.mark.slow
    def test_chi_square_of_many(self, path):
        assert p_value(100_000_000, seed=1) > 1e-3

    def test_truncation_instead_of_the_floor_would_show(self, monkeypatch):
        monkeypatch.setattr(law, "compiled", lambda name, size: None)
        honest = law._numbers

        def truncated(bins, word, bits):
            found = honest(bins, word, bits)
            return np.where(found < 0, found + 1, found)

        monkeypatch.setattr(law, "_numbers", truncated)
        assert p_value(400_000) < 1e-9

    def test_far_tails_are_there(self, path):
        """Words that lead down through every level, to beyond ten standard deviations."""
        deeper, core = 2**14 - 1, int(np.flatnonzero(TABLES.kind[-1] == law.CORE)[-1])
        ways = [deeper] + [0, deeper] * 7 + [0, core]
        found = law.rounded_normals(Handed(0, [dict(enumerate(ways[:1])) | {
            1 + k: word for k, word in enumerate(ways[1:])}]).words, 1, 40)  # fmt: skip
        assert 10.4 < abs(int(found[0])) * 2.0**-40 < 11.1

"""Noise: the right law, words used once, uniform orders, secure unless a seed is given."""

import copy
import os
import pickle
import sys
from collections import Counter
from fractions import Fraction
from itertools import permutations

import mpmath
import numpy as np
import pytest
from scipy import special, stats

from lastiterate.errors import InvalidParameter, MissingExtra
from lastiterate.train import noise
from lastiterate.train import noise as law
from lastiterate.train.noise import DuplicatedRandomness, Randomness, SecureBits, SeededBits
from tests.reference import box_sampler
from tests.slow import slow_if


def seeded(seed=0):
    return Randomness(SeededBits(seed))


class FixedBits:
    provenance = "fixed"

    def __init__(self, *draws):
        self.draws = list(draws)

    def words(self, count):
        drawn = np.asarray(self.draws.pop(0), dtype=np.uint64)
        assert drawn.size == count
        return drawn


class TestOrders:
    def test_permutations_are_uniform(self):
        source = seeded(2)
        counts = Counter(tuple(source.permutation(4).tolist()) for _ in range(4_800))
        assert set(counts) == set(permutations(range(4)))
        assert stats.chisquare(list(counts.values())).pvalue > 1e-3

    def test_equal_keys_are_drawn_again(self):
        source = Randomness(FixedBits([5, 5, 1], [3, 2, 1]))
        assert source.permutation(3).tolist() == [2, 1, 0]
        source = Randomness(FixedBits([5, 5, 1], [3, 2, 1]))
        assert sorted(source.subset(3, 2).tolist()) == [1, 2]

    def test_subsets_are_uniform(self):
        source = seeded(3)
        counts = Counter(tuple(sorted(source.subset(5, 2).tolist())) for _ in range(4_000))
        assert len(counts) == 10
        assert stats.chisquare(list(counts.values())).pvalue > 1e-3

    def test_each_is_drawn_with_its_probability(self):
        drawn = seeded(4).each_with_probability(100_000, 1, 3)
        assert abs(drawn.size - 100_000 / 3) < 4 * (100_000 * 2 / 9) ** 0.5
        assert seeded().each_with_probability(7, 3, 3).tolist() == list(range(7))

    def test_no_probability_is_rounded(self):
        """A third of 2^64 is no whole number: the word at the threshold is in by a third."""
        third = 2**64 // 3
        for word in (0, third - 1, third + 1, 2**64 - 1):
            bits = FixedBits([third - 1, third, third - 1, third + 1], [word])
            drawn = Randomness(bits).each_with_probability(4, 1, 3)
            assert drawn.tolist() == ([0, 1, 2] if word < third else [0, 2])
        bits = FixedBits([third], [third], [third - 1])
        assert Randomness(bits).each_with_probability(1, 1, 3).tolist() == [0]

    def test_positions_are_drawn_with_their_probability(self):
        places = seeded(5).each_to_a_position(100_000, 3, 2, 7)
        counts = [np.count_nonzero(places == place) for place in (-1, 0, 1, 2)]
        expected = 100_000 * np.array([1, 2, 2, 2]) / 7
        assert stats.chisquare(counts, expected).pvalue > 1e-3
        assert set(seeded().each_to_a_position(50, 2, 3, 6).tolist()) == {0, 1}

    def test_words_that_would_favour_a_position_are_drawn_again(self):
        """Of 2^64 words the last is one too many for three places."""

        class Listed(SeededBits):
            left = iter([2**64 - 1, 4, 2**64 - 2, 2**64 - 1, 5])

            def words(self, count):
                return np.array([next(self.left) for _ in range(count)], dtype=np.uint64)

        picked = Randomness(Listed(0)).each_to_a_position(3, 3, 1, 3)
        assert picked.tolist() == [2, 1, 2]  # of 5, 4 and 2^64 - 2


class TestSecurity:
    def test_none_is_secure_and_differs_every_time(self):
        first, second = noise.randomness(None), noise.randomness(None)
        assert first.provenance == noise.SECURE
        assert not np.array_equal(first.rounded_normals((8,), 40), second.rounded_normals((8,), 40))

    @pytest.mark.parametrize("state", [7, np.random.RandomState(7), np.random.default_rng(7)])
    def test_seeds_are_reproducible_and_say_so(self, state):
        again = copy.deepcopy(state)
        first, second = noise.randomness(state), noise.randomness(again)
        assert "not private against someone who knows the seed" in first.provenance
        drawn = [one.rounded_normals((8,), 40) for one in (first, second)]
        np.testing.assert_array_equal(*drawn)

    @pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
    def test_a_secure_generator_cannot_be_copied(self, duplicate):
        with pytest.raises(DuplicatedRandomness, match="copied or pickled"):
            duplicate(SecureBits())

    @pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
    def test_a_secure_generator_does_not_survive_a_fork(self):
        bits = SecureBits()
        child = os.fork()
        if child == 0:
            try:
                bits.words(1)
            except DuplicatedRandomness:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert bits.words(1).size == 1

    def test_the_missing_extra_is_named(self, monkeypatch):
        for name in [n for n in sys.modules if n.startswith("cryptography")]:
            monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(MissingExtra, match=r"lastiterate\[sklearn\]"):
            SecureBits()

    @pytest.mark.parametrize("state", [-1, 1.5, "seed", True])
    def test_bad_seeds_are_refused(self, state):
        with pytest.raises(InvalidParameter, match="random_state must be"):
            noise.randomness(state)


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
        honest = law._signed_numbers

        def truncated(bins, word, bits):
            found = honest(bins, word, bits)
            return np.where(found < 0, found + 1, found)

        monkeypatch.setattr(law, "_signed_numbers", truncated)
        assert p_value(400_000) < 1e-9

    def test_far_tails_are_there(self, path):
        """Words that lead down through every level, to beyond ten standard deviations."""
        deeper, core = 2**14 - 1, int(np.flatnonzero(TABLES.kind[-1] == law.CORE)[-1])
        ways = [deeper] + [0, deeper] * 7 + [0, core]
        found = law.rounded_normals(Handed(0, [dict(enumerate(ways[:1])) | {
            1 + k: word for k, word in enumerate(ways[1:])}]).words, 1, 40)  # fmt: skip
        assert 10.4 < abs(int(found[0])) * 2.0**-40 < 11.1


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
@pytest.mark.parametrize("level", slow_if(lambda level: level > 1, range(law.LEVELS)))
def test_what_is_kept_in_a_column_is_the_area_below_the_graph(rounds, level):
    column, negative = kept(rounds(), level)
    first, after = TABLES.bins[level]
    rectangle = mpmath.mpf(float(TABLES.height[level])) / ORDINATES
    sides = [np.bincount(column[negative == one], minlength=PARTS * after) for one in (0, 1)]
    assert not any(counts[: PARTS * first].any() for counts in sides)
    assert all(counts.size == PARTS * after for counts in sides)
    for at in range(PARTS * first, PARTS * after):
        exact = mean_of_graph(at) / rectangle
        # Half a rectangle, and what the graph at the middle differs from its mean.
        bent = (max((at + 1) * WIDTH, 1.0) * WIDTH) ** 2 / 24.0
        for counts in sides:
            assert abs(int(counts[at]) - exact) <= 0.5 + 1.1 * bent * exact

"""A row counts as its own values say, wherever it lies, whatever others are or are stored as."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from lastiterate.features import PublicBins, QuadraticSketch, RandomFourierFeatures, Scattering2D
from lastiterate.linear_model import PrivateLogisticRegression, PrivateRidge, PrivateScaler
from lastiterate.linear_model import intervals as moments
from lastiterate.linear_model.intervals import Matrices, Scale, exact_sums
from lastiterate.linear_model.private_score import score_total
from lastiterate.linear_model.published_statistics import _probability_sums
from lastiterate.train import rows as norms
from lastiterate.train import rows as row_sums
from lastiterate.train.centring import Centre, sum_in_units
from lastiterate.train.data import FAST, bounded
from lastiterate.train.noisy_descent import counted_batches
from lastiterate.train.objectives import Huber, Logistic
from lastiterate.train.rows import compressed, far_rows, norm_factors, without_duplicates

BOUND = 1.5
DTYPES = [np.float32, np.float64]
SIZES = {
    np.float32: [0.0, 1e-44, 1e-30, 1e-3, 1.0, 1.5, 3.0, 1e11, 1e13, 1e20, 1e37],
    np.float64: [0.0, 5e-324, 1e-200, 1e-3, 1.0, 1.5, 3.0, 1e11, 1e13, 1e160, 1e307],
}


def rows_of(seed, dtype, *, count=40, width=7):
    """Rows of all sizes, those that overflow when they are squared included."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, width)) / math.sqrt(width)
    sizes = rng.choice(SIZES[dtype], size=count)
    with np.errstate(over="ignore", under="ignore"):
        rows = np.clip(rows, -1.0, 1.0) * sizes[:, np.newaxis]
    return rows.astype(dtype)


def fortran(rows):
    return np.asfortranarray(rows)


def strided(rows):
    wide = np.zeros((2 * rows.shape[0], 3 * rows.shape[1]), dtype=rows.dtype)
    wide[::2, ::3] = rows
    return wide[::2, ::3]


def unaligned(rows):
    memory = bytearray(rows.nbytes + 1)
    memory[1:] = rows.tobytes()
    return np.frombuffer(memory, dtype=rows.dtype, offset=1).reshape(rows.shape)


def with_duplicates(rows):
    """Every entry in two parts, of which the first is last in its row."""
    count, width = rows.shape
    places = np.tile(np.append(np.arange(width), np.arange(width)[::-1]), count)
    halves = np.hstack([rows / 2, rows[:, ::-1] - rows[:, ::-1] / 2])
    starts = 2 * width * np.arange(count + 1)
    return sparse.csr_array((halves.ravel(), places, starts), shape=rows.shape)


DENSE = [np.array, fortran, strided, unaligned]
KINDS = [*DENSE, sparse.csr_array, sparse.csr_matrix, with_duplicates]
CENTRES = [None, Centre(np.linspace(-0.5, 0.5, 7), 0.6), Centre(np.full(7, 0.5), 0.06)]


def counted(rows, centre=None, *, as_left=False):
    """Rows as they count in fast gradients; with `as_left`, factors rounded as residuals are."""
    examples = bounded(rows, np.zeros(rows.shape[0]), bound=BOUND, intercept=0.0)
    examples = replace(examples, arithmetic=FAST)
    if centre is not None:
        examples = examples.around(centre)
    batch = examples.own().batch(slice(0, rows.shape[0]))
    used = batch.rows if isinstance(batch.rows, np.ndarray) else batch.rows.toarray()
    factors = batch.factors.astype(rows.dtype) if as_left else batch.factors
    scaled = used.astype(np.longdouble) * factors[:, np.newaxis]
    if batch.shifts is None:
        return scaled
    return scaled - np.outer(batch.shifts.astype(np.longdouble), batch.mean)


def alone(rows, centre=None, kind=np.array):
    return np.vstack([counted(kind(rows[[k]]), centre) for k in range(rows.shape[0])])


class TestFactors:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("dtype", DTYPES)
    @settings(max_examples=8, deadline=None)
    @given(seed=st.integers(0, 10**6), chunk=st.sampled_from([1, 8, 30, 2**20]))
    def test_are_those_of_the_row_alone(self, dtype, kind, seed, chunk):
        rows = rows_of(seed, dtype)
        expected = [norm_factors(kind(rows[[k]]), BOUND)[0] for k in range(len(rows))]
        order = np.random.default_rng(seed).permutation(len(rows))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(norms, "_ENTRIES_AT_ONCE", chunk)
            patch.setattr(row_sums, "_ENTRIES_IN_CACHE", max(chunk // 2, 1))
            np.testing.assert_array_equal(norm_factors(kind(rows), BOUND), expected)
            found = norm_factors(kind(rows[order]), BOUND)
            np.testing.assert_array_equal(found, np.array(expected)[order])

    @pytest.mark.parametrize("width", [1, 2, 3, 20, 784, 1_025, 3_000])
    @pytest.mark.parametrize("kind", DENSE)
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_are_the_same_in_every_layout(self, dtype, kind, width):
        rows = np.random.default_rng(0).normal(size=(33, width)).astype(dtype)
        expected = norm_factors(rows, 0.1)
        np.testing.assert_array_equal(norm_factors(kind(rows), 0.1), expected)
        for start in range(0, 33, 5):
            found = norm_factors(kind(rows)[start:], 0.1)
            np.testing.assert_array_equal(found, expected[start:])

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("width", [2, 784])
    def test_one_huge_row_changes_no_other(self, dtype, width):
        rows = np.random.default_rng(1).normal(size=(1_000, width)).astype(dtype)
        before = norm_factors(rows, 0.5)
        rows[7] = np.finfo(dtype).max
        after = norm_factors(rows, 0.5)
        assert after[7] < before[7] < 1.0
        np.testing.assert_array_equal(np.delete(after, 7), np.delete(before, 7))

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_one_row_moves_each_count_of_far_rows_by_at_most_one(self, dtype):
        """Rows at the threshold, to a few units, as a look at all rows would have them flip."""
        lengths = 10.0 * (1.0 + np.linspace(-2e-6, 2e-6, 999))
        rows = np.zeros((1_000, 2), dtype=dtype)
        rows[1:, 0] = lengths
        before = far_rows(rows, 1.0)
        rows[0] = np.finfo(dtype).max
        after = far_rows(rows, 1.0)
        assert 0 < before[0] < 999
        assert abs(after[0] - before[0]) <= 1
        assert abs(after[1] - before[1]) <= 1


class TestCountedRows:
    @pytest.mark.parametrize("centre", CENTRES)
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_are_those_of_the_row_alone(self, dtype, kind, centre):
        rows = rows_of(3, dtype)
        expected = alone(rows, centre, kind)
        order = np.random.default_rng(0).permutation(len(rows))
        np.testing.assert_array_equal(counted(kind(rows), centre), expected)
        np.testing.assert_array_equal(counted(kind(rows[order]), centre), expected[order])
        # Others of any length in place of half of them.
        other = rows_of(4, dtype)
        other[::2] = rows[::2]
        np.testing.assert_array_equal(counted(kind(other), centre)[::2], expected[::2])

    @pytest.mark.parametrize("as_left", [False, True])
    @pytest.mark.parametrize("centre", CENTRES)
    @pytest.mark.parametrize("kind", [np.array, sparse.csr_array])
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_are_within_the_bound(self, dtype, kind, centre, as_left):
        """Huge rows around a centre included, which are rounded to float32 once more."""
        for seed in range(40):
            used = counted(kind(rows_of(seed, dtype)), centre, as_left=as_left)
            assert (np.sqrt((used**2).sum(axis=1)) <= BOUND).all()

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("kind", [np.array, sparse.csr_array])
    @pytest.mark.parametrize("chunk", [1, 8, 30, 2**20])
    def test_add_up_in_units_one_by_one(self, monkeypatch, dtype, kind, chunk):
        rows = rows_of(6, dtype)
        each = [sum_in_units(kind(rows[[k]]), bound=BOUND) for k in range(len(rows))]
        monkeypatch.setattr(norms, "_ENTRIES_AT_ONCE", chunk)
        found = sum_in_units(kind(rows), bound=BOUND)
        np.testing.assert_array_equal(found, np.sum(each, axis=0))


class TestNeighbours:
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_the_sum_of_gradients_moves_by_no_more_than_the_sensitivity(self, dtype):
        """Of many rows, each of which a common choice would move a little."""
        count, objective = 2**16, Logistic(clip=0.25)
        rows = np.zeros((count, 2), dtype=dtype)
        rows[:, 0] = 3.0
        targets = np.ones(count, dtype=int)
        residual = objective.residual(np.zeros((1, count)), targets)[0]
        totals = []
        for one in (-3.0, 1e300 if dtype == np.float64 else 3e38):
            rows[0] = [one, 0.0]
            used = counted(rows).astype(np.float64)
            totals.append([math.fsum(residual * used[:, k]) for k in range(2)])
        moved = math.dist(*totals)
        certified = objective.sensitivity(radius=BOUND, adjacency="replace")
        assert 0.999 * certified < moved <= certified

    @pytest.mark.parametrize("order", ["C", "F"])
    def test_outputs_of_other_rows_do_not_change_with_a_huge_one(self, order):
        rng = np.random.default_rng(0)
        rows = np.array(rng.normal(size=(300, 5)), order=order)
        model = PrivateLogisticRegression(random_state=0).fit(rows, rows[:, 0] > 0)
        before = model.decision_function(rows)
        rows[0] = 1e300
        after = model.decision_function(rows)
        assert np.isfinite(after).all()
        np.testing.assert_array_equal(after[1:], before[1:])

    def test_one_target_that_is_no_number_moves_a_score_by_at_most_one(self):
        X = np.random.default_rng(0).normal(size=(400, 2))
        y = np.tanh(X[:, 0])
        model = PrivateRidge(epsilon=1.0, target_range=(-1.0, 1.0), random_state=0).fit(X, y)
        totals = [score_total(model, X, [*y[:-1], last])[0] for last in (y[-1], "none", None)]
        assert max(totals) - min(totals) <= 1.0
        text = [score_total(model, X, np.array([*y[:-1], last]))[0] for last in (y[-1], "none")]
        assert text == totals[:2]


class TestEntriesOfOnePlace:
    """Their sum depends on the order in which they are added, which must be the row's own."""

    def rows(self, other):
        """Entries of the first row cancel, so that their order is all that matters."""
        values = np.array([1e30, 1.0, -1e30, 3.0] * 10)
        places = np.repeat([0, 1], 20)
        data = np.append(values, [1.0, 2.0])
        where = np.append(places, other)
        return sparse.csr_array((data, where, [0, 40, 42]), shape=(2, 3))

    @pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr"])
    def test_in_whatever_format_they_come(self, form):
        scaler = PrivateScaler(2.0).fit(np.zeros((2, 3)))
        given = []
        for other in ([0, 2], [2, 0]):
            rows = self.rows(other)
            if form == "coo":
                owner = np.repeat([0, 1], np.diff(rows.indptr))
                rows = sparse.coo_array((rows.data, (owner, rows.indices)), shape=rows.shape)
            else:
                rows = rows.asformat(form)
            given.append(scaler.transform(rows).toarray())
        np.testing.assert_array_equal(given[0][0], given[1][0])

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_are_added_up(self, dtype):
        rows = rows_of(8, dtype)
        rows[np.abs(rows) > 1e30] = 1.0
        found = without_duplicates(with_duplicates(rows))
        assert found.has_canonical_format
        assert found.dtype == np.float64
        np.testing.assert_allclose(found.toarray(), rows, rtol=1e-6)
        empty = sparse.csr_array((3, 4), dtype=dtype)
        assert without_duplicates(empty).shape == compressed(empty.tocoo()).shape == (3, 4)


COUNT, WIDTH = 41, 16
RANDOM = np.random.default_rng(0)
WHOLE = RANDOM.integers(100, size=(COUNT, WIDTH))  # every type holds these
SMALL = (RANDOM.normal(size=(COUNT, WIDTH)) / 16).astype(np.float16).astype(np.float64)
TYPES = ["f2", "f4", "f8", "g", "u1", "i4", "i8", "?"]
ODD = [
    np.zeros(WIDTH, "f4"),
    np.zeros(WIDTH, "f8"),
    np.full(WIDTH, 256, "i8"),
    np.full(WIDTH, 2**62, "i8"),
    np.full(WIDTH, 0.1, "f8"),
    np.full(WIDTH, -1e300, "f8"),
    np.full(WIDTH, 5e-324, "f8"),
    np.full(WIDTH, 0.1, "g"),
    np.zeros(WIDTH, "?"),
]
CONTAINERS = {
    "stacked": np.stack,
    "fortran": lambda rows: np.asfortranarray(np.stack(rows)),
    "list": list,
    "nested": lambda rows: [row.tolist() for row in rows],
    "objects": lambda rows: np.array([list(row) for row in rows], dtype=object),
    "csr": lambda rows: _sparse(np.stack(rows)),
    "coo": lambda rows: _sparse(np.stack(rows)).tocoo(),
}


def _sparse(rows):
    # scipy has no half precision and no long doubles.
    return sparse.csr_array(rows.astype({"e": "f4", "g": "f8"}.get(rows.dtype.char, rows.dtype)))


def base(kind):
    """Rows that this type holds exactly, and in double precision."""
    rows = WHOLE % 2 if kind == "?" else WHOLE if np.dtype(kind).kind in "iu" else SMALL * 37
    return rows.astype(kind), rows.astype(kind).astype(np.float64)


# One odd row of each kind takes a minute.
ODDS = pytest.mark.parametrize("odds", [ODD[4:6], pytest.param(ODD, marks=pytest.mark.slow)])


def cases(odds, dense=False):
    for kind, (name, container) in itertools.product(TYPES, CONTAINERS.items()):
        if dense and name in ("csr", "coo"):
            continue
        rows, exact = base(kind)
        yield exact, container(list(rows))
        for odd in odds:
            yield exact, container([*rows[:-1], odd])


MAPS = [
    Scattering2D((4, 4), scales=1, angles=3, pixel_max=255),
    Scattering2D((4, 4), scales=1, angles=3),
    RandomFourierFeatures(64, gamma=0.01),
    QuadraticSketch(64, input_bound=3.0),
    PublicBins(0.0, 90.0, bins=7),
]


@ODDS
@pytest.mark.parametrize("mapped", MAPS, ids=repr)
def test_features_of_other_rows_stay_as_they_are(mapped, odds):
    for exact, stored in cases(odds, dense=True):
        expected = mapped.fit_transform(exact)[:-1]
        np.testing.assert_array_equal(mapped.transform(stored)[:-1], expected)


AROUND = [None, Centre(np.linspace(-0.1, 0.2, WIDTH), 0.4)]


def examples_of(stored, centre=None, **settings):
    """Examples as a fit has them; the last one is silent, so that sums are those of the others."""
    model = PrivateLogisticRegression(feature_bound=1.5, classes=[0, 1], **settings)
    targets = np.arange(COUNT) % 2
    found = model._gather_inputs(stored, targets, model.checked()).examples
    return replace(found, silent=np.arange(COUNT) == COUNT - 1, centre=centre)


def as_counted(examples):
    rows = [
        batch.rows if isinstance(batch.rows, np.ndarray) else batch.rows.toarray()
        for batch in counted_batches(examples, slice(None))
    ]
    shifts = [] if examples.centre is None else [examples.shifts]
    return [np.vstack(rows), *shifts]


@ODDS
@pytest.mark.parametrize("centre", AROUND, ids=["plain", "centred"])
@pytest.mark.parametrize("arithmetic", ["proved", "fast"])
def test_other_rows_count_alike(centre, arithmetic, odds):
    for exact, stored in cases(odds):
        kind = sparse.csr_array if sparse.issparse(stored) else np.asarray
        expected = examples_of(kind(exact), centre, arithmetic=arithmetic)
        found = examples_of(stored, centre, arithmetic=arithmetic)
        for one, other in zip(as_counted(found), as_counted(expected), strict=True):
            np.testing.assert_array_equal(one[:-1], other[:-1])


def statistics(examples):
    """Sums over all but the last row, before noise."""
    yield sum_in_units(examples.rows, bound=1.5, silent=examples.silent)
    coef, shift = np.linspace(-2.0, 3.0, WIDTH)[np.newaxis], np.array([0.0, 0.1])
    yield _probability_sums(examples, coef, np.array([0.2]), shift)
    at = np.append(coef, 0.3)[np.newaxis]
    for objective, kind in itertools.product((Logistic(), Huber(clip=0.3)), Matrices):
        if isinstance(examples.rows, np.ndarray) or examples.centre is None:
            yield from exact_sums(examples, objective, at, Scale.of(examples, objective), kind)


@ODDS
def test_published_sums_over_other_rows_stay_as_they_are(odds):
    for exact, stored in cases(odds):
        kind = sparse.csr_array if sparse.issparse(stored) else np.asarray
        expected = statistics(examples_of(kind(exact)))
        for one, other in zip(statistics(examples_of(stored)), expected, strict=True):
            np.testing.assert_array_equal(one, other)
        outliers = [far_rows(examples_of(kind(exact)).rows[:-1], 1.5)]
        assert outliers == [far_rows(examples_of(stored).rows[:-1], 1.5)]


@ODDS
@pytest.mark.parametrize("scaler", [PrivateScaler(2.0), PrivateScaler(2.0, low=-3.0, high=50.0)])
def test_other_scaled_rows_stay_as_they_are(scaler, odds):
    for exact, stored in cases(odds, dense=scaler.low is not None):
        kind = sparse.csr_array if sparse.issparse(stored) else np.asarray
        found, expected = (scaler.fit_transform(rows) for rows in (stored, kind(exact)))
        assert found.dtype == np.float64
        found, expected = (x.toarray() if sparse.issparse(x) else x for x in (found, expected))
        np.testing.assert_array_equal(found[:-1], expected[:-1])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("centre", AROUND, ids=["plain", "centred"])
def test_rows_in_a_file_count_alike(tmp_path, dtype, centre):
    rows = SMALL.astype(dtype) * 37
    rows.tofile(tmp_path / "rows")
    mapped = np.memmap(tmp_path / "rows", dtype=dtype, mode="r", shape=rows.shape)
    for one, other in zip(
        [*as_counted(examples_of(mapped, centre)), *statistics(examples_of(mapped))],
        [*as_counted(examples_of(SMALL * 37, centre)), *statistics(examples_of(SMALL * 37))],
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_entries_of_one_place_are_added_up_in_double_precision():
    parts = np.array([0.1, 1e-4, 0.3], dtype="f4")
    found = []
    for dtype in ("f4", "f8"):
        stored = sparse.csr_array((parts.astype(dtype), [0, 0, 1], [0, 2, 3]), shape=(2, WIDTH))
        found.append(PrivateScaler(0.05).fit(stored).transform(stored).toarray())
    np.testing.assert_array_equal(*found)


def test_no_centre_is_forgotten():
    with pytest.raises(AssertionError):
        moments.dense_rows(examples_of(sparse.csr_array(SMALL), AROUND[1]))

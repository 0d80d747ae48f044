"""How other rows count does not change with what one row is stored as, nor with how large it is."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from lastiterate.features.transformers import (
    PublicBins,
    QuadraticSketch,
    RandomFourierFeatures,
    Scattering2D,
)
from lastiterate.linear_model import intervals as moments
from lastiterate.linear_model.classifiers import PrivateLogisticRegression
from lastiterate.linear_model.intervals import Matrices, Scale, exact_sums
from lastiterate.linear_model.preprocessing import PrivateScaler
from lastiterate.linear_model.published_statistics import _probability_sums
from lastiterate.linear_model.regressors import PrivateRidge
from lastiterate.train.centring import Centre, sum_in_units
from lastiterate.train.noisy_descent import counted_batches
from lastiterate.train.objectives import Huber, Logistic
from lastiterate.train.rows import far_rows

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
    for exact, given in cases(odds, dense=True):
        expected = mapped.fit_transform(exact)[:-1]
        np.testing.assert_array_equal(mapped.transform(given)[:-1], expected)


CENTRES = [None, Centre(np.linspace(-0.1, 0.2, WIDTH), 0.4)]


def examples_of(given, centre=None, **settings):
    """Examples as a fit has them; the last one is silent, so that sums are those of the others."""
    model = PrivateLogisticRegression(feature_bound=1.5, classes=[0, 1], **settings)
    targets = np.arange(COUNT) % 2
    found = model._gather_inputs(given, targets, model.checked()).examples
    return replace(found, silent=np.arange(COUNT) == COUNT - 1, centre=centre)


def counted(examples):
    rows = [
        batch.rows if isinstance(batch.rows, np.ndarray) else batch.rows.toarray()
        for batch in counted_batches(examples, slice(None))
    ]
    shifts = [] if examples.centre is None else [examples.shifts]
    return [np.vstack(rows), *shifts]


@ODDS
@pytest.mark.parametrize("centre", CENTRES, ids=["plain", "centred"])
@pytest.mark.parametrize("arithmetic", ["proved", "fast"])
def test_other_rows_count_alike(centre, arithmetic, odds):
    for exact, given in cases(odds):
        kind = sparse.csr_array if sparse.issparse(given) else np.asarray
        expected = examples_of(kind(exact), centre, arithmetic=arithmetic)
        found = examples_of(given, centre, arithmetic=arithmetic)
        for one, other in zip(counted(found), counted(expected), strict=True):
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
    for exact, given in cases(odds):
        kind = sparse.csr_array if sparse.issparse(given) else np.asarray
        expected = statistics(examples_of(kind(exact)))
        for one, other in zip(statistics(examples_of(given)), expected, strict=True):
            np.testing.assert_array_equal(one, other)
        outliers = [far_rows(examples_of(kind(exact)).rows[:-1], 1.5)]
        assert outliers == [far_rows(examples_of(given).rows[:-1], 1.5)]


@ODDS
@pytest.mark.parametrize("scaler", [PrivateScaler(2.0), PrivateScaler(2.0, low=-3.0, high=50.0)])
def test_other_scaled_rows_stay_as_they_are(scaler, odds):
    for exact, given in cases(odds, dense=scaler.low is not None):
        kind = sparse.csr_array if sparse.issparse(given) else np.asarray
        found, expected = (scaler.fit_transform(rows) for rows in (given, kind(exact)))
        assert found.dtype == np.float64
        found, expected = (x.toarray() if sparse.issparse(x) else x for x in (found, expected))
        np.testing.assert_array_equal(found[:-1], expected[:-1])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("centre", CENTRES, ids=["plain", "centred"])
def test_rows_in_a_file_count_alike(tmp_path, dtype, centre):
    rows = SMALL.astype(dtype) * 37
    rows.tofile(tmp_path / "rows")
    mapped = np.memmap(tmp_path / "rows", dtype=dtype, mode="r", shape=rows.shape)
    for one, other in zip(
        [*counted(examples_of(mapped, centre)), *statistics(examples_of(mapped))],
        [*counted(examples_of(SMALL * 37, centre)), *statistics(examples_of(SMALL * 37))],
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_entries_of_one_place_are_added_up_in_double_precision():
    parts = np.array([0.1, 1e-4, 0.3], dtype="f4")
    found = []
    for dtype in ("f4", "f8"):
        given = sparse.csr_array((parts.astype(dtype), [0, 0, 1], [0, 2, 3]), shape=(2, WIDTH))
        found.append(PrivateScaler(0.05).fit(given).transform(given).toarray())
    np.testing.assert_array_equal(*found)


WITH_UNITS = [
    np.array([["2020-01-01"], ["2020-01-02"]], dtype="M8[D]"),
    np.array([["1"], ["0.1"]]),
    np.array([[b"1"], [b"0.1"]]),
    np.array([[1], [2]], dtype="m8[s]"),
]


@pytest.mark.parametrize("given", WITH_UNITS, ids=lambda one: one.dtype.kind)
def test_arrays_that_one_cell_rewrites_are_refused(given):
    with pytest.raises((TypeError, ValueError), match=r"X (and y )?must be"):
        PrivateLogisticRegression(classes=[0, 1]).fit(given, [0, 1])
    with pytest.raises((TypeError, ValueError), match=r"X (and y )?must be"):
        PrivateScaler().fit(given)
    with pytest.raises((TypeError, ValueError), match=r"X (and y )?must be"):
        RandomFourierFeatures(8).fit(given).transform(given)
    if given.dtype.kind in "Mm":  # text is read cell by cell as targets
        with pytest.raises((TypeError, ValueError), match="y must be"):
            PrivateRidge(target_range=(0, 1)).fit(np.eye(2), given[:, 0])


def test_no_centre_is_forgotten():
    with pytest.raises(AssertionError):
        moments.dense_rows(examples_of(sparse.csr_array(SMALL), CENTRES[1]))

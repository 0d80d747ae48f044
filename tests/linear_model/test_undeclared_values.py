"""Values that are spelt otherwise in a schema are told of, by counts that are charged for."""

import json
import math
import warnings

import numpy as np
import pytest
from scipy import sparse

from lastiterate.accounting import account
from lastiterate.certificate.verify import verify
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.linear_model.classifiers import PrivateLogisticRegression
from lastiterate.linear_model.private_schema import PrivateSchema
from lastiterate.linear_model.published_statistics import (
    OutlierWarning,
    noisy_undeclared_counts,
    warn_of_undeclared,
)
from lastiterate.other_releases import KINDS, OUTLIERS, UNDECLARED, Release
from lastiterate.train.noise import Randomness, SeededBits

RNG = np.random.default_rng(0)
COUNT = 4_000
JOBS, TOWNS = RNG.choice(["clerk", "nurse", "cook"], COUNT), RNG.choice(["A", "B"], COUNT)
PEOPLE = {"age": RNG.uniform(18, 90, COUNT), "job": JOBS, "town": TOWNS}
ILL = (JOBS == "nurse") ^ (RNG.uniform(size=COUNT) < 0.1)


def encoder_with(jobs):
    schema = {
        "age": {"range": [18, 90]},
        "job": {"values": jobs},
        "town": {"values": ["A", "B"]},
    }
    return PrivateSchema(schema).fit(PEOPLE)


def fitted(jobs, **settings):
    encoder = encoder_with(jobs)
    model = PrivateLogisticRegression(
        **{"epsilon": 2.0, "text_columns": encoder.text_columns_, "random_state": 0} | settings
    )
    return model.fit(encoder.transform(PEOPLE), ILL)


def test_where_the_features_are():
    places = encoder_with(["clerk", "nurse", "cook"]).text_columns_
    assert places == {"job": (1, 4), "town": (4, 6)}


def test_a_misspelt_value_is_told_of_with_its_column():
    with pytest.warns(OutlierWarning, match=r"about 3\d % .* for the column 'job'") as told:
        model = fitted(["clerk", "Nurse", "cook"])
    assert not [one for one in told if "town" in str(one.message)]
    assert abs(model.undeclared_["job"] - (JOBS == "nurse").sum()) < 400
    assert abs(model.undeclared_["town"]) < 400


def test_nothing_is_said_where_all_is_declared():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(["clerk", "nurse", "cook"])


def test_it_is_charged_within_the_target_and_certified():
    with pytest.warns(OutlierWarning):
        model = fitted(["clerk", "Nurse", "cook"], random_state=None)
    assert model.privacy_.epsilon(1e-5) <= 2.0
    release = next(one for one in model.privacy_.other_releases if one.kind == UNDECLARED)
    outliers = next(one for one in model.privacy_.other_releases if one.kind == OUTLIERS)
    assert release.mu == pytest.approx(outliers.mu, rel=1e-9)
    without = [one for one in model.privacy_.other_releases if one.kind != UNDECLARED]
    less = account(model.privacy_.run, other_releases=without)
    assert model.privacy_.epsilon(1e-5) > less.epsilon(1e-5)
    record = next(
        one for one in json.loads(model.certificate_)["other_releases"] if one["kind"] == UNDECLARED
    )
    assert record["published (noisy)"] == model.undeclared_
    assert verify(model.certificate_).other_releases == model.privacy_.other_releases


def test_both_counts_cost_what_one_did():
    plain = fitted(["clerk", "nurse", "cook"], text_columns=None, center=False).privacy_
    both = fitted(["clerk", "nurse", "cook"], center=False).privacy_
    assert [one.kind for one in plain.other_releases] == [OUTLIERS]
    together = math.hypot(*(one.mu for one in both.other_releases))
    assert together == pytest.approx(plain.other_releases[0].mu, rel=1e-9)
    assert both.run.noise_std == pytest.approx(plain.run.noise_std, rel=1e-6)


def test_counting_nothing_counts_nothing():
    model = fitted(["clerk", "Nurse", "cook"], counting=0, center=False)
    assert model.undeclared_ == {}
    assert model.privacy_.other_releases == ()


COLUMNS = (("a", 0, 2), ("b", 2, 5), ("c", 5, 6))


def exact(rows):
    """Counts almost without noise."""
    release = Release(UNDECLARED, 1.0, 1e-6)
    return noisy_undeclared_counts(rows, COLUMNS, release, Randomness(SeededBits(0)))


@pytest.mark.parametrize("kind", [np.array, sparse.csr_array, sparse.csr_matrix])
def test_counts(kind):
    rows = (RNG.uniform(size=(300, 6)) < 0.3) * 0.7
    expected = {name: int((~rows[:, i:j].any(axis=1)).sum()) for name, i, j in COLUMNS}
    assert exact(kind(rows)) == expected


def test_one_row_moves_what_is_released_by_no_more_than_stated():
    rows = np.zeros((50, 6))
    other = rows.copy()
    other[7] = 1.0
    moved = np.subtract(list(exact(rows).values()), list(exact(other).values()))
    released = np.linalg.norm(moved) / math.sqrt(len(COLUMNS))
    for adjacency in ("replace", "zero-out"):
        assert released == pytest.approx(KINDS[UNDECLARED].sensitivity(adjacency))


def test_noise_is_that_of_the_release():
    release = Release(UNDECLARED, 1.0, 50.0)
    source, rows = Randomness(SeededBits(0)), np.zeros((1, 6))
    draws = [
        list(noisy_undeclared_counts(rows, COLUMNS, release, source).values()) for _ in range(2000)
    ]
    np.testing.assert_allclose(np.std(draws, axis=0), 50.0 * math.sqrt(3), rtol=0.08)


def test_noise_alone_sets_none_off():
    release = Release.of_mu(UNDECLARED, 0.027, adjacency="replace")
    noise = release.noise_std * math.sqrt(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for examples in (10, 100, 1_000, 3_000):
            counts = dict.fromkeys("abc", round(0.1 * examples + 3.9 * noise))
            warn_of_undeclared(counts, release, examples)


class TestRefusals:
    @pytest.mark.parametrize("columns", [[(0, 1)], {3: (0, 1)}, "job"])
    def test_of_what_is_no_mapping(self, columns):
        with pytest.raises(InvalidType, match="text_columns"):
            fitted(["clerk", "nurse", "cook"], text_columns=columns)

    @pytest.mark.parametrize("place", [(1,), (2, 2), (-1, 2), (0, 7)])
    def test_of_rows_that_are_none(self, place):
        with pytest.raises(InvalidParameter, match=r"text_columns\['job'\]"):
            fitted(["clerk", "nurse", "cook"], text_columns={"job": place})

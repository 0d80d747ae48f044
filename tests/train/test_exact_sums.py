"""One example moves what is published of a sum by its own share: no rounding adds to it."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from lastiterate.linear_model.private_score import score_total
from lastiterate.linear_model.regressors import PrivateRidge
from lastiterate.other_releases import KINDS, MEAN, Release
from lastiterate.train import centring
from lastiterate.train.centring import published_centre

BOUND = 1.5


@pytest.fixture
def published(monkeypatch):
    """The sum as it is published, exactly, for rows of any kind."""

    def of(rows):
        kept = []
        monkeypatch.setattr(centring, "noisy", lambda total, *_, **__: kept.append(total) or total)
        published_centre(rows, Release(MEAN, 2.0, 1.0), None, bound=BOUND)
        return [Fraction(float(number)) for number in kept[0]]

    return of


def exact_distance(one, other):
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


# Of the second kind every partial sum is rounded: 0.1 is no sum of few powers of two.
OTHERS = {
    "none": np.zeros((0, 4)),
    "many": np.full((20_000, 4), 0.1),
    "on both sides": np.random.default_rng(0).normal(size=(5_000, 4)),
}
EXTREMES = [np.full(4, BOUND / 2), np.array([BOUND, 0.0, 0.0, 0.0]), np.full(4, 1e30)]


@pytest.mark.parametrize("kind", [np.array, sparse.csr_array, np.float32])
@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("one", range(len(EXTREMES)))
def test_a_row_never_moves_the_sum_farther_than_is_charged(published, kind, others, one):
    def with_last(row):
        return published(kind(np.vstack([OTHERS[others], row])))

    here = with_last(EXTREMES[one])
    for other, adjacency in ((-EXTREMES[one], "replace"), (0.0 * EXTREMES[one], "zero-out")):
        moved = exact_distance(here, with_last(other))
        charged = Fraction(KINDS[MEAN].sensitivity(adjacency)) ** 2
        assert charged * Fraction(1 - 1e-6) < moved <= charged


def test_a_row_moves_the_sum_alike_whatever_the_others_are(published):
    """Which a sum that is rounded on the way does not do."""
    row = np.array([[0.3, -0.7, 0.2, 0.9]])
    moves = []
    for others in OTHERS.values():
        without = published(np.vstack([others, 0.0 * row]))
        moves.append(
            [a - b for a, b in zip(published(np.vstack([others, row])), without, strict=True)]
        )
    assert moves[0] == moves[1] == moves[2]


def test_entries_of_one_place_that_cancel_count_as_their_sum(published):
    data, where = np.array([1e30, -1e30, 0.5]), np.array([0, 0, 1])
    twice = sparse.csr_array((data, where, np.array([0, 3])), shape=(1, 2))
    assert published(twice) == published(np.array([[0.0, 0.5]]))


def test_an_error_moves_the_sum_of_errors_by_its_own_share_alone():
    """In a sum of many, to a last place that plain addition does not keep."""
    X = np.random.default_rng(0).normal(size=(3_001, 2))
    y = np.tanh(X[:, 0])
    model = PrivateRidge(epsilon=1.0, target_range=(-1.0, 1.0), random_state=0).fit(X, y)
    moves = []
    for count in (1, 3_001):
        totals = []
        for last in (0.123, -0.456):
            y[0] = last
            totals.append(Fraction(score_total(model, X[:count], y[:count])[0]))
        moves.append(totals[0] - totals[1])
    assert moves[0] == moves[1] != 0

"""Rows around their published mean: as charged, as described, and for the better."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from lastiterate.accounting import account
from lastiterate.linear_model import PrivateLogisticRegression, PrivateRidge
from lastiterate.linear_model.private_score import score_total
from lastiterate.other_releases import KINDS, MEAN, Release
from lastiterate.profile.rounded import gdp_but_for_failure
from lastiterate.train import centring
from lastiterate.train.centring import Centre, centre_of
from lastiterate.train.data import FAST, bounded
from lastiterate.train.noise import Randomness, SeededBits
from tests.train.problems import MODELS, made, published_centre

RNG = np.random.default_rng(0)
# On one side of 0, and far from it.
ROWS = np.clip(0.6 + 0.15 * RNG.normal(size=(4_000, 5)), 0.0, 1.0)
SIDES = ROWS[:, 0] > 0.6
BOUND = 5**0.5


def silent(rows, bound, noise=1e-9):
    release = Release(MEAN, 2.0, noise)
    return published_centre(rows, release, Randomness(SeededBits(0)), bound=bound)


def as_used(rows, centre, bound):
    """The definition, row by row."""
    used = []
    for row in np.asarray(rows, dtype=np.longdouble):
        row = row * min(1.0, bound / np.linalg.norm(row))
        moved = row - centre.mean
        used.append(bound / centre.bound * moved * min(1.0, centre.bound / np.linalg.norm(moved)))
    return np.array(used)


class TestRows:
    @pytest.mark.parametrize("kind", [np.array, sparse.csr_array, np.float32])
    @pytest.mark.parametrize("scale", [0.1, 1.0, 1e6, 1e30])
    def test_count_as_described(self, kind, scale):
        rows = kind(RNG.normal(size=(50, 7)) * scale)
        dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
        centre = Centre(RNG.normal(size=7) / 5, 0.6)
        examples = bounded(rows, np.zeros(50), bound=1.5, intercept=0.0)
        batch = replace(examples, centre=centre, arithmetic=FAST).batch(slice(None))
        own = batch.rows if isinstance(batch.rows, np.ndarray) else batch.rows.toarray()
        used = own.astype(np.longdouble) * batch.factors[:, np.newaxis]
        used = used - np.outer(batch.shifts, batch.mean)
        np.testing.assert_allclose(
            used.astype(float), as_used(dense, centre, 1.5).astype(float), atol=1e-5
        )
        # However it is rounded, none is longer than the bound.
        assert (np.sqrt((used**2).sum(axis=1)) <= 1.5).all()

    def test_mean_and_spread_are_those_of_rows_within_the_bound(self):
        rows = RNG.normal(size=(500, 4)) * [3.0, 0.1, 0.1, 0.1] + 0.2
        short = rows * np.minimum(1.0, 2.0 / np.linalg.norm(rows, axis=1, keepdims=True))
        for kind in (np.array, sparse.csr_array):
            centre = silent(kind(rows), 2.0)
            np.testing.assert_allclose(centre.mean, short.mean(axis=0), atol=1e-9)
            root = np.sqrt(np.mean(np.sum((short - short.mean(axis=0)) ** 2, axis=1)))
            assert centre.bound == pytest.approx(0.8 * root, rel=1e-6)

    @pytest.mark.parametrize("kind", MODELS)
    def test_regressors_cut_fewer_rows_than_classifiers(self, kind):
        quick = {"batches": "cyclic", "epochs": 1, "random_state": 0}
        fitted = made(kind, epsilon=50.0, feature_bound=BOUND, **quick).fit(ROWS, SIDES)
        short = ROWS * np.minimum(1.0, BOUND / np.linalg.norm(ROWS, axis=1, keepdims=True))
        root = np.sqrt(np.mean(np.sum((short - short.mean(axis=0)) ** 2, axis=1)))
        reach = 1.2 if hasattr(fitted, "target_bound_") else 0.8
        assert fitted.center_bound_ == pytest.approx(min(reach * root, BOUND), rel=0.05)

    @pytest.mark.parametrize(
        "length, noise, cut",
        [(0.7, 1e-3, False), (0.7, 0.05, True), (0.6, 1e-3, True)],
        ids=["saves little", "but there is much noise", "saves much"],
    )
    def test_regressors_leave_rows_whole_where_a_cut_would_save_little(self, length, noise, cut):
        """Rows of two lengths around 0, in all directions: the longer are cut, or none is."""
        some = np.vstack([np.eye(4), -np.eye(4)]) * BOUND
        rows = np.vstack([0.3 * some, (2.0 * length**2 - 0.09) ** 0.5 * some])
        release = Release(MEAN, 2.0, noise * len(rows) / 2.0)
        total = np.append(np.zeros(4), np.sum(rows**2) / BOUND**2 / 2.0)
        around = centre_of(
            total, release, examples=len(rows), bound=BOUND, reach=PrivateRidge._reach
        )
        counted = np.linalg.norm(as_used(rows, around, BOUND), axis=1)
        ratio = counted.max() / counted.min()
        whole = np.linalg.norm(rows, axis=1)
        assert (ratio < whole.max() / whole.min() * (1 - 1e-6)) == cut
        usual = centre_of(total, release, examples=len(rows), bound=BOUND)
        assert usual.bound < around.bound <= BOUND

    @pytest.mark.parametrize("kind", [np.float32, np.float64])
    def test_a_mean_as_long_as_the_bound_moves_no_row_beyond_it(self, kind):
        """Rows in float32 may be longer than the bound by a rounding: the mean stays within."""
        rows = np.full((100, 7), 7**-0.5, dtype=kind)
        loud = Release(MEAN, 2.0, 1.0)
        for published in (100.0, 100.0 * (1 + 1e-7), 130.0):
            total = np.append(np.full(7, published * 7**-0.5), 50.0)
            centre = centre_of(total, loud, examples=100, bound=1.0)
            assert np.linalg.norm(centre.mean) <= 0.9991
            assert np.linalg.norm(centre.mean) >= 0.9989
            assert (centre.factors_and_reaches(rows, bound=1.0)[1] <= 1.0).all()

    def test_the_bound_around_the_mean_is_within_reason_whatever_was_published(self):
        release = Release.of_mu(MEAN, 0.04, adjacency="replace")
        for published in (np.zeros(4), np.full(4, 1e9), np.full(4, -1e9), -np.ones(4)):
            centre = centre_of(published, release, examples=1_000, bound=3.0)
            assert 0.0 < centre.bound <= 3.0


class TestCharge:
    @pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
    def test_no_row_moves_the_sum_farther_than_is_charged(self, adjacency):
        """Any two rows, however long; left out, a row is 0."""
        sizes = [0.0, 0.3, 0.7, 1.0, 5.0]
        rows = [np.array([s * np.cos(t), s * np.sin(t)]) for s in sizes for t in (0, 1, np.pi)]
        moves = []
        for one in rows:
            for other in rows if adjacency == "replace" else [np.zeros(2)]:
                sums = []
                for last in (one, other):
                    within = last / max(1.0, np.linalg.norm(last))
                    sums.append([*within, within @ within / 2])
                    found = silent(np.array([[0.5, 0.5], last]), 1.0)
                    np.testing.assert_allclose(found.mean, (within + 0.5) / 2, atol=1e-8)
                moves.append(np.linalg.norm(np.subtract(*sums)))
        assert max(moves) == pytest.approx(KINDS[MEAN].sensitivity(adjacency))

    def test_noise_is_as_stated(self):
        release = Release.of_mu(MEAN, 0.05, adjacency="replace")
        drawn = [
            published_centre(np.zeros((500, 3)), release, Randomness(SeededBits(k)), bound=2.0).mean
            for k in range(400)
        ]
        assert np.std(drawn) == pytest.approx(release.noise_std * 2.0 / 500, rel=0.1)

    @pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
    def test_one_report_of_both(self, adjacency):
        fitted = PrivateLogisticRegression(feature_bound=BOUND, adjacency=adjacency, counting=0)
        report = fitted.fit(ROWS, SIDES).privacy_
        (release,) = report.other_releases
        assert release.kind == MEAN
        assert 0.999 < report.epsilon(1e-5) <= 1.0
        alone = account(report.run)
        assert alone.epsilon(1e-5) < report.epsilon(1e-5)
        fixed = "fixed-order/convex"
        assert gdp_but_for_failure(report.all[fixed]) == pytest.approx(
            np.hypot(gdp_but_for_failure(alone.all[fixed]), release.mu), rel=1e-7
        )


class TestModel:
    @pytest.mark.parametrize("kind", MODELS)
    def test_predicts_what_it_was_trained_for(self, kind):
        """Around the mean, as in training; and by its coefficients where nothing is cut."""
        fitted = made(kind, feature_bound=BOUND, random_state=0).fit(ROWS, SIDES)
        centre = Centre(fitted.center_, fitted.center_bound_)
        constant = json.loads(fitted.certificate_)["features"]["intercept"]
        used = np.column_stack([as_used(ROWS[:40], centre, BOUND), np.full(40, constant)]).astype(
            float
        )
        outputs = fitted.predict if hasattr(fitted, "target_bound_") else fitted.decision_function
        np.testing.assert_allclose(outputs(ROWS[:40]), used @ fitted.parameters_[0], rtol=1e-6)
        near = centre.mean + 0.01 * ROWS[:5]
        plain = near @ np.ravel(fitted.coef_) + fitted.intercept_
        np.testing.assert_allclose(outputs(near), plain, rtol=1e-9)

    def test_a_rare_class_is_not_ranked_backwards(self):
        """Columns on one side of 0, whose weights would else make up for the intercept."""
        rng = np.random.default_rng(1)
        hidden = rng.normal(size=(5_000, 6))
        rows = np.clip(0.6 + 0.15 * hidden, 0.0, 1.0)
        rare = hidden[:, 0] + 0.5 * hidden[:, 1] > 2.3
        assert 0.01 < rare.mean() < 0.03
        ranked = [
            PrivateLogisticRegression(feature_bound=6**0.5, center=center, random_state=0)
            .fit(rows, rare)
            .decision_function(rows)
            for center in (False, True)
        ]
        above = [np.mean(u[rare][:, np.newaxis] > u[~rare][np.newaxis]) for u in ranked]
        assert above[0] < 0.5
        assert above[1] > 0.85

    def test_off_where_asked_or_where_noise_would_be_too_long(self):
        def centred(examples=4_000, width=5, **settings):
            rows = np.resize(ROWS, (examples, width))
            sides = np.arange(examples) % 2 == 0
            fitted = PrivateLogisticRegression(feature_bound=3.0, **settings).fit(rows, sides)
            kinds = [one.kind for one in fitted.privacy_.other_releases]
            assert (fitted.center_ is not None) == (MEAN in kinds)
            return fitted.center_ is not None

        assert centred()
        assert not centred(center=False)
        assert not centred(fit_intercept=False)
        assert centred(examples=200)  # with a larger share of the budget
        assert not centred(examples=100)
        assert not centred(examples=500, width=200)
        assert not centred(examples=1_000, epsilon=0.02)


LIMIT = 1.5


@pytest.fixture
def published(monkeypatch):
    """The sum as it is published, exactly, for rows of any kind."""

    def of(rows):
        kept = []
        monkeypatch.setattr(centring, "noisy", lambda total, *_, **__: kept.append(total) or total)
        published_centre(rows, Release(MEAN, 2.0, 1.0), None, bound=LIMIT)
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
EXTREMES = [np.full(4, LIMIT / 2), np.array([LIMIT, 0.0, 0.0, 0.0]), np.full(4, 1e30)]


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

"""No useless model in silence: what cannot be seen is refused or counted, and said."""

import json
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import VotingClassifier
from sklearn.feature_selection import RFE
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier

from lastiterate.errors import InvalidParameter, InvalidType, PrivacyWarning
from lastiterate.linear_model import (
    PrivateHuberRegressor,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateScaler,
    TooFewExamplesWarning,
)
from lastiterate.linear_model.published_statistics import warn_of_outliers
from lastiterate.other_releases import MEAN, OUTLIERS, Release
from lastiterate.train.centring import centre_of, lost_distance
from tests.train.problems import MODELS, REGRESSORS, made

RNG = np.random.default_rng(0)
AGE, INCOME = RNG.uniform(18, 90, 4_000), RNG.uniform(10, 200, 4_000)
PEOPLE = np.column_stack([AGE, INCOME])
RICH = INCOME > 100


class Frame:
    """As much of a data frame as is looked at."""

    def __init__(self, rows):
        self.rows, self.shape, self.columns = rows, rows.shape, ["age", "income"]

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.rows, dtype=dtype)

    def __len__(self):
        return len(self.rows)


class Mixed(Frame):
    dtypes = ("float64", "object")


UNIT = PrivateLogisticRegression(feature_bound=1.0)
MISTYPED = np.where(INCOME > 150, "Yes", "no")  # a quarter
WARNED = [
    (UNIT, PEOPLE, RICH, "of the examples are more than ten times.*public ranges"),
    (UNIT, sparse.csr_array(PEOPLE), RICH, "more than ten times"),
    (PrivateLogisticRegression(), PEOPLE / 1e5, RICH, "shorter than a tenth of the feature bound"),
    (PrivateRidge(target_bound=1.0), PEOPLE / 200, 1e3 * INCOME, "a target outside the declared"),
    (PrivateLogisticRegression(classes=["no", "yes"]), PEOPLE / 200, MISTYPED, "an undeclared lab"),
    (PrivateLogisticRegression(delta=1e-3), PEOPLE / 200, RICH, "not below 1/n for n = 4,000"),
    (PrivateLogisticRegression(feature_bound=300.0), Frame(PEOPLE), RICH, "dominates all others"),
]
A_COUNT = r"about \d+ % \(a noisy count, give or take \d+ %\) of the ro"
TEXT = np.array([["a", "b"], ["c", "d"]], dtype=object)
CUT, EMPTY = np.where(PEOPLE > 190, np.inf, PEOPLE), np.where(PEOPLE > 190, np.nan, PEOPLE)
REFUSED = [
    (PrivateLogisticRegression(), PEOPLE, RICH, A_COUNT),
    (PrivateLogisticRegression(), Mixed(PEOPLE), RICH, "PrivateSchema.*text in the columns income"),
    (UNIT, TEXT, [True, False], "PrivateSchema.*not a number"),
    (PrivateLogisticRegression(), EMPTY, RICH, "contains NaN -> fill empty cells with a publi"),
    (PrivateLogisticRegression(), CUT, RICH, "infinity.* -> clip columns to publicly"),
    (PrivateRidge(target_bound=1.0), PEOPLE, EMPTY[:, 1], "y contains NaN -> leave out the rows"),
    *(
        (
            PrivateRidge(target_range=given),
            PEOPLE / 200,
            RICH,
            r"target_range must be \(low, high\)",
        )
        for given in (3, "ab", (1,), (1, 2, 3), (2, 1), (1, 1), (0, np.nan), (0, np.inf), ("0", 1))
    ),
    *(
        (PrivateRidge(target_range=given), PEOPLE / 200, RICH, "at least 1/65,536 of its larger")
        for given in ((0, 5e-324), (1e9, 1e9 + 10), (1.0, 1.0 + 1e-9))
    ),
]


class TestWarnings:
    @pytest.mark.parametrize("model, rows, targets, match", WARNED)
    def test_are_given(self, model, rows, targets, match):
        with pytest.warns(UserWarning, match=match):
            model.fit(rows, targets)

    @pytest.mark.parametrize("model, rows, targets, match", REFUSED)
    def test_or_the_fit_is_refused(self, model, rows, targets, match):
        with pytest.raises(InvalidParameter, match=match):
            model.fit(rows, targets)

    def test_none_where_too_few_to_tell_or_not_counted(self):
        PrivateLogisticRegression().fit(PEOPLE[:100], RICH[:100])
        model = PrivateLogisticRegression(counting=0, center=False).fit(PEOPLE, RICH)
        assert model.outliers_ == {}
        assert model.privacy_.other_releases == ()
        assert json.loads(model.certificate_)["other_releases"] == []

    def test_noise_alone_sets_none_off(self):
        release = Release.of_mu(OUTLIERS, 0.027, adjacency="replace")
        for examples in (10, 100, 500, 600):
            counts = {"long rows": round(3.5 * release.noise_std)}
            warn_of_outliers(counts, release, examples)


MODEL = PrivateLogisticRegression(epsilon=4.0, classes=[0, 1], counting=0)
SEVERAL = {
    "one against the rest": OneVsRestClassifier(MODEL),
    "calibration": CalibratedClassifierCV(MODEL, cv=2),
    "elimination": RFE(MODEL, n_features_to_select=1),
    "voting": VotingClassifier([("a", MODEL), ("b", MODEL)]),
    "search": GridSearchCV(MODEL, {"epochs": [1]}, cv=2),
}


@pytest.mark.parametrize("several", SEVERAL.values(), ids=SEVERAL)
def test_whoever_fits_several_times_is_told(several):
    with pytest.warns(PrivacyWarning, match="does not include; a Ledger charges"):
        several.fit(PEOPLE[:300] / 200, RICH[:300].astype(int))


@pytest.mark.slow
def test_also_where_other_processes_fit():
    with pytest.warns(PrivacyWarning, match="a routine of sklearn.model_selection"):
        cross_val_score(MODEL, PEOPLE[:300] / 200, RICH[:300].astype(int), cv=2, n_jobs=2)


class TestRows:
    @pytest.mark.parametrize("model", MODELS)
    def test_a_data_frame_needs_a_bound(self, model):
        with pytest.raises(InvalidParameter, match=r"feature_bound must be set for a data frame"):
            made(model).fit(Frame(PEOPLE), RICH)

    def test_scaled_columns_are_taken(self):
        scaled = PrivateScaler(2**0.5, low=[18, 0], high=[90, 200]).fit_transform(PEOPLE)
        model = PrivateLogisticRegression(feature_bound=2**0.5).fit(Frame(scaled), RICH)
        assert model.score(scaled, RICH) > 0.95


class TestTargets:
    @pytest.mark.parametrize("model", REGRESSORS)
    def test_need_a_range(self, model):
        with pytest.raises(InvalidParameter, match=r"target_bound must be given.*found neither"):
            model().fit(PEOPLE / 200, RICH)
        with pytest.raises(InvalidParameter, match=r"target_bound must be given.*found both"):
            model(target_bound=1.0, target_range=(0, 1)).fit(PEOPLE / 200, RICH)

    @pytest.mark.parametrize("odd", ["0.5", np.float64(0.3), None])
    def test_one_target_or_weight_does_not_change_the_others(self, odd):
        """In single precision others have other digits than in text."""
        rows = PEOPLE[:300] / 200
        plain = np.full(300, np.float32(0.1))
        mixed = np.array([*plain[:-1], 0.5 if odd is None else odd])
        plain[-1] = mixed[-1]
        model = PrivateRidge(target_range=(0, 0.7), random_state=0, feature_bound=1.0)
        ends = [model.fit(rows, y).parameters_ for y in (plain, mixed)]
        np.testing.assert_array_equal(*ends)
        ends = [model.fit(rows, plain, sample_weight=w).parameters_ for w in (plain, mixed)]
        np.testing.assert_array_equal(*ends)

    def test_a_bound_is_a_range_around_0(self):
        rows = RNG.normal(size=(500, 3)) / 3
        one, other = (
            PrivateRidge(random_state=0, **declared).fit(rows, rows[:, 0])
            for declared in ({"target_bound": 2.0}, {"target_range": (-2.0, 2.0)})
        )
        np.testing.assert_array_equal(one.predict(rows), other.predict(rows))

    @pytest.mark.parametrize("model", REGRESSORS)
    @pytest.mark.parametrize("middle", [0.0, 70_000.0])
    def test_where_the_range_lies_does_not_matter(self, model, middle):
        rows = RNG.normal(size=(5_000, 4)) / 4
        targets = middle + 40_000 * rows[:, 0]
        declared = (middle - 50_000, middle + 50_000)
        fitted = model(target_range=declared, random_state=0).fit(rows, targets)
        assert fitted.score(rows, targets) > 0.9

    @pytest.mark.parametrize("offset, least", [(0.0, 0.9), (2.0, 0.9), (5.0, 0.8)])
    @pytest.mark.parametrize("model", [PrivateRidge, PrivateHuberRegressor])
    def test_an_offset_is_learnt(self, model, offset, least):
        rng = np.random.default_rng(3)
        rows = rng.normal(size=(20_000, 10))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        targets = 3 * rows[:, 0] + offset
        fitted = model(target_bound=3 + offset, random_state=0).fit(rows, targets)
        assert fitted.score(rows, targets) > least


class TestPriors:
    def rare(self):
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(3_000, 3)) / 3
        return rows, rows[:, 0] + 0.3 * rng.normal(size=3_000) > 0.95

    def test_are_where_the_intercept_begins(self):
        rows, rare = self.rare()
        share = {False: 0.98, True: 0.02}
        quiet = {"fit_intercept": False, "random_state": 0}
        model = PrivateLogisticRegression(class_prior=share, **quiet).fit(rows, rare)
        assert model.intercept_ == pytest.approx(np.log(0.02 / 0.98))
        three = PrivateLogisticRegression(
            class_prior={0: 0.5, 1: 0.3, 2: 0.2}, classes=[0, 1, 2], **quiet
        ).fit(rows, np.arange(3_000) % 3)
        at_zero = three.predict_proba(np.zeros((1, 3)))[0]
        np.testing.assert_allclose(at_zero, [0.5, 0.3, 0.2])

    def test_make_probabilities_better(self):
        rows, rare = self.rare()
        plain, better = (
            PrivateLogisticRegression(epsilon=0.5, class_prior=prior, random_state=0)
            .fit(rows, rare)
            .predict_log_proba(rows)[np.arange(3_000), rare.astype(int)]
            .mean()
            for prior in (None, {False: 0.98, True: 0.02})
        )
        assert better > plain

    @pytest.mark.parametrize(
        "prior",
        [
            [0.98, 0.02],
            {False: 0.98},
            {False: 0.98, True: 0.5},
            {False: 1.0, True: 0.0},
            {False: 2.0, True: -1.0},
            {False: np.nan, True: 0.02},
            {"no": 0.98, "yes": 0.02},
            0.02,
        ],
    )
    def test_that_are_none(self, prior):
        with pytest.raises((InvalidParameter, InvalidType), match="class_prior must be"):
            PrivateLogisticRegression(class_prior=prior).fit(*self.rare())


@pytest.mark.filterwarnings("error:at epsilon = .* noise dominates")
class TestProspects:
    def fit(self, examples, classes, **settings):
        rows = np.random.default_rng(0).normal(size=(examples, 3))
        model = PrivateLogisticRegression(classes=range(classes), **settings)
        return model.fit(rows, np.arange(examples) % classes)

    def test_hopeless_tasks_are_said_to_be(self):
        words = r"0.5 noise dominates 500 examples of 20 classes.* of \S+ or more, or about \d"
        for match in (words, "or 3 classes"):
            with pytest.warns(TooFewExamplesWarning, match=match):
                self.fit(500, 20, epsilon=0.5)
        with pytest.warns(TooFewExamplesWarning, match="noise dominates 6 examples"):
            PrivateRidge(target_bound=1.0).fit(np.eye(6), np.zeros(6))

    @pytest.mark.parametrize("remedy", ["epsilon", "examples", "classes", "adjacency"])
    def test_each_remedy_helps(self, remedy):
        task = {"examples": 300, "classes": 6, "epsilon": 0.5}
        changed = {"epsilon": 4.0, "examples": 3_000, "classes": 2, "adjacency": "zero-out"}
        with pytest.warns(TooFewExamplesWarning):
            self.fit(**task | {"examples": 200})
        self.fit(**task | {remedy: changed[remedy]})

    def test_not_where_the_noise_is_given(self):
        self.fit(40, 20, epsilon=None, noise_std=0.1)


def test_numbers_kept_as_objects_are_taken_with_a_bound():
    frame = Mixed((PEOPLE / 200).astype(object))
    assert PrivateLogisticRegression(feature_bound=2**0.5).fit(frame, RICH).privacy_


RARE = RNG.random(2_000) < 0.02
CLOSE = 0.9 + 0.03 * RNG.normal(size=(2_000, 10))
BOUND = 10**0.5


def told(model, rows, targets):
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        model.fit(rows, targets)
    found = [one for one in heard if one.category is TooFewExamplesWarning]
    assert all(one.filename == __file__ for one in found)
    return [str(one.message) for one in found]


def logistic(**settings):
    quick = {"feature_bound": BOUND, "batches": "cyclic", "counting": 0, "random_state": 1}
    return PrivateLogisticRegression(**(quick | settings))


def test_said_with_what_to_do():
    (text,) = told(logistic(), CLOSE, RARE)
    for remedy in ("ranges in a schema", "the feature bound", "the class prior", "epsilon"):
        assert remedy in text


@pytest.mark.parametrize(
    "settings, rows",
    [
        ({"class_prior": {False: 0.98, True: 0.02}}, CLOSE),
        ({"feature_bound": 0.1}, CLOSE - 0.9),
        ({}, np.resize(CLOSE, (20_000, 10))),
        ({"epsilon": 10.0}, CLOSE),
        ({}, CLOSE + 0.5 * RNG.normal(size=CLOSE.shape)),
        ({"feature_bound": 1.0}, RNG.normal(size=(400, 3))),
    ],
    ids=["prior known", "around a public middle", "many", "less private", "apart", "few around 0"],
)
def test_not_said_where_a_remedy_was_taken(settings, rows):
    assert told(logistic(**settings), rows, np.resize(RARE, len(rows))) == []


def test_not_said_of_regression():
    model = PrivateRidge(feature_bound=BOUND, target_range=(0, 1), batches="cyclic", random_state=1)
    assert told(model, CLOSE, CLOSE[:, 0]) == []


def test_the_remedy_helps():
    """Around a public middle the same signal, weak as it is, is found by the same noise."""
    rng = np.random.default_rng(3)
    rare = rng.random(5_000) < 0.02
    rows = 0.03 * rng.normal(size=(5_000, 10)) + 0.045 * rare[:, np.newaxis] * (np.arange(10) < 3)
    found = []
    for seed in range(4):
        model = logistic(feature_bound=0.1, random_state=seed).fit(rows, rare)
        outputs = model.decision_function(rows)
        found.append(np.mean(outputs[rare][:, np.newaxis] > outputs[~rare]))
    assert min(found) > 0.85


@pytest.mark.parametrize("noise", [1e-3, 10.0, 50.0])
def test_distance_is_that_of_the_noise(noise):
    """Where the bound is the noise's doing: the mean's error over the bound around it."""
    rng, release = np.random.default_rng(0), Release(MEAN, 2.0, noise)
    exact = np.append(np.full(10, 0.9 * 10**-0.5 * 2_000), 0.81 * 1_000)
    errors, lost = [], []
    for _ in range(200):
        centre = centre_of(exact + noise * rng.normal(size=11), release, examples=2_000, bound=3.0)
        errors.append(np.linalg.norm(centre.mean - 3.0 * exact[:-1] / 2_000) / centre.bound)
        lost.append(lost_distance(centre, release, examples=2_000, bound=3.0))
    if noise < 1.0:  # the least bound is not the noise's
        assert max(lost) == 0.0
    else:
        seen = [(e, t) for e, t in zip(errors, lost, strict=True) if t > 0.0]
        assert len(seen) > 150
        mean_error, mean_lost = np.sqrt(np.mean(np.square(seen), axis=0))
        assert mean_lost == pytest.approx(mean_error, rel=0.1)

"""Statistics beside a model: sums that one example moves as charged, and what is said."""

import json
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

import lastiterate as li
from lastiterate.accounting import account
from lastiterate.certificate.fields import digest
from lastiterate.errors import InvalidCertificate, InvalidParameter, InvalidType
from lastiterate.linear_model import (
    OutlierWarning,
    PrivateLogisticRegression,
    PrivateSchema,
    TooFewExamplesWarning,
)
from lastiterate.linear_model import published_statistics as rate_matching
from lastiterate.linear_model.published_statistics import (
    noisy_outlier_counts,
    noisy_undeclared_counts,
    warn_of_undeclared,
)
from lastiterate.other_releases import KINDS, MEAN, OUTLIERS, RATES, UNDECLARED, Release
from lastiterate.profile.rounded import gdp_but_for_failure
from lastiterate.train.data import bounded
from lastiterate.train.noise import Randomness, SeededBits, randomness
from tests.slow import slow
from tests.train.problems import ROWS, SIDES

RNG = np.random.default_rng(0)
AGE, INCOME = RNG.uniform(18, 90, 4_000), RNG.uniform(10, 200, 4_000)
PEOPLE = np.column_stack([AGE, INCOME])
RICH = INCOME > 100


class TestCounts:
    def examples(self, rows):
        return bounded(np.array(rows), np.zeros(len(rows)), bound=1.0, intercept=0.0)

    def exact(self, rows, outside):
        silent = Release(OUTLIERS, 3.0**0.5, 1e-9)
        counts = noisy_outlier_counts(
            self.examples(rows), np.array(outside), silent, Randomness(SeededBits(0))
        )
        return np.array(list(counts.values()))

    def test_are_those_of_the_rows(self):
        rows = [[10.1, 0.0], [9.9, 0.0], [0.0, 1e300], [0.09, 0.0], [0.11, 0.0], [0.0, 0.0]]
        assert self.exact(rows, [True, False] * 3).tolist() == [2, 2, 3]

    @pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
    def test_one_example_moves_them_no_farther_than_is_charged(self, adjacency):
        """Every pair of kinds; left out, an example is no outlier."""
        kinds = [([size, 0.0], out) for size in (100.0, 1.0, 0.01) for out in (False, True)]
        moves = []
        for one in kinds:
            for other in kinds if adjacency == "replace" else [([1.0, 0.0], False)]:
                ends = [self.exact([[1.0, 1.0], row], [True, out]) for row, out in (one, other)]
                moves.append(np.linalg.norm(ends[0] - ends[1]))
        assert max(moves) == pytest.approx(KINDS[OUTLIERS].sensitivity(adjacency))

    def test_have_the_noise_that_is_stated(self):
        release = Release.of_mu(OUTLIERS, 0.05, adjacency="replace")
        assert release.mu <= 0.05 * (1 + 1e-12)
        examples, outside = self.examples([[1.0, 0.0]] * 50), np.zeros(50, dtype=bool)
        drawn = np.array(
            [
                list(
                    noisy_outlier_counts(
                        examples, outside, release, Randomness(SeededBits(k))
                    ).values()
                )
                for k in range(400)
            ]
        )
        assert drawn.std() == pytest.approx(release.noise_std, rel=0.1)
        assert abs(drawn.mean()) < 4 * release.noise_std / 1200**0.5


@pytest.fixture(scope="module")
def model():
    return PrivateLogisticRegression(center=False).fit(PEOPLE / 200, RICH)


class TestGuarantee:
    def test_is_of_the_model_and_the_counts(self, model):
        (release,) = [one for one in model.privacy_.other_releases if one.kind == OUTLIERS]
        assert 0.999 < model.privacy_.epsilon(1e-5) <= 1.0
        alone = account(model.privacy_.run)
        assert alone.epsilon(1e-5) < model.privacy_.epsilon(1e-5)
        # No less than what the best bound composes to.
        at_least = alone.all["fixed-order/convex"].compose(model.privacy_.all[
            "fixed-order/convex"])  # fmt: skip
        whole = gdp_but_for_failure(model.privacy_.all["fixed-order/convex"])
        assert gdp_but_for_failure(at_least) > whole > release.mu
        last = gdp_but_for_failure(model.privacy_.by_position()[-1])
        assert last > gdp_but_for_failure(alone.by_position()[-1])

    def test_costs_half_a_hundredth_of_noise(self):
        with_counts, without = (
            PrivateLogisticRegression(counting=share).fit(PEOPLE / 200, RICH).privacy_.run
            for share in (0.1, 0.0)
        )
        assert 1.002 < with_counts.noise_std / without.noise_std < 1.01

    def test_of_given_noise(self):
        settings = {"epsilon": None, "noise_std": 0.01, "release_noise_std": 0.01}
        fitted = PrivateLogisticRegression(**settings).fit(PEOPLE / 200, RICH)
        alone = account(fitted.privacy_.run).epsilon(1e-5)
        assert alone < fitted.privacy_.epsilon(1e-5) < 1.02 * alone

    def test_the_report_tells_of_them(self, model):
        text = " ".join(str(model.privacy_).split())
        assert "noisy counts of very long rows" in text
        assert json.loads(model.privacy_.to_json())["other_releases"][0]["kind"] == OUTLIERS


COUNT = 4_000
JOBS, TOWNS = RNG.choice(["clerk", "nurse", "cook"], COUNT), RNG.choice(["A", "B"], COUNT)
TABLE = {"age": RNG.uniform(18, 90, COUNT), "job": JOBS, "town": TOWNS}
ILL = (JOBS == "nurse") ^ (RNG.uniform(size=COUNT) < 0.1)


def encoder_with(jobs):
    schema = {"age": {"range": [18, 90]}, "job": {"values": jobs}, "town": {"values": ["A", "B"]}}
    return PrivateSchema(schema).fit(TABLE)


def fitted(jobs, **settings):
    encoder = encoder_with(jobs)
    model = PrivateLogisticRegression(
        **{"epsilon": 2.0, "text_columns": encoder.text_columns_, "random_state": 0} | settings
    )
    return model.fit(encoder.transform(TABLE), ILL)


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
    fitted(["clerk", "nurse", "cook"])


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


@pytest.fixture(scope="module")
def whole():
    """A model with statistics of every kind that there may be together."""
    with pytest.warns(OutlierWarning):
        return fitted(["clerk", "Nurse", "cook"], rate_matching=0.1, random_state=None)


class TestCertificates:
    KINDS = (MEAN, OUTLIERS, UNDECLARED, RATES)

    def refused(self, record, match):
        with pytest.raises(InvalidCertificate, match=match):
            li.verify(json.dumps(record | {"digest": digest(record)}))

    def test_are_derived_again(self, whole):
        report = li.verify(whole.certificate_, parameters=whole.parameters_)
        assert tuple(one.kind for one in report.other_releases) == self.KINDS
        assert report.other_releases == whole.privacy_.other_releases
        assert report.epsilon(1e-5) == whole.privacy_.epsilon(1e-5) <= 2.0
        stated = json.loads(whole.certificate_)["other_releases"]
        assert stated[1]["published (noisy)"] == whole.outliers_
        assert stated[2]["published (noisy)"] == whole.undeclared_

    @pytest.mark.parametrize("kind", KINDS)
    def test_state_no_less_noise_and_no_release_less(self, whole, kind):
        at = self.KINDS.index(kind)
        record = json.loads(whole.certificate_)
        record["other_releases"][at]["noise_std"] /= 2
        self.refused(record, "mu is not|states epsilon|no number with stated noise")
        record = json.loads(whole.certificate_)
        del record["other_releases"][at]
        with pytest.raises(InvalidCertificate, match="digest"):
            li.verify(json.dumps(record))

    @pytest.mark.parametrize(
        "changes, reason",
        [
            ({"sensitivity": 1.0}, "cannot be read.*sensitivity must be at least"),
            ({"kind": "nothing"}, "cannot be read.*kind must be one of"),
            ({"what": "nothing"}, "cannot be read.*what must be"),
            ({"noise_std": float("1e999")}, "Infinity is no number"),
        ],
    )
    def test_have_no_other_release(self, whole, changes, reason):
        record = json.loads(whole.certificate_)
        record["other_releases"][1] |= changes
        self.refused(record, reason)

    def test_say_what_was_published(self, whole):
        """The counts gone, the same epsilon still holds: less was claimed to be published."""
        record = json.loads(whole.certificate_)
        del record["other_releases"]
        self.refused(record, "cannot be read")


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
    for examples in (10, 100, 1_000, 3_000):
        counts = dict.fromkeys("abc", round(0.1 * examples + 3.9 * noise))
        warn_of_undeclared(counts, release, examples)


class TestPlaces:
    @pytest.mark.parametrize("columns", [[(0, 1)], {3: (0, 1)}, "job"])
    def test_of_what_is_no_mapping(self, columns):
        with pytest.raises(InvalidType, match="text_columns"):
            fitted(["clerk", "nurse", "cook"], text_columns=columns)

    @pytest.mark.parametrize("place", [(1,), (2, 2), (-1, 2), (0, 7)])
    def test_of_rows_that_are_none(self, place):
        with pytest.raises(InvalidParameter, match=r"text_columns\['job'\]"):
            fitted(["clerk", "nurse", "cook"], text_columns={"job": place})


def rare(examples, seed):
    """Rows on a sphere, of which some 6 % are of the second class."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(examples, 20))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows, rng.random(examples) < expit(4.0 * rows[:, :5].sum(axis=1) - 4.2)


X, Y = rare(20_000, 0)
HELD, HELD_Y = rare(20_000, 1)
FAST = {"batches": "cyclic", "batch_size": 500, "epochs": 3, "random_state": 0}


class TestCalibration:
    @pytest.mark.parametrize("adjacency", ["replace", slow("zero-out")])
    def test_mean_probabilities_are_those_of_held_out_rows(self, adjacency):
        """Within a tenth on the mean of seeds; without it they are far too low."""
        assert 0.05 < HELD_Y.mean() < 0.07

        def ratios(**settings):
            models = [
                PrivateLogisticRegression(adjacency=adjacency, random_state=seed, **settings)
                for seed in range(3)
            ]
            means = [one.fit(X, Y).predict_proba(HELD)[:, 1].mean() for one in models]
            return np.array(means) / HELD_Y.mean()

        assert (ratios() < 0.75).all()
        matched = ratios(rate_matching=0.15)
        assert abs(matched.mean() - 1.0) < 0.1
        assert (np.abs(matched - 1.0) < 0.2).all()

    def test_publicly_known_shares_are_matched_instead_of_counts(self):
        prior = {False: 0.88, True: 0.12}  # twice as many, as elsewhere
        model = PrivateLogisticRegression(
            **FAST | {"epsilon": 8.0}, class_prior=prior, rate_matching=0.2
        ).fit(X, Y)
        assert model.predict_proba(HELD)[:, 1].mean() == pytest.approx(0.12, rel=0.1)

    def test_three_classes(self):
        rows, y = X[:5_000], np.where(Y, 2, X[:, 7] > 0.2)[:5_000].astype(int)
        model = PrivateLogisticRegression(
            **FAST | {"epsilon": 8.0}, classes=range(3), rate_matching=0.2
        ).fit(rows, y)
        shares = np.bincount(y) / y.size
        np.testing.assert_allclose(model.predict_proba(rows).mean(axis=0), shares, rtol=0.08)

    def test_noise_that_hides_all_counts_shifts_little(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = PrivateLogisticRegression(epsilon=0.1, rate_matching=0.1, random_state=0)
            model.fit(ROWS[:60], SIDES[:60])
        assert np.abs(model.rate_shift_).max() < 3.0

    def test_all_scores_are_shifted_alike(self):
        model = PrivateLogisticRegression(rate_matching=0.1, **FAST).fit(X, Y)
        shifted, shift = model.decision_function(HELD), model.rate_shift_
        assert shift.shape == (1,)
        assert abs(shift[0]) > 0.1
        model.intercept_ = model.intercept_ - shift
        np.testing.assert_allclose(shifted - model.decision_function(HELD), shift[0])


FEW = 1.5 * np.random.default_rng(2).normal(size=3_000) - 4.4  # outputs


def matched_ratios(outputs, share, noise_std, *, fits=60, prior=False):
    """The mean probabilities after matching, over the share, one for each draw of the noise."""
    many = len(outputs)
    targets = (np.arange(many) < share * many).astype(int)
    examples = bounded(outputs[:, np.newaxis], targets, bound=100.0, intercept=0.0)
    release = Release(RATES, 1.0, noise_std)
    shares = np.array([1.0 - share, share]) if prior else None
    found = [
        rate_matching.matched_rates(
            examples, np.ones((1, 1)), np.zeros(1), release, randomness(seed), shares=shares
        )
        for seed in range(fits)
    ]
    means = [expit(outputs + one.shift[0]).mean() for one in found]
    return np.array(means) / share, found


class TestTail:
    """The worst of many fits, where noise could pass for a shift that moved little."""

    @pytest.mark.parametrize("prior", [False, True])
    @pytest.mark.parametrize("before", [0.4, slow(0.7), slow(1.0), 1.5])
    @pytest.mark.parametrize("noise_std, worst", [(4.0, 1.3), (9.0, 1.6), (17.0, 2.5)])
    def test_no_fit_is_far_off(self, noise_std, worst, before, prior):
        """Of 85 examples, of which the model's probabilities find a part or more."""
        share = 85 / 3_000
        outputs = FEW + np.log(before * share / expit(FEW).mean())
        ratios, _ = matched_ratios(outputs, share, noise_std, prior=prior)
        assert ratios.max() < worst
        assert ratios.min() > 1.0 / worst
        assert np.sqrt(np.mean(np.log(ratios) ** 2)) < 1.6 * noise_std / 85

    @pytest.mark.parametrize("spread", [1.5, 3.0, 4.0])
    def test_without_noise_slow_shifts_are_matched(self, spread):
        """Also short ones, and from above."""
        for middle, share in ((-1.5, 0.4), (-3.0, 0.25), (-1.0, 0.2)):
            outputs = spread * np.random.default_rng(3).normal(size=3_000) + middle
            ratios, _ = matched_ratios(outputs, share, 0.1, fits=1)
            assert ratios[0] == pytest.approx(1.0, rel=0.08)


class TestFewExamples:
    def test_classes_that_noise_dominates_are_named(self):
        few = 20_000 * Y.mean()
        settings = FAST | {"classes": [False, True]}
        PrivateLogisticRegression(rate_matching=0.1, epsilon=2.0, **settings).fit(X, Y)
        with pytest.warns(TooFewExamplesWarning, match="rate matching, about .* of True") as heard:
            PrivateLogisticRegression(rate_matching=0.05, epsilon=0.5, **settings).fit(X, Y)
        assert heard[0].filename == __file__
        assert "of False" not in str(heard[0].message)
        assert f"{few:,.0f}" not in str(heard[0].message)

    def test_the_noisy_number_is_said(self):
        """The number that is said is the noisy one, and differs from draw to draw."""
        _, found = matched_ratios(FEW, 20 / 3_000, 9.0, fits=50)
        assert all(one.few.keys() == {1} for one in found)
        assert len({one.few[1] for one in found}) > 5
        assert all(0 <= one.few[1] <= 45 for one in found)
        _, found = matched_ratios(FEW, 85 / 3_000, 2.0, fits=50)
        assert not any(one.few for one in found)


def parts(rows, targets, *, classes=2, silent=None, seed=0):
    """The three vectors that noise is added to, of some model."""
    examples = bounded(rows, targets, bound=1.0, intercept=0.125)
    examples = replace(examples, silent=silent)
    rng = np.random.default_rng(seed)
    outputs = 1 if classes == 2 else classes
    coef, intercept = 3.0 * rng.normal(size=(outputs, rows.shape[1])), rng.normal(size=outputs)
    shifts = np.zeros(classes), rng.normal(size=classes)
    sums = [rate_matching._probability_sums(examples, coef, intercept, one) for one in shifts]
    return np.concatenate([rate_matching._class_counts(examples, classes), *sums])


class TestSensitivity:
    @pytest.mark.parametrize("classes", [2, 3, 7])
    def test_one_example_moves_the_sums_no_further_than_is_charged(self, classes):
        rng = np.random.default_rng(4)
        rows = rng.normal(size=(30, 4)) * rng.choice([1e-9, 1.0, 30.0, 1e200], size=(30, 1))
        targets = rng.integers(0, classes, 30)
        whole = parts(rows, targets, classes=classes)
        alone = []
        for i in range(30):
            rest = np.arange(30) != i
            alone.append(whole - parts(rows[rest], targets[rest], classes=classes))
        charged = KINDS[RATES].sensitivity
        assert max(np.linalg.norm(one) for one in alone) <= charged("zero-out")
        assert max(np.linalg.norm(a - b) for a in alone for b in alone) <= charged("replace")

    def test_the_charge_is_reached(self):
        """By a sure example of one class, and a sure one of the other in its place."""
        coef, none = np.array([[9.0]]), np.zeros(1)
        alone = []
        for side, label in ((50.0, 1), (-50.0, 0)):
            one = bounded(np.array([[side]]), np.array([label]), bound=100.0, intercept=0.0)
            sums = rate_matching._probability_sums(one, coef, none, np.zeros(2))
            alone.append(np.concatenate([rate_matching._class_counts(one, 2), sums, sums]))
        assert np.linalg.norm(alone[0] - alone[1]) == pytest.approx(math.sqrt(6.0), rel=1e-5)

    def test_undeclared_labels_count_alike_for_all_classes(self):
        rows, silent = ROWS[:5], np.array([True, False, False, False, False])
        labels = np.array([1, 0, 1, 0, 0])
        found = parts(rows, labels, silent=silent) - parts(rows[1:], labels[1:])
        np.testing.assert_allclose(found, np.full(6, 0.5), atol=1e-5)


class TestThreshold:
    def test_scores_above_it_are_the_second_class(self):
        model = PrivateLogisticRegression(random_state=0).fit(ROWS, SIDES)
        scores = model.decision_function(ROWS)
        np.testing.assert_array_equal(model.predict(ROWS, threshold=-2.0), scores > -2.0)
        np.testing.assert_array_equal(model.predict(ROWS), scores > 0.0)
        assert model.predict(ROWS, threshold=-2.0).mean() > model.predict(ROWS).mean()

    @pytest.mark.parametrize("bad", [np.nan, np.inf, "half"])
    def test_others_are_refused(self, bad):
        model = PrivateLogisticRegression(random_state=0).fit(ROWS, SIDES)
        with pytest.raises((InvalidParameter, TypeError), match="threshold"):
            model.predict(ROWS, threshold=bad)

    def test_three_classes_have_none(self):
        model = PrivateLogisticRegression(classes=range(3)).fit(ROWS, np.arange(600) % 3)
        with pytest.raises(InvalidParameter, match="threshold must be left out"):
            model.predict(ROWS, threshold=0.5)

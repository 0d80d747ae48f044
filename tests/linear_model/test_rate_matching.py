"""Mean probabilities that match the shares of the classes, and what that may cost."""

import json
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

import lastiterate as li
from lastiterate.errors import InvalidCertificate, InvalidParameter
from lastiterate.linear_model import published_statistics as rate_matching
from lastiterate.linear_model.classifiers import PrivateLinearSVC, PrivateLogisticRegression
from lastiterate.linear_model.fit_warnings import TooFewExamplesWarning
from lastiterate.linear_model.regressors import PrivateRidge
from lastiterate.other_releases import KINDS, RATES, Release
from lastiterate.saved_model.model_file import AlteredModel
from lastiterate.train.data import bounded
from lastiterate.train.noise import randomness
from tests.train.problems import ROWS, SIDES


def rare(examples, seed):
    """Rows on a sphere, of which some 6 % are of the second class."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(examples, 20))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows, rng.random(examples) < expit(4.0 * rows[:, :5].sum(axis=1) - 4.2)


X, Y = rare(20_000, 0)
HELD, HELD_Y = rare(20_000, 1)


class TestCalibration:
    @pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
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
            epsilon=8.0, class_prior=prior, rate_matching=0.2, random_state=0
        ).fit(X, Y)
        assert model.predict_proba(HELD)[:, 1].mean() == pytest.approx(0.12, rel=0.1)

    def test_three_classes(self):
        y = np.where(Y, 2, (X[:, 7] > 0.2).astype(int))
        model = PrivateLogisticRegression(
            epsilon=8.0, classes=range(3), rate_matching=0.2, random_state=0
        ).fit(X, y)
        shares = np.bincount(y) / y.size
        np.testing.assert_allclose(model.predict_proba(X).mean(axis=0), shares, rtol=0.05)

    def test_noise_that_hides_all_counts_shifts_little(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = PrivateLogisticRegression(epsilon=0.1, rate_matching=0.1, random_state=0)
            model.fit(ROWS[:60], SIDES[:60])
        assert np.abs(model.rate_shift_).max() < 3.0

    def test_all_scores_are_shifted_alike(self):
        model = PrivateLogisticRegression(rate_matching=0.1, random_state=0).fit(X, Y)
        shifted, shift = model.decision_function(HELD), model.rate_shift_
        assert shift.shape == (1,)
        assert shift[0] > 0.3
        model.intercept_ = model.intercept_ - shift
        np.testing.assert_allclose(shifted - model.decision_function(HELD), shift[0])


FEW = 1.5 * np.random.default_rng(2).normal(size=3_000) - 4.4  # outputs


def matched_ratios(outputs, share, noise_std, *, fits=200, prior=False):
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
    @pytest.mark.parametrize("before", [0.4, 0.7, 1.0, 1.5])
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
        settings = {"random_state": 0, "epochs": 2, "classes": [False, True]}
        with warnings.catch_warnings():
            warnings.simplefilter("error", TooFewExamplesWarning)
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
    return np.concatenate([rate_matching._counts(examples, classes), *sums])


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
            alone.append(np.concatenate([rate_matching._counts(one, 2), sums, sums]))
        assert np.linalg.norm(alone[0] - alone[1]) == pytest.approx(math.sqrt(6.0), rel=1e-5)

    def test_undeclared_labels_count_alike_for_all_classes(self):
        rows, silent = ROWS[:5], np.array([True, False, False, False, False])
        labels = np.array([1, 0, 1, 0, 0])
        found = parts(rows, labels, silent=silent) - parts(rows[1:], labels[1:])
        np.testing.assert_allclose(found, np.full(6, 0.5), atol=1e-5)


class TestBudget:
    @pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
    def test_all_releases_together_meet_the_target_only_just(self, adjacency):
        model = PrivateLogisticRegression(rate_matching=0.3, adjacency=adjacency).fit(ROWS, SIDES)
        report = model.privacy_
        assert [one.kind for one in report.other_releases] == ["mean", "outliers", RATES]
        assert 0.99 < report.epsilon(1e-5) <= 1.0
        usual = PrivateLogisticRegression(adjacency=adjacency).fit(ROWS, SIDES).privacy_
        assert max(np.ravel(report.run.noise_std)) > 1.03 * max(np.ravel(usual.run.noise_std))

    def test_a_forged_noise_is_refused(self):
        model = PrivateLogisticRegression(rate_matching=0.3).fit(ROWS, SIDES)
        assert li.verify(model.certificate_, parameters=model.parameters_).epsilon(1e-5) <= 1.0
        record = json.loads(model.certificate_)
        record["other_releases"][2]["noise_std"] *= 0.5
        with pytest.raises(InvalidCertificate):
            li.verify(json.dumps(record))


class TestFiles:
    @pytest.mark.filterwarnings("ignore:too few examples for rate")
    def test_a_saved_model_predicts_the_same(self, tmp_path):
        weights = {False: 0.5, True: 1.0}
        model = PrivateLogisticRegression(rate_matching=0.2, class_weight=weights).fit(ROWS, SIDES)
        li.save(model, tmp_path)
        loaded = li.load(tmp_path)
        np.testing.assert_array_equal(loaded.predict_proba(ROWS), model.predict_proba(ROWS))
        np.testing.assert_array_equal(loaded.rate_shift_, model.rate_shift_)
        assert loaded.class_weight == model.class_weight
        path = tmp_path / "model.json"
        record = json.loads(path.read_text())
        record["rate_shift"] = [record["rate_shift"][0] + 1.0]
        path.write_text(json.dumps(record))
        with pytest.raises(AlteredModel):
            li.load(tmp_path)

    @pytest.mark.filterwarnings("ignore:too few examples for rate")
    def test_a_shift_that_is_not_the_certified_one_is_not_saved(self, tmp_path):
        model = PrivateLogisticRegression(rate_matching=0.2).fit(ROWS, SIDES)
        model.rate_shift_ = model.rate_shift_ + 1.0
        model.intercept_ = model.intercept_ + 1.0
        with pytest.raises(InvalidParameter, match="as it was fitted"):
            li.save(model, tmp_path)


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


class TestRefusals:
    def test_models_without_probabilities(self):
        with pytest.raises(InvalidParameter, match="rate_matching must be 0 unless"):
            PrivateLinearSVC(rate_matching=0.1).fit(ROWS, SIDES)
        with pytest.raises(InvalidParameter, match="rate_matching must be 0 unless"):
            PrivateRidge(rate_matching=0.1, target_bound=1.0).fit(ROWS, SIDES)

    @pytest.mark.filterwarnings("ignore:too few examples for rate")
    def test_matched_rates_cannot_be_unlearned(self):
        key = b"a secret of 16 bytes or more"
        model = PrivateLogisticRegression(l2=0.1, rate_matching=0.1).fit(ROWS, SIDES, key=key)
        with pytest.raises(InvalidParameter, match="rate_matching=0 and"):
            model.unlearn(ROWS, SIDES, rows=[3], key=key, epsilon=1.0)

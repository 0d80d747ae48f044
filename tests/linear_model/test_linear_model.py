"""The estimators: scikit-learn's contract, what is refused, and nothing left behind."""

import copy
import json
import pickle
import signal
import subprocess
import sys
import threading
import warnings
from dataclasses import fields
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_is_fitted

from lastiterate.accounting import account
from lastiterate.errors import InvalidParameter, PrivacyWarning
from lastiterate.linear_model import estimator
from lastiterate.linear_model.classifiers import PrivateLinearSVC, PrivateLogisticRegression
from lastiterate.linear_model.preprocessing import PrivateScaler
from lastiterate.linear_model.regressors import PrivateRidge
from lastiterate.train.settings import TRAINED, SettingKind
from tests.slow import slow_if
from tests.train.problems import ESTIMATORS, MODELS, REGRESSORS, ROWS, SIDES, made

X, Y = ROWS, SIDES


def is_checked_for_longer(model):
    return model.__name__ in ("PrivateHuberRegressor", "PrivateLinearSVC")


class TestContract:
    @pytest.mark.parametrize("model", slow_if(is_checked_for_longer, ESTIMATORS))
    def test_common_checks(self, model):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = check_estimator(made(model), on_skip=None, on_fail=None)
        statuses = {status: set() for status in ("failed", "passed", "skipped")}
        for result in results:
            statuses[result["status"]].add(result["check_name"])
        assert not statuses["failed"]
        assert len(statuses["passed"]) > 35

    @pytest.mark.parametrize("model", MODELS)
    def test_every_setting_is_documented_kept_and_refused_by_name(self, model):
        given = {each.name: f"some {each.name}" for each in fields(model)}
        assert clone(model(**given)).get_params() == given
        for each in fields(model):
            assert f"\n{each.name} : " in model.__doc__
            if each.metadata["kind"].check is not SettingKind.check:
                instead = {"noise_std": "epsilon", "target_range": "target_bound"}
                target = {instead[each.name]: None} if each.name in instead else {}
                with pytest.raises(InvalidParameter, match=f"{each.name} must be"):
                    made(model, **target, **{each.name: "nonsense"}).checked()

    def test_in_a_pipeline(self):
        model = make_pipeline(PrivateScaler(2.0), PrivateLogisticRegression(epsilon=4.0))
        assert model.fit(X, Y).score(X, Y) > 0.85

    @pytest.mark.parametrize("model", MODELS)
    def test_sparse_rows(self, model):
        dense = made(model, random_state=3).fit(X, Y)
        thin = made(model, random_state=3).fit(sparse.csr_array(X), Y)
        np.testing.assert_allclose(dense.coef_, thin.coef_, atol=1e-6)
        np.testing.assert_allclose(
            dense.predict(X[:9]), thin.predict(sparse.csr_array(X[:9])), atol=1e-6
        )

    def test_selection_warns(self):
        with pytest.warns(PrivacyWarning, match="costs privacy"):
            cross_val_score(PrivateLogisticRegression(epsilon=4.0), X, Y, cv=2)
        with pytest.warns(PrivacyWarning, match="costs privacy"):
            GridSearchCV(PrivateLogisticRegression(), {"epochs": [1]}, cv=2).fit(X, Y)

    @pytest.mark.parametrize("classes", [2, 3])
    def test_probabilities(self, classes):
        y = np.arange(600) % classes
        model = PrivateLogisticRegression(classes=range(classes), random_state=0).fit(X, y)
        p = model.predict_proba(X)
        np.testing.assert_allclose(p.sum(axis=1), 1.0)
        np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), p)
        np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(X))

    def test_rows_beyond_the_bound_count_as_scaled_down(self):
        longer = X * np.maximum(1.0, 1.0 / np.linalg.norm(X, axis=1, keepdims=True))
        model = PrivateLogisticRegression(feature_bound=1.0, counting=0, random_state=0)
        first, second = clone(model).fit(longer, Y), clone(model).fit(7 * longer, Y)
        np.testing.assert_allclose(first.coef_, second.coef_, atol=1e-6)
        np.testing.assert_array_equal(first.predict(longer), first.predict(7 * longer))

    @pytest.mark.parametrize("model", MODELS)
    def test_settings_changed_after_fitting_change_no_prediction(self, model):
        fitted = made(model, random_state=0).fit(X, Y)
        before = fitted.predict(3.0 * X)
        others = {"feature_bound": 1e3, "fit_intercept": False, "epsilon": 9.0}
        others |= {"target_bound": 50.0} if model in REGRESSORS else {"classes": ["a", "b"]}
        np.testing.assert_array_equal(fitted.set_params(**others).predict(3.0 * X), before)


class TestPrivacy:
    @pytest.mark.parametrize("adjacency, factor", [("replace", 2.0), ("zero-out", 1.0)])
    @pytest.mark.parametrize("model", MODELS)
    def test_meets_the_target_only_just(self, model, adjacency, factor):
        fitted = made(model, epsilon=1.5, delta=1e-6, adjacency=adjacency).fit(X, Y)
        assert 1.49 < fitted.privacy_.epsilon(1e-6) <= 1.5
        run = fitted.privacy_.run
        assert run.adjacency == adjacency
        assert run.releases == "last-iterate"
        assert np.max(run.step_size) * run.loss.smoothness <= 2.0
        radius = (1 + (0.25 if model in REGRESSORS else 0.125) ** 2) ** 0.5
        clip = json.loads(fitted.certificate_)["objective"]["clip"]
        expected = factor * clip * radius
        np.testing.assert_allclose(run.sensitivity, expected, rtol=1e-12)

    @pytest.mark.parametrize("batches", slow_if("sampled".__eq__, TRAINED))
    def test_every_rule_meets_the_target(self, batches):
        size = None if batches == "full" else 200
        model = PrivateLogisticRegression(
            batches=batches, batch_size=size, epochs=3, adjacency="zero-out"
        ).fit(X, Y)
        assert model.privacy_.run.batches.name == batches
        assert 0.95 < model.privacy_.epsilon(1e-5) <= 1.0

    @pytest.mark.parametrize("name", TRAINED)
    def test_steps_expand_on_no_batch_that_ever_occurs(self, name):
        size = 600 if name == "full" else 20
        settings = {"epsilon": None, "noise_std": 0.5, "epochs": 2, "l2": 0.01}
        model = PrivateLogisticRegression(**settings, batches=name, batch_size=size)
        run = model.fit(X, Y).privacy_.run
        rule, own = run.batches, run.loss.smoothness - run.loss.regulariser
        # The penalty counts twice: with it, steps are those that contract most.
        room = (2.0 / run.step_size - 2.0 * run.loss.regulariser) * size / own
        if rule.exact_size:
            assert room == pytest.approx(size, rel=1e-9)
            return
        p, counts = Fraction(size, 600), range(int(room) + 1, 601)
        larger = sum(comb(600, k) * p**k * (1 - p) ** (600 - k) for k in counts)
        assert 1e-19 < larger < 1e-15

    def test_given_noise(self):
        model = PrivateLogisticRegression(epsilon=None, noise_std=0.2, release_noise_std=0.1)
        run = model.fit(X, Y).privacy_.run
        assert (run.noise_std, run.release_noise_std) == (0.2, 0.1)

    def test_the_envelope_is_charged(self):
        run = PrivateLogisticRegression(classes=range(3)).fit(X, np.arange(600) % 3).privacy_.run
        exact = 2 * 2**0.5 / 4 * (1 + 0.125**2) ** 0.5
        assert exact < run.sensitivity < exact * (1 + 1e-6)

    def test_the_plan_does_not_depend_on_rows_or_labels(self):
        runs = []
        for seed in range(2):
            rng = np.random.default_rng(seed)
            model = PrivateLogisticRegression(classes=[0, 1, 2])
            runs.append(
                model.fit(rng.normal(size=(200, 2)), rng.integers(2, size=200)).privacy_.run
            )
        assert runs[0] == runs[1]

    def test_secure_models_differ_and_seeded_ones_do_not(self):
        first, second = (PrivateLogisticRegression().fit(X, Y).coef_ for _ in range(2))
        assert not np.array_equal(first, second)
        first, second = (PrivateLogisticRegression(random_state=1).fit(X, Y).coef_ for _ in "ab")
        np.testing.assert_array_equal(first, second)

    def test_a_pickled_model_keeps_its_certificate(self, fitted):
        model = fitted(PrivateLogisticRegression)
        again = pickle.loads(pickle.dumps(model))
        assert again.certificate_ == model.certificate_
        assert again.privacy_.epsilon(1e-5) == model.privacy_.epsilon(1e-5)


class TestUtility:
    def test_more_privacy_costs_accuracy_and_enough_examples_none(self):
        rng = np.random.default_rng(1)
        rows = rng.normal(size=(20_000, 5))
        labels = rows @ [1, 2, -1, 0, 0] > 0
        loose, tight = (
            PrivateLogisticRegression(epsilon=e, random_state=0)
            .fit(rows, labels)
            .score(rows, labels)
            for e in (2.0, 0.01)
        )
        assert loose > 0.98
        assert tight < loose

    @pytest.mark.parametrize("model", [m for m in REGRESSORS if hasattr(m, "target_bound")])
    def test_regression(self, model):
        rng = np.random.default_rng(2)
        rows = rng.normal(size=(10_000, 4)) / 4
        targets = 100 * (rows @ [0.5, -0.5, 0.2, 0.0] + 0.2)
        fitted = made(model, target_bound=100.0, random_state=0).fit(rows, targets)
        assert fitted.score(rows, targets) > 0.9

    @pytest.mark.parametrize("model", REGRESSORS)
    def test_a_linear_target_is_not_bent(self, model):
        """Where noise hardly matters, what is left unexplained is what least squares leaves."""
        rng = np.random.default_rng(0)
        rows = rng.uniform(-1.0, 1.0, size=(10_000, 10))
        targets = rows @ rng.normal(size=10) + 0.1 * rng.normal(size=10_000)
        ends = (-8.0, 8.0)
        fitted = model(epsilon=3.0, target_range=ends, feature_bound=10**0.5, random_state=0)
        assert fitted.fit(rows, targets).score(rows, targets) > 0.985  # .977 if cut at .8

    def test_declared_classes_may_be_absent(self):
        model = PrivateLogisticRegression(classes=["a", "b", "c"])
        assert model.fit(X, np.where(Y, "a", "b")).coef_.shape == (3, 4)


class Boom(KeyboardInterrupt):
    pass


class TestNothingIsLeftBehind:
    @pytest.mark.parametrize("error", [Boom, ValueError, MemoryError])
    def test_by_a_fit_that_fails(self, monkeypatch, error, fitted):
        model = copy.copy(fitted(PrivateLogisticRegression))

        def fails(*_, **__):
            raise error

        monkeypatch.setattr(estimator, "noisy_descent", fails)
        with pytest.raises(error):
            model.fit(X, Y)
        with pytest.raises(NotFittedError):
            check_is_fitted(model)
        assert not [name for name in vars(model) if name.endswith("_")]

    def test_by_control_c(self):
        code = (
            "import numpy as np, signal, sys\n"
            "from lastiterate.linear_model import PrivateLogisticRegression as Model\n"
            # What shells start in the background ignores it.
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "X = np.random.rand(200_000, 50); y = np.arange(200_000) % 10\n"
            "model = Model(epsilon=8.0, epochs=200)\n"
            "print('ready', flush=True)\n"
            "try:\n"
            "    model.fit(X, y)\n"
            "except KeyboardInterrupt:\n"
            "    sys.exit(0 if not [k for k in vars(model) if k.endswith('_')] else 3)\n"
            "sys.exit(4)\n"
        )
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"ready\n"
            threading.Timer(0.3, lambda: process.send_signal(signal.SIGINT)).start()
            try:
                assert process.wait(timeout=60) == 0
            finally:
                process.kill()

    @pytest.mark.parametrize("model", MODELS)
    def test_no_way_to_see_more_than_the_last_iterate(self, model, fitted):
        fitted = fitted(model)
        published = {name for name in vars(fitted) if name.endswith("_")}
        allowed = {"n_features_in_", "parameters_", "privacy_", "certificate_", "n_iter_",
                   "classes_", "coef_", "intercept_", "feature_bound_", "outliers_",
                   "target_bound_", "center_", "center_bound_", "undeclared_", "rate_shift_",
                   "interval_estimate_", "interval_covariance_", "ledger_"}  # fmt: skip
        assert published <= allowed
        assert not hasattr(fitted, "partial_fit")
        with pytest.raises(AttributeError, match="compose"):
            fitted.partial_fit(X, Y)


class TestRefusals:
    @pytest.mark.parametrize(
        "changes, match",
        [
            ({"epsilon": 0.0}, r"epsilon must be a number in \(0, 100\]"),
            ({"epsilon": -1.0}, "epsilon must be"),
            ({"epsilon": np.nan}, "epsilon must be"),
            (
                {"epsilon": None},
                "one of epsilon and noise_std must be given; found neither",
            ),
            ({"noise_std": 1.0}, "one of epsilon and noise_std must be given; found both"),
            ({"delta": 1.0}, r"delta must be a number in \(0, 1\)"),
            ({"delta": 0.0}, "delta must be"),
            ({"batch_size": 601}, r"batch_size must be a whole number in \[1, 600\]"),
            ({"epochs": 0}, "epochs must be"),
            ({"adjacency": "add"}, "adjacency must be one of"),
            ({"batches": "random"}, "batches must be one of"),
            ({"feature_bound": 0.0}, "feature_bound must be"),
            ({"feature_bound": np.inf}, "feature_bound must be"),
            ({"clip_norm": -1.0}, "clip_norm must be"),
            ({"clip_norm": "1"}, "clip_norm must be"),
            ({"clip": "norm"}, "clip must be one of"),
            ({"l2": -1.0}, "l2 must be"),
            ({"warm_start": True}, "warm_start must be False: .*compose"),
            ({"classes": [0]}, "classes must be a sequence of at least two labels"),
            ({"classes": "ab"}, "classes must be a sequence"),
            ({"classes": 3}, "classes must be a sequence"),
            ({"classes": [0, "a"]}, "classes must be a sequence .* of one kind"),
            ({"classes": [0.0, np.nan]}, "classes must be a sequence .* finite"),
        ],
    )
    def test_parameters(self, changes, match):
        with pytest.raises(InvalidParameter, match=match):
            PrivateLogisticRegression(**changes).fit(X, Y)

    @pytest.mark.parametrize("name", ["C", "sample_weight", "max_iter", "alpha", "solver"])
    @pytest.mark.parametrize("model", MODELS)
    def test_parameters_that_others_have(self, model, name):
        with pytest.raises(TypeError, match=rf"{name} must be left out: .*got {name}=7"):
            model(**{name: 7})

    def test_one_class(self):
        with pytest.raises(InvalidParameter, match="at least two classes"):
            PrivateLogisticRegression().fit(X, np.zeros(600))

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_rows_that_would_poison_the_model(self, bad):
        rows = X.copy()
        rows[3, 1] = bad
        for each in (rows, sparse.csr_array(rows)):
            with pytest.raises(ValueError, match=r"NaN|infinity"):
                PrivateLogisticRegression().fit(each, Y)

    def test_values_of_the_data_are_not_printed(self, capfd):
        PrivateLogisticRegression().fit(X, Y)
        assert capfd.readouterr() == ("", "")

    def test_three_classes_for_a_machine_of_two(self):
        with pytest.raises(InvalidParameter, match="PrivateLogisticRegression takes more"):
            PrivateLinearSVC(classes=range(3)).fit(X, np.arange(600) % 3)


def test_a_penalty_is_made_use_of():
    """Steps contract with it: the longest ones would not, and the guarantee would be weaker."""
    rows = np.random.default_rng(0).normal(size=(20_000, 3))
    run = PrivateLogisticRegression(l2=1e-3, counting=0).fit(rows, rows[:, 0] > 0).privacy_.run
    assert run.step_size == pytest.approx(2.0 / (run.loss.smoothness + 1e-3), rel=1e-9)
    longer = 2.0 / run.loss.smoothness / run.step_size
    longest = run.replace(
        step_size=run.step_size * longer, release_noise_std=run.release_noise_std * longer
    )
    assert account(run).epsilon(1e-5) < 0.7 * account(longest).epsilon(1e-5)


class TestWordsOfOtherLibraries:
    """Each is refused with the word that is meant here."""

    @pytest.mark.parametrize(
        "attempt, said",
        [
            (lambda: PrivateLogisticRegression(epsilo=1), "did you mean 'epsilon'"),
            (lambda: PrivateLogisticRegression().set_params(C=1), "l2 is the penalty"),
            (
                lambda: PrivateRidge(target_bound=1, adjacency="add_remove").checked(),
                "'zero-out'",
            ),
            (lambda: PrivateRidge(target_bound=1, batches="poisson").checked(), "'sampled' draws"),
            (lambda: PrivateRidge(target_bound=1, batches="shuffled").checked(), "DataLoader"),
            (lambda: PrivateRidge(target_bound=1, batches="cylic").checked(), "mean 'cyclic'"),
            (lambda: PrivateLogisticRegression().fit(ROWS, ROWS[:, 0]), "PrivateRidge and"),
        ],
    )
    def test_they_are_refused_with_a_remedy(self, attempt, said):
        with pytest.raises(InvalidParameter, match=said):
            attempt()

    @pytest.mark.filterwarnings("ignore::lastiterate.linear_model.PrivacyWarning")
    def test_a_grid_of_them_has_the_same_remedy(self):
        search = GridSearchCV(PrivateLogisticRegression(), {"C": [1.0]})
        with pytest.raises(InvalidParameter, match="l2 is the penalty"):
            search.fit(ROWS, SIDES)

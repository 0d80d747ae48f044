"""The estimators: scikit-learn's contract, weights, guarantees, refusals; nothing stays behind."""

import copy
import json
import pickle
import signal
import subprocess
import sys
import threading
import warnings
from dataclasses import fields, replace
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_is_fitted

import lastiterate as li
from lastiterate.accounting import account
from lastiterate.certificate.verify import verify
from lastiterate.errors import InvalidCertificate, InvalidParameter, InvalidType
from lastiterate.linear_model import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateScaler,
    PrivateScore,
    estimator,
)
from lastiterate.other_releases import INTERVALS, MEAN, OUTLIERS, RATES
from lastiterate.train.data import FAST, PROVED, bounded
from lastiterate.train.noisy_descent import gradient_sum
from lastiterate.train.objectives import Huber, Logistic, SmoothedHinge, Softmax
from lastiterate.train.settings import TRAINED, SettingKind
from tests.estimator_docstrings import lacks
from tests.slow import slow, slow_if
from tests.train.problems import ESTIMATORS, MODELS, REGRESSORS, ROWS, SIDES, made

X, Y = ROWS, SIDES


def is_checked_for_longer(model):
    return model.__name__ in ("PrivateHuberRegressor", "PrivateLinearSVC")


class TestContract:
    @pytest.mark.parametrize("model", slow_if(is_checked_for_longer, ESTIMATORS))
    def test_common_checks(self, model):
        quick = {} if model is PrivateScaler else {"batches": "cyclic", "epochs": 1}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = check_estimator(made(model, **quick), on_skip=None, on_fail=None)
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

    @pytest.mark.parametrize("model", MODELS)
    def test_sparse_rows(self, model):
        dense = made(model, random_state=3).fit(X, Y)
        thin = made(model, random_state=3).fit(sparse.csr_array(X), Y)
        np.testing.assert_allclose(dense.coef_, thin.coef_, atol=1e-6)
        np.testing.assert_allclose(
            dense.predict(X[:9]), thin.predict(sparse.csr_array(X[:9])), atol=1e-6
        )

    @pytest.mark.parametrize("classes", [2, 3])
    def test_probabilities(self, classes):
        y = np.arange(600) % classes
        model = PrivateLogisticRegression(classes=range(classes), random_state=0).fit(X, y)
        p = model.predict_proba(X)
        np.testing.assert_allclose(p.sum(axis=1), 1.0)
        np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), p)
        np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(X))

    @pytest.mark.parametrize("model", MODELS)
    def test_settings_changed_after_fitting_change_no_prediction(self, model):
        fitted = made(model, random_state=0).fit(X, Y)
        before = fitted.predict(3.0 * X)
        others = {"feature_bound": 1e3, "fit_intercept": False, "epsilon": 9.0}
        others |= {"target_bound": 50.0} if model in REGRESSORS else {"classes": ["a", "b"]}
        np.testing.assert_array_equal(fitted.set_params(**others).predict(3.0 * X), before)


HARD_TO_ACCOUNT = ("sampled", "balanced", "balls-and-bins-each-epoch")
RELEASES = [
    (PrivateLogisticRegression, {"rate_matching": 0.3}, [MEAN, OUTLIERS, RATES]),
    (PrivateLogisticRegression, {"intervals": True}, [OUTLIERS, INTERVALS]),
    (PrivateRidge, {"intervals": True}, [OUTLIERS, INTERVALS]),
    (PrivateHuberRegressor, {"intervals": True}, [OUTLIERS, INTERVALS]),
]


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

    @pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
    @pytest.mark.parametrize("model, settings, kinds", RELEASES)
    @pytest.mark.filterwarnings("ignore:no coefficient has a finite")  # noise decides that
    def test_all_releases_together_meet_it_only_just(self, model, settings, kinds, adjacency):
        fitted = made(model, adjacency=adjacency, **settings).fit(X, Y)
        report = li.verify(fitted.certificate_, parameters=fitted.parameters_)
        assert [one.kind for one in report.other_releases] == kinds
        assert 0.99 < report.epsilon(1e-5) <= 1.0
        assert li.account(report.run).epsilon(1e-5) < report.epsilon(1e-5)

    @pytest.mark.parametrize("batches", slow_if(HARD_TO_ACCOUNT.__contains__, TRAINED))
    def test_every_rule_meets_the_target(self, batches):
        size = None if batches == "full" else 200
        model = PrivateLogisticRegression(
            batches=batches, batch_size=size, epochs=3, adjacency="zero-out"
        ).fit(X, Y)
        assert model.privacy_.run.batches.name == batches
        assert 0.95 < model.privacy_.epsilon(1e-5) <= 1.0

    @pytest.mark.parametrize("name", slow_if("sampled".__eq__, TRAINED))
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

    @pytest.mark.slow
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


REFUSED = {
    "epsilon": [0.0, -1.0, np.nan, np.inf, 100.5, 1e9],
    "delta": [0.0, 1.0],
    "batch_size": [601],
    "epochs": [0],
    "adjacency": ["add"],
    "batches": ["random"],
    "feature_bound": [0.0, np.inf, "1"],
    "clip_norm": [-1.0, "1"],
    "clip": ["norm"],
    "l2": [-1.0],
    "warm_start": [True],
    "classes": [[0], "ab", 3, [0, "a"], [0.0, np.nan], [[0, 1], [2, 3]], np.eye(2)],
    "counting": [-0.1, 0.91, np.nan, "much"],
    "center": ["yes", 1, None],
}


class TestRefusals:
    @pytest.mark.parametrize("name", REFUSED)
    def test_parameters(self, name):
        for value in REFUSED[name]:
            with pytest.raises(InvalidParameter, match=f"{name} must be"):
                PrivateLogisticRegression(**{name: value}).fit(X, Y)

    def test_neither_or_both_of_noise_and_epsilon(self):
        for given, found in (({"epsilon": None}, "neither"), ({"noise_std": 1.0}, "both")):
            match = f"one of epsilon and noise_std must be given; found {found}"
            with pytest.raises(InvalidParameter, match=match):
                PrivateLogisticRegression(**given).fit(X, Y)

    @pytest.mark.parametrize("name", ["C", "sample_weight", "max_iter", "alpha", "solver"])
    @pytest.mark.parametrize("model", MODELS)
    def test_parameters_that_others_have(self, model, name):
        with pytest.raises(TypeError, match=rf"{name} must be left out: .*got {name}=7"):
            model(**{name: 7})

    def test_values_of_the_data_are_not_printed(self, capfd):
        PrivateLogisticRegression().fit(X, Y)
        assert capfd.readouterr() == ("", "")


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


THREE = PrivateLogisticRegression(classes=range(3))
WITH_INTERVALS = PrivateLogisticRegression(intervals=True)


def ridge(**settings):
    return PrivateRidge(target_bound=1.0, **settings).checked()


@pytest.mark.filterwarnings("ignore::lastiterate.linear_model.PrivacyWarning")
@pytest.mark.parametrize(
    "attempt, said",
    [
        (lambda: PrivateLogisticRegression(epsilo=1), "did you mean 'epsilon'"),
        (lambda: PrivateLogisticRegression().set_params(C=1), "l2 is the penalty"),
        (
            lambda: GridSearchCV(PrivateLogisticRegression(), {"C": [1.0]}).fit(X, Y),
            "l2 is the penalty",
        ),
        (lambda: ridge(adjacency="add_remove"), "'zero-out'"),
        (lambda: ridge(batches="poisson"), "'sampled' draws"),
        (lambda: ridge(batches="shuffled"), "DataLoader"),
        (lambda: ridge(batches="cylic"), "mean 'cyclic'"),
        (lambda: PrivateLogisticRegression().fit(X, X[:, 0]), "PrivateRidge and"),
        (lambda: PrivateLinearSVC(intervals=True).fit(X, Y), "intervals must be False unless"),
        (lambda: THREE.set_params(intervals=True).fit(X, Y), "intervals must be False unless"),
        (lambda: WITH_INTERVALS.fit(np.ones((600, 201)), Y), "more than 200 features"),
        (lambda: PrivateLinearSVC(rate_matching=0.1).fit(X, Y), "rate_matching must be 0 unless"),
        (
            lambda: PrivateRidge(target_bound=1.0, rate_matching=0.1).fit(X, Y),
            "rate_matching must be 0 unless",
        ),
        (lambda: PrivateLogisticRegression().fit(X, np.zeros(600)), "at least two classes"),
        (
            lambda: PrivateLinearSVC(classes=range(3)).fit(X, np.arange(600) % 3),
            "PrivateLogisticRegression takes more",
        ),
    ],
)
def test_what_is_meant_instead_is_said(attempt, said):
    with pytest.raises(InvalidParameter, match=said):
        attempt()


N = 40
OBJECTIVES = [Logistic(), Softmax(classes=3), Huber(clip=0.5), SmoothedHinge()]
WEIGHTS = np.random.default_rng(1).uniform(0.01, 1.0, len(ROWS))
KEY = b"a secret of 16 bytes or more"


def examples_of(objective, weights, seed=0):
    """Rows within and far beyond the bound, targets of the objective, these weights."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(N, 5)) * rng.choice([0.3, 1.0, 1e6], size=(N, 1))
    targets = rng.integers(0, max(objective.outputs, 2), N).astype(np.intp)
    if isinstance(objective, Huber):
        targets = rng.uniform(-9, 9, N)
    found = bounded(rows, targets, bound=1.0, intercept=0.25)
    return replace(found, weights=weights)


class TestSensitivity:
    @pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda one: type(one).__name__)
    @pytest.mark.parametrize("arithmetic", [PROVED, FAST])
    def test_no_example_moves_a_step_further_than_without_weights(self, objective, arithmetic):
        weights = np.random.default_rng(2).uniform(1e-6, 1.0, N)
        weights[:5] = 1.0
        examples = replace(examples_of(objective, weights), arithmetic=arithmetic)
        parameters = np.random.default_rng(3).normal(size=(objective.outputs, 6))
        total = gradient_sum(objective, examples, slice(None), parameters)
        bound = objective.gradient_bound(radius=examples.radius)
        alone = []
        for left_out in range(N):
            rest = replace(examples, silent=np.arange(N) == left_out)
            alone.append(total - gradient_sum(objective, rest, slice(None), parameters))
            assert np.linalg.norm(alone[-1]) <= weights[left_out] * bound + 1e-9
        pairs = [np.linalg.norm(one - other) for one in alone for other in alone]
        assert max(pairs) <= objective.sensitivity(radius=examples.radius, adjacency="replace")

    @pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda one: type(one).__name__)
    def test_a_gradient_is_multiplied_by_its_weight(self, objective):
        parameters = np.random.default_rng(3).normal(size=(objective.outputs, 6))
        sums = [
            gradient_sum(objective, examples_of(objective, given), slice(None), parameters)
            for given in (np.full(N, 0.25), None)
        ]
        np.testing.assert_allclose(sums[0], 0.25 * sums[1], rtol=1e-12, atol=1e-14)

    @pytest.mark.parametrize("model", MODELS)
    def test_run_and_guarantee_are_those_without_weights(self, model):
        reports = [
            made(model, epsilon=1.0).fit(ROWS, SIDES, **given).privacy_
            for given in ({"sample_weight": WEIGHTS}, {})
        ]
        assert reports[0].run == reports[1].run
        assert reports[0].epsilon(1e-5) == reports[1].epsilon(1e-5) <= 1.0


class TestWhatIsLearnt:
    @pytest.mark.parametrize("model", MODELS)
    def test_weights_of_one_change_nothing(self, model):
        usual = made(model, random_state=0)
        ones = clone(usual).fit(ROWS, SIDES, sample_weight=np.ones(len(ROWS)))
        np.testing.assert_array_equal(ones.parameters_, usual.fit(ROWS, SIDES).parameters_)

    @pytest.mark.parametrize("model", [PrivateLogisticRegression, PrivateLinearSVC])
    def test_a_class_weighs_what_its_examples_weigh(self, model):
        by_class = model(class_weight={False: 0.125, True: 1.0}, random_state=0).fit(ROWS, SIDES)
        each = model(random_state=0).fit(ROWS, SIDES, sample_weight=np.where(SIDES, 1.0, 0.125))
        usual = model(random_state=0).fit(ROWS, SIDES)
        np.testing.assert_array_equal(by_class.parameters_, each.parameters_)
        assert by_class.predict(ROWS).mean() > usual.predict(ROWS).mean()

    def test_weights_of_classes_above_one_are_in_units_of_the_largest(self):
        models = [
            PrivateLogisticRegression(class_weight=given, random_state=0).fit(ROWS, SIDES)
            for given in ({False: 1.0, True: 8.0}, {False: 0.125, True: 1.0})
        ]
        np.testing.assert_array_equal(models[0].parameters_, models[1].parameters_)

    @pytest.mark.parametrize("model", MODELS)
    def test_rows_in_a_file_and_sparse_rows_weigh_the_same(self, model, tmp_path):
        mapped = np.memmap(tmp_path / "rows", dtype=np.float64, shape=ROWS.shape, mode="w+")
        mapped[:] = ROWS
        found = [
            made(model, random_state=0, batches="cyclic", batch_size=100)
            .fit(rows, SIDES, sample_weight=WEIGHTS)
            .coef_
            for rows in (ROWS, sparse.csr_array(ROWS), mapped)
        ]
        np.testing.assert_allclose(found[1], found[0], atol=1e-6)
        np.testing.assert_allclose(found[2], found[0], atol=1e-6)

    def test_unlearning_knows_the_weights_of_classes(self):
        model = PrivateLogisticRegression(l2=0.1, class_weight={False: 0.5, True: 1.0})
        model.fit(ROWS, SIDES, key=KEY)
        new = model.unlearn(ROWS, SIDES, rows=[3], key=KEY, extra_steps=20)
        assert new.unlearning_.examples == 1
        model.class_weight = {False: 1.0, True: 1.0}
        with pytest.raises(InvalidParameter, match="data and key"):
            model.unlearn(ROWS, SIDES, rows=[3], key=KEY, extra_steps=20)


class TestWeightsRefused:
    @pytest.mark.parametrize("bad", [0.0, -0.5, 1.0000001, np.nan, np.inf])
    def test_one_weight_outside(self, bad):
        weights = np.ones(len(ROWS))
        weights[7] = bad
        with pytest.raises(InvalidParameter, match=r"in \(0, 1\].* a weight outside"):
            PrivateLogisticRegression().fit(ROWS, SIDES, sample_weight=weights)

    @pytest.mark.parametrize("bad", ["words", [1.0], np.ones((600, 1)), 1.0, [{}] * 600])
    def test_others_than_a_column(self, bad):
        with pytest.raises((InvalidParameter, InvalidType), match="sample_weight must be 600"):
            PrivateLogisticRegression().fit(ROWS, SIDES, sample_weight=bad)

    @pytest.mark.parametrize(
        "bad",
        ["balanced", 7, {True: 1.0}, {0: 0.5, 1: 1.0, 2: 1.0}, {0: 0.0, 1: 1.0}, {0: -2.0, 1: 1.0}],
    )
    @pytest.mark.parametrize("model", [PrivateLogisticRegression, PrivateLinearSVC])
    def test_weights_of_classes(self, model, bad):
        with pytest.raises((InvalidParameter, InvalidType), match="class_weight"):
            model(class_weight=bad).fit(ROWS, SIDES)

    @pytest.mark.parametrize("model", REGRESSORS)
    def test_regressors_have_no_classes(self, model):
        with pytest.raises(TypeError, match="class_weight must be left out: regressors"):
            made(model, class_weight={0: 1.0})


SETTINGS = {
    "classes": [False, True],
    "batches": "cyclic",
    "batch_size": 100,
    "random_state": 1,
    "counting": 0.0,
}


@pytest.fixture(scope="module")
def models() -> dict[int, PrivateLogisticRegression]:
    return {
        most: PrivateLogisticRegression(examples_per_person=most, **SETTINGS).fit(ROWS, SIDES)
        for most in (1, 3)
    }


@pytest.mark.filterwarnings("ignore::lastiterate.errors.PrivacyWarning")
class TestPersons:
    def test_the_target_is_met_for_persons(self, models: dict) -> None:
        for most, model in models.items():
            report = li.verify(model.certificate_, parameters=model.parameters_)
            assert report.run.examples_per_person == most
            assert 0.9 < report.epsilon(1e-5) <= 1.0
        alone = models[3].privacy_.run.replace(examples_per_person=1)
        assert li.account(alone).epsilon(1e-5) < 0.5

    def test_a_certificate_says_that_nothing_enforces_it(self, models: dict) -> None:
        needs = [one["needs"] for one in json.loads(models[3].certificate_)["hypotheses"]]
        assert "no person with more than 3 of the examples" in needs
        assert "person" not in models[1].certificate_

    def test_a_certificate_for_rows_is_none_for_persons(self, models: dict) -> None:
        forged = models[1].certificate_.replace(
            '"releases": "last-iterate"',
            '"releases": "last-iterate",\n    "examples_per_person": 3',
        )
        with pytest.raises(InvalidCertificate, match="does not hold"):
            li.verify(forged)

    def test_a_score_costs_persons_what_was_asked_for(self, models: dict) -> None:
        score = PrivateScore.of(models[3], ROWS, SIDES, epsilon=0.1, random_state=1)
        assert 0.099 < score.privacy.epsilon(1e-5) <= 0.1000001
        assert 1.0 < score.joint_report(models[3].privacy_).epsilon(1e-5) < 1.05


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    return PrivateLogisticRegression(epsilon=1.0, random_state=0).fit(X, X[:, 0] > 0)


class TestCertificates:
    def test_a_name_that_occurs_twice(self, model):
        text = model.certificate_.replace('"epsilon": ', '"epsilon": 0.01,\n    "epsilon": ', 1)
        with pytest.raises(InvalidCertificate, match="twice"):
            verify(text)

    def test_hoelder_constants(self, model):
        record = json.loads(model.certificate_)
        record["run"]["loss"]["holder"] = [1e-12, 1.0]
        with pytest.raises(InvalidCertificate, match="Hoelder"):
            verify(json.dumps(record))

    def test_outputs_where_rounding_is_not_charged(self):
        X = np.random.default_rng(0).normal(size=(200, 3))
        fast = PrivateLogisticRegression(arithmetic="fast").fit(X, X[:, 0] > 0)
        record = json.loads(fast.certificate_)
        record["run"]["loss"]["outputs"] = 1
        with pytest.raises(InvalidCertificate, match=r"loss\.outputs"):
            verify(json.dumps(record))


class TestParameters:
    def test_numbers_of_other_kinds(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(200, 3))
        other = PrivateLogisticRegression(delta=np.float32(1e-6), l2=np.float32(0.1))
        assert verify(other.fit(X, X[:, 0] > 0).certificate_)

    @pytest.mark.parametrize("l2", [0.01, slow(0.1), 1.0])
    def test_a_penalty_with_several_classes(self, l2):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(2_000, 3))
        fitted = PrivateLogisticRegression(l2=l2, classes=range(3)).fit(X, X.argmax(axis=1))
        assert fitted.privacy_.epsilon(1e-5) <= 1.0

    def test_the_largest_epsilon(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(200, 3))
        fitted = PrivateLogisticRegression(epsilon=100.0).fit(X, X[:, 0] > 0)
        # Events that the charge for rounding leaves out count e^epsilon times.
        assert 30.0 < fitted.privacy_.epsilon(1e-5) <= 100.0


def test_what_is_missing_is_found():
    class Doubling:
        """Doubles."""

        def fit(self, number: float) -> float:
            """Twice the number."""
            return 2.0 * number

    Doubling.__module__ = "lastiterate.nowhere"
    assert lacks(Doubling) == [
        "an example",
        "Attributes",
        "fit: Parameters",
        "fit: Returns",
        "fit: an example",
    ]

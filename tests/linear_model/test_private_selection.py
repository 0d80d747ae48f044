"""A model chosen among several settings: what it costs, what is told, what its certificate says."""

import json
import math

import numpy as np
import pytest
from scipy.optimize import brentq

import lastiterate as li
from lastiterate.certificate import fields as statements
from lastiterate.errors import BudgetExceeded, InvalidCertificate, InvalidParameter
from lastiterate.linear_model import (
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateScore,
    PrivateSelection,
)
from lastiterate.linear_model import private_selection as candidates
from lastiterate.other_releases import release_from_record
from lastiterate.profile.selection import Tries
from lastiterate.run.serialise import from_dict

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3_000, 3)) / 10
Y = X[:, 0] > 0.0
QUICK = {"batches": "cyclic", "batch_size": 1_000, "epochs": 2}
GRID = {"feature_bound": [0.2, 100.0], "l2": [0.0, 0.01]}


def selection(**settings):
    model = PrivateLogisticRegression(**QUICK)
    return PrivateSelection(model, GRID, **({"epsilon": 1.0} | settings))


@pytest.fixture(scope="module", autouse=True)
def number_of_tries():
    """Not random, so that a good setting is among them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tries, "number", lambda self, uniform: 15)
        yield


@pytest.fixture(scope="module")
def chosen(number_of_tries):
    return selection(tries=20.0).fit(X, Y)


class TestModel:
    def test_is_the_better_one(self, chosen):
        assert chosen.best_params_["feature_bound"] == 0.2
        assert chosen.score(X, Y) > 0.85
        assert 0.7 < chosen.best_score_ <= 1.0
        assert (chosen.predict(X) == chosen.best_estimator_.predict(X)).all()
        assert chosen.predict_proba(X).shape == (3_000, 2)
        assert chosen.decision_function(X).shape == (3_000,)

    def test_on_public_data(self):
        chosen = selection(tries=20.0).fit(X, Y, public=(X, Y))
        assert chosen.best_score_ == chosen.score(X, Y)
        assert [one.kind for one in chosen.privacy_.other_releases] == ["mean", "outliers"]
        li.verify(chosen.certificate_, parameters=chosen.best_estimator_.parameters_)

    def test_regression(self):
        model = PrivateRidge(**QUICK, target_bound=1.0)
        chosen = PrivateSelection(model, {"feature_bound": [0.2, 1000.0]}, epsilon=4.0)
        chosen.fit(X, 5.0 * X[:, 0])
        assert chosen.best_params_["feature_bound"] == 0.2
        assert -1.0 <= chosen.best_score_ <= 0.0
        assert not hasattr(chosen, "predict_proba")
        li.verify(chosen.certificate_)

    def test_nothing_is_published_about_other_tries(self):
        """All rows are a tenth of one bound, which warns only if that model is published."""
        model = PrivateLogisticRegression(epsilon=4.0, **QUICK)
        grid = {"feature_bound": [0.2, 100.0]}
        chosen = PrivateSelection(model, grid, epsilon=8.0).fit(X, Y, public=(X, Y))
        assert chosen.best_params_["feature_bound"] == 0.2

    def test_errors_in_different_units_are_not_compared(self):
        chosen = PrivateSelection(PrivateRidge(**QUICK), {"target_bound": [0.3, 1000.0]})
        with pytest.raises(InvalidParameter, match="errors are in units of it"):
            chosen.fit(X, X[:, 0])
        chosen.fit(X, X[:, 0], public=(X, X[:, 0]))
        assert chosen.best_params_["target_bound"] == 0.3


class TestGuarantee:
    def test_is_the_target_and_no_less_is_possible_by_much(self, chosen):
        assert 0.9 < chosen.privacy_.epsilon(1e-5) <= 1.0

    @pytest.mark.filterwarnings("ignore")
    def test_is_of_the_tries_that_are_made(self, monkeypatch):
        """What is trained is what the certificate lists, and the same again for a seed."""
        trained, original = [], candidates._run_trial
        monkeypatch.setattr(
            candidates,
            "_run_trial",
            lambda one, *a, **k: trained.append(one) or original(one, *a, **k),
        )
        one, same = (selection(tries=20.0, random_state=1).fit(X, Y) for _ in range(2))
        assert (one.best_estimator_.parameters_ == same.best_estimator_.parameters_).all()
        assert one.best_score_ == same.best_score_
        listed = json.loads(one.certificate_)["selection"]["candidates"]
        assert {json.dumps(each.record) for each in trained} <= {json.dumps(one) for one in listed}
        assert len(listed) == 4

    def test_is_that_of_the_theorem(self, chosen):
        """Evaluated from what the certificate states, by the curves of its candidates."""
        record = json.loads(chosen.certificate_)
        stated = record["selection"]
        reports = []
        for one in stated["candidates"]:
            others = [
                release_from_record(each, adjacency="replace") for each in one["other_releases"]
            ]
            reports.append(li.account(from_dict(one["run"]), other_releases=others))
        shape, stop = stated["shape"], stated["stop"]
        mean = 2 * (1 - stop) / (stop * (1 - stop**2))
        assert (shape, mean) == (2.0, pytest.approx(20.0))

        def delta(epsilon):
            return np.mean([report.delta(epsilon) for report in reports])

        lean = brentq(lambda e: (1 - stop) * delta(e) - stop * math.expm1(e), 0.0, 5.0)
        epsilon = record["guarantee"]["epsilon"]
        assert mean * delta(epsilon - 3 * lean) == pytest.approx(1e-5, rel=1e-3)

    def test_costs_less_than_all_of_the_tries(self, chosen):
        stated = json.loads(chosen.certificate_)["selection"]
        one = li.account(from_dict(stated["candidates"][0]["run"]))
        naive = li.compose(*[li.GaussianProfile(one.gdp())] * 20)
        assert chosen.privacy_.epsilon(1e-5) < naive.epsilon(1e-5) / 2


class TestCertificate:
    def test_is_verified(self, chosen):
        found = li.verify(chosen.certificate_, parameters=chosen.best_estimator_.parameters_)
        assert found.epsilon(1e-5) == pytest.approx(chosen.privacy_.epsilon(1e-5), rel=1e-9)
        assert chosen.best_estimator_.certificate_ == chosen.certificate_
        assert chosen.best_estimator_.privacy_ is chosen.privacy_

    def test_of_something_else_is_refused(self, chosen):
        for change, reason in (
            (lambda r, s: s.update(stop=0.01), "it states epsilon"),
            (lambda r, s: s.update(shape=3.0), "it states epsilon"),
            (lambda r, s: r["guarantee"].update(epsilon=0.9 * r["guarantee"]["epsilon"]), "states"),
            (lambda r, s: s["candidates"][3]["run"].update(noise_std=0.001), "states"),
            (lambda r, s: s["candidates"].clear(), "not one of its candidates"),
            (lambda r, s: s.update(law="a fair coin"), "tries were made is unknown"),
            (lambda r, s: s["score"].update(scored="by eye"), "tries were made"),
            (lambda r, s: s["candidates"][0]["features"].update(bound=1e6), "a candidate's"),
            (lambda r, s: r["other_releases"].pop(), "does not hold"),
        ):
            record = json.loads(chosen.certificate_)
            change(record, record["selection"])
            record["digest"] = statements.digest(record)
            with pytest.raises(InvalidCertificate, match=reason):
                li.verify(json.dumps(record))


class TestLedger:
    def test_is_charged_once_for_all_tries(self, tmp_path):
        ledger = li.Ledger(tmp_path / "people.ledger", epsilon=1.2, delta=1e-5)
        model = PrivateLogisticRegression(ledger=ledger, **QUICK)
        chosen = PrivateSelection(model, GRID, epsilon=1.0).fit(X, Y)
        assert [entry["what"] for entry in ledger.entries()[1:]] == ["reserved", "settled"]
        spent = ledger.verify().epsilon(1e-5)
        assert chosen.privacy_.epsilon(1e-5) <= spent < 1.01
        with pytest.raises(InvalidParameter, match="costs nothing more"):
            ledger.add(chosen.certificate_)
        with pytest.raises(BudgetExceeded, match="PrivateSelection"):
            selection().fit(X, Y, ledger=ledger)
        PrivateScore.of(chosen.best_estimator_, X, Y, epsilon=0.1)
        assert ledger.spent().epsilon(1e-5) > spent

    def test_two_are_refused(self, tmp_path):
        one, other = (li.Ledger(tmp_path / n, epsilon=2.0, delta=1e-5) for n in "ab")
        model = PrivateLogisticRegression(ledger=one, **QUICK)
        with pytest.raises(InvalidParameter, match="a release is charged once"):
            PrivateSelection(model, GRID, epsilon=1.0, ledger=other).fit(X, Y)

    def test_is_charged_by_its_certificate_alone(self, chosen, tmp_path):
        ledger = li.Ledger(tmp_path / "ledger", epsilon=3.0, delta=1e-5)
        with pytest.raises(InvalidParameter, match="certificate"):
            ledger.add(chosen.privacy_)
        ledger.add(chosen.certificate_)
        spent = ledger.spent().epsilon(1e-5)
        assert spent >= chosen.privacy_.epsilon(1e-5) * (1 - 1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": 0.0}, {"delta": 1.0}, {"tries": 1.0}, {"shape": -1.0}, {"scoring": 0.0},
        {"grid": {"epsilon": [1.0, 2.0]}}, {"grid": {"noise_std": [1.0]}},
        {"estimator": "a model"},
    ],
)  # fmt: skip
def test_refusals(settings):
    model = PrivateSelection(PrivateLogisticRegression(**QUICK), GRID).set_params(**settings)
    with pytest.raises((InvalidParameter, TypeError), match="must be"):
        model.fit(X, Y)


class TestReport:
    """Nothing that follows from one try alone is said of the best of several."""

    def test_has_no_other_adjacency_and_no_positions(self, chosen):
        report = chosen.privacy_
        assert report.selected
        assert report.under_other_adjacency is None
        assert [one.epsilon(1e-5) for one in report.by_position()] == [report.epsilon(1e-5)]
        assert not report.lower_bounds

    def test_a_score_beside_it_costs_more(self, chosen):
        score = PrivateScore.of(chosen.best_estimator_, X, Y, epsilon=0.01)
        assert score.joint_report(chosen.privacy_).epsilon(1e-5) >= chosen.privacy_.epsilon(1e-5)

"""Estimators under a ledger: every fit is charged, before it begins, whoever asks for it."""

import json
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import lastiterate as li
from lastiterate.errors import BudgetExceeded, InvalidParameter, PrivacyWarning
from lastiterate.linear_model import estimator as estimators
from lastiterate.linear_model.classifiers import PrivateLogisticRegression
from lastiterate.linear_model.private_score import PrivateScore
from lastiterate.linear_model.regressors import PrivateRidge

X = np.random.default_rng(0).normal(size=(400, 3))
Y = X[:, 0] > 0.0
QUICK = {"epochs": 1, "batch_size": 100, "batches": "cyclic", "counting": 0.0}
QUICK["center"] = False


@pytest.fixture
def ledger(tmp_path):
    return li.Ledger(tmp_path / "people.ledger", epsilon=2.0, delta=1e-5)


def states(ledger):
    return [entry["what"] for entry in ledger.entries()[1:]]


class TestFit:
    @pytest.mark.parametrize("kind, y", [(PrivateLogisticRegression, Y), (PrivateRidge, X[:, 0])])
    def test_is_reserved_and_settled(self, ledger, kind, y):
        declared = {"target_bound": 1.0} if kind is PrivateRidge else {}
        model = kind(epsilon=1.0, **declared, **QUICK).fit(X, y, ledger=ledger)
        assert states(ledger) == ["reserved", "settled"]
        settled = ledger.entries()[-1]
        assert settled["certificate"] == json.loads(model.certificate_)
        assert ledger.spent().epsilon(1e-5) == pytest.approx(1.0, rel=1e-3)
        # Of a Gaussian guarantee the distance from exact arithmetic is added to mu, exactly.
        assert ledger.verify().epsilon(1e-5) >= model.privacy_.epsilon(1e-5) - 1e-8
        assert ledger.verify().delta(1e9) > 0.0  # of what mu leaves out

    def test_of_the_budgets_epsilon_fits_into_it(self, tmp_path):
        ledger = li.Ledger(tmp_path / "one.ledger", epsilon=1.0, delta=1e-5)
        PrivateLogisticRegression(epsilon=1.0, batches="shuffled-once", epochs=3).fit(
            X, Y, ledger=ledger
        )
        assert 0.99 < ledger.spent().epsilon(1e-5) <= 1.0

    def test_other_releases_are_charged(self, ledger):
        settings = QUICK | {"counting": 0.3}
        model = PrivateLogisticRegression(epsilon=1.0, **settings).fit(X, Y, ledger=ledger.path)
        assert len(model.privacy_.other_releases) == 1
        assert ledger.verify().epsilon(1e-5) == pytest.approx(1.0, rel=2e-3)

    def test_is_refused_before_it_begins(self, ledger, monkeypatch):
        monkeypatch.setattr(estimators, "noisy_descent", lambda *_: pytest.fail("it began"))
        model = PrivateLogisticRegression(epsilon=3.0, ledger=ledger, **QUICK)
        with pytest.raises(BudgetExceeded, match="PrivateLogisticRegression would make it 3"):
            model.fit(X, Y)
        assert states(ledger) == []

    def test_that_dies_stays_charged(self, ledger, monkeypatch):
        def dies(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(estimators, "noisy_descent", dies)
        with pytest.raises(KeyboardInterrupt):
            PrivateLogisticRegression(epsilon=1.0, ledger=ledger, **QUICK).fit(X, Y)
        assert states(ledger) == ["reserved"]
        assert ledger.spent().epsilon(1e-5) == pytest.approx(1.0, rel=1e-3)

    def test_is_not_released_if_it_cannot_be_settled(self, ledger, monkeypatch):
        def full(*_):
            raise OSError("disk full")

        monkeypatch.setattr(li.Ledger, "settle", full)
        model = PrivateLogisticRegression(epsilon=1.0, ledger=ledger, **QUICK)
        with pytest.raises(OSError, match="disk full"):
            model.fit(X, Y)
        assert not hasattr(model, "parameters_")

    def test_a_certificate_is_not_charged_twice(self, ledger):
        model = PrivateLogisticRegression(epsilon=1.0, **QUICK).fit(X, Y, ledger=ledger)
        with pytest.raises(InvalidParameter, match="costs nothing more; found the certificate of"):
            ledger.add(model.certificate_)
        other = PrivateLogisticRegression(epsilon=1.0, **QUICK).fit(X, Y)
        assert ledger.add(other.certificate_, "another")["what"] == "added"
        with pytest.raises(InvalidParameter, match="entry 3"):
            ledger.add(other.certificate_)
        ledger.verify()

    def test_with_a_seed_is_refused(self, ledger):
        with pytest.raises(InvalidParameter, match="random_state must be None under a ledger"):
            PrivateLogisticRegression(random_state=0, ledger=ledger, **QUICK).fit(X, Y)
        with pytest.warns(PrivacyWarning):
            model = PrivateLogisticRegression(random_state=0, **QUICK).fit(X, [*"ab"] * 200)
        with pytest.raises(InvalidParameter, match="random_state"):
            ledger.add(model.certificate_)
        assert states(ledger) == []

    def test_two_ledgers_are_refused(self, ledger, tmp_path):
        other = li.Ledger(tmp_path / "other.ledger", epsilon=2.0, delta=1e-5)
        model = PrivateLogisticRegression(ledger=ledger, **QUICK)
        with pytest.raises(InvalidParameter, match="ledger must be one"):
            model.fit(X, Y, ledger=other)
        assert states(ledger) == states(other) == []

    def test_another_adjacency_is_converted(self, ledger):
        model = PrivateLogisticRegression(epsilon=0.5, adjacency="zero-out", **QUICK)
        model.fit(X, Y, ledger=ledger)
        assert 1.0 < ledger.verify().epsilon(1e-5) < 1.2


class TestSearches:
    @pytest.mark.filterwarnings("ignore::lastiterate.errors.PrivacyWarning")
    @pytest.mark.parametrize("way", ["fit", "constructor", "two processes"])
    def test_charge_every_fit(self, tmp_path, way):
        ledger = li.Ledger(tmp_path / "people.ledger", epsilon=10.0, delta=1e-5)
        kept = None if way == "fit" else ledger
        model = PrivateLogisticRegression(epsilon=0.5, ledger=kept, **QUICK)
        jobs = 2 if way == "two processes" else None
        search = GridSearchCV(model, {"l2": [0.0, 0.1]}, cv=2, n_jobs=jobs)
        search.fit(X, Y, **({"ledger": ledger} if way == "fit" else {}))
        assert states(ledger).count("reserved") == states(ledger).count("settled") == 5
        digests = {
            entry["certificate"]["digest"]
            for entry in ledger.entries()
            if entry["what"] == "settled"
        }
        assert len(digests) == 5
        ledger.verify()

    def test_warn_of_what_is_not_charged(self, ledger):
        grid = {"l2": [0.0]}
        uncharged = GridSearchCV(PrivateLogisticRegression(**QUICK), grid, cv=2, refit=False)
        with pytest.warns(PrivacyWarning, match="a Ledger charges every fit"):
            uncharged.fit(X, Y)
        model = PrivateLogisticRegression(epsilon=0.5, ledger=ledger, **QUICK)
        with pytest.warns(PrivacyWarning, match="but not a choice made by scores"):
            GridSearchCV(model, grid, cv=2, refit=False).fit(X, Y)

    def test_a_clone_has_the_same_ledger(self, ledger):
        model = clone(PrivateLogisticRegression(ledger=ledger))
        assert model.ledger.path == ledger.path


class TestUnlearning:
    def test_is_charged_to_the_ledger_of_the_fit(self, ledger, tmp_path):
        key = b"a secret of 16 bytes or more"
        settings = {"epsilon": 1.0, "l2": 0.1, **QUICK}
        model = PrivateLogisticRegression(**settings).fit(X, Y, key=key, ledger=ledger)
        new = model.unlearn(X, Y, rows=[17], key=key, extra_steps=1, at_any_cost=True)
        assert states(ledger) == ["reserved", "settled"] * 2
        PrivateScore.of(new, X, Y, epsilon=0.1)
        assert states(ledger) == ["reserved", "settled"] * 3
        other = li.Ledger(tmp_path / "other", epsilon=2.0, delta=1e-5)
        with pytest.raises(InvalidParameter, match="a release is charged once"):
            model.unlearn(X, Y, rows=[18], key=key, extra_steps=1, ledger=other)


class TestScores:
    def test_are_charged(self, ledger):
        model = PrivateLogisticRegression(epsilon=1.0, **QUICK).fit(X, Y, ledger=ledger)
        PrivateScore.of(model, X, Y, epsilon=0.5, ledger=ledger)
        assert states(ledger) == ["reserved", "settled"] * 2
        assert ledger.verify().epsilon(1e-5) > 1.05
        with pytest.raises(BudgetExceeded, match="a score"):
            PrivateScore.of(model, X, Y, epsilon=2.0, ledger=ledger)

    def test_are_charged_to_the_ledger_of_the_model(self, ledger, tmp_path):
        model = PrivateLogisticRegression(epsilon=1.0, ledger=ledger, **QUICK).fit(X, Y)
        PrivateScore.of(model, X, Y, epsilon=0.5)
        assert states(ledger) == ["reserved", "settled"] * 2
        other = li.Ledger(tmp_path / "other", epsilon=2.0, delta=1e-5)
        PrivateScore.of(model, X, Y, epsilon=0.5, ledger=other)
        assert states(ledger) == states(other) * 2

    def test_are_charged_to_the_ledger_of_the_fit(self, ledger, tmp_path):
        model = PrivateLogisticRegression(epsilon=1.0, **QUICK).fit(X, Y, ledger=ledger.path)
        PrivateScore.of(pickle.loads(pickle.dumps(model)), X, Y, epsilon=0.5)
        assert states(ledger) == ["reserved", "settled"] * 2
        with pytest.raises(BudgetExceeded, match="a score"):
            PrivateScore.of(model, X, Y, epsilon=2.0)
        PrivateScore.of(model.set_params(ledger=None).fit(X, Y), X, Y, epsilon=2.0)
        assert states(ledger) == ["reserved", "settled"] * 2
        assert clone(model).ledger is None

    def test_of_a_model_that_went_elsewhere(self, ledger, tmp_path):
        model = PrivateLogisticRegression(epsilon=1.0, **QUICK).fit(X, Y, ledger=ledger)
        pickled = pickle.dumps(model)
        moved = ledger.path.rename(tmp_path / "moved.ledger")
        elsewhere = pickle.loads(pickled)
        assert elsewhere.predict(X).shape == Y.shape
        with pytest.raises(InvalidParameter, match="pass where it is now; found nothing at"):
            PrivateScore.of(elsewhere, X, Y, epsilon=0.5)
        PrivateScore.of(elsewhere, X, Y, epsilon=0.5, ledger=moved)
        PrivateScore.of(elsewhere.set_params(ledger=moved), X, Y, epsilon=0.1)
        assert states(li.Ledger(moved)) == ["reserved", "settled"] * 3

    def test_of_a_loaded_model_need_one(self, ledger, tmp_path):
        model = PrivateLogisticRegression(epsilon=1.0, **QUICK).fit(X, Y, ledger=ledger)
        li.save(model, tmp_path / "model")
        assert "people.ledger" not in (tmp_path / "model" / "model.json").read_text()
        loaded = li.load(tmp_path / "model")
        PrivateScore.of(loaded, X, Y, epsilon=0.5)
        assert states(ledger) == ["reserved", "settled"]
        PrivateScore.of(loaded, X, Y, epsilon=0.5, ledger=ledger)
        assert states(ledger) == ["reserved", "settled"] * 2

    def test_of_a_fit_in_one_ledger_are_not_of_another(self, ledger, tmp_path):
        other = li.Ledger(tmp_path / "other", epsilon=2.0, delta=1e-5)
        model = PrivateLogisticRegression(epsilon=1.0, **QUICK).fit(X, Y, ledger=ledger)
        with pytest.raises(InvalidParameter, match="a release is charged once"):
            PrivateScore.of(model.set_params(ledger=other), X, Y, epsilon=0.5)

    def test_can_be_added(self, ledger):
        model = PrivateLogisticRegression(epsilon=1.0, **QUICK).fit(X, Y)
        ledger.add(PrivateScore.of(model, X, Y, epsilon=0.5))
        assert ledger.spent().epsilon(1e-5) == pytest.approx(0.5, rel=1e-3)

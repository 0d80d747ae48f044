"""Estimators under a ledger: every fit is charged, before it begins, whoever asks for it."""

import json
import math
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import lastiterate as li
from lastiterate.errors import BudgetExceeded, InvalidParameter, PrivacyWarning
from lastiterate.linear_model import PrivateLogisticRegression, PrivateRidge, PrivateScore
from lastiterate.linear_model import estimator as estimators
from lastiterate.profile import GaussianProfile
from lastiterate.profile.rounded import gdp_but_for_failure
from tests.slow import slow

from .releases import states

X = np.random.default_rng(0).normal(size=(400, 3))
Y = X[:, 0] > 0.0
KEY = b"a secret of 16 bytes or more"
QUICK = {"epsilon": 1.0, "epochs": 1, "batch_size": 100, "batches": "cyclic", "counting": 0.0,
         "center": False}  # fmt: skip
ONCE = ["reserved", "settled"]


@pytest.fixture
def opened(tmp_path):
    def ledger(name, **more):
        return li.Ledger(tmp_path / name, **({"epsilon": 2.0, "delta": 1e-5} | more))

    return ledger


@pytest.fixture
def ledger(opened):
    return opened("people.ledger")


def quick(**settings):
    return PrivateLogisticRegression(**(QUICK | settings))


def score(model, epsilon=0.5, **more):
    return PrivateScore.of(model, X, Y, epsilon=epsilon, **more)


class TestFit:
    @pytest.mark.parametrize("kind, y", [(PrivateLogisticRegression, Y), (PrivateRidge, X[:, 0])])
    def test_is_reserved_and_settled(self, ledger, kind, y):
        declared = {"target_bound": 1.0} if kind is PrivateRidge else {}
        model = kind(**declared, **QUICK).fit(X, y, ledger=ledger)
        assert states(ledger) == ONCE
        settled = ledger.entries()[-1]
        assert settled["certificate"] == json.loads(model.certificate_)
        assert ledger.spent().epsilon(1e-5) == pytest.approx(1.0, rel=1e-3)
        # Of a Gaussian guarantee the distance from exact arithmetic is added to mu, exactly.
        assert ledger.verify().epsilon(1e-5) >= model.privacy_.epsilon(1e-5) - 1e-8
        assert ledger.verify().delta(1e9) > 0.0  # of what mu leaves out

    def test_of_the_budgets_epsilon_fits_into_it(self, opened):
        ledger = opened("one.ledger", epsilon=1.0)
        PrivateLogisticRegression(batches="shuffled-once", epochs=3).fit(X, Y, ledger=ledger)
        assert 0.99 < ledger.spent().epsilon(1e-5) <= 1.0

    def test_other_releases_are_charged(self, ledger):
        model = quick(counting=0.3).fit(X, Y, ledger=ledger.path)
        assert len(model.privacy_.other_releases) == 1
        assert ledger.verify().epsilon(1e-5) == pytest.approx(1.0, rel=2e-3)

    def test_is_refused_before_it_begins(self, ledger, monkeypatch):
        monkeypatch.setattr(estimators, "noisy_descent", lambda *_: pytest.fail("it began"))
        with pytest.raises(BudgetExceeded, match="PrivateLogisticRegression would make it 3"):
            quick(epsilon=3.0, ledger=ledger).fit(X, Y)
        assert states(ledger) == []

    def test_that_dies_stays_charged(self, ledger, monkeypatch):
        def dies(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(estimators, "noisy_descent", dies)
        with pytest.raises(KeyboardInterrupt):
            quick(ledger=ledger).fit(X, Y)
        assert states(ledger) == ["reserved"]
        assert ledger.spent().epsilon(1e-5) == pytest.approx(1.0, rel=1e-3)

    def test_is_not_released_if_it_cannot_be_settled(self, ledger, monkeypatch):
        def full(*_):
            raise OSError("disk full")

        monkeypatch.setattr(li.Ledger, "settle", full)
        model = quick(ledger=ledger)
        with pytest.raises(OSError, match="disk full"):
            model.fit(X, Y)
        assert not hasattr(model, "parameters_")

    def test_a_certificate_is_not_charged_twice(self, ledger):
        model = quick().fit(X, Y, ledger=ledger)
        with pytest.raises(InvalidParameter, match="costs nothing more; found the certificate of"):
            ledger.add(model.certificate_)
        other = quick().fit(X, Y)
        assert ledger.add(other.certificate_, "another")["what"] == "added"
        with pytest.raises(InvalidParameter, match="entry 3"):
            ledger.add(other.certificate_)
        ledger.verify()

    def test_with_a_seed_is_refused(self, ledger):
        with pytest.raises(InvalidParameter, match="random_state must be None under a ledger"):
            quick(random_state=0, ledger=ledger).fit(X, Y)
        with pytest.warns(PrivacyWarning):
            model = quick(random_state=0).fit(X, [*"ab"] * 200)
        with pytest.raises(InvalidParameter, match="random_state"):
            ledger.add(model.certificate_)
        assert states(ledger) == []

    def test_two_ledgers_are_refused(self, ledger, opened):
        other = opened("other")
        with pytest.raises(InvalidParameter, match="ledger must be one"):
            quick(ledger=ledger).fit(X, Y, ledger=other)
        assert states(ledger) == states(other) == []

    def test_another_adjacency_is_converted(self, ledger):
        quick(epsilon=0.5, adjacency="zero-out").fit(X, Y, ledger=ledger)
        assert 1.0 < ledger.verify().epsilon(1e-5) < 1.2


class TestSearches:
    @pytest.mark.filterwarnings("ignore::lastiterate.errors.PrivacyWarning")
    @pytest.mark.parametrize("way", ["fit", "constructor", slow("two processes")])
    def test_charge_every_fit(self, opened, way):
        ledger = opened("people.ledger", epsilon=10.0)
        model = quick(epsilon=0.5, ledger=None if way == "fit" else ledger)
        jobs = 2 if way == "two processes" else None
        search = GridSearchCV(model, {"l2": [0.0, 0.1]}, cv=2, n_jobs=jobs)
        search.fit(X, Y, **({"ledger": ledger} if way == "fit" else {}))
        assert states(ledger).count("reserved") == states(ledger).count("settled") == 5
        certificates = [entry.get("certificate") for entry in ledger.entries()]
        assert len({one["digest"] for one in certificates if one}) == 5
        ledger.verify()

    def test_warn_of_what_is_not_charged(self, ledger):
        for kept, said in (
            (None, "a Ledger charges every fit"),
            (ledger, "but not a choice made by scores"),
        ):
            model = quick(epsilon=0.5, ledger=kept)
            with pytest.warns(PrivacyWarning, match=said):
                GridSearchCV(model, {"l2": [0.0]}, cv=2, refit=False).fit(X, Y)


class TestUnlearning:
    def test_is_charged_to_the_ledger_of_the_fit(self, ledger, opened):
        model = quick(l2=0.1).fit(X, Y, key=KEY, ledger=ledger)
        new = model.unlearn(X, Y, rows=[17], key=KEY, extra_steps=1, at_any_cost=True)
        assert states(ledger) == ONCE * 2
        score(new, 0.1)
        assert states(ledger) == ONCE * 3
        with pytest.raises(InvalidParameter, match="a release is charged once"):
            model.unlearn(X, Y, rows=[18], key=KEY, extra_steps=1, ledger=opened("other"))

    def test_requests_are_charged_for_persons(self, opened):
        ledger = opened("persons", epsilon=50.0, examples_per_person=3)
        model = quick(examples_per_person=3).fit(X, Y, key=KEY, ledger=ledger)
        model = model.unlearn(X, Y, rows=[1], extra_steps=2, key=KEY, ledger=ledger)
        assert ledger.verify().epsilon(1e-5) >= model.privacy_.epsilon(1e-5) * (1 - 1e-9)


class TestScores:
    def test_are_charged(self, ledger):
        model = quick().fit(X, Y, ledger=ledger)
        score(model, ledger=ledger)
        assert states(ledger) == ONCE * 2
        assert ledger.verify().epsilon(1e-5) > 1.05
        with pytest.raises(BudgetExceeded, match="a score"):
            score(model, 2.0, ledger=ledger)

    def test_are_charged_to_the_ledger_of_the_model(self, ledger, opened):
        model = quick(ledger=ledger).fit(X, Y)
        assert clone(model).ledger.path == ledger.path
        score(model)
        assert states(ledger) == ONCE * 2
        score(model, ledger=(other := opened("other")))
        assert states(ledger) == states(other) * 2

    def test_are_charged_to_the_ledger_of_the_fit(self, ledger, opened):
        model = quick().fit(X, Y, ledger=ledger.path)
        score(pickle.loads(pickle.dumps(model)))
        assert states(ledger) == ONCE * 2
        with pytest.raises(BudgetExceeded, match="a score"):
            score(model, 2.0)
        with pytest.raises(InvalidParameter, match="a release is charged once"):
            score(model.set_params(ledger=opened("other")))
        score(model.set_params(ledger=None).fit(X, Y), 2.0)
        assert states(ledger) == ONCE * 2
        assert clone(model).ledger is None

    def test_of_a_model_that_went_elsewhere(self, ledger, tmp_path):
        model = quick().fit(X, Y, ledger=ledger)
        pickled = pickle.dumps(model)
        moved = ledger.path.rename(tmp_path / "moved.ledger")
        elsewhere = pickle.loads(pickled)
        assert elsewhere.predict(X).shape == Y.shape
        with pytest.raises(InvalidParameter, match="pass where it is now; found nothing at"):
            score(elsewhere)
        score(elsewhere, ledger=moved)
        score(elsewhere.set_params(ledger=moved), 0.1)
        assert states(li.Ledger(moved)) == ONCE * 3

    def test_of_a_loaded_model_need_one(self, ledger, tmp_path):
        li.save(quick().fit(X, Y, ledger=ledger), tmp_path / "model")
        assert "people.ledger" not in (tmp_path / "model" / "model.json").read_text()
        loaded = li.load(tmp_path / "model")
        score(loaded)
        assert states(ledger) == ONCE
        score(loaded, ledger=ledger)
        assert states(ledger) == ONCE * 2

    def test_can_be_added(self, ledger):
        ledger.add(score(quick().fit(X, Y)))
        assert ledger.spent().epsilon(1e-5) == pytest.approx(0.5, rel=1e-3)


class TestPersons:
    """Scores of a model that is told of persons are for all of their examples, as its training."""

    @pytest.mark.parametrize("adaptive", [False, True])
    @pytest.mark.parametrize("later", [False, True])
    def test_cost_what_was_charged_for_them(self, opened, adaptive, later):
        ledger = opened("l", epsilon=50.0, examples_per_person=5, adaptive=adaptive)
        model = quick(examples_per_person=5).fit(X, Y, ledger=ledger)
        if later:
            del model.ledger_
        found = score(model, 1.0, ledger=None if later else ledger)
        if later:
            ledger.add(found)
        together = math.hypot(*map(gdp_but_for_failure, (model.privacy_, found.privacy)))
        expected = GaussianProfile(together).epsilon(1e-5)
        assert ledger.spent().epsilon(1e-25) == math.inf
        assert ledger.spent().epsilon(1e-5) == pytest.approx(expected, rel=1e-9)
        assert expected > 1.4
        ledger.verify()

    def test_are_refused_by_a_ledger_of_single_examples(self, ledger):
        model = quick(examples_per_person=5)
        with pytest.raises(InvalidParameter, match="open a ledger with examples_per_person=5"):
            model.fit(X, Y, ledger=ledger)
        model.fit(X, Y)
        for release in (score(model, 1.0), model.privacy_, model.certificate_):
            with pytest.raises(InvalidParameter, match="examples_per_person must be at most 1"):
                ledger.add(release, already_published=True)
        assert states(ledger) == []

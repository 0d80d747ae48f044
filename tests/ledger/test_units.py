"""A ledger counts in one unit: so many examples of one person, whatever a charge was for."""

import itertools
import math

import dp_accounting as dpa
import numpy as np
import pytest

import lastiterate as li
from lastiterate.cli import main
from lastiterate.errors import InvalidLedger, InvalidParameter, OtherVersion
from lastiterate.ledger import charges
from lastiterate.ledger.charges import Unit
from lastiterate.ledger.costs import composed
from lastiterate.linear_model.classifiers import PrivateLogisticRegression
from lastiterate.linear_model.private_score import PrivateScore
from lastiterate.other_releases import Release
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.rounded import gdp_but_for_failure
from lastiterate.profile.selection import Tries
from lastiterate.run.serialise import to_dict

from .test_costs import of_event
from .test_ledger import forged, run

X = np.random.default_rng(0).normal(size=(400, 3))
Y = X[:, 0] > 0.0
QUICK = {"epochs": 1, "batch_size": 100, "batches": "cyclic", "counting": 0.0, "center": False}
DELTA = 1e-5


@pytest.fixture
def ledger(tmp_path):
    def opened(persons, **more):
        path = tmp_path / f"{persons}.ledger"
        said = {"epsilon": 50.0, "delta": DELTA} | more
        return li.Ledger(path, examples_per_person=persons, **said)

    return opened


def alone(ledger, release, **more):
    return ledger.add(release, **more)["alone"]


def gaussian(mu):
    return pytest.approx(GaussianProfile(mu).epsilon(DELTA), rel=1e-9)


class TestScores:
    """Of a model that is told of persons: for all of their examples, as the training beside it."""

    @pytest.mark.parametrize("adaptive", [False, True])
    @pytest.mark.parametrize("later", [False, True])
    def test_cost_what_was_charged_for_them(self, ledger, adaptive, later):
        state = ledger(5, adaptive=adaptive)
        model = PrivateLogisticRegression(epsilon=1.0, examples_per_person=5, **QUICK)
        model.fit(X, Y, ledger=state)
        if later:
            del model.ledger_
        score = PrivateScore.of(model, X, Y, epsilon=1.0, ledger=None if later else state)
        if later:
            state.add(score)
        both = map(gdp_but_for_failure, (model.privacy_, score.privacy))
        together = math.hypot(*both)
        assert state.spent().epsilon(1e-25) == math.inf
        assert state.spent().epsilon(DELTA) == gaussian(together)
        assert state.spent().epsilon(DELTA) > 1.4
        state.verify()

    def test_are_refused_by_a_ledger_of_single_examples(self, ledger):
        state = ledger(1)
        model = PrivateLogisticRegression(epsilon=1.0, examples_per_person=5, **QUICK)
        with pytest.raises(InvalidParameter, match="open a ledger with examples_per_person=5"):
            model.fit(X, Y, ledger=state)
        model.fit(X, Y)
        score = PrivateScore.of(model, X, Y, epsilon=1.0)
        for release in (score, model.privacy_, model.certificate_):
            with pytest.raises(InvalidParameter, match="examples_per_person must be at most 1"):
                state.add(release, already_published=True)
        assert len(state.entries()) == 1


class TestConversions:
    """Of what was promised for fewer examples than the ledger counts."""

    def test_a_training_is_accounted_anew(self, ledger):
        for one in (1, 2, 4):
            report = li.account(run(examples_per_person=one))
            expected = li.account(run(examples_per_person=4)).epsilon(DELTA)
            assert alone(ledger(4), report) == pytest.approx(expected, rel=1e-9)

    def test_a_shuffled_training_is_accounted_anew(self, ledger):
        batches = li.ShuffledOnce(examples=1_000, batch_size=100)
        expected = li.account(run(batches=batches, examples_per_person=3)).epsilon(DELTA)
        found = alone(ledger(3), li.account(run(batches=batches)))
        assert expected * (1 - 1e-9) <= found <= expected * 1.01

    def test_sums_move_as_often_as_there_are_examples(self, ledger):
        release = PrivateScore(0.5, 0.1, Release.of_mu("accuracy", 0.1, adjacency="replace"))
        assert alone(ledger(3), release) == gaussian(0.3)
        # Of a release alone neither examples nor width are known: the most rounding counts.
        found = alone(ledger(3), release.release)
        assert found == pytest.approx(GaussianProfile(0.3).epsilon(DELTA), rel=1e-5)
        assert found >= GaussianProfile(0.3).epsilon(DELTA)
        assert alone(ledger(3), dpa.GaussianDpEvent(40.0)) == gaussian(2 * 3 / 40)
        assert alone(ledger(3), dpa.LaplaceDpEvent(40.0)) == pytest.approx(2 * 3 / 40, rel=1e-2)

    def test_noise_for_a_whole_person_is_counted_once(self, ledger):
        event = dpa.GaussianDpEvent(40.0)
        assert alone(ledger(3), event, examples_per_person=3) == gaussian(2 / 40)
        # Of groups of two, three examples touch two.
        assert alone(ledger(3), event, examples_per_person=2) == gaussian(4 / 40)
        with pytest.raises(InvalidParameter, match="at most 3, as the ledger's"):
            ledger(3).add(event, examples_per_person=4)

    @pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
    def test_sampled_events_are_no_better_than_the_truth(self, ledger, adjacency):
        """Three examples that are sampled on their own, against one sampled batch or none."""
        q, noise = 0.1, 4.0
        event = dpa.PoissonSampledDpEvent(q, dpa.GaussianDpEvent(noise))
        found = ledger(3, adjacency=adjacency).add(event)
        assert found["costs"][0]["mu"] is None
        weights = {k: math.comb(3, k) * q**k * (1 - q) ** (3 - k) for k in range(4)}
        far = -1 if adjacency == "replace" else 0  # the other data set's values are opposite
        x = np.linspace(-60, 60, 200_001)

        def density(sign):
            return sum(
                w * np.exp(-((x - sign * k) ** 2) / (2 * noise**2)) for k, w in weights.items()
            ) / (noise * math.sqrt(2 * math.pi))

        p, r = density(1), density(far)
        for epsilon in (0.05, 0.2, found["alone"]):
            exact = np.maximum(p - math.exp(epsilon) * r, 0.0).sum() * (x[1] - x[0])
            assert composed(found["costs"], adaptive=False).delta(epsilon) >= exact
        once = composed(charges.costs_of(of_event(event), Unit(adjacency)), adaptive=False)
        assert 2.0 * once.epsilon(DELTA) < found["alone"] < 4.0 * once.epsilon(DELTA)

    @pytest.mark.parametrize("given, changes", [("replace", 3), ("zero-out", 6)])
    def test_a_pair_gets_the_group_property(self, ledger, given, changes):
        (cost,) = ledger(3).add((0.2, 1e-9), adjacency=given)["costs"]
        terms = sum(math.exp(0.2 * one) for one in range(changes))
        assert cost["epsilon"] == pytest.approx(0.2 * changes)
        assert cost["epsilon"] >= 0.2 * changes
        assert 1e-9 * terms <= cost["delta"] <= 1e-9 * terms * (1 + 1e-9)
        assert ledger(3).add((0.2, 1e-9), examples_per_person=3)["costs"][0]["epsilon"] == 0.2

    def test_the_group_property_holds_for_randomised_response(self, ledger):
        """All answers of three examples, each randomised on its own, enumerated."""
        epsilon = 0.4
        truth = math.exp(epsilon) / (1 + math.exp(epsilon))
        p = [math.prod(truth if a else 1 - truth for a in x)
             for x in itertools.product((0, 1), repeat=3)]  # fmt: skip
        profile = ledger(3).budget.spent(ledger(3).add((epsilon, 0.0))["costs"])
        for at in (0.0, 0.5, 1.1):
            exact = sum(max(a - math.exp(at) * b, 0.0) for a, b in zip(p, p[::-1], strict=True))
            assert profile.delta(at) >= exact
        assert profile.delta(3.001 * epsilon) < 1e-9

    @pytest.mark.parametrize("epsilon", [0.0, 1e-300, 1e-9])
    def test_pairs_that_hardly_differ(self, ledger, epsilon):
        (cost,) = ledger(3).add((epsilon, 1e-9))["costs"]
        assert 3e-9 <= cost["delta"] <= 3.0001e-9

    def test_pairs_of_which_nothing_is_left(self, ledger):
        with pytest.raises(InvalidParameter, match="epsilon must be at most 166"):
            ledger(3).add((200.0, 1e-9))
        with pytest.raises(InvalidParameter, match="epsilon must be at most 250"):
            ledger(1).add((300.0, 0.0), adjacency="zero-out")

    def test_a_choice_is_accounted_anew(self):
        listed = [{"run": to_dict(run(noise_std=n)), "other_releases": []} for n in (1, 2)]
        charge = charges.selection(Tries(1.0, 0.5), listed)

        def epsilon(unit):
            costs = charges.costs_of(charge, Unit("replace", unit))
            return composed(costs, adaptive=False).epsilon(DELTA)

        assert 2.5 * epsilon(1) < epsilon(3)

    def test_the_same_said_twice_must_agree(self, ledger):
        with pytest.raises(InvalidParameter, match="2, as the release has it, or left out"):
            ledger(3).add(li.account(run(examples_per_person=2)), examples_per_person=3)


class TestUnlearning:
    def test_requests_are_charged_for_persons(self, ledger):
        state, key = ledger(3), b"k" * 32
        model = PrivateLogisticRegression(epsilon=1.0, examples_per_person=3, **QUICK)
        model.fit(X, Y, key=key, ledger=state)
        model = model.unlearn(X, Y, rows=[1], extra_steps=2, key=key, ledger=state)
        assert state.verify().epsilon(DELTA) >= model.privacy_.epsilon(DELTA) * (1 - 1e-9)


class TestWords:
    def test_the_unit_and_what_was_converted_are_said(self, ledger):
        state = ledger(3)
        state.add(dpa.GaussianDpEvent(40.0), "a count")
        state.add(dpa.GaussianDpEvent(40.0), "another", examples_per_person=3)
        text = str(state)
        assert "all examples of one person, at most 3, replaced" in text.splitlines()[0]
        assert "a count (for one example; counted for 3)" in text
        assert text.count("counted for") == 1
        assert "one example replaced" in str(ledger(1))

    def test_the_command(self, tmp_path, capsys, monkeypatch):
        monkeypatch.chdir(tmp_path)
        opened = "ledger open a.ledger --epsilon 2 --delta 1e-5 --examples-per-person 4"
        assert main(opened.split()) == 0
        assert main(["ledger", "add", "a.ledger", "--gaussian", "80"]) == 0
        assert li.Ledger("a.ledger").spent().epsilon(DELTA) == gaussian(0.1)
        more = "ledger add a.ledger --gaussian 80 --examples-per-person 4"
        assert main(more.split()) == 0
        assert li.Ledger("a.ledger").spent().epsilon(DELTA) == gaussian(math.hypot(0.1, 0.025))
        capsys.readouterr()
        assert main(["ledger", "export", "a.ledger"]) == 0
        assert '"examples_per_person": 4' in capsys.readouterr().out


class TestFiles:
    def test_the_unit_is_read_from_the_file(self, ledger):
        assert li.Ledger(ledger(3).path).examples_per_person == 3
        with pytest.raises(InvalidParameter, match="3, as the ledger was opened with"):
            li.Ledger(ledger(3).path, examples_per_person=1)
        with pytest.raises(InvalidParameter, match="examples_per_person must be"):
            ledger(0)

    def test_a_unit_that_was_changed_afterwards_is_found_out(self, ledger):
        state = ledger(3)
        state.add(dpa.GaussianDpEvent(40.0))

        def larger(entries):
            entries[0]["examples_per_person"] = 6

        forged(state.path, larger)
        with pytest.raises(InvalidLedger, match="entry 1 costs other than follow"):
            li.Ledger(state.path).verify()
        forged(state.path, lambda entries: entries[1]["charge"].pop("examples_per_person"))
        with pytest.raises(InvalidLedger, match="entry 1 cannot be read"):
            li.Ledger(state.path).verify()

    def test_an_older_file_is_refused(self, ledger):
        state = ledger(1)
        forged(state.path, lambda entries: entries[0].update(format="lastiterate ledger 1"))
        with pytest.raises(OtherVersion, match="'lastiterate ledger 1'"):
            li.Ledger(state.path)

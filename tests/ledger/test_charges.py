"""What a release is charged in the ledger's unit: its adjacency, and so many of one's examples."""

import itertools
import json
import math

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting import dp_event

import lastiterate as li
from lastiterate import dp_accounting as events
from lastiterate.errors import InvalidParameter
from lastiterate.ledger import charges
from lastiterate.ledger.charges import Unit
from lastiterate.ledger.costs import composed
from lastiterate.linear_model import PrivateScore
from lastiterate.other_releases import Release
from lastiterate.profile import GaussianProfile
from lastiterate.profile.selection import Tries
from lastiterate.run.serialise import to_dict

from .releases import GAUSSIAN, LAPLACE, of_event, of_pair, run

DELTA = 1e-5
COUNT = dpa.GaussianDpEvent(40.0)


@pytest.fixture
def ledger(tmp_path):
    def opened(persons, **more):
        said = {"epsilon": 50.0, "delta": DELTA} | more
        return li.Ledger(tmp_path / f"{persons}.ledger", examples_per_person=persons, **said)

    return opened


def alone(ledger, release, **more):
    return ledger.add(release, **more)["alone"]


def gaussian(mu):
    return pytest.approx(GaussianProfile(mu).epsilon(DELTA), rel=1e-9)


def epsilon_of(charge, unit, delta=1e-6):
    return composed(charges.costs_of(charge, unit), adaptive=False).epsilon(delta)


class TestAdjacencies:
    def test_an_event_moves_twice_as_far_under_replacement(self):
        def epsilon(event):
            return epsilon_of(of_event(event), Unit("replace"))

        assert epsilon(GAUSSIAN) == pytest.approx(GaussianProfile(2 / 3).epsilon(1e-6), rel=1e-9)
        assert 0.399 < epsilon(LAPLACE) < 0.4001
        assert 0.399 < epsilon(dp_event.DiscreteLaplaceDpEvent(0.2, 1)) < 0.4001
        once = math.log(1 + 0.5 * math.expm1(0.2))
        assert 1.8 * once < epsilon(dpa.PoissonSampledDpEvent(0.5, LAPLACE)) < 2.02 * once

    @pytest.mark.parametrize("given", ["zero-out", "add-remove"])
    def test_a_pair_holds_twice_over_for_a_replacement(self, given):
        (cost,) = charges.costs_of(of_pair(0.3, 1e-8, given), Unit("replace"))
        assert cost["epsilon"] == pytest.approx(0.6)
        assert cost["delta"] == pytest.approx(1e-8 * (1 + math.exp(0.3)))

    def test_a_promise_of_replacement_may_not_cover_leaving_out(self):
        with pytest.raises(InvalidParameter, match="cannot be converted, because"):
            charges.costs_of(of_pair(0.3, 0.0, "replace"), Unit("zero-out"))

    def test_a_training_left_out_counts_twice_for_a_replacement(self, ledger):
        left_out = li.account(run(sensitivity=1.0, adjacency="zero-out"))
        replaced = li.account(run()).epsilon(DELTA)
        assert alone(ledger(1), left_out) == pytest.approx(replaced, rel=1e-3)
        assert replaced > 1.9 * left_out.epsilon(DELTA)

    def test_a_replacement_is_accounted_anew_for_leaving_out_where_gradients_are_bounded(
        self, ledger
    ):
        state, report = ledger(1, adjacency="zero-out"), li.account(run())
        left_out = li.account(run(adjacency="zero-out", sensitivity=1.0)).epsilon(DELTA)
        assert alone(state, report) == pytest.approx(left_out, rel=1e-3)
        assert left_out < 0.6 * report.epsilon(DELTA)
        unbounded = run(loss=li.Loss(smoothness=1.0, strong_convexity=0.1))
        with pytest.raises(InvalidParameter, match="train with adjacency='zero-out'"):
            state.add(li.account(unbounded))

    @pytest.mark.parametrize("batches, persons", [(li.ShuffledOnce, 1), (li.Cyclic, 2)])
    def test_a_replacement_for_leaving_out_keeps_no_curvature_of_its_own(
        self, ledger, batches, persons
    ):
        """Two examples that are left out leave a loss that curves less than all examples do."""
        trained = run(
            loss=li.Loss(smoothness=1.0, strong_convexity=0.9, lipschitz=1.0),
            sensitivity=1.0,
            batches=batches(examples=100, batch_size=20),
            domain=li.Ball(diameter=1.0),
            examples_per_person=persons,
        )
        left_out = li.account(trained.replace(adjacency="zero-out")).epsilon(DELTA)
        state = ledger(persons, adjacency="zero-out")
        assert alone(state, li.account(trained)) >= left_out * (1 - 1e-9)


class TestPersons:
    """Of what was promised for fewer examples than the ledger counts."""

    def test_a_training_is_accounted_anew(self, ledger):
        for one in (1, 2, 4):
            report = li.account(run(examples_per_person=one))
            expected = li.account(run(examples_per_person=4)).epsilon(DELTA)
            assert alone(ledger(4), report) == pytest.approx(expected, rel=1e-9)
        once = {"batches": li.ShuffledOnce(examples=1_000, batch_size=100), "steps": 10}
        expected = li.account(run(**once, examples_per_person=3)).epsilon(DELTA)
        found = alone(ledger(3), li.account(run(**once)))
        assert expected * (1 - 1e-9) <= found <= expected * 1.01
        with pytest.raises(InvalidParameter, match="2, as the release has it, or left out"):
            ledger(3).add(li.account(run(examples_per_person=2)), examples_per_person=3)

    def test_a_choice_is_accounted_anew(self):
        listed = [{"run": to_dict(run(noise_std=n)), "other_releases": []} for n in (1, 2)]
        charge = charges.selection(Tries(1.0, 0.5), listed)
        one, three = (epsilon_of(charge, Unit("replace", n), DELTA) for n in (1, 3))
        assert 2.5 * one < three

    def test_sums_move_as_often_as_there_are_examples(self, ledger):
        release = PrivateScore(0.5, 0.1, Release.of_mu("accuracy", 0.1, adjacency="replace"))
        assert alone(ledger(3), release) == gaussian(0.3)
        # Of a release alone neither examples nor width are known: the most rounding counts.
        found, exact = alone(ledger(3), release.release), GaussianProfile(0.3).epsilon(DELTA)
        assert exact <= found <= exact * (1 + 1e-5)
        assert alone(ledger(3), COUNT) == gaussian(2 * 3 / 40)
        assert alone(ledger(3), dpa.LaplaceDpEvent(40.0)) == pytest.approx(2 * 3 / 40, rel=1e-2)

    def test_noise_for_a_whole_person_is_counted_once(self, ledger):
        state = ledger(3)
        assert alone(state, COUNT, examples_per_person=3) == gaussian(2 / 40)
        # Of groups of two, three examples touch two.
        assert alone(state, COUNT, examples_per_person=2) == gaussian(4 / 40)
        with pytest.raises(InvalidParameter, match="at most 3, as the ledger's"):
            state.add(COUNT, examples_per_person=4)
        state.add(COUNT, "a count")
        text = str(state)
        assert "all examples of one person, at most 3, replaced" in text.splitlines()[0]
        assert "a count (for one example; counted for 3)" in text
        assert "one example replaced" in str(ledger(1))

    @pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
    def test_sampled_events_are_no_better_than_the_truth(self, ledger, adjacency):
        """Three examples that are sampled on their own, against one sampled batch or none."""
        q, noise = 0.1, 4.0
        event = dpa.PoissonSampledDpEvent(q, dpa.GaussianDpEvent(noise))
        found = ledger(3, adjacency=adjacency).add(event)
        assert found["costs"][0]["mu"] is None
        far = -1 if adjacency == "replace" else 0  # the other data set's values are opposite
        x = np.linspace(-60, 60, 200_001)

        def density(sign):
            return sum(
                math.comb(3, k) * q**k * (1 - q) ** (3 - k)
                * np.exp(-((x - sign * k) ** 2) / (2 * noise**2))
                for k in range(4)
            ) / (noise * math.sqrt(2 * math.pi))  # fmt: skip

        p, r = density(1), density(far)
        for epsilon in (0.05, 0.2, found["alone"]):
            exact = np.maximum(p - math.exp(epsilon) * r, 0.0).sum() * (x[1] - x[0])
            assert composed(found["costs"], adaptive=False).delta(epsilon) >= exact
        once = epsilon_of(of_event(event), Unit(adjacency), DELTA)
        assert 2.0 * once < found["alone"] < 4.0 * once

    @pytest.mark.parametrize("given, changes", [("replace", 3), ("zero-out", 6)])
    def test_a_pair_gets_the_group_property(self, ledger, given, changes):
        (cost,) = ledger(3).add((0.2, 1e-9), adjacency=given)["costs"]
        terms = sum(math.exp(0.2 * one) for one in range(changes))
        assert 0.2 * changes <= cost["epsilon"] <= 0.2 * changes * (1 + 1e-6)
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

    def test_pairs_that_hardly_differ_or_of_which_nothing_is_left(self, ledger):
        for epsilon in (0.0, 1e-300, 1e-9):
            (cost,) = ledger(3).add((epsilon, 1e-9))["costs"]
            assert 3e-9 <= cost["delta"] <= 3.0001e-9
        with pytest.raises(InvalidParameter, match="epsilon must be at most 166"):
            ledger(3).add((200.0, 1e-9))
        with pytest.raises(InvalidParameter, match="epsilon must be at most 250"):
            ledger(1).add((300.0, 0.0), adjacency="zero-out")


class TestEvents:
    @pytest.mark.parametrize(
        "event",
        [
            dpa.GaussianDpEvent(0.0), dpa.GaussianDpEvent(math.nan),
            dpa.PoissonSampledDpEvent(1.5, GAUSSIAN), dpa.NonPrivateDpEvent(),
            dpa.SelfComposedDpEvent(GAUSSIAN, 0), "GaussianDpEvent",
        ],
    )  # fmt: skip
    def test_that_are_refused(self, event):
        with pytest.raises(InvalidParameter, match="must be"):
            events.as_record(event)

    def test_survive_the_file(self):
        sampled = dpa.PoissonSampledDpEvent(0.02, dpa.GaussianDpEvent(1.5))
        event = dpa.ComposedDpEvent([dpa.SelfComposedDpEvent(sampled, 5), LAPLACE])
        assert events.from_record(json.loads(json.dumps(events.as_record(event)))) == event

"""Composition: equal to what is known exactly, and to dp-accounting's where that knows it."""

import itertools
import json
import math

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting import dp_event

from lastiterate import dp_accounting as events
from lastiterate.errors import InvalidParameter
from lastiterate.ledger import charges
from lastiterate.ledger.charges import Unit
from lastiterate.ledger.costs import composed, cost_of, understated
from lastiterate.profile.curve import Curve, tabulated
from lastiterate.profile.gaussian import GaussianProfile, SubsampledGaussian
from lastiterate.profile.group import for_pair
from lastiterate.profile.renyi import PureProfile

GAUSSIAN, LAPLACE = dpa.GaussianDpEvent(3.0), dpa.LaplaceDpEvent(5.0)
SAMPLED = dpa.PoissonSampledDpEvent(0.02, dpa.GaussianDpEvent(1.5))
RELATIONS = {
    "zero-out": dpa.NeighboringRelation.REPLACE_SPECIAL,
    "replace": dpa.NeighboringRelation.REPLACE_ONE,
}


def of_event(event):
    return charges.event(events.as_record(event), examples_per_person=1)


def of_pair(epsilon, delta, adjacency):
    return charges.stated(epsilon, delta, adjacency=adjacency, examples_per_person=1)


def costs_of_events(*listed, adjacency="zero-out"):
    return [cost for event in listed for cost in charges.costs_of(of_event(event), Unit(adjacency))]


class TestAgainstDpAccounting:
    @pytest.mark.parametrize(
        "listed",
        [
            [GAUSSIAN],
            [LAPLACE] * 7,
            [dpa.SelfComposedDpEvent(SAMPLED, 500)],
            [GAUSSIAN, LAPLACE, GAUSSIAN, LAPLACE],
            [dpa.ComposedDpEvent([GAUSSIAN, dpa.SelfComposedDpEvent(SAMPLED, 100)]), LAPLACE],
            [dp_event.DiscreteLaplaceDpEvent(0.2, 1)] * 3 + [dpa.NoOpDpEvent()],
        ],
    )
    def test_the_same_epsilon(self, listed):
        accountant = dpa.pld.PLDAccountant(RELATIONS["zero-out"])
        for event in listed:
            accountant.compose(event)
        ours = composed(costs_of_events(*listed), adaptive=False)
        for delta in (1e-3, 1e-6, 1e-9):
            theirs = accountant.get_epsilon(delta)
            assert theirs * (1 - 1e-6) <= ours.epsilon(delta) <= theirs * 1.002 + 1e-4

    @pytest.mark.parametrize("event", [dpa.SelfComposedDpEvent(SAMPLED, 50), GAUSSIAN])
    def test_under_replacement(self, event):
        accountant = dpa.pld.PLDAccountant(RELATIONS["replace"])
        accountant.compose(event)
        ours = composed(costs_of_events(event, adjacency="replace"), adaptive=False)
        theirs = accountant.get_epsilon(1e-5)
        assert theirs * (1 - 1e-6) <= ours.epsilon(1e-5) <= theirs * 1.002

    def test_a_sampled_step_under_replacement_by_integration(self):
        z = np.linspace(-20.0, 20.0, 400_001)
        at = {c: np.exp(-((z - c) ** 2) / (2 * 1.5**2)) for c in (-1, 0, 1)}
        p, q = (0.98 * at[0] + 0.02 * at[c] for c in (1, -1))
        total = p.sum()
        ours = composed(costs_of_events(SAMPLED, adjacency="replace"), adaptive=False)
        for epsilon in (0.01, 0.03, 0.05):
            exact = np.maximum(p - math.exp(epsilon) * q, 0.0).sum() / total
            assert exact * (1 - 1e-6) <= ours.delta(epsilon) <= 1.01 * exact + 1e-6


class TestAgainstExactCompositions:
    def test_randomised_responses(self):
        """All outcomes of a few of them, enumerated."""
        limits = [0.3, 0.3, 0.7, 1.1]
        costs = [
            cost
            for limit in limits
            for cost in charges.costs_of(of_pair(limit, 0.0, "replace"), Unit("replace"))
        ]
        for epsilon in (0.0, 0.4, 1.3):
            exact = 0.0
            for signs in itertools.product((-1, 1), repeat=len(limits)):
                p = math.prod(
                    1 / (1 + math.exp(-s * e)) for s, e in zip(signs, limits, strict=True)
                )
                q = math.prod(1 / (1 + math.exp(s * e)) for s, e in zip(signs, limits, strict=True))
                exact += max(p - math.exp(epsilon) * q, 0.0)
            found = composed(costs, adaptive=False).delta(epsilon)
            assert exact <= found <= exact + 1e-3

    @pytest.mark.parametrize("mu, times", [(0.02, 1000), (0.3, 1), (0.3, 40), (2.0, 9)])
    def test_a_gaussian_by_its_table(self, mu, times):
        curve = tabulated(GaussianProfile(mu))
        table = {"cell": curve.cell, "deltas": curve.deltas.tolist()}
        ours = composed([{"times": times, "mu": None, "curve": table}], adaptive=False)
        whole = GaussianProfile(mu * math.sqrt(times))
        for delta in (1e-3, 1e-6, 1e-9):
            assert whole.epsilon(delta) <= ours.epsilon(delta) <= 1.002 * whole.epsilon(delta)

    def test_gaussians_are_exact(self):
        costs = [cost_of(GaussianProfile(0.3)), cost_of(GaussianProfile(0.4), times=3)]
        mu = math.sqrt(0.09 + 3 * 0.16)
        assert composed(costs, adaptive=True).gdp() == pytest.approx(mu, rel=1e-12)
        assert composed(costs, adaptive=False).gdp() >= mu


class TestTables:
    @pytest.mark.parametrize(
        "profile", [GaussianProfile(0.5), PureProfile(0.7), SubsampledGaussian(0.01, 1.0)]
    )
    def test_losses_give_back_the_curve(self, profile):
        losses = tabulated(profile).losses()
        for epsilon in np.linspace(0.0, 1.5, 40):
            gone = np.maximum(losses.masses - math.exp(epsilon) * losses.others, 0.0)
            found = float(gone.sum()) + losses.infinite
            exact = profile.delta(epsilon)
            assert found >= exact * (1 - 1e-9)
            assert found <= 1.02 * exact + 1e-4
        assert losses.masses.sum() + losses.infinite == pytest.approx(1.0, abs=1e-9)

    @pytest.mark.parametrize("deltas", [[0.5], [0.1, 0.2], [1.5, 0.1], [math.nan, 0.1], [0.1, -1]])
    def test_what_is_no_curve_is_refused(self, deltas):
        with pytest.raises(InvalidParameter, match="deltas"):
            Curve(0.1, np.array(deltas))

    def test_a_cost_below_what_is_derived_is_found(self):
        derived = cost_of(SubsampledGaussian(0.1, 1.0))
        assert not understated(derived, derived)
        for at in (0, 3, 150):
            less = json.loads(json.dumps(derived))
            less["curve"]["deltas"][at] *= 0.9
            assert understated(less, derived)
        assert understated({**derived, "times": 2}, derived)
        gaussian = cost_of(GaussianProfile(0.5))
        assert understated({**gaussian, "mu": 0.4}, gaussian)
        assert understated({**gaussian, "mu": None}, gaussian)


class TestTwice:
    def test_against_all_outcomes(self):
        """Of three laws, each next to the other: the exact divergence of the outer two."""
        p, q, r = (np.array(law) for law in ([0.5, 0.3, 0.2], [0.4, 0.3, 0.3], [0.25, 0.35, 0.4]))

        def between(a, b, epsilon):
            return max(np.maximum(x - math.exp(epsilon) * y, 0).sum() for x, y in ((a, b), (b, a)))

        class Exact(PureProfile):
            def deltas(self, epsilons):
                pairs = [(p, q), (q, r)]
                return np.array([max(between(a, b, e) for a, b in pairs) for e in epsilons])

        doubled = for_pair(Exact(5.0))
        for epsilon in (0.0, 0.2, 0.5, 0.7):
            assert doubled.delta(epsilon) >= between(p, r, epsilon)
        assert doubled.delta(0.0) <= 2.001 * Exact(5.0).delta(0.0)


class TestOtherAdjacencies:
    def epsilon(self, charge, adjacency):
        return composed(charges.costs_of(charge, Unit(adjacency)), adaptive=False).epsilon(1e-6)

    def test_an_event_moves_twice_as_far_under_replacement(self):
        def epsilon(event):
            return self.epsilon(of_event(event), "replace")

        assert epsilon(GAUSSIAN) == pytest.approx(GaussianProfile(2 / 3).epsilon(1e-6), rel=1e-9)
        assert 0.399 < epsilon(LAPLACE) < 0.4001
        assert 0.399 < epsilon(dp_event.DiscreteLaplaceDpEvent(0.2, 1)) < 0.4001
        sampled = dpa.PoissonSampledDpEvent(0.5, LAPLACE)
        once = math.log(1 + 0.5 * math.expm1(0.2))
        assert 2 * once * 0.9 < epsilon(sampled) < 2 * once * 1.01

    @pytest.mark.parametrize("given", ["zero-out", "add-remove"])
    def test_a_pair_holds_twice_over_for_a_replacement(self, given):
        (cost,) = charges.costs_of(of_pair(0.3, 1e-8, given), Unit("replace"))
        assert (cost["epsilon"], cost["delta"]) == (
            pytest.approx(0.6),
            pytest.approx(1e-8 * (1 + math.exp(0.3))),
        )

    def test_a_promise_of_replacement_may_not_cover_leaving_out(self):
        with pytest.raises(InvalidParameter, match="cannot be converted, because"):
            charges.costs_of(of_pair(0.3, 0.0, "replace"), Unit("zero-out"))


@pytest.mark.parametrize(
    "event",
    [
        dpa.GaussianDpEvent(0.0),
        dpa.GaussianDpEvent(math.nan),
        dpa.PoissonSampledDpEvent(1.5, GAUSSIAN),
        dpa.NonPrivateDpEvent(),
        dpa.SelfComposedDpEvent(GAUSSIAN, 0),
        "GaussianDpEvent",
    ],
)
def test_events_that_are_refused(event):
    with pytest.raises(InvalidParameter, match="must be"):
        events.as_record(event)


def test_events_survive_the_file():
    event = dpa.ComposedDpEvent([dpa.SelfComposedDpEvent(SAMPLED, 5), LAPLACE])
    assert events.from_record(json.loads(json.dumps(events.as_record(event)))) == event

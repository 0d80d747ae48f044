"""Composition: equal to what is known exactly, and to dp-accounting's where that knows it."""

import itertools
import json
import math

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting import dp_event
from scipy.stats import binom

from lastiterate.errors import InvalidParameter
from lastiterate.ledger import charges
from lastiterate.ledger.charges import Unit, release_charge
from lastiterate.ledger.costs import RunningCosts, composed, cost_of, understated
from lastiterate.profile import GaussianProfile, PureProfile
from lastiterate.profile.curve import Curve, tabulated
from lastiterate.profile.gaussian import SubsampledGaussian
from lastiterate.profile.group import for_pair

from .releases import GAUSSIAN, LAPLACE, of_event, of_pair

SAMPLED = dpa.PoissonSampledDpEvent(0.02, dpa.GaussianDpEvent(1.5))
SPECIAL, ONE = dpa.NeighboringRelation.REPLACE_SPECIAL, dpa.NeighboringRelation.REPLACE_ONE


def costs_of_events(*listed, adjacency="zero-out"):
    return [cost for event in listed for cost in charges.costs_of(of_event(event), Unit(adjacency))]


class TestAgainstDpAccounting:
    @pytest.mark.parametrize(
        "relation, listed",
        [
            (SPECIAL, [GAUSSIAN]),
            (SPECIAL, [LAPLACE] * 7),
            (SPECIAL, [GAUSSIAN, LAPLACE, GAUSSIAN, LAPLACE]),
            (SPECIAL, [dpa.ComposedDpEvent([GAUSSIAN, dpa.SelfComposedDpEvent(SAMPLED, 100)]),
                       LAPLACE]),
            (SPECIAL, [dp_event.DiscreteLaplaceDpEvent(0.2, 1)] * 3 + [dpa.NoOpDpEvent()]),
            (ONE, [dpa.SelfComposedDpEvent(SAMPLED, 50)]),
            (ONE, [GAUSSIAN]),
        ],
    )  # fmt: skip
    def test_the_same_epsilon(self, relation, listed):
        accountant = dpa.pld.PLDAccountant(relation)
        for event in listed:
            accountant.compose(event)
        adjacency = "zero-out" if relation is SPECIAL else "replace"
        ours = composed(costs_of_events(*listed, adjacency=adjacency), adaptive=False)
        for delta in (1e-3, 1e-6, 1e-9):
            theirs = accountant.get_epsilon(delta)
            assert theirs * (1 - 1e-6) <= ours.epsilon(delta) <= theirs * 1.002 + 1e-4

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
                each = [(1 / (1 + math.exp(-s * e)), 1 / (1 + math.exp(s * e)))
                        for s, e in zip(signs, limits, strict=True)]  # fmt: skip
                p, q = (math.prod(one) for one in zip(*each, strict=True))
                exact += max(p - math.exp(epsilon) * q, 0.0)
            found = composed(costs, adaptive=False).delta(epsilon)
            assert exact <= found <= exact + 1e-3

    @pytest.mark.parametrize("mu, times", [(0.02, 1000), (0.3, 1), (2.0, 9)])
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
            found, exact = float(gone.sum()) + losses.infinite, profile.delta(epsilon)
            assert exact * (1 - 1e-9) <= found <= 1.02 * exact + 1e-4
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


def test_twice_against_all_outcomes():
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


KINDS = {
    "pairs": lambda k: (0.01 + 1e-4 * k, 1e-9),
    "laplace": lambda k: dpa.LaplaceDpEvent(90.0 + k),
    "mixed": lambda k: [
        dpa.GaussianDpEvent(50.0 + k),
        (0.02 + 1e-4 * k, 0.0),
        dpa.PoissonSampledDpEvent(0.1, dpa.GaussianDpEvent(3.0 + k)),
    ][k % 3],
}


def costs_of(release):
    return charges.costs_of(release_charge(release, adjacency="replace").charge, Unit("replace"))


class TestRunningCosts:
    """Costs composed as they come are never below what they compose to."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_as_they_come(self, kind):
        """At every length, grids that were outgrown included."""
        running, every = RunningCosts(), []
        for k in range(40 if kind == "pairs" else 22):
            more = costs_of(KINDS[kind](k))
            found = running.composed(more, adaptive=False)
            running.include(more)
            every += more
            if k % 7 == 0:
                whole = composed(every, adaptive=False)
                for delta in (1e-3, 1e-6):
                    exact = whole.epsilon(delta)
                    assert exact * (1 - 2e-3) <= found.epsilon(delta) <= exact * 1.01 + 1e-4

    @pytest.mark.parametrize("kind", KINDS)
    def test_what_is_taken_back_leaves_nothing(self, kind):
        running, found = RunningCosts(), []
        for k in range(9):
            running.include(costs_of(KINDS[kind](k)))
        for k in range(9, 12):
            found.append(running.composed((), adaptive=False).epsilon(1e-5))
            for sign in (1, -1):
                running.include(costs_of(KINDS[kind](k)), sign=sign)
        assert found == pytest.approx([found[0]] * 3, rel=1e-9)

    def test_an_upper_bound_of_what_is_known_exactly(self):
        """Randomised responses, whose sum is binomial."""
        running = RunningCosts()
        for _ in range(200):
            running.include(costs_of((0.05, 0.0)))
        found = running.composed((), adaptive=False)
        p, ups = 1.0 / (1.0 + np.exp(-0.05)), np.arange(201)
        losses = 0.05 * (2 * ups - 200)
        for epsilon in (0.2, 1.0, 2.0):
            gain = np.maximum(-np.expm1(epsilon - losses), 0.0)
            exact = float(binom.pmf(ups, 200, p) @ gain)
            assert exact <= found.delta(epsilon) <= 1.05 * exact + 1e-9

    def test_failures_and_adaptive_ledgers(self):
        running = RunningCosts()
        running.include([{"times": 3, "mu": 0.1, "failure": 1e-8}])
        assert running.composed((), adaptive=True).epsilon(2e-8) == np.inf
        running.include([{"times": 1, "mu": None, "epsilon": 0.1, "delta": 1e-6}])
        assert running.composed((), adaptive=True).epsilon(1e-3) == np.inf
        assert running.composed((), adaptive=False).epsilon(1e-3) < 1.0

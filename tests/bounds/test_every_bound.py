"""Every proved bound, of whatever batch rule, against exact privacy of an instance it covers."""

import dataclasses
import math
from functools import cache
from itertools import product

import pytest

import lastiterate as li
from lastiterate.bounds.bound import Bound, Certainty
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.run.batch_rules.base import BatchRule, Resampling
from tests.reference.grid import exact_pair
from tests.reference.instances import Instance, Step, linear_map
from tests.test_open_sets import laws

# Momentum has a state of two vectors: tests/bounds/fixed_order/test_momentum.py has its instances.
PROVED = [
    bound
    for bound in CATALOGUE.values()
    if bound.certainty is Certainty.UPPER and bound.id != "fixed-order/momentum"
]
PLACES, ARRIVAL, BEND = 2, 0.6, 0.2  # an arrival is in units of a step's noise
EPSILONS, ORDERS = (0.1, 0.5, 1.0, 2.0), (2.0, 4.0)

SQUARES = li.Loss(smoothness=BEND, strong_convexity=BEND, outputs=1)
SETTINGS = {
    "squares": {"loss": SQUARES},
    "projected": {"loss": SQUARES, "domain": li.Ball(0.9)},
    "a penalty": {
        "loss": li.Loss(smoothness=BEND, regulariser=BEND),
        "adjacency": "zero-out",
    },
    "not convex": {"loss": li.Loss(smoothness=BEND, convex=False)},
    "linear": {"loss": li.Loss(lipschitz=ARRIVAL / 2)},
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A run with batches of this rule, as long as this many passes."""

    rule: type[BatchRule]
    setting: str
    passes: int

    @property
    def steps(self):
        often = 1 if self.rule.resampling is Resampling.EACH_STEP else PLACES
        return often * self.passes

    @property
    def run(self):
        if not self.rule.from_sizes:
            batches = self.rule(PLACES, 1, range(PLACES, self.steps + 1, PLACES))
        else:
            many, size = (PLACES, 1) if self.rule.ordered else (1, None)
            batches = self.rule.of_sizes(many, size)
        return li.TrainingRun(
            **SETTINGS[self.setting],
            sensitivity=ARRIVAL,
            batches=batches,
            steps=self.steps,
            step_size=1.0,
            noise_std=1.0,
        )


@cache
def pair_of(case):
    """Losses all equally curved, or linear ones and a penalty; the example moves by an arrival.

    Which steps see it is as the trainer draws them; in a public order it is the last example.
    """
    run = case.run
    half = run.domain.diameter / 2 if case.setting == "projected" else math.inf
    interval = None if half == math.inf else (-half, half)
    curvature = 0.0 if case.setting == "linear" else BEND
    slope = 1 - curvature if run.loss.convex else 1 + curvature

    def instance(seen):
        moved = (linear_map(slope, ARRIVAL * (k in seen)) for k in range(run.steps))
        return Instance(0.0, tuple(Step(linear_map(slope), to, 1.0, interval) for to in moved))

    law = laws(run.batches, run.steps)[-1]
    mixture = [(float(chance), instance(seen)) for seen, chance in law.items()]
    return exact_pair(mixture, lost_mass=1e-30)


def cases(rule):
    """Of batches of unknown size only a penalty has a known curvature."""
    for passes, setting in product((2, 1), SETTINGS):
        if rule.exact_size or setting == "a penalty":
            yield Case(rule, setting, passes)


@pytest.mark.parametrize(
    "bound, rule",
    [(bound, rule) for bound in PROVED for rule in bound.covers],
    ids=lambda one: one.id if isinstance(one, Bound) else one.name,
)
def test_holds_of_an_instance_that_it_covers(bound, rule):
    case = next((one for one in cases(rule) if not bound.unmet(one.run)), None)
    assert case is not None, "no case here exercises this bound of these batches: add one"
    profile, pair = bound.evaluate(case.run), pair_of(case)
    for epsilon in EPSILONS:
        assert pair.delta(epsilon) <= profile.delta(epsilon) + 1e-9
    for order in ORDERS:
        assert pair.renyi(order) <= profile.renyi(order) * (1 + 1e-6)
    # Else the comparison would say nothing.
    assert profile.delta(EPSILONS[0]) < 10 * pair.delta(EPSILONS[0])


TELLING = [
    bound
    for bound in CATALOGUE.values()
    if bound.by_position is not None and bound.id != "fixed-order/momentum"
]
FORGETFUL = (  # quadratics of curvature 1 obey each of these, and a step of 1 forgets what was
    {"loss": li.Loss(smoothness=1.0, strong_convexity=1.0)},
    {"loss": li.Loss(smoothness=1.0, strong_convexity=1.0), "domain": li.Ball(0.1)},
    {"loss": li.Loss(smoothness=1.0, convex=False)},
    {"loss": li.Loss(lipschitz=5.0, regulariser=1.0)},  # linear but for the penalty
    {"loss": li.Loss(smoothness=0.999, outputs=1)},  # all but
)


def forgetful_runs(bound, batches):
    runs = (
        li.TrainingRun(
            **setting,
            sensitivity=ARRIVAL * batches.batch_size,
            batches=batches,
            steps=steps,
            step_size=1.0,
            noise_std=1.0,
        )
        for setting, steps in product(FORGETFUL, {4, batches.batches_per_epoch})
    )
    return [run for run in runs if not bound.unmet(run)]


@cache
def last_step(domain, sees):
    interval = (-domain.diameter / 2, domain.diameter / 2) if domain != li.Unbounded() else None
    step = Step(linear_map(0.0), linear_map(0.0, ARRIVAL * sees), 1.0, interval)
    return exact_pair(Instance(0.0, (step,)), lost_mass=1e-30)


def by_position_is_sound(bound, batches):
    runs = forgetful_runs(bound, batches)
    assert runs, "no case here exercises this bound: add one"
    for run in runs:
        _by_position_is_sound(bound, run)


def _by_position_is_sound(bound, run):
    """Place for place above what the quadratics show, and at the worst what is charged."""
    profiles = bound.by_position(run)
    assert len(profiles) == run.batches.position_count(run.steps)
    for place, profile in enumerate(profiles):
        pair = last_step(run.domain, run.steps - 1 in run.batches.participations(place, run.steps))
        for order in ORDERS:
            assert pair.renyi(order) <= profile.renyi(order) * (1 + 1e-9) + 1e-9
    charged = bound.evaluate(run)
    for order in ORDERS:
        worst = max(profile.renyi(order) for profile in profiles)
        assert charged.renyi(order) == pytest.approx(worst, rel=1e-6)


@pytest.mark.parametrize("bound", TELLING, ids=lambda bound: bound.id)
class TestByPosition:
    @pytest.mark.parametrize("batches", [li.Cyclic(4, 1), li.Cyclic(2, 1), li.Cyclic(9, 2)])
    def test_the_worst_position_is_the_one_charged(self, bound, batches):
        by_position_is_sound(bound, batches)

    def test_positions_in_another_order_would_be_noticed(self, bound):
        def backwards(run):
            return bound.by_position(run)[::-1]

        turned = dataclasses.replace(bound, by_position=backwards)
        with pytest.raises(AssertionError):
            by_position_is_sound(turned, li.Cyclic(4, 1))

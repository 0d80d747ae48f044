"""Every proved bound, of whatever batch rule, against exact privacy of an instance it covers."""

import dataclasses
import math
from functools import cache
from itertools import product

import pytest

import lastiterate as li
from lastiterate.bounds.bound import Certainty
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.run.batches import RULES, Drawn
from tests.reference.grid import exact_pair
from tests.reference.instances import Instance, Step, linear_map

PROVED = [bound for bound in CATALOGUE.values() if bound.certainty is Certainty.UPPER]
PLACES, ARRIVAL, BEND = 2, 0.6, 0.2  # an arrival is in units of a step's noise
EPSILONS, ORDERS = (0.1, 0.5, 1.0, 2.0), (2.0, 4.0)

SQUARES = li.Loss(smoothness=BEND, strong_convexity=BEND)
SETTINGS = {
    "squares": {"loss": SQUARES},
    "projected": {"loss": SQUARES, "domain": li.Ball(0.9)},
    "a penalty": {
        "loss": li.Loss(smoothness=BEND, regulariser=BEND),
        "adjacency": "zero-out",
    },
    "not convex": {"loss": li.Loss(smoothness=BEND, convex=False)},
}


def steps_of(rule):
    return 2 if rule.drawn is Drawn.EACH_STEP else 2 * PLACES


def patterns(rule):
    """(chance, whether each step sees the example); an epoch has as many steps as places."""
    steps = range(steps_of(rule))
    if rule.drawn is Drawn.NEVER:
        often = PLACES if rule.ordered else 1
        return [(1.0, [(k + 1) % often == 0 for k in steps])]
    if rule.drawn is Drawn.ONCE:
        return [(1 / PLACES, [k % PLACES == place for k in steps]) for place in range(PLACES)]
    if rule.drawn is Drawn.EACH_EPOCH:
        places = list(product(range(PLACES), repeat=len(steps) // PLACES))
        return [
            (1 / len(places), [k % PLACES == one[k // PLACES] for k in steps]) for one in places
        ]
    assert rule.drawn is Drawn.EACH_STEP
    return [(PLACES ** -len(steps), seen) for seen in product((False, True), repeat=len(steps))]


def run_of(rule, setting):
    if not rule.from_sizes:
        batches = rule(PLACES, 1, range(PLACES, steps_of(rule) + 1, PLACES))
    else:
        batches = rule.of_sizes(PLACES, 1) if rule.ordered else rule.of_sizes(1, None)
    return li.TrainingRun(
        **SETTINGS[setting],
        sensitivity=ARRIVAL,
        batches=batches,
        steps=steps_of(rule),
        step_size=1.0,
        noise_std=1.0,
    )


@cache
def pair_of(rule, setting):
    """Losses all equally curved, or linear ones and a penalty; the example moves by an arrival."""
    run = run_of(rule, setting)
    half = run.domain.diameter / 2 if setting == "projected" else math.inf
    interval = None if half == math.inf else (-half, half)
    slope = 1 - BEND if run.loss.convex else 1 + BEND

    def instance(seen):
        moved = (linear_map(slope, ARRIVAL * sees) for sees in seen)
        return Instance(0.0, tuple(Step(linear_map(slope), to, 1.0, interval) for to in moved))

    mixture = [(chance, instance(seen)) for chance, seen in patterns(rule)]
    return exact_pair(mixture, lost_mass=1e-30)


def cases():
    """Of batches of unknown size only a penalty has a known curvature."""
    for rule, setting in product(RULES.values(), SETTINGS):
        if rule.exact_size or setting == "a penalty":
            yield rule, setting


@pytest.mark.parametrize("bound", PROVED, ids=lambda bound: bound.id)
def test_holds_of_an_instance_that_it_covers(bound):
    case = next((one for one in cases() if not bound.unmet(run_of(*one))), None)
    assert case is not None, "no case here exercises this bound: add one"
    profile, pair = bound.evaluate(run_of(*case)), pair_of(*case)
    for epsilon in EPSILONS:
        assert pair.delta(epsilon) <= profile.delta(epsilon) + 1e-9
    for order in ORDERS:
        assert pair.renyi(order) <= profile.renyi(order) * (1 + 1e-6)
    # Else the comparison would say nothing.
    assert profile.delta(EPSILONS[0]) < 10 * pair.delta(EPSILONS[0])


TELLING = [bound for bound in CATALOGUE.values() if bound.by_position is not None]
FORGETFUL = (  # quadratics of curvature 1 obey each of these, and a step of 1 forgets what was
    {"loss": li.Loss(smoothness=1.0, strong_convexity=1.0)},
    {"loss": li.Loss(smoothness=1.0, strong_convexity=1.0), "domain": li.Ball(0.1)},
    {"loss": li.Loss(smoothness=1.0, convex=False)},
)


def forgetful_runs(bound, batches):
    runs = (
        li.TrainingRun(
            **setting,
            sensitivity=ARRIVAL * batches.batch_size,
            batches=batches,
            steps=4,
            step_size=1.0,
            noise_std=1.0,
        )
        for setting in FORGETFUL
    )
    return [run for run in runs if not bound.unmet(run)]


@cache
def last_step(domain, sees):
    interval = (-domain.diameter / 2, domain.diameter / 2) if domain != li.Unbounded() else None
    step = Step(linear_map(0.0), linear_map(0.0, ARRIVAL * sees), 1.0, interval)
    return exact_pair(Instance(0.0, (step,)), lost_mass=1e-30)


def by_position_is_sound(bound, batches):
    runs = forgetful_runs(bound, batches)
    assert runs
    for run in runs:
        _by_position_is_sound(bound, run)


def _by_position_is_sound(bound, run):
    """Place for place above what the quadratics show, and at the worst what is charged."""
    profiles = bound.by_position(run)
    assert len(profiles) == run.batches.places(run.steps)
    for place, profile in enumerate(profiles):
        pair = last_step(run.domain, run.steps - 1 in run.batches.seen(place, run.steps))
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

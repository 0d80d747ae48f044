"""Every proved bound and stage, of whatever batch rule, against exact privacy of what it covers."""

import dataclasses
import math
from collections import defaultdict
from functools import cache, partial
from itertools import product

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds.bound import Bound, Certainty
from lastiterate.bounds.catalogue import CATALOGUE, RECORDS
from lastiterate.run.batch_rules.base import BatchRule, Resampling
from tests.bounds.runs import described
from tests.reference import all_draws
from tests.reference.grid import exact_pair
from tests.reference.instances import Instance, Step, linear_map
from tests.test_open_sets import laws

# Momentum has a state of two vectors: tests/bounds/test_momentum.py has its instances.
PROVED = [
    bound
    for bound in CATALOGUE.values()
    if bound.certainty is Certainty.UPPER and bound.id != "fixed-order/momentum"
]
PLACES, ARRIVAL, BEND = 2, 0.6, 0.2  # an arrival is in units of a step's noise
EPSILONS, ORDERS = (0.1, 0.5, 1.0, 2.0), (2.0, 4.0)

SQUARES = li.Loss(smoothness=BEND, strong_convexity=BEND, outputs=1)
PENALTY = {"loss": li.Loss(smoothness=BEND, regulariser=BEND), "adjacency": "zero-out"}
SETTINGS = {
    "squares": {"loss": SQUARES},
    "projected": {"loss": SQUARES, "domain": li.Ball(0.9)},
    "a penalty": PENALTY,
    "a penalty and a noisy release": PENALTY | {"release_noise_std": 0.7},
    "not convex": {"loss": li.Loss(smoothness=BEND, convex=False)},
    "not convex, projected": {
        "loss": li.Loss(smoothness=BEND, convex=False), "domain": li.Ball(0.9)
    },
    "linear": {"loss": li.Loss(lipschitz=ARRIVAL / 2)},
}  # fmt: skip


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
        return described(batches, self.steps, sensitivity=ARRIVAL, **SETTINGS[self.setting])


@cache
def pair_of(case):
    """Losses all equally curved, or linear ones and a penalty; the example moves by an arrival.

    Which steps see it is as the trainer draws them; in a public order it is the last example.
    """
    run = case.run
    half = run.domain.diameter / 2 if "projected" in case.setting else math.inf
    interval = None if half == math.inf else (-half, half)
    curvature = 0.0 if case.setting == "linear" else BEND
    slope = 1 - curvature if run.loss.convex else 1 + curvature

    def instance(seen):
        moved = (linear_map(slope, ARRIVAL * (k in seen)) for k in range(run.steps))
        steps = tuple(Step(linear_map(slope), to, 1.0, interval) for to in moved)
        return Instance(0.0, steps, run.release_noise_std)

    law = laws(run.batches, run.steps)[-1]
    mixture = [(float(chance), instance(seen)) for seen, chance in law.items()]
    return exact_pair(mixture, lost_mass=1e-30)


def cases(rule):
    """Of batches of unknown size only a penalty has a known curvature."""
    for setting in SETTINGS:
        if rule.exact_size or "penalty" in setting:
            yield [Case(rule, setting, passes) for passes in (2, 1)]


@pytest.mark.parametrize(
    "bound, rule",
    [(bound, rule) for bound in PROVED for rule in bound.covers],
    ids=lambda one: one.id if isinstance(one, Bound) else one.name,
)
def test_holds_of_instances_that_it_covers(bound, rule):
    """As long as it covers; own bounds of the last iterate in every setting."""
    held = [[one for one in lengths if not bound.unmet(one.run)] for lengths in cases(rule)]
    held = [lengths[0] for lengths in held if lengths]
    assert held, "no case here exercises this bound of these batches: add one"
    for case in held if bound.id.startswith(("fixed", "random")) else held[:1]:
        profile, pair = bound.evaluate(case.run), pair_of(case)
        for epsilon in EPSILONS:
            assert pair.delta(epsilon) <= profile.delta(epsilon) + 1e-9
        for order in ORDERS:
            assert pair.renyi(order) <= profile.renyi(order) * (1 + 1e-6)
        # Else the comparison would say nothing.
        if case == held[0]:
            assert profile.delta(EPSILONS[0]) < 10 * pair.delta(EPSILONS[0])


def every_balance(examples, size, steps):
    length = li.BalancedSampled(examples, size, 2).steps_per_draw
    return all_draws.every_balance(examples, 2, length, steps)


ORDERED = [(2, 1, 2), (3, 1, 3), (4, 1, 4), (5, 2, 2), (4, 2, 4), (3, 1, 6), (3, 1, 7), (2, 1, 5)]
PICKED = [(2, 1, 2), (3, 1, 3), (3, 1, 5), (4, 1, 4), (4, 2, 4), (5, 2, 2), (3, 1, 6), (2, 1, 5)]
# Of every rule all draws of all examples, (examples, batch size, steps), and how many runs to try.
DRAWN = {
    li.ShuffledOnce: (partial(all_draws.every_order, each=False), ORDERED, 30),
    li.ShuffledEachEpoch: (partial(all_draws.every_order, each=True), ORDERED, 30),
    li.BallsAndBins: (partial(all_draws.every_pick, each=False), PICKED, 9),
    li.BallsAndBinsEachEpoch: (partial(all_draws.every_pick, each=True), PICKED, 9),
    li.SampledWithoutReplacement: (
        all_draws.every_sample, [(2, 1, 4), (3, 1, 4), (3, 2, 3), (4, 2, 3), (2, 1, 7)], 3
    ),
    li.PoissonSampled: (
        all_draws.every_choice, [(2, 1, 4), (3, 1, 3), (3, 2, 3), (4, 1, 2), (2, 1, 5)], 12
    ),
    li.BalancedSampled: (every_balance, [(3, 1, 4), (3, 1, 6), (2, 1, 5)], 12),
}  # fmt: skip
TRIED = (0.0, 0.3, 0.8, 1.5, 2.5)
# The least of its stages is one of them, and composition is held to integrals over its noise.
STAGES = [
    bound
    for bound in RECORDS.values()
    if bound.certainty is Certainty.UPPER
    and bound.id.startswith(("fixed", "random"))
    and not hasattr(bound, "stages")
]


class Attack:
    """A random run, and random examples that obey it; others mark positions, mostly."""

    def __init__(self, rng, rule):
        draws, shapes, _ = DRAWN[rule]
        examples, size, steps = shapes[rng.integers(len(shapes))]
        self.draws = draws(examples, size, steps)
        self.kind = str(rng.choice(["curved", "linear", "left out"]))
        self.penalty = float(rng.choice([0.0, 0.1, 0.4]))
        # Losses whose gradients are bounded are linear; a step of 1 may expand for others.
        curved = self.kind == "curved"
        self.own = float(rng.choice([0.3, 0.6, 1.0, 1.6] if curved else [1e-6, 0.1]))
        self.most = float(rng.choice([0.5, 1.0, 2.0])) * size
        often = (2,) if rule is li.BalancedSampled else ()
        self.run = described(
            rule(examples, size, *often), steps,
            loss=li.Loss(
                smoothness=self.own + self.penalty, regulariser=self.penalty, outputs=1,
                lipschitz=None if curved else self.most,
            ),
            sensitivity=self.most * (2.0 if self.kind == "linear" else 1.0),
            adjacency="zero-out" if self.kind == "left out" else "replace",
            release_noise_std=float(rng.choice([0.0, 0.0, 0.7])),
        )  # fmt: skip

    def leaked(self, rng):
        run, curved = self.run, self.kind == "curved"
        curvatures = curved * self.own * rng.choice([0.0, 1.0, rng.random()], run.steps)
        low, shape = (0.0 if curved else -1.0), (run.batches.examples, run.steps)
        ends = rng.choice([low, 1.0], shape)
        added = self.most * np.where(rng.random(shape) < 0.8, ends, rng.uniform(low, 1.0, shape))
        if rng.random() < 0.5:  # the differing example always pulls the same way
            added[0] = self.most
        other = added.copy()
        other[0] = {"curved": self.most - added[0], "linear": -added[0], "left out": 0.0}[self.kind]
        members, weights = self.draws
        laws = []
        for one in (added, other):
            means, stds = all_draws.last_iterates(
                members, run.batches.batch_size, self.penalty, curvatures, one
            )
            laws.append((means, np.hypot(stds, run.release_noise_std)))
        return np.array(all_draws.hockey_sticks(*laws, weights, TRIED))


def largest_shares(rule, count, seed):
    """Of what each bound certifies, as leaks from some instance."""
    rng, worst = np.random.default_rng(seed), defaultdict(float)
    for _ in range(count):
        attack = Attack(rng, rule)
        leaks = np.array([attack.leaked(rng) for _ in range(2)])
        for bound in STAGES:
            if rule not in bound.covers or bound.unmet(attack.run):
                continue
            profile = bound.evaluate(attack.run)
            certified = np.array([profile.delta(epsilon) for epsilon in TRIED])
            shares = np.divide(leaks, certified, out=np.zeros_like(leaks), where=leaks > 1e-9)
            worst[bound.id] = max(worst[bound.id], float(shares.max()))
    return worst


@pytest.mark.parametrize("rule", DRAWN, ids=lambda rule: rule.name)
class TestAttack:
    def test_no_instance_leaks_more(self, rule):
        worst = largest_shares(rule, DRAWN[rule][2], seed=0)
        assert max(worst.values()) <= 1.0 + 1e-6
        assert min(worst.values()) > 0.5  # the search has teeth
        # Expanding steps have instances of their own, and momentum has no plain steps.
        meant = {
            bound.id for bound in STAGES
            if rule in bound.covers and "non-convex" not in bound.id
            and not bound.id.endswith("momentum")
        }  # fmt: skip
        assert set(worst) == meant

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(1, 9))
    def test_nor_in_a_long_search(self, rule, seed):
        assert max(largest_shares(rule, 6 * DRAWN[rule][2], seed).values()) <= 1.0 + 1e-6


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
        described(batches, steps, sensitivity=ARRIVAL * batches.batch_size, **setting)
        for setting, steps in product(FORGETFUL, {4, batches.batches_per_epoch})
    )
    return [run for run in runs if not bound.unmet(run)]


@cache
def last_step(domain, sees):
    interval = (-domain.diameter / 2, domain.diameter / 2) if domain != li.Unbounded() else None
    step = Step(linear_map(0.0), linear_map(0.0, ARRIVAL * sees), 1.0, interval)
    return exact_pair(Instance(0.0, (step,)), lost_mass=1e-30)


def by_position_is_sound(bound, batches):
    """Place for place above what the quadratics show, and at the worst what is charged."""
    runs = forgetful_runs(bound, batches)
    assert runs, "no case here exercises this bound: add one"
    for run in runs:
        profiles = bound.by_position(run)
        assert len(profiles) == run.batches.position_count(run.steps)
        for place, profile in enumerate(profiles):
            seen = run.batches.participations(place, run.steps)
            pair = last_step(run.domain, run.steps - 1 in seen)
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

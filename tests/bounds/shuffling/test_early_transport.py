"""Hidden positions in short steps: below transport by later shifts, never below the truth."""

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest

import lastiterate as li
from lastiterate._numerics.rounding import ulps
from lastiterate.bounds.fixed_order.short_steps import equal_short_steps
from lastiterate.bounds.shuffling import early_transport as module
from lastiterate.bounds.shuffling.joint_transport import JointTransport, TransportGrid
from lastiterate.bounds.shuffling.positions import PositionsEachEpoch
from lastiterate.bounds.shuffling.transport import positions_of, sensitivity_factors
from lastiterate.shifts.early_shifts import FAILURE, ShortSteps
from lastiterate.shifts.optimal_shifts import optimal_shifts
from tests.reference.all_orders import epochs_seen, hockey_sticks, means

EARLY = "random-order/shuffled/early-transport"
JOINT = "random-order/shuffled/joint-transport"
EPSILONS = (0.05, 0.3, 0.8, 1.5, 2.5, 3.5)
SHAPES = [  # examples, batch size, steps
    (2, 1, 2), (3, 1, 3), (4, 1, 4), (5, 1, 5), (5, 2, 2), (4, 2, 4), (2, 1, 4), (2, 1, 5),
    (2, 1, 8), (3, 1, 6), (3, 1, 7), (4, 1, 6),
]  # fmt: skip
ROUGH = TransportGrid(receiving=40, every_nth_knot=2, cells=400, step=0.25)


def described(rule, shape, ratio, least, contraction, adjacency):
    examples, size, steps = shape
    return li.TrainingRun(
        loss=li.Loss(smoothness=1.0 - least, strong_convexity=1.0 - contraction, outputs=1),
        sensitivity=ratio * size,
        batches=rule(examples, size),
        steps=steps,
        step_size=1.0,
        noise_std=1.0,
        adjacency=adjacency,
    )


def constant_changes(run, least):
    """Short steps for instances in which an example changes a step by the same wherever it is."""
    return ShortSteps(
        steps=run.steps,
        gap=run.loss.strong_convexity,
        curvature=1.0 - least,
        ratio=run.sensitivity / run.batches.batch_size,
        drift=1e-300,
        dimension=2,
    )


class Instance:
    """One shuffled run on the line, with factors of steps between `least` and `contraction`."""

    def __init__(self, rng, rule, shape, ratio, least, contraction, adjacency):
        examples, size, steps = shape
        self.seen = epochs_seen(examples, size, steps, rule is li.ShuffledEachEpoch)
        self.least, self.contraction = least, contraction
        self.low = 0.0 if adjacency == "replace" else -1.0
        self.adjacency, self.unit = adjacency, ratio * size
        kind = rng.integers(3)
        at = rng.random(steps) if kind == 0 else (rng.random(steps) < [0.0, 0.5, 1.0][kind])
        self.factors = contraction - (contraction - least) * at
        self.added = np.where(
            rng.random((examples + 1, steps)) < 0.8,
            rng.choice([self.low, 1.0], (examples + 1, steps)),
            rng.uniform(self.low, 1.0, (examples + 1, steps)),
        )
        if rng.random() < 0.5:  # the differing example always pulls the same way
            self.added[0], self.added[-1] = 1.0, self.low

    def changed(self, rng):
        """A neighbouring instance."""
        other = object.__new__(Instance)
        other.__dict__.update(self.__dict__)
        other.factors, other.added = self.factors.copy(), self.added.copy()
        size = 10.0 ** rng.uniform(-2, 0) * rng.standard_normal()
        step = rng.integers(self.factors.size)
        if rng.random() < 0.4:
            moved = self.factors[step] + size * (self.contraction - self.least)
            other.factors[step] = np.clip(moved, self.least, self.contraction)
        else:
            example = rng.integers(len(self.added))
            moved = self.added[example, step] + 2.0 * size
            other.added[example, step] = np.clip(moved, self.low, 1.0)
        return other

    def deltas(self):
        ours, theirs = self.unit * self.added[:-1], self.unit * self.added[:-1]
        theirs = theirs.copy()
        theirs[0] = 0.0 if self.adjacency == "zero-out" else self.unit * self.added[-1]
        first, spread = means(self.seen, self.factors, ours)
        second, _ = means(self.seen, self.factors, theirs)
        return np.array(hockey_sticks(first, second, spread, EPSILONS))


def drawn(rng):
    """A description, its short steps and the arguments of its instances."""
    rule = [li.ShuffledOnce, li.ShuffledEachEpoch][rng.integers(2)]
    shape = SHAPES[rng.integers(len(SHAPES))]
    least = rng.uniform(0.1, 0.95)
    contraction = rng.uniform(max(least, 0.7), 1.0)
    ratio, adjacency = rng.choice([0.5, 1.0, 2.0]), str(rng.choice(["replace", "zero-out"]))
    run = described(rule, shape, ratio, least, contraction, adjacency)
    return run, constant_changes(run, least), (rule, shape, ratio, least, contraction, adjacency)


def transported(run, short_steps):
    """delta by transport, at every epsilon."""
    profile = module._quick(run, module._parts(run, short_steps), short_steps.failure)
    return np.array([profile.delta(epsilon) for epsilon in EPSILONS])


def jointly_transported(rng, run, short_steps):
    """delta by some joint transport, at every epsilon: the average over earlier epochs."""
    parts = module._parts(run, short_steps)
    total = parts[0][1].weights().size
    late = int(rng.integers(1, total))
    hidden, noise = int(rng.integers(1, late + 1)), float(rng.choice([0.3, 0.7, 0.95]))
    first, multiplier = int(rng.integers(1, 6)), float(rng.choice([1.0, 2.0, 4.0, 9.0]))
    deltas = np.zeros(len(EPSILONS))
    for at, epsilon in enumerate(EPSILONS):
        for factors in sensitivity_factors(run):
            one_way = 0.0
            for share, positions in parts:
                laws = positions.joint_laws(late, hidden, noise, *factors, first)
                retained = laws.retained_shares(epsilon, multiplier)
                one_way += share * JointTransport(laws, retained, epsilon, ROUGH).delta(epsilon)
            deltas[at] = max(deltas[at], one_way)
    return deltas


def attack(rng, certified, arguments, climbs):
    """The largest exact delta over the certified one, by climbing from a random instance."""

    def score(instance):
        exact = instance.deltas()
        return float(np.max(np.where(exact > 1e-9, exact / certified, 0.0)))

    best = max((Instance(rng, *arguments) for _ in range(3)), key=score)
    worst = score(best)
    for _ in range(climbs):
        other = best.changed(rng)
        found = score(other)
        if found > worst:
            best, worst = other, found
    return worst


def worst_of(count, seed, bound, climbs=4):
    rng, worst, gained = np.random.default_rng(seed), 0.0, 0
    for _ in range(count):
        run, short_steps, arguments = drawn(rng)
        state = rng.bit_generator.state
        certified = bound(rng, run, short_steps)
        rng.bit_generator.state = state  # the same choices again
        later = bound(rng, run, replace(short_steps, curvature=1.0))
        gained += bool(np.any(certified < 0.98 * later))
        worst = max(worst, attack(rng, certified, arguments, climbs))
    return worst, gained


def by_transport(rng, run, short_steps):
    return transported(run, short_steps)


class TestSoundness:
    def test_no_instance_leaks_more_than_transport_says(self):
        worst, gained = worst_of(40, 0, by_transport)
        assert worst <= 1.0 + 1e-9
        assert gained > 12  # else earlier noise was not used

    def test_no_instance_leaks_more_than_joint_transport_says(self):
        worst, gained = worst_of(25, 1, jointly_transported)
        assert worst <= 1.0 + 1e-9
        assert gained > 8

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(2, 10))
    def test_no_instance_leaks_more_in_a_long_search(self, seed):
        assert worst_of(150, seed, by_transport, 60)[0] <= 1.0 + 1e-9
        assert worst_of(60, seed, jointly_transported, 60)[0] <= 1.0 + 1e-9

    def test_without_the_visit_the_claim_is_false(self, monkeypatch):
        """The exchanged example visits the receiving position, which must count."""
        run = described(li.ShuffledEachEpoch, (2, 1, 2), 1.0, 0.28, 0.29, "replace")
        instance = Instance(
            np.random.default_rng(0), li.ShuffledEachEpoch, (2, 1, 2), 1.0, 0.28, 0.29, "replace"
        )
        # The other example marks the early position.
        instance.factors = np.array([0.29, 0.283])
        instance.added = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
        exact = instance.deltas()
        short_steps = constant_changes(run, 0.28)
        assert np.all(exact <= transported(run, short_steps))
        true = PositionsEachEpoch.transport_mus

        def without_visit(self, count, receiving, late):
            return true(self, count, 0.0, late)

        monkeypatch.setattr(PositionsEachEpoch, "transport_mus", without_visit)
        assert np.any(exact > transported(run, short_steps))


def hidden_early(tail, before, kept, least, contraction, reserved=0, share=0.0):
    """(tail, sensitivity) of the parts of a participation, so many of them in steps before it.

    `kept` is what is left of `least`, the least factor of a step, after the drift of gradients.
    """
    centre, half = (contraction + least) / 2, (contraction - least) / 2
    leak = least - kept
    since = sum(
        (1.0 - share * (i < reserved)) * contraction ** (2.0 * (i - tail)) for i in range(tail + 1)
    )
    whole = sum(kept ** (2 * i) for i in range(1, before + 1)) + since
    ages = range(before, -1, -1)
    parts = [sum(kept ** (2 * k - i) for k in range(i, before + 1)) / whole for i in ages]
    theta, earlier, result = [*parts[:-1], 1.0], 0.0, []
    for one, age in zip(theta, ages, strict=True):
        result.append((tail + age, abs(one - centre * earlier) + (half + leak) * earlier))
        earlier = one
    return result


def engine_mu(participations, steps, contraction, reserved=0, share=0.0):
    """mu by optimal shifts of all steps; participations are (tail, sensitivity)."""
    sensitivity, noise = np.zeros(steps), np.ones(steps)
    for tail, size in participations:
        sensitivity[steps - 1 - tail] += size
    noise[steps - reserved :] = math.sqrt(1.0 - share)
    return optimal_shifts(contraction=contraction, sensitivity=sensitivity, noise=noise).mu


class TestPlans:
    """Every mu is that of some plan: parts of a participation in steps before it, and shifts."""

    STEPS, LENGTH, LEAST, CONTRACTION = 18, 6, 0.8, 0.95

    def positions(self, rule, early=True):
        shape = (self.LENGTH, 1, self.STEPS)
        run = described(rule, shape, 1.0, self.LEAST, self.CONTRACTION, "replace")
        return positions_of(run, constant_changes(run, self.LEAST) if early else None)

    def least(self, others, tail, times, reserved=0, share=0.0):
        """The least mu of plans that keep some steps before the last participation for it."""
        room = min((one for one, _ in others), default=self.STEPS) - tail - 1
        found = []
        for before in range(room + 1):
            steps = self.LEAST, self.LEAST, self.CONTRACTION
            parts = hidden_early(tail, before, *steps, reserved, share)
            every = others + [(at, times * size) for at, size in parts]
            found.append(engine_mu(every, self.STEPS, self.CONTRACTION, reserved, share))
        return min(found)

    @pytest.mark.parametrize("receiving, late", [(1.0, 1.0), (1.0, 2.0), (2.0, 1.0)])
    def test_if_drawn_each_epoch(self, receiving, late):
        positions = self.positions(li.ShuffledEachEpoch)
        ends = [(2 * self.LENGTH, 1.0), (self.LENGTH, 1.0)]
        later = self.positions(li.ShuffledEachEpoch, early=False)
        for tail in range(self.LENGTH):
            assert self.least(ends, tail, 1.0) <= positions.mus()[tail] * (1 + 1e-9)
            assert positions.mus()[tail] <= later.mus()[tail] * (1 + 1e-12)
        assert positions.mus()[0] < 0.85 * later.mus()[0]
        for count in (1, 2, 4):
            mus = positions.transport_mus(count, receiving, late)
            for tail in range(count):
                others = [*ends, (count, receiving)]
                assert self.least(others, tail, late) <= mus[tail] * (1 + 1e-9)

    @pytest.mark.parametrize("receiving, late", [(1.0, 1.0), (1.0, 2.0), (2.0, 1.0)])
    @pytest.mark.parametrize("rule", [li.ShuffledOnce, li.ShuffledEachEpoch])
    def test_of_receiving_positions_beside_windows(self, rule, receiving, late):
        positions = self.positions(rule)
        once = rule is li.ShuffledOnce
        for count, hidden, first in ((2, 1, 1), (3, 2, 4), (4, 4, 3)):
            laws = positions.joint_laws(count, hidden, 0.6, receiving, late, first)
            steps = int(positions.window_edges(np.arange(hidden), first, count)[-1])
            assert steps <= count
            for number, tail in enumerate(range(count, self.LENGTH)):
                own = [((j + 1) * self.LENGTH + tail * once, 1.0) for j in (1, 0)]
                found = self.least(own, tail, 1.0, steps, 0.6)
                assert found <= laws.receiving_mus[number] * (1 + 1e-9)
                size = late + receiving if once else 1.0
                others = [((j + 1) * self.LENGTH, size) for j in (1, 0)]
                found = self.least(others, tail, receiving, steps, 0.6)
                assert found <= laws.residual_mus[number] * (1 + 1e-9)

    @pytest.mark.parametrize("late", [1.0, 2.0])
    @pytest.mark.parametrize("outputs", [1, 10])
    def test_windows_lose_what_gradients_drift(self, late, outputs):
        """l' = 1 - eta M - c kappa; the radius has the shifts of windows and of all others."""
        run = readme_run(li.ShuffledEachEpoch, "zero-out", outputs=outputs)
        positions = positions_of(run, module._exchanged(run))
        windows = positions.windows(np.array([0, 8]), np.arange(5), 0.9, late, beside=0.7)
        q = math.sqrt(2.0 * math.log(run.steps / positions.failure))
        radius = math.sqrt(2 * outputs) + q + late + 0.7
        kappa = 0.5 * 0.25 / (512 * late) * radius
        kept = 1.0 - 0.5 * 0.26 - (1.0 - 0.5 * 0.01) * kappa
        assert kept - 1e-9 <= 1.0 - windows.lost <= kept


def readme_run(rule, adjacency, outputs=1, smoothness=0.26, step_size=0.5, **changes):
    run = li.TrainingRun.from_dp_sgd(
        batches=rule(examples=50_000, batch_size=512),
        clip_norm=1.0,
        noise_multiplier=1.0,
        steps=2_910,
        step_size=step_size,
        adjacency=adjacency,
        loss=li.Loss(smoothness=smoothness, regulariser=0.01, lipschitz=1.0, outputs=outputs),
    )
    return run.replace(**changes) if changes else run


class TestAccounts:
    @pytest.mark.parametrize(
        "rule, adjacency, most",
        [
            (li.ShuffledEachEpoch, "zero-out", 1.00),
            (li.ShuffledEachEpoch, "replace", 2.01),
            (li.ShuffledOnce, "zero-out", 1.15),
            (li.ShuffledOnce, "replace", 2.38),
        ],
    )
    def test_short_steps_hide_positions(self, rule, adjacency, most):
        report = li.account(readme_run(rule, adjacency))
        assert report.lower.epsilon(1e-5) < report.epsilon(1e-5) <= most

    def test_it_is_no_gaussian_guarantee(self):
        profile = module.early_transport(readme_run(li.ShuffledOnce, "zero-out"))
        assert math.isinf(profile.gdp())
        assert math.isinf(profile.renyi(2.0))
        assert profile.usual.delta(20.0) >= 1e-15
        assert pickle.loads(pickle.dumps(profile)).epsilon(1e-5) == profile.epsilon(1e-5)

    def test_two_participations_hidden_early_may_fail(self):
        """In joint transport the one at the receiving position, and the late one."""
        run = readme_run(li.ShuffledOnce, "replace")
        search = module.early_transport(run).usual._directions[0]
        assert search(1.0, 0.01).failure >= 2.0 * FAILURE + ulps(16)  # of rounded probabilities

    def test_small_deltas_are_those_of_later_shifts(self):
        run = readme_run(li.ShuffledOnce, "zero-out")
        report = li.account(run, bounds=[EARLY, JOINT])
        assert report.all[EARLY].epsilon(1e-17) <= report.all[JOINT].epsilon(1e-17) < math.inf
        assert report.all[EARLY].epsilon(1e-5) < 0.6 * report.all[JOINT].epsilon(1e-5)

    @pytest.mark.parametrize("rule", [li.ShuffledOnce, li.ShuffledEachEpoch])
    def test_unknown_outputs_long_steps_and_balls_change_nothing(self, rule):
        unknown = readme_run(rule, "replace", outputs=None)
        long = readme_run(rule, "replace", step_size=4.0)
        ball = readme_run(rule, "replace", domain=li.Ball(diameter=100.0))
        for run in (unknown, long, ball):
            assert module.EARLY_TRANSPORT.unmet(run)
            assert equal_short_steps(run) is None
        known = li.account(readme_run(rule, "replace"), bounds=JOINT).epsilon(1e-5)
        assert li.account(unknown).epsilon(1e-5) == known

    def test_more_dimensions_cost_a_little(self):
        epsilons = [
            li.account(readme_run(li.ShuffledOnce, "zero-out", outputs=outputs)).epsilon(1e-5)
            for outputs in (1, 100, 10_000)
        ]
        assert epsilons[0] <= epsilons[1] <= epsilons[2] < 1.3 * epsilons[0]

    @pytest.mark.slow
    def test_two_examples_of_a_person_cost_more_than_twice_one(self):
        run = readme_run(li.ShuffledOnce, "zero-out")
        one, two = (
            li.account(run.replace(examples_per_person=size)).epsilon(1e-5) for size in (1, 2)
        )
        assert 2.0 * one < two < 6.0 * one


class TestStages:
    """The stage with early shifts replaces the others only where it is certainly better."""

    def settled(self, outputs, rule, adjacency, loss, *, size=100, steps=1_001, ratio=0.18):
        return li.TrainingRun(
            loss=li.Loss(outputs=outputs, **loss),
            sensitivity=1.0,
            batches=rule(100 * size, size),
            steps=steps,
            step_size=1.0,
            noise_std=1.0 / (size * ratio),
            adjacency=adjacency,
        )

    @pytest.mark.parametrize(
        "case",
        [  # curvature of the losses that early shifts of a left-out example do not use
            (li.ShuffledOnce, "zero-out", {"smoothness": 0.37, "strong_convexity": 0.17}),
            (li.ShuffledOnce, "replace", {"smoothness": 0.9, "regulariser": 0.1}),  # no gain
        ],
    )
    def test_known_outputs_never_raise_epsilon(self, case):
        known, unknown = (
            li.account(self.settled(outputs, *case)).epsilon(1e-5) for outputs in (1, None)
        )
        assert known <= unknown * (1.0 + 1e-9)

    def test_a_left_out_example_takes_the_curvature_of_its_loss_along(self):
        """Runs without it are compared with each other, and share the penalty alone."""
        curved = {"smoothness": 0.26, "regulariser": 0.01, "strong_convexity": 0.05}
        shared = {"smoothness": 0.26, "regulariser": 0.01}
        case = li.ShuffledOnce, "zero-out"
        of_curved, of_shared = (
            module.early_transport(self.settled(1, *case, loss)).epsilon(1e-5)
            for loss in (curved, shared)
        )
        assert of_curved == of_shared
        replaced = module.early_transport(self.settled(1, case[0], "replace", curved))
        assert replaced.epsilon(1e-5) < 0.9 * module.early_transport(
            self.settled(1, case[0], "replace", shared)
        ).epsilon(1e-5)

    def test_laws_some_of_which_are_beyond_transport(self):
        """Little noise: mus of earlier epochs are below and above the limit of transport."""
        run = readme_run(li.ShuffledEachEpoch, "replace", step_size=0.05, smoothness=0.35)
        run = run.replace(
            noise_std=0.018 / 512, loss=replace(run.loss, regulariser=0.1, strong_convexity=0.1)
        )
        largest = [one.mus().max() for _, one in module._parts(run, module._exchanged(run))]
        assert min(largest) < module.LARGEST_MU < max(largest)
        report = li.account(run)
        assert report.lower.epsilon(1e-5) <= report.epsilon(1e-5) < math.inf

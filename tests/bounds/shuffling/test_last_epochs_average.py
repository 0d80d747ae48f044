"""Runs that are shuffled every epoch and may expand: positions in the last epochs, averaged."""

import math
from itertools import pairwise, permutations, product

import numpy as np
import pytest

import lastiterate as li
from lastiterate.audit import exact
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.bounds.fixed_order import nonconvex as last_epochs
from lastiterate.bounds.fixed_order.nonconvex import LastEpochs
from lastiterate.lower_bounds.line import PiecewiseLinear
from lastiterate.lower_bounds.participation import participation
from lastiterate.profile.gaussian import GaussianMixtureProfile
from tests.reference.grid import exact_pair
from tests.reference.instances import Instance
from tests.reference.instances import PiecewiseLinear as Map
from tests.reference.instances import Step as ReferenceStep
from tests.slow import slow_if

AVERAGE = RECORDS["random-order/shuffled/average-non-convex"]
EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0)
RUN = li.TrainingRun(
    loss=li.Loss(smoothness=1.0, convex=False, lipschitz=2.0),
    sensitivity=4.0,
    batches=li.ShuffledEachEpoch(12, 4),
    steps=1_200,
    step_size=0.1,
    noise_std=10.0,
    domain=li.Ball(1.0),
)


class Line:
    """Losses on the line that a run admits: all others' gradients, and two of one example."""

    def __init__(self, run, rng, kind):
        self.run = run
        half = run.domain.diameter / 2 if isinstance(run.domain, li.Ball) else 3.0
        self.domain = (-half, half) if isinstance(run.domain, li.Ball) else None
        self.knots = np.array([-half, -half / 3, half / 3, half])
        smooth, bound = run.loss.smoothness, run.gradient_bound
        self.others = self._gradient(rng, smooth, bound, kind)
        most = run.sensitivity
        if kind == "steep":  # the example pulls one way, or the other
            size = min(most / 2, bound)
            self.own = (np.full(4, -size), np.full(4, size))
        else:
            first = self._gradient(rng, smooth, bound, kind)
            second = self._gradient(rng, smooth, bound, kind)
            self.own = (first, np.clip(second, first - most, first + most))
        if run.adjacency == "zero-out":
            self.own = (np.clip(self.own[0], -most, most), np.zeros(4))

    def _gradient(self, rng, smooth, bound, kind):
        slopes = rng.choice([-smooth, smooth], 3) if kind == "wild" else np.full(3, -smooth)
        values = np.append(0.0, np.cumsum(slopes * np.diff(self.knots)))
        values -= np.interp(0.0, self.knots, values)
        return np.clip(values, -bound, bound)

    def step_map(self, own=None):
        size, eta = self.run.batches.batch_size, self.run.step_size
        gradient = self.others if own is None else ((size - 1) * self.others + own) / size
        return self.knots - eta * gradient

    def pair(self, start):
        kept = [
            PiecewiseLinear(tuple(self.knots), tuple(self.step_map(own)), 1.0, 1.0)
            for own in (None, *self.own)
        ]
        noise = self.run.step_size * self.run.noise_std
        step = exact.Step(kept[0], (kept[1], kept[2]), noise, self.domain)
        return exact.Pair(start, [step] * self.run.steps, participation(self.run))

    def instance(self, start, seen):
        maps = [Map(tuple(self.knots), tuple(self.step_map(own)), 1.0, 1.0)
                for own in (None, *self.own)]  # fmt: skip
        noise = self.run.step_size * self.run.noise_std
        steps = [
            ReferenceStep(maps[1 if k in seen else 0], maps[2 if k in seen else 0], noise,
                          self.domain)
            for k in range(self.run.steps)
        ]  # fmt: skip
        return Instance(start, tuple(steps))


def some_run(rng):
    size, length = int(rng.integers(1, 4)), int(rng.integers(2, 5))
    step_size = float(rng.choice([0.3, 1.0]))
    arriving = 10 ** rng.uniform(-0.7, 0.3)  # in noise
    bound = arriving * size / (2 * step_size)
    adjacency = str(rng.choice(["replace", "zero-out"]))
    left_over = int(rng.integers(0, size))
    return li.TrainingRun(
        loss=li.Loss(
            smoothness=float(rng.uniform(0.05, 0.8)) / step_size, convex=False, lipschitz=bound
        ),
        sensitivity=bound * (2.0 if adjacency == "replace" else 1.0),
        batches=li.ShuffledEachEpoch(size * length + left_over, size),
        steps=int(rng.integers(1, 4 * length)),
        step_size=step_size,
        noise_std=1.0 / step_size,
        domain=li.Ball(10 ** rng.uniform(-0.5, 0.7)) if rng.random() < 0.7 else li.Unbounded(),
        adjacency=adjacency,
    )


class TestSoundness:
    @pytest.mark.parametrize("seed", slow_if(bool, range(26)))
    def test_exact_instances(self, seed):
        """24 instances a seed; whatever they leak, at every epsilon, the bound covers."""
        rng = np.random.default_rng(seed)
        ratios = []
        for number in range(24):
            run = some_run(rng)
            line = Line(run, rng, ("steep", "wild")[number % 2])
            half = line.knots[-1]
            start = float(rng.choice([0.0, rng.uniform(-half, half)]))
            curve, bound = exact.curve(line.pair(start)), AVERAGE.profile(run)
            for epsilon in EPSILONS:
                shown, certified = curve.delta(epsilon).lower, bound.delta(epsilon)
                assert shown <= certified, (run, epsilon, shown, certified)
                ratios.append(shown / certified if certified > 1e-6 else 0.0)
        assert max(ratios) > 0.5  # else the instances would say nothing

    @pytest.mark.parametrize("seed", range(3))
    def test_every_order_written_out(self, seed):
        rng = np.random.default_rng(100 + seed)
        run = RUN.replace(steps=6, noise_std=1.0 / 0.1, domain=li.Ball(0.6),
                          sensitivity=4.0, batches=li.ShuffledEachEpoch(6, 2))  # fmt: skip
        line = Line(run, rng, "steep")
        orders = list(product(range(3), range(3, 6)))
        mixture = [(1 / len(orders), line.instance(0.1 * seed, set(seen))) for seen in orders]
        pair, bound = exact_pair(mixture), AVERAGE.profile(run)
        for epsilon in EPSILONS:
            assert pair.delta(epsilon) <= bound.delta(epsilon) + 1e-9


def every_order(examples, size, steps):
    """The steps that see example 0, for each sequence of permutations, all alike probable."""
    length = examples // size
    epochs = -(-steps // length)
    one = [order.index(0) // size for order in permutations(range(examples))]
    for positions in product(one, repeat=epochs):
        yield [k * length + j for k, j in enumerate(positions) if j < length]


def averaged(run):
    """delta at every epsilon, of all orders, by the fixed-order bound for each."""
    found = np.zeros(len(EPSILONS))
    rule, known = run.batches, {}
    orders = list(every_order(rule.examples, rule.batch_size, run.steps))
    for order in orders:
        seen = tuple(step + 1 for step in order if step < run.steps)
        if seen not in known:
            fixed = run.replace(batches=li.FixedOrder(rule.examples, rule.batch_size, seen))
            profile = li.account(fixed, bounds="fixed-order/non-convex")
            known[seen] = [profile.delta(e) for e in EPSILONS] if seen else [0.0] * len(EPSILONS)
        found += known[seen]
    return found / len(orders)


SMALL = [
    RUN.replace(steps=9, batches=li.ShuffledEachEpoch(3, 1), noise_std=5.0),
    RUN.replace(steps=7, batches=li.ShuffledEachEpoch(4, 2), noise_std=2.0),  # cut short
    RUN.replace(steps=5, batches=li.ShuffledEachEpoch(3, 1), noise_std=2.0, domain=li.Unbounded()),
    RUN.replace(steps=6, batches=li.ShuffledEachEpoch(3, 1), release_noise_std=0.3),
]


class TestTightness:
    @pytest.mark.parametrize("run", SMALL)
    def test_is_the_average_over_all_orders(self, run):
        found = [AVERAGE.profile(run).delta(epsilon) for epsilon in EPSILONS]
        assert found == pytest.approx(averaged(run), rel=1e-6, abs=1e-12)

    def test_those_left_over_are_charged_as_if_they_were_not(self):
        run = RUN.replace(steps=4, batches=li.ShuffledEachEpoch(5, 2), noise_std=2.0)
        found = np.array([AVERAGE.profile(run).delta(epsilon) for epsilon in EPSILONS])
        exactly = averaged(run)
        assert np.all(found >= exactly * (1 - 1e-9))
        assert np.all(found <= 1.6 * exactly + 1e-12)

    def test_four_hundred_epochs(self):
        assert AVERAGE.profile(RUN).epsilon(1e-5) <= 2.26
        longer = AVERAGE.profile(RUN.replace(steps=30_000)).epsilon(1e-5)
        assert longer == pytest.approx(AVERAGE.profile(RUN).epsilon(1e-5), rel=1e-9)

    def test_hoelder_gradients(self):
        loss = li.Loss(convex=False, lipschitz=2.0, holder=(0.5, 0.5))
        run = RUN.replace(loss=loss)
        assert AVERAGE.profile(run).epsilon(1e-5) < 3.0
        worst = li.account(run, bounds="fixed-order/non-convex").epsilon(1e-5)
        assert AVERAGE.profile(run).epsilon(1e-5) < worst


class TestGroups:
    @pytest.mark.parametrize("domain", [li.Ball(1.0), li.Unbounded()])
    @pytest.mark.parametrize("smoothness", [0.3, 3.0])
    def test_fewer_choices_never_promise_more(self, monkeypatch, domain, smoothness):
        """Groups are charged at their last step: where steps expand, with the growth until then."""
        run = RUN.replace(
            loss=li.Loss(smoothness=smoothness, convex=False),
            batches=li.ShuffledEachEpoch(5, 1),
            steps=15,
            noise_std=3.0,
            domain=domain,
        )
        deltas = []
        for choices in (4_096, 25, 4, 1):
            monkeypatch.setattr(last_epochs, "_SIZES", ((choices, 64),))
            profile = AVERAGE.profile(run)
            deltas.append([profile.delta(epsilon) for epsilon in EPSILONS])
        for more, fewer in pairwise(deltas):
            assert np.all(np.array(more) <= np.array(fewer) * (1 + 1e-6))

    def test_many_batches_an_epoch(self):
        run = RUN.replace(batches=li.ShuffledEachEpoch(4_000, 4), steps=200_000)
        average, worst = AVERAGE.profile(run), li.account(run, bounds="fixed-order/non-convex")
        # With one participation in a thousand steps hardly anything but the diameter is seen.
        assert average.epsilon(1e-5) < worst.epsilon(1e-5)
        idle = RUN.replace(sensitivity=1e-9, batches=li.FixedOrder(4_000, 4, [1]), steps=2_000)
        least = li.account(idle, bounds="fixed-order/non-convex")
        assert math.isfinite(average.epsilon(1e-5))
        assert least.epsilon(1e-5) < average.epsilon(1e-5)

    def test_windows_that_begin_later_start_from_more(self):
        """Fewer epochs, from the farthest or the diameter, never promise more."""
        run = RUN.replace(steps=18, noise_std=4.0)
        deltas = []
        for steps in (64, 9, 3):
            solved = LastEpochs(run, last_epochs.last_epochs(run, 4_096, steps))
            mixture = GaussianMixtureProfile(solved.weights, solved.mus)
            deltas.append([mixture.delta(epsilon) for epsilon in EPSILONS])
        for longer, shorter in pairwise(deltas):
            assert np.all(np.array(longer) <= np.array(shorter) * (1 + 1e-6))


class TestRefusals:
    def test_a_published_order(self):
        run = RUN.replace(releases="last-iterate-and-order")
        assert AVERAGE.unmet(run)
        worst = li.account(run)
        assert worst.bound == "fixed-order/non-convex"
        assert AVERAGE.profile(RUN).epsilon(1e-5) < worst.epsilon(1e-5) < 2.595

    def test_nothing_known(self):
        assert AVERAGE.unmet(RUN.replace(loss=li.Loss(convex=False)))

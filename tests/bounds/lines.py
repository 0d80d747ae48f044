"""Losses on the line that a run of expanding steps admits, solved exactly."""

import numpy as np

import lastiterate as li
from lastiterate.audit import exact
from lastiterate.lower_bounds.line import PiecewiseLinear
from lastiterate.lower_bounds.participation import participation
from tests.bounds.runs import described
from tests.reference import instances

EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0)
RUN = li.TrainingRun(
    loss=li.Loss(smoothness=1.0, convex=False, lipschitz=2.0), sensitivity=4.0,
    batches=li.ShuffledEachEpoch(12, 4), steps=1_200, step_size=0.1, noise_std=10.0,
    domain=li.Ball(1.0),
)  # fmt: skip


def some_run(rng, rule, *, sizes, epochs, **changes):
    """A run of steps that expand; arrivals are about as large as the noise of a step."""
    size, length = int(rng.integers(*sizes)), int(rng.integers(2, 5))
    bound = 10 ** rng.uniform(-0.7, 0.3) * size / 2
    adjacency = str(rng.choice(["replace", "zero-out"]))
    return described(
        rule(size * length + (int(rng.integers(0, size)) if rule.ordered else 0), size),
        int(rng.integers(1, epochs * length)),
        loss=li.Loss(smoothness=float(rng.uniform(0.05, 0.8)), convex=False, lipschitz=bound),
        sensitivity=bound * (2.0 if adjacency == "replace" else 1.0),
        domain=li.Ball(10 ** rng.uniform(-0.5, 0.7)),
        adjacency=adjacency,
        **changes,
    )


class Line:
    """All others' gradients, and two of one example."""

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
            first, second = (self._gradient(rng, smooth, bound, kind) for _ in range(2))
            self.own = (first, np.clip(second, first - most, first + most))
        if run.adjacency == "zero-out":
            self.own = (np.clip(self.own[0], -most, most), np.zeros(4))

    def _gradient(self, rng, smooth, bound, kind):
        slopes = rng.choice([-smooth, smooth], 3) if kind == "wild" else np.full(3, -smooth)
        values = np.append(0.0, np.cumsum(slopes * np.diff(self.knots)))
        values -= np.interp(0.0, self.knots, values)
        return np.clip(values, -bound, bound)

    def _maps(self, kind):
        """A step without the example, and with it in either world."""
        size, eta, knots = self.run.batches.batch_size, self.run.step_size, tuple(self.knots)
        every = [self.others, *(((size - 1) * self.others + own) / size for own in self.own)]
        return [kind(knots, tuple(self.knots - eta * one), 1.0, 1.0) for one in every]

    def pair(self, start):
        kept, noise = self._maps(PiecewiseLinear), self.run.step_size * self.run.noise_std
        step = exact.Step(kept[0], (kept[1], kept[2]), noise, self.domain)
        steps = [step] * self.run.steps
        return exact.Pair(start, steps, participation(self.run), self.run.release_noise_std)

    def instance(self, start, seen):
        maps = self._maps(instances.PiecewiseLinear)
        noise = self.run.step_size * self.run.noise_std
        without = instances.Step(maps[0], maps[0], noise, self.domain)
        there = instances.Step(maps[1], maps[2], noise, self.domain)
        steps = (there if k in seen else without for k in range(self.run.steps))
        return instances.Instance(start, tuple(steps))


def largest_share(bound, runs, rng, changed=lambda line: None):
    """Of what is certified for each run, as leaks from some line; asserts that none leaks more."""
    shares = []
    for number, run in enumerate(runs):
        line = Line(run, rng, ("steep", "wild")[number % 2])
        changed(line)
        start = float(rng.choice([0.0, rng.uniform(-1, 1)])) * line.knots[-1]
        curve, profile = exact.curve(line.pair(start)), bound.profile(run)
        for epsilon in EPSILONS:
            shown, certified = curve.delta(epsilon).lower, profile.delta(epsilon)
            assert shown <= certified, (run, epsilon, shown, certified)
            shares.append(shown / certified if certified > 1e-6 else 0.0)
    return max(shares)


def of_orders(run, orders):
    """delta by epsilon: the mean over (chance, steps) of what each fixed order is certified."""
    found = np.zeros(len(EPSILONS))
    for chance, steps in orders:
        if len(steps):
            batches = li.FixedOrder(run.batches.examples, run.batches.batch_size, steps)
            profile = li.account(run.replace(batches=batches), bounds="fixed-order/non-convex")
            found += [chance * profile.delta(epsilon) for epsilon in EPSILONS]
    return found

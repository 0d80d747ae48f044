"""Mixtures over draws in short steps: never below the truth, all draws enumerated."""

from dataclasses import replace

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds.balls_and_bins import mixtures as module
from lastiterate.bounds.balls_and_bins.divergence import MixtureDivergence, MixtureGrid, MixturePair
from lastiterate.bounds.balls_and_bins.mixtures import pairs_of
from lastiterate.bounds.shuffling.positions import EndWindows
from tests.bounds.shuffling.test_balls_and_bins import RULES
from tests.bounds.shuffling.test_mixture_divergence import seen
from tests.reference.all_orders import hockey_sticks
from tests.reference.all_picks import every_pick
from tests.reference.all_picks import hockey_sticks as hockey_sticks_of_several_variances
from tests.reference.kinked_line import hockey_stick, last_densities

EPSILONS = (0.1, 0.4, 0.9, 1.6, 2.6)
SHAPES = [(2, 2), (3, 3), (4, 4), (2, 4), (2, 5), (3, 6), (5, 5), (3, 4), (2, 8), (6, 6)]
ROUGH = MixtureGrid(cells=300, step=0.02, spacing=0.4)


def described(rule, shape, ratio, least, contraction, adjacency):
    """Batches of one; even with all examples in it a step keeps `least` of earlier noise."""
    batches, steps = shape
    penalty = 1.0 - contraction
    own = (1.0 - least - penalty) / batches
    return li.TrainingRun(
        loss=li.Loss(smoothness=own + penalty, regulariser=penalty, lipschitz=ratio, outputs=1),
        sensitivity=ratio if adjacency == "zero-out" else 2.0 * ratio,
        batches=rule(batches, 1),
        steps=steps,
        step_size=1.0,
        noise_std=1.0,
        adjacency=adjacency,
    )


def limited(run, drift=None):
    """Batches of any size; an example changes a step by the same wherever it is, if drift is 0."""
    (one, *_) = module.limited_batches(run)
    if drift is None:
        return one
    short_steps = replace(one.short_steps, drift=max(drift, 1e-300))
    factors = module.earlier_epoch_factors(shuffled(run), short_steps.gap)
    parts = [
        (share, module.positions_of(shuffled(run), short_steps, factor))
        for share, factor in factors
    ]
    return replace(one, parts=parts, short_steps=short_steps)


def shuffled(run):
    """The shuffled run whose positions are those that are drawn, with one gradient's change."""
    rule, _ = module.counterpart_of(run)
    loss = replace(run.loss, strong_convexity=run.loss.regulariser)
    kept = run.replace(adjacency="zero-out", sensitivity=run.loss.lipschitz)
    return kept.replace(loss=loss, batches=rule(run.batches.examples, 1))


def without_windows(rng, run, one):
    """delta by the mixture over positions, at every epsilon."""
    return module.bounded(run, one).without_windows.deltas(np.array(EPSILONS))


def with_windows(rng, run, one):
    """delta by some windows, at every epsilon, the larger of both ways round."""
    mixtures = module.EarlyMixtures(one.parts, 1.0)
    hidden = int(rng.integers(1, one.parts[0][1].weights().size))
    noise, first = float(rng.choice([0.3, 0.7, 0.95])), int(rng.integers(0, 6))
    mixture = mixtures.mixture(hidden, noise, first)
    return np.array(
        [
            max(
                MixtureDivergence(mixture, pair, epsilon, ROUGH).delta(epsilon)
                for pair in pairs_of(run)
            )
            for epsilon in EPSILONS
        ]
    )


class Instance:
    """Given the draws of others: factors of steps, and what the example adds if it is there."""

    def __init__(self, rng, rule, shape, ratio, least, contraction, adjacency):
        self.rows = np.array(list(seen(rule, shape)))
        steps = shape[1]
        self.least, self.contraction, self.ratio = least, contraction, ratio
        self.left_out = adjacency == "zero-out"
        kind = rng.integers(4)
        at = rng.random(steps) if kind == 0 else rng.random(steps) < [0.5, 1.0, 0.0][kind - 1]
        self.factors = contraction - (contraction - least) * at
        self.added = rng.choice([-1.0, 1.0], (2, steps))
        if rng.random() < 0.6:  # always the same way
            self.added = np.ones((2, steps)) * [[1.0], [-1.0]]

    def changed(self, rng):
        """A neighbouring instance."""
        other = object.__new__(Instance)
        other.__dict__.update(self.__dict__)
        other.factors, other.added = self.factors.copy(), self.added.copy()
        size, step = (
            10.0 ** rng.uniform(-2, 0) * rng.standard_normal(),
            rng.integers(self.factors.size),
        )
        if rng.random() < 0.6:
            moved = self.factors[step] + size * (self.contraction - self.least)
            other.factors[step] = np.clip(moved, self.least, self.contraction)
        else:
            which = rng.integers(2)
            other.added[which, step] = np.clip(self.added[which, step] + 2.0 * size, -1.0, 1.0)
        return other

    def deltas(self):
        later = np.append(np.cumprod(self.factors[:0:-1])[::-1], 1.0)
        ours, theirs = (self.rows @ (later * self.ratio * one) for one in self.added)
        if self.left_out:
            theirs = np.zeros(ours.size)
        return np.array(hockey_sticks(ours, theirs, float(np.sqrt(later @ later)), EPSILONS))


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


def drawn(rng):
    rule, shape = RULES[rng.integers(2)], SHAPES[rng.integers(len(SHAPES))]
    least = rng.uniform(0.1, 0.95)
    contraction = rng.uniform(max(least, 0.7), 1.0)
    ratio, adjacency = rng.choice([0.4, 1.0, 2.0]), str(rng.choice(["replace", "zero-out"]))
    return rule, shape, ratio, least, contraction, adjacency


def worst_of(count, seed, bound, climbs=4):
    """The worst of random descriptions, and for how many earlier noise was of use."""
    rng, worst, gained = np.random.default_rng(seed), 0.0, 0
    for _ in range(count):
        arguments = drawn(rng)
        run = described(*arguments)
        one = limited(run, drift=0.0)
        state = rng.bit_generator.state
        certified = bound(rng, run, one)
        rng.bit_generator.state = state  # the same choices again
        steep = replace(one.short_steps, curvature=1.0)
        parts = [
            (share, module.positions_of(shuffled(run), steep, factor))
            for (share, _), factor in zip(one.parts, _factors(run, one), strict=True)
        ]
        later = bound(rng, run, replace(one, parts=parts, short_steps=steep))
        gained += bool(np.any(certified < 0.98 * later))
        worst = max(worst, attack(rng, certified, arguments, climbs))
    return worst, gained


def _factors(run, one):
    return [
        factor for _, factor in module.earlier_epoch_factors(shuffled(run), one.short_steps.gap)
    ]


class TestSoundness:
    """Exact laws on the line, all draws of the example enumerated."""

    def test_no_instance_leaks_more_than_the_mixture_says(self):
        worst, gained = worst_of(60, 0, without_windows)
        assert 0.8 < worst <= 1.0 + 1e-9
        assert gained > 20  # else earlier noise was not used

    def test_no_instance_leaks_more_than_windows_say(self):
        worst, gained = worst_of(60, 1, with_windows)
        assert 0.6 < worst <= 1.0 + 1e-9
        assert gained > 8

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(2, 10))
    def test_no_instance_leaks_more_in_a_long_search(self, seed):
        assert worst_of(150, seed, without_windows, 60)[0] <= 1.0 + 1e-9
        assert worst_of(100, seed, with_windows, 60)[0] <= 1.0 + 1e-9

    def test_a_participation_inside_its_window_costs_more_than_one_before_it(self, monkeypatch):
        """Steps keep next to nothing of earlier noise, and the last one shows its participation."""
        arguments = li.BallsAndBins, (6, 6), 2.0, 0.05, 0.06, "zero-out"
        run = described(*arguments)
        mixtures = module.EarlyMixtures(limited(run, drift=0.0).parts, 1.0)
        exact = Instance(np.random.default_rng(0), *arguments)
        exact.factors, exact.added = np.full(6, 0.05), np.ones((2, 6))
        pair = MixturePair.MIXTURE_FIRST

        def certified():
            mixture = mixtures.mixture(5, 0.95, 3)
            return [MixtureDivergence(mixture, pair, e, ROUGH).delta(e) for e in epsilons]

        epsilons = (2.0, 3.0, 4.0)
        monkeypatch.setattr(f"{__name__}.EPSILONS", epsilons)
        assert np.all(exact.deltas() <= certified())
        monkeypatch.setattr(
            EndWindows, "position_costs", lambda self, gap: self.costs(0.0)[self.window_of]
        )
        assert np.any(exact.deltas() > certified())

    def test_the_search_notices_more_noise_than_steps_keep(self, monkeypatch):
        true = module.limited_batches

        def flat(run):
            return [
                replace(one, short_steps=replace(one.short_steps, curvature=one.short_steps.gap))
                for one in true(run)
            ]

        monkeypatch.setattr(module, "limited_batches", flat)
        assert worst_of(60, 0, without_windows, 12)[0] > 1.05


class TestAllDraws:
    """All examples draw: others curve the steps that they are in, each of the same curvature."""

    def leaked(self, rng, run):
        rule, steps, most = run.batches, run.steps, run.loss.lipschitz
        own, penalty = run.loss.smoothness - run.loss.regulariser, run.loss.regulariser
        each = rule.resampling is li.BallsAndBinsEachEpoch.resampling
        members, weights = every_pick(rule.examples, 1, steps, each)
        curvatures = own * rng.choice([0.0, 1.0, rng.random()], steps)
        others = most * rng.uniform(-1.0, 1.0, (rule.examples - 1, steps))
        others *= rng.choice([0.0, 1.0])
        way = np.ones(steps) if rng.random() < 0.7 else rng.choice([-1.0, 1.0], steps)
        theirs = 0.0 * way if run.adjacency == "zero-out" else -way
        laws = [self.law(members, curvatures, penalty, others, most * one) for one in (way, theirs)]
        return hockey_sticks_of_several_variances(*laws, weights, EPSILONS)

    def law(self, members, curvatures, penalty, others, own):
        means, variances = np.zeros(len(members)), np.zeros(len(members))
        for step, curvature in enumerate(curvatures):
            there = members[:, step, 1:]
            factors = 1.0 - penalty - curvature * there.sum(axis=1)
            means = factors * means + there @ others[:, step] + members[:, step, 0] * own[step]
            variances = factors**2 * variances + 1.0
        return means, np.sqrt(variances)

    def test_no_instance_leaks_more(self):
        rng, worst = np.random.default_rng(5), 0.0
        shapes = [(2, 2), (3, 3), (2, 4), (3, 5), (4, 4), (2, 6)]
        for _ in range(30):
            rule, _, ratio, least, contraction, adjacency = drawn(rng)
            shape = shapes[rng.integers(len(shapes))]
            run = described(rule, shape, ratio, least, contraction, adjacency)
            one = limited(run, drift=0.0)
            bounds = [without_windows(rng, run, one), with_windows(rng, run, one)]
            for _ in range(3):
                exact = np.array(self.leaked(rng, run))
                for certified in bounds:
                    ratios = np.where(exact > 1e-9, exact / certified, 0.0)
                    worst = max(worst, float(ratios.max()))
        assert 0.5 < worst <= 1.0 + 1e-9


class TestKinks:
    """Changes that vary with the iterate, and point away from 0 wherever earlier noise fell.

    The steps of others make up for them: with the example they are between the limits, too.
    """

    @pytest.mark.parametrize("least, slope, bound", [(0.8, 0.19, 0.3), (0.8, 0.19, 0.15)])
    @pytest.mark.parametrize("batches", [2, 4])
    def test_are_covered(self, batches, least, slope, bound):
        def without(x):
            return least * x

        def changed(x):
            return least * x + np.clip(slope * x, -bound, bound)

        def density(moves):
            at, masses = last_densities(start=0.0, moves=moves, deviations=ones, cells=12)
            return np.interp(grid, at, masses / (at[1] - at[0]), left=0.0, right=0.0) / 12

        ones = [1.0] * batches
        grid = np.arange(-25.0, 25.0, 1.0 / 12)
        draws = [[changed if k == j else without for k in range(batches)] for j in range(batches)]
        ours = grid, np.mean([density(moves) for moves in draws], axis=0)
        theirs = grid, density([without] * batches)
        run = described(
            li.BallsAndBins, (batches, batches), bound, least, least + slope, "zero-out"
        )
        one = limited(run, drift=slope / bound)  # Lipschitz constant over bound, for noise of 1
        certified = without_windows(None, run, one)
        for epsilon, delta in zip(EPSILONS, certified, strict=True):
            exact = max(hockey_stick(ours, theirs, epsilon), hockey_stick(theirs, ours, epsilon))
            assert exact <= delta
        assert hockey_stick(ours, theirs, EPSILONS[0]) > 0.05 * certified[0]

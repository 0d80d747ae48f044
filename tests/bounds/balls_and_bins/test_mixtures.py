"""Balls and bins: large batches and failures are charged, and mixtures are below averages.

tests/bounds/test_every_bound.py attacks all of these bounds; here are random proofs of short steps.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

import lastiterate as li
from lastiterate.bounds import quantities
from lastiterate.bounds.balls_and_bins import mixtures as module
from lastiterate.bounds.balls_and_bins.divergence import MixtureDivergence, MixtureGrid, MixturePair
from lastiterate.bounds.balls_and_bins.mixtures import BIN_MIXTURE, MixtureSearch, pairs_of
from lastiterate.bounds.shuffling.positions import EndWindows
from lastiterate.bounds.subsampling.average import Majorant, fixed_size_majorant
from tests.bounds.balls_and_bins.draws import RULES, SHUFFLED, seen
from tests.bounds.climbing import ShortSteps, worst_share
from tests.bounds.runs import described, short_run
from tests.readme_run import readme_run
from tests.reference import all_draws, all_orders
from tests.reference.kinked_line import hockey_stick, last_densities
from tests.slow import slow

EARLY = "random-order/balls-and-bins/early-mixture"
WINDOWED = "random-order/balls-and-bins/windowed-mixture"
EPSILONS = (0.1, 0.4, 0.9, 1.6, 2.6)
ROUGH = MixtureGrid(cells=300, step=0.02, spacing=0.4)
RUNS = [(rule, adjacency) for rule in RULES for adjacency in ("zero-out", "replace")]


def penalised(rule, shape, ratio, penalty=0.0, own=0.0, **changes):
    examples, size, steps = shape
    loss = {"loss": li.Loss(smoothness=own + penalty, regulariser=penalty)}
    return described(
        rule(examples, size), steps, **({"sensitivity": ratio * size} | loss | changes)
    )


def secret(run, delta):
    """What is certified with a delta of nearly nothing else: the chance of large batches."""
    return li.account(run, bounds="random-order").delta(delta)


@pytest.mark.parametrize("rule", RULES)
class TestLargeBatches:
    """A batch of k examples is k/b as curved; beyond some k its steps would expand."""

    @pytest.mark.parametrize("step_size", [0.3, 0.9, 1.2])
    @pytest.mark.parametrize("regulariser", [0.0, 0.05, 0.4])
    def test_are_charged_with_their_exact_probability(self, rule, step_size, regulariser):
        loss = li.Loss(smoothness=1.0, regulariser=regulariser)
        run = penalised(rule, (60, 12, 30), 0.1, loss=loss, step_size=step_size)
        batches = 5 if rule is li.BallsAndBins else 30
        charged = []
        for never in (1e-9, 1e-14, 0.0):
            majorant = fixed_size_majorant(run, SHUFFLED[rule], batches, never)
            larger = float(batches * self.larger(run, float(quantities.gaps(majorant.run)[0])))
            assert min(larger, 1.0) <= majorant.exceeded <= larger * 1.00001 + 1e-300
            charged.append(majorant.exceeded)
        assert secret(run, 200.0) == pytest.approx(min(charged), rel=1e-5, abs=1e-40)

    def larger(self, run, gap):
        """The probability of a batch on which a step contracts less."""
        own, penalty = run.loss.smoothness - run.loss.regulariser, run.loss.regulariser
        factors = 1.0 - run.step_size * (penalty + own * np.arange(61) / 12)
        contracting = np.flatnonzero(np.abs(factors) <= 1.0 - gap + 1e-12).tolist()
        assert contracting == list(range(len(contracting)))
        p, more = Fraction(12, 60), range(len(contracting), 61)
        return sum(math.comb(60, k) * p**k * (1 - p) ** (60 - k) for k in more)

    def test_are_no_hindrance_to_a_small_delta_where_there_is_room(self, rule):
        """All contraction is given up for it: beyond 39 of 12 examples there is less and less."""
        loss = li.Loss(smoothness=1.0, regulariser=0.6)
        run = penalised(rule, (600, 12, 200), 0.1, loss=loss, step_size=0.8)
        assert fixed_size_majorant(run, SHUFFLED[rule]).exceeded > 1e-12
        found = [li.account(run, bounds="random-order").epsilon(d) for d in (1e-5, 1e-12, 1e-15)]
        assert 0.0 < found[0] < found[1] < found[2] < 10.0

    def test_of_a_short_run_are_those_it_sees(self, rule):
        few, many = (
            secret(penalised(li.BallsAndBins, (60, 12, steps), 0.1, own=1.2), 99.0)
            for steps in (2, 5)
        )
        assert few == pytest.approx(0.4 * many)

    def test_that_make_steps_just_not_expand_are_not_charged(self, rule):
        """Where the step is 2/smoothness to the last digit, rounding must not refuse it."""
        for size, examples in ((1, 2), (3, 6), (7, 14), (10, 20)):
            assert secret(penalised(rule, (examples, size, 4), 0.5, own=1.0), 99.0) < 1e-12

    def test_of_a_schedule_are_those_of_its_longest_step(self, rule):
        scheduled, longest = (
            secret(penalised(rule, (60, 12, 4), 0.1, own=1.0, step_size=steps), 99.0)
            for steps in ([0.3, 1.2, 0.3, 0.3], 1.2)
        )
        assert scheduled == pytest.approx(longest)


class TestExpansion:
    """Two batches of one: if both examples draw the same, its steps expand by 1/0.7, twenty times.

    The empty batch's steps contract by 0.7, so that in this world nothing is ever forgotten.
    """

    STEPS, RATIO, PENALTY = 40, 0.5, 0.3
    RUN = penalised(li.BallsAndBins, (2, 1, STEPS), RATIO, PENALTY, own=1.4)

    def leaked(self):
        added = np.zeros((2, self.STEPS))
        added[0] = self.RATIO * (np.arange(self.STEPS) // 2 % 2)  # steps turn signs over
        kept = 1 - self.PENALTY
        curvature = (kept + 1 / kept) / 2
        assert curvature < 1.4
        members, weights = all_draws.every_pick(2, 1, self.STEPS, each=False)
        laws = [
            all_draws.last_iterates(members, 1, self.PENALTY, [curvature] * self.STEPS, one)
            for one in (added, np.array([self.RATIO - added[0], added[1]]))
        ]
        return all_draws.hockey_sticks(*laws, weights, EPSILONS)

    def test_is_charged(self):
        report = li.account(self.RUN, bounds="random-order")
        for epsilon, delta in zip(EPSILONS, self.leaked(), strict=True):
            assert delta <= report.delta(epsilon)

    @pytest.mark.parametrize("what", ["of any batch", "of large batches"])
    def test_must_be(self, what, monkeypatch):
        """As if every batch had the stated size, or large ones were free: false by far."""

        def uncharged(run, counterpart, *given):
            if what == "of large batches":
                return Majorant(fixed_size_majorant(run, counterpart, *given).run, 0.0)
            sizes = run.batches.examples, run.batches.batch_size
            return Majorant(run.replace(batches=counterpart(*sizes)), 0.0)

        monkeypatch.setattr(module, "fixed_size_majorant", uncharged)
        assert self.leaked()[3] > 10 * module.bin_average(self.RUN).delta(EPSILONS[3])


@pytest.mark.parametrize("rule", RULES)
class TestBesideShuffling:
    def run(self, rule, **changes):
        settings = {"loss": li.Loss(smoothness=32.502, regulariser=0.002)}
        return readme_run(rule, 50).replace(**(settings | changes))

    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"adjacency": "zero-out", "sensitivity": 5.0},
            {"release_noise_std": 0.002},
            {"domain": li.Ball(0.01)},
            {"steps": 2_010},
            {"noise_std": [0.01] * 1_000 + [0.02] * 1_000},
        ],
        ids=lambda changes: "-".join(changes) or "as it is",
    )
    def test_is_the_same_where_large_batches_are_rare(self, rule, changes):
        # Steps contract on batches of up to 1,845 examples, nine standard deviations away.
        run = self.run(rule, **changes)
        ours = li.account(run, bounds="random-order/balls-and-bins/average").epsilon(1e-5)
        kept = run.replace(batches=SHUFFLED[rule](60_000, 1_500))
        stage = kept.batches.name.replace("shuffled-", "shuffled/average-")
        shuffled = li.account(kept, bounds=f"random-order/{stage}").epsilon(1e-5)
        assert ours == pytest.approx(shuffled, rel=1e-6)

    def test_only_the_regulariser_makes_steps_contract(self, rule):
        # A batch may be empty, so that what strong convexity the examples have is no help.
        steep = self.run(rule, loss=li.Loss(smoothness=32.502, strong_convexity=1.0))
        flat = self.run(rule, loss=li.Loss(smoothness=32.502))
        least = [li.account(run, bounds="random-order").epsilon(1e-5) for run in (steep, flat)]
        assert least[0] == least[1]

    @pytest.mark.parametrize(
        "changes, needs",
        [
            ({"releases": "last-iterate-and-order"}, "a batch order that stays secret"),
            ({"clip_norm": 5.0}, "norm clipping never changes"),
            ({"step_size": 0.07}, "step_size <= 2/smoothness"),
            ({"loss": li.Loss(smoothness=32.502, convex=False)}, "a convex loss"),
        ],
    )
    def test_says_what_is_missing(self, rule, changes, needs):
        report = li.account(self.run(rule, **changes))
        assert all(id_.startswith("composition/") for id_ in report.all)
        assert needs in str(report.unmet["random-order/balls-and-bins"])

    @pytest.mark.parametrize("steps", [40, 50, 53])
    def test_the_average_is_above_what_tells_that_it_is_not_needed(self, rule, steps):
        run = penalised(rule, (100, 10, steps), 1.0, penalty=0.1, own=0.1)
        for epsilon in EPSILONS:
            lower = module.bin_average_delta_lower_bound(run, epsilon)
            delta = module.bin_average(run).delta(epsilon)
            assert 0.01 * delta < lower <= delta

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize("ratio", [1e-300, 1e-6, 1e3, 1e160, 1e300])
    def test_extremes_promise_little_or_nothing(self, rule, ratio):
        run = penalised(rule, (50, 1, 120), ratio, penalty=0.1, own=0.03)
        found = li.account(run, bounds="random-order").epsilon(1e-6)
        assert 0.0 <= found <= math.inf
        assert found < 1e-3 or ratio > 1.0


class TestMixture:
    @pytest.mark.parametrize("rule", [li.BallsAndBins, slow(li.BallsAndBinsEachEpoch)])
    def test_far_below_the_average_with_many_batches(self, rule):
        loss = li.Loss(smoothness=1.0, regulariser=1e-4)
        run = penalised(rule, (1_000_000, 1_000, 100_000), 0.5, loss=loss, adjacency="zero-out")
        report = li.account(run)
        assert report.bound_at(1e-6) == "random-order/balls-and-bins"
        stages = report.all["random-order/balls-and-bins"].stages
        revealed = stages["random-order/balls-and-bins/average"].epsilon(1e-6)
        assert report.epsilon(1e-6) < 0.25 * revealed
        assert 1.0 <= report.epsilon(1e-6) / report.lower.epsilon(1e-6) < 1.2

    @pytest.mark.parametrize("rule", [li.BallsAndBins, slow(li.BallsAndBinsEachEpoch)])
    def test_a_clip_that_never_acts_changes_nothing(self, rule):
        loss = li.Loss(smoothness=32.502, regulariser=0.002, lipschitz=5.0)
        run = readme_run(rule).replace(loss=loss)
        clipped = run.replace(clip_norm=5.0)
        assert li.account(clipped).epsilon(1e-5) == li.account(run).epsilon(1e-5) < 3.3

    def test_small_deltas_are_answered(self):
        run = readme_run(li.BallsAndBins).replace(adjacency="zero-out", sensitivity=5.0)
        loss = li.Loss(smoothness=32.502, regulariser=0.002)
        assert BIN_MIXTURE.profile(run.replace(loss=loss)).epsilon(1e-12) < math.inf

    def test_needs_a_bound_on_gradients(self):
        assert BIN_MIXTURE.unmet(readme_run(li.BallsAndBins))


SHAPES = [(2, 2), (3, 3), (4, 4), (2, 4), (2, 5), (3, 6), (5, 5), (3, 4), (2, 8), (6, 6)]


def short(rule, shape, ratio, least, contraction, adjacency):
    """Batches of one; even with all examples in it a step keeps `least` of earlier noise."""
    batches, steps = shape
    penalty = 1.0 - contraction
    own = (1.0 - least - penalty) / batches
    loss = li.Loss(smoothness=own + penalty, regulariser=penalty, lipschitz=ratio, outputs=1)
    most = ratio if adjacency == "zero-out" else 2.0 * ratio
    return described(rule(batches, 1), steps, loss=loss, sensitivity=most, adjacency=adjacency)


def of_drift(run, one, short_steps):
    """The limit with these short steps."""
    rule, _ = module.counterpart_of(run)
    # The shuffled run whose positions are those that are drawn, with one gradient's change.
    loss = replace(run.loss, strong_convexity=run.loss.regulariser)
    kept = run.replace(adjacency="zero-out", sensitivity=run.loss.lipschitz)
    shuffled = kept.replace(loss=loss, batches=rule(run.batches.examples, 1))
    parts = [
        (share, module.positions_of(shuffled, short_steps, factor))
        for share, factor in module.earlier_epoch_factors(shuffled, short_steps.gap)
    ]
    return replace(one, parts=parts, short_steps=short_steps)


def limited(run, short_steps=None, drift=0.0):
    """Batches of any size; an example changes a step by the same wherever it is, if drift is 0."""
    one = module.limited_batches(run)[0]
    return of_drift(run, one, short_steps or replace(one.short_steps, drift=max(drift, 1e-300)))


def without_windows(rng, run, short_steps):
    """delta by the mixture over positions, at every epsilon."""
    profile = module.bounded(run, limited(run, short_steps)).without_windows
    return profile.deltas(np.array(EPSILONS))


def with_windows(rng, run, short_steps):
    """delta by some windows, at every epsilon, the larger of both ways round."""
    parts = limited(run, short_steps).parts
    hidden = int(rng.integers(1, parts[0][1].weights().size))
    noise, first = float(rng.choice([0.3, 0.7, 0.95])), int(rng.integers(0, 6))
    mixture = module.EarlyMixtures(parts, 1.0).mixture(hidden, noise, first)

    def delta(pair, epsilon):
        return MixtureDivergence(mixture, pair, epsilon, ROUGH).delta(epsilon)

    return np.array([max(delta(pair, e) for pair in pairs_of(run)) for e in EPSILONS])


class Instance(ShortSteps):
    """Given the draws of others: factors of steps, and what the example adds if it is there."""

    share_of_factors = 0.6

    def __init__(self, rng, rule, shape, ratio, least, contraction, adjacency):
        super().__init__(rng, shape[1], least, contraction)
        self.rows, self.ratio = seen(rule, shape), ratio
        self.left_out, self.epsilons = adjacency == "zero-out", EPSILONS
        self.added = rng.choice([-1.0, 1.0], (2, shape[1]))
        if rng.random() < 0.6:  # always the same way
            self.added = np.ones((2, shape[1])) * [[1.0], [-1.0]]

    def deltas(self):
        later = np.append(np.cumprod(self.factors[:0:-1])[::-1], 1.0)
        ours, theirs = (self.rows @ (later * self.ratio * one) for one in self.added)
        theirs = np.zeros(ours.size) if self.left_out else theirs
        spread = float(np.sqrt(later @ later))
        return np.array(all_orders.hockey_sticks(ours, theirs, spread, self.epsilons))


def drawn(rng, shapes=SHAPES):
    """A description, its short steps and how to make an instance."""
    rule, shape = RULES[rng.integers(2)], shapes[rng.integers(len(shapes))]
    least = rng.uniform(0.1, 0.95)
    contraction = rng.uniform(max(least, 0.7), 1.0)
    ratio, adjacency = rng.choice([0.4, 1.0, 2.0]), str(rng.choice(["replace", "zero-out"]))
    arguments = rule, shape, ratio, least, contraction, adjacency
    run = short(*arguments)
    return run, limited(run).short_steps, lambda rng: Instance(rng, *arguments)


class TestShortSteps:
    """Exact laws on the line, all draws of the example enumerated."""

    @pytest.mark.parametrize(
        "bound, seed, near, used", [(without_windows, 0, 0.8, 12), (with_windows, 1, 0.6, 4)]
    )
    def test_no_instance_leaks_more(self, bound, seed, near, used):
        worst, gained = worst_share(36, seed, drawn, bound)
        assert near < worst <= 1.0 + 1e-9
        assert gained > used  # else earlier noise was not used

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(2, 10))
    @pytest.mark.parametrize("bound", [without_windows, with_windows])
    def test_nor_in_a_long_search(self, seed, bound):
        assert worst_share(120, seed, drawn, bound, 60)[0] <= 1.0 + 1e-9

    def test_a_participation_inside_its_window_costs_more_than_one_before_it(self, monkeypatch):
        """Steps keep next to nothing of earlier noise, and the last one shows its participation."""
        arguments = li.BallsAndBins, (6, 6), 2.0, 0.05, 0.06, "zero-out"
        mixtures = module.EarlyMixtures(limited(short(*arguments)).parts, 1.0)
        exact = Instance(np.random.default_rng(0), *arguments)
        exact.factors, exact.added = np.full(6, 0.05), np.ones((2, 6))
        exact.epsilons = (2.0, 3.0, 4.0)

        def certified():
            mixture, pair = mixtures.mixture(5, 0.95, 3), MixturePair.MIXTURE_FIRST
            return [MixtureDivergence(mixture, pair, e, ROUGH).delta(e) for e in exact.epsilons]

        assert np.all(exact.deltas() <= certified())
        monkeypatch.setattr(
            EndWindows, "position_costs", lambda self, gap: self.costs(0.0)[self.window_of]
        )
        assert np.any(exact.deltas() > certified())

    def test_the_search_notices_more_noise_than_steps_keep(self):
        def flat(rng, run, short_steps):
            return without_windows(rng, run, replace(short_steps, curvature=short_steps.gap))

        assert worst_share(30, 0, drawn, flat, 12)[0] > 1.05

    def test_all_examples_draw(self):
        """Others curve the steps that they are in, each of the same curvature."""
        rng, worst = np.random.default_rng(5), 0.0
        for _ in range(20):
            run, short_steps, _ = drawn(rng, [(2, 2), (3, 3), (2, 4), (3, 5), (4, 4), (2, 6)])
            bounds = [one(rng, run, short_steps) for one in (without_windows, with_windows)]
            for _ in range(3):
                exact = np.array(self.leaked(rng, run))
                shares = [np.where(exact > 1e-9, exact / certified, 0.0) for certified in bounds]
                worst = max(worst, float(np.max(shares)))
        assert 0.5 < worst <= 1.0 + 1e-9

    def leaked(self, rng, run):
        rule, steps, most = run.batches, run.steps, run.loss.lipschitz
        own, penalty = run.loss.smoothness - run.loss.regulariser, run.loss.regulariser
        each = rule.resampling is li.BallsAndBinsEachEpoch.resampling
        members, weights = all_draws.every_pick(rule.examples, 1, steps, each)
        curvatures = own * rng.choice([0.0, 1.0, rng.random()], steps)
        others = most * rng.uniform(-1.0, 1.0, (rule.examples - 1, steps)) * rng.choice([0.0, 1.0])
        way = np.ones(steps) if rng.random() < 0.7 else rng.choice([-1.0, 1.0], steps)
        theirs = 0.0 * way if run.adjacency == "zero-out" else -way
        laws = [self.law(members, curvatures, penalty, others, most * one) for one in (way, theirs)]
        return all_draws.hockey_sticks(*laws, weights, EPSILONS)

    def law(self, members, curvatures, penalty, others, own):
        means, variances = np.zeros(len(members)), np.zeros(len(members))
        for step, curvature in enumerate(curvatures):
            there = members[:, step, 1:]
            factors = 1.0 - penalty - curvature * there.sum(axis=1)
            means = factors * means + there @ others[:, step] + members[:, step, 0] * own[step]
            variances = factors**2 * variances + 1.0
        return means, np.sqrt(variances)

    @pytest.mark.parametrize("bound", [0.3, 0.15])
    @pytest.mark.parametrize("batches", [2, 4])
    def test_kinks_are_covered(self, batches, bound):
        """Changes that vary with the iterate, and point away from 0 wherever earlier noise fell.

        The steps of others make up for them: with the example they are between the limits, too.
        """
        least, slope = 0.8, 0.19
        moves = lambda x: least * x, lambda x: least * x + np.clip(slope * x, -bound, bound)
        grid = np.arange(-25.0, 25.0, 1.0 / 12)

        def density(number):
            chosen = [moves[k == number] for k in range(batches)]
            at, masses = last_densities(
                start=0.0, moves=chosen, deviations=[1.0] * batches, cells=12
            )
            return np.interp(grid, at, masses / (at[1] - at[0]), left=0.0, right=0.0) / 12

        ours = grid, np.mean([density(j) for j in range(batches)], axis=0)
        theirs = grid, density(None)
        shape = (batches, batches)
        run = short(li.BallsAndBins, shape, bound, least, least + slope, "zero-out")
        # Lipschitz constant over bound, for noise of 1.
        certified = without_windows(None, run, limited(run, drift=slope / bound).short_steps)
        for epsilon, delta in zip(EPSILONS, certified, strict=True):
            exact = max(hockey_stick(ours, theirs, epsilon), hockey_stick(theirs, ours, epsilon))
            assert exact <= delta
        assert hockey_stick(ours, theirs, EPSILONS[0]) > 0.05 * certified[0]


class TestWhatShortStepsAreCharged:
    @pytest.mark.parametrize("rule, adjacency", RUNS)
    @pytest.mark.parametrize("outputs", [1, 10])
    def test_what_large_batches_curve_and_what_gradients_drift(self, rule, adjacency, outputs):
        """l' = 1 - eta M' - c kappa with K examples in a batch, the differing one included."""
        run = short_run(rule, adjacency, outputs=outputs)
        draws = 97 if rule is li.BallsAndBins else run.steps
        for one in module.limited_batches(run):
            curvature = one.short_steps.curvature
            size = (curvature / 0.5 - 0.01) * 512 / 0.25
            assert size == pytest.approx(round(size), abs=1e-6)
            larger = draws * binom.sf(round(size) - 1, 49_999, 512 / 50_000)
            assert larger <= one.exceeded < 100.0 * larger
            q = math.sqrt(2.0 * math.log(run.steps / one.short_steps.failure))
            windows = one.parts[0][1].windows(np.array([0, 8]), np.arange(5), 0.9, 1.0, 0.7)
            for beside, charged in ((0.8, one.short_steps.lost(0.8)), (1.7, windows.lost)):
                kappa = 0.5 * 0.25 / 512 * (math.sqrt(outputs) + q + beside)
                lost = curvature + (1.0 - 0.5 * 0.01) * kappa
                assert lost <= charged <= lost + 1e-9

    @pytest.mark.parametrize(
        "rule, adjacency", [slow(*run) if run == RUNS[2] else run for run in RUNS]
    )
    def test_failures_in_both_data_sets(self, rule, adjacency):
        """tau of the first law, and e^epsilon times tau of the second."""
        run, failure = short_run(rule, adjacency), 1e-7
        one = module.limited_batches(run)[0]
        often = replace(one, short_steps=replace(one.short_steps, failure=failure))
        limits = [module.bounded(run, limit) for limit in (one, often)]
        epsilons = np.array([0.5, 2.0, 4.0])
        seldom, more = (limit.without_windows.deltas(epsilons) for limit in limits)
        charged = failure * (1.0 + np.exp(epsilons))
        assert np.all(more >= seldom + 0.999 * charged)
        assert np.all(more <= seldom + 1.001 * charged)
        for pair in pairs_of(run):
            searches = [MixtureSearch(pair, [limit], early=True) for limit in limits]
            found = [search(2.0, 0.5).delta(2.0) for search in searches]
            assert found[1] - found[0] == pytest.approx(failure * (1.0 + math.exp(2.0)), rel=1e-3)


@pytest.mark.parametrize("rule", RULES)
class TestShortAccounts:
    @pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
    def test_they_are_not_above_those_of_later_shifts(self, rule, adjacency):
        for step_size in (0.1, 2.8) if rule is li.BallsAndBins else (2.8,):
            run = short_run(rule, adjacency, step_size=step_size)
            both = li.account(run, bounds=[EARLY, WINDOWED]).all
            assert both[EARLY].epsilon(1e-5) <= both[WINDOWED].epsilon(1e-5) * 1.002

    def test_steps_on_the_largest_batches_may_lose_all_noise(self, rule):
        barely = short_run(rule, "replace", step_size=3.8)
        assert not module.limited_batches(barely)
        found = [li.account(barely, bounds=id_).epsilon(1e-5) for id_ in (EARLY, WINDOWED)]
        assert found[0] == found[1]

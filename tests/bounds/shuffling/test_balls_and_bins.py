"""Balls and bins: never below the truth; large batches are charged, else it is as shuffling."""

import math
from fractions import Fraction

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds import quantities
from lastiterate.bounds.balls_and_bins import mixtures as balls_and_bins
from lastiterate.bounds.subsampling.average import Majorant, fixed_size_majorant
from tests.readme_run import readme_run
from tests.reference.all_picks import every_pick, hockey_sticks, last_iterates

RULES = [li.BallsAndBins, li.BallsAndBinsEachEpoch]
SHUFFLED = {li.BallsAndBins: li.ShuffledOnce, li.BallsAndBinsEachEpoch: li.ShuffledEachEpoch}
EPSILONS = (0.0, 0.3, 0.8, 1.5, 2.5)
SHAPES = [  # examples, batch size, steps; at most some thousand draws
    (2, 1, 2), (3, 1, 3), (3, 1, 5), (4, 1, 4), (4, 2, 4), (5, 2, 2), (3, 1, 6), (2, 1, 5),
]  # fmt: skip


def described(rule, shape, ratio, penalty=0.0, own=0.0, **changes):
    examples, size, steps = shape
    settings = {
        "loss": li.Loss(smoothness=own + penalty, regulariser=penalty),
        "sensitivity": ratio * size,
        "batches": rule(examples, size),
        "steps": steps,
        "step_size": 1.0,
        "noise_std": 1.0,
    }
    return li.TrainingRun(**(settings | changes))


def leaked(run, curvatures, added, other):
    """(delta by epsilon, the larger of both ways) of what examples add in each world."""
    rule, penalty = run.batches, run.loss.regulariser
    each = rule.resampling is li.BallsAndBinsEachEpoch.resampling
    members, weights = every_pick(rule.examples, rule.batch_size, run.steps, each)
    ours, theirs = (
        last_iterates(members, rule.batch_size, penalty, curvatures, one) for one in (added, other)
    )
    return hockey_sticks(ours, theirs, weights, EPSILONS)


def random_leak(rng, run, own):
    """The deltas of an instance that obeys the description; others mark positions, mostly."""
    examples, steps, most = run.batches.examples, run.steps, run.sensitivity
    curvatures = own * rng.choice([0.0, 1.0, rng.random()], steps)
    left_out = run.adjacency == "zero-out"
    low, high = (-1.0, 1.0) if left_out else (0.0, 1.0)
    ends = rng.choice([low, high], (examples, steps))
    added = most * np.where(rng.random(ends.shape) < 0.8, ends, rng.uniform(low, high, ends.shape))
    if rng.random() < 0.5:  # the differing example always pulls the same way
        added[0] = most * high
    other = added.copy()
    other[0] = 0.0 if left_out else most - added[0]
    return leaked(run, curvatures, added, other)


def attack(count, seed):
    """The largest share of what is certified that leaks, and how often batches were too large."""
    rng = np.random.default_rng(seed)
    worst, charged = 0.0, 0
    for _ in range(count):
        rule, shape = RULES[rng.integers(2)], SHAPES[rng.integers(len(SHAPES))]
        ratio, penalty = rng.choice([0.5, 1.0, 2.0]), rng.choice([0.0, 0.1, 0.4])
        left_out = rng.random() < 0.4
        # Losses whose gradients are bounded are linear; a step of 1 may expand for others.
        own = 0.0 if left_out else float(rng.choice([0.3, 0.6, 1.0, 1.6]))
        changes = {"adjacency": "zero-out"} if left_out else {}
        run = described(rule, shape, ratio, penalty, own, **changes)
        report = li.account(run, bounds="random-order")
        charged += report.delta(50.0) > 1e-6
        for epsilon, delta in zip(EPSILONS, random_leak(rng, run, own), strict=True):
            certified = report.delta(epsilon)
            if delta > 1e-9:
                worst = max(worst, delta / certified)
    return worst, charged


class TestSoundness:
    def test_no_instance_leaks_more(self):
        worst, charged = attack(40, seed=0)
        assert 0.5 < worst <= 1.0 + 1e-9
        assert 5 < charged < 30  # both kinds were tried

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(1, 21))
    def test_no_instance_leaks_more_in_a_long_search(self, seed):
        assert attack(250, seed)[0] <= 1.0 + 1e-9


class TestLargeBatches:
    """A batch of k examples is k/b as curved; beyond some k its steps would expand."""

    @pytest.mark.parametrize("rule", RULES)
    @pytest.mark.parametrize("step_size", [0.3, 0.9, 1.2])
    @pytest.mark.parametrize("regulariser", [0.0, 0.05, 0.4])
    def test_are_charged_with_their_exact_probability(self, rule, step_size, regulariser):
        examples, size, steps = 60, 12, 30
        loss = li.Loss(smoothness=1.0, regulariser=regulariser)
        run = described(rule, (examples, size, steps), 0.1, loss=loss, step_size=step_size)
        batches = 5 if rule is li.BallsAndBins else steps
        charged = []
        for never in (1e-9, 1e-14, 0.0):
            majorant = fixed_size_majorant(run, SHUFFLED[rule], batches, never)
            larger = float(batches * self.larger(run, float(quantities.gaps(majorant.run)[0])))
            assert min(larger, 1.0) <= majorant.exceeded <= larger * 1.00001 + 1e-300
            charged.append(majorant.exceeded)
        lost = li.account(run, bounds="random-order").delta(200.0)
        assert lost == pytest.approx(min(charged), rel=1e-5, abs=1e-40)

    def larger(self, run, gap):
        """The probability of a batch on which a step contracts less."""
        examples, size = run.batches.examples, run.batches.batch_size
        own = run.loss.smoothness - run.loss.regulariser
        contracting = [
            batch
            for batch in range(examples + 1)
            if abs(1.0 - run.step_size * (run.loss.regulariser + own * batch / size))
            <= 1.0 - gap + 1e-12
        ]
        assert contracting == list(range(len(contracting)))
        p = Fraction(size, examples)
        return sum(
            math.comb(examples, k) * p**k * (1 - p) ** (examples - k)
            for k in range(len(contracting), examples + 1)
        )

    @pytest.mark.parametrize("rule", RULES)
    def test_are_no_hindrance_to_a_small_delta_where_there_is_room(self, rule):
        """All contraction is given up for it: beyond 39 of 12 examples there is less and less."""
        loss = li.Loss(smoothness=1.0, regulariser=0.6)
        run = described(rule, (600, 12, 200), 0.1, loss=loss, step_size=0.8)
        assert fixed_size_majorant(run, SHUFFLED[rule]).exceeded > 1e-12
        found = [li.account(run, bounds="random-order").epsilon(d) for d in (1e-5, 1e-12, 1e-15)]
        assert 0.0 < found[0] < found[1] < found[2] < 10.0

    def test_of_a_short_run_are_those_it_sees(self):
        run = described(li.BallsAndBins, (60, 12, 2), 0.1, own=1.2)
        whole = run.replace(steps=5)
        few, many = (li.account(one, bounds="random-order").delta(99.0) for one in (run, whole))
        assert few == pytest.approx(0.4 * many)

    @pytest.mark.parametrize("rule", RULES)
    def test_that_make_steps_just_not_expand_are_not_charged(self, rule):
        """Where the step is 2/smoothness to the last digit, rounding must not refuse it."""
        for size, examples in ((1, 2), (3, 6), (7, 14), (10, 20)):
            run = described(rule, (examples, size, 4), 0.5, own=1.0)
            assert li.account(run, bounds="random-order").delta(99.0) < 1e-12

    @pytest.mark.parametrize("rule", RULES)
    def test_of_a_schedule_are_those_of_its_longest_step(self, rule):
        steps = [0.3, 1.2, 0.3, 0.3]
        run = described(rule, (60, 12, 4), 0.1, own=1.0, step_size=steps)
        longest = described(rule, (60, 12, 4), 0.1, own=1.0, step_size=1.2)
        assert li.account(run, bounds="random-order").delta(99.0) == pytest.approx(
            li.account(longest, bounds="random-order").delta(99.0)
        )


class TestExpansion:
    """Two batches of one: if both examples draw the same, its steps expand by 1/0.7, twenty times.

    The empty batch's steps contract by 0.7, so that in this world nothing is ever forgotten.
    """

    STEPS, RATIO, PENALTY = 40, 0.5, 0.3

    def run_(self):
        shape = (2, 1, self.STEPS)
        return described(li.BallsAndBins, shape, self.RATIO, self.PENALTY, own=1.4)

    def leaked(self):
        added = np.zeros((2, self.STEPS))
        added[0] = self.RATIO * (np.arange(self.STEPS) // 2 % 2)  # steps turn signs over
        other = np.array([self.RATIO - added[0], added[1]])
        kept = 1 - self.PENALTY
        curvature = (kept + 1 / kept) / 2
        assert curvature < 1.4
        return leaked(self.run_(), [curvature] * self.STEPS, added, other)

    def test_is_charged(self):
        report = li.account(self.run_(), bounds="random-order")
        for epsilon, delta in zip(EPSILONS, self.leaked(), strict=True):
            assert delta <= report.delta(epsilon)

    def test_of_any_batch_must_be(self, monkeypatch):
        """As if every batch had the stated size: false, by a factor of ten and more."""

        def of_that_size(run, counterpart, *_):
            sizes = run.batches.examples, run.batches.batch_size
            return Majorant(run.replace(batches=counterpart(*sizes)), 0.0)

        monkeypatch.setattr(balls_and_bins, "fixed_size_majorant", of_that_size)
        claimed = balls_and_bins.bin_average(self.run_())
        assert self.leaked()[3] > 10 * claimed.delta(EPSILONS[3])

    def test_of_large_batches_must_be(self, monkeypatch):
        def uncharged(*given):
            return Majorant(fixed_size_majorant(*given).run, 0.0)

        monkeypatch.setattr(balls_and_bins, "fixed_size_majorant", uncharged)
        claimed = balls_and_bins.bin_average(self.run_())
        assert self.leaked()[3] > 10 * claimed.delta(EPSILONS[3])


@pytest.mark.parametrize("rule", RULES)
class TestBesideShuffling:
    def run(self, rule, **changes):
        settings = {"loss": li.Loss(smoothness=32.502, regulariser=0.002)}
        return readme_run(rule, 50).replace(**(settings | changes))

    def shuffled(self, rule, run):
        kept = run.replace(batches=SHUFFLED[rule](60_000, 1_500))
        stage = kept.batches.name.replace("shuffled-", "shuffled/average-")
        return li.account(kept, bounds=f"random-order/{stage}").epsilon(1e-5)

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
        assert ours == pytest.approx(self.shuffled(rule, run), rel=1e-6)

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


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("steps", [40, 50, 53])
def test_the_average_is_above_what_tells_that_it_is_not_needed(rule, steps):
    run = described(rule, (100, 10, steps), 1.0, penalty=0.1, own=0.1)
    for epsilon in EPSILONS:
        lower = balls_and_bins.bin_average_delta_lower_bound(run, epsilon)
        delta = balls_and_bins.bin_average(run).delta(epsilon)
        assert 0.01 * delta < lower <= delta


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("ratio", [1e-300, 1e-6, 1e3, 1e160, 1e300])
@pytest.mark.parametrize("rule", RULES)
def test_extremes_promise_little_or_nothing(rule, ratio):
    run = described(rule, (50, 1, 120), ratio, penalty=0.1, own=0.03)
    report = li.account(run, bounds="random-order")
    assert 0.0 <= report.epsilon(1e-6) <= math.inf
    assert report.epsilon(1e-6) < 1e-3 or ratio > 1.0

"""Poisson batches whose participations stay hidden: never below the truth, and near it."""

import math
from itertools import pairwise, product

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from scipy.stats import binom

import lastiterate as li
from lastiterate.bounds.subsampling import poisson
from lastiterate.bounds.subsampling.poisson import (
    HIDDEN_PARTICIPATIONS,
    LinearPlan,
    PlanShape,
    discounted_sum,
)
from tests.bounds.runs import described, dp_sgd
from tests.reference.all_orders import hockey_sticks
from tests.reference.sampled_walk import hockey_stick, sampled_pair
from tests.slow import slow

EPSILONS = (0.0, 0.1, 0.3, 0.8, 1.5, 2.5, 3.5)
EXAMPLES = 1000


def slopes(size, steps, ratio, contraction, adjacency="zero-out", **changes):
    """Steps of which each may have any slope from minus to plus the contraction."""
    strong, own = 1.0 - contraction, 2.0 * contraction * size / EXAMPLES
    usual = {"batches": li.PoissonSampled(EXAMPLES, size), "steps": steps, "adjacency": adjacency}
    loss = li.Loss(smoothness=strong + own * (1 - 1e-9), regulariser=strong, lipschitz=ratio * size)
    most = ratio * size * (2.0 if adjacency == "replace" else 1.0)
    return described(loss=loss, sensitivity=most, **(usual | changes))


def exact(share, factors, added, other, released, epsilons=EPSILONS):
    """By epsilon the worse direction, given what others do; all participations written out."""
    steps = factors.size
    later = np.append(np.cumprod(factors[:0:-1])[::-1], 1.0)
    parts = np.array(list(product((0, 1), repeat=steps)))
    weights = np.prod(np.where(parts, share, 1.0 - share), axis=1)
    spread = math.sqrt(float(np.sum(later**2)) + released**2)
    ours, theirs = parts @ (added * later), parts @ (other * later)
    return hockey_sticks(ours, theirs, spread, epsilons, weights)


class TestSoundness:
    @pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
    def test_every_shape_is_a_theorem(self, adjacency, monkeypatch):
        rng = np.random.default_rng(1)
        run = slopes(200, 8, 1.0, 0.9, adjacency)
        other = -np.ones(8) * (adjacency == "replace")
        truth = exact(0.2, np.full(8, 0.9), np.ones(8), other, 0.0)
        for _ in range(12):
            edges = tuple(sorted(set(rng.integers(1, 9, int(rng.integers(1, 4))).tolist())))
            shape = PlanShape(int(rng.integers(1, 4)), edges, int(rng.integers(0, 3)))

            monkeypatch.setattr(poisson, "best_shape", lambda shape=shape, **_: shape)
            profile = HIDDEN_PARTICIPATIONS.profile(run)
            for epsilon, delta in zip(EPSILONS, truth, strict=True):
                assert delta <= profile.delta(epsilon)

    @pytest.mark.parametrize("seed", range(6))
    def test_projected_walks(self, seed):
        rng = np.random.default_rng(seed)
        half, ratio = float(rng.choice([0.3, 1.0, 3.0])), float(rng.choice([0.3, 1.0]))
        contraction, steps = float(rng.choice([1.0, 0.95])), int(rng.integers(5, 80))
        run = slopes(200, steps, ratio, contraction, domain=li.Ball(diameter=2 * half))
        profile = HIDDEN_PARTICIPATIONS.profile(run)
        free = HIDDEN_PARTICIPATIONS.profile(run.replace(domain=li.Unbounded()))
        for drift in (0.0, -0.5 * ratio, -2.0):
            laws = sampled_pair(
                steps=steps, slope=contraction, shifts=(0.0, ratio), q=0.2, noise=1.0, low=-half,
                high=half, cells=240, clip=True, drift=drift,
            )  # fmt: skip
            for epsilon in EPSILONS[:-1]:
                truth = hockey_stick(*laws, epsilon)
                assert truth <= profile.delta(epsilon) * (1 + 1e-6) + 1e-7
        assert profile.epsilon(1e-5) <= 1.05 * free.epsilon(1e-5)  # by another choice of groups

    def test_a_small_domain_bounds_long_runs(self):
        found = [
            HIDDEN_PARTICIPATIONS.profile(
                slopes(20, steps, 0.3, 1.0, domain=li.Ball(diameter=1.0))
            ).epsilon(1e-5)
            for steps in (10_000, 1_000_000)
        ]
        assert found[1] <= 1.01 * found[0]

    def test_noise_used_twice_would_be_false(self, monkeypatch):
        """The instance that refutes it: what the check of plans is for."""
        run = slopes(300, 6, 1.0, 1.0)
        honest = HIDDEN_PARTICIPATIONS.profile(run)
        true = LinearPlan.variance
        monkeypatch.setattr(LinearPlan, "variance", lambda self, group: 2.0 * true(self, group))
        claimed = HIDDEN_PARTICIPATIONS.profile(run)
        (truth,) = exact(0.3, np.ones(6), np.ones(6), np.zeros(6), 0.0, [0.5])
        assert claimed.delta(0.5) < truth <= honest.delta(0.5)


class TestTightness:
    def linear(self, share, ratio, steps, delta):
        """epsilon of Bin(steps, share) ratio + N(0, steps) against N(0, steps)."""
        counts = np.arange(steps + 1)
        weights = binom.pmf(counts, steps, share)
        kept = weights > 1e-25
        ours, spread = ratio * counts[kept].astype(float), math.sqrt(steps)

        def leaked(epsilon):
            nothing = np.zeros(kept.sum())
            return hockey_sticks(ours, nothing, spread, [epsilon], weights[kept])[0]

        low, high = 0.0, 20.0
        while high - low > 1e-6:
            middle = (low + high) / 2
            low, high = (middle, high) if leaked(middle) > delta else (low, middle)
        return high

    @pytest.mark.parametrize("size, ratio, steps", [(20, 0.3, 2000), (5, 1.0, 20_000)])
    def test_linear_losses_leak_nearly_as_much(self, size, ratio, steps):
        run = slopes(size, steps, ratio, 1.0)
        truth = self.linear(size / EXAMPLES, ratio, steps, 1e-5)
        assert truth <= HIDDEN_PARTICIPATIONS.profile(run).epsilon(1e-5) <= 1.05 * truth

    def test_a_million_examples(self):
        """The least that any linear plan could cost is .141-GDP: an epsilon of .575."""
        loss = li.Loss(smoothness=1.0, regulariser=1e-4)
        run = described(
            li.PoissonSampled(1_000_000, 1_000), 100_000, loss=loss, noise_std=0.001,
            adjacency="zero-out",
        )  # fmt: skip
        profile = HIDDEN_PARTICIPATIONS.profile(run)
        least = math.sqrt(2 * 1e-6 / 1e-4)
        assert profile.epsilon(1e-6) < 1.07 * li.GaussianProfile(least).epsilon(1e-6)
        assert profile.epsilon(1e-12) < 1.1


class TestMonotonicity:
    """More penalty, noise or release noise, or fewer steps, up to the grid."""

    RUN = dp_sgd(
        li.PoissonSampled(50_000, 1_000), 2_000, noise=2.4, step_size=4.0,
        loss=li.Loss(smoothness=0.4, regulariser=1e-3, lipschitz=1.0),
    )  # fmt: skip

    def decrease(self, runs):
        found = [HIDDEN_PARTICIPATIONS.profile(run).epsilon(1e-6) for run in runs]
        for before, after in pairwise(found):
            assert after <= 1.01 * before
        assert found[-1] < found[0] < math.inf

    def test_penalty(self):
        self.decrease(
            self.RUN.replace(loss=li.Loss(smoothness=0.4, regulariser=penalty, lipschitz=1.0))
            for penalty in (0.0, 1e-4, 1e-3, 1e-2)
        )

    def test_steps(self):
        self.decrease(self.RUN.replace(steps=s) for s in (20_000, 2_000, 200, 10, 1))


class TestCutBatches:
    """An example may displace another in a truncated batch: that is added to delta."""

    def run_(self, largest):
        return slopes(10, 5, 0.5, 0.9, batches=li.PoissonSampled(EXAMPLES, 10, largest))

    def test_the_chance_of_a_cut_is_charged(self):
        never = HIDDEN_PARTICIPATIONS.profile(self.run_(None)).delta(1.0)
        for largest in (20, 30, 40):
            chance = 1.0 - (1.0 - binom.sf(largest - 1, EXAMPLES - 1, 0.01)) ** 5
            charged = HIDDEN_PARTICIPATIONS.profile(self.run_(largest)).delta(1.0) - never
            assert charged >= 0.9 * chance
        assert charged < 1e-9

    def test_always_cut_promises_nothing(self):
        assert HIDDEN_PARTICIPATIONS.profile(self.run_(10)).epsilon(1e-3) == math.inf


class TestRefusals:
    def test_gradients_of_any_size(self):
        run = slopes(10, 5, 1.0, 0.9, "replace")
        free = run.replace(loss=li.Loss(smoothness=run.loss.smoothness, regulariser=0.1))
        assert "gradients of any size" in str(HIDDEN_PARTICIPATIONS.unmet(free)[0])
        assert not HIDDEN_PARTICIPATIONS.unmet(run)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("ratio", [1e-300, 1e-6, 1e-2, 1e3, 1e160, 1e300])
@pytest.mark.parametrize("steps", [1, 1_000_000_000])
@pytest.mark.parametrize("examples, size", [(10_000_000, 1), (4, 2), (3, 3)])
def test_extremes_promise_little_or_nothing(examples, size, steps, ratio):
    for penalty in (0.0, 1e-12, 1.0) if steps > 1 else (0.5,):
        run = described(
            li.PoissonSampled(examples, size), steps, sensitivity=ratio, noise_std=1.0 / size,
            loss=li.Loss(smoothness=penalty, regulariser=penalty), adjacency="zero-out",
        )  # fmt: skip
        profile = HIDDEN_PARTICIPATIONS.profile(run)
        found = [profile.epsilon(delta) for delta in (1e-3, 1e-6, 1e-12)]
        assert 0.0 <= found[0] <= found[1] <= found[2] <= math.inf
        if size == examples:  # all take part: at least as much as the last step alone
            assert found[1] >= 0.999 * li.GaussianProfile(min(ratio, 1e100)).epsilon(1e-6)


def true_tails(gap, count, probability, levels):
    """P(sum > level), from below: every participation rounded down to a fine grid, one by one."""
    fine = 4000.0 / max(sum((1 - gap) ** i for i in range(count)), 1.0)
    law = np.ones(1)
    for i in range(count):
        cell = int((1 - gap) ** i * fine)
        moved = np.append(np.zeros(cell), law) * probability
        moved[: law.size] += (1 - probability) * law
        law = moved
    above = np.append(np.cumsum(law[::-1])[::-1], 0.0)
    first = np.minimum(np.floor(levels * fine + 1e-9).astype(int) + 1, law.size)
    return above[first]


@pytest.mark.parametrize(
    "gap, count, probability",
    [
        (0.0, 1, 0.3), (0.0, 40, 0.02), (0.0, 500, 0.5), (1e-4, 40, 0.1), (0.01, 1, 0.4),
        (0.01, 7, 0.4), (0.01, 700, 0.02), (0.01, 700, 0.6), (0.2, 90, 0.01), (0.2, 90, 0.9),
        (0.7, 3, 1e-3), (0.97, 4, 0.5),
    ],
)  # fmt: skip
def test_dominates_the_truth_and_is_near(gap, count, probability):
    law = discounted_sum(gap, count, probability)
    assert np.all(np.diff(law.levels) >= 0.0)
    assert np.all(law.masses >= 0.0)
    assert math.fsum(law.masses) <= 1.0 + 1e-15
    claimed = 1.0 - np.cumsum(law.masses)
    assert np.all(true_tails(gap, count, probability, law.levels) <= claimed + 1e-13)
    mean = probability * sum((1 - gap) ** i for i in range(count))
    assert law.levels @ law.masses <= 1.05 * mean


@pytest.mark.parametrize("probability", [1e-7, 1e-3, 0.3, 0.999, 1.0])
@pytest.mark.parametrize("gap, count", [(0.0, 10**7), (1e-9, 10**9), (1e-4, 10**9), (0.5, 10**9)])
def test_long_runs_have_the_moments_that_they_must(gap, count, probability):
    law = discounted_sum(gap, count, probability)
    kept = -math.expm1(count * math.log1p(-gap)) / gap if gap else float(count)
    mean = probability * kept
    found = float(law.levels @ law.masses)
    # With very many participations only the tail is known, and the mean is a little too large.
    spread = math.sqrt(mean)
    assert mean * (1 - 1e-6) <= found <= 1.05 * mean + (1.5 * spread if mean > 1500 else 0.0)
    assert math.fsum(law.masses) > 1.0 - 1e-15


def test_a_law_too_small_would_be_noticed():
    law = discounted_sum(0.01, 700, 0.6)
    claimed = 1.0 - np.cumsum(law.masses)
    assert np.any(true_tails(0.01, 700, 0.6, 0.9 * law.levels) > claimed + 1e-13)


class TestStatedRate:
    """Poisson batches whose rate is not the divisor over the number of examples."""

    LAST = ("random-order/poisson", "random-order/poisson/hidden-participations")
    EVERY = "composition/sampled"
    STATED = li.PoissonSampled(50_000, 510, sample_rate=1 / 98)

    def run(self, rule, steps, *, smoothness=0.26, regulariser=0.01, **changes):
        loss = li.Loss(smoothness=smoothness, regulariser=regulariser, lipschitz=1.0)
        return dp_sgd(rule, steps, loss=loss, **({"step_size": 0.5} | changes))

    @pytest.mark.parametrize(
        "rate, steps", [(0.02, 5), (0.6, 1), (0.6, 2), slow(0.02, 1), slow(0.95, 5)]
    )
    def test_no_bound_is_below_an_exact_instance(self, rate, steps):
        """Gradients are constant, so that the example's part is binomial; the divisor says 1/10."""
        rule = li.PoissonSampled(examples=10, batch_size=1, sample_rate=rate)
        run = self.run(rule, steps, smoothness=0.0, regulariser=0.0)
        counts = np.arange(steps + 1)
        law = counts / math.sqrt(steps), np.zeros(steps + 1), 1.0
        truths = hockey_sticks(*law, (0.1, 0.5, 1.5), binom.pmf(counts, steps, rate))
        reports = [li.account(run, bounds=id_) for id_ in (*self.LAST, self.EVERY)]
        for epsilon, truth in zip((0.1, 0.5, 1.5), truths, strict=True):
            assert all(report.delta(epsilon) >= truth * (1.0 - 1e-6) for report in reports)
            if steps == 1:
                least = min(report.delta(epsilon) for report in reports)
                assert least <= truth * 1.01 + 1e-9

    def test_lower_bounds_are_below(self):
        report = li.account(self.run(li.PoissonSampled(5_000, 40, sample_rate=1 / 98), 300))
        assert 0.0 < report.lower.epsilon(1e-5) <= report.epsilon(1e-5)

    def test_batches_too_large_for_the_step_size_are_charged(self):
        """On average 500 examples, their sum divided by 50: such steps expand."""
        large = li.PoissonSampled(1_000, 50, sample_rate=0.5)
        run = self.run(large, 50, smoothness=1.01, step_size=1.0)
        assert all(li.account(run, bounds=id_).delta(1.0) == 1.0 for id_ in self.LAST)
        assert li.account(run).bound.startswith("composition/")

    @pytest.mark.parametrize("persons", [1, 2])
    def test_as_many_examples_as_give_the_rate_give_the_same(self, persons):
        stated = self.run(self.STATED, 98, examples_per_person=persons)
        usual = stated.replace(batches=li.PoissonSampled(98 * 510, 510))
        for id_ in (*self.LAST, self.EVERY)[: 4 - persons]:
            one, other = (li.account(run, bounds=id_).epsilon(1e-5) for run in (stated, usual))
            assert one == pytest.approx(other, rel=1e-9)

    def test_composition_is_that_of_dp_accounting(self):
        step = dp_accounting.PoissonSampledDpEvent(1 / 98, dp_accounting.GaussianDpEvent(1.0))
        other = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
        other.compose(dp_accounting.SelfComposedDpEvent(step, 980))
        certified = li.account(self.run(self.STATED, 980), bounds=self.EVERY).epsilon(1e-5)
        assert certified == pytest.approx(other.get_epsilon(1e-5), rel=2e-3)

"""Poisson batches whose participations stay hidden: never below the truth, and near it."""

import math
from itertools import pairwise, product

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds.subsampling import poisson
from lastiterate.bounds.subsampling.poisson import HIDDEN_PARTICIPATIONS, LinearPlan, PlanShape
from tests.reference.all_orders import hockey_sticks
from tests.reference.sampled_walk import sampled_pair

EPSILONS = (0.0, 0.1, 0.3, 0.8, 1.5, 2.5, 3.5)
EXAMPLES = 1000


def described(size, steps, ratio, contraction, adjacency, released=0.0, **changes):
    """Steps of which each may have any slope from minus to plus the contraction."""
    strong = 1.0 - contraction
    own = 2.0 * contraction * size / EXAMPLES
    facts = {
        "loss": li.Loss(
            smoothness=strong + own * (1 - 1e-9), regulariser=strong, lipschitz=ratio * size
        ),
        "sensitivity": ratio * size * (2.0 if adjacency == "replace" else 1.0),
        "batches": li.PoissonSampled(EXAMPLES, size),
        "steps": steps,
        "step_size": 1.0,
        "noise_std": 1.0,
        "release_noise_std": released,
        "adjacency": adjacency,
    }
    return li.TrainingRun(**facts | changes)


def exact(share, factors, added, other, released, epsilons=EPSILONS):
    """By epsilon the worse direction, given what others do; all participations written out."""
    steps = factors.size
    later = np.append(np.cumprod(factors[:0:-1])[::-1], 1.0)
    parts = np.array(list(product((0, 1), repeat=steps)))
    weights = np.prod(np.where(parts, share, 1.0 - share), axis=1)
    spread = math.sqrt(float(np.sum(later**2)) + released**2)
    ours, theirs = parts @ (added * later), parts @ (other * later)
    return hockey_sticks(ours, theirs, spread, epsilons, weights)


def attack(count, seed):
    """The largest (exact delta)/(certified delta), and how often that was above a half."""
    rng = np.random.default_rng(seed)
    worst, near = 0.0, 0
    for _ in range(count):
        size, steps = int(rng.choice([1, 20, 100, 300, 700])), int(rng.integers(1, 10))
        ratio = float(rng.choice([0.1, 0.3, 1.0, 2.0]))
        contraction = float(rng.choice([1.0, 0.95, 0.7, 0.3]))
        adjacency = str(rng.choice(["replace", "zero-out"]))
        released = float(rng.choice([0.0, 0.5, 2.0]))
        profile = HIDDEN_PARTICIPATIONS.profile(
            described(size, steps, ratio, contraction, adjacency, released)
        )
        low = float(rng.choice([-1.0, 0.0, 1.0]))
        factors = contraction * np.where(rng.random(steps) < 0.7, 1.0, rng.uniform(low, 1, steps))
        added = ratio * np.where(rng.random(steps) < 0.8, 1.0, rng.uniform(-1, 1, steps))
        other = -added if adjacency == "replace" else 0.0 * added
        found = exact(size / EXAMPLES, factors, added, other, released)
        for epsilon, truth in zip(EPSILONS, found, strict=True):
            certified = profile.delta(epsilon)
            if truth > 1e-10:
                worst = max(worst, truth / certified)
                near += truth > certified / 2
    return worst, near


class TestSoundness:
    def test_no_instance_leaks_more(self):
        worst, near = attack(12, seed=0)
        assert worst <= 1.0 + 1e-9
        assert near > 5  # else nothing was tried

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(1, 11))
    def test_no_instance_leaks_more_in_a_long_search(self, seed):
        assert attack(150, seed)[0] <= 1.0 + 1e-9

    @pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
    def test_every_shape_is_a_theorem(self, adjacency, monkeypatch):
        rng = np.random.default_rng(1)
        run = described(200, 8, 1.0, 0.9, adjacency)
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
        run = described(
            200, steps, ratio, contraction, "zero-out", domain=li.Ball(diameter=2 * half)
        )
        profile = HIDDEN_PARTICIPATIONS.profile(run)
        free = HIDDEN_PARTICIPATIONS.profile(run.replace(domain=li.Unbounded()))
        for drift in (0.0, -0.5 * ratio, -2.0):
            p, q = sampled_pair(
                steps=steps,
                slope=contraction,
                shifts=(0.0, ratio),
                q=0.2,
                noise=1.0,
                low=-half,
                high=half,
                cells=300,
                clip=True,
                drift=drift,
            )
            for epsilon in EPSILONS[:-1]:
                growth = math.exp(epsilon)
                truth = max(
                    np.maximum(p - growth * q, 0).sum(), np.maximum(q - growth * p, 0).sum()
                )
                assert truth <= profile.delta(epsilon) * (1 + 1e-6) + 1e-7
        assert profile.epsilon(1e-5) <= 1.05 * free.epsilon(1e-5)  # by another choice of groups

    def test_a_small_domain_bounds_long_runs(self):
        found = [
            HIDDEN_PARTICIPATIONS.profile(
                described(20, steps, 0.3, 1.0, "zero-out", domain=li.Ball(diameter=1.0))
            ).epsilon(1e-5)
            for steps in (10_000, 1_000_000)
        ]
        assert found[1] <= 1.01 * found[0]

    def test_noise_used_twice_would_be_false(self, monkeypatch):
        """The instance that refutes it: what the check of plans is for."""
        run = described(300, 6, 1.0, 1.0, "zero-out")
        honest = HIDDEN_PARTICIPATIONS.profile(run)
        true = LinearPlan.variance
        monkeypatch.setattr(LinearPlan, "variance", lambda self, group: 2.0 * true(self, group))
        claimed = HIDDEN_PARTICIPATIONS.profile(run)
        (truth,) = exact(0.3, np.ones(6), np.ones(6), np.zeros(6), 0.0, [0.5])
        assert claimed.delta(0.5) < truth <= honest.delta(0.5)


class TestTightness:
    def linear(self, share, ratio, steps, delta):
        """epsilon of Bin(steps, share) ratio + N(0, steps) against N(0, steps)."""
        from scipy.stats import binom

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
        run = described(size, steps, ratio, 1.0, "zero-out")
        truth = self.linear(size / EXAMPLES, ratio, steps, 1e-5)
        assert truth <= HIDDEN_PARTICIPATIONS.profile(run).epsilon(1e-5) <= 1.05 * truth

    def test_a_million_examples(self):
        """The least that any linear plan could cost is .141-GDP: an epsilon of .575."""
        run = li.TrainingRun(
            loss=li.Loss(smoothness=1.0, regulariser=1e-4),
            sensitivity=1.0,
            batches=li.PoissonSampled(1_000_000, 1_000),
            steps=100_000,
            step_size=1.0,
            noise_std=0.001,
            adjacency="zero-out",
        )
        profile = HIDDEN_PARTICIPATIONS.profile(run)
        least = math.sqrt(2 * 1e-6 / 1e-4)
        assert profile.epsilon(1e-6) < 1.07 * li.GaussianProfile(least).epsilon(1e-6)
        assert profile.epsilon(1e-12) < 1.1


class TestMonotonicity:
    """More penalty, noise or release noise, or fewer steps, up to the grid."""

    RUN = li.TrainingRun.from_dp_sgd(
        loss=li.Loss(smoothness=0.4, regulariser=1e-3, lipschitz=1.0),
        batches=li.PoissonSampled(50_000, 1_000),
        clip_norm=1.0,
        noise_multiplier=2.4,
        steps=2_000,
        step_size=4.0,
        adjacency="zero-out",
    )

    def decrease(self, runs):
        found = [HIDDEN_PARTICIPATIONS.profile(run).epsilon(1e-6) for run in runs]
        for before, after in pairwise(found):
            assert after <= 1.01 * before
        assert found[-1] < found[0] < math.inf

    def test_penalty(self):
        self.decrease(
            self.RUN.replace(loss=li.Loss(smoothness=0.4, regulariser=penalty, lipschitz=1.0))
            for penalty in (0.0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
        )

    @pytest.mark.slow
    def test_noise(self):
        noises = self.RUN.noise_std * np.geomspace(0.2, 5.0, 9)
        self.decrease(self.RUN.replace(noise_std=float(noise)) for noise in noises)

    @pytest.mark.slow
    def test_release_noise(self):
        released = 4.0 * self.RUN.noise_std * np.array([0.0, 0.3, 1.0, 2.0, 3.0, 10.0, 30.0, 100.0])
        self.decrease(self.RUN.replace(release_noise_std=float(rho)) for rho in released)

    def test_steps(self):
        self.decrease(self.RUN.replace(steps=s) for s in (20_000, 2_000, 200, 10, 1))


class TestCutBatches:
    """An example may displace another in a truncated batch: that is added to delta."""

    def run_(self, largest):
        return described(
            10, 5, 0.5, 0.9, "zero-out", batches=li.PoissonSampled(EXAMPLES, 10, largest)
        )

    def test_the_chance_of_a_cut_is_charged(self):
        from scipy.stats import binom

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
        run = described(10, 5, 1.0, 0.9, "replace")
        free = run.replace(loss=li.Loss(smoothness=run.loss.smoothness, regulariser=0.1))
        assert "gradients of any size" in str(HIDDEN_PARTICIPATIONS.unmet(free)[0])
        assert not HIDDEN_PARTICIPATIONS.unmet(run)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("ratio", [1e-300, 1e-6, 1e-2, 1e3, 1e160, 1e300])
@pytest.mark.parametrize("steps", [1, 1_000_000_000])
@pytest.mark.parametrize("examples, size", [(10_000_000, 1), (4, 2), (3, 3)])
def test_extremes_promise_little_or_nothing(examples, size, steps, ratio):
    for penalty in (0.0, 1e-12, 1.0) if steps > 1 else (0.5,):
        run = li.TrainingRun(
            loss=li.Loss(smoothness=penalty, regulariser=penalty),
            sensitivity=ratio,
            batches=li.PoissonSampled(examples, size),
            steps=steps,
            step_size=1.0,
            noise_std=1.0 / size,
            adjacency="zero-out",
        )
        profile = HIDDEN_PARTICIPATIONS.profile(run)
        found = [profile.epsilon(delta) for delta in (1e-3, 1e-6, 1e-12)]
        assert 0.0 <= found[0] <= found[1] <= found[2] <= math.inf
        if size == examples:  # all take part: at least as much as the last step alone
            assert found[1] >= 0.999 * li.GaussianProfile(min(ratio, 1e100)).epsilon(1e-6)

"""Short steps in a fixed order: numbers of usual runs, what they are not, and refusals."""

import dataclasses
import math

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.other_releases import Release
from lastiterate.profile import GaussianMixtureProfile
from tests.bounds.runs import described, short_run
from tests.reference.drifting_cone import largest_mu

BOUND = CATALOGUE["fixed-order/short-steps"]
LATE = CATALOGUE["fixed-order/convex"]
MANY = {
    "batches": li.Cyclic(examples=1_000_000, batch_size=10_000), "steps": 3_000, "noise": 4.0,
    "smoothness": 0.251, "regulariser": 1e-3,
}  # fmt: skip


def usual(adjacency="zero-out", **changes):
    return short_run(li.Cyclic, adjacency, **changes)


def certified_mu(profile):
    """mu, but for the probability that is charged beside it."""
    return float(profile.mus[0]) if isinstance(profile, GaussianMixtureProfile) else profile.mu


class TestTightness:
    """Half of what later shifts alone give, and close to what is certainly lost."""

    @pytest.mark.parametrize(
        "run, most",
        [
            (usual(**MANY), 0.62), (usual("replace", **MANY), 1.33), (usual(), 2.13),
            (usual("replace"), 4.67),
        ],
    )  # fmt: skip
    def test_of_usual_runs(self, run, most):
        report = li.account(run)
        assert report.lower.epsilon(1e-5) <= report.epsilon(1e-5) <= most
        assert report.bound == BOUND.id

    def test_many_outputs_cost_little(self):
        few, many = (li.account(usual(outputs=n)).epsilon(1e-5) for n in (1, 100))
        assert few < many < 1.02 * few


class TestIsNoGaussian:
    """delta_mu plus a probability: nothing may take it for mu-GDP."""

    def test_alone(self):
        profile = BOUND.profile(usual())
        assert isinstance(profile, GaussianMixtureProfile)
        assert profile.gdp() == math.inf
        assert profile.renyi(2.0) == math.inf
        assert profile.epsilon(profile.lost / 2) == math.inf
        assert 0.0 < profile.lost <= 1e-15

    def test_a_report_keeps_the_mu_of_later_shifts(self):
        report = li.account(usual())
        assert report.gdp() == LATE.profile(usual()).mu
        assert report.epsilon(1e-300) < math.inf
        assert report.renyi(2.0) == LATE.profile(usual()).renyi(2.0)

    def test_composition_charges_the_probability_twice(self):
        profile = BOUND.profile(usual())
        both = profile.compose(profile)
        mu = certified_mu(profile)
        exact = li.GaussianProfile(math.sqrt(2) * mu)
        assert both.gdp() == math.inf
        assert exact.epsilon(1e-5) <= both.epsilon(1e-5) <= exact.epsilon(1e-5) * 1.01
        assert both.delta(1e6) >= 2 * profile.lost * (1 - 1e-9)

    def test_other_releases_compose_with_it(self):
        release = Release("mean", sensitivity=2.0, noise_std=4.0)
        whole = li.account(usual(), bounds=BOUND.id, other_releases=[release])
        mu = math.hypot(certified_mu(BOUND.profile(usual())), 0.5)
        exact = li.GaussianProfile(mu).epsilon(1e-5)
        assert exact <= whole.epsilon(1e-5) <= exact * 1.01
        assert whole.gdp() == math.inf


class TestPersons:
    def test_plans_of_several_examples_are_superposed(self):
        one, three = (
            BOUND.profile(usual().replace(examples_per_person=k)).epsilon(1e-5) for k in (1, 3)
        )
        mu = certified_mu(BOUND.profile(usual()))
        least = li.GaussianProfile(3 * mu).epsilon(1e-5)
        assert one < least <= three <= 1.02 * least
        assert three <= LATE.profile(usual().replace(examples_per_person=3)).epsilon(1e-5)

    def test_their_changes_have_all_their_dimensions(self):
        """Three examples of 300 outputs each cost no less than three times one of 900."""
        persons = BOUND.profile(usual(outputs=300).replace(examples_per_person=3)).profiles[0]
        one = BOUND.profile(usual(outputs=900))
        assert certified_mu(persons) >= 3.0 * certified_mu(one)


class TestLimits:
    def test_two_examples_have_twice_the_dimensions_of_one(self):
        """Replaced by another, or left out with the same effect and twice the outputs."""
        free = {"lipschitz": None, "smoothness": 0.26, "regulariser": 0.01}
        run = usual("replace").replace(clip_norm=None, loss=li.Loss(**free, outputs=50))
        left_out = run.replace(adjacency="zero-out", loss=li.Loss(**free, outputs=100))
        assert certified_mu(BOUND.profile(run)) == certified_mu(BOUND.profile(left_out))
        fewer = run.replace(adjacency="zero-out")
        assert certified_mu(BOUND.profile(fewer)) < certified_mu(BOUND.profile(run))

    def test_long_steps_are_left_to_later_shifts(self):
        run = usual(step_size=4.0)
        assert any("1/smoothness" in one.needs for one in BOUND.unmet(run))

    def test_nothing_jumps_at_the_limit(self):
        run = usual(step_size=0.999999 / 0.26)
        assert li.account(run).epsilon(1e-5) == pytest.approx(
            LATE.profile(run).epsilon(1e-5), rel=1e-4
        )

    def test_full_batches_change_nothing(self):
        run = usual(batches=li.FullBatch(512), steps=300)
        assert BOUND.profile(run) == LATE.profile(run)

    def test_a_published_order_drawn_every_epoch_costs_no_less_than_a_fixed_one(self):
        drawn = short_run(li.ShuffledEachEpoch).replace(releases="last-iterate-and-order")
        assert (
            BOUND.profile(usual()).epsilon(1e-5)
            <= BOUND.profile(drawn).epsilon(1e-5) * (1 + 1e-6)
            <= LATE.profile(drawn).epsilon(1e-5)
        )

    def test_strong_convexity_of_the_losses_counts_as_their_change(self):
        """Only a penalty is the same for all examples."""
        own = usual(regulariser=0.0, strong_convexity=0.01)
        shared = usual()
        assert BOUND.profile(shared).epsilon(1e-5) < BOUND.profile(own).epsilon(1e-5)


class TestRefusals:
    @pytest.mark.parametrize(
        "run, word",
        [
            (usual(outputs=None), "Loss(outputs"),
            (usual().replace(domain=li.Ball(10.0)), "domain"),
            (usual(lipschitz=None), "clip"),
            (usual().replace(momentum=0.9), "momentum"),
            (usual().replace(releases="every-iterate"), "final model"),
            (usual().replace(noise_std=[1e-3] * 2_909 + [2e-3]), "fixed"),
            (usual().replace(average=li.ExponentialAverage(0.9)), "momentum"),
        ],
    )
    def test_what_it_does_not_cover(self, run, word):
        unmet = BOUND.unmet(run)
        assert any(word in one.remedy for one in unmet)

    def test_unknown_outputs_change_nothing(self):
        run = usual(outputs=None)
        assert li.account(run).epsilon(1e-5) == LATE.profile(run).epsilon(1e-5)

    @pytest.mark.parametrize("outputs", [0, -1, 1.5, math.nan, True, "1"])
    def test_outputs_are_counted(self, outputs):
        with pytest.raises((li.errors.InvalidParameter, li.errors.InvalidType), match="outputs"):
            li.Loss(smoothness=1.0, outputs=outputs)

    def test_outputs_are_kept_in_files(self):
        run = usual(outputs=10)
        assert li.TrainingRun.from_json(run.to_json()) == run
        assert li.TrainingRun.from_toml(run.to_toml()) == run
        unknown = dataclasses.replace(run.loss, outputs=None)
        assert "outputs" not in run.replace(loss=unknown).to_json()


def some_run(rng):
    """A run of equal steps, and of each of several orders the steps that see the example."""
    steps, batches = int(rng.integers(2, 41)), int(rng.integers(1, 42))
    size = int(rng.choice([1, 4, 32, 512]))
    length = float(10.0 ** rng.uniform(-2.0, -0.01))
    least = float(rng.choice([0.0, 10.0 ** rng.uniform(-4.0, 0.0) * length]))
    rule = [li.Cyclic, li.ShuffledOnce, li.ShuffledEachEpoch][rng.integers(3)]
    noise = 1.0 / (size * 10.0 ** rng.uniform(-1.0, 0.7))
    run = described(
        rule(batches * size + int(rng.integers(size)), size), steps, noise_std=noise,
        loss=li.Loss(smoothness=length, strong_convexity=least, outputs=1),
        release_noise_std=float(rng.choice([0.0, noise * rng.uniform(0.1, 3.0)])),
        adjacency=str(rng.choice(["replace", "zero-out"])), releases="last-iterate-and-order",
    )  # fmt: skip
    if rule is not li.ShuffledEachEpoch:
        return run, {at: np.arange(at, steps, batches) for at in range(min(batches, steps))}
    starts = np.arange(0, steps, batches)
    drawn = {k: starts + rng.integers(0, batches, starts.size) for k in range(4)}
    drawn[4] = np.minimum(starts + batches - 1, steps - 1)  # at the ends of epochs
    left_over = run.batches.examples % size > 0
    seen = {k: one[rng.random(one.size) < (0.8 if left_over else 1.0)] for k, one in drawn.items()}
    return run, {k: one[one < steps] for k, one in seen.items()}


def exact_mu(run, seen):
    """mu of the most exposed instance that has constant changes; release noise is a step."""
    sensitivities, noise = np.zeros(run.steps + 1), np.full(run.steps + 1, run.noise_std)
    sensitivities[seen] = 1.0 / run.batches.batch_size
    low, high = np.ones((2, run.steps + 1))
    low[:-1], high[:-1] = 1.0 - run.loss.smoothness, 1.0 - run.loss.strong_convexity
    noise[-1] = run.release_noise_std
    if noise[-1] == 0.0:
        sensitivities, noise = sensitivities[:-1], noise[:-1]
    return largest_mu(sensitivities, noise, low, high)


class TestExactInstances:
    """No linear instance leaks more: any position, cut epochs, examples left over, release."""

    def test_at_any_position_of_any_order(self):
        rng, attained, early = np.random.default_rng(0), 0.0, 0
        for _ in range(100):
            run, orders = some_run(rng)
            worst, by_position = BOUND.profile(run), BOUND.positions(run)
            early += isinstance(worst, GaussianMixtureProfile)
            for position, seen in orders.items():
                mu = exact_mu(run, seen)
                each = run.batches.period is None
                for profile in (worst, worst if each else by_position[position]):
                    attained = max(attained, mu / certified_mu(profile))
        assert 0.999 < attained <= 1.0 + 1e-12
        assert early > 25

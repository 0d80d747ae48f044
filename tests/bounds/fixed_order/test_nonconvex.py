"""Steps that may expand: the moduli are true, and the best of them is used."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf

import lastiterate as li
from lastiterate.bounds.fixed_order.nonconvex import moduli as moduli_of
from tests.bounds.runs import described, dp_sgd
from tests.reference.chien_li import gdp_smooth
from tests.reference.quadratics import gdp_of_autoregression

CLIPPED = {"clip_norm": 1.0, "step_size": 0.05, "adjacency": "replace"}
RUN = dp_sgd(
    li.Cyclic(60, 10), 60, noise=3.0, loss=li.Loss(smoothness=5.0, convex=False), **CLIPPED
)


def last_iterate(run):
    return li.account(run, bounds="fixed-order/non-convex").gdp()


def clip(vectors, norm):
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors * np.minimum(1.0, norm / np.maximum(lengths, 1e-300))


class Quadratics:
    """Random quadratic losses in the plane, curvatures within [low, smoothness]."""

    def __init__(self, rng, count, low, smoothness):
        angles = rng.uniform(0, math.pi, count)
        axes = np.stack([np.cos(angles), np.sin(angles)], -1)
        between = rng.uniform(low, smoothness, (count, 2))
        bends = np.choose(rng.integers(3, size=(count, 2)), [low, smoothness, between])
        other = np.stack([-axes[:, 1], axes[:, 0]], -1)
        self.hessians = bends[:, :1, None] * axes[:, :, None] * axes[:, None, :]
        self.hessians = self.hessians + bends[:, 1:, None] * other[:, :, None] * other[:, None, :]
        self.centres = rng.normal(size=(count, 2))

    def gradients(self, x):
        return np.einsum("nij,nj->ni", self.hessians, x - self.centres)


class TestModuliAreTrue:
    """No pair of points is driven farther apart than the modulus says."""

    @pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
    @pytest.mark.parametrize("convex", [True, False])
    @pytest.mark.parametrize("regulariser", [0.0, 0.5, 15.0, 25.0])
    def test_clipped_mini_batches(self, adjacency, convex, regulariser):
        rng = np.random.default_rng(0)
        size, smoothness, eta = 3, 8.0, 0.05
        loss = li.Loss(smoothness=smoothness + regulariser, convex=convex, regulariser=regulariser)
        run = dp_sgd(li.Cyclic(6, size), 2, loss=loss, step_size=eta, adjacency=adjacency)
        moduli = moduli_of(run, np.array([1]), 2)  # the second step has the differing example
        low, pairs = (0.0 if convex else -smoothness), 2000
        losses, others = (Quadratics(rng, pairs * size, low, smoothness) for _ in range(2))
        x = rng.normal(size=(pairs, 2)) * 10 ** rng.uniform(-2, 1, (pairs, 1))
        y = x + rng.normal(size=(pairs, 2)) * 10 ** rng.uniform(-4, 1, (pairs, 1))

        def clipped(of, at):
            return clip(of.gradients(at.repeat(size, axis=0)), 1.0).reshape(pairs, size, 2)

        def step(at, changed):
            gradients = clipped(losses, at)
            if changed:
                gradients[:, 0] = clipped(others, at)[:, 0] if adjacency == "replace" else 0.0
            return (1 - eta * regulariser) * at - eta * gradients.mean(axis=1)

        before = np.linalg.norm(x - y, axis=1, keepdims=True)
        most = eta * moduli(np.repeat(before / eta, 3, axis=1))  # it is in step sizes
        for changed in (False, True):
            after = np.linalg.norm(step(x, False) - step(y, changed), axis=1)
            assert np.all(after <= most[:, int(changed)] * (1 + 1e-9))

    @pytest.mark.parametrize("adjacency, factor", [("replace", 2.0), ("zero-out", 1.0)])
    @pytest.mark.parametrize("eta", [0.05, 0.3, 0.5])
    def test_cover_the_worst_cases(self, adjacency, factor, eta):
        loss = li.Loss(smoothness=8.0)
        run = dp_sgd(li.Cyclic(6, 3), 2, loss=loss, step_size=eta, adjacency=adjacency)
        moduli = moduli_of(run, np.array([1]), 2)
        unit = eta  # distances are measured in step sizes
        # Opposite gradients (or one and none) at the same point.
        assert moduli(np.zeros(3))[1] * unit >= eta * factor / 3
        # The Jacobian that attains the constant of a clipped step, at points close together.
        slope = 1 / math.sqrt(1 - eta * 8.0 / 4) if eta * 8.0 <= 3 else eta * 8.0 - 1
        assert moduli(np.full(3, 1e-9))[0] >= slope * 1e-9 * (1 - 1e-9)

    def test_a_smaller_share_of_curvature_is_refused_where_batches_vary_in_size(self):
        run = described(li.PoissonSampled(20, 4), 4, loss=li.Loss(smoothness=3.0, lipschitz=0.5))
        moduli_of(run, np.empty(0, dtype=int), 4)
        with pytest.raises(AssertionError, match="PoissonSampled"):
            moduli_of(run, np.arange(4), 4)


class TestTightness:
    def test_full_batch_is_never_above_chien_li(self):
        # Their Figure 1: K 2, sigma 1, D 1, n 5, eta .1, smoothness 1.
        for steps in (5, 20, 60, 200):
            run = described(
                li.FullBatch(5), steps, loss=li.Loss(smoothness=1.0, convex=False), clip_norm=2.0,
                sensitivity=4.0, step_size=0.1, noise_std=10.0, domain=li.Ball(1.0),
            )  # fmt: skip
            theirs = gdp_smooth(T=steps, eta=0.1, K=2.0, n=5, sigma=1.0, D=1.0, c=1.1)
            assert last_iterate(run) <= theirs * (1 + 1e-9)

    def test_knowing_more_never_hurts(self):
        smooth = last_iterate(RUN)
        hoelder = li.Loss(smoothness=5.0, convex=False, holder=(2.0, 0.5))
        assert last_iterate(RUN.replace(loss=hoelder)) <= smooth * (1 + 1e-9)
        assert last_iterate(RUN.replace(loss=li.Loss(smoothness=5.0))) < smooth
        assert last_iterate(RUN.replace(domain=li.Ball(0.1))) <= smooth * (1 + 1e-9)
        # The same loss with a penalty added.
        shrunk = li.Loss(smoothness=6.0, convex=False, regulariser=1.0)
        assert last_iterate(RUN.replace(loss=shrunk)) < smooth

    def test_a_clip_that_is_never_active_keeps_the_contraction(self):
        run = RUN.replace(loss=li.Loss(smoothness=5.0, lipschitz=1.0))
        assert "fixed-order/convex" in li.account(run).all
        active = RUN.replace(loss=li.Loss(smoothness=5.0, lipschitz=1.1))
        unmet = li.account(active).unmet["fixed-order/convex"]
        assert "clip_norm=1.0 with loss.lipschitz=1.1" in unmet[0].found

    def test_only_a_gradient_bound_is_known(self):
        run = RUN.replace(loss=li.Loss(convex=False), domain=li.Ball(1e-3), steps=10**6)
        report = li.account(run)
        assert report.bound == "fixed-order/non-convex"
        # All that is left of the past is the diameter and what the last step may add to it.
        noise = 0.05 * 0.3
        assert report.gdp() <= (1e-3 + 2 * 0.05) / noise * (1 + 1e-9)

    def test_nothing_is_known(self):
        run = RUN.replace(loss=li.Loss(convex=False), clip_norm=None)
        report = li.account(run)
        assert report.bound == "composition/fixed-order"
        assert "found none of them" in str(report.unmet["fixed-order/non-convex"][0])


def full(steps, smoothness, regulariser=0.0, batches=None, **changes):
    loss = li.Loss(smoothness=smoothness, convex=False, regulariser=regulariser)
    return described(batches or li.FullBatch(1), steps, loss=loss, **changes)


class TestExactInstances:
    """Losses that the hypotheses allow, solved exactly."""

    def test_a_concave_loss_with_a_regulariser(self):
        # f = -x^2 without the regulariser: smoothness 2 + 1 with it; the step doubles less a half.
        run = full(30, 3.0, 1.0, step_size=0.5, noise_std=0.0, release_noise_std=1.0)
        growth = 1 - 0.5 * (-2.0 + 1.0)
        exact = 0.5 * sum(growth**k for k in range(30))
        assert exact <= last_iterate(run) <= exact * (1 + 1e-9)

    @pytest.mark.parametrize("eta", [0.05, 1.0])
    @pytest.mark.parametrize("batches, epochs", [(60, 50), (1000, 20)])
    def test_rare_participations_in_a_strongly_expanding_run(self, eta, batches, epochs):
        # What happens after a participation cannot hide it better than noise that does not expand.
        run = full(batches * epochs, 1.0, batches=li.Cyclic(batches, 1), step_size=eta)
        # In the last step nothing has been hidden yet.
        assert last_iterate(run) >= 1.0
        c = 1 + eta
        alone = (1 - c**-2.0) / (1 - c ** (-2.0 * batches))
        expected = math.sqrt(1 + (epochs - 1) * alone)
        assert last_iterate(run) == pytest.approx(expected, rel=1e-9)

    def test_a_regulariser_that_nearly_annihilates(self):
        run = full(2, 0.7, 0.7, step_size=[1e21, 1 / 0.7], noise_std=[1e-3, 1.0])
        with mp.workdps(60):
            contraction = abs(1 - mpf(1 / 0.7) * mpf(0.7))
        exact = gdp_of_autoregression(
            contractions=[0, contraction],
            shifts=[mpf(10) ** 21, mpf(1 / 0.7)],
            noise_stds=[mpf(10) ** 18, mpf(1 / 0.7)],
        )
        assert last_iterate(run) >= exact

    def test_a_regulariser_that_overshoots(self):
        run = full(300_000, 1.0, 1.0, step_size=1.5)
        assert last_iterate(run) == pytest.approx(math.sqrt(1.5 / 0.5), rel=1e-9)

    @pytest.mark.parametrize("eta", [1.9, 2.0, 2.5, 3.0, 3.5])
    def test_long_clipped_convex_steps(self, eta):
        run = described(
            li.FullBatch(1), 2, sensitivity=2.0, clip_norm=1.0, step_size=eta, noise_std=1e-6,
            release_noise_std=1e6,
        )  # fmt: skip
        slope = 1 / math.sqrt(1 - eta / 4) if eta <= 3 else eta - 1
        arriving = 2.0 * eta
        # One arrival grown by a step, and another; all of it hidden by the release.
        grown = min(arriving * slope, arriving + 2 * eta) + arriving
        assert last_iterate(run) <= grown / 1e6 * (1 + 1e-6)


class TestLongRuns:
    def test_endless_in_a_bounded_domain(self):
        run = RUN.replace(domain=li.Ball(0.1))
        endless = last_iterate(run.replace(steps=10**12))
        assert endless == pytest.approx(last_iterate(run.replace(steps=10**5)), rel=1e-6)

    def test_endless_without_a_domain_grows_like_composition_but_below(self):
        run = RUN.replace(steps=10**12)
        report = li.account(run)
        assert (
            report.all["fixed-order/non-convex"].gdp() < report.all["composition/fixed-order"].gdp()
        )

    def test_positions_with_noise_on_release(self):
        # Expansion before the release: an early participation can be the most exposed.
        run = RUN.replace(noise_std=0.0, release_noise_std=1.0, steps=12, clip_norm=None)
        mus = [profile.gdp() for profile in li.account(run).by_position()]
        assert mus.index(max(mus)) == 0
        assert last_iterate(run) == pytest.approx(max(mus), rel=1e-9)

"""Contracting runs: schedules, orders and positions that must agree, and where they stop."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

import lastiterate as li
from tests.reference.quadratics import gdp_of_autoregression

RUN = li.TrainingRun(
    loss=li.Loss(smoothness=8.0, strong_convexity=0.5), sensitivity=2.0,
    batches=li.Cyclic(60, 10), steps=33, step_size=0.1, noise_std=1.0,
)  # fmt: skip
variants = st.fixed_dictionaries(
    {
        "steps": st.integers(1, 60),
        "release_noise_std": st.sampled_from([0.0, 0.01, 0.3, 3.0]),
        "domain": st.sampled_from([li.Unbounded(), li.Ball(0.02), li.Ball(0.5)]),
        "batches": st.sampled_from([li.FullBatch(60), li.Cyclic(60, 10), li.ShuffledOnce(60, 7)]),
        "loss": st.sampled_from(
            [li.Loss(smoothness=8.0), RUN.loss, li.Loss(smoothness=19.9, strong_convexity=1e-3)]
        ),
    }
)


def last_iterate(run):
    return li.account(run, bounds="fixed-order").gdp()


class TestAgreement:
    @settings(max_examples=50)
    @given(variants)
    def test_a_constant_schedule_written_out_is_the_same_run(self, variant):
        run = RUN.replace(**variant)
        written = run.replace(step_size=[run.step_size] * run.steps)
        assert last_iterate(written) == pytest.approx(last_iterate(run), rel=1e-9)

    @settings(max_examples=50)
    @given(variants)
    def test_a_fixed_order_that_is_cyclic_is_cyclic(self, variant):
        run = RUN.replace(**variant)
        period = 1 if isinstance(run.batches, li.FullBatch) else run.batches.batches_per_epoch
        seen = range((run.steps - 1) % period + 1, run.steps + 1, period)
        order = li.FixedOrder(60, run.batches.batch_size, seen)
        assert last_iterate(run.replace(batches=order)) == pytest.approx(
            last_iterate(run), rel=1e-9
        )

    @settings(max_examples=50)
    @given(variants, st.integers(0, 10**6))
    def test_idle_steps_rolled_up_are_the_steps_themselves(self, variant, seed):
        run = RUN.replace(**variant)
        rng = np.random.default_rng(seed)
        seen = np.flatnonzero(rng.random(run.steps) < 0.2) + 1
        run = run.replace(batches=li.FixedOrder(60, 10, seen.tolist()))
        written = run.replace(noise_std=[run.noise_std] * run.steps)
        assert last_iterate(written) == pytest.approx(last_iterate(run), rel=1e-9, abs=1e-140)

    def test_positions_are_those_of_fixed_orders(self):
        by_position = li.account(RUN).by_position()
        assert len(by_position) == 6
        for position, profile in enumerate(by_position, start=1):
            order = li.FixedOrder(60, 10, range(position, RUN.steps + 1, 6))
            assert profile.gdp() == pytest.approx(
                last_iterate(RUN.replace(batches=order)), rel=1e-9
            )

    def test_full_batches_and_composition_have_one_for_all(self):
        assert len(li.account(RUN.replace(batches=li.FullBatch(60))).by_position()) == 1
        report = li.account(RUN.replace(releases="every-iterate"))
        assert [p.gdp() for p in report.by_position()] == [report.gdp()]


class TestTightness:
    @given(st.floats(0.01, 1.0), st.integers(1, 30))
    def test_attained_by_a_quadratic_for_full_batches(self, share, steps):
        run = RUN.replace(batches=li.FullBatch(60), steps=steps, step_size=share * 2 / (8.0 + 0.5))
        with mp.workdps(60):
            contraction = 1 - mpf(run.step_size) * mpf("0.5")
        exact = gdp_of_autoregression(
            contractions=[contraction] * steps,
            shifts=[mpf(run.step_size) * 2 / 60] * steps,
            noise_stds=[run.step_size] * steps,
        )
        assert exact * (1 - mpf(10) ** -15) <= last_iterate(run) <= exact * (1 + 1e-12)

    def test_a_schedule_is_charged_at_its_worst_position(self):
        # A large first step makes the first position more exposed than those in the middle.
        run = RUN.replace(
            loss=li.Loss(smoothness=8.0),
            batches=li.Cyclic(5, 1),
            steps=5,
            step_size=[0.2, 0.02, 0.02, 0.02, 0.02],
        )
        mus = [profile.gdp() for profile in li.account(run).by_position()]
        assert max(mus) == pytest.approx(last_iterate(run), rel=1e-9)
        assert mus[0] > max(mus[1:4])


class TestOutputPerturbation:
    def test_without_noise_in_training_the_distance_is_left_for_the_release(self):
        run = RUN.replace(noise_std=0.0, release_noise_std=0.5, batches=li.FullBatch(60), steps=3)
        c, s = 1 - 0.05, 0.1 * 2 / 60
        report = li.account(run)
        assert report.gdp() == pytest.approx(s * (1 + c + c * c) / 0.5, rel=1e-12)
        assert "composition/fixed-order" in report.unmet

        run = run.replace(domain=li.Ball(1e-3), steps=1000)  # caps it
        assert last_iterate(run) == pytest.approx(1e-3 / 0.5, rel=1e-9)

    def test_some_silent_steps(self):
        run = RUN.replace(noise_std=[1.0] * 32 + [0.0], release_noise_std=1e-6)
        assert 1e3 < last_iterate(run) < math.inf


class TestTheEdgeOfContraction:
    """eta M exactly 2 is covered, an ulp beyond is not; both in exact arithmetic."""

    def test_at_the_edge_and_an_ulp_beyond(self):
        run = RUN.replace(loss=li.Loss(smoothness=8.0), step_size=0.25)
        assert "fixed-order/convex" in li.account(run).all
        run = run.replace(step_size=math.nextafter(0.25, 1.0))
        unmet = li.account(run).unmet["fixed-order/convex"]
        assert [reason.needs for reason in unmet] == ["step_size <= 2/smoothness in every step"]
        assert "fixed-order/non-convex" in li.account(run).all

    @given(st.floats(1e-3, 1e3), st.integers(-3, 3))
    def test_decided_without_rounding(self, smoothness, ulps):
        eta = 2 / smoothness
        for _ in range(abs(ulps)):
            eta = math.nextafter(eta, math.inf if ulps > 0 else 0.0)
        run = RUN.replace(loss=li.Loss(smoothness=smoothness), step_size=eta)
        with mp.workdps(60):
            short = mpf(eta) * mpf(smoothness) <= 2
        assert ("fixed-order/convex" in li.account(run).all) == short

    @given(st.floats(1e-3, 1e3), st.integers(1, 2000))
    def test_where_a_step_barely_contracts(self, smoothness, steps):
        # A float64 subtraction would put 1 - c too high here.
        eta = math.nextafter(2 / smoothness, 0.0)
        loss = li.Loss(smoothness=smoothness, strong_convexity=smoothness)
        run = RUN.replace(loss=loss, batches=li.FullBatch(60), step_size=eta, steps=steps)
        if "fixed-order/convex" not in li.account(run).all:
            return
        with mp.workdps(60):
            contraction = abs(1 - mpf(eta) * mpf(smoothness))
            shift = mpf(eta) * 2 / 60
        exact = gdp_of_autoregression(
            contractions=[contraction] * steps, shifts=[shift] * steps, noise_stds=[eta] * steps
        )
        assert last_iterate(run) >= exact


class TestScales:
    @pytest.mark.parametrize("scale", [1e-200, 1e-100, 1e100, 1e200])
    @pytest.mark.parametrize("name", ["constant", "schedule"])
    def test_only_ratios_matter(self, scale, name):
        run = RUN.replace(release_noise_std=0.1, domain=li.Ball(0.5))
        scaled = run.replace(
            loss=li.Loss(smoothness=8.0 / scale, strong_convexity=0.5 / scale),
            step_size=run.step_size * scale, release_noise_std=0.1 * scale,
            domain=li.Ball(0.5 * scale),
        )  # fmt: skip
        if name == "schedule":
            scaled = scaled.replace(step_size=[scaled.step_size] * run.steps)
        assert last_iterate(scaled) == pytest.approx(last_iterate(run), rel=1e-3)

    @pytest.mark.parametrize("scale", [5e-324, 1e-200, 1e200])
    def test_sensitivity_over_noise(self, scale):
        run = RUN.replace(sensitivity=2 * scale, noise_std=1.0 * scale)
        assert li.account(run).gdp() >= last_iterate(RUN) * (1 - 1e-9) * (scale > 1e-300)
        assert li.account(run).gdp() > 0.0


class TestLongRuns:
    def test_a_participation_after_an_age(self):
        run = RUN.replace(
            loss=li.Loss(smoothness=1.0, strong_convexity=0.1),
            step_size=1.0,
            batches=li.FixedOrder(10, 1, (1, 10001, 10701)),
            steps=11401,
        )
        assert 0.0 < li.account(run).gdp() < 1e-20

    @pytest.mark.parametrize("steps", [10**3, 10**6, 10**9, 10**12])
    def test_converges_where_losses_curve(self, steps):
        mu = last_iterate(RUN.replace(steps=steps))
        assert mu == pytest.approx(last_iterate(RUN.replace(steps=10**13)), rel=1e-9)

    def test_no_participation_no_loss(self):
        run = RUN.replace(batches=li.FixedOrder(60, 10, []))
        assert li.account(run).gdp() == 0.0
        assert li.account(run).epsilon(0.0) == 0.0

    def test_fewer_steps_than_batches(self):
        run = RUN.replace(steps=4)
        assert last_iterate(run) == pytest.approx(2.0 / 10, rel=1e-12)
        assert len(li.account(run).by_position()) == 4

"""Closed forms for constant schedules: are they the optimum that the arrays give?"""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from lastiterate.shifts.optimal_shifts import optimal_shifts
from lastiterate.shifts.periodic import PeriodicRun, periodic_mu
from tests.reference.periodic import gdp_of_periodic_run
from tests.reference.quadratics import (
    stated_gdp_cyclic_strongly_convex,
    stated_gdp_full_batch_strongly_convex,
)
from tests.shifts.strategies import written_out

powers = st.floats(-6, 0).map(lambda x: 10.0**x)
gaps = st.one_of(
    st.just(0.0),
    st.just(1.0),
    powers,
    st.floats(0, 1),
    powers.map(lambda x: 1 - x),
    powers.map(lambda x: -x),
)


@st.composite
def runs(draw, gaps=gaps):
    noise, release = draw(
        st.sampled_from([(1.0, 0.0), (1.0, 0.1), (1.0, 10.0), (0.0, 1.0), (1e-3, 1.0)])
    )
    return PeriodicRun(
        gap=draw(gaps),
        sensitivity=10 ** draw(st.floats(-2, 1)),
        noise=noise,
        period=draw(st.integers(1, 9)),
        participations=draw(st.integers(0, 30)),
        tail=draw(st.integers(0, 12)),
        release_noise=release,
    )


class TestEqualsTheArrays:
    @given(runs(), st.integers(0, 5))
    def test_without_a_cap(self, run, idle):
        if run.participations == 0:
            assert periodic_mu(run) == 0.0
            return
        mu = optimal_shifts(**written_out(run, idle)).mu
        assert periodic_mu(run) == pytest.approx(mu, rel=1e-10, abs=1e-140)

    @given(runs(gaps.filter(lambda gap: gap >= 0)), st.floats(-3, 3).map(lambda x: 10.0**x))
    def test_with_a_cap(self, run, diameter):
        run = replace(run, participations=run.participations + 1)
        mu = optimal_shifts(**written_out(run, 1), diameter=diameter).mu
        assert periodic_mu(run, diameter=diameter) == pytest.approx(mu, rel=1e-9, abs=1e-140)

    @given(
        st.floats(0.001, 3.0),
        st.integers(1, 3000),
        st.integers(1, 40),
        st.integers(0, 3000),
        st.sampled_from([0.0, 1.0, 1e6, 1e30]),
    )
    def test_expanding_far_beyond_a_float(self, log_c, period, participations, tail, release):
        run = PeriodicRun(
            gap=-math.expm1(log_c),
            sensitivity=1.0,
            noise=1.0,
            period=period,
            participations=participations,
            tail=tail,
            release_noise=release,
        )
        exact = gdp_of_periodic_run(
            gap=run.gap,
            period=period,
            participations=participations,
            tail=tail,
            release_noise=release,
        )
        assert exact * (1 - mpf(10) ** -14) <= periodic_mu(run) <= exact * (1 + 1e-9)


class TestExtremes:
    """Only ratios matter, whatever the scale."""

    @pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e-160, 1e160, 1e200, 1e300])
    @pytest.mark.parametrize("gap", [0.1, 0.0, -0.1])
    def test_all_scales_are_alike(self, scale, gap):
        shape = {"gap": gap, "period": 3, "participations": 4, "tail": 1}
        run = PeriodicRun(**shape, sensitivity=1.0, noise=2.0, release_noise=1.0)
        tiny = PeriodicRun(**shape, sensitivity=scale, noise=2 * scale, release_noise=scale)
        assert periodic_mu(tiny) == pytest.approx(
            periodic_mu(run), rel=1e-3 if scale < 1e-307 else 1e-12
        )

    def test_what_overflows_is_infinite(self):
        run = PeriodicRun(
            gap=-1.0,
            sensitivity=1e-200,
            noise=0.0,
            period=1,
            participations=5000,
            tail=0,
            release_noise=1.0,
        )
        assert periodic_mu(run) == math.inf

    def test_without_any_noise_nothing_is_promised(self):
        run = PeriodicRun(gap=0.5, sensitivity=1.0, noise=0.0, period=1, participations=1, tail=0)
        assert periodic_mu(run) == math.inf


class TestEqualsTheTheorems:
    @given(powers, st.integers(1, 10**7))
    def test_full_batch(self, gap, steps):
        run = PeriodicRun(
            gap=gap, sensitivity=0.1, noise=1.0, period=1, participations=steps, tail=0
        )
        stated = stated_gdp_full_batch_strongly_convex(
            steps=steps, contraction=_contraction(gap), examples=1, noise_std=1.0, sensitivity=0.1
        )
        assert stated <= periodic_mu(run) <= stated * (1 + 1e-11)

    @given(powers, st.integers(1, 10**5), st.integers(2, 100))
    def test_cyclic(self, gap, epochs, batches):
        run = PeriodicRun(
            gap=gap, sensitivity=0.1, noise=1.0, period=batches, participations=epochs, tail=0
        )
        stated = stated_gdp_cyclic_strongly_convex(
            epochs=epochs,
            batches=batches,
            contraction=_contraction(gap),
            batch_size=1,
            noise_std=1.0,
            sensitivity=0.1,
        )
        assert stated <= periodic_mu(run) <= stated * (1 + 1e-11)


class TestLimits:
    ENDLESS = PeriodicRun(
        gap=1e-6, sensitivity=1.0, noise=1.0, period=1, participations=10**12, tail=0
    )

    def test_endless_contraction_converges(self):
        expected = math.sqrt((2 - 1e-6) / 1e-6)
        assert periodic_mu(self.ENDLESS) == pytest.approx(expected, rel=1e-12)

    def test_endless_expansion_is_composition(self):
        run = replace(self.ENDLESS, gap=-1e-3)
        assert periodic_mu(run) == pytest.approx(1e6, rel=1e-12)

    def test_an_endless_run_in_a_bounded_domain_uses_the_best_window(self):
        run = replace(self.ENDLESS, gap=0.0)
        assert periodic_mu(run, diameter=100.0) == pytest.approx(20.0, rel=1e-12)

    def test_a_gap_too_small_for_1_minus_it(self):
        run = replace(self.ENDLESS, gap=1e-18, participations=4 * 10**8)
        assert periodic_mu(run) == pytest.approx(2e4, rel=1e-9)

    def test_without_noise_the_whole_distance_is_left_for_the_release(self):
        run = replace(self.ENDLESS, gap=0.5, noise=0.0, release_noise=4.0, participations=3)
        assert periodic_mu(run) == pytest.approx((1 + 0.5 + 0.25) / 4, rel=1e-13)


class TestMonotonicity:
    @given(runs())
    def test_more_participations_never_less_loss(self, run):
        more = replace(run, participations=run.participations + 1)
        assert periodic_mu(more) >= periodic_mu(run) * (1 - 1e-10)

    @given(runs(gaps.filter(lambda gap: gap >= 0)))
    def test_steps_after_the_last_participation_never_hurt(self, run):
        assert periodic_mu(replace(run, tail=run.tail + 1)) <= periodic_mu(run) * (1 + 1e-10)

    @given(runs())
    def test_noise_on_release_never_hurts(self, run):
        if run.noise > 0:
            assert periodic_mu(run) <= periodic_mu(replace(run, release_noise=0.0)) * (1 + 1e-10)


def _contraction(gap):
    with mp.workdps(60):
        return 1 - mpf(gap)

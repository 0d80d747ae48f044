"""Closed forms for constant schedules: are they the optimum that the arrays give?"""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from lastiterate.engine.periodic import PeriodicRun, periodic_mu
from lastiterate.engine.shifts import optimal_shifts
from tests.engine.strategies import written_out
from tests.reference.quadratics import (
    stated_gdp_cyclic_strongly_convex,
    stated_gdp_full_batch_strongly_convex,
)

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
        assert periodic_mu(run) == pytest.approx(mu, rel=1e-10, abs=1e-200)

    @given(runs(gaps.filter(lambda gap: gap >= 0)), st.floats(-3, 3).map(lambda x: 10.0**x))
    def test_with_a_cap(self, run, diameter):
        run = replace(run, participations=run.participations + 1)
        mu = optimal_shifts(**written_out(run, 1), diameter=diameter).mu
        assert periodic_mu(run, diameter=diameter) == pytest.approx(mu, rel=1e-9, abs=1e-200)


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

    def test_an_endless_run_in_a_bounded_domain_pays_for_the_best_window(self):
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

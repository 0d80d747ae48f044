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
        gap=draw(gaps), sensitivity=10 ** draw(st.floats(-2, 1)), noise=noise,
        period=draw(st.integers(1, 9)), participations=draw(st.integers(0, 30)),
        tail=draw(st.integers(0, 12)), release_noise=release,
    )  # fmt: skip


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
        shape = {
            "gap": -math.expm1(log_c), "period": period, "participations": participations,
            "tail": tail, "release_noise": release,
        }  # fmt: skip
        run, exact = PeriodicRun(**shape, sensitivity=1.0, noise=1.0), gdp_of_periodic_run(**shape)
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

    def test_what_overflows_or_has_no_noise_is_infinite(self):
        run = PeriodicRun(gap=0.5, sensitivity=1.0, noise=0.0, period=1, participations=1, tail=0)
        assert periodic_mu(run) == math.inf
        far = replace(run, gap=-1.0, sensitivity=1e-200, participations=5000, release_noise=1.0)
        assert periodic_mu(far) == math.inf


STATED = {"noise_std": 1.0, "sensitivity": 0.1}


class TestEqualsTheTheorems:
    def compare(self, stated, gap, **counts):
        mu = periodic_mu(PeriodicRun(gap=gap, sensitivity=0.1, noise=1.0, tail=0, **counts))
        assert stated <= mu <= stated * (1 + 1e-11)

    @given(powers, st.integers(1, 10**7))
    def test_full_batch(self, gap, steps):
        stated = stated_gdp_full_batch_strongly_convex(
            steps=steps, contraction=_contraction(gap), examples=1, **STATED
        )
        self.compare(stated, gap, period=1, participations=steps)

    @given(powers, st.integers(1, 10**5), st.integers(2, 100))
    def test_cyclic(self, gap, epochs, batches):
        stated = stated_gdp_cyclic_strongly_convex(
            epochs=epochs, batches=batches, contraction=_contraction(gap), batch_size=1,
            **STATED,
        )  # fmt: skip
        self.compare(stated, gap, period=batches, participations=epochs)


ENDLESS = PeriodicRun(gap=1e-6, sensitivity=1.0, noise=1.0, period=1, participations=10**12, tail=0)


@pytest.mark.parametrize(
    "changes, diameter, expected, rel",
    [
        ({}, math.inf, math.sqrt((2 - 1e-6) / 1e-6), 1e-12),  # contraction converges
        ({"gap": -1e-3}, math.inf, 1e6, 1e-12),  # expansion is composition
        ({"gap": 0.0}, 100.0, 20.0, 1e-12),  # a bounded domain has a best window
        # 1 minus the gap is 1, and without noise all distance is left for the release.
        ({"gap": 1e-18, "participations": 4 * 10**8}, math.inf, 2e4, 1e-9),
        (
            {"gap": 0.5, "noise": 0.0, "release_noise": 4.0, "participations": 3},
            math.inf, (1 + 0.5 + 0.25) / 4, 1e-13,
        ),
    ],
)  # fmt: skip
def test_endless_runs(changes, diameter, expected, rel):
    found = periodic_mu(replace(ENDLESS, **changes), diameter=diameter)
    assert found == pytest.approx(expected, rel=rel)


def _contraction(gap):
    with mp.workdps(60):
        return 1 - mpf(gap)

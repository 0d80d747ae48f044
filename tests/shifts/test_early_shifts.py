"""Early shifts: plans written out by the letter, exact instances, and versions that are false."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lastiterate.profile import GaussianMixtureProfile, GaussianProfile
from lastiterate.shifts.early_shifts import FAILURE, ShortSteps, early_mus
from lastiterate.shifts.patterns import Participations, Spent, mus_of_few
from tests.reference import early_shifts as reference
from tests.reference.grid import exact_pair
from tests.reference.instances import Instance, PiecewiseLinear, Step, linear_map
from tests.reference.shifts import gdp_of_linear_shifts

LAST = [Participations(0)]


def short(steps, **changes):
    usual = {"gap": 0.005, "curvature": 0.13, "ratio": 1.0, "drift": 2e-4, "dimension": 1}
    return ShortSteps(steps=steps, **usual | changes)


@st.composite
def regimes(draw):
    """All but the number of steps."""
    curvature = draw(st.sampled_from([0.01, 0.05, 0.13, 0.5, 0.9, 0.999]))
    return {
        "curvature": curvature,
        "gap": curvature * draw(st.sampled_from([0.0, 0.01, 0.5, 1.0])),
        "drift": draw(st.sampled_from([0.0, 1e-5, 1e-3, 0.02])),
        "ratio": draw(st.sampled_from([0.1, 1.0, 5.0])),
        "dimension": draw(st.sampled_from([1, 20])),
    }


def mu_of(steps, participations, **options):
    return float(early_mus(steps, participations, **options))


def late_mu(steps, participations, **options):
    return steps.ratio * float(mus_of_few(gap=steps.gap, participations=participations, **options))


def shape_of(run, participation, found):
    """What plans are written with; R is for shifts that add up to what was found."""
    radius = math.sqrt(run.dimension) + math.sqrt(2 * math.log(run.steps / run.failure)) + found
    return {
        "steps": run.steps, "sensitivity": run.ratio, "participation": participation,
        "low": 1 - run.curvature, "high": 1 - run.gap, "kappa": run.drift * radius,
    }  # fmt: skip


def kept(shape):
    return shape["low"] - shape["high"] * shape["kappa"]


def mu_of_added(shape, added, noise=None):
    noises = np.ones(shape["steps"]) if noise is None else noise
    high = np.full(shape["steps"], shape["high"])
    return gdp_of_linear_shifts(contractions=high, shifts=added, noise_stds=noises)


class TestPlan:
    """The mu is that of a plan that can be written out, and R covers that very plan."""

    @settings(max_examples=40)
    @given(
        regime=regimes(), steps=st.integers(1, 40), tail=st.integers(0, 10),
        release=st.sampled_from([0.0, 0.5, 9.0]),
    )  # fmt: skip
    def test_of_one_participation(self, regime, steps, tail, release):
        tail, run = min(tail, steps - 1), short(steps, **regime)
        seen = [Participations(tail)]
        found = mu_of(run, seen, release_in_steps=release)
        written = [late_mu(run, seen, release_in_steps=release)]
        shape = shape_of(run, steps - tail, found)
        for window in range(1, steps - tail if kept(shape) > 0.0 else 1):
            theta, shifts = reference.kept_for_the_last(window=window, release=release, **shape)
            added = reference.added_distances(theta=theta, **shape)
            left = reference.distances_left(added=added, shifts=shifts, high=shape["high"])
            assert left.min() > -1e-9 * run.ratio
            assert abs(left[-1]) < 1e-9 * run.ratio
            assert theta.min() >= 0.0
            squares = (shifts[:-1] ** 2).sum() + (shifts[-1] ** 2 / release if release else 0.0)
            if shifts[:-1].max() <= found * (1 + 1e-9):
                written.append(math.sqrt(squares))
        # The search looks at R once more than this, at a mu that is a little larger.
        assert min(written) * (1 - 1e-9) <= found <= written[0] * (1 + 1e-8)
        assert found <= min(written) * 1.01 or run.drift >= 1e-3

    @settings(max_examples=25)
    @given(regime=regimes(), period=st.integers(2, 12), more=st.integers(0, 4))
    def test_with_earlier_participations_is_no_less_than_an_engine_s_plan(
        self, regime, period, more
    ):
        assume(regime["gap"] < 0.95)  # the reference has no digits for powers of .001
        run = short(period * more + period, **regime)
        found = mu_of(run, [Participations(0, 1.0, more, period)])
        shape, plans = shape_of(run, run.steps, found), []
        # Where hardly anything is kept of a step, longer windows are the same plan.
        longest = period if kept(shape) > 0.05 else min(period, 5)
        for window in range(longest if kept(shape) > 0.0 else 1):
            theta, _ = reference.kept_for_the_last(window=window, **shape)
            added = reference.added_distances(theta=theta, **shape)
            added[run.steps - 1 - period :: -period] += run.ratio if more else 0.0
            plans.append(mu_of_added(shape, added))
        assert found >= min(plans) * (1 - 1e-7)

    @settings(max_examples=40)
    @given(
        share=st.sampled_from([0.1, 0.5, 0.8, 0.95]), spent=st.integers(0, 12),
        tail=st.integers(0, 6), curvature=st.sampled_from([0.05, 0.3, 0.8]),
    )  # fmt: skip
    def test_where_noise_is_spent_is_no_less_than_an_engine_s_plan(
        self, share, spent, tail, curvature
    ):
        run, at = short(24, curvature=curvature, drift=1e-4), 24 - tail
        found = mu_of(run, [Participations(tail)], spent=Spent(spent, share))
        shape, plans = shape_of(run, at, found), []
        noise = np.where(np.arange(24)[::-1] < spent, math.sqrt(1 - share), 1.0)
        for window in range(at):
            weight = np.zeros(24)
            weight[at - 1 - window : at - 1] = kept(shape) ** np.arange(window, 0, -1.0)
            weight[at - 1 :] = shape["high"] ** -np.arange(tail + 1.0)
            shifts = weight * noise**2 / ((weight * noise) ** 2).sum()
            theta = np.zeros(at + 1)
            for k in range(1, at):
                theta[k] = kept(shape) * theta[k - 1] + shifts[k - 1]
            theta[at] = 1.0
            added = reference.added_distances(theta=theta, **shape)
            plans.append(mu_of_added(shape, added, noise))
        assert found >= min(plans) * (1 - 1e-7)


def twisted(low, slope, size):
    """Two steps: noise, then low x against low x plus slope x, held within +-size."""
    edge = size / abs(slope)
    ends = edge * (low + slope)
    moved = PiecewiseLinear((-edge, edge), (-ends, ends), low, low)
    first = Step(linear_map(1.0), linear_map(1.0), 1.0, None)
    last = Step(linear_map(low), moved, 1.0, None)
    pair = exact_pair(Instance(0.0, (first, last)), lost_mass=1e-30)
    gap, steepest = 1.0 - max(low, low + slope), 1.0 - min(low, low + slope)
    return pair, short(2, gap=gap, curvature=steepest, ratio=size, drift=abs(slope) / size)


class TestSoundness:
    """Never below the exact privacy of runs that obey the hypotheses."""

    @settings(max_examples=120)
    @given(
        regime=regimes(), dims=st.integers(1, 3), more=st.integers(0, 3), seed=st.integers(0, 10**6)
    )
    def test_of_linear_runs(self, regime, dims, more, seed):
        rng = np.random.default_rng(seed)
        period = int(rng.integers(1, 9))
        run = short(period * more + int(rng.integers(1, 9)), **regime)
        steps, gap, curvature = run.steps, run.gap, run.curvature
        tail = int(rng.integers(0, min(period, steps)))
        more = (steps - 1 - tail) // period
        seen = {steps - 1 - tail - k * period for k in range(more + 1)}
        slow = rng.integers(1, steps + 1)  # later steps lose as much as they may
        maps, pushes = [], []
        for k in range(steps):
            turn = np.linalg.qr(rng.normal(size=(dims, dims)))[0] if k % 2 else np.eye(dims)
            extreme = 1 - gap if k < slow else 1 - curvature
            values = rng.choice([extreme, 1 - gap, 1 - curvature], dims)
            values[0] = extreme
            maps.append(turn @ np.diag(values) @ turn.T if dims > 1 else np.diag(values))
            push = np.eye(dims)[0] if seed % 2 else rng.normal(size=dims)
            pushes.append(run.ratio * push / np.linalg.norm(push) * (k in seen))
        exact = reference.linear_mu(maps, pushes, np.ones(steps))
        assert exact <= mu_of(run, [Participations(tail, 1.0, more, period)]) * (1 + 1e-9)

    @pytest.mark.parametrize("low", [0.3, 0.8])
    @pytest.mark.parametrize("slope", [0.17, -0.1, 0.03])
    @pytest.mark.parametrize("size", [0.1, 0.3, 1.0])
    def test_of_changes_that_vary_with_the_iterate(self, low, slope, size):
        pair, run = twisted(low, slope, size)
        profile = GaussianMixtureProfile([1.0], [mu_of(run, LAST)], lost=FAILURE)
        for epsilon in (0.05, 0.3, 1.0, 2.0):
            assert pair.delta(epsilon) <= profile.delta(epsilon) * (1 + 1e-9) + 1e-13

    def test_is_attained_by_a_curvature_that_changes_up_to_the_drift(self):
        run = short(60, drift=0.0)
        maps = [np.array([[1 - (run.curvature if k >= 1 else run.gap)]]) for k in range(60)]
        pushes = [np.array([float(k == 59)]) for k in range(60)]
        exact = reference.linear_mu(maps, pushes, np.ones(60))
        assert exact <= mu_of(run, LAST) <= exact * 1.001

    def test_changes_that_vary_must_be_charged(self):
        pair, run = twisted(0.8, 0.17, 0.3)
        wrong = mu_of(dataclasses.replace(run, drift=0.0), LAST)
        right = GaussianProfile(mu_of(run, LAST)).delta(1.0)
        exact = pair.delta(1.0)
        assert GaussianProfile(wrong).delta(1.0) < exact * 0.9 < exact <= right

    def test_older_participations_see_no_noise_on_release(self):
        run = short(20, gap=0.0, curvature=0.2)
        both = [Participations(3), Participations(0)]
        maps = [np.array([[1.0 if k < 16 else 0.8]]) for k in range(20)]
        pushes = [np.array([float(k in (16, 19))]) for k in range(20)]
        exact = reference.linear_mu([*maps, np.eye(1)], [*pushes, np.zeros(1)], [*np.ones(20), 2.0])
        assert exact <= mu_of(run, both, release_in_steps=4.0)


class TestLimits:
    @pytest.mark.parametrize(
        "run, seen",
        [
            (short(300, curvature=1.0), [Participations(0, 1.0, 2, 97)]),  # long steps
            (short(300, curvature=1.6), [Participations(0, 1.0, 2, 97)]),
            (short(10), [Participations(1), Participations(0)]),  # no room before the last
            (short(10), [Participations(0, 1.0, 9, 1)]),
            (short(30, drift=1.0), LAST),  # a change that varies a lot
        ],
    )
    def test_nothing_changes_where_no_shift_can_be_early(self, run, seen):
        assert mu_of(run, seen) == pytest.approx(late_mu(run, seen), rel=1e-14)

    def test_nothing_jumps_where_steps_begin_to_be_short(self):
        seen = [Participations(0, 1.0, 2, 97)]
        near = mu_of(short(300, curvature=1 - 1e-6), seen)
        assert near == pytest.approx(late_mu(short(300), seen), rel=1e-6)

    def test_many_at_once_are_as_one_by_one(self):
        run, tails = short(300), np.arange(0, 60, 7)
        together = early_mus(run, [Participations(tails, 1.0, (299 - tails) // 97, 97)])
        alone = [mu_of(run, [Participations(int(t), 1.0, int((299 - t) // 97), 97)]) for t in tails]
        np.testing.assert_allclose(together, alone, rtol=1e-3)


@settings(max_examples=50)
@given(
    regime=regimes(), factor=st.floats(1.0, 3.0), more=st.integers(0, 3),
    release=st.floats(0.0, 100.0), tail=st.integers(0, 30),
)  # fmt: skip
def test_more_noise_and_more_steps_afterwards_cost_no_more(regime, factor, more, release, tail):
    run = short(200, **regime)
    last, before = ([Participations(t, 1.0, more, 50)] for t in (0, tail))
    noisier = dataclasses.replace(run, ratio=run.ratio / factor, drift=run.drift * factor)
    assert mu_of(noisier, last) <= mu_of(run, last) * (1 + 1e-6)
    found = mu_of(run, before, release_in_steps=release)
    assert found <= mu_of(run, before) * (1 + 1e-9)
    assert found <= mu_of(run, last, release_in_steps=release) * (1 + 1e-9)

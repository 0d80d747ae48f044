"""Early shifts: plans written out by the letter, exact instances, and versions that are false."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lastiterate.profile import GaussianMixtureProfile, GaussianProfile
from lastiterate.shifts.early_shifts import FAILURE, ShortSteps, early_mus
from lastiterate.shifts.patterns import Participations, Spent, mus_of_few
from tests.reference import early_shifts as reference
from tests.reference.grid import exact_pair
from tests.reference.instances import Instance, PiecewiseLinear, Step, linear_map
from tests.reference.shifts import gdp_of_linear_shifts


def short(steps, *, gap=0.005, curvature=0.13, ratio=1.0, drift=2e-4, dimension=1):
    return ShortSteps(
        steps=steps,
        gap=gap,
        curvature=curvature,
        ratio=ratio,
        drift=drift,
        dimension=dimension,
    )


def mu_of(steps, participations, **options):
    return float(early_mus(steps, participations, **options))


def late_mu(steps, participations, **options):
    return steps.ratio * float(mus_of_few(gap=steps.gap, participations=participations, **options))


def radius(steps, largest_shift, dimension):
    q = math.sqrt(2 * math.log(steps.steps / steps.failure))
    return math.sqrt(dimension) + q + largest_shift


regimes = {
    "curvature": st.sampled_from([0.01, 0.05, 0.13, 0.5, 0.9, 0.999]),
    "flat": st.sampled_from([0.0, 0.01, 0.5, 1.0]),
    "drift": st.sampled_from([0.0, 1e-5, 1e-3, 0.02]),
    "ratio": st.sampled_from([0.1, 1.0, 5.0]),
    "dimension": st.sampled_from([1, 20]),
}


class TestPlan:
    """The mu is that of a plan that can be written out, and R covers that very plan."""

    @settings(max_examples=60, deadline=None)
    @given(
        **regimes,
        steps=st.integers(1, 40),
        tail=st.integers(0, 10),
        release=st.sampled_from([0.0, 0.5, 9.0]),
    )
    def test_of_one_participation(
        self, curvature, flat, drift, ratio, dimension, steps, tail, release
    ):
        tail = min(tail, steps - 1)
        run = short(
            steps,
            gap=flat * curvature,
            curvature=curvature,
            ratio=ratio,
            drift=drift,
            dimension=dimension,
        )
        found = mu_of(run, [Participations(tail)], release_in_steps=release)
        written = [late_mu(run, [Participations(tail)], release_in_steps=release)]
        for window in range(1, steps - tail):
            # R for shifts that add up to what was found: so it must cover the plan's.
            kappa = drift * radius(run, found, dimension)
            low, high = 1 - curvature, 1 - run.gap
            if low - high * kappa <= 0.0:
                break
            shape = {
                "steps": steps,
                "sensitivity": ratio,
                "participation": steps - tail,
                "low": low,
                "high": high,
                "kappa": kappa,
            }
            theta, shifts = reference.kept_for_the_last(window=window, release=release, **shape)
            added = reference.added_distances(theta=theta, **shape)
            left = reference.distances_left(added=added, shifts=shifts, high=high)
            assert left.min() > -1e-9 * ratio
            assert abs(left[-1]) < 1e-9 * ratio
            assert theta.min() >= 0.0
            squares = (shifts[:-1] ** 2).sum() + (shifts[-1] ** 2 / release if release else 0.0)
            if shifts[:-1].max() <= found * (1 + 1e-9):
                written.append(math.sqrt(squares))
        # The search looks at R once more than this, at a mu that is a little larger.
        assert min(written) * (1 - 1e-9) <= found <= written[0] * (1 + 1e-8)
        assert found <= min(written) * 1.01 or drift >= 1e-3

    @settings(max_examples=40, deadline=None)
    @given(**regimes, period=st.integers(2, 12), more=st.integers(0, 4))
    def test_with_earlier_participations_is_no_less_than_an_engine_s_plan(
        self, curvature, flat, drift, ratio, dimension, period, more
    ):
        steps = period * more + period
        run = short(
            steps,
            gap=flat * curvature,
            curvature=curvature,
            ratio=ratio,
            drift=drift,
            dimension=dimension,
        )
        found = mu_of(run, [Participations(0, 1.0, more, period)])
        kappa = drift * radius(run, found, dimension)
        low, high = 1 - curvature, 1 - run.gap
        shape = {
            "steps": steps,
            "sensitivity": ratio,
            "participation": steps,
            "low": low,
            "high": high,
            "kappa": kappa,
        }
        plans = []
        for window in range(period):
            if window and low - high * kappa <= 0.0:
                break
            theta, _ = reference.kept_for_the_last(window=window, **shape)
            added = reference.added_distances(theta=theta, **shape)
            added[steps - 1 - period :: -period] += ratio if more else 0.0
            plans.append(
                gdp_of_linear_shifts(
                    contractions=np.full(steps, high), shifts=added, noise_stds=np.ones(steps)
                )
            )
        assert found >= min(plans) * (1 - 1e-7)

    @settings(max_examples=100, deadline=None)
    @given(
        share=st.sampled_from([0.1, 0.5, 0.8, 0.95]),
        spent=st.integers(0, 12),
        tail=st.integers(0, 6),
        curvature=st.sampled_from([0.05, 0.3, 0.8]),
    )
    def test_where_noise_is_spent_is_no_less_than_an_engine_s_plan(
        self, share, spent, tail, curvature
    ):
        steps = 24
        run = short(steps, curvature=curvature, drift=1e-4)
        found = mu_of(run, [Participations(tail)], spent=Spent(spent, share))
        kappa = run.drift * radius(run, found, 1)
        low, high = 1 - curvature, 1 - run.gap
        noise = np.where(np.arange(steps)[::-1] < spent, math.sqrt(1 - share), 1.0)
        kept, plans = low - high * kappa, []
        for window in range(steps - tail):
            at = steps - tail
            weight = np.zeros(steps)
            weight[at - 1 - window : at - 1] = kept ** np.arange(window, 0, -1.0)
            weight[at - 1 :] = high ** -np.arange(tail + 1.0)
            shifts = weight * noise**2 / ((weight * noise) ** 2).sum()
            theta = np.zeros(at + 1)
            for k in range(1, at):
                theta[k] = kept * theta[k - 1] + shifts[k - 1]
            theta[at] = 1.0
            added = reference.added_distances(
                steps=steps,
                sensitivity=1.0,
                theta=theta,
                participation=at,
                low=low,
                high=high,
                kappa=kappa,
            )
            plans.append(
                gdp_of_linear_shifts(
                    contractions=np.full(steps, high), shifts=added, noise_stds=noise
                )
            )
        assert found >= min(plans) * (1 - 1e-7)


class TestSoundness:
    """Never below the exact privacy of runs that obey the hypotheses."""

    @settings(max_examples=200, deadline=None)
    @given(**regimes, dims=st.integers(1, 3), more=st.integers(0, 3), seed=st.integers(0, 10**6))
    def test_of_linear_runs(self, curvature, flat, drift, ratio, dimension, dims, more, seed):
        rng = np.random.default_rng(seed)
        period, gap = int(rng.integers(1, 9)), flat * curvature
        steps = period * more + int(rng.integers(1, 9))
        run = short(
            steps, gap=gap, curvature=curvature, ratio=ratio, drift=drift, dimension=dimension
        )
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
            pushes.append(ratio * push / np.linalg.norm(push) * (k in seen))
        exact = reference.linear_mu(maps, pushes, np.ones(steps))
        found = mu_of(run, [Participations(tail, 1.0, more, period)])
        assert exact <= found * (1 + 1e-9)

    @pytest.mark.parametrize("low", [0.3, 0.8])
    @pytest.mark.parametrize("slope", [0.17, -0.1, 0.03])
    @pytest.mark.parametrize("size", [0.1, 0.3, 1.0])
    def test_of_changes_that_vary_with_the_iterate(self, low, slope, size):
        pair, run = twisted(low, slope, size)
        profile = GaussianMixtureProfile([1.0], [mu_of(run, [Participations(0)])], lost=FAILURE)
        for epsilon in (0.05, 0.3, 1.0, 2.0):
            assert pair.delta(epsilon) <= profile.delta(epsilon) * (1 + 1e-9) + 1e-13

    def test_is_attained_by_a_curvature_that_changes_up_to_the_drift(self):
        run = short(60, drift=0.0)
        maps = [np.array([[1 - (run.curvature if k >= 1 else run.gap)]]) for k in range(60)]
        pushes = [np.array([float(k == 59)]) for k in range(60)]
        exact = reference.linear_mu(maps, pushes, np.ones(60))
        assert exact <= mu_of(run, [Participations(0)]) <= exact * 1.001


def twisted(low, slope, size):
    """Two steps: noise, then low x against low x plus slope x, held within +-size."""
    high, edge = max(low, low + slope), size / abs(slope)
    ends = edge * (low + slope)
    moved = PiecewiseLinear((-edge, edge), (-ends, ends), low, low)
    first = Step(linear_map(1.0), linear_map(1.0), 1.0, None)
    last = Step(linear_map(low), moved, 1.0, None)
    pair = exact_pair(Instance(0.0, (first, last)), lost_mass=1e-30)
    steepest = 1.0 - min(low, low + slope)
    run = short(
        2, gap=1.0 - high, curvature=steepest, ratio=size, drift=abs(slope) / size, dimension=1
    )
    return pair, run


class TestFalseVersions:
    """What is charged cannot be left out."""

    def test_changes_that_vary_must_be_charged(self):
        pair, run = twisted(0.8, 0.17, 0.3)
        without = dataclasses.replace(run, drift=0.0)
        wrong = GaussianProfile(mu_of(without, [Participations(0)])).delta(1.0)
        right = GaussianProfile(mu_of(run, [Participations(0)])).delta(1.0)
        assert wrong < pair.delta(1.0) * 0.9 < pair.delta(1.0) <= right

    def test_older_participations_see_no_noise_on_release(self):
        run = short(20, gap=0.0, curvature=0.2)
        both = [Participations(3), Participations(0)]
        maps = [np.array([[1.0 if k < 16 else 0.8]]) for k in range(20)]
        pushes = [np.array([float(k in (16, 19))]) for k in range(20)]
        exact = reference.linear_mu([*maps, np.eye(1)], [*pushes, np.zeros(1)], [*np.ones(20), 2.0])
        assert exact <= mu_of(run, both, release_in_steps=4.0)


class TestLimits:
    def test_long_steps_change_nothing(self):
        for curvature in (1.0, 1.6):
            run = short(300, curvature=curvature)
            seen = [Participations(0, 1.0, 2, 97)]
            assert mu_of(run, seen) == pytest.approx(late_mu(run, seen), rel=1e-14)

    def test_nothing_jumps_where_steps_begin_to_be_short(self):
        seen = [Participations(0, 1.0, 2, 97)]
        near = mu_of(short(300, curvature=1 - 1e-6), seen)
        assert near == pytest.approx(late_mu(short(300), seen), rel=1e-6)

    def test_no_room_before_the_last_participation_changes_nothing(self):
        run = short(10)
        for seen in ([Participations(1), Participations(0)], [Participations(0, 1.0, 9, 1)]):
            assert mu_of(run, seen) == pytest.approx(late_mu(run, seen), rel=1e-14)

    def test_a_change_that_varies_a_lot_changes_nothing(self):
        run = short(30, drift=1.0)
        seen = [Participations(0)]
        assert mu_of(run, seen) == pytest.approx(late_mu(run, seen), rel=1e-14)


class TestMonotonicity:
    @settings(max_examples=60, deadline=None)
    @given(**regimes, factor=st.floats(1.0, 3.0), more=st.integers(0, 3))
    def test_more_noise_costs_no_more(self, curvature, flat, drift, ratio, dimension, factor, more):
        run = short(
            200,
            gap=flat * curvature,
            curvature=curvature,
            ratio=ratio,
            drift=drift,
            dimension=dimension,
        )
        seen = [Participations(0, 1.0, more, 50)]
        noisier = dataclasses.replace(run, ratio=ratio / factor, drift=drift * factor)
        assert mu_of(noisier, seen) <= mu_of(run, seen) * (1 + 1e-6)

    @settings(max_examples=60, deadline=None)
    @given(**regimes, release=st.floats(0.0, 100.0), tail=st.integers(0, 30))
    def test_more_release_noise_or_more_steps_after_it_cost_no_more(
        self, curvature, flat, drift, ratio, dimension, release, tail
    ):
        run = short(
            200,
            gap=flat * curvature,
            curvature=curvature,
            ratio=ratio,
            drift=drift,
            dimension=dimension,
        )
        seen = [Participations(tail, 1.0, 2, 50)]
        found = mu_of(run, seen, release_in_steps=release)
        assert found <= mu_of(run, seen) * (1 + 1e-9)
        assert found <= mu_of(run, [Participations(0, 1.0, 2, 50)], release_in_steps=release) * (
            1 + 1e-9
        )

    def test_many_at_once_are_as_one_by_one(self):
        run = short(300)
        tails = np.arange(0, 60, 7)
        together = early_mus(run, [Participations(tails, 1.0, (299 - tails) // 97, 97)])
        alone = [mu_of(run, [Participations(int(t), 1.0, int((299 - t) // 97), 97)]) for t in tails]
        np.testing.assert_allclose(together, alone, rtol=1e-3)

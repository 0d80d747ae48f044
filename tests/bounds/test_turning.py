"""The turning example: an instance that is admitted, whose privacy is the engine's upper bound."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lastiterate as li
from lastiterate.bounds.catalogue import LOWER_BOUNDS

TURNING = LOWER_BOUNDS["lower/turning"]


def example(batches, **changes):
    settings = {
        "loss": li.Loss(smoothness=32.502, strong_convexity=0.002),
        "sensitivity": 10.0,
        "batches": batches,
        "steps": 2_000,
        "step_size": 0.05,
        "noise_std": 0.01,
    }
    return li.TrainingRun(**{**settings, **changes})


def minorant_slopes(arrivals, noise):
    """Of each step, by the definition: the largest over starts of the least over ends."""
    sums, noises = np.cumsum(np.append(0.0, arrivals)), np.cumsum(np.append(0.0, noise))
    return np.array(
        [
            max(
                min(
                    (sums[j] - sums[i]) / (noises[j] - noises[i])
                    for j in range(k + 1, len(arrivals) + 1)
                )
                for i in range(k + 1)
            )
            for k in range(len(arrivals))
        ]
    )


def told_apart(c, least, shift, noise, seen, rates):
    """mu of the design, by carrying means and covariances through every step."""
    starts = np.flatnonzero(seen)
    turns = np.sqrt(np.diff(np.square(rates[starts]), prepend=0.0))
    mean, covariance = np.zeros(starts.size), np.zeros((starts.size, starts.size))
    for k in range(seen.size):
        step = np.diag(np.where(starts < k, c[k], least[k]))
        mean, covariance = step @ mean, step @ covariance @ step
        if seen[k]:
            i = int(np.searchsorted(starts, k))
            direction = np.where(np.arange(starts.size) <= i, turns, 0.0) / rates[k]
            assert np.linalg.norm(direction) == pytest.approx(1.0)
            mean = mean + shift * direction
        covariance = covariance + noise**2 * np.eye(starts.size)
    return math.sqrt(mean @ np.linalg.solve(covariance, mean))


@given(
    pattern=st.lists(st.booleans(), min_size=1, max_size=10).filter(any),
    step=st.floats(0.2, 1.9),
    strong=st.floats(0.0, 0.9),
)
@settings(max_examples=60)
def test_equals_the_design_carried_through_every_step(pattern, step, strong):
    seen, steps = np.array(pattern), len(pattern)
    run = li.TrainingRun(
        loss=li.Loss(smoothness=1.0, strong_convexity=strong),
        sensitivity=1.0,
        batches=li.FixedOrder(10, 1, tuple((np.flatnonzero(seen) + 1).tolist())),
        steps=steps,
        step_size=step,
        noise_std=0.7,
    )
    factors = 1 - step, 1 - step * strong
    c = np.full(steps, max(map(abs, factors)))
    least = np.full(steps, 0.0 if factors[0] <= 0 <= factors[1] else min(map(abs, factors)))
    shift, noise = step * 1.0, step * 0.7
    reach = c ** np.arange(steps - 1, -1, -1)
    rates = minorant_slopes(shift * reach * seen, np.square(noise * reach))
    exact = told_apart(c, least, shift, noise, seen, rates)
    found, upper = TURNING.profile(run).means[0], li.account(run).all["fixed-order/contractive"]
    if not least.any():
        assert found == pytest.approx(exact, rel=1e-7)
        assert found == pytest.approx(upper.gdp(), rel=1e-7)
    assert found <= upper.gdp()
    assert found >= exact * (1 - 0.3)  # a design of its own where noise is left over


class TestTightness:
    """These bounds cannot be improved for losses of which no more is known."""

    @pytest.mark.parametrize(
        "run",
        [
            example(li.Cyclic(60_000, 1_500)),
            example(li.Cyclic(60_000, 1_500), release_noise_std=0.002),
            example(li.Cyclic(60_000, 1_500), steps=1_990),
            example(li.Cyclic(60_700, 1_500)),
            example(li.Cyclic(60_000, 1_500), loss=li.Loss(smoothness=32.7, strong_convexity=0.2)),
            example(li.Cyclic(60_000, 1_500), loss=li.Loss(smoothness=40.0, strong_convexity=0.3)),
            example(li.FullBatch(60_000)),
            example(
                li.Cyclic(60_000, 1_500),
                steps=300,
                step_size=(0.05 / (1 + np.arange(300) / 600)).tolist(),
                loss=li.Loss(smoothness=35.0),
            ),
            example(li.Cyclic(6_000, 1_000), steps=12, loss=li.Loss(smoothness=20.0, convex=False)),
        ],
        ids=lambda run: f"{type(run.batches).__name__}-{run.steps}",
    )
    def test_the_ratio_is_one(self, run):
        for delta in (1e-2, 1e-5):
            assert 1.0 <= li.account(run).gap(delta) < 1.0 + 1e-6

    def test_short_steps_leave_a_gap(self):
        run = example(li.Cyclic(60_000, 1_500), step_size=0.01)
        assert 1.01 < li.account(run).gap(1e-5) < 1.2


@pytest.mark.parametrize(
    "changes",
    [
        {"domain": li.Ball(1.0)},
        {"adjacency": "zero-out"},
        {"clip_norm": 5.0},
        {"loss": li.Loss(smoothness=32.5, lipschitz=5.0)},
        {"loss": li.Loss(smoothness=2.0, strong_convexity=2.0)},
        {"loss": li.Loss(holder=(1.0, 0.5))},
        {"steps": 2_000_000},
        {"batches": li.ShuffledOnce(60_000, 1_500)},
    ],
)
def test_not_where_the_gradient_cannot_turn(changes):
    assert TURNING.unmet(example(**{"batches": li.Cyclic(60_000, 1_500), **changes}))


class TestAnInstance:
    """Losses on a clock and two coordinates, for participations in the last of two pairs of steps.

    The example pulls along x at first and along a mixture of x and y at last; y is silenced before.
    """

    LENGTH, STEP, NOISE, L, M = 1e5, 1.0, 1.0, 2.0, 1.0  # of the clock, and of the run

    def shape(self, clock):
        """0 before the middle between the third and the fourth step, then 1; slowly."""
        t = np.clip((clock / self.LENGTH - 2.25) * 2.0, 0.0, 1.0)
        return t * t * (3 - 2 * t)

    def direction(self, clock, cosine):
        late = self.shape(clock)
        angle = late * math.acos(cosine)
        return np.cos(angle), np.sin(angle)

    def gradient(self, points, sign, cosine):
        """y is flattened at every step: nothing that comes before the last is in it."""
        clock, x, y = points
        along, across = self.direction(clock, cosine)
        slope = (self.direction(clock + 1.0, cosine)[0] - along) * x
        slope += (self.direction(clock + 1.0, cosine)[1] - across) * y
        return np.array(
            [
                -self.LENGTH + sign * self.L / 2 * slope,
                1e-3 * x + sign * self.L / 2 * along,
                self.M * y + sign * self.L / 2 * across,
            ]
        )

    def test_is_admitted(self):
        """Curvature between 0 and M, gradients apart by L, up to one in a thousand."""
        rng = np.random.default_rng(0)
        points = np.array([rng.uniform(0, 4 * self.LENGTH, 300), *rng.normal(0, 5, (2, 300))])
        apart = self.gradient(points, 1, 0.3) - self.gradient(points, -1, 0.3)
        assert np.linalg.norm(apart, axis=0).max() <= self.L * (1 + 1e-3)
        width = np.diag([self.LENGTH * 1e-3, 1e-3, 1e-3])
        for sign in (1, -1):
            columns = [
                (
                    self.gradient(points + h[:, None], sign, 0.3)
                    - self.gradient(points - h[:, None], sign, 0.3)
                )
                / (2 * h.sum())
                for h in width
            ]
            hessians = np.moveaxis(np.array(columns), 2, 0)
            assert np.abs(hessians - np.swapaxes(hessians, 1, 2)).max() < 1e-3
            curvatures = np.linalg.eigvalsh((hessians + np.swapaxes(hessians, 1, 2)) / 2)
            assert curvatures.min() >= -1e-3
            assert curvatures.max() <= self.M + 1e-3

    def test_its_runs_are_as_far_apart_as_the_design(self):
        """Two batches of one: the example is second of two, in steps 2 and 4."""
        run = li.TrainingRun(
            loss=li.Loss(smoothness=self.M),
            sensitivity=self.L,
            batches=li.Cyclic(2, 1),
            steps=4,
            step_size=self.STEP,
            noise_std=self.NOISE,
        )
        mu = TURNING.profile(run).means[0]
        # One unit of arrival over two steps, then one over one: rates 1/2 and 1, so the cosine.
        assert mu == pytest.approx(self.L * math.sqrt(1 / 2 + 1), rel=1e-6)
        assert mu == pytest.approx(li.account(run).gdp(), rel=1e-6)
        rng, count = np.random.default_rng(1), 200_000
        ends = {}
        for sign in (1, -1):
            state = np.zeros((3, count))
            for k in range(1, 5):
                sees = sign if k % 2 == 0 else 0
                state = state - self.STEP * self.gradient(state, sees, 0.5)
                if k < 2:
                    state[1] = 0.0  # as a curvature of M in x before the first participation does
                state += self.NOISE * rng.standard_normal(state.shape)
                if k < 2:
                    state[1] = 0.0
            ends[sign] = state[1:]
        apart = ends[1].mean(axis=1) - ends[-1].mean(axis=1)
        covariance = (np.cov(ends[1]) + np.cov(ends[-1])) / 2
        measured = math.sqrt(apart @ np.linalg.solve(covariance, apart))
        assert measured == pytest.approx(mu, rel=0.02)

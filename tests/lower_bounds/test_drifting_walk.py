"""Walks in a bounded domain (Theorems C.16 and 4.1): below their instances, and near."""

import math

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds.published import altschuler_talwar as random_walk_lower_bound
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS
from tests.lower_bounds.example_runs import square
from tests.reference.grid import exact_pair
from tests.reference.instances import Instance, Step, linear_map

WALK = LOWER_BOUNDS["published/bok-su-altschuler/bounded-lower"]


def bounded(diameter=4.0, noise_std=0.15, **changes):
    usual = {"loss": li.Loss(smoothness=1.0), "batches": li.FullBatch(1), "step_size": 1.0}
    return square(**usual | changes, domain=li.Ball(diameter), noise_std=noise_std)


@pytest.mark.parametrize("period, release", [(1, 0.0), (3, 0.0), (2, 0.3)])
def test_is_below_its_instance(period, release):
    batches, steps = li.Cyclic(period, 1) if period > 1 else li.FullBatch(1), 8 * period
    run = bounded(batches=batches, steps=steps, release_noise_std=release)
    lower, ends = WALK.profile(run), (-2.0, 2.0)
    seen = [float((steps - k) % period == 0) for k in range(1, steps + 1)]
    made = [Step(linear_map(1.0), linear_map(1.0, moved), 0.15, ends) for moved in seen]
    pair = exact_pair(Instance(0.0, tuple(made), release))
    for epsilon in (0.0, 1.0, 3.0):
        assert lower.delta(epsilon) <= pair.delta(epsilon) + 1e-9
        assert lower.delta(epsilon) >= 0.98 * pair.delta(epsilon)
    assert lower.gdp() <= li.account(run).gdp()


def test_by_the_law_of_the_walk():
    """k = 20, r = 1, T = 60: "x <= 0" alone has 6.6e-10 under drift; mu is within a tenth."""
    run = bounded(20.0, 1.0, steps=60)
    lower = WALK.profile(run)
    by_levy, by_law = lower.profiles
    assert by_levy.epsilon(1e-5) == pytest.approx(0.69, abs=0.01)
    false, true = by_law.tests()
    sign = false[np.flatnonzero(true == true[-1])[-1]]
    assert true[-1] == pytest.approx(0.5)
    assert math.log(0.5 / sign) == pytest.approx(20.44, abs=0.01)
    assert by_law.epsilon(1e-5) > 37.0
    assert 0.9 * li.account(run).gdp() < lower.gdp() < li.account(run).gdp()


def test_of_long_runs_restarts_at_the_ends():
    """The restarted walks give no more than walks from the centre, and nearly as much."""
    long = bounded(6.0, 1.0, sensitivity=0.5, batches=li.Cyclic(2, 1), steps=4_000)
    short = WALK.profile(long.replace(steps=600))
    assert WALK.profile(long).gdp() == pytest.approx(short.gdp(), rel=1e-6)


def test_is_below_the_shifts_and_meets_them_in_short_runs():
    rng, ratios = np.random.default_rng(7), []
    for _ in range(30):
        length, size = int(rng.choice([1, 1, 2, 3])), int(rng.choice([1, 2]))
        run = bounded(
            10 ** rng.uniform(-1.5, 1.5), 1.0, step_size=10 ** rng.uniform(-1.0, 0.2),
            sensitivity=size * 10 ** rng.uniform(-1.0, 0.5),
            steps=int(10 ** rng.uniform(0.0, 1.7)),
            batches=li.Cyclic(length * size, size) if length > 1 else li.FullBatch(size),
            release_noise_std=float(rng.choice([0.0, 0.3])),
        )  # fmt: skip
        lower, report = WALK.profile(run), li.account(run)
        for delta in (1e-6, 1e-3, 0.1):
            assert lower.epsilon(delta) <= report.epsilon(delta) * (1 + 1e-9)
        ratios.append(lower.gdp() / report.gdp())
    assert 0.999 < max(ratios) <= 1.0


def test_grows_as_the_upper_bound_does():
    """Both are of the order of sqrt(L D/(eta n))/sigma: the ratio stays within a constant."""
    ratios = []
    for noise in (0.3, 0.1, 0.03):
        report = li.account(bounded(4.0, noise, steps=100))
        ratios.append(report.gdp() / report.lower.gdp())
    assert max(ratios) < 20
    assert min(ratios) >= 1


def test_needs_room_for_the_drift():
    loss = li.Loss(smoothness=1.0, lipschitz=0.5)
    assert WALK.unmet(bounded(loss=loss, steps=20))
    assert not WALK.unmet(bounded(loss=loss, steps=20, batches=li.FullBatch(2)))
    assert WALK.unmet(bounded(loss=li.Loss(smoothness=1.0, strong_convexity=0.1), steps=20))


def test_theorem_4_1():
    run = bounded(1e3, 0.25, batches=li.SampledWithoutReplacement(20, 2), steps=20_000)
    bound = LOWER_BOUNDS["published/altschuler-talwar/bounded-lower"]
    lower = bound.profile(run)
    assert lower.delta(0.1) > 0.01
    assert lower.delta(0.1) == pytest.approx(0.5 - math.exp(0.1) * 0.015, rel=1e-9)
    assert bound.unmet(run.replace(steps=14_000))
    assert bound.unmet(run.replace(domain=li.Ball(900.0)))
    assert bound.unmet(run.replace(noise_std=30.0))
    # Their event E fails with at most 2 exp(-5.625) + exp(-5); then N(.1, .001) decides.
    failing = 2 * math.exp(-(0.15**2) * 0.75 * 1000 / 3) + math.exp(-(0.1**2) / (2 * 0.001))
    assert 0.5 + math.erf(0.1 / math.sqrt(0.002)) / 2 - failing >= 0.985
    rate = random_walk_lower_bound.renyi_rate(run)
    assert rate.printed == pytest.approx(1e-7 * 100 / (20 * 0.25) ** 2 * 15_000)
    # The divergence of a coin of .985 from a fair one, which the test exhibits.
    fair = (100 * math.log(0.985) + 99 * math.log(2)) / 99
    assert rate.proved == pytest.approx(fair, rel=1e-9)
    shorter = random_walk_lower_bound.renyi_rate(run.replace(steps=4_000))
    assert shorter.proved == pytest.approx(fair / 4, rel=1e-9)
    assert shorter.printed == pytest.approx(1e-7 * 100 / (20 * 0.25) ** 2 * 4_000)
    with pytest.raises(li.NoBoundApplies):
        random_walk_lower_bound.renyi_rate(run.replace(noise_std=30.0))
    assert li.account(run, bounds="composition").epsilon(0.01) > lower.epsilon(0.01)

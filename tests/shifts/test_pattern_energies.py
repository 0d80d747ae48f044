"""Many patterns at once cost what each costs by itself."""

import numpy as np
import pytest

from lastiterate.shifts.optimal_shifts import optimal_shifts
from lastiterate.shifts.patterns import least_energies


def problem(rng):
    steps = int(rng.integers(1, 14))
    contraction = rng.uniform(0.6, 1.5, steps)
    noise = rng.uniform(0.5, 2.0, steps) * (rng.random(steps) < 0.9)
    noise[-1] = rng.uniform(0.1, 1.0)
    seen = rng.random((6, steps)) < 0.4
    return contraction, noise, seen * rng.uniform(0.1, 1.0, (6, steps))


def in_final_units(contraction, noise, arriving):
    units = np.append(np.cumprod(contraction[:0:-1])[::-1], 1.0)
    variances = np.broadcast_to((units * noise) ** 2, arriving.shape)
    return units, units * arriving, variances


@pytest.mark.parametrize("seed", range(40))
def test_each_row_is_the_optimum_of_its_own_problem(seed):
    rng = np.random.default_rng(seed)
    contraction, noise, arriving = problem(rng)
    diameter = rng.uniform(0.1, 2.0)
    start = min(float(rng.choice([0.0, rng.uniform()])), diameter)
    units, masses, variances = in_final_units(contraction, noise, arriving)
    entries = np.broadcast_to(diameter * contraction * units, masses.shape)
    starts = np.full(len(masses), start * contraction[0] * units[0])
    found = least_energies(masses, variances, starts, entries=entries)
    for row, arrivals in enumerate(arriving):
        alone = {"contraction": contraction, "sensitivity": arrivals, "noise": noise}
        free = optimal_shifts(**alone, start=start).mu
        held = optimal_shifts(**alone, start=start, diameter=diameter).mu
        capped = min(found.from_start[row], found.from_cap[row])
        assert np.sqrt(found.from_start[row]) == pytest.approx(free, rel=1e-11, abs=1e-140)
        assert np.sqrt(capped) == pytest.approx(held, rel=1e-11, abs=1e-140)
        nothing = optimal_shifts(**alone).mu
        assert np.sqrt(found.composed[row]) == pytest.approx(nothing, rel=1e-11, abs=1e-140)


def test_what_meets_no_noise_costs_everything():
    masses, variances = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), np.array([[0.0, 0.0]] * 3)
    found = least_energies(masses, variances, np.zeros(3))
    assert found.composed.tolist() == [np.inf, np.inf, 0.0]
    later = least_energies(masses[:1], np.array([[0.0, 4.0]]), np.zeros(1))
    assert later.composed[0] == pytest.approx(0.25)


def test_composition_may_come_before_any_column():
    # 10 arrives first; hidden at once for 3, or by later noise for a hundred.
    masses, variances = np.array([[10.0, 1.0]]), np.array([[0.5, 0.5]])
    free = least_energies(masses, variances, np.zeros(1)).composed[0]
    assert free == pytest.approx(121.0)
    composed = least_energies(masses, variances, np.zeros(1), composed=np.array([[0.5, 3.5]]))
    assert composed.composed[0] == pytest.approx(3.5 + 2.0)

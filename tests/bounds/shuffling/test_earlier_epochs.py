"""What earlier epochs add: its law by enumeration, and the lemma by optimal shifts."""

from itertools import product

import numpy as np
import pytest

from lastiterate.bounds.shuffling.early_transport import _Sums, earlier_factors
from lastiterate.shifts.optimal_shifts import optimal_shifts
from lastiterate.shifts.patterns import Participations, mus_of_few


def needed_factor(before_end, contraction, length, epochs):
    """The least factor of the lemma for positions so many steps before the end, nearest first."""
    c, whole = contraction, (epochs - 1) * length
    total = sum(c ** (length * j) for j in range(epochs))
    variances = np.append(0.0, np.cumsum(c ** (2.0 * np.arange(1, whole + 1))))
    added, needed = 0.0, 0.0
    for steps in before_end:
        added += c**steps
        part = variances[min(steps, whole)] / variances[-1] if whole else 1.0
        needed = max(needed, added / (1.0 + (total - 1.0) * part))
    return needed


def mu(participations, steps, contraction):
    """mu by optimal shifts of all steps; participations are (tail, times)."""
    sensitivity = np.zeros(steps)
    for tail, times in participations:
        sensitivity[steps - 1 - tail] += times
    return optimal_shifts(contraction=contraction, sensitivity=sensitivity, noise=np.ones(steps)).mu


@pytest.mark.parametrize("contraction", [0.9, 0.8, 0.97])
@pytest.mark.parametrize("length, epochs", [(2, 4), (3, 3), (4, 3), (5, 2), (6, 1)])
@pytest.mark.parametrize("examples", [0, 1])  # that are left over
def test_the_law_is_that_of_all_positions(contraction, length, epochs, examples):
    share = 1.0 / (length + examples)
    law = _Sums(1.0 - contraction, length, epochs, share)
    needed = []
    for places in product(range(length + examples), repeat=epochs):
        seen = [j * length + v for j, v in enumerate(places) if v < length]
        needed.append(needed_factor(seen, contraction, length, epochs))
    for factor in (0.5, 0.7, 0.8, 0.9, 0.95, 0.99):
        found = law.probability(factor)
        assert found <= np.mean(np.array(needed) <= factor) + 1e-12
        assert found >= np.mean(np.array(needed) <= factor - 0.005) - 1e-6


@pytest.mark.parametrize("epochs", [1, 3, 29, 10_000])
def test_factors_are_a_law(epochs):
    law = earlier_factors(0.005, 97, epochs, 512 / 50_000)
    assert sum(p for p, _ in law) == pytest.approx(1.0, abs=1e-12)
    assert all(p > 0.0 and 0.0 < factor <= 1.0 for p, factor in law)
    assert sum(p * factor for p, factor in law) < 0.9


def test_nothing_is_gained_where_an_epoch_forgets_nothing():
    assert earlier_factors(0.0, 97, 5, 0.01) == ((1.0, 1.0),)
    assert earlier_factors(1e-5, 97, 5, 0.01) == ((1.0, 1.0),)


def check_lemma(rng):
    """mu with true positions over mu with scaled ones at the ends of epochs: at most 1."""
    epochs, length = int(rng.integers(1, 6)), int(rng.integers(2, 8))
    contraction, last = rng.uniform(0.7, 0.999), int(rng.integers(1, 12))
    places = rng.integers(0, length, epochs) * (rng.random(epochs) < 0.8)
    later = np.sort(rng.choice(last, size=min(int(rng.integers(0, 3)), last), replace=False))[::-1]
    times = rng.uniform(0.1, 3.0, later.size)
    seen = length * np.arange(epochs) + places
    factor = needed_factor(seen, contraction, length, epochs)
    steps = last + epochs * length
    true = [(last + u, 1.0) for u in seen.tolist()]
    others = list(zip(later.tolist(), times.tolist(), strict=True))
    scaled = [Participations(last, factor, epochs - 1, length)]
    scaled += [Participations(tail, size) for tail, size in others]
    claimed = float(mus_of_few(gap=1.0 - contraction, participations=scaled))
    return mu(true + others, steps, contraction) / claimed


def test_scaled_participations_cost_no_less():
    rng = np.random.default_rng(0)
    assert max(check_lemma(rng) for _ in range(400)) <= 1.0 + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_scaled_participations_cost_no_less_in_a_long_search(seed):
    rng = np.random.default_rng(seed)
    assert max(check_lemma(rng) for _ in range(10_000)) <= 1.0 + 1e-9


# Contraction, steps, length of an epoch, true steps in earlier epochs, and step of the last one.
COUNTEREXAMPLES = [
    (0.912, 22, 5, (1, 9, 10), 19),
    (0.868, 10, 3, (2, 4), 8),
]


@pytest.mark.parametrize("contraction, steps, length, places, last", COUNTEREXAMPLES)
def test_a_factor_from_the_latest_epoch_alone_is_false(contraction, steps, length, places, last):
    """The sum over all epochs, less what the latest one spares, is not enough to scale by.

    Where the last participation shares the oldest block, the shifts in the last steps hide too
    little of it if all are scaled; the lemma's factor, for earlier epochs only, is.
    """
    ends = [(j + 1) * length - 1 for j in range(len(places))]
    weights = contraction ** np.arange(steps - 1.0, -1.0, -1.0)
    masses = np.zeros(steps)
    masses[[*ends, last]] = weights[[*ends, last]]
    # All participations are one block: shifts in proportion to the variance hide them.
    shifts = masses.sum() * weights**2 * (np.arange(steps) >= ends[0])
    shifts /= np.sum(weights[ends[0] :] ** 2)
    hidden, needed = np.cumsum(shifts[::-1])[::-1], np.cumsum(masses[::-1])[::-1]
    assert np.all(hidden >= needed - 1e-12)
    spared = weights[ends[-1]] - weights[places[-1]]
    rho = needed[ends[-1]] / hidden[ends[-1]]
    factor = max(rho, 1.0 - spared / masses.sum())
    true = np.zeros(steps)
    true[[*places, last]] = weights[[*places, last]]
    still = np.cumsum(true[::-1])[::-1]
    assert np.any(factor * hidden < 0.9995 * still)
    before_end = [ends[-1] - place for place in reversed(places)]
    enough = needed_factor(before_end, contraction, length, len(places))
    scaled = [
        Participations(steps - 1 - ends[-1], enough, len(places) - 1, length),
        Participations(steps - 1 - last),
    ]
    claimed = float(mus_of_few(gap=1.0 - contraction, participations=scaled))
    tails = [(steps - 1 - step, 1.0) for step in (*places, last)]
    assert mu(tails, steps, contraction) <= claimed * (1.0 + 1e-12)

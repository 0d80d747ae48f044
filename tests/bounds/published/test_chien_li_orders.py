"""Chien and Li's Theorem A.1 and Corollary A.3 as stated, and ours never above them."""

import math
from itertools import product

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds.catalogue import CATALOGUE
from tests.reference.chien_li import energy_of_order, renyi_of_orders
from tests.slow import slow_if

CYCLIC, SHUFFLED = (CATALOGUE[f"published/chien-li/{name}"] for name in ("cyclic", "shuffled"))
THEIRS = li.TrainingRun(
    loss=li.Loss(smoothness=1.0, convex=False, lipschitz=2.0),
    sensitivity=4.0,
    batches=li.ShuffledEachEpoch(12, 4),
    steps=1_200,
    step_size=0.1,
    noise_std=10.0,
    domain=li.Ball(1.0),
)


def some_run(rng, rule, *, steps, hoelder=False):
    size, length = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    eta, clip = float(rng.choice([0.1, 0.5])), float(10 ** rng.uniform(-1, 0.5))
    constant = float(rng.uniform(0.02, 0.6) / eta)
    loss = {"holder": (constant, float(rng.choice([0.5, 0.8])))} if hoelder else {}
    loss = loss or {"smoothness": constant}
    return li.TrainingRun(
        loss=li.Loss(convex=False, lipschitz=clip, **loss),
        sensitivity=2 * clip,
        batches=rule(size * length, size),
        steps=steps,
        step_size=eta,
        noise_std=float(10 ** rng.uniform(0, 1)),
        domain=li.Ball(float(10 ** rng.uniform(-1, 1))),
    )


def in_their_words(run):
    constant, order = run.loss.holder or (run.loss.smoothness, 1.0)
    return {
        "eta": run.step_size,
        "K": run.loss.lipschitz,
        "b": run.batches.batch_size,
        "D": run.domain.diameter,
        "L": constant,
        "lam": order,
    }


def at_position(run, position):
    return [t % run.batches.batches_per_epoch == position for t in range(run.steps)]


def rate(run, energy):
    return energy / (2 * (run.step_size * run.noise_std) ** 2)


class TestTheoremA1:
    @pytest.mark.parametrize("seed", slow_if(lambda seed: seed > 5, range(30)))
    def test_is_the_minimum_over_every_start(self, seed):
        rng = np.random.default_rng(seed)
        run = some_run(rng, li.Cyclic, steps=int(rng.integers(3, 60)))
        expected = [
            rate(run, energy_of_order(at_position(run, j), **in_their_words(run)))
            for j in range(min(run.batches.batches_per_epoch, run.steps))
        ]
        found = [profile.rho for profile in CYCLIC.by_position(run)]
        assert found == pytest.approx(expected, rel=1e-6)
        assert np.all(np.array(found) >= np.array(expected) * (1 - 1e-9))
        assert CYCLIC.profile(run).rho == max(found)

    @pytest.mark.parametrize("seed", slow_if(bool, range(4)))
    def test_hoelder_gradients(self, seed):
        rng = np.random.default_rng(seed)
        run = some_run(rng, li.Cyclic, steps=int(rng.integers(3, 9)), hoelder=True)
        pattern = at_position(run, 0)
        expected = rate(run, energy_of_order(pattern, **in_their_words(run)))
        assert CYCLIC.by_position(run)[0].rho == pytest.approx(expected, rel=2e-3)

    def test_any_order_of_reshuffled_epochs(self):
        assert CYCLIC.profile(THEIRS).epsilon(1e-5) == pytest.approx(2.595, abs=5e-4)
        short = THEIRS.replace(steps=9)
        worst = max(energy_of_order(order, **in_their_words(short)) for order in orders_of(short))
        assert CYCLIC.profile(short).rho == pytest.approx(rate(short, worst), rel=1e-6)


def orders_of(run):
    """All patterns of participations of a run of whole epochs, alike probable."""
    length = run.batches.batches_per_epoch
    epochs = run.steps // length
    for positions in product(range(length), repeat=epochs):
        yield [t % length == positions[t // length] for t in range(run.steps)]


class TestCorollaryA3:
    @pytest.mark.parametrize("seed", slow_if(lambda seed: seed > 2, range(10)))
    def test_reshuffled(self, seed):
        rng = np.random.default_rng(seed)
        run = some_run(rng, li.ShuffledEachEpoch, steps=1)
        run = run.replace(steps=4 * run.batches.batches_per_epoch)
        energies = [energy_of_order(order, **in_their_words(run)) for order in orders_of(run)]
        for alpha in (1.5, 4.0, 32.0):
            expected = renyi_of_orders(alpha, energies, run.step_size * run.noise_std)
            assert SHUFFLED.profile(run).renyi(alpha) == pytest.approx(expected, rel=1e-6)

    @pytest.mark.parametrize("seed", range(4))
    def test_shuffled_once(self, seed):
        rng = np.random.default_rng(seed)
        run = some_run(rng, li.ShuffledOnce, steps=1)
        run = run.replace(steps=5 * run.batches.batches_per_epoch)
        energies = [
            energy_of_order(at_position(run, j), **in_their_words(run))
            for j in range(run.batches.batches_per_epoch)
        ]
        expected = renyi_of_orders(8.0, energies, run.step_size * run.noise_std)
        assert SHUFFLED.profile(run).renyi(8.0) == pytest.approx(expected, rel=1e-6)

    def test_four_hundred_epochs(self):
        assert SHUFFLED.profile(THEIRS).epsilon(1e-5) == pytest.approx(2.504, abs=5e-4)

    def test_a_last_epoch_that_is_cut_short(self):
        run = THEIRS.replace(steps=5)
        patterns = [[*first, *last] for first in np.eye(3) for last in np.eye(3)[:, :2]]
        energies = [energy_of_order(order, **in_their_words(run)) for order in patterns]
        expected = renyi_of_orders(8.0, energies, run.step_size * run.noise_std)
        assert SHUFFLED.profile(run).renyi(8.0) == pytest.approx(expected, rel=1e-6)

    @pytest.mark.parametrize("rule", [li.ShuffledOnce, li.ShuffledEachEpoch])
    @pytest.mark.parametrize("seed", range(8))
    def test_an_average_is_never_above_the_worst(self, rule, seed):
        rng = np.random.default_rng(seed)
        run = some_run(rng, rule, steps=int(rng.integers(1, 40)), hoelder=seed % 2 == 1)
        for alpha in (1.5, 8.0, 64.0):
            average, worst = SHUFFLED.profile(run).renyi(alpha), CYCLIC.profile(run).renyi(alpha)
            assert average <= worst * (1 + 1e-9)


class TestOursIsNeverAbove:
    """At every epsilon, for the same description."""

    @pytest.mark.parametrize("rule", [li.ShuffledOnce, li.ShuffledEachEpoch])
    @pytest.mark.parametrize("seed", slow_if(lambda seed: seed > 3, range(40)))
    def test_shuffled(self, rule, seed):
        rng = np.random.default_rng(seed)
        hoelder = seed % 4 == 3
        run = some_run(rng, rule, steps=int(rng.integers(1, 50)), hoelder=hoelder)
        ours, theirs = li.account(run, bounds="random-order"), SHUFFLED.profile(run)
        worst = CYCLIC.profile(run)
        for delta in (1e-2, 1e-5):
            assert ours.epsilon(delta) <= theirs.epsilon(delta) * (1 + 1e-6) + 1e-9
            assert ours.epsilon(delta) <= worst.epsilon(delta) * (1 + 1e-6) + 1e-9

    @pytest.mark.parametrize("seed", slow_if(lambda seed: seed > 3, range(40)))
    def test_given_the_order(self, seed):
        rng = np.random.default_rng(seed)
        rule = (li.Cyclic, li.ShuffledEachEpoch)[seed % 2]
        hoelder = seed % 4 == 3
        run = some_run(rng, rule, steps=int(rng.integers(1, 50)), hoelder=hoelder)
        run = run.replace(releases="last-iterate-and-order")
        ours = li.account(run, bounds="fixed-order/non-convex")
        assert ours.gdp() <= math.sqrt(2 * CYCLIC.profile(run).rho) * (1 + 1e-6)

    def test_four_hundred_epochs(self):
        ours = li.account(THEIRS)
        assert ours.bound == "random-order/shuffled"
        assert ours.epsilon(1e-5) < 2.26 < SHUFFLED.profile(THEIRS).epsilon(1e-5)

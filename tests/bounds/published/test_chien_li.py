"""Chien and Li's theorems as stated, and ours never above them."""

import math
from itertools import product
from typing import ClassVar

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.reproduce import runs as conventions
from tests.bounds.runs import described
from tests.reference import chien_li
from tests.reference.chien_li import energy_of_order, renyi_of_orders
from tests.slow import slow_if

CYCLIC, SHUFFLED, SMOOTH, HOELDER = (
    CATALOGUE[f"published/chien-li/{name}"] for name in ("cyclic", "shuffled", "smooth", "hoelder")
)
ROUGH = li.Loss(smoothness=1.0, convex=False, lipschitz=2.0)
THEIRS = described(
    li.ShuffledEachEpoch(12, 4), 1_200, loss=ROUGH, sensitivity=4.0, step_size=0.1,
    noise_std=10.0, domain=li.Ball(1.0),
)  # fmt: skip


class TestFullBatches:
    """On the example of their Figure 1."""

    SYMBOLS: ClassVar = {"eta": 0.1, "K": 2.0, "n": 5, "sigma": 1.0, "D": 1.0}

    def rho(self, T, bound=SMOOTH, **loss):
        known = {"convex": False, "lipschitz": 2.0} | loss
        return bound.profile(self.run(T, li.Loss(**known))).rho

    def run(self, T, loss=ROUGH, **changes):
        settings = conventions.chien_li(sigma=1.0, K=2.0, step_size=0.1)
        usual = {"step_size": 0.1, "domain": li.Ball(1.0)} | settings
        return described(li.FullBatch(5), T, loss=loss, **(usual | changes))

    def test_steps_that_erase_everything(self):
        loss = li.Loss(smoothness=1.0, strong_convexity=1.0)
        rates = [SMOOTH.profile(self.run(T, loss, step_size=1.0)).rho for T in (200, 2_000)]
        assert 0.0 < min(rates) <= max(rates) < math.inf

    def test_distances_beyond_all_numbers(self):
        """Then the first steps are composed, as without the theorem."""
        loss, free = li.Loss(smoothness=1.0, convex=False), li.Unbounded()
        run = self.run(1_500, loss, step_size=1.0, clip_norm=None, domain=free)
        composed = 1_500 * (run.sensitivity / 5 / run.noise_std) ** 2 / 2
        assert 0.0 < SMOOTH.profile(run).rho <= composed * (1 + 1e-9)

    @pytest.mark.parametrize("T", [1, 7, 60])
    @pytest.mark.parametrize(
        "loss, c",
        [({}, 1.1), ({"convex": True}, 1.0), ({"convex": True, "strong_convexity": 1.0}, 0.9)],
    )
    def test_theorem_3_1(self, T, loss, c):
        expected = chien_li.gdp_smooth(T=T, c=c, **self.SYMBOLS)
        value = math.sqrt(2 * self.rho(T, smoothness=1.0, **loss))
        assert value == pytest.approx(expected, rel=1e-3)
        assert value >= expected * (1 - 1e-9)

    @pytest.mark.parametrize("T, order", [(3, 0.5), (9, 0.5), (3, 0.8), (9, 0.8)])
    def test_theorem_3_7(self, T, order):
        expected = chien_li.gdp_hoelder(T=T, L=1.0, lam=order, **self.SYMBOLS)
        value = math.sqrt(2 * self.rho(T, HOELDER, holder=(1.0, order)))
        assert value == pytest.approx(expected, rel=0.01)

    @pytest.mark.parametrize("T", [1, 20, 90])
    def test_hoelder_of_order_one_is_smooth(self, T):
        hoelder = self.rho(T, HOELDER, holder=(1.0, 1.0))
        assert hoelder == pytest.approx(self.rho(T, smoothness=1.0), rel=0.01)

    def test_one_batch_an_epoch_is_a_full_batch(self):
        loss = li.Loss(convex=False, holder=(1.0, 0.7), lipschitz=2.0)
        run = self.run(30, loss)
        expected = HOELDER.profile(run).rho
        cyclic, shuffled = (
            run.replace(batches=rule(5, 5)) for rule in (li.Cyclic, li.ShuffledOnce)
        )
        assert CYCLIC.profile(cyclic).rho == pytest.approx(expected, rel=1e-9)
        assert SHUFFLED.profile(shuffled).renyi(3.0) == pytest.approx(3.0 * expected, rel=0.01)


def some_run(rng, rule, *, steps, hoelder=False):
    size, length = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    eta, clip = float(rng.choice([0.1, 0.5])), float(10 ** rng.uniform(-1, 0.5))
    constant = float(rng.uniform(0.02, 0.6) / eta)
    loss = {"holder": (constant, float(rng.choice([0.5, 0.8])))} if hoelder else {}
    loss = loss or {"smoothness": constant}
    return described(
        rule(size * length, size), steps, loss=li.Loss(convex=False, lipschitz=clip, **loss),
        sensitivity=2 * clip, step_size=eta, noise_std=float(10 ** rng.uniform(0, 1)),
        domain=li.Ball(float(10 ** rng.uniform(-1, 1))),
    )  # fmt: skip


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


def energies_of(run, orders):
    return [energy_of_order(order, **in_their_words(run)) for order in orders]


class TestTheoremA1:
    @pytest.mark.parametrize("seed", slow_if(lambda seed: seed > 5, range(30)))
    def test_is_the_minimum_over_every_start(self, seed):
        rng = np.random.default_rng(seed)
        run = some_run(rng, li.Cyclic, steps=int(rng.integers(3, 60)))
        length = min(run.batches.batches_per_epoch, run.steps)
        orders = [at_position(run, j) for j in range(length)]
        expected = [rate(run, energy) for energy in energies_of(run, orders)]
        found = [profile.rho for profile in CYCLIC.by_position(run)]
        assert found == pytest.approx(expected, rel=1e-6)
        assert np.all(np.array(found) >= np.array(expected) * (1 - 1e-9))
        assert CYCLIC.profile(run).rho == max(found)

    @pytest.mark.parametrize("seed", slow_if(bool, range(4)))
    def test_hoelder_gradients(self, seed):
        rng = np.random.default_rng(seed)
        run = some_run(rng, li.Cyclic, steps=int(rng.integers(3, 9)), hoelder=True)
        (energy,) = energies_of(run, [at_position(run, 0)])
        expected = rate(run, energy)
        assert CYCLIC.by_position(run)[0].rho == pytest.approx(expected, rel=2e-3)

    def test_any_order_of_reshuffled_epochs(self):
        assert CYCLIC.profile(THEIRS).epsilon(1e-5) == pytest.approx(2.595, abs=5e-4)
        short = THEIRS.replace(steps=9)
        worst = max(energies_of(short, orders_of(short)))
        assert CYCLIC.profile(short).rho == pytest.approx(rate(short, worst), rel=1e-6)


def orders_of(run):
    """All patterns of participations of a run of whole epochs, alike probable."""
    length = run.batches.batches_per_epoch
    epochs = run.steps // length
    for positions in product(range(length), repeat=epochs):
        yield [t % length == positions[t // length] for t in range(run.steps)]


def of_corollary_a3(run, orders, alpha):
    return renyi_of_orders(alpha, energies_of(run, orders), run.step_size * run.noise_std)


class TestCorollaryA3:
    @pytest.mark.parametrize("seed", slow_if(lambda seed: seed > 2, range(10)))
    def test_reshuffled(self, seed):
        run = some_run(np.random.default_rng(seed), li.ShuffledEachEpoch, steps=1)
        run = run.replace(steps=4 * run.batches.batches_per_epoch)
        for alpha in (1.5, 4.0, 32.0):
            expected = of_corollary_a3(run, orders_of(run), alpha)
            assert SHUFFLED.profile(run).renyi(alpha) == pytest.approx(expected, rel=1e-6)

    @pytest.mark.parametrize("seed", range(4))
    def test_shuffled_once(self, seed):
        run = some_run(np.random.default_rng(seed), li.ShuffledOnce, steps=1)
        length = run.batches.batches_per_epoch
        run = run.replace(steps=5 * length)
        expected = of_corollary_a3(run, [at_position(run, j) for j in range(length)], 8.0)
        assert SHUFFLED.profile(run).renyi(8.0) == pytest.approx(expected, rel=1e-6)

    def test_a_last_epoch_that_is_cut_short(self):
        run = THEIRS.replace(steps=5)
        patterns = [[*first, *last] for first in np.eye(3) for last in np.eye(3)[:, :2]]
        expected = of_corollary_a3(run, patterns, 8.0)
        assert SHUFFLED.profile(run).renyi(8.0) == pytest.approx(expected, rel=1e-6)

    @pytest.mark.parametrize("rule", [li.ShuffledOnce, li.ShuffledEachEpoch])
    @pytest.mark.parametrize("seed", range(4))
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
        assert ours.epsilon(1e-5) < 2.26
        assert SHUFFLED.profile(THEIRS).epsilon(1e-5) == pytest.approx(2.504, abs=5e-4)

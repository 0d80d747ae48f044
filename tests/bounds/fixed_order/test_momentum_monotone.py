"""Momentum and averages: epsilon falls with noise, hardly depends on cut epochs, and on 0 momentum.

Nothing here says that epsilon grows with every step.  An example that the last batch does not see
is hidden by it, and in an order that is drawn anew an example may be seen at the end of one epoch
and at the start of a last one that is cut short.
"""

from itertools import pairwise

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds import momentum as momentum_positions
from lastiterate.bounds.catalogue import CATALOGUE

from .test_momentum import CURVATURE, OPTIMIZERS, curvature_choices, moments, run_with

BOUND = CATALOGUE["fixed-order/momentum"]
SLACK = 1 + 2e-3  # certificates are found by a search that stops a little early


@pytest.fixture(params=[True, False], ids=["one by one", "in groups"])
def one_by_one(request, monkeypatch):
    """Whether every position has a certificate of its own."""
    if not request.param:
        monkeypatch.setattr(momentum_positions, "_MOST_WORK", 0)
    return request.param


def random_run(rng):
    """A short run on either side of the threshold."""
    optimizer = {"momentum": float(rng.uniform(0.1, 0.95)), "nesterov": bool(rng.integers(2))}
    if rng.integers(3) == 0:
        optimizer = {"average": li.ExponentialAverage(float(rng.uniform(0.1, 0.95)))}
    batches = int(rng.integers(2, 7))
    return run_with(
        optimizer,
        li.Cyclic(batches, 1),
        steps=batches * int(rng.integers(1, 4)) + int(rng.integers(0, batches)),
        step_size=float(10 ** rng.uniform(-2, 0.3)),
        release_noise_std=float(rng.choice([0.0, 0.1])),
    )


@pytest.mark.parametrize("seed", range(6))
class TestMonotone:
    def test_in_noise_and_in_release_noise(self, seed, one_by_one):
        run = random_run(np.random.default_rng(seed))
        noisier = [run.replace(noise_std=noise) for noise in (0.5, 1.0, 1.7, 4.0)]
        on_release = [run.replace(release_noise_std=noise) for noise in (0.0, 0.03, 0.3, 2.0)]
        for runs in (noisier, on_release):
            mus = [BOUND.profile(one).mu for one in runs]
            assert all(after <= before * SLACK for before, after in pairwise(mus))

    def test_never_above_composition(self, seed, one_by_one):
        run = random_run(np.random.default_rng(seed))
        composed = CATALOGUE["composition/fixed-order"].profile(run).mu
        assert BOUND.profile(run).mu <= composed * (1 + 1e-9)

    def test_no_quadratic_leaks_more_in_a_cut_epoch(self, seed, one_by_one):
        rng = np.random.default_rng(seed)
        run = random_run(rng)
        length = run.batches.batches_per_epoch
        for position, profile in enumerate(BOUND.by_position(run)):
            for curvatures in curvature_choices(run.steps, rng, 8):
                mean, deviation = moments(run, curvatures, range(position, run.steps, length))
                assert abs(mean) / deviation <= profile.mu * (1 + 1e-9)


@pytest.mark.parametrize("name", ["heavy ball", "nesterov", "exponential average"])
@pytest.mark.parametrize("rule", [li.Cyclic, li.ShuffledOnce])
def test_an_epoch_that_is_cut_short_costs_what_a_whole_one_costs(name, rule, monkeypatch):
    monkeypatch.setattr(momentum_positions, "_MOST_WORK", 0)
    many = run_with(OPTIMIZERS[name], rule(400, 10), step_size=0.05)
    shorter, *cut, whole = (
        BOUND.profile(many.replace(steps=steps)).mu for steps in (80, 81, 82, 95, 119, 120)
    )
    assert shorter <= min(cut) * SLACK
    assert max(cut) <= whole * 1.02


@pytest.mark.parametrize("name", ["heavy ball", "nesterov"])
@pytest.mark.parametrize("cut", [3, 6])
def test_an_order_drawn_anew_may_see_an_example_twice_in_a_row(name, cut, monkeypatch):
    """At the end of an epoch and at the start of the last one: so epochs count from the start."""
    monkeypatch.setattr(momentum_positions, "_MOST_WORK", 0)
    length, steep = 40, (0.7, 0.8)
    run = run_with(
        OPTIMIZERS[name],
        li.ShuffledEachEpoch(length, 1),
        loss=li.Loss(smoothness=steep[1], strong_convexity=steep[0]),
        steps=length + cut,
        step_size=0.04,
        release_noise_std=3.0,
    )
    means = [moments(run, [bend] * run.steps, (length - 1, length)) for bend in steep]
    leak = max(abs(mean) / deviation for mean, deviation in means)
    once = BOUND.profile(run.replace(batches=li.Cyclic(length, 1))).mu
    assert once < leak <= BOUND.profile(run).mu * (1 + 1e-9)


def test_no_momentum_is_plain_steps_to_the_digit():
    plain = run_with({}, steps=60, batches=li.Cyclic(60, 6))
    same = run_with(
        {"momentum": 0.0, "dampening": 0.0, "nesterov": False, "buffer_resets": ()},
        steps=60,
        batches=li.Cyclic(60, 6),
    )
    assert same == plain
    assert li.account(same).epsilon(1e-5) == li.account(plain).epsilon(1e-5)
    assert BOUND.unmet(same)
    least = BOUND.profile(plain.replace(momentum=1e-6)).mu
    assert least == pytest.approx(CATALOGUE["fixed-order/convex"].profile(plain).mu, rel=5e-3)


def test_the_curvature_of_these_runs_lets_some_converge_and_some_not():
    """Both sides of the threshold are among the random runs above."""
    from lastiterate.shifts.momentum.mu import converges

    runs = [random_run(np.random.default_rng(seed)) for seed in range(6)]
    found = {converges(r.step_size, CURVATURE, r.momentum, nesterov=r.nesterov) for r in runs}
    assert found == {True, False}

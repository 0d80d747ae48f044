"""Certificates of momentum and averages against exact quadratics, fractions and composition."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from lastiterate.shifts.momentum import mu as recursion_mu
from lastiterate.shifts.momentum.certificate import LinearRun, certified_kappas
from lastiterate.shifts.momentum.mu import Delays
from lastiterate.shifts.momentum.recursion import Averaged, Momentum
from lastiterate.shifts.optimal_shifts import optimal_shifts
from tests.reference import momentum as reference

mu_of = recursion_mu.recursion_mu


def momentum_steps(steps, *, lr=0.05, beta=0.9, dampening=0.0, nesterov=False):
    """The recursion of torch's loop, whose first step has neither momentum nor dampening."""
    betas, dampenings = np.full(steps, beta), np.full(steps, dampening)
    dampenings[0] = 0.0
    return Momentum(np.full(steps, lr), betas, dampenings, np.arange(steps) == 0, nesterov)


def cyclic(batches, epochs, position):
    """Sensitivities of 1 in the steps in which an example at this position takes part."""
    sensitivity = np.zeros(batches * epochs)
    sensitivity[position - 1 :: batches] = 1.0
    return sensitivity


def random_run(rng, *, most=9):
    """A run with schedules, of one of the kinds, and what it releases given gradients."""
    steps = int(rng.integers(1, most + 1))
    top = math.exp(rng.uniform(math.log(0.05), math.log(2.0)))
    low = top * rng.choice([-1.0, -0.3, 0.0, 0.01, 0.3, 1.0])
    lr = np.full(steps, math.exp(rng.uniform(-2.5, 0.7)))
    if rng.random() < 0.4:
        lr = lr * np.exp(rng.normal(0, 0.7, steps))
    noise = np.ones(steps) if rng.random() < 0.5 else np.exp(rng.normal(0, 0.8, steps))
    release = 0.0 if rng.random() < 0.5 else math.exp(rng.uniform(-2, 1))
    sensitivity = (rng.random(steps) < 0.6) * math.exp(rng.uniform(-1, 1))
    sensitivity[rng.integers(steps)] = 1.0
    if rng.random() < 0.3:
        decay = np.full(steps, rng.uniform(0.1, 0.97))
        decay[0] = 0.0 if rng.random() < 0.5 else decay[0]
        recursion = Averaged(lr, decay)

        def released(gradients, start):
            plain = {"lr": lr, "momentum": np.zeros(steps), "dampening": np.zeros(steps)}
            path = reference.torch_sgd(gradients, **plain, nesterov=False, start=start)
            return reference.averages(path, decay, start)[-1]

    else:
        beta = np.full(steps, rng.uniform(0.2, 0.97))
        beta = beta * rng.uniform(0.5, 1.0, steps) if rng.random() < 0.3 else beta
        nesterov = bool(rng.random() < 0.4)
        dampening = np.full(steps, 0.0 if nesterov else rng.choice([0.0, 0.0, 0.4, 0.9]))
        first = np.concatenate([[0.0], np.ones(steps - 1)])
        recursion = Momentum(lr, beta, dampening * first, first == 0.0, nesterov)

        def released(gradients, start):
            settings = {"lr": lr, "momentum": beta, "dampening": dampening, "nesterov": nesterov}
            return reference.torch_sgd(gradients, **settings, start=start)[-1]

    return LinearRun(recursion, (low, top), sensitivity, noise, release), released


def random_curvatures(rng, run, size):
    """Symmetric matrices with eigenvalues at, or between, the ends of the curvature."""
    low, top = run.curvature
    for _ in range(run.steps):
        turn = np.linalg.qr(rng.normal(size=(size, size)))[0]
        kind = rng.random()
        values = rng.choice([low, top], size) if kind < 0.7 else rng.uniform(low, top, size)
        yield turn @ np.diag(values) @ turn.T


def largest_leak(rng, run, released, tries):
    """The most that any of some random quadratics leaks."""
    found = 0.0
    for _ in range(tries):
        size = int(rng.integers(1, 4))
        curvatures = list(random_curvatures(rng, run, size))
        ways = rng.normal(size=(run.steps, size))
        ways /= np.linalg.norm(ways, axis=1, keepdims=True)
        if rng.random() < 0.5:
            ways = np.tile(ways[0], (run.steps, 1)) * rng.choice([1, 1, -1], run.steps)[:, None]
        start = np.zeros(size)
        leak = reference.exact_leak(
            lambda gradients, start=start: released(gradients, start),
            curvatures,
            ways * run.sensitivity[:, None],
            run.noise,
            run.release_noise,
        )
        found = max(found, leak)
    return found


class TestSoundness:
    @pytest.mark.parametrize("seed", range(25))
    def test_no_quadratic_leaks_more(self, seed):
        rng = np.random.default_rng(seed)
        run, released = random_run(rng)
        assert largest_leak(rng, run, released, 12) <= mu_of(run) * (1 + 1e-9)

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(100, 300))
    def test_no_quadratic_of_many_leaks_more(self, seed):
        rng = np.random.default_rng(seed)
        run, released = random_run(rng, most=14)
        assert largest_leak(rng, run, released, 30) <= mu_of(run) * (1 + 1e-9)

    def test_plain_steps_of_the_effective_length_would_claim_too_little(self):
        """Momentum leaks more than gradient descent with step lr/(1 - beta) is certified for."""
        steps, position = 3 * 98, 49
        sensitivity = cyclic(98, 3, position)
        run = LinearRun(momentum_steps(steps), (0.01, 0.26), sensitivity, np.ones(steps), 0.0)

        def released(gradients):
            settings = {"momentum": np.full(steps, 0.9), "dampening": np.zeros(steps)}
            lr = np.full(steps, 0.05)
            return reference.torch_sgd(
                gradients, lr=lr, **settings, nesterov=False, start=np.zeros(1)
            )[-1]

        flat = [np.array([[0.01]])] * steps
        leak = reference.exact_leak(released, flat, sensitivity[:, None], np.ones(steps), 0.0)
        plain = optimal_shifts(contraction=1 - 0.5 * 0.01, sensitivity=sensitivity, noise=1.0).mu
        assert plain < 0.97 * leak
        assert leak <= mu_of(run) < 1.25 * leak

    def test_the_certificate_holds_in_exact_fractions(self, monkeypatch):
        kept = {}

        def keeping(run, matrices, start=0.0):
            kept["run"], kept["matrices"] = run, matrices
            return certified_kappas(run, matrices, start)

        monkeypatch.setattr(recursion_mu, "certified_kappas", keeping)
        steps = 196
        recursion = momentum_steps(steps)
        run = LinearRun(recursion, (0.01, 0.26), cyclic(98, 2, 60), np.ones(steps), 0.0)
        mu = mu_of(run)
        cut = kept["run"]
        eta, beta = Fraction(0.05), Fraction(0.9)
        step = (Fraction(1), -eta * beta, Fraction(0), beta, -eta, Fraction(1))
        energy = reference.energy_in_fractions(
            [step] * cut.steps,
            cut.curvature,
            cut.sensitivity,
            cut.noise,
            0.0,
            (1.0, 0.0),
            kept["matrices"],
        )
        assert energy <= mu**2 <= energy * (1 + 1e-5)

    def test_matrices_that_prove_nothing_are_refused(self):
        steps = 60
        run = LinearRun(momentum_steps(steps), (0.01, 0.26), cyclic(20, 3, 5), np.ones(steps), 0.0)
        assert certified_kappas(run, np.full((steps - 1, 3), 50.0)) is None
        indefinite = np.zeros((steps - 1, 3))
        indefinite[:, 1] = 1e-3
        assert certified_kappas(run, indefinite) is None
        assert certified_kappas(run, np.full((steps - 1, 3), np.nan)) is None


class TestTightness:
    def test_an_average_of_little_but_the_last_iterate_costs_what_that_costs(self):
        steps = 40
        recursion = Averaged(np.full(steps, 0.4), np.full(steps, 1e-3))
        run = LinearRun(recursion, (0.05, 1.0), cyclic(10, 4, 3), np.ones(steps), 0.1)
        shifts = optimal_shifts(
            contraction=np.append(np.full(steps, 1 - 0.4 * 0.05), 1.0),
            sensitivity=np.append(0.4 * cyclic(10, 4, 3), 0.0),
            noise=np.append(np.full(steps, 0.4), 0.1),
        )
        assert shifts.mu <= mu_of(run) <= 1.01 * shifts.mu

    @pytest.mark.parametrize(
        "epochs, position, l2, lr, nesterov, most",
        [
            (10, 98, 0.01, 0.05, False, 1.03),
            (10, 49, 0.01, 0.05, False, 0.275),
            (100, 98, 0.001, 0.05, True, 1.2605),
        ],
    )
    def test_published_settings(self, epochs, position, l2, lr, nesterov, most):
        steps = 98 * epochs
        recursion = momentum_steps(steps, lr=lr, nesterov=nesterov)
        sensitivity = cyclic(98, epochs, position)
        run = LinearRun(recursion, (l2, 0.25 + l2), sensitivity, np.ones(steps), 0.0)
        assert mu_of(run) <= most

    def test_a_little_release_noise_hides_the_last_participation(self):
        steps = 980
        run = LinearRun(
            momentum_steps(steps), (0.01, 0.26), cyclic(98, 10, 98), np.ones(steps), 0.5
        )
        assert mu_of(run) <= 0.26

    def test_the_past_can_be_cut(self):
        """Three hundred epochs cost little more than thirty."""
        found = []
        for epochs in (30, 300):
            steps = 98 * epochs
            run = LinearRun(
                momentum_steps(steps), (0.01, 0.26), cyclic(98, epochs, 98), np.ones(steps), 0.0
            )
            found.append(mu_of(run))
        assert found[0] - 1e-3 <= found[1] <= min(1.04, found[0] + 5e-3)


class TestLimits:
    def test_nothing_where_the_example_takes_no_part(self):
        run = LinearRun(momentum_steps(5), (0.0, 1.0), np.zeros(5), np.ones(5), 0.0)
        assert mu_of(run) == 0.0

    def test_a_single_step(self):
        run = LinearRun(momentum_steps(1), (0.0, 1.0), np.ones(1), np.full(1, 2.0), 0.0)
        assert mu_of(run) == pytest.approx(0.5, rel=1e-6)
        assert mu_of(run) >= 0.5

    @pytest.mark.parametrize("top", [0.3, 3.0, 30.0, 300.0])
    def test_never_above_composition_by_more_than_rounding(self, top):
        steps = 30
        run = LinearRun(momentum_steps(steps), (-top, top), cyclic(5, 6, 2), np.ones(steps), 0.0)
        assert mu_of(run) <= math.sqrt(6) * (1 + 2e-9)


class TestMonotonicity:
    def test_more_noise_and_more_release_noise_cost_less(self):
        steps = 98
        base = {"curvature": (0.01, 0.26), "sensitivity": cyclic(49, 2, 20)}

        def found(noise, release):
            recursion = momentum_steps(steps)
            noises = np.full(steps, noise)
            return mu_of(LinearRun(recursion, noise=noises, release_noise=release, **base))

        by_noise = [found(noise, 0.1) for noise in (0.5, 1.0, 2.0, 4.0)]
        by_release = [found(1.0, release) for release in (0.0, 0.05, 0.2, 1.0)]
        for values in (by_noise, by_release):
            assert all(b <= a * (1 + 1e-4) for a, b in pairwise(values))


class TestFirstStep:
    def test_a_copied_iterate_is_charged_for_where_it_is_larger(self):
        """B of the first step is not a multiple of B later, where an average copies it."""
        steps, decay = 6, 0.158
        decays = np.full(steps, decay)
        decays[0] = 0.0
        delays = Delays(Averaged(np.ones(steps), decays), (4.4756, 4.6854))
        first = np.array([1.0, 1.0])
        for age in range(5):
            x, y, z = delays.first_step_direction(age)
            assert first @ np.linalg.solve(np.array([[x, y], [y, z]]), first) <= 1.0
            first = np.array([1 - 4.6854, 0.0]) * first[0] + np.array([0.0, 1.0]) * (
                decay * first[1] + (1 - decay) * (1 - 4.6854) * first[0]
            )

"""mu of momentum and averages, against exact quadratics, fractions, norms and composition."""

import math
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest

from lastiterate.shifts.momentum import mu as recursion_mu
from lastiterate.shifts.momentum.certificate import LinearRun, certified_kappas, common_norm
from lastiterate.shifts.momentum.mu import (
    Delays,
    EpochTails,
    MomentumEpochs,
    converges,
    longest_converging_step,
)
from lastiterate.shifts.momentum.recursion import Averaged, Momentum, as_matrix
from lastiterate.shifts.optimal_shifts import optimal_shifts
from tests.reference import momentum as reference
from tests.slow import slow, slow_if

mu_of = recursion_mu.recursion_mu


def momentum_steps(steps, *, lr=0.05, beta=0.9, dampening=0.0, nesterov=False):
    """The recursion of torch's loop, whose first step has neither momentum nor dampening."""
    betas, dampenings = np.full(steps, beta), np.full(steps, dampening)
    dampenings[0] = 0.0
    return Momentum(np.full(steps, lr), betas, dampenings, np.arange(steps) == 0, nesterov)


def heavy_ball_run(steps, sensitivity, curvature=(0.01, 0.26), *, noise=1.0, release=0.0, **how):
    recursion = momentum_steps(steps, **how)
    return LinearRun(recursion, curvature, sensitivity, np.full(steps, noise), release)


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
    @pytest.mark.parametrize("seed", slow_if(lambda seed: seed >= 18, range(200)))
    def test_no_quadratic_leaks_more(self, seed):
        rng = np.random.default_rng(seed)
        run, released = random_run(rng, most=9 if seed < 25 else 14)
        assert largest_leak(rng, run, released, 8 if seed < 25 else 30) <= mu_of(run) * (1 + 1e-9)

    def test_plain_steps_of_the_effective_length_would_claim_too_little(self):
        """Momentum leaks more than gradient descent with step lr/(1 - beta) is certified for."""
        steps, position = 3 * 98, 49
        sensitivity = cyclic(98, 3, position)
        run = heavy_ball_run(steps, sensitivity)

        def released(gradients):
            lr, beta, none = np.full(steps, 0.05), np.full(steps, 0.9), np.zeros(steps)
            settings = {"lr": lr, "momentum": beta, "dampening": none, "nesterov": False}
            return reference.torch_sgd(gradients, **settings, start=np.zeros(1))[-1]

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
        mu = mu_of(heavy_ball_run(196, cyclic(98, 2, 60)))
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
        run = heavy_ball_run(steps, cyclic(20, 3, 5))
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
            slow(100, 98, 0.001, 0.05, True, 1.2605),
        ],
    )
    def test_published_settings(self, epochs, position, l2, lr, nesterov, most):
        seen = cyclic(98, epochs, position)
        run = heavy_ball_run(98 * epochs, seen, (l2, 0.25 + l2), lr=lr, nesterov=nesterov)
        assert mu_of(run) <= most

    def test_a_little_release_noise_hides_the_last_participation(self):
        assert mu_of(heavy_ball_run(980, cyclic(98, 10, 98), release=0.5)) <= 0.26

    def test_the_past_can_be_cut(self):
        """Three hundred epochs cost little more than thirty."""
        found = [mu_of(heavy_ball_run(98 * k, cyclic(98, k, 98))) for k in (30, 300)]
        assert found[0] - 1e-3 <= found[1] <= min(1.04, found[0] + 5e-3)


class TestLimits:
    def test_nothing_where_the_example_takes_no_part(self):
        assert mu_of(heavy_ball_run(5, np.zeros(5), (0.0, 1.0))) == 0.0

    def test_a_single_step(self):
        mu = mu_of(heavy_ball_run(1, np.ones(1), (0.0, 1.0), noise=2.0))
        assert 0.5 <= mu <= 0.5 * (1 + 1e-6)

    @pytest.mark.parametrize("top", [0.3, 3.0, 30.0, 300.0])
    def test_never_above_composition_by_more_than_rounding(self, top):
        run = heavy_ball_run(30, cyclic(5, 6, 2), (-top, top))
        assert mu_of(run) <= math.sqrt(6) * (1 + 2e-9)

    def test_more_noise_and_more_release_noise_cost_less(self):
        def found(noise, release):
            return mu_of(heavy_ball_run(98, cyclic(49, 2, 20), noise=noise, release=release))

        by_noise = [found(noise, 0.1) for noise in (0.5, 1.0, 2.0, 4.0)]
        by_release = [found(1.0, release) for release in (0.0, 0.05, 0.2, 1.0)]
        for values in (by_noise, by_release):
            assert all(b <= a * (1 + 1e-4) for a, b in pairwise(values))


CURVATURE = (0.1, 0.9)
STEPS = 7
FIRST = np.arange(STEPS) == 0  # the step with an empty buffer


RECURSIONS = {
    "heavy ball": momentum_steps(STEPS, lr=0.5, beta=0.8),
    "dampened": momentum_steps(STEPS, lr=0.5, beta=0.6, dampening=0.5),
    "nesterov": momentum_steps(STEPS, lr=0.5, beta=0.7, nesterov=True),
    # The first update copies the iterate.
    "average": Averaged(np.full(STEPS, 0.5), np.where(FIRST, 0.0, 0.9)),
}


def steps_of(recursion):
    """B_k and the pairs A_k(m), A_k(M)."""
    a00, a01, a10, a11, b0, b1 = recursion.entries()
    pushes = np.stack([b0, b1], axis=1)
    both = [
        [np.array([[a00[k] + c * b0[k], a01[k]], [a10[k] + c * b1[k], a11[k]]]) for c in CURVATURE]
        for k in range(recursion.steps)
    ]
    return pushes, both


def images(recursion, first, charged):
    """B of step `first` after all products of steps up to `charged`, at the ends of curvature."""
    pushes, both = steps_of(recursion)
    for choice in product((0, 1), repeat=charged - first):
        vector = pushes[first - 1]
        for step, end in enumerate(choice, start=first):
            vector = both[step][end] @ vector
        yield vector


class TestDelays:
    @pytest.mark.parametrize("recursion", RECURSIONS.values(), ids=RECURSIONS)
    @pytest.mark.parametrize("charged", [4, 6])
    def test_no_step_adds_more_than_the_direction(self, recursion, charged):
        delays = Delays(recursion, CURVATURE)
        for direction, steps in (
            (delays.direction(charged - 3, charged - 2), (2, 3)),
            (delays.first_step_direction(charged - 1), (1,)),
        ):
            largest = max(
                vector @ np.linalg.solve(as_matrix(direction), vector)
                for first in steps
                for vector in images(recursion, first, charged)
            )
            assert 0.0 < largest <= 1.0

    def test_a_copied_iterate_is_charged_for_where_it_is_larger(self):
        """B of the first step is not a multiple of B later, where an average copies it."""
        steps, decay = 6, 0.158
        decays = np.full(steps, decay)
        decays[0] = 0.0
        delays = Delays(Averaged(np.ones(steps), decays), (4.4756, 4.6854))
        first = np.array([1.0, 1.0])
        for age in range(5):
            direction = as_matrix(delays.first_step_direction(age))
            assert first @ np.linalg.solve(direction, first) <= 1.0
            first = np.array([1 - 4.6854, 0.0]) * first[0] + np.array([0.0, 1.0]) * (
                decay * first[1] + (1 - decay) * (1 - 4.6854) * first[0]
            )


def leak(recursion, seen, curvatures, release):
    """(mean difference)^2/variance of what is released, on quadratics, for a sensitivity of 1."""
    pushes, both = steps_of(recursion)
    released = np.array(recursion.released)
    reach, after = np.zeros(recursion.steps), released
    for k in reversed(range(recursion.steps)):
        reach[k] = after @ pushes[k]
        after = after @ both[k][curvatures[k]]
    return np.sum(reach[list(seen)]) ** 2 / (np.sum(reach**2) + release**2)


@pytest.mark.parametrize("recursion", RECURSIONS.values(), ids=RECURSIONS)
@pytest.mark.parametrize("delay", [0, slow(1), 2, slow(3)])
def test_energies_cover_every_pair_of_positions(recursion, delay):
    """Two epochs, of 4 and 3 steps; the first one's is charged where the last one's may be, too."""
    release = 0.3
    epochs = MomentumEpochs(recursion, CURVATURE, 1.0, release, 4, delay)
    for tail in range(3):
        energies = epochs.energies(EpochTails(tail, tail))
        worst = max(
            leak(recursion, (early, STEPS - 1 - tail), ends, release)
            for early in range(4)
            for ends in product((0, 1), repeat=STEPS)
        )
        assert worst <= energies.earlier + energies.group


def test_two_participations_in_one_step_are_charged_for_both():
    """Each direction alone would leave room for a larger kappa than both together."""
    recursion = RECURSIONS["heavy ball"]
    tail = 2  # step 5, in which the first epoch's participation is charged, too
    epochs = MomentumEpochs(recursion, CURVATURE, 1.0, 0.3, 4, 1)
    together, alone = epochs.energies(EpochTails(tail, tail)), epochs.energies(None)
    assert together.earlier == pytest.approx(together.group)
    assert together.earlier > 1.2 * alone.earlier


def rate(step, curvature, beta, nesterov):
    """The least factor by which steps shrink distances in some quadratic norm."""
    ends = []
    for bend in curvature:
        if nesterov:  # x - step (g + beta (beta buffer + g))
            top = [1 - step * (1 + beta) * bend, -step * beta**2]
        else:
            top = [1 - step * bend, -step * beta]
        ends.append(np.array([top, [bend, beta]]))
    return common_norm((ends[0], ends[1])).rate


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_norm_exists_just_below_and_none_above(seed, nesterov):
    rng = np.random.default_rng(seed)
    beta, top = rng.uniform(0.05, 0.95), rng.uniform(0.1, 5.0)
    curvature = (top * 10 ** rng.uniform(-3, -0.1), top)
    longest = longest_converging_step(curvature, beta, nesterov=nesterov)
    assert rate(0.98 * longest, curvature, beta, nesterov) < 1.0
    assert rate(1.02 * longest, curvature, beta, nesterov) >= 1.0
    assert converges(0.98 * longest, curvature, beta, nesterov=nesterov)
    assert not converges(1.02 * longest, curvature, beta, nesterov=nesterov)


@pytest.mark.parametrize("low, beta", [(0.01, 0.9), (0.001, 0.9), (0.05, 0.7)])
def test_heavy_ball_has_a_closed_form(low, beta):
    high = low + 0.25
    slope = (1 + beta) * (low + high) - 4 * math.sqrt(beta * low * high)
    found = longest_converging_step((low, high), beta)
    assert found == pytest.approx(2 * (1 - beta) ** 2 / slope, rel=1e-9)


def test_plain_steps_are_as_long_as_they_are_stable():
    assert longest_converging_step((0.1, 0.5), 0.0) == pytest.approx(4.0, rel=1e-9)


@pytest.mark.parametrize("curvature", [(0.0, 1.0), (-0.5, 1.0), (math.nan, 1.0)])
def test_nothing_converges_without_strong_convexity(curvature):
    assert longest_converging_step(curvature, 0.9) == 0.0
    assert not converges(1e-3, curvature, 0.9, nesterov=False)

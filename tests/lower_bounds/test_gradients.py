"""Every instance of a lower bound has gradients that the run's description admits."""

import itertools
import math

import numpy as np
import pytest

import lastiterate as li
from lastiterate.audit.exact import FAMILIES
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS
from lastiterate.lower_bounds.momentum_quadratics import linear_steps, released_weights
from lastiterate.lower_bounds.quadratics import admitted
from lastiterate.run.loss import Gradients, linear_gradients
from tests.reference.random_runs import random_run
from tests.slow import slow_if

SEEDS = slow_if(lambda seed: seed >= 30 or seed in (9, 24), range(1_000))


def dp_sgd(batches, **changes):
    settings = {
        "steps": 6, "clip_norm": 1.0, "noise_multiplier": 1.0, "step_size": 0.05,
        "loss": li.Loss(smoothness=0.25, lipschitz=1.0), "adjacency": "replace",
    }  # fmt: skip
    return li.TrainingRun.from_dp_sgd(batches=batches, **{**settings, **changes})


@pytest.mark.parametrize("seed", SEEDS)
def test_no_lower_bound_is_above_what_is_certified(seed):
    run = random_run(seed)
    lower = {one.id: one for one in LOWER_BOUNDS.values() if not one.unmet(run)}
    for one in lower.values():
        gradients = list(one.gradients(run))
        assert gradients
        assert all(each.not_admitted(run) is None for each in gradients)
    try:
        report = li.account(run) if lower else None
    except li.NoBoundApplies:
        return
    for id_, one in lower.items():
        profile = one.profile(run)
        for delta in (1e-2, 1e-6):
            assert profile.epsilon(delta) <= report.epsilon(delta) * (1 + 1e-9), id_


def test_a_report_does_not_deny_its_own_certificate():
    """Where batches vary in size no other example makes up for half of the sensitivity."""
    run = dp_sgd(li.PoissonSampled(50_000, 500), steps=300, momentum=0.9)
    report = li.account(run)
    assert 0.5 < report.lower.epsilon(1e-5) / report.epsilon(1e-5) <= 1.0


def test_one_step_is_told_exactly():
    """+1/2 and -1/2, each with the probability of the batch; no gradient of 1 against none."""
    run = dp_sgd(li.PoissonSampled(60, 10), steps=1, clip_norm=0.5, momentum=0.5)
    found, rate = li.account(run).lower, 1 / 6
    x = np.linspace(-12.0, 12.0, 400_001)

    def density(move):
        with_example = np.exp(-((x - move) ** 2) / 2.0)
        without = np.exp(-(x**2) / 2.0)
        return (rate * with_example + (1 - rate) * without) / math.sqrt(2.0 * math.pi)

    for epsilon in (0.05, 0.3):
        gains = density(1.0) - math.exp(epsilon) * density(-1.0)
        exact = np.maximum(gains, 0.0).sum() * (x[1] - x[0])
        assert found.delta(epsilon) == pytest.approx(exact, rel=1e-4)
        assert found.delta(epsilon) <= exact * (1 + 1e-6)


def seen(batches, steps):
    """The steps that see an example, with their chances: every way there is."""
    length = batches.batches_per_epoch
    if isinstance(batches, li.PoissonSampled):
        for pattern in itertools.product((0, 1), repeat=steps):
            yield (
                batches.share ** sum(pattern) * (1 - batches.share) ** (steps - sum(pattern)),
                pattern,
            )
        return
    draws = {
        li.BallsAndBins: [length],
        li.BallsAndBinsEachEpoch: [length] * -(-steps // length),
        li.BalancedSampled: [batches.steps_per_draw] * -(-steps // batches.steps_per_draw),
    }[type(batches)]
    often = getattr(batches, "epochs", 1)
    choices = [list(itertools.combinations(range(one), often)) for one in draws]
    ways = list(itertools.product(*choices))
    for way in ways:
        pattern = np.zeros(sum(draws))
        for number, chosen in enumerate(way):
            pattern[number * draws[0] + np.array(chosen)] = 1
        yield 1 / len(ways), np.resize(pattern, steps)


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("optimizer", [{}, {"momentum": 0.6}], ids=["plain", "momentum"])
@pytest.mark.parametrize(
    "batches",
    [
        li.PoissonSampled(12, 4),
        li.BallsAndBins(12, 4),
        li.BallsAndBinsEachEpoch(12, 4),
        li.BalancedSampled(12, 4, epochs=2),
        li.BalancedSampled(12, 4, epochs=1),
    ],
    ids=repr,
)
def test_batches_of_random_size_against_every_way(batches, optimizer, adjacency):
    loss = li.Loss(smoothness=0.5, regulariser=0.3, strong_convexity=0.3, lipschitz=1.0)
    run = dp_sgd(
        batches, steps=8, loss=loss, step_size=0.5, adjacency=adjacency, noise_multiplier=1.5,
        **optimizer,
    )  # fmt: skip
    weights = released_weights(linear_steps(run), np.full(8, 0.3))
    shifts = np.abs(weights) * run.sensitivity / 4 / (run.noise_std * np.linalg.norm(weights))
    ours, theirs = (0.5, -0.5) if adjacency == "replace" else (1.0, 0.0)
    x = np.linspace(-12.0, 16.0, 40_001)

    def density(move):
        parts = (
            chance * np.exp(-((x - move * float(np.array(pattern) @ shifts)) ** 2) / 2.0)
            for chance, pattern in seen(batches, 8)
        )
        return sum(parts) / math.sqrt(2.0 * math.pi)

    one, other = density(ours), density(theirs)
    found = LOWER_BOUNDS["lower/momentum" if optimizer else "lower/quadratic"].profile(run)
    for epsilon in (0.1, 0.6):
        ways = ((one, other), (other, one))
        exact = max(np.maximum(p - math.exp(epsilon) * q, 0.0).sum() for p, q in ways)
        exact *= x[1] - x[0]
        assert found.delta(epsilon) <= exact * (1 + 1e-6)
        assert found.delta(epsilon) == pytest.approx(exact, rel=0.02)


def test_the_law_of_balanced_batches_in_long_runs_counts_the_last_steps():
    run = dp_sgd(li.BalancedSampled(1_000, 10, epochs=20), steps=4_000, momentum=0.9)
    report = li.account(run)
    assert 0.0 < report.lower.epsilon(1e-5) <= report.epsilon(1e-5)


REPLACED = dp_sgd(li.Cyclic(12, 4))
LEFT_OUT = dp_sgd(li.Cyclic(12, 4), adjacency="zero-out")
POISSON = dp_sgd(li.PoissonSampled(12, 4))
FREE = REPLACED.replace(clip_norm=None, loss=li.Loss(smoothness=0.25))


@pytest.mark.parametrize(
    "run, gradients, reason",
    [
        (REPLACED, Gradients(0.5, -0.5, (-0.5, 0.5)), None),
        (REPLACED, Gradients(1.0, 0.0), "gradients of 2.0"),
        (REPLACED.replace(sensitivity=1.0), Gradients(1.0, 0.0), None),
        (REPLACED.replace(sensitivity=1.0), Gradients(1.0, 0.0, (-0.1, 0.0)), "differ by 1.1"),
        (REPLACED, Gradients(0.5, -0.5, shared=True), "share"),
        (LEFT_OUT, Gradients(1.0, 0.0, (-1.0, 1.0)), None),
        (LEFT_OUT, Gradients(1.0, 0.0, (-1.1, 1.0)), "differ by 1.1"),
        (LEFT_OUT, Gradients(0.5, -0.5), "not left out"),
        (FREE, Gradients(0.5, -0.5, shared=True), None),
        (FREE, Gradients(0.6, -0.5), "differ"),
        (FREE, Gradients(math.nan, 0.0), "differ"),
        (FREE.replace(batches=POISSON.batches), Gradients(0.5, -0.5, shared=True), "share"),
        (FREE.replace(batches=POISSON.batches), Gradients(2.0, 1.0), "differ by 2.0"),
    ],
)
def test_what_a_description_admits(run, gradients, reason):
    found = gradients.not_admitted(run)
    assert found is None if reason is None else reason in found


def test_a_bound_whose_gradients_are_not_admitted_does_not_apply():
    from dataclasses import replace

    bound = replace(LOWER_BOUNDS["lower/quadratic"], gradients=lambda run: [Gradients(1.0, 0.0)])
    assert not LOWER_BOUNDS["lower/quadratic"].unmet(POISSON)
    assert "gradients of 2.0" in str(bound.unmet(POISSON)[0])
    with pytest.raises(li.NoBoundApplies):
        bound.profile(POISSON)


@pytest.mark.parametrize("run", [REPLACED, LEFT_OUT, POISSON, FREE])
def test_linear_gradients_are_admitted(run):
    assert linear_gradients(run)
    for one in linear_gradients(run):
        assert one.not_admitted(run) is None
        ours, theirs = one.moves(exact_size=run.batches.exact_size)
        assert ours - theirs == 1.0


def test_searched_instances_have_them_too():
    """Of batches of random size the others cannot make up; a loose bound is not used up."""
    (first, second) = FAMILIES["quadratics"].pair(POISSON, {}).steps[0].takes
    shift = float(admitted(POISSON).shifts[0])
    assert (first.values[0], second.values[0]) == (-shift / 2, shift / 2)
    loose = li.Loss(smoothness=0.25, lipschitz=3.0)
    for run in (REPLACED, LEFT_OUT):
        found = admitted(run.replace(clip_norm=None, loss=loose))
        assert found.bound == run.sensitivity * (1.0 if run is LEFT_OUT else 0.5)


class TestPersons:
    def run(self, **changes):
        settings = {
            "loss": li.Loss(smoothness=1.0), "sensitivity": 1.0, "batches": li.Cyclic(24, 2),
            "steps": 24, "step_size": 1.0, "noise_std": 1.0, "examples_per_person": 6,
        }  # fmt: skip
        return li.TrainingRun(**{**settings, **changes})

    def test_a_batch_has_room_for_few_of_them(self):
        for changes, id_ in (
            ({}, "lower/drifting"),
            ({"domain": li.Ball(9.0)}, "published/bok-su-altschuler/bounded-lower"),
        ):
            run = self.run(**changes)
            found = LOWER_BOUNDS[id_].profile(run).epsilon(1e-5)
            of_two = LOWER_BOUNDS[id_].profile(run.replace(examples_per_person=2))
            assert found == of_two.epsilon(1e-5)

    def test_others_in_the_batch_must_make_up_for_all_of_a_person_s(self):
        bound = LOWER_BOUNDS["published/bok-su-altschuler/bounded-lower"]
        loss = li.Loss(smoothness=1.0, lipschitz=0.5)
        run = self.run(domain=li.Ball(9.0), loss=loss, batches=li.Cyclic(24, 4))
        assert "4 of them of one person" in str(bound.unmet(run)[0])
        assert not bound.unmet(run.replace(examples_per_person=2))

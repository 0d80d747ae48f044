r"""Which run to make, from public quantities only.

The rule uses the number of examples, the number of classes, the bound on features, the loss and
the target; n and the label set are treated as public.  Nothing of the rows or targets enters.

=============  ========================================================================
n, R, L        examples; radius of features, intercept's constant included; sensitivity
mu             the Gaussian parameter of the target (epsilon, delta)
eta            2/(smoothness + penalty), the longest step that does not expand or, with a penalty,
               contracts most (for a squared loss half); on batches of random size less, so that
               it does not expand on those that ever occur
T              steps: :math:`\nu n \mu/(R L \eta)`, at most 20,000
=============  ========================================================================

:math:`R L \eta T/(n\mu)` is the standard deviation that noise would give an output if no
curvature damped it.  Runs in which it is :math:`\nu`, 1 for a logit and a tenth of the bound for a
target, are near the best everywhere: with fewer steps less is learnt, with more the noise grows
faster than what is learnt.  Batches are as large as `epochs` passes allow, but at least 16: steps
as long as 2/smoothness along smaller ones would add more noise of sampling than they teach, so
that at few passes there are fewer of them.  Noise on release worth half an epoch's hides the last
participations, after which the guarantee is that of full batches, for any batch size.

At few passes and large mu this asks for batches of few rows, whatever n is, and the noise of
sampling them exceeds that for privacy. There (below 32 rows for classes, below 400 for numbers),
where all else is left to the rule and no rows will have to be forgotten, steps fall linearly to a
tenth, which averages over the last batches. The shorter a step, the shorter the time left to hide
who was in it, so that noise on release worth a twentieth of an epoch is enough; the noise of a step
falls as the root of its size, between even noise in parameters, which costs least, and even noise
on gradients, which is damped most. The sum of step sizes is four fifths, since all this costs more
noise than even steps do.

The least batch was chosen on validation splits of the training data (MNIST, Adult, IMDb; no test
set): at 2 passes and epsilon 4, where it matters, 16 changes accuracy by .34, .28 and -.07 points
against none (standard errors .2), 32 by -.32, .10 and .02, 64 by -1.6, -.2 and -.2.  What steps
that fall change is in `benchmarks/utility_notes.md`.

**The part of mu that is spent on the mean of rows.** What is spent on it must pay for itself.  With
many rows .15 of mu gives a mean that is good enough.  With few, more is spent, up to .3: as much as
brings the noise of the mean to a quarter of the bound on features.  Where even that leaves noise of
more than half the bound, nothing is, as the mean would be lost in it.

Chosen on validation splits of small data sets (`benchmarks/validation.py`, settings `shares`).
Against .15 of mu and noise of at most a quarter throughout, columns that were mapped to ranges,
and so have much in common, gain 4 to 20 points of accuracy where the rule differs (scikit-learn's
digits, breast cancer and wine); rows that have nothing in common lose up to .7.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate import _check
from lastiterate._numerics.rounding import Array, down, ulps
from lastiterate._numerics.search import least_true
from lastiterate.accounting import account
from lastiterate.calibration import calibrate, calibrate_quickly
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.other_releases import (
    INTERVALS,
    MEAN,
    OUTLIERS,
    RATES,
    UNDECLARED,
    Release,
    joint_mu,
)
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.run.batch_rules.base import RULES, BatchRule, Resampling
from lastiterate.run.loss import Loss
from lastiterate.run.optimizer import Schedule
from lastiterate.run.training_run import TrainingRun
from lastiterate.train.arithmetic import Problem, arithmetic
from lastiterate.train.objectives import Objective
from lastiterate.train.settings import RunSettings

_MOST_STEPS = 20_000
_OVERSIZE_PROBABILITY = 1e-15  # of a batch for which a step is too long
_NOISE_TRIALS, _NOISE_STEP, _FAR_BELOW_TARGET = 6, 1e-5, 0.99
_ROUNDING_TRIALS, _ROUNDING_STEP = 12, 1e-7
_INTERVALS_SHARE = 0.5  # of mu
LEAST_SHARE, MOST_SHARE = 0.15, 0.3  # of mu
_ENOUGH_NOISE, _TOO_MUCH_NOISE = 0.25, 0.5  # noise of the mean, in units of the bound on features
_SHARES_TOLERANCE = 1e-3  # how far shares as people write them may be from adding up to 1


def default_run(
    objective: Objective,
    settings: RunSettings,
    *,
    examples: int,
    radius: float,
    mapped: bool = False,
    features: int = 0,
    even: bool = False,
    problem: Problem | None = None,
) -> TrainingRun:
    """The run that the rule makes of the settings; without `features` rows are not centred.

    With `even` no step is shorter than another, so that more steps may follow.  With a `problem` it
    meets its target with the rounding of its arithmetic, `apart` saying whether rows are sparse.
    """
    chosen = settings.checked().deciding()
    return _default_run(
        objective,
        chosen,
        examples=examples,
        radius=radius,
        mapped=mapped,
        features=features,
        even=even,
        problem=problem,
    )


def steps_asked_for(
    objective: Objective, settings: RunSettings, *, examples: int, radius: float
) -> int:
    """The number of steps that the rule makes if passes over the data cost nothing."""
    loss = objective.loss(radius=radius, l2=settings.l2)
    step = _longest_step(loss, 1.0) * objective.step_share
    sensitivity = objective.sensitivity(radius=radius, adjacency=settings.adjacency)
    return _step_count(settings, examples, objective.output_unit / (radius * step), sensitivity)


@lru_cache(maxsize=256)
def _default_run(
    objective: Objective,
    chosen: tuple[tuple[str, Any], ...],
    *,
    examples: int,
    radius: float,
    mapped: bool,
    features: int,
    even: bool,
    problem: Problem | None,
) -> TrainingRun:
    settings = RunSettings(**dict(chosen))
    loss = objective.loss(radius=radius, l2=settings.l2)
    assert loss.smoothness is not None
    sensitivity = objective.sensitivity(radius=radius, adjacency=settings.adjacency)

    def steps_of(step: float, shape: StepShape) -> int:
        reach = shape.steps * objective.output_unit / (radius * step)
        return _step_count(settings, examples, reach, sensitivity)

    longest = _longest_step(loss, 1.0)
    usual = longest * objective.step_share
    shape = (
        EVEN
        if even
        else _step_shape(
            settings,
            examples,
            steps_of(usual, EVEN),
            few_rows=objective.few_rows,
            mapped=mapped,
        )
    )
    batches = _batch_rule(
        settings, examples, steps_of(usual, shape), least=shape.least_batch, mapped=mapped
    )
    larger = batches.size_exceeded_with(_OVERSIZE_PROBABILITY) / batches.batch_size
    step = min(longest, _longest_step(loss, larger)) * objective.step_share
    steps = min(steps_of(step, shape), settings.epochs * batches.batches_per_epoch)
    noise = sensitivity / batches.batch_size if settings.noise_std is None else settings.noise_std
    sizes, noises = shape.schedules(step, noise, steps)
    run = TrainingRun(
        loss=loss,
        sensitivity=sensitivity,
        batches=batches,
        steps=steps,
        step_size=sizes,
        noise_std=noises,
        release_noise_std=_release_noise(settings, batches, step * noise, shape),
        adjacency=settings.adjacency,
        examples_per_person=settings.examples_per_person,
    )
    over = "noise" if settings.release_noise_std is None else "noise_std"
    other_releases = () if settings.epsilon is None else default_releases(settings, run, features)
    if settings.epsilon is not None:
        run = _calibrate_run(run, settings.epsilon, settings.delta, over, other_releases)
        if problem is not None:
            apart = problem.apart and any(one.kind == MEAN for one in other_releases)
            run = _with_rounding(run, settings, replace(problem, apart=apart), other_releases)
    return run


def _with_rounding(
    run: TrainingRun,
    settings: RunSettings,
    problem: Problem,
    other_releases: tuple[Release, ...],
) -> TrainingRun:
    """The run, with hardly more noise, that meets its target with the cost of rounding."""
    epsilon, delta = settings.epsilon, settings.delta
    assert epsilon is not None
    for _ in range(_ROUNDING_TRIALS):
        rounding = arithmetic([run], problem, other_releases).rounding
        exact = account(run, other_releases=other_releases)
        found = exact.computed(rounding).epsilon(delta)
        if found <= epsilon:
            return run
        factor = min(found / epsilon, 2.0) + _ROUNDING_STEP
        given = settings.release_noise_std is not None
        run = run.replace(
            noise_std=np.array(run.noise_std) * factor,
            release_noise_std=run.release_noise_std * (1.0 if given else factor),
        )
    must_be = "reachable with what rounding costs: fewer features or steps, or arithmetic='fast'"
    raise InvalidParameter("epsilon", epsilon, must_be=must_be)


def _calibrate_run(
    run: TrainingRun, epsilon: float, delta: float, over: str, other_releases: tuple[Release, ...]
) -> TrainingRun:
    """The run with the least noise for the target, or hardly more if there are other releases."""
    if not other_releases or over != "noise":
        return calibrate(
            run, epsilon=epsilon, delta=delta, over=over, other_releases=other_releases
        )
    # Of Gaussian guarantees the squares of mu add up, and all others are nearly so: the noise of
    # the training alone, and then a few trials.
    alone = calibrate_quickly(run, epsilon=epsilon, delta=delta, over=over)
    part = run.examples_per_person * joint_mu(other_releases) / gaussian_parameter(epsilon, delta)
    factor = 1.0 / math.sqrt(1.0 - min(part, 0.9) ** 2)
    for _ in range(_NOISE_TRIALS):
        louder = alone.replace(
            noise_std=np.array(alone.noise_std) * factor,
            release_noise_std=alone.release_noise_std * factor,
        )
        found = account(louder, other_releases=other_releases).epsilon(delta)
        if found <= epsilon * _FAR_BELOW_TARGET:
            break  # the squares do not nearly add up, as for several examples of a person
        if found <= epsilon:
            return louder
        factor *= found / epsilon + _NOISE_STEP
    return calibrate(run, epsilon=epsilon, delta=delta, over=over, other_releases=other_releases)


def _step_count(settings: RunSettings, examples: int, reach: float, sensitivity: float) -> int:
    """How many steps bring the undamped noise of an output to a unit, `reach` times R eta."""
    if settings.epsilon is not None:
        mu = gaussian_parameter(settings.epsilon, settings.delta) / settings.examples_per_person
        steps = reach * examples * mu / sensitivity
    else:
        # mu is about sqrt(T) L/(n sigma), so that the undamped noise is R eta sigma sqrt(T).
        assert settings.noise_std is not None
        steps = (reach / settings.noise_std) ** 2
    return int(min(max(steps, 1.0), _MOST_STEPS))


def _step_shape(
    settings: RunSettings, examples: int, steps: int, *, few_rows: int, mapped: bool
) -> StepShape:
    """The shape for a run that would take `steps` steps if each had the largest step size."""
    kind = RULES[settings.batches]
    few = examples * settings.epochs < few_rows * steps
    # Other bounds than those of an order that is drawn once hold for even steps only.
    covered = kind.resampling is Resampling.ONCE and kind.ordered and kind.exact_size and not mapped
    given = (settings.noise_std, settings.batch_size, settings.release_noise_std)
    plain = settings.l2 == 0.0 and settings.examples_per_person == 1
    return FALLING if few and covered and plain and given == (None, None, None) else EVEN


def _batch_rule(
    settings: RunSettings, examples: int, steps: int, *, least: int, mapped: bool
) -> BatchRule:
    kind, size = RULES[settings.batches], settings.batch_size
    if not kind.ordered:
        return kind.of_sizes(examples, None)
    if size is None:
        size = max(examples // math.ceil(steps / settings.epochs), min(least, examples))
    size = _check.count("batch_size", size, at_least=1, at_most=examples)
    if mapped and kind.in_blocks is not None:
        kind = RULES[kind.in_blocks]
    # Of blocks the rows after the last full one are always left out.
    counted = examples // size * size if mapped else examples
    return kind.of_sizes(counted, size)


def _longest_step(loss: Loss, times: float) -> float:
    """The longest step that does not expand on batches `times` as large as usual.

    Or the one that contracts most, if there is a penalty: the longest would not at all.
    """
    assert loss.smoothness is not None
    penalty = 2.0 * loss.regulariser
    smoothness = (loss.smoothness - loss.regulariser) * times + penalty
    return down(2.0 / smoothness, ulps(8))


def _release_noise(
    settings: RunSettings, batches: BatchRule, step_noise: float, shape: StepShape
) -> float:
    if settings.release_noise_std is not None:
        return settings.release_noise_std
    if batches.resampling is Resampling.EACH_STEP:
        return 0.0  # it would save a millionth of the noise (2,000 examples, epsilon 1)
    return shape.release_noise(step_noise, batches.batches_per_epoch)


# The statistics that are published beside a model by default, from public quantities only.


def default_releases(settings: RunSettings, run: TrainingRun, features: int) -> tuple[Release, ...]:
    """The default other releases beside the last iterate of the run: a mean of rows, and counts.

    The mean is published only where its noise is expected to be much shorter than the longest row.
    """
    # Around a mean that noise has moved, intervals would be for that noise's coefficients.
    centring = settings.center and features > 0 and not settings.intervals
    if not (centring or settings.counting or settings.rate_matching or settings.intervals):
        return ()
    epsilon = settings.epsilon
    if epsilon is None:
        epsilon = account(run).epsilon(settings.delta)
    mu = gaussian_parameter(epsilon, settings.delta) / settings.examples_per_person
    found = []
    if centring:
        mean = mean_release(
            mu, adjacency=settings.adjacency, features=features, examples=run.batches.examples
        )
        found += [] if mean is None else [mean]
    if settings.counting > 0.0:
        kinds = (OUTLIERS, UNDECLARED) if settings.text_columns else (OUTLIERS,)
        each = settings.counting * mu / math.sqrt(len(kinds))
        found += [Release.of_mu(kind, each, adjacency=settings.adjacency) for kind in kinds]
    if settings.rate_matching > 0.0:
        share = settings.rate_matching * mu
        found.append(Release.of_mu(RATES, share, adjacency=settings.adjacency))
    if settings.intervals:
        found.append(Release.of_mu(INTERVALS, _INTERVALS_SHARE * mu, adjacency=settings.adjacency))
    return tuple(found)


def gaussian_parameter(epsilon: float, delta: float) -> float:
    """The largest mu that is (epsilon, delta)-DP, to within a part in a million or so."""

    def too_large(log_mu: float) -> bool:
        return GaussianProfile(math.exp(log_mu)).delta(epsilon) > delta

    return math.exp(least_true(too_large, math.log(1e-9), math.log(1e6)))


# The part of mu that is spent on the mean of rows.


def mean_release(mu: float, *, adjacency: str, features: int, examples: int) -> Release | None:
    """The release of the mean with its share of mu; None where it would be lost in noise."""

    def noise(share: float) -> float:
        release = Release.of_mu(MEAN, share * mu, adjacency=adjacency)
        return release.noise_std * math.sqrt(features) / examples

    share = min(max(LEAST_SHARE * noise(LEAST_SHARE) / _ENOUGH_NOISE, LEAST_SHARE), MOST_SHARE)
    if not noise(share) <= _TOO_MUCH_NOISE:
        return None
    return Release.of_mu(MEAN, share * mu, adjacency=adjacency)


# How step sizes change over a run: not at all, or linearly to a tenth.


@dataclass(frozen=True)
class StepShape:
    """How step sizes change over a run, and what goes with that."""

    last: float  # in units of the first
    share: float  # of the sum of step sizes
    least_batch: int
    release_worth: float  # epochs

    @property
    def steps(self) -> float:
        """The number of steps, in units of that of a run in which all are the longest."""
        return 2.0 * self.share / (1.0 + self.last)

    def schedules(self, step: float, noise: float, steps: int) -> tuple[Schedule, Schedule]:
        """Step sizes and noise of gradients: one for all, or one for each step."""
        if self.last == 1.0:
            return step, noise
        sizes = np.linspace(1.0, self.last, steps)
        return tuple((step * sizes).tolist()), tuple((noise / np.sqrt(sizes)).tolist())

    def release_noise(self, step_noise: float, epoch: int) -> float:
        """Release noise equal to that of `release_worth` more epochs of steps of mean variance."""
        return step_noise * math.sqrt(self.release_worth * epoch * (1.0 + self.last) / 2.0)


EVEN = StepShape(last=1.0, share=1.0, least_batch=16, release_worth=0.5)

FALLING = StepShape(last=0.1, share=0.8, least_batch=8, release_worth=0.05)


# Publicly known shares of the classes, as outputs that a model begins with.


def log_odds(prior: Any, classes: NDArray[Any]) -> Array:
    """Outputs of a model that knows these shares of the classes and nothing else."""
    labels = classes.tolist()
    must_be = "a positive share for each of the classes, adding up to 1, as in {0: .98, 1: .02}"
    if not isinstance(prior, Mapping):
        raise InvalidType("class_prior", prior, must_be=must_be)
    shares = [prior.get(label) for label in labels]
    if len(prior) != len(labels) or any(share is None for share in shares):
        raise InvalidParameter("class_prior", prior, must_be=must_be)
    logs = np.log([_check.number("class_prior", share, above=0.0) for share in shares])
    if not abs(np.exp(logs).sum() - 1.0) <= _SHARES_TOLERANCE:
        raise InvalidParameter("class_prior", prior, must_be=must_be)
    return np.array([logs[1] - logs[0]]) if len(labels) == 2 else logs - logs.mean()

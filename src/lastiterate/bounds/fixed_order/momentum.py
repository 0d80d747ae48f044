"""The last iterate of runs with momentum, or the average of iterates, in a fixed batch order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lastiterate._numerics.arrays import Array, IntArray
from lastiterate._numerics.rounding import FEW_ROUNDINGS, TINY, at_least, down, up
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation, Hypothesis
from lastiterate.bounds.composition.fixed_order_composition import worst_order_composition
from lastiterate.bounds.line_style import BLUE, DASHES, LineStyle
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.run.batch_rules.rules import Resampling, rules
from lastiterate.run.domain import Unbounded
from lastiterate.run.training_run import TrainingRun
from lastiterate.shifts.momentum.certificate import LinearRun
from lastiterate.shifts.momentum.epochs import Energies, MomentumEpochs, Tails
from lastiterate.shifts.momentum.recursion import Averaged, Momentum, Recursion
from lastiterate.shifts.momentum.recursion_mu import recursion_mu

_MOST_WORK = 60_000  # positions times steps that are solved one by one
_SINGLE_TAILS = 13  # the latest positions, each solved by itself
_WIDTH = 1.3  # of groups of the others: their largest tail over their least
_COARSE = (  # least and largest tail, and whether each is charged in its own step
    (1, 1, False), (2, 2, False), (3, 3, False), (4, 7, True), (8, 15, True), (16, 31, True),
    (32, 10**9, False),
)  # fmt: skip
_DELAY = 30  # steps by which participations in earlier epochs are charged later


def momentum(run: TrainingRun) -> GaussianProfile:
    r"""mu-GDP of what a run with momentum, or with an average of its iterates, releases.

    **Bound.** The least :math:`\mu^2 = \sum_k s_k^2/\kappa_k` that a convex programme finds, with a
    2 x 2 matrix for each step (`shifts.momentum.certificate` has the theorem), at the most exposed
    position.  Never above composition.  It stays bounded as steps are added if the loss is
    strongly convex and steps are short enough for the momentum (docs/momentum.md).

    **Holds when.** every loss is smooth, the domain unbounded, every step has noise, batches have
    a fixed size, and nothing but what is released leaves: neither the buffer nor other iterates.
    Convexity is not needed, but without it, or with gradients that a clip changes, a step may
    expand distances.

    **Tight.** 1.06 to 1.27 times what quadratic losses leak for positions in the middle of an
    epoch.  Late ones are charged alone: noise from before a participation is not used.

    **Source.** This library (docs/momentum.md).

    **Computed as** Newton steps on a barrier; the certificate is checked in interval arithmetic
    and mu is rounded up.
    """
    composed = worst_order_composition(run)
    found = quantities.gaussian(worst_mu(run))
    return min(found, composed, key=lambda profile: profile.mu)


def momentum_by_position(run: TrainingRun) -> Sequence[GaussianProfile]:
    """The guarantee of each position in the order of the batches."""
    return [quantities.gaussian(mu) for mu in position_mus(run)]


def worst_mu(run: TrainingRun) -> float:
    """mu of the most exposed position; inf where that takes too long to find."""
    if run.batches.resampling is Resampling.EACH_STEP:
        return pattern_mu(run, np.arange(run.steps))
    if has_regular_epochs(run):
        return _mu(ratio_of(run), _worst_energy(epoch_settings(run)))
    return max(position_mus(run), default=0.0)


def position_mus(run: TrainingRun) -> list[float]:
    """mu of each position in the order of the batches; only the worst where it is drawn anew."""
    count = quantities.position_count(run)
    if run.batches.resampling in (Resampling.EACH_EPOCH, Resampling.EACH_STEP):
        return [worst_mu(run)] if has_regular_epochs(run) else [math.inf]
    if count * run.steps <= _MOST_WORK:
        return [pattern_mu(run, seen) for seen in quantities.patterns(run)]
    if not has_regular_epochs(run):
        return [math.inf] * count
    by_tail, absent = last_epoch_mus(run)
    length = run.batches.batches_per_epoch
    tails = [(run.steps - 1 - position) % length for position in range(count)]
    return [by_tail[tail] if tail < len(by_tail) else absent for tail in tails]


def pattern_mu(run: TrainingRun, seen: IntArray) -> float:
    """mu of an example that takes part in these steps, counted from 0."""
    sensitivity = np.zeros(run.steps)
    sensitivity[seen] = max(quantities.gradient_change(run), TINY)
    noise = np.array(quantities.every_step(np.atleast_1d(np.array(run.noise_std)), run.steps))
    return recursion_mu(
        LinearRun(recursion_of(run), curvature(run), sensitivity, noise, run.release_noise_std)
    )


def recursion_of(run: TrainingRun) -> Recursion:
    """The linear recursion of the run's steps."""
    step_size = _every_step(run.step_size, run.steps)
    if run.average is not None:
        return Averaged(step_size, np.array(run.average.decays(run.steps)))
    betas = _every_step(run.momentum, run.steps)
    dampening = np.full(run.steps, run.dampening)
    first = [0, *(step - 1 for step in run.buffer_resets)]
    # A step that begins with an empty buffer stores the gradient itself.
    dampening[first] = 0.0
    if not run.nesterov:
        betas[first] = 0.0
    return Momentum(step_size, betas, dampening, run.nesterov)


def curvature(run: TrainingRun) -> tuple[float, float]:
    """The least and the largest curvature of every batch, rounded outwards."""
    loss = run.loss
    if loss.smoothness is None:
        raise ValueError("curvature needs a smoothness")
    if loss.convex and not run.clip_may_be_active:
        return loss.strong_convexity, loss.smoothness
    other = up(loss.smoothness - loss.regulariser, FEW_ROUNDINGS)
    return math.nextafter(loss.regulariser - other, -math.inf), math.nextafter(
        loss.regulariser + other, math.inf
    )


def _every_step(value: float | tuple[float, ...], steps: int) -> Array:
    return np.array(quantities.every_step(np.atleast_1d(np.array(value)), steps))


def has_equal_steps(run: TrainingRun) -> bool:
    """Whether all steps but the first are alike."""
    regular = run.is_constant and not isinstance(run.momentum, tuple) and not run.buffer_resets
    return regular and (run.average is None or recursion_of(run).is_constant)


def has_regular_epochs(run: TrainingRun) -> bool:
    """Whether equal steps visit every position once in each epoch."""
    anew = run.batches.resampling is Resampling.EACH_EPOCH
    return has_equal_steps(run) and (anew or run.batches.period == run.batches.batches_per_epoch)


@dataclass(frozen=True)
class EpochSettings:
    """What the energies of positions depend on, in units of the noise of a step."""

    run: TrainingRun  # with noise 1
    curvature: tuple[float, float]
    length: int
    keeps_positions: bool

    def epochs(self) -> MomentumEpochs:
        """The run in terms of `shifts.momentum`."""
        return MomentumEpochs(
            recursion_of(self.run),
            self.curvature,
            1.0,
            self.run.release_noise_std,
            self.length,
            _DELAY,
        )


def epoch_settings(run: TrainingRun) -> EpochSettings:
    """The settings of a run of equal steps; equal for runs that differ in their noise only."""
    noise = float(np.max(run.noise_std))
    unit = run.replace(
        noise_std=1.0,
        sensitivity=1.0,
        clip_norm=None,
        loss=type(run.loss)(),
        adjacency="replace",
        release_noise_std=down(run.release_noise_std / noise, FEW_ROUNDINGS),
    )
    keeps = run.batches.resampling is not Resampling.EACH_EPOCH
    return EpochSettings(unit, curvature(run), run.batches.batches_per_epoch, keeps)


def tail_groups(settings: EpochSettings) -> list[Tails]:
    """Groups of positions of the last epoch, the latest one by one."""
    length = settings.epochs().last_length
    groups = [Tails(tail, tail) for tail in range(min(_SINGLE_TAILS, length))]
    least = len(groups)
    while least < length:
        most = min(max(math.floor(least * _WIDTH), least + 1), length - 1)
        most = length - 1 if length - 1 - most < 3 else most
        groups.append(Tails(least, most))
        least = most + 1
    return groups


@lru_cache(maxsize=512)
def group_energies(
    settings: EpochSettings, group: Tails | None, other: Tails | None = None
) -> Energies:
    """The energies of a position in each group, for a sensitivity of 1; infinite if not proved."""
    found = settings.epochs().energies(group, other)
    return Energies(math.inf, math.inf, math.inf) if found is None else found


@lru_cache(maxsize=32)
def _worst_energy(settings: EpochSettings) -> float:
    """The energy of the most exposed position, from certificates that serve many positions."""
    length = settings.epochs().last_length
    absent = group_energies(settings, None).earlier if _has_absent(settings) else 0.0
    worst = max(_single_energy(settings, 0), absent)
    for least, most, each in _COARSE:
        if least < length:
            group = Tails(least, min(most, length - 1), each)
            if group.least == group.most:
                energy = _single_energy(settings, least)
            else:
                found = group_energies(settings, group)
                energy = found.earlier + found.group
            worst = max(worst, energy)
    return worst


def _has_absent(settings: EpochSettings) -> bool:
    """Whether the last epoch is cut short, so that some positions are not in it."""
    return settings.epochs().last_length < settings.length


def _single_energy(settings: EpochSettings, tail: int) -> float:
    found = group_energies(settings, Tails(tail, tail))
    energy = found.earlier + found.group
    return min(energy, _exact_energy(settings, tail)) if settings.keeps_positions else energy


def last_epoch_mus(run: TrainingRun) -> tuple[list[float], float]:
    """mu by tail in the last epoch, and mu of an example that takes no part in it.

    The run has equal steps.  Positions in earlier epochs may be any.
    """
    settings = epoch_settings(run)
    ratio = ratio_of(run)
    absent = _mu(ratio, group_energies(settings, None).earlier)
    mus: list[float] = []
    for group in tail_groups(settings):
        energies = group_energies(settings, group)
        mu = _mu(ratio, energies.earlier + energies.group)
        mus += [mu] * (group.most - group.least + 1)
    return mus, absent


def ratio_of(run: TrainingRun) -> float:
    """The sensitivity of a batch over the noise of a step, rounded up."""
    noise = float(np.max(run.noise_std))
    return at_least(max(quantities.gradient_change(run) / noise, TINY), ulps=4)


def _exact_energy(settings: EpochSettings, tail: int) -> float:
    """mu^2 of an example at this position in every epoch, for a sensitivity of 1."""
    steps = settings.run.steps
    sensitivity = np.zeros(steps)
    sensitivity[steps - 1 - tail :: -settings.length] = 1.0
    mu = recursion_mu(
        LinearRun(
            recursion_of(settings.run),
            settings.curvature,
            sensitivity,
            np.ones(steps),
            settings.run.release_noise_std,
        )
    )
    return up(mu * mu, FEW_ROUNDINGS)


def _mu(ratio: float, energy: float) -> float:
    return up(ratio * math.sqrt(energy), FEW_ROUNDINGS) if math.isfinite(energy) else math.inf


def _both(run: TrainingRun) -> str | None:
    both = run.momentum != 0.0 and run.average is not None
    return f"momentum={run.momentum!r} and average={run.average!r}" if both else None


def _neither(run: TrainingRun) -> str | None:
    return "plain steps" if run.has_plain_steps else None


NOT_BOTH = Hypothesis(
    "momentum or an average of iterates, not both at once",
    _both,
    "publish the last iterate, or train without momentum",
)
NOT_PLAIN = Hypothesis(
    "momentum or an average of iterates", _neither, "see fixed-order/convex for plain steps"
)
UNBOUNDED = Hypothesis(
    "an unbounded domain",
    lambda run: None if isinstance(run.domain, Unbounded) else f"{run.domain!r}",
    "do not project: a projection may turn what the buffer has hidden",
)
NEEDS = (
    NOT_PLAIN,
    conditions.ONLY_LAST_ITERATE,
    conditions.SMOOTH,
    UNBOUNDED,
    conditions.NOISY,
    NOT_BOTH,
)

MOMENTUM = Bound(
    id="fixed-order/momentum",
    gives="a Gaussian guarantee for the last iterate of SGD with momentum, or for an average of "
    "iterates, which converges where losses curve and steps are short",
    covers=rules(*Resampling, exact_size=True),
    needs=NEEDS,
    certainty=Certainty.UPPER,
    beyond_plain_steps=True,
    source=Citation("lastiterate", 2026, "Certificates for momentum", "docs, momentum"),
    evaluate=momentum,
    by_position=momentum_by_position,
    charges="{counts} {fading}",
    line_style=LineStyle(BLUE, DASHES[2]),
    quick=False,
)

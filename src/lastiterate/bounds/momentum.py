"""What runs with momentum release, or with an average of iterates, in a fixed or secret order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lastiterate._numerics.rounding import FEW_ROUNDINGS, TINY, Array, IntArray, at_least, down, up
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import BLUE, DASHES, Bound, Certainty, Citation, Hypothesis, LineStyle
from lastiterate.bounds.composition import worst_order_composition
from lastiterate.bounds.shuffling.positions import with_no_position
from lastiterate.bounds.shuffling.transport import (
    JOINT_TRANSPORT,
    LARGEST_MU,
    TransportProfile,
    sensitivity_factors,
)
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.run.batch_rules.base import Resampling, rules
from lastiterate.run.training_run import TrainingRun, Unbounded
from lastiterate.shifts.momentum.certificate import LinearRun
from lastiterate.shifts.momentum.mu import Energies, EpochTails, MomentumEpochs, recursion_mu
from lastiterate.shifts.momentum.recursion import Averaged, Momentum, Recursion

_MOST_WORK = 60_000  # positions times steps that are solved one by one
_MOST_WORK_WITHOUT_EPOCHS = 300_000  # the same where steps differ, and nothing else is known
_SINGLE_TAILS = 24  # the latest positions, each solved by itself
_GROUP_WIDTH = 1.3  # of groups of the others: their largest tail over their least
_COARSE_GROUPS = (  # least and largest tail, and whether each is charged in its own step
    (1, 1, False), (2, 2, False), (3, 3, False), (4, 7, True), (8, 15, True), (16, 23, False),
    (24, 31, False), (32, 10**9, False),
)  # fmt: skip
_FEW_TAILS = 8  # groups of so many positions are solved one by one where they may be the worst
_LATE_TAILS = (16, 40)  # positions with shorter tails are late, all tried
_RELEASE_BITS = 30  # of the ratio of the noise on release to that of a step
_DELAY_STEPS = 20  # steps by which participations in earlier epochs are charged later


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
    composed = worst_order_composition(run).mu
    return [GaussianProfile(min(quantities.widened(mu), composed)) for mu in position_mus(run)]


@lru_cache(maxsize=8)
def momentum_transport(run: TrainingRun) -> TransportProfile:
    r"""The profile of a secret position in a shuffled run with momentum.

    **Bound.** At every epsilon the least of :math:`\sum_j p_j \delta_{\mu_j}(\varepsilon)` and of
    the best transport between positions (`TransportProfile`).  mu_j is that of a position in
    the last epoch, whatever the positions in earlier ones.  The mu of the example at a late
    position against it at a receiving one has participations at both, the receiving one being
    any: with momentum a later position need not be the more exposed one.

    **Holds when.** `fixed-order/momentum` does, steps are equal, and single examples are shuffled
    uniformly and in secret, once or before every epoch.

    **Tight.** Not measured against a lower bound of its own.

    **Source.** This library (docs/momentum.md, docs/tightness.md#transport).

    **Computed as** sums of Gaussian curves, rounded up.
    """
    settings, ratio = epoch_settings(run), ratio_of(run)
    groups = tail_groups(settings)
    by_tail, absent = last_epoch_mus(run)
    sizes = np.array([group.most - group.least + 1 for group in groups], dtype=np.float64)
    length = len(by_tail)
    none = (run.batches.examples - length * run.batches.batch_size) / run.batches.examples
    weights = with_no_position(sizes * np.float64(run.batches.share), none, none)
    mus = with_no_position(np.array([by_tail[group.least] for group in groups]), absent, none)
    directions: list[list[np.ndarray]] = []
    counts = [
        count
        for count in sorted({sum(g.least < tails for g in groups) for tails in _LATE_TAILS})
        if 0 < count < len(groups)
    ]
    for receiving, late in sensitivity_factors(run):
        anew = run.batches.resampling is Resampling.EACH_EPOCH
        earlier = 1.0 if anew else (receiving + late) ** 2
        found = []
        for count in counts if mus.max() < LARGEST_MU else []:
            others = EpochTails(groups[count].least, length - 1)
            parts = [group_energies(settings, group, others) for group in groups[:count]]
            composed = earlier * settings.epochs().earlier_epochs + late**2 + receiving**2
            energies = [
                min(
                    earlier * one.earlier + late**2 * one.group + receiving**2 * one.other,
                    composed,
                )
                for one in parts
            ]
            found.append(np.array([mu_of(ratio, energy) for energy in energies]))
        directions.append([one for one in found if np.all(np.isfinite(one))])
    return TransportProfile(weights, mus, directions)


def _momentum_and_average(run: TrainingRun) -> str | None:
    both = run.momentum != 0.0 and run.average is not None
    return f"momentum={run.momentum!r} and average={run.average!r}" if both else None


def _plain_steps(run: TrainingRun) -> str | None:
    return "plain steps" if run.has_plain_steps else None


def _unequal_steps(run: TrainingRun) -> str | None:
    return None if has_regular_epochs(run) else "unequal steps, or positions of several epochs"


NOT_BOTH = Hypothesis(
    "momentum or an average of iterates, not both at once",
    _momentum_and_average,
    "publish the last iterate, or train without momentum",
)


NOT_PLAIN = Hypothesis(
    "momentum or an average of iterates",
    _plain_steps,
    f"{conditions.NOTHING_TO_DO}: see fixed-order/convex for plain steps",
)


UNBOUNDED = Hypothesis(
    "an unbounded domain",
    lambda run: None if isinstance(run.domain, Unbounded) else f"{run.domain!r}",
    "do not project: a projection may turn what the buffer has hidden",
)


EQUAL_STEPS = Hypothesis(
    "equal steps, and every position visited once in each epoch",
    _unequal_steps,
    "keep step_size, noise_std and momentum fixed, and the buffer filled",
)


NEEDS = (
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
    needs=(NOT_PLAIN, *NEEDS),
    certainty=Certainty.UPPER,
    beyond_plain_steps=True,
    source=Citation("lastiterate", 2026, "Certificates for momentum", "docs, momentum"),
    evaluate=momentum,
    by_position=momentum_by_position,
    charges="{counts} {fading}",
    line_style=LineStyle(BLUE, DASHES[2]),
    quick=False,
)


MOMENTUM_TRANSPORT = Bound(
    id="random-order/shuffled/momentum",
    gives="the average over the example's position in a secret order, for SGD with momentum or an "
    "average of iterates",
    covers=JOINT_TRANSPORT.covers,
    needs=(NOT_PLAIN, conditions.SECRET_ORDER, *NEEDS, EQUAL_STEPS),
    certainty=Certainty.UPPER,
    beyond_plain_steps=True,
    source=Citation(
        "lastiterate", 2026, "Certificates for momentum", "docs, momentum and tightness"
    ),
    evaluate=momentum_transport,
    rests_on=(MOMENTUM,),
    charges="averages over the example's secret position, and keeps that position hidden",
    quick=False,
)


def worst_mu(run: TrainingRun) -> float:
    """mu of the most exposed position; inf where that takes too long to find."""
    if run.batches.resampling is Resampling.EACH_STEP:
        return pattern_mu(run, np.arange(run.steps))
    if has_regular_epochs(run) and not _has_few_patterns(run):
        return mu_of(ratio_of(run), _worst_energy(epoch_settings(run)))
    if _has_few_patterns(run) and quantities.position_count(run) * run.steps > _MOST_WORK:
        worst = 0.0
        for seen in reversed(list(quantities.patterns(run))):
            worst = max(worst, pattern_mu(run, seen, enough=worst * worst))
        return worst
    return max(position_mus(run), default=0.0)


def position_mus(run: TrainingRun) -> list[float]:
    """mu of each position in the order of the batches; only the worst where it is drawn anew."""
    if run.batches.resampling in (Resampling.EACH_EPOCH, Resampling.EACH_STEP):
        known = run.batches.resampling is Resampling.EACH_STEP or has_regular_epochs(run)
        return [worst_mu(run)] if known else [math.inf]
    if _has_few_patterns(run):
        return [pattern_mu(run, seen) for seen in quantities.patterns(run)]
    count = quantities.position_count(run)
    if not has_regular_epochs(run):
        return [math.inf] * count
    by_tail, absent = last_epoch_mus(run)
    length = run.batches.batches_per_epoch
    tails = [(run.steps - 1 - position) % length for position in range(count)]
    return [by_tail[tail] if tail < len(by_tail) else absent for tail in tails]


def _has_few_patterns(run: TrainingRun) -> bool:
    """Whether every position can be solved by itself."""
    fixed = run.batches.resampling in (Resampling.NEVER, Resampling.ONCE)
    most = _MOST_WORK if has_regular_epochs(run) else _MOST_WORK_WITHOUT_EPOCHS
    return fixed and quantities.position_count(run) * run.steps <= most


def pattern_mu(run: TrainingRun, seen: IntArray, enough: float = 0.0) -> float:
    """mu of an example that takes part in these steps, from 0; rough where mu^2 <= `enough`."""
    sensitivity = np.zeros(run.steps)
    sensitivity[seen] = max(quantities.gradient_change(run), TINY)
    noise = np.array(quantities.every_step(np.atleast_1d(np.array(run.noise_std)), run.steps))
    return recursion_mu(
        LinearRun(recursion_of(run), curvature(run), sensitivity, noise, run.release_noise_std),
        enough,
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
    is_empty = np.zeros(run.steps, dtype=np.bool_)
    is_empty[first] = True
    return Momentum(step_size, betas, dampening, is_empty, run.nesterov)


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


def last_epoch_mus(run: TrainingRun) -> tuple[list[float], float]:
    """mu by tail in the last epoch, and mu of an example that takes no part in it.

    The run has equal steps.  Positions in earlier epochs may be any.
    """
    settings = epoch_settings(run)
    ratio = ratio_of(run)
    composed = float(settings.epochs().earlier_epochs)  # the energy of all earlier epochs
    absent = mu_of(ratio, min(group_energies(settings, None).earlier, composed))
    mus: list[float] = []
    for group in tail_groups(settings):
        if group.least == group.most:
            energy = _single_energy(settings, group.least)
        else:
            energies = group_energies(settings, group)
            energy = energies.earlier + energies.group
        mu = mu_of(ratio, min(energy, composed + 1.0))
        mus += [mu] * (group.most - group.least + 1)
    return mus, absent


def mu_of(ratio: float, energy: float) -> float:
    """mu of an energy for a sensitivity of 1, at this ratio of sensitivity to noise."""
    return up(ratio * math.sqrt(energy), FEW_ROUNDINGS) if math.isfinite(energy) else math.inf


def ratio_of(run: TrainingRun) -> float:
    """The sensitivity of a batch over the noise of a step, rounded up."""
    noise = float(np.max(run.noise_std))
    return at_least(max(quantities.gradient_change(run) / noise, TINY), ulps=4)


@dataclass(frozen=True)
class EpochSettings:
    """The quantities that energies of positions depend on, in units of the noise of a step."""

    run: TrainingRun  # with noise 1
    curvature: tuple[float, float]
    length: int
    keeps_positions: bool

    def epochs(self) -> MomentumEpochs:
        """The run in terms of `shifts.momentum`, which keeps the directions that it has proved."""
        return _epochs(self)


@lru_cache(maxsize=8)
def _epochs(settings: EpochSettings) -> MomentumEpochs:
    run = settings.run
    release = run.release_noise_std
    return MomentumEpochs(
        recursion_of(run),
        settings.curvature,
        1.0,
        release,
        settings.length,
        _DELAY_STEPS,
        from_the_end=settings.keeps_positions,
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
        release_noise_std=_round_to_few_digits(down(run.release_noise_std / noise, FEW_ROUNDINGS)),
    )
    keeps = run.batches.resampling is not Resampling.EACH_EPOCH
    return EpochSettings(unit, curvature(run), run.batches.batches_per_epoch, keeps)


def _round_to_few_digits(value: float) -> float:
    """The number, rounded down so that runs with the same ratio of noises agree in it."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(math.floor(math.ldexp(mantissa, _RELEASE_BITS)), exponent - _RELEASE_BITS)


def tail_groups(settings: EpochSettings) -> list[EpochTails]:
    """Groups of positions of the last epoch, the latest one by one."""
    length = settings.epochs().last_length
    groups = [EpochTails(tail, tail) for tail in range(min(_SINGLE_TAILS, length))]
    least = len(groups)
    while least < length:
        most = min(max(math.floor(least * _GROUP_WIDTH), least + 1), length - 1)
        most = length - 1 if length - 1 - most < 3 else most
        groups.append(EpochTails(least, most))
        least = most + 1
    return groups


@lru_cache(maxsize=512)
def group_energies(
    settings: EpochSettings,
    group: EpochTails | None,
    other: EpochTails | None = None,
    enough: float = 0.0,
) -> Energies:
    """The energies of a position in each group, for a sensitivity of 1; infinite if not proved.

    They are rough where all of them together are below `enough`.
    """
    found = settings.epochs().energies(group, other, enough)
    return Energies(math.inf, math.inf, math.inf) if found is None else found


@lru_cache(maxsize=32)
def _worst_energy(settings: EpochSettings) -> float:
    """The energy of the most exposed position, from certificates that serve many positions."""
    length = settings.epochs().last_length
    is_cut_short = length < settings.length  # then some positions are not in the last epoch
    absent = group_energies(settings, None).earlier if is_cut_short else 0.0
    worst = max(_single_energy(settings, 0), absent)
    for least, most, each in _COARSE_GROUPS:
        if least < length:
            group = EpochTails(least, min(most, length - 1), each)
            worst = max(worst, _group_energy(settings, group, enough=worst))
    return worst


def _group_energy(settings: EpochSettings, group: EpochTails, enough: float) -> float:
    """The energy of the most exposed position of a group; roughly, if it is below `enough`."""
    tails = range(group.least, group.most + 1)
    if len(tails) > 1 and not (group.each and settings.keeps_positions):
        found = group_energies(settings, group, enough=enough)
        energy = found.earlier + found.group
        if energy <= enough or len(tails) > _FEW_TAILS:
            return energy
    worst = 0.0
    for tail in tails:
        worst = max(worst, _single_energy(settings, tail, max(enough, worst)))
    return worst


@lru_cache(maxsize=128)
def _single_energy(settings: EpochSettings, tail: int, enough: float = 0.0) -> float:
    """The energy of one position; rough where it is below `enough`."""
    if settings.keeps_positions:
        return _exact_energy(settings, tail, enough)
    found = group_energies(settings, EpochTails(tail, tail), enough=enough)
    return found.earlier + found.group


def _exact_energy(settings: EpochSettings, tail: int, enough: float) -> float:
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
        ),
        enough,
    )
    return up(mu * mu, FEW_ROUNDINGS)

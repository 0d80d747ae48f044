"""The last iterate of runs in a fixed order whose steps are too short to lose earlier noise."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lastiterate._numerics.rounding import (
    FEW_ROUNDINGS,
    TINY,
    Array,
    IntArray,
    at_least,
    at_most,
    ulps,
    up,
)
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import (
    BLUE,
    DASHES,
    PLAIN_STEPS,
    Bound,
    Certainty,
    Hypothesis,
    LineStyle,
)
from lastiterate.bounds.fixed_order.convex import (
    SHIFTED_INTERPOLATION,
    convex,
    convex_by_position,
    convex_for_persons,
)
from lastiterate.profile.gaussian import GaussianMixtureProfile, GaussianProfile
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batch_rules.base import Resampling, rules
from lastiterate.run.batch_rules.ordered import FixedOrder
from lastiterate.run.training_run import TrainingRun
from lastiterate.shifts.early_shifts import FAILURE, ShortSteps, early_mus
from lastiterate.shifts.patterns import Participations, mus_of_few

LEAST_CURVATURE = 1e-6  # linear losses are smooth with any constant; formulas divide by it
_POSITIONS_AT_ONCE = 4_096
_LARGEST_RELEASE = 1e75  # in the noise of a step; its square is still a number
_REGULAR_ORDERS = tuple(
    rule
    for rule in rules(Resampling.NEVER, Resampling.ONCE, Resampling.EACH_EPOCH, exact_size=True)
    if rule is not FixedOrder
)


def short_steps(run: TrainingRun) -> PrivacyProfile:
    r"""mu-GDP of the last iterate but for a small probability, from shifts before participations.

    **Bound.** :math:`\delta(\varepsilon) = \delta_\mu(\varepsilon) + 10^{-15}` in both directions,
    with the mu of `early_mus`: noise drawn before the example's last participation hides it, too,
    as far as later steps have kept it.  It is not mu-GDP, and has no finite Renyi divergence.

    **Holds when.** every loss is convex and M-smooth, every step is shorter than 1/M and has
    noise, gradients are not changed by norm clipping, nothing is projected, batches have a
    fixed size, step size and noise are constant, only the last iterate (and the order) is
    published, and steps are computed exactly (`profile.rounded` charges for rounding).  The
    gradients of one example stay in a space of `Loss.outputs` dimensions.

    **Tight.** Up to the variation of gradients along the way, which costs some thousandths of
    epsilon, equal to the exact privacy of losses whose curvature changes during the run
    (`lower/drifting`).

    **Persons.** Plans for several examples are superposed, so that mu is at most the sum of
    theirs.

    **Source.** `docs/tightness.md#short-steps`, from Bok, Su and Altschuler 2024, Theorem C.3.

    **Computed as** the least over windows of closed forms; rounded up.
    """
    return _better_profile(_worst_mu(run, _equal_steps(run)), convex(run).mu)


def short_steps_for_persons(run: TrainingRun) -> PrivacyProfile:
    """The guarantee for all examples of a person: their plans, superposed.

    The changes that they make in one step are in a space of all their dimensions, and a failure of
    any one counts.
    """
    size = run.examples_per_person
    steps, now = _equal_steps(run), convex_for_persons(run).mu
    shared = replace(steps, dimension=size * steps.dimension, failure=FAILURE / size)
    alone = _worst_mu(run, shared, largest_shift=now)
    return _better_profile(at_least(size * alone, ulps=2), now)


def short_steps_by_position(run: TrainingRun) -> Sequence[PrivacyProfile]:
    """The guarantee of each position in the order of the batches."""
    if run.batches.resampling is Resampling.EACH_EPOCH:
        return [short_steps(run)]
    count, period = quantities.position_count(run), run.batches.batches_per_epoch
    tails = (run.steps - 1 - np.arange(count)) % period
    parts = [
        tails[first : first + _POSITIONS_AT_ONCE] for first in range(0, count, _POSITIONS_AT_ONCE)
    ]
    mus = np.concatenate(
        [_mus(run, _equal_steps(run), _once_an_epoch(run, part)) for part in parts]
    )
    now = [profile.mu for profile in convex_by_position(run)]
    return [_better_profile(float(mu), most) for mu, most in zip(mus, now, strict=True)]


def equal_short_steps(run: TrainingRun) -> ShortSteps | None:
    """The quantities of early shifts in a run of equal steps; None where these are not proved."""
    if any(need.violation(run) is not None for need in (PLAIN_STEPS, *SHORT_STEP_NEEDS)):
        return None
    return _equal_steps(run)


def _equal_steps(run: TrainingRun) -> ShortSteps:
    """The quantities of early shifts in a run for which these are proved."""
    loss, eta, noise = run.loss, float(np.max(run.step_size)), float(np.max(run.noise_std))
    assert loss.smoothness is not None
    assert loss.outputs is not None
    # Only the penalty is left out: what curves the losses themselves is part of their change.
    own = at_least(loss.smoothness - loss.regulariser, ulps=2)
    return ShortSteps(
        steps=run.steps,
        gap=max(quantities.constant_gap(run), 0.0),
        curvature=max(at_least(eta * loss.smoothness, ulps=2), LEAST_CURVATURE),
        ratio=quantities.sensitivity_over_noise(run),
        drift=at_least(max(eta * own * (noise / run.sensitivity), TINY), ulps=8),
        dimension=loss.outputs * (2 if run.adjacency == "replace" else 1),
    )


def _better_profile(mu: float, now: float) -> PrivacyProfile:
    """The guarantee by early shifts, or the Gaussian one by later shifts where these do as well."""
    if not quantities.widened(mu) < now:
        return GaussianProfile(now)
    return GaussianMixtureProfile([1.0], [quantities.widened(mu)], lost=FAILURE)


def _worst_mu(run: TrainingRun, steps: ShortSteps, *, largest_shift: float = 0.0) -> float:
    """mu of the most exposed position of the most exposing order."""
    rule, length = run.batches, run.batches.batches_per_epoch
    if rule.resampling is not Resampling.EACH_EPOCH:
        # If more steps follow, the same plan costs no more, and there are no more participations.
        latest = _once_an_epoch(run, np.zeros(1, dtype=np.int64))
        return float(_mus(run, steps, latest, largest_shift)[0])
    epochs = -(-run.steps // length)
    last = run.steps - (epochs - 1) * length
    worst = _worst_of_epoch(run, steps, range(last), epochs - 1, largest_shift)
    if last < length and epochs > 1:  # it may not take part in the last epoch
        before = range(last, last + length)
        worst = max(worst, _worst_of_epoch(run, steps, before, epochs - 2, largest_shift))
    return worst


def _worst_of_epoch(
    run: TrainingRun, steps: ShortSteps, tails: range, earlier: int, largest_shift: float
) -> float:
    """The largest mu of a last participation in one epoch, after others in `earlier` epochs.

    The others are at the ends of their epochs, where they cost most, and no earlier shifts hide
    them.
    """
    length = run.batches.batches_per_epoch
    ends = [Participations(tails.stop, 1.0, earlier - 1, length)] if earlier else []
    worst, rest = 0.0, np.arange(tails.start, tails.stop)
    while rest.size:
        some, rest = rest[:_POSITIONS_AT_ONCE], rest[_POSITIONS_AT_ONCE:]
        now = _late_mus(run, steps, [*ends, Participations(some)])
        some = some[now > worst]
        if some.size:
            mus = _mus(run, steps, [*ends, Participations(some)], largest_shift)
            worst = max(worst, float(mus.max()))
    return worst


def _once_an_epoch(run: TrainingRun, tails: IntArray) -> list[Participations]:
    """Participations once an epoch, by how many steps follow the last of them."""
    length = run.batches.batches_per_epoch
    return [Participations(tails, 1.0, (run.steps - 1 - tails) // length, length)]


def _mus(
    run: TrainingRun,
    steps: ShortSteps,
    participations: list[Participations],
    largest_shift: float = 0.0,
) -> Array:
    """The mu of participations that earlier shifts hide as well as later ones."""
    return early_mus(
        steps,
        participations,
        release_in_steps=_release_in_steps(run),
        largest_shift=largest_shift,
    )


def _late_mus(run: TrainingRun, steps: ShortSteps, participations: list[Participations]) -> Array:
    """The mu of participations that only later shifts hide."""
    mus = mus_of_few(
        gap=steps.gap, participations=participations, release_in_steps=_release_in_steps(run)
    )
    return up(mus * steps.ratio, ulps(8))


def _release_in_steps(run: TrainingRun) -> float:
    relative = run.release_noise_std / (float(np.max(run.step_size)) * float(np.max(run.noise_std)))
    return at_most(min(relative, _LARGEST_RELEASE) ** 2, ulps=8)


def _unknown_outputs(run: TrainingRun) -> str | None:
    return "outputs=None" if run.loss.outputs is None else None


def _loses_all(run: TrainingRun) -> str | None:
    if run.loss.smoothness is None:
        return None
    eta = float(np.max(run.step_size))
    if up(eta * run.loss.smoothness, FEW_ROUNDINGS) < 1.0:
        return None
    return f"step_size {eta!r} >= {1.0 / run.loss.smoothness!r}"


NO_PROJECTION = Hypothesis(
    "an unbounded domain: a projection may erase what was shifted before it",
    conditions.UNBOUNDED.violation,
    "see fixed-order/convex, or leave out the domain",
)
KNOWN_OUTPUTS = Hypothesis(
    "the dimension that an example's gradients stay in",
    _unknown_outputs,
    "state Loss(outputs=..): 1 for two classes or regression, K for a softmax of K classes, the "
    "number of parameters for what is no linear model",
)
KEEPS_NOISE = Hypothesis(
    "step_size < 1/smoothness in every step: a longer one may lose all earlier noise",
    _loses_all,
    "see fixed-order/convex, or shorten the steps",
)
SHORT_STEP_NEEDS = (
    *conditions.GRADIENT_STEPS,
    NO_PROJECTION,
    KEEPS_NOISE,
    KNOWN_OUTPUTS,
)

SHORT_STEPS_FIXED_ORDER = Bound(
    id="fixed-order/short-steps",
    gives="a Gaussian guarantee for the last iterate but for a probability of 1e-15, from noise "
    "before and after the example's participations",
    covers=_REGULAR_ORDERS,
    needs=SHORT_STEP_NEEDS,
    certainty=Certainty.UPPER,
    source=SHIFTED_INTERPOLATION,
    evaluate=short_steps,
    for_persons=short_steps_for_persons,
    by_position=short_steps_by_position,
    charges="{counts} noise before its last participation, which short steps keep, and {fading}",
    line_style=LineStyle(BLUE, DASHES[3]),
    given_order=True,
)

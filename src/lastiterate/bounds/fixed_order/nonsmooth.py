"""The last iterate of subgradient steps on convex losses that need not be smooth."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import product

import numpy as np

from lastiterate._numerics.rounding import IntArray, up
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation, Hypothesis
from lastiterate.bounds.fixed_order.nonconvex import STEPS_THAT_MAY_EXPAND
from lastiterate.bounds.fixed_order.step_moduli import ROUNDINGS, kept, late
from lastiterate.bounds.line_style import DASHES, PURPLE, LineStyle
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.run.batch_rules.rules import Resampling, rules
from lastiterate.run.domain import Ball
from lastiterate.run.training_run import TrainingRun
from lastiterate.shifts.subgradient_shifts import SubgradientSteps, subgradient_mu

MOST_POSITIONS = 32
_MOST_ORDERS = 64
_WINDOW = 2_000


def non_smooth(run: TrainingRun) -> GaussianProfile:
    r"""mu-GDP of the last iterate, from shifts of subgradient steps.

    **Bound.** The least :math:`\mu` found for the moduli of subgradient steps of norm at most C,
    with :math:`r = 1 - \eta\lambda` and s = eta L/b where the example takes part, else 0: two equal
    points are driven at most s apart, two at a distance z > 0 at most
    :math:`\sqrt{r^2 z^2 + 2 r s z + 4\eta^2 C^2}`.

    (Let G and G' be the averaged subgradients of both data sets.  :math:`G(x) - G'(y)` is
    :math:`G(x) - G(y)`, whose product with x - y is at least 0 by convexity, and
    :math:`G(y) - G'(y)`, of norm at most L/b; and its norm is at most 2C.  Expand the square of
    :math:`r (x - y) - \eta (G(x) - G'(y))`.)

    **Holds when.** every loss is convex and C-Lipschitz, subgradients are chosen by a fixed rule
    and not clipped, eta lambda <= 1, and only the last iterate (and the order) is published.
    With `Ball` the distance is capped by the diameter.

    **Tight.** A local optimum of the shift problem; never above composition for runs from their
    first step on.  Equal points may be driven apart by s, but any others by 2 eta C: the bound
    helps where batches are small.

    **Source.** Bok, Su and Altschuler 2024, Theorem C.3, which uses no other property of a step.
    The modulus for one data set is that of Bassily, Feldman, Guzman and Talwar 2020.

    **Computed as** shifts suggested by linear problems, and followed step by step under the moduli
    themselves; rounded up.
    """
    return quantities.gaussian(max(mu for _, mu in position_mus(run, worst=True)))


def non_smooth_by_position(run: TrainingRun) -> Sequence[GaussianProfile]:
    """The guarantee of each position in the order of the batches."""
    if run.batches.resampling is Resampling.EACH_EPOCH:
        return [non_smooth(run)]
    return [quantities.gaussian(mu) for _, mu in position_mus(run)]


def position_mus(run: TrainingRun, *, worst: bool = False) -> list[tuple[float, float]]:
    """The probability and mu of each position, or of each choice of them in the last epochs.

    With `worst` only of some among which the most exposed is.
    """
    if run.batches.resampling is Resampling.EACH_EPOCH:
        return _choice_mus(run)
    window = min(run.steps, _WINDOW)
    first, count = run.steps - window, quantities.position_count(run)
    chosen: Iterable[int] = range(count)
    regular = run.is_constant and run.batches.period is not None
    if worst and regular and run.release_noise_std == 0.0:
        # What follows the last participation is post-processing.
        chosen = [(run.steps - 1) % count]
    patterns = [run.batches.participations(i, run.steps) for i in chosen]
    start = quantities.diameter(run) if first else 0.0
    return [
        (run.batches.share, _mu(run, pattern[pattern >= first] - first, window, start))
        for pattern in patterns
    ]


def _choice_mus(run: TrainingRun) -> list[tuple[float, float]]:
    """All positions in the last epochs; before these the diameter, or composition."""
    rule, length = run.batches, run.batches.batches_per_epoch
    epochs: list[list[tuple[float, int | None]]] = []
    end, choices = run.steps, 1
    while end > 0:
        begin = (end - 1) // length * length
        seen: list[tuple[float, int | None]] = [(rule.share, step) for step in range(begin, end)]
        left = 1.0 - rule.share * len(seen)
        if epochs and choices * (len(seen) + 1) > _MOST_ORDERS:
            break
        if end - begin < length or rule.examples % rule.batch_size:
            seen.append((max(left, 0.0), None))
        epochs.insert(0, seen)
        choices *= len(seen)
        end = begin
    energy_before = (end // length) * (quantities.ratio(run) * (1.0 + ROUNDINGS)) ** 2
    found = []
    for choice in product(*epochs):
        pattern = np.array([step - end for _, step in choice if step is not None], dtype=np.intp)
        alone = _mu(run, pattern, run.steps - end, 0.0)
        mu = up(float(np.sqrt(alone * alone + energy_before)), ROUNDINGS)
        if end and isinstance(run.domain, Ball):
            mu = min(mu, _mu(run, pattern, run.steps - end, quantities.diameter(run)))
        found.append((float(np.prod([weight for weight, _ in choice])), mu))
    return found


def _mu(run: TrainingRun, seen: IntArray, window: int, start: float) -> float:
    """mu of participations in these of the last steps, counted from the first of them."""
    assert run.loss.lipschitz is not None
    relative = late(quantities.relative_step_sizes(run), window)
    sensitivity = np.zeros(window)
    sensitivity[seen] = late(quantities.sensitivities(run), window)[seen]
    jump = up(2.0 * relative * run.loss.lipschitz, ROUNDINGS)
    keep, noise = late(kept(run), window), late(quantities.noises(run), window)
    if run.release_noise_std > 0.0:
        keep, noise = np.append(keep, 1.0), np.append(noise, quantities.release_noise(run))
        jump, sensitivity = np.append(jump, 0.0), np.append(sensitivity, 0.0)
    steps = SubgradientSteps(keep, jump, up(sensitivity, ROUNDINGS), noise)
    return subgradient_mu(steps, start=start, diameter=quantities.diameter(run))


def _no_lipschitz(run: TrainingRun) -> str | None:
    return None if run.loss.lipschitz is not None else "lipschitz=None"


def _strong_pull(run: TrainingRun) -> str | None:
    pull = Fraction(quantities.unit(run)) * Fraction(run.loss.regulariser)
    return None if pull <= 1 else f"step_size * regulariser = {float(pull)!r}"


def _too_long(run: TrainingRun) -> str | None:
    long = run.steps > _WINDOW and not isinstance(run.domain, Ball)
    return f"steps={run.steps} and an unbounded domain" if long else None


def _too_many(run: TrainingRun) -> str | None:
    length = run.batches.batches_per_epoch
    each = run.batches.resampling is Resampling.EACH_EPOCH
    return f"{length} batches" if each and length > MOST_POSITIONS else None


NON_SMOOTH = Bound(
    id="fixed-order/non-smooth",
    gives="a Gaussian guarantee for the last iterate of convex losses without smoothness",
    covers=rules(*Resampling, exact_size=True),
    needs=(
        conditions.ONLY_LAST_ITERATE,
        conditions.CONVEX,
        Hypothesis(
            "a bound on the norm of subgradients", _no_lipschitz, "state Loss(lipschitz=..)"
        ),
        conditions.NO_ACTIVE_CLIP,
        Hypothesis("step_size regulariser <= 1", _strong_pull, "shorten the steps"),
        Hypothesis(
            f"a bounded domain, or at most {_WINDOW} steps", _too_long, "state domain=Ball(..)"
        ),
        Hypothesis(
            f"at most {MOST_POSITIONS} batches an epoch that is shuffled anew",
            _too_many,
            "shuffle once",
        ),
        STEPS_THAT_MAY_EXPAND,
    ),
    certainty=Certainty.UPPER,
    source=Citation(
        "Bok, Su and Altschuler",
        2024,
        "Shifted interpolation",
        "Theorem C.3",
        also=Citation(
            "Bassily, Feldman, Guzman and Talwar",
            2020,
            "Stability of stochastic gradient descent on nonsmooth convex losses",
            "how far a subgradient step drives two points apart",
        ),
    ),
    evaluate=non_smooth,
    by_position=non_smooth_by_position,
    charges=(
        "{counts} how little a subgradient step can drive two runs apart, and later noise hiding "
        "the rest"
    ),
    line_style=LineStyle(PURPLE, DASHES[1]),
    given_order=True,
)

"""All iterates of runs whose batches are drawn anew every step."""

import math
from functools import partial

import numpy as np
import scipy

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, at_least, ulps, up
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation, with_single_examples
from lastiterate.bounds.composition.composed_moments import Compared, ComposedMomentsProfile
from lastiterate.bounds.composition.delta_lower_bound import composed_at_least
from lastiterate.bounds.composition.fixed_order_composition import worst_order_composition
from lastiterate.bounds.line_style import ORANGE, LineStyle
from lastiterate.profile.best import BestProfile, FallbackProfile
from lastiterate.profile.gaussian import SubsampledGaussian
from lastiterate.profile.group import for_group
from lastiterate.profile.pld import (
    LossDistributionProfile,
    least_discretization,
    self_composed,
    to_pld,
)
from lastiterate.profile.privacy_profile import PrivacyProfile
from lastiterate.run.batch_rules.rules import PoissonSampled, SampledWithoutReplacement
from lastiterate.run.training_run import TrainingRun

_LARGEST_RATIO = 20.0
_LARGEST_CELL = 50.0
_LARGEST_GROUP = 64
# Powers of transforms multiply their rounding: from the first on moments may be better, and beyond
# the second there is nothing else.
_MANY_COMPOSED = 100_000
_MOST_COMPOSED = 10_000_000
_NEAR_ROUNDING = 32.0  # times that of transforms
_SMALL_DELTA = 1e-9


def sampled_composition(run: TrainingRun) -> PrivacyProfile:
    r"""All iterates, with the probability of taking part.

    **Bound.** :math:`C_p(G(r))^{\otimes T}`, r = L/(b sigma): every step is a Gaussian
    mechanism on a batch that has the differing example with probability p, b/n or the rate that
    Poisson batches state.

    For Poisson batches and an example being left out, the two directions of that step are
    composed separately; if it is replaced by another, and gradients are of norm at most C, the step
    is N(0, 1) moved with probability p by C/(b sigma), one way or the other.

    **Holds when.** every step draws its batch uniformly without replacement (and an example is
    replaced), or includes every example independently, never cut (and an example is left
    out, or replaced where gradients are bounded), independently and in secret, and has noise.
    What is released does not matter, except the order.

    **Tight** for one step, if nothing else is known of the losses.

    **Source.** Dong, Roth and Su 2022, Theorem 9; Bok, Su and Altschuler 2024, Theorem 4.8 and
    Proposition D.4.

    **Computed as** a pessimistic privacy loss distribution of one step, composed by Fourier
    transforms; beyond 100,000 steps, and for deltas near the rounding of these, also by moments,
    rare losses apart, and beyond ten million steps by moments alone.  A schedule of noise is
    charged its least.  Losses too large for that are charged as in `composition/fixed-order`, which
    is never less: as if every step saw the example.
    """
    ways: list[PrivacyProfile] = []
    if run.steps <= _MOST_COMPOSED:
        composed = composed_steps(run, run.steps)
        if composed is None:
            ways.append(worst_order_composition(run))
        elif run.steps > _MANY_COMPOSED:
            ways.append(composed)
        else:
            ways.append(
                FallbackProfile(
                    composed, below=near_rounding(composed), fallback=partial(_moments, run)
                )
            )
    if run.steps > _MANY_COMPOSED:
        ways.append(_moments(run))
    return ways[0] if len(ways) == 1 else BestProfile(ways)


def sampled_composition_at_least(run: TrainingRun, epsilon: float) -> float:
    """A lower bound on the delta of `sampled_composition` at `epsilon`, by a rough statistic."""
    return composed_at_least(
        run.batches.share,
        _ratio(run, float(np.min(run.noise_std))),
        run.steps,
        epsilon,
        mirrored=_compared(run) is Compared.WITH_MIRRORED,
    )


def persons_in_sampled_steps(run: TrainingRun) -> PrivacyProfile:
    """In Poisson batches the number of a person's examples in a step is binomial.

    Compared with the step without them it is a mixture of Gaussians, in which the worst directions
    are the same for all (Ganesh 2024; Kahane's inequality as in `hidden_participations`).  In
    batches of a fixed size others take their place, and nothing more is known.
    """
    size, alone = run.examples_per_person, with_single_examples(run)
    if run.batches.exact_size or size > _LARGEST_GROUP:
        return for_group(sampled_composition(alone), size)
    numbers = np.arange(size + 1, dtype=np.float64)
    chances = scipy.stats.binom.pmf(numbers, size, run.batches.share)
    ratio = _ratio(alone, float(np.min(run.noise_std)))
    return ComposedMomentsProfile(
        numbers * ratio, up(chances, MILLIONS_OF_ROUNDINGS), run.steps, _compared(run)
    )


def _compared(run: TrainingRun) -> Compared:
    if run.batches.exact_size:
        return Compared.WITH_STILL_AT_WORST
    return Compared.WITH_MIRRORED if run.adjacency == "replace" else Compared.WITH_STILL


def _moments(run: TrainingRun) -> PrivacyProfile:
    """The moments of all steps, to which no rounding is added up."""
    probability, ratio = run.batches.share, _ratio(run, float(np.min(run.noise_std)))
    chances = np.array([max(1.0 - probability, 0.0), up(probability, ulps(1))])
    return ComposedMomentsProfile(np.array([0.0, ratio]), chances, run.steps, _compared(run))


def _ratio(run: TrainingRun, noise: float) -> float:
    """The distance that a participation moves a step by, in units of this noise, rounded up."""
    moved = quantities.gradient_change(run)
    if not run.batches.exact_size and run.adjacency == "replace":
        assert run.gradient_bound is not None
        moved = run.gradient_bound / run.batches.batch_size
    return at_least(moved / noise, ulps=quantities.WIDENING)


def composed_steps(
    run: TrainingRun, steps: int, *, share: float = 1.0, least_cell: float = 0.0
) -> LossDistributionProfile | None:
    """So many of the run's steps, with this share of the variance of their noise.

    Losses are rounded to cells of at least `least_cell`.  None where they would need cells so
    coarse that nothing is gained.
    """
    import dp_accounting
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    probability = run.batches.share
    noise = float(np.min(run.noise_std)) * math.sqrt(share)
    replaced = run.adjacency == "replace"
    ratio = _ratio(run, noise)
    one = SubsampledGaussian(probability, ratio)
    fine = max(cell_of_losses(probability, ratio, steps), least_cell)
    cell = max(fine, 1.1 * least_discretization(one))
    if cell > _LARGEST_CELL:
        return None
    if not run.batches.exact_size:
        relations = dp_accounting.NeighboringRelation
        pld = from_gaussian_mechanism(
            1.0 / ratio,
            sampling_prob=probability,
            value_discretization_interval=cell,
            use_connect_dots=True,
            neighboring_relation=relations.REPLACE_ONE if replaced else relations.ADD_OR_REMOVE_ONE,
        )
    else:
        pld = to_pld(one, discretization=cell)
    return self_composed(pld, steps)


def near_rounding(composed: LossDistributionProfile) -> float:
    """A delta below which something else may be better."""
    return max(_NEAR_ROUNDING * composed.slack, _SMALL_DELTA)


def cell_of_losses(probability: float, ratio: float, steps: int) -> float:
    """Fine enough for the sum of all losses, coarse enough to hold it."""
    spread = probability * math.sqrt(steps * math.expm1(min(ratio * ratio, 600.0)))
    mean = probability * steps
    most = min(mean + math.sqrt(60 * mean) + 30, steps)  # participations, up to e^-30
    reach = min(spread * spread / 2 + 10 * spread + 20 * ratio, most * ratio * (ratio / 2 + 10))
    return max(min(1e-4, max(probability * ratio / 5, 1e-9)), reach / 400_000)


SAMPLED_COMPOSITION = Bound(
    id="composition/sampled",
    gives="all iterates together, with amplification by sampling",
    covers=(SampledWithoutReplacement, PoissonSampled),
    needs=(
        conditions.THEIR_ADJACENCY,
        conditions.SECRET_BATCHES,
        conditions.enough_noise(
            _LARGEST_RATIO, remedy="use more noise: below this, composition/fixed-order is as good"
        ),
    ),
    certainty=Certainty.UPPER,
    source=Citation("Dong, Roth and Su", 2022, "Gaussian differential privacy", "Theorem 9"),
    evaluate=sampled_composition,
    for_persons=persons_in_sampled_steps,
    delta_lower_bound=sampled_composition_at_least,
    given_order=True,
    charges="charges every iterate, less for the example's chance to be left out",
    line_style=LineStyle(ORANGE),
)

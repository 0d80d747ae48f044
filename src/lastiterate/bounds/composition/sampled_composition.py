"""The bound by composition of sampled steps, as if every iterate were published."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import scipy

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, at_least, ulps, up
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation, with_single_examples
from lastiterate.bounds.composition.composed_moments import ComposedMomentsProfile, StepPair
from lastiterate.bounds.composition.delta_lower_bound import composed_delta_lower_bound
from lastiterate.bounds.composition.fixed_order_composition import worst_order_composition
from lastiterate.bounds.line_style import ORANGE, LineStyle
from lastiterate.profile.best import BestProfile, FallbackProfile
from lastiterate.profile.gaussian import SubsampledGaussian
from lastiterate.profile.group import for_group
from lastiterate.profile.pld import (
    LossDistributionProfile,
    composed_groups,
    least_discretization,
    require,
    to_pld,
)
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batch_rules.drawn import PoissonSampled, SampledWithoutReplacement
from lastiterate.run.training_run import TrainingRun

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

_LARGEST_RATIO = 20.0  # of sensitivity and noise
_LARGEST_CELL = 50.0  # of privacy losses; with larger ones nothing is gained
_LARGEST_GROUP = 64  # examples of a person
_MOST_LEVELS = 12  # different levels of noise
# Powers of transforms multiply their rounding: above the first number of steps moments may be
# better, and above the second only moments are used.
_MANY_COMPOSED = 100_000
_MOST_COMPOSED = 10_000_000
_NEAR_ROUNDING = 32.0  # times the rounding of transforms
_SMALL_DELTA = 1e-9


def sampled_composition(run: TrainingRun) -> PrivacyProfile:
    r"""The profile of all iterates together, with amplification by sampling.

    **Bound.** :math:`\bigotimes_t C_p(G(r_t))`, :math:`r_t = L/(b\sigma_t)`: every step is a
    Gaussian mechanism on a batch that has the differing example with probability p, b/n or the rate
    that Poisson batches state.

    For Poisson batches and an example being left out, the two directions of that step are
    composed separately; if it is replaced by another, and gradients are of norm at most C, the
    step has the mean C/(b sigma) with probability p, with opposite signs on the two data sets.

    **Holds when.** every step draws its batch uniformly without replacement (and an example is
    replaced), or includes every example independently, never cut (and an example is left
    out, or replaced where gradients are bounded), independently and in secret, and has noise.
    All iterates may be released, but not the batches.

    **Tight** for one step, if nothing else is known of the losses.

    **Source.** Dong, Roth and Su 2022, Theorem 9; Bok, Su and Altschuler 2024, Theorem 4.8 and
    Proposition D.4.

    **Computed as** a pessimistic privacy loss distribution of one step, composed by Fourier
    transforms.  Beyond 100,000 steps, and for deltas near the rounding of these, also by moments,
    without rare losses, and beyond ten million steps by moments alone.  A schedule of noise counts
    as at most 12 levels, each the least noise of some steps, and in moments as its least.  Losses
    too large for that are composed as in `composition/fixed-order`, as if every step had the
    example, which is never less.
    """
    profiles: list[PrivacyProfile] = []
    if run.steps <= _MOST_COMPOSED:
        composed = composed_steps(run, run.steps)
        if composed is None:
            profiles.append(worst_order_composition(run))
        elif run.steps > _MANY_COMPOSED:
            profiles.append(composed)
        else:
            profiles.append(
                FallbackProfile(
                    composed, below=near_rounding(composed), fallback=partial(_moments, run)
                )
            )
    if run.steps > _MANY_COMPOSED:
        profiles.append(_moments(run))
    return profiles[0] if len(profiles) == 1 else BestProfile(profiles)


def sampled_composition_delta_lower_bound(run: TrainingRun, epsilon: float) -> float:
    """A lower bound on the delta of `sampled_composition` at `epsilon`, by a rough statistic."""
    return composed_delta_lower_bound(
        run.batches.share,
        _ratio(run, float(np.max(run.noise_std))),
        run.steps,
        epsilon,
        mirrored=_step_pair(run) is StepPair.MIRRORED_MIXTURES,
    )


def sampled_composition_for_persons(run: TrainingRun) -> PrivacyProfile:
    """The composition for a person, of whose examples a step has a binomial number.

    In Poisson batches a step is a mixture of Gaussians against the step without the person, and the
    worst directions are the same for all numbers (Ganesh 2024; by Kahane's inequality).  In batches
    of a fixed size other examples take their place, and only group privacy is known.
    """
    size, single = run.examples_per_person, with_single_examples(run)
    if run.batches.exact_size or size > _LARGEST_GROUP:
        return for_group(sampled_composition(single), size)
    numbers = np.arange(size + 1, dtype=np.float64)
    chances = scipy.stats.binom.pmf(numbers, size, run.batches.share)
    ratio = _ratio(single, float(np.min(run.noise_std)))
    return ComposedMomentsProfile(
        numbers * ratio, up(chances, MILLIONS_OF_ROUNDINGS), run.steps, _step_pair(run)
    )


def _step_pair(run: TrainingRun) -> StepPair:
    if run.batches.exact_size:
        return StepPair.WORSE_DIRECTION
    replaced = run.adjacency == "replace"
    return StepPair.MIRRORED_MIXTURES if replaced else StepPair.MIXTURE_AND_NORMAL


def _moments(run: TrainingRun) -> PrivacyProfile:
    """The composition by moments, whose rounding errors do not add up."""
    probability, ratio = run.batches.share, _ratio(run, float(np.min(run.noise_std)))
    chances = np.array([max(1.0 - probability, 0.0), up(probability, ulps(1))])
    return ComposedMomentsProfile(np.array([0.0, ratio]), chances, run.steps, _step_pair(run))


def _ratio(run: TrainingRun, noise: float) -> float:
    """The per-step sensitivity in units of this noise, rounded up."""
    change = quantities.gradient_change(run)
    if not run.batches.exact_size and run.adjacency == "replace":
        assert run.gradient_bound is not None
        change = run.gradient_bound / run.batches.batch_size
    return at_least(change / noise, ulps=quantities.WIDENING)


def composed_steps(
    run: TrainingRun, steps: int, *, share: float = 1.0, least_cell: float = 0.0
) -> LossDistributionProfile | None:
    """The composition of `steps` of the run, with this share of the variance of their noise.

    Losses are rounded to cells of at least `least_cell`.  None if they need cells so large that
    nothing is gained.
    """
    require("composition of sampled batches")
    probability, ratios = run.batches.share, _ratios(run, steps, share)
    largest = max(ratios)
    fine = max(cell_of_losses(probability, largest, steps), least_cell)
    whole = SubsampledGaussian(probability, largest)
    cell = max(fine, 1.1 * least_discretization(whole))
    if cell > _LARGEST_CELL:
        return None
    return composed_groups([(_step_losses(run, one, cell), often) for one, often in ratios.items()])


def _ratios(run: TrainingRun, steps: int, share: float) -> Counter[float]:
    """The ratios of sensitivity and noise, each rounded up, and how many steps have them."""
    if not isinstance(run.noise_std, tuple):
        return Counter({_ratio(run, run.noise_std * math.sqrt(share)): steps})
    if steps != run.steps:
        raise ValueError("steps of a schedule are composed all together")
    noises = np.sort(np.array(run.noise_std))
    if np.unique(noises).size > _MOST_LEVELS:
        # Equal ratios of one level to the next; each level counts as the least noise in it.
        edges = np.geomspace(noises[0], noises[-1], _MOST_LEVELS + 1)[:-1]
        edges[0] = noises[0]
        level = np.searchsorted(edges, noises, side="right")
        noises = noises[np.searchsorted(level, level)]
    return Counter(_ratio(run, float(one) * math.sqrt(share)) for one in noises)


def _step_losses(run: TrainingRun, ratio: float, cell: float) -> PrivacyLossDistribution:
    """The losses of one step with this ratio of sensitivity and noise, in cells of one size."""
    import dp_accounting
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    if run.batches.exact_size:
        return to_pld(SubsampledGaussian(run.batches.share, ratio), discretization=cell)
    relations = dp_accounting.NeighboringRelation
    replaced = run.adjacency == "replace"
    return from_gaussian_mechanism(
        1.0 / ratio,
        sampling_prob=run.batches.share,
        value_discretization_interval=cell,
        use_connect_dots=True,
        neighboring_relation=relations.REPLACE_ONE if replaced else relations.ADD_OR_REMOVE_ONE,
    )


def near_rounding(composed: LossDistributionProfile) -> float:
    """A delta below which another bound may be better than this composition."""
    return max(_NEAR_ROUNDING * composed.slack, _SMALL_DELTA)


def cell_of_losses(probability: float, ratio: float, steps: int) -> float:
    """A cell fine enough for the sum of all losses, and coarse enough to hold it."""
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
    beyond_plain_steps=True,  # later steps only post-process the noisy gradients
    source=Citation("Dong, Roth and Su", 2022, "Gaussian differential privacy", "Theorem 9"),
    evaluate=sampled_composition,
    for_persons=sampled_composition_for_persons,
    delta_lower_bound=sampled_composition_delta_lower_bound,
    given_order=True,
    charges="charges every iterate, less for the example's chance to be left out",
    line_style=LineStyle(ORANGE),
)

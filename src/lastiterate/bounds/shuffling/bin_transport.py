r"""The last iterate where examples pick their batches on their own, the pick staying hidden.

**Theorem.** Let gradients be of norm at most C.  Given the picks of all others, let
:math:`\mu(V)` be the engine's value for arrivals :math:`\eta C/b` in the steps V that see the
differing example, in units of the noise.  What is published on the two data sets is, in both
directions, no easier to tell apart than :math:`E_V N(\mu(V), 1)` and N(0, 1) if the example is left
out, and than :math:`E_V N(\mu(V), 1)` and :math:`E_V N(-\mu(V), 1)` if it is replaced.

*Proof.* As in `hidden_participations`: all runs are compared with the one without the example,
whose batches are what the others picked, and by Kahane's inequality the plans of all V may be
turned into one direction.  Nothing there needs V to be independent from step to step; it must be
independent of the others' picks, which it is.

In this way nobody's place is taken by another, as it is in a shuffle, so that no second visit is
paid for.  Of steps only those of the run without the example must contract.
"""

from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Bound, Certainty, Citation, with_single_examples
from lastiterate.bounds.fixed_order.convex import CONVEX_FIXED_ORDER
from lastiterate.bounds.shuffling.balls_and_bins import places_given_the_sizes
from lastiterate.bounds.subsampling.poisson import BOUNDED_GRADIENTS
from lastiterate.profile.best import BestProfile
from lastiterate.profile.gaussian_mixture import several_draws
from lastiterate.profile.gaussian_mixture_pld import shift_losses
from lastiterate.profile.pld_convolution import Repeated, SummedLossesProfile
from lastiterate.profile.privacy_profile import PrivacyProfile
from lastiterate.run.batch_rules.rules import BallsAndBins, BallsAndBinsEachEpoch
from lastiterate.run.training_run import TrainingRun


def hidden_bins(run: TrainingRun) -> PrivacyProfile:
    r"""A normal result, moved by what the hidden place of the differing example is worth.

    **Bound.** :math:`E_j N(\mu_j, 1)` against N(0, 1), in both directions: :math:`\mu_j` is the
    guarantee of place j, in the last epoch or in all, for arrivals :math:`\eta C/b`.  If the
    example is replaced, the second is :math:`E_j N(-\mu_j, 1)`.  Contraction and large batches are
    as for `random-order/balls-and-bins`.

    **Holds when.** that bound does, no gradient exceeds C, and an example is left out, or replaced.

    **Tight.** To a few per cent of an exactly solved instance where epochs have many batches.

    **Source.** This library; Kahane 1985; Bok, Su and Altschuler 2024, Theorem C.3.

    **Computed as** privacy losses in cells, rounded up.
    """
    return persons_hidden_in_bins(run)


def persons_hidden_in_bins(run: TrainingRun) -> PrivacyProfile:
    """The guarantee for a person whose examples pick batches independently, all picks hidden."""
    profiles = hidden_given_the_sizes(run)
    return profiles[0] if len(profiles) == 1 else BestProfile(profiles)


def hidden_given_the_sizes(run: TrainingRun) -> list[PrivacyProfile]:
    """One guarantee for each size that batches may be counted on not to exceed."""
    size, two_sided = run.examples_per_person, run.adjacency == "replace"
    profiles: list[PrivacyProfile] = []
    for places in places_given_the_sizes(with_one_in_one_world(run)):
        if size > 1:
            places = several_draws(places, size)
        losses = shift_losses(places.mus, places.weights, two_sided=two_sided)
        profiles.append(SummedLossesProfile([Repeated(losses, 1)], lost=places.lost))
    return profiles


def with_one_in_one_world(run: TrainingRun) -> TrainingRun:
    """The run of a single example against that without it, whose gradient is all that differs."""
    single = with_single_examples(run)
    if run.adjacency != "replace":
        return single
    assert run.gradient_bound is not None
    return single.replace(adjacency="zero-out", sensitivity=run.gradient_bound)


HIDDEN_BINS = Bound(
    id="random-order/balls-and-bins/transport",
    gives="the secret place that an example has picked on its own, which stays hidden",
    covers=(BallsAndBins, BallsAndBinsEachEpoch),
    needs=(conditions.SECRET_ORDER, *conditions.CONTRACTING, BOUNDED_GRADIENTS),
    certainty=Certainty.UPPER,
    source=Citation(
        "lastiterate",
        2026,
        "Hidden picks",
        "docs, tightness; after Kahane 1985 and Bok, Su and Altschuler 2024, Theorem C.3",
    ),
    evaluate=hidden_bins,
    for_persons=persons_hidden_in_bins,
    rests_on=(CONVEX_FIXED_ORDER,),
    charges="keeps the secret place hidden that the example has picked",
)

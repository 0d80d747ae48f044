r"""The last iterate of runs in which every example picks its batch on its own, in secret.

**Given all picks**, which do not depend on the data, the two runs of a pair have the same batches.
They differ in the steps that see the place of the differing example, and in no others: by two
gradients if it is replaced, since the other version is in the same place, by one if it is left
out.  So the order is fixed, and the shifts of a fixed order price it, as long as steps contract.
They do while no batch is too large: sums are divided by b whatever the size, so on a batch of
k examples a step is one of smoothness :math:`(M - \lambda) k/b + \lambda`.  Of convexity only the
shared penalty's is left, since a batch may be empty.

**Averaged over the picks.**  Hockey-stick divergence is jointly convex, so the average of the
curves given the picks holds.  Where every batch has at most K examples, such a curve is that of the
differing example's place alone.  It has the law of a shuffle's, place by place; the others' picks
are independent of it.  All else is the event that some batch has more than K, which is charged
delta = 1.  A batch has Bin(n, b/n) examples, and there are as many batches as are ever drawn: those
of one epoch, if they are drawn once.
"""

from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Bound, Certainty, with_single_examples
from lastiterate.bounds.fixed_order.convex import CONVEX_FIXED_ORDER
from lastiterate.bounds.shuffling.position_average import (
    MIXTURE,
    shuffled_each_epoch,
    shuffled_once,
)
from lastiterate.bounds.subsampling.fixed_size_majorant import Majorant, fixed_size_majorant
from lastiterate.profile.best import BestProfile
from lastiterate.profile.gaussian_mixture import GaussianMixtureProfile, several_draws
from lastiterate.profile.privacy_profile import PrivacyProfile
from lastiterate.run.batch_rules.rules import (
    BallsAndBins,
    BallsAndBinsEachEpoch,
    Resampling,
    ShuffledEachEpoch,
    ShuffledOnce,
)
from lastiterate.run.training_run import TrainingRun

_NEVER = (1e-9, 1e-14, 0.0)  # the fewer batches are charged for, the less steps may contract


def balls_and_bins(run: TrainingRun) -> PrivacyProfile:
    r"""A mixture over the place of the differing example, for batches of random size.

    **Bound.** As for examples that are shuffled once, or before every epoch, with the contraction
    that holds for every batch of at most K examples: :math:`1 - c = \min(\eta\lambda,
    2 - \eta((M - \lambda) K/b + \lambda))`, :math:`\lambda` the shared regulariser.  K is
    a size that hardly any batch exceeds and for which steps are not too long; the probability of a
    larger one among those drawn, at most :math:`N\,P(\mathrm{Bin}(n, b/n) > K)` with
    :math:`N = n/b` if they are drawn once, else N = T, is charged delta = 1.

    **Holds when.** every example picks one of the batches of an epoch independently and in secret,
    each with probability b/n, once or before every epoch; sums are divided by b, and no batch is
    cut; losses are convex and smooth, no step exceeds 2/smoothness, gradients are not changed by
    norm clipping.  An example is replaced by another in the same place, or adds nothing to the
    batch it has picked; the number of examples is public.

    **Tight.** As for shuffled examples whose place is revealed at the end.

    **Source.** Bok, Su and Altschuler 2024, Theorem C.3, given the picks; Ye and Shokri 2022,
    Lemma 4.1.

    **Computed as** for shuffled examples; the best of three choices of K.
    """
    profiles = places_given_the_sizes(run)
    return profiles[0] if len(profiles) == 1 else BestProfile(profiles)


def persons_in_bins(run: TrainingRun) -> PrivacyProfile:
    """The average over the picks of all examples of a person, which are independent."""
    alone = places_given_the_sizes(with_single_examples(run))
    return BestProfile([several_draws(one, run.examples_per_person) for one in alone])


def places_given_the_sizes(run: TrainingRun) -> list[GaussianMixtureProfile]:
    """The law of what the example's place costs, for some choices of K."""
    given_the_sizes = (
        shuffled_once if run.batches.resampling is Resampling.ONCE else shuffled_each_epoch
    )
    found = []
    for majorant in sizes_that_count(run):
        known = given_the_sizes(majorant.run)
        lost = majorant.exceeded
        found.append(GaussianMixtureProfile(known.weights, known.mus, lost=lost))
    return found


def sizes_that_count(run: TrainingRun) -> list[Majorant]:
    """Shuffled runs that cost as much if no batch has more than K, for some choices of K."""
    once = run.batches.resampling is Resampling.ONCE
    draws = min(run.batches.batches_per_epoch, run.steps) if once else run.steps
    counterpart = ShuffledOnce if once else ShuffledEachEpoch
    majorants = (fixed_size_majorant(run, counterpart, draws, never) for never in _NEVER)
    return list(dict.fromkeys(majorants))


BALLS_AND_BINS = Bound(
    id="random-order/balls-and-bins/average",
    gives="the average over the secret place that an example has picked on its own",
    covers=(BallsAndBins, BallsAndBinsEachEpoch),  # whose sizes have a law that is charged
    needs=(conditions.SECRET_ORDER, *conditions.CONTRACTING),
    certainty=Certainty.UPPER,
    source=MIXTURE,
    evaluate=balls_and_bins,
    for_persons=persons_in_bins,
    rests_on=(CONVEX_FIXED_ORDER,),
    charges="averages over the secret place that the example has picked",
    given_order=True,
)

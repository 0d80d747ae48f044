"""The last iterate of runs that are shuffled every epoch, and whose steps may expand.

Given all positions, which are independent of the data, a fixed-order bound holds, and the delta
curves may be averaged.
"""

import numpy as np

from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Bound, Certainty
from lastiterate.bounds.composition import worst_order_composition
from lastiterate.bounds.fixed_order.nonconvex import NON_CONVEX, windows
from lastiterate.bounds.shuffling.position_average import MIXTURE
from lastiterate.profile.best import BestProfile
from lastiterate.profile.gaussian import GaussianMixtureProfile
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batch_rules.base import Resampling, rules
from lastiterate.run.training_run import TrainingRun


def last_epochs_average(run: TrainingRun) -> PrivacyProfile:
    r"""A mixture over the positions in the last epochs, for steps that may expand.

    **Bound.** :math:`\delta(\varepsilon) = E\,\delta_{\mu(j_1, .., j_k)}(\varepsilon)` over the
    independent positions in the last k epochs, with :math:`\mu` that of `fixed-order/non-convex`
    from the distance D, or from the farthest that earlier epochs can have driven two runs apart;
    or from 0, with composition for these.  Positions may be grouped: a group is charged at its last
    step, with what a participation in any of its steps has grown to by then.

    **Holds when.** the examples are shuffled uniformly, independently and in secret before every
    epoch, and one of smoothness, Hoelder constants or a gradient bound is known.  No convexity:
    where steps expand an earlier participation may be worse than a later one, so none is moved
    later without its growth.

    **Tight.** As `fixed-order/non-convex` given the positions; equal to the average over all orders
    where every position in the last epochs is told apart and shifts need no earlier noise.

    **Source.** Bok, Su and Altschuler 2024, Theorem C.3; Ye and Shokri 2022, Lemma 4.1; Chien and
    Li 2024, Corollary A.3, which this is in f-DP.

    **Computed as** the convex minorants of all choices of positions, for tangents of the moduli;
    the better of few and of many epochs; rounded up.
    """
    parts = windows(run)
    found = [GaussianMixtureProfile(one.weights, one.mus) for one in parts]
    if np.min(run.noise_std) > 0.0 and all(np.isinf(one.mus).any() for one in parts):
        return worst_order_composition(run)  # where no plan ends
    return found[0] if len(found) == 1 else BestProfile(found)


LAST_EPOCHS_AVERAGE = Bound(
    id="random-order/shuffled/average-non-convex",
    gives="the average over the example's positions in the last epochs, convex or not",
    covers=rules(Resampling.EACH_EPOCH, exact_size=True),
    needs=(conditions.SECRET_ORDER, *NON_CONVEX.needs[1:]),
    certainty=Certainty.UPPER,
    source=MIXTURE,
    evaluate=last_epochs_average,
    rests_on=(NON_CONVEX,),
    charges="averages over the example's secret positions in the last epochs",
)

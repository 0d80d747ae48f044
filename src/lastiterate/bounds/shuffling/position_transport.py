r"""The last iterate of shuffled runs, the example's place in the secret order staying hidden.

`shuffled` averages over places, which lets an attacker know the place at the end.  With many
batches an epoch that is nearly all of epsilon: the chance of having been in the very last batch.
Here late places borrow from earlier ones, as in `shuffling.transport`, for which the run with the
example i at a late place t on one data set is compared with the run with its other version i' at an
early place e on the other.

**Lemma (exchange).** Let the order be uniform given that i is at e, pick a slot of the batch t
uniformly, and exchange what the two slots hold.  The result is uniform given that i is at t.
*Proof.* (order, slot of t) to (new order, i's old slot) is a bijection onto the orders with i at t
and the slots of e.

So both runs can be drawn together: if u is the example whose slot i takes, one run has i' at e and
u at t, the other u at e and i at t.  They differ in the steps that see e (u against i') and in
those that see t (i against u), by the sensitivity, which bounds the difference of any two
examples; and, where the order is drawn anew every epoch, in i's steps of earlier epochs, which
they share.  The engine prices these arrivals.  **u's visit to e must be paid**: without it the
claim is false.

Moving an arrival later, or making it larger, never lowers mu.  So a group of places is charged as
the latest of them and all lenders as the latest lender; in earlier epochs arrivals are charged at
the end, or both at the late place if the order is the same in all.

If an example is left out, not replaced, i against nothing is the sensitivity C, but u against i is
at most 2 C; the two orders of the data sets differ, and both are computed.
"""

from functools import lru_cache

import numpy as np

from lastiterate._numerics.arrays import Array
from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Bound, Certainty, Citation, Hypothesis
from lastiterate.bounds.fixed_order.convex import CONVEX_FIXED_ORDER
from lastiterate.bounds.shuffling.positions import Once, Places, factors
from lastiterate.bounds.shuffling.positions_each_epoch import EachEpoch
from lastiterate.bounds.shuffling.transport import HiddenPlaceProfile, Loan
from lastiterate.run.batch_rules.rules import Resampling, rules
from lastiterate.run.training_run import TrainingRun

_SHARES_THAT_BORROW = (0.001, 0.003, 0.01, 0.03, 0.07, 0.15, 0.3, 0.6)
_LARGE = 0.1  # chance of the oldest place
LARGEST_MU = 30.0  # beyond it nobody has anything to lend


@lru_cache(maxsize=4)
def hidden_place(run: TrainingRun) -> HiddenPlaceProfile:
    r"""A mixture over places in the last epoch, or in all, between which nobody can tell.

    **Bound.** At every epsilon the least of :math:`\sum_j p_j \delta_{\mu_j}(\varepsilon)` and of
    what `shuffling.transport` derives where late places borrow from early ones: :math:`\mu_{te}`
    is the engine's value for arrivals in the steps of both places.

    **Holds when.** single examples are shuffled uniformly and in secret, once or before every
    epoch; losses are convex and smooth, no step exceeds 2/smoothness, gradients are not changed
    by norm clipping; step size and noise are constant.  An example is replaced, or left out; then
    no gradient exceeds the sensitivity, so that two differ by at most twice it.  A bounded domain
    is no hindrance, and of no use.

    **Tight.** To a few per cent of an exactly solved instance where epochs have many batches and
    earlier ones left little.

    **Source.** This library; Bok, Su and Altschuler 2024, Theorem C.3.

    **Computed as** sums of Gaussian curves, rounded up; that what is lent covers what is needed is
    checked with a margin.  Which places lend is chosen among a few; any choice is valid.
    """
    places = places_in_order(run)
    weights, mus = places.weights(), places.mus()
    counts = _numbers_of_late(weights) if mus.max() < LARGEST_MU else []
    directions = [
        [Loan(places.moved(count, lent, late)) for count in counts] for lent, late in factors(run)
    ]
    return HiddenPlaceProfile(weights, mus, directions)


def places_in_order(run: TrainingRun) -> Places:
    """The positions that an example may have in this run's secret order."""
    return Once(run) if run.batches.resampling is Resampling.ONCE else EachEpoch(run)


def _numbers_of_late(weights: Array) -> list[int]:
    before = np.cumsum(weights) - weights
    counts = {int(np.searchsorted(before, share)) for share in _SHARES_THAT_BORROW}
    if weights[-1] > _LARGE:
        # Where a run is shorter than an epoch, most have no place in it: all others borrow there.
        counts.add(weights.size - 1)
    return sorted(count for count in counts if 0 < count < weights.size)


def _irregular(run: TrainingRun) -> str | None:
    once = run.batches.resampling is Resampling.ONCE
    return "another order in every epoch" if once and run.batches.period is None else None


REGULAR = Hypothesis(
    "places that are visited in the same order every epoch, if they are drawn once",
    _irregular,
    "visit the batches in the same order",
)

HIDDEN_PLACE = Bound(
    id="random-order/shuffled/transport",
    gives="the average over the example's place in a secret order, which stays hidden",
    covers=tuple(
        rule for rule in rules(Resampling.ONCE, Resampling.EACH_EPOCH) if rule.exchangeable
    ),
    needs=(
        conditions.SECRET_ORDER,
        *conditions.CONTRACTING,
        conditions.CONSTANT,
        conditions.NOISY,
        REGULAR,
    ),
    certainty=Certainty.UPPER,
    source=Citation(
        "lastiterate",
        2026,
        "Hidden places of shuffled runs",
        "docs, tightness; after Bok, Su and Altschuler 2024, Theorem C.3",
    ),
    evaluate=hidden_place,
    rests_on=(CONVEX_FIXED_ORDER,),
    charges="averages over the example's secret place, and keeps that place hidden",
)

r"""The last iterate of shuffled runs, late places being hidden behind each other, too.

In `hidden_place` what is lent to a late place is lent to it by name.  But who holds the last
iterate cannot tell the late places from each other either: the last arrivals of two of them are
hidden by noise of different steps.

**Theorem.** Let every lender e have the probability :math:`p_e`, and let a share :math:`1 - y_t` of
late places t be moved to lenders, :math:`\sum_e p_e F_{te} = p_t (1 - y_t)`.  Set apart a share
:math:`\theta` of the noise of the last steps, in disjoint windows, and let t's last arrival be paid
in a window j(t) that does not begin before it, at :math:`\rho_j` standard deviations
(`shuffling.end_windows`).  Let :math:`m_e` be the engine's value, with the noise that is left, for
the arrivals of the example at e, and :math:`n_e` for those of a late place against e without its
last one.  Then :math:`\delta_{\mu_e}(\log\alpha_e)` in `shuffling.transport` may be replaced by

.. math:: B_e(\alpha_e) = E \big( e^{m_e G - m_e^2/2} + e^{n_e G - n_e^2/2} \sum_t F_{te}
    e^{\rho_{j(t)} z_{j(t)} - \rho_{j(t)}^2/2} - \alpha_e \big)_+

with independent standard normal G and :math:`z_j`, and these t need no loan.

*Proof.*  Draw the order with i' at e and, for every late t, a slot of t: by the exchange lemma
(`hidden_place`) all of :math:`P_e + \sum_t F_{te} P_t - \alpha_e Q_e` are averages over that one
draw, and the supremum of an average is at most the average of suprema.  Given the draw let y be
the run on the second data set, with i' at e, driven by noise :math:`\xi`.  For each of the
others let x be its run, driven by the same noise less :math:`v_k`, which has the direction of
the distance before it and at most the length that a plan feasible for the engine allows: then x
ends where y does, and under :math:`M\,dR`, :math:`M = \prod_k e^{\langle v_k, \xi_k\rangle -
|v_k|^2/2}`, it has the law of its run (Girsanov).  So the supremum is at most :math:`E(M_e +
\sum_t F_{te} M_t - \alpha_e)_+`.  The noise of a step is the sum of two independent parts, with
shares :math:`\theta` and :math:`1 - \theta` of its variance, and :math:`v_k` is divided as
planned.  The inner products of two such :math:`v_k` are at most those of the planned lengths; by
Kahane's inequality (1985), applied step by step from the last one backwards, given the noise
before, the expectation of a convex function of such a sum with weights :math:`\ge 0` does not
decrease if they are replaced by just that.  Then M are log-normal, with the products of plans as
covariances: of two plans for late places those in different windows have none there, those in the
same window have :math:`\rho_j^2`, and the rest is at most the product of norms; by Kahane's
inequality once more, it may be that.

**Places in earlier epochs** are revealed where the order is drawn anew in each, and shared; a
plan for arrivals at the ends pays for earlier ones, too.  Where the last epoch is cut short and
lenders have no place in it, who is late there needs no other place in the epoch before: if it is a
lender's place in that epoch, it stays.  Then nobody visits the lender's place.
"""

from dataclasses import dataclass

import numpy as np

from lastiterate.bounds.bound import Bound, Certainty, Citation
from lastiterate.bounds.fixed_order.convex import CONVEX_FIXED_ORDER
from lastiterate.bounds.shuffling.joint_transport import Worlds
from lastiterate.bounds.shuffling.position_transport import (
    HIDDEN_PLACE,
    LARGEST_MU,
    hidden_place,
    places_in_order,
)
from lastiterate.bounds.shuffling.positions import Places, factors
from lastiterate.bounds.shuffling.shuffled_profile import HiddenTogetherProfile
from lastiterate.bounds.shuffling.transport_search import LendersChosen
from lastiterate.profile.privacy_profile import PrivacyProfile
from lastiterate.run.training_run import TrainingRun

MOST_SET_APART = 0.95  # of the last steps' noise: what is left pays for the errors of a trainer
_FEWEST = 10  # places; fewer have too little to hide behind


def hidden_place_together(run: TrainingRun) -> PrivacyProfile:
    r"""A mixture over places in the last epoch, or in all, the latest being hidden together.

    **Bound.** At every epsilon the least of `random-order/shuffled/transport` and of :math:`\sum_e
    p_e B_e(\alpha_e)`, with :math:`B_e(a) = E(e^{m_e G - m_e^2/2} + e^{n_e G - n_e^2/2} X - a)_+`
    and :math:`X = \sum_j F_j e^{\rho_j z_j - \rho_j^2/2}` over windows of the last steps, and of
    what places cost that stay or are moved one by one.

    **Holds when.** `random-order/shuffled/transport` does.

    **Tight.** A few per cent nearer to an exactly solved instance than that bound, where a
    participation is about as large as the noise.

    **Source.** This library; Kahane 1985; Bok, Su and Altschuler 2024, Theorem C.3.

    **Computed as** sums of log-normal variables on a grid, larger in convex order, and one integral
    by chords, rounded up.  Places, windows and shares are searched for; any choice is valid.
    """
    alone = hidden_place(run)
    places = places_in_order(run)
    if not (places.mus().max() < LARGEST_MU and places.weights().size >= _FEWEST):
        return alone
    directions = [LendersChosen(_Drafts(places, lent, late)) for lent, late in factors(run)]
    return HiddenTogetherProfile(alone, directions)


@dataclass(frozen=True)
class _Drafts:
    """The `Worlds` for shares of positions and of noise; None where none is left to receive."""

    places: Places
    lent: float
    late: float

    def __call__(self, borrowing: float, hidden: float, noise: float) -> Worlds | None:
        weights = self.places.weights()
        before = np.cumsum(weights) - weights
        count = int(np.searchsorted(before, borrowing))
        together = max(int(np.searchsorted(before, borrowing * hidden)), 1)
        if not together <= count < weights.size:
            return None
        apart = min(noise, MOST_SET_APART)
        return self.places.together(count, together, apart, self.lent, self.late)


def _superseded(run: TrainingRun) -> tuple[Bound, ...]:
    """For single examples it is the least of that bound and of its own."""
    return (HIDDEN_PLACE,) if run.examples_per_person == 1 else ()


HIDDEN_PLACE_TOGETHER = Bound(
    id="random-order/shuffled/joint-transport",
    gives="the same, late places being hidden behind each other, too",
    covers=HIDDEN_PLACE.covers,
    needs=HIDDEN_PLACE.needs,
    certainty=Certainty.UPPER,
    source=Citation(
        "lastiterate",
        2026,
        "Hidden places of shuffled runs, together",
        "docs, tightness; after Kahane 1985 and Bok, Su and Altschuler 2024, Theorem C.3",
    ),
    evaluate=hidden_place_together,
    rests_on=(CONVEX_FIXED_ORDER,),
    charges="averages over the example's secret place, and keeps late places hidden together",
    supersedes=_superseded,
)

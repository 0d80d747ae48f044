r"""Balls and bins, the last arrivals of late places being paid by noise of different steps.

`hidden_bins` turns the plans of all places into one direction, which is as if the noise that hides
one late place were that which hides another.  It is not.

**Theorem.** Set apart a share :math:`\theta` of the noise of the last steps, in disjoint windows,
and let the last arrival of a late place be paid in a window that does not begin before it, at
:math:`\rho_w` standard deviations (`shuffling.end_windows`).  With the noise that is left let
:math:`m_j` be the engine's value for the arrivals of each other place, and m one for those of a
late place but the last.  What is published is, in both directions, no easier to tell apart than
:math:`E_j N(a_j, I)` and :math:`E_j N(-a_j, I)`, or N(0, I) if the example is left out, where
:math:`a_j = m_j e_0` for the others and :math:`m e_0 + \rho_{w(j)} e_{w(j)}` for late places.

*Proof.* As in `hidden_bins`, all runs are steered from the one without the example, by plans of the
engine.  The noise of a step is the sum of two independent parts, so that what is set apart has
plans of its own.  Before the directions are turned, Kahane's inequality needs inner products, of
two plans for one data set at most, and of plans for both at least minus, the products of lengths,
step by step.  Those in different windows have none.  The rest is at most the product of norms,
and by the same inequality may be that.
"""

from dataclasses import dataclass

import numpy as np

from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Bound, Certainty, Citation
from lastiterate.bounds.fixed_order.convex import CONVEX_FIXED_ORDER
from lastiterate.bounds.shuffling.balls_and_bins import sizes_that_count
from lastiterate.bounds.shuffling.bin_transport import (
    HIDDEN_BINS,
    hidden_given_the_sizes,
    with_one_in_one_world,
)
from lastiterate.bounds.shuffling.joint_position_transport import MOST_SET_APART
from lastiterate.bounds.shuffling.mixture_divergence import Against, Picks
from lastiterate.bounds.shuffling.mixture_search import PicksChosen, SomeCharged
from lastiterate.bounds.shuffling.position_transport import LARGEST_MU, REGULAR, places_in_order
from lastiterate.bounds.shuffling.positions import Places
from lastiterate.bounds.shuffling.shuffled_profile import HiddenTogetherProfile
from lastiterate.profile.best import BestProfile
from lastiterate.profile.privacy_profile import PrivacyProfile
from lastiterate.run.training_run import TrainingRun


def hidden_bins_together(run: TrainingRun) -> PrivacyProfile:
    r"""A hidden pick among places, the latest of which are paid in windows of their own.

    **Bound.** At every epsilon the least of `random-order/balls-and-bins/transport` and of
    :math:`E_j N(a_j, I)` against :math:`E_j N(-a_j, I)`, or against N(0, I) in both directions if
    the example is left out: :math:`a_j` has the length :math:`m_j` along one direction, and for
    late places :math:`\rho_w` along that of a window w of the last steps.

    **Holds when.** that bound does, and step size and noise are constant.  A bounded domain is no
    hindrance, and of no use.

    **Tight.** To a few per cent of an exactly solved instance.

    **Source.** This library; Kahane 1985; Bok, Su and Altschuler 2024, Theorem C.3.

    **Computed as** sums of log-normal variables on a grid, larger in convex order, and upper sums
    over one normal variable.  Places, windows and shares are searched for; any choice is valid.
    """
    hidden = hidden_given_the_sizes(run)
    alone = hidden[0] if len(hidden) == 1 else BestProfile(hidden)
    ways = []
    for majorant, known in zip(sizes_that_count(with_one_in_one_world(run)), hidden, strict=True):
        places = places_in_order(majorant.run)
        if places.mus().max() < LARGEST_MU:
            ways.append(SomeCharged(_Drafts(places), known, majorant.exceeded))
    if not ways:
        return alone
    both = (Against.STILL, Against.MOVED)
    directions = (Against.MIRRORED,) if run.adjacency == "replace" else both
    return HiddenTogetherProfile(alone, [PicksChosen(one, ways) for one in directions])


@dataclass(frozen=True)
class _Drafts:
    """The `Picks` for shares of positions and noise; None if all are hidden or mu is too large."""

    places: Places

    def __call__(self, hidden: float, noise: float) -> Picks | None:
        weights = self.places.weights()
        before = np.cumsum(weights) - weights
        count = max(int(np.searchsorted(before, hidden)), 1)
        if count >= weights.size:
            return None
        picks = self.places.picked(count, min(noise, MOST_SET_APART))
        return None if picks.too_dear else picks


def _superseded(run: TrainingRun) -> tuple[Bound, ...]:
    """For single examples it is the least of that bound and of its own."""
    return (HIDDEN_BINS,) if run.examples_per_person == 1 else ()


HIDDEN_BINS_TOGETHER = Bound(
    id="random-order/balls-and-bins/joint-transport",
    gives="the same, late places being hidden behind each other, too",
    covers=HIDDEN_BINS.covers,
    needs=(*HIDDEN_BINS.needs, conditions.CONSTANT, conditions.NOISY, REGULAR),
    certainty=Certainty.UPPER,
    source=Citation(
        "lastiterate",
        2026,
        "Hidden picks, together",
        "docs, tightness; after Kahane 1985 and Bok, Su and Altschuler 2024, Theorem C.3",
    ),
    evaluate=hidden_bins_together,
    rests_on=(CONVEX_FIXED_ORDER,),
    charges="keeps the place that the example has picked hidden, late ones behind each other",
    supersedes=_superseded,
)

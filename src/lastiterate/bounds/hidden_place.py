r"""The last iterate of shuffled runs, the example's place in the secret order staying hidden.

`shuffled` averages over places, which lets an attacker know the place at the end.  With many
batches an epoch that is nearly all of epsilon: the chance of having been in the very last batch.
Here late places borrow from earlier ones, as in `profile.hidden_place`, for which the run with the
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

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from lastiterate._numerics.arrays import Array, IntArray
from lastiterate._numerics.rounding import at_least, at_most, ulps, up
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation, Hypothesis
from lastiterate.bounds.fixed_order import CONTRACTIVE
from lastiterate.bounds.pen import DASHES, GREEN, Pen
from lastiterate.engine.few_arrivals import Arrivals, mus_of_few
from lastiterate.profile.hidden_place import HiddenPlaceProfile, Loan
from lastiterate.run.batches import Drawn, rules
from lastiterate.run.training_run import TrainingRun

_ALONE = 60  # latest places told apart
_GROUPS = 90  # of the others
_MOST_RELEASED = 1e9  # more noise on release, relative to a step's, is not used
_SHARES_THAT_BORROW = (0.001, 0.003, 0.01, 0.03, 0.07, 0.15, 0.3, 0.6)
_LARGEST_MU = 30.0  # beyond it nobody has anything to lend


def hidden_place(run: TrainingRun) -> HiddenPlaceProfile:
    r"""A mixture over places in the last epoch, or in all, between which nobody can tell.

    **Bound.** At every epsilon the least of :math:`\sum_j p_j \delta_{\mu_j}(\varepsilon)` and of
    what `profile.hidden_place` derives where late places borrow from early ones: :math:`\mu_{te}`
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
    places = _Once(run) if run.batches.drawn is Drawn.ONCE else _EachEpoch(run)
    weights, mus = places.weights(), places.mus()
    # What the lender's steps and the late place's bring: u against i' or nothing, i against u.
    factors = [(1.0, 1.0)] if run.adjacency == "replace" else [(1.0, 2.0), (2.0, 1.0)]
    counts = _numbers_of_late(weights) if mus.max() < _LARGEST_MU else []
    directions = [
        [Loan(places.moved(count, lent, late)) for count in counts] for lent, late in factors
    ]
    return HiddenPlaceProfile(weights, mus, directions)


def _numbers_of_late(weights: Array) -> list[int]:
    before = np.cumsum(weights) - weights
    counts = {int(np.searchsorted(before, share)) for share in _SHARES_THAT_BORROW}
    return sorted(count for count in counts if 0 < count < weights.size)


class _Places(ABC):
    """Groups of places, from the latest to the oldest; if there may be none, that is one more.

    Tails are steps after a place, those of a group those of its latest.
    """

    def __init__(self, run: TrainingRun) -> None:
        gap, arrival = float(quantities.gaps(run)[0]), float(quantities.arrivals(run)[0])
        noise = float(quantities.noises(run)[0])
        released = min(quantities.release_noise(run) / noise, _MOST_RELEASED)
        self._gap = gap
        self._ratio = at_least(arrival / noise, ulps=quantities.WIDENING)
        self._release = at_most(released * released, ulps=8)
        self._share = run.batches.share
        self._examples, self._size = run.batches.examples, run.batches.batch_size
        self._length = run.batches.batches_per_epoch
        self._epochs = (run.steps - 1) // self._length  # over before the last one begins
        self._last = run.steps - self._epochs * self._length

    @abstractmethod
    def weights(self) -> Array:
        """The probabilities of the groups."""

    @abstractmethod
    def mus(self) -> Array:
        """With the example at each of them."""

    @abstractmethod
    def moved(self, count: int, lent: float, late: float) -> Array:
        """With the example at each of the first places, against it at the next one.

        The steps of that one bring so many times a participation's arrival, as do those of the
        first.
        """

    def _without(self, batches: int) -> float:
        """The probability of being in none of so many batches of an epoch, exactly 0 if it is."""
        return (self._examples - batches * self._size) / self._examples

    def _mus(self, arrivals: list[Arrivals]) -> Array:
        if not arrivals:
            return np.zeros(1)
        mus = mus_of_few(gap=self._gap, arrivals=arrivals, release_in_steps=self._release)
        with np.errstate(over="ignore"):
            return np.atleast_1d(up(mus * self._ratio, ulps(8)))


class _Once(_Places):
    """The same place in every epoch."""

    def __init__(self, run: TrainingRun) -> None:
        super().__init__(run)
        seen = min(self._length, run.steps)
        self._tails, self._sizes = _groups(seen)
        self._none = self._without(seen)

    def weights(self) -> Array:
        return _with_one_more(self._sizes * np.float64(self._share), self._none, self._none)

    def mus(self) -> Array:
        return _with_one_more(self._mus([self._alone(self._tails, 1.0)]), 0.0, self._none)

    def moved(self, count: int, lent: float, late: float) -> Array:
        tails = self._tails[:count]
        if count == self._tails.size:
            return self._mus([self._alone(tails, late)])
        before = Arrivals(tails + self._length, lent + late, self._epochs - 1, self._length)
        last = [Arrivals(self._tails[count], lent), Arrivals(tails, late)]
        return self._mus([before, *last] if self._epochs else last)

    def _alone(self, tails: IntArray, times: float) -> Arrivals:
        return Arrivals(tails, times, self._epochs, self._length)


@dataclass(frozen=True)
class _Epoch:
    """Places in one epoch, all of which also have these others."""

    tails: IntArray
    sizes: IntArray
    others: tuple[int, ...] = ()


class _EachEpoch(_Places):
    """Another place in every epoch, of which the last counts.

    In an epoch that is cut short an example may have none; then that in the epoch before counts,
    where those with a place in the last one are charged at the end.
    """

    def __init__(self, run: TrainingRun) -> None:
        super().__init__(run)
        cut = self._last < self._length and self._epochs > 0
        end = self._last
        self._parts = [_Epoch(*_groups(end), (end,) if cut else ())]
        if cut:
            tails, sizes = _groups(self._length)
            self._parts.append(_Epoch(tails + end, sizes))
            end += self._length
        whole = self._epochs - cut
        self._ends = [Arrivals(end, 1.0, whole - 1, self._length)] if whole else []

    def weights(self) -> Array:
        absent, weights = 1.0, []
        for part in self._parts:
            weights.append(absent * self._share * part.sizes)
            absent *= self._without(int(part.sizes.sum()))
        return _with_one_more(np.concatenate(weights), absent, absent)

    def mus(self) -> Array:
        alone = [
            self._mus([*self._ends, *(Arrivals(one) for one in part.others), Arrivals(part.tails)])
            for part in self._parts
        ]
        none = math.prod(self._without(int(part.sizes.sum())) for part in self._parts)
        return _with_one_more(np.concatenate(alone), float(self._mus(self._ends)[0]), none)

    def moved(self, count: int, lent: float, late: float) -> Array:
        result: list[Array] = []
        lending, tail = self._place(count)
        for part in self._parts:
            own = Arrivals(part.tails[: count - sum(map(len, result))], late)
            # Against places in the epoch before, those in that epoch are exchanged too.
            others = [Arrivals(one, max(late, 1.0)) for one in part.others]
            lender = [] if lending is None else [Arrivals(tail, lent)]
            later = [*others, *lender] if part is lending else [*lender, *others]
            result.append(self._mus([*self._ends, *later, own]))
            if sum(map(len, result)) == count:
                break
        return np.concatenate(result)

    def _place(self, number: int) -> tuple[_Epoch | None, int]:
        """The epoch and tail of a group of places, counted from the latest."""
        for part in self._parts:
            if number < part.tails.size:
                return part, int(part.tails[number])
            number -= part.tails.size
        return None, 0


def _groups(count: int) -> tuple[IntArray, IntArray]:
    """The latest tails, one by one, then groups of them: the first of each, and how many."""
    alone = min(count, _ALONE)
    others = np.geomspace(alone, count, _GROUPS) if count > alone else np.array([count])
    edges = np.unique(np.concatenate([np.arange(alone), np.rint(others)]).astype(np.int64))
    return edges[:-1], np.diff(edges)


def _with_one_more(values: Array, last: float, probability: float) -> Array:
    """And one for no place, if that is possible."""
    return np.append(values, last) if probability > 0.0 else np.asarray(values, dtype=np.float64)


def _irregular(run: TrainingRun) -> str | None:
    once = run.batches.drawn is Drawn.ONCE
    return "another order in every epoch" if once and run.batches.period is None else None


HIDDEN_PLACE = Bound(
    id="random-order/hidden-place",
    gives="the average over the example's place in a secret order, which stays hidden",
    covers=tuple(rule for rule in rules(Drawn.ONCE, Drawn.EACH_EPOCH) if rule.exchangeable),
    needs=(
        conditions.SECRET_ORDER,
        *conditions.CONTRACTING,
        conditions.CONSTANT,
        conditions.NOISY,
        Hypothesis(
            "places that are visited in the same order every epoch, if they are drawn once",
            _irregular,
            "visit the batches in the same order",
        ),
    ),
    certainty=Certainty.UPPER,
    source=Citation(
        "lastiterate",
        2026,
        "Hidden places of shuffled runs",
        "docs, tightness; after Bok, Su and Altschuler 2024, Theorem C.3",
    ),
    evaluate=hidden_place,
    rests_on=(CONTRACTIVE,),
    charges="averages over the example's secret place, and keeps that place hidden",
    pen=Pen(GREEN, DASHES[1]),
)

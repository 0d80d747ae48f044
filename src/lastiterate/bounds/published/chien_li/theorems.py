r"""Chien and Li 2024: Renyi divergences without convexity or smoothness.

They add noise sigma_CL to x after the step, sigma_CL = eta sigma, and clip gradients at K, so
that two of them differ by up to 2 K: L = 2 K.  Below distances are in units of the step size eta,
s = L/b is the per-step sensitivity, and a step turns a distance z into at most
g(z) = z + eta^order H z^order.
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from lastiterate._numerics.rounding import TENS_OF_THOUSANDS_OF_ROUNDINGS, up
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation, Hypothesis
from lastiterate.bounds.conditions import SECRET_ORDER
from lastiterate.bounds.published.chien_li import distances
from lastiterate.bounds.published.chien_li.reshuffled import energies_of_orders
from lastiterate.bounds.published.chien_li.shift_programme import least_energy_linear
from lastiterate.bounds.published.chien_li.starts import least_energy
from lastiterate.profile.renyi import RenyiProfile, ZCDPProfile, averaged_at_orders
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.batch_rules.ordered import Cyclic, FullBatch, ShuffledEachEpoch, ShuffledOnce
from lastiterate.run.training_run import TrainingRun

PAPER = "published/chien-li"
_LONGEST = 2_000
_MOST_STEPS = 100_000
_MOST_BATCHES = 200


def cite(where: str) -> Citation:
    return Citation(
        "Chien and Li",
        2024,
        "Convergent privacy loss of noisy-SGD without convexity and smoothness",
        where,
    )


def smooth(run: TrainingRun) -> ZCDPProfile:
    r"""Renyi divergences of full batches of smooth losses.

    **Bound.** :math:`R_\alpha \le \frac{\alpha}{2\sigma^2}\min_{\tau,\beta}\Big(
    \sum_{t\ge\tau}\frac{s^2}{\beta_t} + \frac{\min(s\sum_{t<\tau}c^t,\, 2C\tau,\, D)^2}
    {\sum_{t\ge\tau}(1-\beta_t)c^{-2(t-\tau+1)}}\Big)`, with :math:`c = 1 + \eta M`; c = 1 for
    convex losses whose gradients no clip changes and :math:`\eta \le 2/M`;
    :math:`c = 1 - \eta m` if they are m-strongly convex and :math:`\eta \le 1/M`.

    **Holds when.** losses are smooth and every step sees every example.  (Their proof conditions
    on noise that tells of the past; the shifts imply the statement.)

    **Tight.** Above the shifts for c < 1, equal for c = 1.

    **Source.** Theorem 3.1.

    **Computed as** the least over starts, the shares beta being optimal for each; rounded up.
    """
    c, s = _lipschitz(run), float(quantities.sensitivities(run)[0])
    energies = [run.steps * s * s]
    for count in _unrolled(run.steps):
        before = run.steps - count
        gathered = s * (before if c == 1.0 else math.expm1(_grown(c, before)) / (c - 1.0))
        gathered = up(gathered, TENS_OF_THOUSANDS_OF_ROUNDINGS)
        most = min(distances.doubled_bound(run) * before, quantities.diameter(run))
        start = min(gathered, most) if before else 0.0
        energies.append(least_energy_linear(s, start, c, count))
    return ZCDPProfile(distances.rate(run, min(energies)))


def _grown(c: float, steps: int) -> float:
    return min(steps * math.log(c), 700.0) if c > 0.0 else -math.inf


def _lipschitz(run: TrainingRun) -> float:
    """The Lipschitz constant of Lemma 3.4, rounded up."""
    assert run.loss.smoothness is not None
    x = float(np.max(run.step_size)) * run.loss.smoothness
    if any(hypothesis.check(run) for hypothesis in conditions.CONTRACTING):
        return up(1.0 + x, TENS_OF_THOUSANDS_OF_ROUNDINGS)
    strong = x <= 1.0 and run.loss.strong_convexity > 0.0
    return float(quantities.contractions(quantities.gaps(run))[0]) if strong else 1.0


def _unrolled(steps: int) -> list[int]:
    """Some numbers of last steps, all of which are valid: few steps, then ever fewer of many."""
    longest = min(steps, _LONGEST)
    spread = np.geomspace(1.0, longest, 60).astype(int).tolist()
    return sorted({*range(1, min(longest, 40) + 1), *spread, longest})


def hoelder(run: TrainingRun) -> ZCDPProfile:
    r"""Renyi divergences of full batches of losses with a Hoelder-continuous gradient.

    **Bound.** :math:`R_\alpha \le \frac{\alpha}{2\sigma^2}\min_{\tau,\beta,a}
    \sum_{t\ge\tau}\big(\frac{s^2}{\beta_t} + \frac{a_t^2}{1-\beta_t}\big)`, where the shifts
    a bring the distance at :math:`\tau` to 0 against g.

    **Holds when.** gradients are Hoelder-continuous (or Lipschitz), every step sees every
    example.  (The shifts imply it, as for `smooth`.)

    **Tight.** A stationary point of their programme.

    **Source.** Theorem 3.7.

    **Computed as** the least over some starts and first shifts; feasible, rounded up.
    """
    energy = float(least_energy(run, np.ones((1, run.steps)))[0])
    return ZCDPProfile(distances.rate(run, energy))


def cyclic(run: TrainingRun) -> ZCDPProfile:
    r"""Batches in a given order; the position, or the order, that is the most exposed.

    **Bound.** :math:`R_\alpha \le \frac{\alpha}{2\sigma^2}\min_{\tau,\beta,a}
    \Big(\sum_j \frac{s^2}{\beta_{t_j}} + \sum_{t\ge\tau}\frac{a_t^2}{1-\beta_t}\Big)` over
    participations :math:`t_j \ge \tau`, where the shifts a bring the distance at :math:`\tau` to 0
    against g; the largest of all positions.

    **Holds when.** gradients are Hoelder-continuous (or Lipschitz).  (The shifts imply it, as for
    `smooth`.)

    **Tight.** The minimum over every start, each to a stationary point of their programme.

    **Source.** Theorem A.1.

    **Computed as** the least over all starts that lower bounds do not exclude; feasible, rounded
    up.  Of runs shuffled every epoch positions in the last epochs are written out.
    """
    if run.batches.resampling is Resampling.EACH_EPOCH:
        return ZCDPProfile(distances.rate(run, float(energies_of_orders(run)[1].max())))
    return max(cyclic_by_position(run), key=lambda profile: profile.rho)


def cyclic_by_position(run: TrainingRun) -> Sequence[ZCDPProfile]:
    """The guarantee of each position in the order of the batches."""
    if run.batches.resampling is Resampling.EACH_EPOCH:
        return [cyclic(run)]
    patterns = np.zeros((quantities.position_count(run), run.steps))
    for row, seen in zip(patterns, quantities.patterns(run), strict=True):
        row[seen] = 1.0
    energies = least_energy(run, patterns)
    return [ZCDPProfile(distances.rate(run, float(energy))) for energy in energies]


def shuffled(run: TrainingRun) -> RenyiProfile:
    r"""The average over a secret order, drawn once or before every epoch.

    **Bound.** :math:`\frac{1}{\alpha-1}\log E_B\, e^{(\alpha-1)\alpha\rho(B)}`, with
    :math:`\rho(B)` that of `cyclic` for the positions B.

    **Holds when.** as `cyclic`, with the examples shuffled in secret.

    **Tight.** As `cyclic`.  Of runs shuffled every epoch the statement itself where no plan starts
    before the epochs that are written out, and above it elsewhere.

    **Source.** Corollary A.3.

    **Computed as** the largest term and what the others fall short of it; rounded up.
    """
    if run.batches.resampling is Resampling.EACH_EPOCH:
        weights, energies = energies_of_orders(run)
        rates = np.array([distances.rate(run, float(energy)) for energy in energies])
    else:
        rates = np.array([profile.rho for profile in cyclic_by_position(run)])
        weights = np.full(rates.size, 1.0 / rates.size)
    return RenyiProfile(partial(averaged_at_orders, weights, rates), at_once=True)


def _nothing_known(run: TrainingRun) -> str | None:
    if run.loss.smoothness is not None or run.loss.holder is not None:
        return None
    return "smoothness=None, holder=None"


def _too_many(run: TrainingRun) -> str | None:
    length = run.batches.batches_per_epoch
    return None if length <= _MOST_BATCHES else f"{length} batches"


def _expanding_regulariser(run: TrainingRun) -> str | None:
    if run.loss.holder is None or run.loss.regulariser * float(np.max(run.step_size)) <= 2.0:
        return None
    return f"regulariser={run.loss.regulariser!r}"


_COMMON = (conditions.ONLY_LAST_ITERATE, conditions.CONSTANT, conditions.NOISY)
HOELDER = (
    *_COMMON,
    Hypothesis(
        "a known smoothness or Hoelder constants",
        _nothing_known,
        "state Loss(smoothness=..) or Loss(holder=..)",
    ),
    Hypothesis("step_size regulariser <= 2", _expanding_regulariser, "shorten the steps"),
    conditions.at_most_steps(_MOST_STEPS, "see fixed-order/non-convex"),
)
_FEW = Hypothesis(
    f"at most {_MOST_BATCHES} batches an epoch", _too_many, "see fixed-order/non-convex"
)

BOUNDS = (
    Bound(
        id=f"{PAPER}/smooth",
        gives="Renyi divergences of the last iterate, convex or not",
        covers=(FullBatch,),
        needs=(*_COMMON, conditions.SMOOTH),
        certainty=Certainty.UPPER,
        source=cite("Theorem 3.1"),
        evaluate=smooth,
    ),
    Bound(
        id=f"{PAPER}/hoelder",
        gives="Renyi divergences of the last iterate without smoothness",
        covers=(FullBatch,),
        needs=HOELDER,
        certainty=Certainty.UPPER,
        source=cite("Theorem 3.7"),
        evaluate=hoelder,
    ),
    Bound(
        id=f"{PAPER}/cyclic",
        gives="Renyi divergences of the last iterate, by position",
        covers=(Cyclic, ShuffledOnce, ShuffledEachEpoch),
        needs=(*HOELDER, _FEW),
        certainty=Certainty.UPPER,
        source=cite("Theorem A.1"),
        evaluate=cyclic,
        by_position=cyclic_by_position,
    ),
    Bound(
        id=f"{PAPER}/shuffled",
        gives="Renyi divergences, averaged over a secret order",
        covers=(ShuffledOnce, ShuffledEachEpoch),
        needs=(SECRET_ORDER, *HOELDER, _FEW),
        certainty=Certainty.UPPER,
        source=cite("Corollary A.3"),
        evaluate=shuffled,
    ),
)

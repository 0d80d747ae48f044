r"""Chien and Li 2024: batches sampled anew every step, convex or not.

Distances are in units of the step size, as in `theorems`.
"""

import math
from functools import partial

import numpy as np

from lastiterate._numerics.powers import geometric_sum, log_of, sum_of_inverse_powers
from lastiterate._numerics.rounding import TENS_OF_THOUSANDS_OF_ROUNDINGS, Array, up
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty
from lastiterate.bounds.conditions import SECRET_ORDER
from lastiterate.bounds.published.chien_li import distances
from lastiterate.bounds.published.chien_li.shift_programme import least_energies
from lastiterate.bounds.published.chien_li.theorems import HOELDER, PAPER, cite
from lastiterate.bounds.published.sampled_gaussian import doubled_radius, sampled_gaussian
from lastiterate.profile.renyi import RenyiProfile
from lastiterate.run.batch_rules.drawn import SampledWithoutReplacement
from lastiterate.run.training_run import TrainingRun

_SPLITS = 1.0 / (1.0 + np.exp(-np.linspace(-7.0, 7.0, 43)))


def sampled(run: TrainingRun) -> RenyiProfile:
    r"""Renyi divergences of batches drawn anew every step.

    **Bound.** :math:`R_\alpha \le \min_{\tau,\beta,a}\sum_{t\ge\tau}
    S_\alpha\big(\tfrac bn, \tfrac{\sqrt\beta\,\sigma b}{2C}\big)
    + \frac{\alpha a_t^2}{2\sigma^2(1-\beta)}`, with S the larger of both directions and the
    square root that their (19) lacks.  Where losses are convex and steps short, distances grow by
    c = 1, or shrink by :math:`c = 1 - \eta m`, as in their Theorem 3.1, instead of growing by
    :math:`1 + \eta M`.

    **Holds when.** we know of no proof.  As printed, with S the smaller direction, it is false;
    with the larger no violation is known, but the proof conditions on noise that tells of the
    batch.

    **Tight.** The same share beta in every step; else a stationary point.

    **Source.** Theorem 3.12, and the convex version that they leave to the reader.

    **Computed as** the least over some starts, shifts and shares.
    """
    lengths = distances.some_lengths(run.steps, 24)
    energies = _contracting(run, lengths) if _contracts(run) else _growing(run, lengths)
    return RenyiProfile(partial(_divergences, run, lengths, energies), at_once=True)


def _contracts(run: TrainingRun) -> bool:
    return not any(hypothesis.check(run) for hypothesis in conditions.CONTRACTING)


def _growing(run: TrainingRun, lengths: Array) -> Array:
    starts = distances.forward_distances(run, np.ones(run.steps))[-lengths]
    idle = np.zeros((lengths.size, int(lengths.max())))
    return least_energies(idle, starts, lengths, *distances.growth(run))


def _contracting(run: TrainingRun, lengths: Array) -> Array:
    """The least energies for linear moduli: distance^2 over the sum of c^-2i, i = 1..length."""
    gap = max(quantities.constant_gap(run), 0.0)
    log_c = log_of(gap)
    s, diameter = float(quantities.sensitivities(run)[0]), quantities.diameter(run)
    most = distances.doubled_bound(run)
    energies = []
    for length in lengths.tolist():
        before = run.steps - length
        gathered = up(s * geometric_sum(gap, before), TENS_OF_THOUSANDS_OF_ROUNDINGS)
        start = min(gathered, most * before, diameter) if before else 0.0
        weight = math.inf if math.isinf(log_c) else sum_of_inverse_powers(2.0 * log_c, length)
        energies.append(up(start * start / weight, TENS_OF_THOUSANDS_OF_ROUNDINGS))
    return np.array(energies)


def _divergences(run: TrainingRun, lengths: Array, energies: Array, orders: Array) -> Array:
    q = run.batches.batch_size / run.batches.examples
    noise = float(quantities.noises(run)[0])
    z = noise * run.batches.batch_size / doubled_radius(run)
    # All of the noise where nothing is left from before the start.
    best = run.steps * sampled_gaussian(q, z, orders)
    for share in _SPLITS:
        one = sampled_gaussian(q, z * math.sqrt(share), orders)
        for length, energy in zip(lengths, energies, strict=True):
            rest = orders * (energy / (2.0 * noise * noise * (1.0 - share)))
            best = np.fmin(best, length * one + rest)
    return np.asarray(up(best, TENS_OF_THOUSANDS_OF_ROUNDINGS))


BOUNDS = (
    Bound(
        id=f"{PAPER}/sampled",
        gives="Renyi divergences of sampled batches, convex or not",
        covers=(SampledWithoutReplacement,),
        needs=(SECRET_ORDER, *HOELDER),
        certainty=Certainty.AS_PUBLISHED,
        source=cite("Theorem 3.12"),
        evaluate=sampled,
    ),
)

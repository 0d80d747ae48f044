"""The last iterate of batches drawn anew every step, on a bounded domain, where steps may expand.

Given the batches, which are independent of the data, a fixed-order bound holds, and the delta
curves may be averaged over the participations in a window of last steps.  What came before is
replaced by the diameter.
"""

import math
from itertools import pairwise

import numpy as np

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, down, ulps, up
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty
from lastiterate.bounds.fixed_order.nonconvex import NON_CONVEX, late, moduli
from lastiterate.bounds.shuffling.average import MIXTURE
from lastiterate.profile.best import BestProfile
from lastiterate.profile.gaussian import GaussianMixtureProfile
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batch_rules.base import Resampling, rules
from lastiterate.run.batch_rules.drawn import PoissonSampled, SampledWithoutReplacement
from lastiterate.run.loss import Loss
from lastiterate.run.training_run import TrainingRun
from lastiterate.shifts.optimal_shifts import optimal_shifts
from lastiterate.shifts.patterns import least_energies

_BLOCK_STEPS = 9  # steps whose participations are written out together
_LONGEST_WINDOW = 450
_ENERGY_CELLS = 4_096
_CHARGED_FAILURE = 1e-12  # the probability of a larger batch that is charged
_LEAST_DISTANCE = 1e-6


def sampled_window_average(run: TrainingRun) -> PrivacyProfile:
    r"""A mixture over the participations in the last steps, from the diameter.

    **Bound.** :math:`\delta(\varepsilon) = E_V\,\delta_{\mu(V)}(\varepsilon)`, V independent
    Bernoulli(b/n) over a window of last steps.  The window is cut into blocks of few steps, and
    distances :math:`\zeta_0 = D, \zeta_1, .., \zeta_J = 0` are fixed at their ends.
    :math:`\mu(V)^2 = \sum_j E_j(V_j)`, with :math:`E_j` the least energy that leads from
    :math:`\zeta_{j-1}` to :math:`\zeta_j` with the participations of block j.

    **Holds when.** every batch is drawn uniformly, independently and in secret; the domain is
    bounded; one of smoothness, Hoelder constants or a gradient bound is known; step size and noise
    are constant.

    **Tight.** The exact average over participations for windows of one block; else the distances
    between blocks are the same for all participations.

    **Source.** Bok, Su and Altschuler 2024, Theorem C.3, given the batches; Ye and Shokri 2022,
    Lemma 4.1.

    **Computed as** convex minorants of all participations of a block, and the law of the sum over
    blocks on a grid, energies rounded up; the best of a few windows.
    """
    return _best_of_windows(run, run.batches.share, 0.0)


def poisson_window_average(run: TrainingRun) -> PrivacyProfile:
    r"""A mixture over the participations in the last steps, for batches of random size.

    **Bound.** As for batches of a fixed size, with the moduli of batches of K examples, whose sum
    is divided by b.  A step in the window that has more costs delta = 1: the probability is added.

    **Holds when.** every step includes every example independently and in secret; the domain is
    bounded; one of smoothness, Hoelder constants or a gradient bound is known; step size and noise
    are constant.

    **Tight.** As for batches of a fixed size.

    **Source.** Bok, Su and Altschuler 2024, Theorem C.3, given the batches; Ye and Shokri 2022,
    Lemma 4.1.

    **Computed as** for batches of a fixed size.
    """
    rule, loss = run.batches, run.loss
    largest = rule.size_exceeded_with(_CHARGED_FAILURE / run.steps)
    lost = 0.0 if largest >= rule.largest_size else _CHARGED_FAILURE
    times = up(largest / rule.batch_size, ulps(4))
    bound, curved, rough = run.gradient_bound, loss.smoothness, loss.holder
    grown = Loss(
        convex=False,
        smoothness=None
        if curved is None
        else up(times * (curved - loss.regulariser) + loss.regulariser, ulps(8)),
        holder=None if rough is None else (up(times * rough[0], ulps(4)), rough[1]),
        lipschitz=None if bound is None else up(times * bound, ulps(4)),
        regulariser=loss.regulariser,
    )
    fixed = SampledWithoutReplacement(rule.examples, rule.batch_size)
    changed = run.replace(loss=grown, clip_norm=None, batches=fixed)
    return _best_of_windows(changed, rule.share, lost)


_NEEDS = (
    conditions.SECRET_ORDER,
    *NON_CONVEX.needs[1:],
    conditions.BOUNDED,
    conditions.CONSTANT,
    conditions.NOISY,
)


_CHARGES = "averages over the last steps in which the secretly drawn example takes part"


SAMPLED_WINDOW = Bound(
    id="random-order/sampled/average-non-convex",
    gives="the average over participations in the last steps on a bounded domain, convex or not",
    covers=rules(Resampling.EACH_STEP, exact_size=True),
    needs=_NEEDS,
    certainty=Certainty.UPPER,
    source=MIXTURE,
    evaluate=sampled_window_average,
    rests_on=(NON_CONVEX,),
    charges=_CHARGES,
)


POISSON_WINDOW = Bound(
    id="random-order/poisson/average-non-convex",
    gives="the same average for batches of random size",
    covers=(PoissonSampled,),
    needs=_NEEDS,
    certainty=Certainty.UPPER,
    source=MIXTURE,
    evaluate=poisson_window_average,
    rests_on=(NON_CONVEX,),
    charges=_CHARGES,
)


def _best_of_windows(run: TrainingRun, probability: float, lost: float) -> PrivacyProfile:
    best = _best_length(run, probability)
    lengths = {min(max(round(best * x), 1), run.steps, _LONGEST_WINDOW) for x in (0.5, 1.0, 2.0)}
    if run.steps <= _LONGEST_WINDOW:
        lengths.add(run.steps)  # from the very start, where both runs are equal
    found = [_mixture(run, probability, lost, length) for length in sorted(lengths)]
    return found[0] if len(found) == 1 else BestProfile(found)


def _best_length(run: TrainingRun, probability: float) -> int:
    """The number of steps that a plan for average participations uses."""
    window = min(run.steps, _LONGEST_WINDOW)
    plan = _plan(run, probability, window, start=quantities.diameter(run))
    return max(int(np.count_nonzero(plan[1:-1] < quantities.diameter(run))) + 1, 1)


def _plan(run: TrainingRun, probability: float, window: int, start: float) -> Array:
    """Distances before each step and at the end, for average participations."""
    idle = moduli(run, np.empty(0, dtype=np.intp), window)
    arriving = np.append(probability * late(quantities.sensitivities(run), window), 0.0)
    least = _LEAST_DISTANCE * (float(arriving.max()) + start)
    distances = np.linspace(max(start, least), least, window + 1)
    for _ in range(4):
        slopes, offsets = idle.tangent(np.maximum(distances, least))
        plan = optimal_shifts(
            contraction=slopes,
            sensitivity=offsets + arriving,
            noise=_noise(run, window),
            start=start,
            diameter=quantities.diameter(run),
        )
        if not math.isfinite(plan.mu):
            return np.append(np.maximum(distances, least), 0.0)
        distances = plan.z[:-1]
    return np.asarray(plan.z)


def _noise(run: TrainingRun, window: int) -> Array:
    return np.append(late(quantities.noises(run), window), quantities.release_noise(run))


def _mixture(
    run: TrainingRun, probability: float, lost: float, window: int
) -> GaussianMixtureProfile:
    start = quantities.diameter(run) if window < run.steps else 0.0
    distances = _plan(run, probability, window, start)
    idle = moduli(run, np.empty(0, dtype=np.intp), window)
    least = _LEAST_DISTANCE * max(float(distances.max()), 1e-300)
    slopes, offsets = idle.tangent(np.maximum(distances[:-1], least))
    sensitivity = np.append(late(quantities.sensitivities(run), window), 0.0)
    noise = _noise(run, window)
    edges = [*range(0, window, _BLOCK_STEPS), window]
    laws = []
    for number, (begin, end) in enumerate(pairwise(edges)):
        final = number == len(edges) - 2
        stop = end + 1 if final else end  # the release belongs to the last block
        block = slice(begin, stop)
        if not final and distances[end] >= quantities.diameter(run):
            continue  # nothing is hidden while the domain alone keeps the runs together
        laws.append(
            _block_law(
                slopes[block],
                offsets[block],
                sensitivity[block],
                noise[block],
                float(distances[begin]) if begin else start,
                0.0 if final else float(distances[end]),
                probability,
            )
        )
    masses, energies = _sum_law(laws)
    mus = np.sqrt(energies)
    widened = up(mus, ulps(quantities.WIDENING + 64 * _BLOCK_STEPS))
    return GaussianMixtureProfile(masses, widened, lost=lost)


def _block_law(
    slopes: Array,
    offsets: Array,
    sensitivity: Array,
    noise: Array,
    start: float,
    end: float,
    probability: float,
) -> tuple[Array, Array]:
    """The least energies of all participations of a block, and their probabilities."""
    free = int(np.count_nonzero(sensitivity))  # the release sees nobody
    seen = (np.arange(1 << free)[:, None] >> np.arange(slopes.size)) & 1
    seen[:, free:] = 0
    counts = seen.sum(axis=1)
    chances = probability**counts * (1.0 - probability) ** (free - counts)
    units = np.append(np.cumprod(slopes[:0:-1])[::-1], 1.0)
    masses = units * (offsets + seen * sensitivity)
    variances = np.broadcast_to(np.square(units * noise), masses.shape)
    # What may be left at the end need not be hidden; rounded so that more has to be.
    carried = up(start * slopes[0] * units[0], ulps(32)) - down(end, ulps(32))
    starts = np.full(len(masses), max(carried, 0.0))
    energies = least_energies(masses, variances, starts).from_start
    return up(energies, ulps(64 * slopes.size)), chances


def _sum_law(laws: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Probabilities and sums of independent energies, each rounded up to a multiple of a cell."""
    most = math.fsum(float(energies.max()) for energies, _ in laws)
    if not 0.0 < most < math.inf:
        return np.ones(1), np.array([most])
    cell = most / _ENERGY_CELLS
    total: Array = np.ones(1)
    for energies, chances in laws:
        levels = np.ceil(up(energies, ulps(4)) / cell).astype(np.int64)
        total = np.asarray(np.convolve(total, np.bincount(levels, weights=chances)), np.float64)
    sums = up(cell * np.arange(total.size, dtype=np.float64), ulps(8))
    return up(total, MILLIONS_OF_ROUNDINGS / 4.0), sums

r"""Chien and Li 2024: Renyi divergences without convexity or smoothness.

They add noise sigma_CL to x after the step, sigma_CL = eta sigma, and clip gradients at K, so
that two of them differ by up to 2 K: L = 2 K.  Below distances are in units of the step size eta,
s = L/b is the per-step sensitivity, and a step turns a distance z into at most
g(z) = z + eta^order H z^order.

**The programme.** Shifts a_k after a step tau at which the distance is known bring it to 0:
z_tau = start, z_{k+1} = g_k(z_k) - a_k, z_T = 0, with g_k(z) = z + rise z^order.  Covering a
sensitivity s in the same step, with the best share beta of the noise, costs (s + a)^2.  Any shifts
that end at 0 are valid, and only such are tried.

**Its starts.** From a start :math:`\tau` at the distance :math:`D_\tau` the programme costs
:math:`\sum (s_t + a_t)^2`.  Without :math:`a \ge 0` its optimum is, for a growth of c in each step,

.. math:: \frac{\big(D_\tau + \sum_{t \ge \tau} c^{-(t-\tau+1)} s_t\big)^2}
                {\sum_{t \ge \tau} c^{-2(t-\tau+1)}},

which is below every plan, as is :math:`\sum s_t^2`; Hoelder gradients let distances grow by c = 1
at least.  So starts are solved in the order of these lower bounds, until no other can be better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np

from lastiterate._numerics.powers import geometric_sum, log_of, sum_of_inverse_powers
from lastiterate._numerics.rounding import (
    FEW_ROUNDINGS,
    TENS_OF_THOUSANDS_OF_ROUNDINGS,
    THOUSANDS_OF_ROUNDINGS,
    Array,
    down,
    up,
)
from lastiterate._numerics.search import last_true
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation, Hypothesis
from lastiterate.bounds.published.sampled_gaussian import (
    NOISE_SPLITS,
    doubled_radius,
    sampled_gaussian,
)
from lastiterate.profile.renyi import RenyiProfile, ZCDPProfile, averaged_at_orders
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.batch_rules.drawn import SampledWithoutReplacement
from lastiterate.run.batch_rules.ordered import Cyclic, FullBatch, ShuffledEachEpoch, ShuffledOnce
from lastiterate.run.training_run import TrainingRun

PAPER = "published/chien-li"
_MAX_STEPS = 100_000
_MAX_BATCHES = 200  # of an epoch
_MAX_UNROLLED_STEPS = 2_000  # last steps, in which shifts may begin
_MAX_ORDERS = 800  # of the last epochs, written out
_LARGEST_DISTANCE = 1e60  # farther ones count as infinite
_STARTS_AT_ONCE = 6  # solved together, the most promising first
_MAX_START_ROUNDS = 24
_GAIN = 1e-8  # relative; for less no other start is solved
_SEARCH_CANDIDATES = 32
_SEARCH_ROUNDS = 4
_SEARCH_HALVINGS = 64


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
    for count in _unrolled_lengths(run.steps):
        before = run.steps - count
        gathered = s * (before if c == 1.0 else math.expm1(_log_growth(c, before)) / (c - 1.0))
        gathered = up(gathered, TENS_OF_THOUSANDS_OF_ROUNDINGS)
        most = min(doubled_bound(run) * before, quantities.diameter(run))
        start = min(gathered, most) if before else 0.0
        energies.append(least_energy_linear(s, start, c, count))
    return ZCDPProfile(rate(run, min(energies)))


def _log_growth(c: float, steps: int) -> float:
    return min(steps * math.log(c), 700.0) if c > 0.0 else -math.inf


def _lipschitz(run: TrainingRun) -> float:
    """The Lipschitz constant of Lemma 3.4, rounded up."""
    assert run.loss.smoothness is not None
    x = float(np.max(run.step_size)) * run.loss.smoothness
    if not _contracts(run):
        return up(1.0 + x, TENS_OF_THOUSANDS_OF_ROUNDINGS)
    strong = x <= 1.0 and run.loss.strong_convexity > 0.0
    return float(quantities.contractions(quantities.gaps(run))[0]) if strong else 1.0


def _contracts(run: TrainingRun) -> bool:
    """Whether no step drives two points apart."""
    return not any(hypothesis.check(run) for hypothesis in conditions.CONTRACTING)


def _unrolled_lengths(steps: int) -> list[int]:
    """Some numbers of last steps, all of which are valid: few steps, then ever fewer of many."""
    longest = min(steps, _MAX_UNROLLED_STEPS)
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
    return ZCDPProfile(rate(run, energy))


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
        return ZCDPProfile(rate(run, float(energies_of_orders(run)[1].max())))
    return max(cyclic_by_position(run), key=lambda profile: profile.rho)


def cyclic_by_position(run: TrainingRun) -> Sequence[ZCDPProfile]:
    """The guarantee of each position in the order of the batches."""
    if run.batches.resampling is Resampling.EACH_EPOCH:
        return [cyclic(run)]
    patterns = np.zeros((quantities.position_count(run), run.steps))
    for row, seen in zip(patterns, quantities.patterns(run), strict=True):
        row[seen] = 1.0
    energies = least_energy(run, patterns)
    return [ZCDPProfile(rate(run, float(energy))) for energy in energies]


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
        rates = np.array([rate(run, float(energy)) for energy in energies])
    else:
        rates = np.array([profile.rho for profile in cyclic_by_position(run)])
        weights = np.full(rates.size, 1.0 / rates.size)
    return RenyiProfile(partial(averaged_at_orders, weights, rates), at_once=True)


def energies_of_orders(run: TrainingRun) -> tuple[Array, Array]:
    """The probabilities of the positions in the last epochs, and the least energy of each.

    As many epochs are written out as have few orders.  Before these the distance is the farthest
    that any positions lead to: that is the statement itself where no plan starts earlier, and
    above it elsewhere.
    """
    length = run.batches.batches_per_epoch
    whole, cut = divmod(run.steps, length)
    last = _last_epoch(length, cut) if cut else []
    epochs: list[list[tuple[float, Array]]] = [last] if cut else []
    full = [(1.0 / length, seen) for seen in np.eye(length)]
    orders = max(len(last), 1)
    before = whole
    while before and (not epochs or orders * length <= _MAX_ORDERS):
        epochs.insert(0, full)
        orders *= length
        before -= 1
    weights, patterns = [], []
    for chosen in product(*epochs):
        weights.append(np.prod([weight for weight, _ in chosen]))
        patterns.append(np.concatenate([seen for _, seen in chosen]))
    late = np.array(patterns)[:, -_MAX_UNROLLED_STEPS:]
    walked = forward_distances(run, np.array(patterns), _largest_distance(run, before))
    s = float(quantities.sensitivities(run)[0])
    composed = s * s * (before + np.array(patterns).sum(axis=1))
    walked = walked[:, -_MAX_UNROLLED_STEPS:]
    return np.array(weights), least_over_starts(run, late, walked, composed)


def _last_epoch(length: int, cut: int) -> list[tuple[float, Array]]:
    """The positions in an epoch of which only the first steps are taken."""
    seen = [(1.0 / length, np.eye(length)[j, :cut]) for j in range(cut)]
    return [*seen, (1.0 - cut / length, np.zeros(cut))]


def _largest_distance(run: TrainingRun, epochs: int) -> float:
    """The largest distance of Lemma A.2 after this many epochs, over all positions in them."""
    length, distance = run.batches.batches_per_epoch, 0.0
    # One more step that sees nobody: distances are those before each step.
    positions = np.hstack([np.eye(length), np.zeros((length, 1))])
    for _ in range(epochs):
        further = float(forward_distances(run, positions, distance)[:, -1].max())
        if not distance < further < np.inf:
            return further
        distance = further
    return distance


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
    lengths = some_lengths(run.steps, 24)
    energies = (
        _contracting_energies(run, lengths) if _contracts(run) else _growing_energies(run, lengths)
    )
    return RenyiProfile(partial(_divergences, run, lengths, energies), at_once=True)


def _growing_energies(run: TrainingRun, lengths: Array) -> Array:
    """The least energies where distances may grow, one for each number of last steps."""
    starts = forward_distances(run, np.ones(run.steps))[-lengths]
    idle = np.zeros((lengths.size, int(lengths.max())))
    return least_energies(idle, starts, lengths, *growth(run))


def _contracting_energies(run: TrainingRun, lengths: Array) -> Array:
    """The least energies for linear moduli: distance^2 over the sum of c^-2i, i = 1..length."""
    gap = max(quantities.constant_gap(run), 0.0)
    log_c = log_of(gap)
    s, diameter = float(quantities.sensitivities(run)[0]), quantities.diameter(run)
    most = doubled_bound(run)
    energies = []
    for length in lengths.tolist():
        before = run.steps - length
        gathered = up(s * geometric_sum(gap, before), TENS_OF_THOUSANDS_OF_ROUNDINGS)
        start = min(gathered, most * before, diameter) if before else 0.0
        weight = math.inf if math.isinf(log_c) else sum_of_inverse_powers(2.0 * log_c, length)
        energies.append(up(start * start / weight, TENS_OF_THOUSANDS_OF_ROUNDINGS))
    return np.array(energies)


def _divergences(run: TrainingRun, lengths: Array, energies: Array, orders: Array) -> Array:
    """The divergences at these orders, the least over lengths and shares of the noise."""
    q = run.batches.batch_size / run.batches.examples
    noise = float(quantities.noises(run)[0])
    z = noise * run.batches.batch_size / doubled_radius(run)
    # All of the noise where nothing is left from before the start.
    best = run.steps * sampled_gaussian(q, z, orders)
    for share in NOISE_SPLITS:
        one = sampled_gaussian(q, z * math.sqrt(share), orders)
        for length, energy in zip(lengths, energies, strict=True):
            rest = orders * (energy / (2.0 * noise * noise * (1.0 - share)))
            best = np.fmin(best, length * one + rest)
    return np.asarray(up(best, TENS_OF_THOUSANDS_OF_ROUNDINGS))


def rate(run: TrainingRun, energy: float) -> float:
    """energy/(2 sigma^2)."""
    noise = float(quantities.noises(run)[0])
    return up(energy / (2.0 * noise**2), TENS_OF_THOUSANDS_OF_ROUNDINGS)


def doubled_bound(run: TrainingRun) -> float:
    """2 C in units of the step, inf where no bound on gradients is known."""
    pulled = float(np.max(run.step_size)) * run.loss.regulariser
    return math.inf if run.gradient_bound is None or pulled > 2.0 else 2.0 * run.gradient_bound


def growth(run: TrainingRun) -> tuple[float, float]:
    """(rise, order): the Hoelder constants in units of the step; smoothness is order 1."""
    eta = float(np.max(run.step_size))
    if run.loss.holder is not None:
        constant, order = run.loss.holder
        # The regulariser is not part of them; it moves points apart by no more than this.
        return up(constant * eta**order, TENS_OF_THOUSANDS_OF_ROUNDINGS), order
    assert run.loss.smoothness is not None
    return up(eta * run.loss.smoothness, TENS_OF_THOUSANDS_OF_ROUNDINGS), 1.0


def forward_distances(run: TrainingRun, patterns: Array, start: float = 0.0) -> Array:
    """D_t of Lemma A.2 before each step, capped by the diameter; inf where that is too far.

    The last axis of `patterns` are steps, 1 where the example takes part.
    """
    (rise, order), size = growth(run), run.batches.batch_size
    s, cap = float(quantities.sensitivities(run)[0]), quantities.diameter(run)
    most = doubled_bound(run)
    own, others = (s, 1.0) if math.isinf(most) else (most / size, (size - 1) / size)
    walked = np.zeros(patterns.shape)
    z = np.full(patterns.shape[:-1], start)
    for k in range(patterns.shape[-1]):
        walked[..., k] = z
        seen = patterns[..., k]
        with np.errstate(over="ignore", invalid="ignore"):
            grown = z + rise * z**order * np.where(seen > 0.0, others, 1.0) + own * seen
            z = np.minimum(np.minimum(up(grown, FEW_ROUNDINGS), z + most), cap)
        z = np.where(z <= _LARGEST_DISTANCE, z, np.inf)
    return walked


def some_lengths(steps: int, count: int) -> Array:
    """Some numbers of last steps to unroll; all are valid."""
    longest = min(steps, _MAX_UNROLLED_STEPS)
    return np.unique(np.append(np.geomspace(1.0, longest, count).astype(np.int64), longest))


def least_energy(run: TrainingRun, patterns: Array) -> Array:
    """The least energy of each pattern, a row of steps, over all starts."""
    s = float(quantities.sensitivities(run)[0])
    longest = min(run.steps, _MAX_UNROLLED_STEPS)
    walked = forward_distances(run, patterns)[:, -longest:]
    # From the very start nothing but the participations is to be hidden.
    composed = s * s * patterns.sum(axis=1)
    return least_over_starts(run, patterns[:, -longest:], walked, composed)


def least_over_starts(run: TrainingRun, late: Array, walked: Array, composed: Array) -> Array:
    """The least energy of each pattern over starts in the last steps, at most `composed`.

    `late` are the participations of the last steps, one row for each pattern, and `walked` the
    distances before these steps.
    """
    s = float(quantities.sensitivities(run)[0])
    rates = growth(run)
    below = _lower_bounds(s * late, walked, rates)
    best = composed.copy()
    rows = np.arange(len(late))[:, None]
    for _ in range(_MAX_START_ROUNDS):
        chosen = np.argpartition(below, min(_STARTS_AT_ONCE, below.shape[1]) - 1, axis=1)[
            :, :_STARTS_AT_ONCE
        ]
        worth = np.take_along_axis(below, chosen, axis=1) < down(best, _GAIN)[:, None]
        patterns, columns = np.nonzero(worth)
        if not patterns.size:
            break
        starts = chosen[patterns, columns]
        lengths = late.shape[1] - starts
        longest = int(lengths.max())
        energies = least_energies(
            s * late[patterns, -longest:], walked[patterns, starts], lengths, *rates
        )
        np.minimum.at(best, patterns, energies)
        below[rows, chosen] = np.inf
    return best


def _lower_bounds(sensitivities: Array, walked: Array, rates: tuple[float, float]) -> Array:
    """Energies that no plan from each of the starts is below."""
    rise, order = rates
    c = 1.0 + rise if order == 1.0 else 1.0
    mass, variance, alone = np.zeros(len(sensitivities)), 0.0, np.zeros(len(sensitivities))
    below = np.empty(sensitivities.shape)
    for k in range(sensitivities.shape[1] - 1, -1, -1):
        mass = (mass + sensitivities[:, k]) / c
        variance = (variance + 1.0) / (c * c)
        alone = alone + sensitivities[:, k] ** 2
        with np.errstate(over="ignore"):
            below[:, k] = np.maximum((walked[:, k] + mass) ** 2 / variance, alone)
    if order == 1.0:
        below[:, 1:][_is_needless_start(sensitivities, walked)] = np.inf
    return below


def _is_needless_start(sensitivities: Array, walked: Array) -> Array:
    """Which starts but the first have the same distance as the one before, and all it has to hide.

    With linear growth the earlier one is better.  Let E(z) be the least energy from a distance z
    at the later start.  The earlier costs at most (c D - z)^2 + E(z) for any z <= D; since
    E'(z) >= 2 z/(c^-2 + c^-4 + ..) = 2 (c^2 - 1) z, that is at most E(D) for z = D/c.
    """
    same = walked[:, 1:] == walked[:, :-1]
    return np.asarray(same & (sensitivities[:, :-1] == 0.0) & (walked[:, 1:] > 0.0))


def least_energies(
    sensitivities: Array, starts: Array, lengths: Array, rise: float, order: float
) -> Array:
    """The least sums of (s_k + a_k)^2 found, for several cases that end together.

    Case i begins `lengths[i]` steps before the end, at distance `starts[i]`; `sensitivities` has a
    row for each case and a column for each step.  At the optimum s_k + a_k falls by g' from step
    to step, so one number, the first, tells all; the last step pays whatever is left.  That
    number is searched; inf where the distance is beyond what shifts can cover.
    """
    result = np.full(starts.size, np.inf)
    near_enough = starts < _LARGEST_DISTANCE
    if near_enough.any():
        with np.errstate(over="ignore", invalid="ignore"):
            solve = _water_filling if order == 1.0 else _search_first_shift
            result[near_enough] = solve(
                sensitivities[near_enough], starts[near_enough], lengths[near_enough], rise, order
            )
    return result


def _water_filling(
    sensitivities: Array, starts: Array, lengths: Array, rise: float, order: float
) -> Array:
    """Energies for growth by c: s_k + a_k = max(s_k, x c^-i) in the i-th step, the least x."""
    assert order == 1.0
    steps = sensitivities.shape[1]
    ages = np.arange(steps) - (steps - lengths)[:, None] + 1.0
    weights = np.where(ages > 0.0, np.exp(-ages * math.log1p(rise)), 0.0)
    s = np.where(ages > 0.0, sensitivities, 0.0)
    first = math.exp(-math.log1p(rise))
    low = np.zeros(starts.size)
    # All of it in the first step would do.
    high = up((starts / first + s.max(axis=1)) / first, THOUSANDS_OF_ROUNDINGS)
    hidden = up(starts, THOUSANDS_OF_ROUNDINGS)
    for _ in range(_SEARCH_HALVINGS):
        x = (low + high) / 2.0
        shifts = np.maximum(x[:, None] * weights - s, 0.0)
        enough = np.sum(weights * shifts, axis=1) >= hidden
        low, high = np.where(enough, low, x), np.where(enough, x, high)
    energies = np.sum(np.square(np.maximum(high[:, None] * weights, s)), axis=1)
    return np.asarray(up(energies, THOUSANDS_OF_ROUNDINGS))


def _search_first_shift(
    sensitivities: Array, starts: Array, lengths: Array, rise: float, order: float
) -> Array:
    """The least energies found for any growth, by a search over what the first step pays."""
    largest = np.maximum(starts + rise * starts**order + sensitivities.max(axis=1), 1e-300)
    low, high = 1e-6 * largest, largest
    best = np.full(starts.size, np.inf)
    rows = np.arange(starts.size)
    for _ in range(_SEARCH_ROUNDS):
        firsts = np.geomspace(low, high, _SEARCH_CANDIDATES, axis=1)
        energies = _energies(sensitivities, starts, lengths, rise, order, firsts)
        near = np.argmin(energies, axis=1)
        best = np.minimum(best, energies[rows, near])
        low = firsts[rows, np.maximum(near - 1, 0)]
        high = firsts[rows, np.minimum(near + 1, _SEARCH_CANDIDATES - 1)]
    return best


def _energies(
    sensitivities: Array, starts: Array, lengths: Array, rise: float, order: float, firsts: Array
) -> Array:
    """The energies of plans whose first step pays `firsts`, one row for each case."""
    z = np.repeat(starts[:, None], firsts.shape[1], axis=1)
    multiplier, energies = firsts.copy(), np.zeros(firsts.shape)
    steps = sensitivities.shape[1]
    for k in range(steps):
        begun = (steps - k <= lengths)[:, None]
        sensitivity = sensitivities[:, k, None]
        grown = np.where(begun, z + rise * z**order, z)
        shift = grown if k == steps - 1 else np.clip(multiplier - sensitivity, 0.0, grown)
        energies += np.where(begun, (sensitivity + shift) ** 2, 0.0)
        # Rounded up, so that the shifts suffice.
        left = np.where(shift < grown, up(grown, FEW_ROUNDINGS) - shift, 0.0)
        z = np.where(begun, left, z)
        slope = 1.0 + rise * order * np.where(z > 0.0, z, np.inf) ** (order - 1.0)
        multiplier = np.where(begun, multiplier / slope, multiplier)
    return np.where(np.isnan(energies), np.inf, up(energies, THOUSANDS_OF_ROUNDINGS))


def least_energy_linear(sensitivity: float, start: float, c: float, count: int) -> float:
    r"""min over beta of sum s^2/beta_t + start^2 / sum (1 - beta_t) c^{-2 i}, i = 1..count.

    Convex.  Stationarity is beta_i = min(1, x c^i) with x = (s/start) sum (1 - beta) w, whose
    right side falls as x grows: one root.  The value is taken at that beta.
    """
    if start == 0.0:
        return count * sensitivity**2
    if not start < _LARGEST_DISTANCE:
        return math.inf
    if c == 1.0:
        return (sensitivity * math.sqrt(count) + start / math.sqrt(count)) ** 2
    log_w = -2.0 * math.log(c) * np.arange(1, count + 1)
    top = float(log_w.max())
    roots, scaled = np.exp((log_w - top) / 2.0), start * math.exp(-top / 2.0)
    if not 0.0 < scaled < _LARGEST_DISTANCE:  # the last steps are all that matters, or the first
        return math.inf
    weights = roots * roots

    def beta(x: float) -> Array:
        return np.asarray(np.minimum(1.0, x / np.maximum(roots, 1e-300)))

    def is_above(x: float) -> bool:
        return (sensitivity / scaled) * float(((1.0 - beta(x)) * weights).sum()) > x

    shares = beta(last_true(is_above, 0.0, 1.0))
    left = float(((1.0 - shares) * weights).sum())
    if not (left > 0.0 and float(shares.min()) > 0.0):
        return math.inf
    energy = float((sensitivity**2 / shares).sum() + scaled**2 / left)
    return up(energy, THOUSANDS_OF_ROUNDINGS)


def _nothing_known(run: TrainingRun) -> str | None:
    if run.loss.smoothness is not None or run.loss.holder is not None:
        return None
    return "smoothness=None, holder=None"


def _too_many(run: TrainingRun) -> str | None:
    length = run.batches.batches_per_epoch
    return None if length <= _MAX_BATCHES else f"{length} batches"


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
    conditions.at_most_steps(_MAX_STEPS, "see fixed-order/non-convex"),
)
_FEW_BATCHES = Hypothesis(
    f"at most {_MAX_BATCHES} batches an epoch", _too_many, "see fixed-order/non-convex"
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
        needs=(*HOELDER, _FEW_BATCHES),
        certainty=Certainty.UPPER,
        source=cite("Theorem A.1"),
        evaluate=cyclic,
        by_position=cyclic_by_position,
    ),
    Bound(
        id=f"{PAPER}/shuffled",
        gives="Renyi divergences, averaged over a secret order",
        covers=(ShuffledOnce, ShuffledEachEpoch),
        needs=(conditions.SECRET_ORDER, *HOELDER, _FEW_BATCHES),
        certainty=Certainty.UPPER,
        source=cite("Corollary A.3"),
        evaluate=shuffled,
    ),
    Bound(
        id=f"{PAPER}/sampled",
        gives="Renyi divergences of sampled batches, convex or not",
        covers=(SampledWithoutReplacement,),
        needs=(conditions.SECRET_ORDER, *HOELDER),
        certainty=Certainty.AS_PUBLISHED,
        source=cite("Theorem 3.12"),
        evaluate=sampled,
    ),
)

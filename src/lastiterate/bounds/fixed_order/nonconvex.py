"""The last iterate of runs whose batch order is fixed, and whose steps may expand."""

from collections.abc import Sequence

import numpy as np

from lastiterate._numerics.arrays import Array, IntArray
from lastiterate._numerics.products import distance_of_product_to_one
from lastiterate._numerics.rounding import down, ulps, up
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation, Hypothesis
from lastiterate.bounds.line_style import PURPLE, LineStyle
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.run.batch_rules.rules import Drawn, rules
from lastiterate.run.training_run import TrainingRun
from lastiterate.shifts.moduli import Branch, Moduli
from lastiterate.shifts.optimal_shifts import pattern_mus
from lastiterate.shifts.periodic import PeriodicRun, periodic_mu
from lastiterate.shifts.tangents import concave_shifts

_MOST_STEPS = 200_000  # written out one by one
_FIRST_WINDOW, _MOST_WORK = 2_048, 500_000  # positions times steps solved with all moduli
_ROUNDINGS = ulps(32)
_GAIN = 1e-9  # for which a longer window is not worth its time


def non_convex(run: TrainingRun) -> GaussianProfile:
    r"""mu-GDP of the last iterate, from the best shifts under concave moduli.

    **Bound.** The least :math:`\mu` found for moduli that need no convexity.  With step size
    :math:`\eta`, regulariser :math:`\lambda`, other smoothness :math:`M`, gradients of norm at
    most C, and r = |1 - eta lambda|, a step drives two points at distance z at most this far
    apart (whichever of it is known, and the least):

    =====================================  ==================================================
    smooth                                 :math:`r z + \eta M z`
    Hoelder gradient (H, order)            :math:`r z + \eta H z^{order}`
    bounded gradients                      :math:`r z + 2 \eta C`
    convex, not clipped                    :math:`\max(|1 - \eta m|, |1 - \eta M|)\, z`
    convex, norm-clipped, eta M <= 3 r     :math:`r z / \sqrt{1 - \eta M / (4 r)}`
    convex, norm-clipped, longer steps     :math:`(\eta M - r) z`
    =====================================  ==================================================

    plus :math:`\eta L/b` where the differing example takes part; or, in such a step, the
    other b - 1 examples as above and :math:`r z + 2\eta C` for this one, in proportion.

    **Holds when.** the batch order is fixed, only the last iterate (and the order) is
    published, and one of smoothness, Hoelder constants or a gradient bound is known.
    With `Ball` the distance is capped by the diameter.

    **Tight.** A local optimum of the shift problem; never above composition by more than
    rounding where the linear optimum is exact.

    **Source.** The moduli are those of Chien and Li 2024, Lemmas 3.4, 3.5, 3.8-3.10 and A.2;
    that of clipped convex steps follows from co-coercivity.  The bound is Bok, Su and
    Altschuler 2024, Theorem C.3, whose proof uses no other property of a step.

    **Computed as** tangents and isotonic regression; rounded up.
    """
    constant_noise = run.is_constant and np.max(run.noise_std) > 0.0
    if constant_noise and _work(run, quantities.places(run)) > _MOST_WORK:
        # Noise on release may be left unused, and then only the last position is to be solved.
        run = run.replace(release_noise_std=0.0)
    mus = _position_mus(run, _exposed(run))
    return quantities.gaussian(max(mus))


def non_convex_by_position(run: TrainingRun) -> Sequence[GaussianProfile]:
    """The guarantee of each position in the order of the batches."""
    return [quantities.gaussian(mu) for mu in _position_mus(run, range(quantities.places(run)))]


def _exposed(run: TrainingRun) -> Sequence[int]:
    """Positions among which the most exposed is."""
    count = quantities.places(run)
    if not run.is_constant or run.batches.period is None or run.release_noise_std > 0.0:
        return range(count)
    # Without release noise, what follows the last participation is post-processing, so
    # the position of the very last step is the most exposed.
    return [(run.steps - 1) % count]


def _work(run: TrainingRun, positions: int) -> int:
    return positions * min(run.steps, _MOST_STEPS)


def _position_mus(run: TrainingRun, chosen: Sequence[int]) -> list[float]:
    """For each of these positions the least mu of all ways that can be afforded."""
    ways = []
    if run.is_constant:
        ways.append([_closed_form_mu(run, position) for position in chosen])
    if _work(run, len(chosen)) <= _MOST_WORK:
        ways.append(_written_out_mus(run, chosen))
    elif not run.is_constant or run.batches.period is None:
        ways.append(_linear_mus(run, chosen))
    return [min(mus) for mus in zip(*ways, strict=True)]


def _written_out_mus(run: TrainingRun, chosen: Sequence[int]) -> list[float]:
    """From the last steps, as many as still help; inf where they cannot be written out."""
    too_long = run.steps > _MOST_STEPS
    if too_long and not (run.is_constant and np.isfinite(quantities.diameter(run))):
        return [np.inf] * len(chosen)
    if not np.isfinite(quantities.diameter(run)):
        return _window_mus(run, chosen, run.steps)
    window = min(run.steps, _FIRST_WINDOW)
    mus = _window_mus(run, chosen, window)
    while window < min(run.steps, _MOST_STEPS):
        window = min(4 * window, run.steps, _MOST_STEPS)
        before, mus = mus, list(map(min, mus, _window_mus(run, chosen, window)))
        if all(now >= down(then, _GAIN) for now, then in zip(mus, before, strict=True)):
            break
    return mus


def _window_mus(run: TrainingRun, chosen: Sequence[int], window: int) -> list[float]:
    """From the last `window` steps, which begin at the diameter unless they are all there are."""
    cap = quantities.diameter(run)
    wanted = set(chosen)
    seen = [pattern for i, pattern in enumerate(_late_patterns(run, window)) if i in wanted]
    noise = np.append(_late(quantities.noises(run), window), quantities.release_noise(run))
    start = cap if window < run.steps else 0.0
    return [
        concave_shifts(moduli(run, pattern, window), noise, start=start, diameter=cap).mu
        for pattern in seen
    ]


def _late(values: Array, window: int) -> Array:
    """The last `window` of values that are constant or written out."""
    return quantities.every_step(values if values.size == 1 else values[-window:], window)


def _late_patterns(run: TrainingRun, window: int) -> list[IntArray]:
    """Participations among the last `window` steps, counted from the first of these."""
    first, period = run.steps - window, run.batches.period
    if period is None or first == 0:
        return [pattern[pattern >= first] - first for pattern in quantities.patterns(run)]
    return [np.arange((i - first) % period, window, period) for i in range(quantities.places(run))]


def moduli(run: TrainingRun, pattern: IntArray, window: int) -> Moduli:
    """The last `window` steps, then the release, which keeps distances."""
    relative = _late(quantities.relative_step_sizes(run), window)
    taking_part = np.zeros(window, dtype=bool)
    taking_part[pattern] = True
    arrival = np.where(taking_part, _late(quantities.arrivals(run), window), 0.0)
    keep = _late(_kept(run), window)
    known = [(_late(rise, window), order) for rise, order in _known(run)]
    branches = [(keep, rise, arrival, order) for rise, order in known]
    bound = run.gradient_bound
    if bound is not None:
        size = run.batches.batch_size
        own = relative * bound * (2.0 if run.adjacency == "replace" else 1.0) / size
        others = np.where(taking_part, (size - 1) / size, 1.0)
        branches += [
            (keep, rise * others, np.where(taking_part, own, 0.0), order) for rise, order in known
        ]
        branches.append((keep, np.zeros(window), 2.0 * relative * bound, 1.0))
    return Moduli(tuple(_branch(*branch) for branch in branches))


def _branch(keep: Array, rise: Array, offset: Array, order: float) -> Branch:
    return Branch(
        slope=np.append(keep, 1.0),
        rise=np.append(up(rise, _ROUNDINGS), 0.0),
        offset=np.append(up(offset, _ROUNDINGS), 0.0),
        order=order,
    )


def _kept(run: TrainingRun) -> Array:
    """|1 - eta lambda| for each step size."""
    eta = quantities.step_sizes(run)
    return distance_of_product_to_one(eta, np.full(eta.size, run.loss.regulariser))


def _known(run: TrainingRun) -> list[tuple[Array, float]]:
    """(rise, order): what a step adds to |1 - eta lambda| z is at most rise z^order."""
    known = []
    linear = _linear_rise(run)
    if linear is not None:
        known.append((linear, 1.0))
    if run.loss.holder is not None:
        constant, order = run.loss.holder
        known.append(
            (quantities.relative_step_sizes(run) * constant * quantities.unit(run) ** order, order)
        )
    return known


def _linear_rise(run: TrainingRun) -> Array | None:
    """The least known Lipschitz constant of a step, less |1 - eta lambda|; None if unknown."""
    if run.loss.smoothness is None:
        return None
    eta, keep = quantities.step_sizes(run), _kept(run)
    rise = eta * up(run.loss.smoothness - run.loss.regulariser, _ROUNDINGS)
    if not run.loss.convex:
        return np.asarray(rise)
    if not run.clip_may_be_active:
        contraction = quantities.contractions(quantities.gaps(run))
        return np.asarray(np.minimum(rise, up(np.maximum(contraction - keep, 0.0), _ROUNDINGS)))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        reduced = rise / keep
        bent = 1.0 / np.sqrt(1.0 - np.minimum(reduced, 3.0) / 4.0)
        clipped = keep * (np.where(reduced <= 3.0, bent, reduced - 1.0) - 1.0)
    # 1/sqrt(1 - x) - 1 cancels for small x: widened absolutely.
    shrinks = (keep > 0.0) & (eta * run.loss.regulariser < 1.0)
    return np.where(shrinks, np.minimum(rise, up(clipped, _ROUNDINGS) + ulps(8)), rise)


def _linear_mus(run: TrainingRun, chosen: Sequence[int]) -> list[float]:
    """mu of all chosen positions of a schedule, by the linear modulus alone; inf without one."""
    rise = _linear_rise(run)
    if rise is None:
        return [np.inf] * len(chosen)
    patterns = list(quantities.patterns(run))
    noise = quantities.every_step(quantities.noises(run), run.steps)
    contraction = up(_kept(run) + rise, _ROUNDINGS)
    return pattern_mus(
        contraction=np.append(quantities.every_step(contraction, run.steps), 1.0),
        sensitivity=np.append(quantities.every_step(quantities.arrivals(run), run.steps), 0.0),
        noise=np.append(noise, quantities.release_noise(run)),
        patterns=[patterns[i] for i in chosen],
        diameter=quantities.diameter(run),
    )


def _closed_form_mu(run: TrainingRun, position: int) -> float:
    """For constant schedules and a known Lipschitz constant; no cap."""
    rise = _linear_rise(run)
    period = run.batches.period
    if rise is None or period is None:
        return np.inf
    tail = (run.steps - 1 - position) % period
    # 1 - |1 - eta lambda|, without cancelling where eta lambda is small.
    pull = float(quantities.step_sizes(run)[0]) * run.loss.regulariser
    shrinkage = down(pull, ulps(4)) if pull <= 0.5 else 1.0 - float(_kept(run)[0])
    gap = shrinkage - up(float(rise[0]), _ROUNDINGS) - (ulps(1) if pull > 0.5 else 0.0)
    periodic = PeriodicRun(
        gap=min(gap, 1.0),
        sensitivity=float(quantities.arrivals(run)[0]),
        noise=float(quantities.noises(run)[0]),
        period=period,
        participations=-(-(run.steps - tail) // period),
        tail=tail,
        release_noise=quantities.release_noise(run),
    )
    return periodic_mu(periodic)


def _nothing_known(run: TrainingRun) -> str | None:
    loss = run.loss
    known = loss.smoothness is not None or loss.holder is not None
    return None if known or run.gradient_bound is not None else "none of them"


def _contracts(run: TrainingRun) -> str | None:
    expands = any(hypothesis.check(run) for hypothesis in conditions.CONTRACTING)
    return None if expands else "steps that contract"


NON_CONVEX = Bound(
    id="fixed-order/non-convex",
    gives="a Gaussian guarantee for the last iterate without convexity, or with clipped gradients",
    covers=rules(Drawn.NEVER, Drawn.ONCE, Drawn.EACH_STEP, exact_size=True),
    needs=(
        conditions.ONLY_LAST_ITERATE,
        Hypothesis(
            "a smoothness, Hoelder constants, or a bound on the gradients",
            _nothing_known,
            "state Loss(smoothness=..), Loss(holder=..), Loss(lipschitz=..) or clip_norm",
        ),
        Hypothesis(
            "steps that may expand",
            _contracts,
            "nothing to do: fixed-order/convex covers this run, and is never worse",
        ),
    ),
    certainty=Certainty.UPPER,
    source=Citation(
        "Bok, Su and Altschuler",
        2024,
        "Shifted interpolation",
        "Theorem C.3",
        also=Citation(
            "Chien and Li",
            2024,
            "Convergent privacy loss of noisy-SGD without convexity and smoothness",
            "Lemmas 3.4, 3.5, 3.8-3.10, A.2",
        ),
    ),
    evaluate=non_convex,
    by_position=non_convex_by_position,
    charges=(
        "{counts} how little a step can drive two runs apart, and later noise hiding the rest"
    ),
    line_style=LineStyle(PURPLE),
    given_order=True,
)

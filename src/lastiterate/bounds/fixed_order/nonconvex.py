"""The last iterate of runs whose batch order is fixed, and whose steps may expand."""

from collections.abc import Sequence

import numpy as np

from lastiterate._numerics.rounding import IntArray, down, ulps, up
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation, Hypothesis
from lastiterate.bounds.fixed_order.last_epochs import windows
from lastiterate.bounds.fixed_order.step_moduli import ROUNDINGS, kept, late, linear_rise, moduli
from lastiterate.bounds.line_style import PURPLE, LineStyle
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.run.batch_rules.base import Resampling, rules
from lastiterate.run.training_run import TrainingRun
from lastiterate.shifts.optimal_shifts import concave_shifts, pattern_mus
from lastiterate.shifts.periodic import PeriodicRun, periodic_mu

_MOST_STEPS = 200_000  # written out one by one
_FIRST_WINDOW, _MOST_WORK = 2_048, 500_000  # positions times steps solved with all moduli
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

    **Holds when.** only the last iterate (and the order) is published, and one of smoothness,
    Hoelder constants or a gradient bound is known.  Batches drawn anew every step are charged as
    if the example were always in, those shuffled every epoch at the worst of all positions.
    With `Ball` the distance is capped by the diameter.

    **Tight.** A local optimum of the shift problem; never above composition by more than
    rounding where the linear optimum is exact.

    **Source.** The moduli are those of Chien and Li 2024, Lemmas 3.4, 3.5, 3.8-3.10 and A.2;
    that of clipped convex steps follows from co-coercivity.  The bound is Bok, Su and
    Altschuler 2024, Theorem C.3, whose proof uses no other property of a step.

    **Computed as** tangents and isotonic regression; rounded up.
    """
    if run.batches.resampling is Resampling.EACH_EPOCH:
        return GaussianProfile(_worst_order_mu(run))
    constant_noise = run.is_constant and np.max(run.noise_std) > 0.0
    if constant_noise and _work(run, quantities.position_count(run)) > _MOST_WORK:
        # Noise on release may be left unused, and then only the last position is to be solved.
        run = run.replace(release_noise_std=0.0)
    mus = _position_mus(run, _exposed(run))
    return quantities.gaussian(max(mus))


def non_convex_by_position(run: TrainingRun) -> Sequence[GaussianProfile]:
    """The guarantee of each position in the order of the batches."""
    if run.batches.resampling is Resampling.EACH_EPOCH:
        return [non_convex(run)]
    return [
        quantities.gaussian(mu) for mu in _position_mus(run, range(quantities.position_count(run)))
    ]


def _worst_order_mu(run: TrainingRun) -> float:
    """The largest mu of any positions, where every epoch has an order of its own."""
    return min(float(window.mus.max()) for window in windows(run))


def _exposed(run: TrainingRun) -> Sequence[int]:
    """Positions among which the most exposed is."""
    count = quantities.position_count(run)
    if not run.is_constant or run.batches.period is None or run.release_noise_std > 0.0:
        return range(count)
    # Without release noise, what follows the last participation is post-processing, so
    # the position of the very last step is the most exposed.
    return [(run.steps - 1) % count]


def _work(run: TrainingRun, positions: int) -> int:
    return positions * min(run.steps, _MOST_STEPS)


def _position_mus(run: TrainingRun, chosen: Sequence[int]) -> list[float]:
    """The least mu of each of these positions, by all methods that are quick enough."""
    ways = []
    if run.is_constant:
        ways.append([_closed_form_mu(run, position) for position in chosen])
    if _work(run, len(chosen)) <= _MOST_WORK:
        ways.append(_written_out_mus(run, chosen))
    elif not run.is_constant or run.batches.period is None:
        ways.append(_linear_mus(run, chosen))
    return [min(mus) for mus in zip(*ways, strict=True)]


def _written_out_mus(run: TrainingRun, chosen: Sequence[int]) -> list[float]:
    """The mus from the last steps, as many as still help; inf if there are too many."""
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
    """The mus from the last `window` steps, which start at the diameter unless they are all."""
    cap = quantities.diameter(run)
    wanted = set(chosen)
    seen = [pattern for i, pattern in enumerate(_late_patterns(run, window)) if i in wanted]
    noise = np.append(late(quantities.noises(run), window), quantities.release_noise(run))
    start = cap if window < run.steps else 0.0
    return [
        concave_shifts(moduli(run, pattern, window), noise, start=start, diameter=cap).mu
        for pattern in seen
    ]


def _late_patterns(run: TrainingRun, window: int) -> list[IntArray]:
    """Participations among the last `window` steps, counted from the first of these."""
    first, period = run.steps - window, run.batches.period
    if period is None or first == 0:
        return [pattern[pattern >= first] - first for pattern in quantities.patterns(run)]
    return [
        np.arange((i - first) % period, window, period)
        for i in range(quantities.position_count(run))
    ]


def _linear_mus(run: TrainingRun, chosen: Sequence[int]) -> list[float]:
    """mu of all chosen positions of a schedule, by the linear modulus alone; inf without one."""
    rise = linear_rise(run)
    if rise is None:
        return [np.inf] * len(chosen)
    patterns = list(quantities.patterns(run))
    noise = quantities.every_step(quantities.noises(run), run.steps)
    contraction = up(kept(run) + rise, ROUNDINGS)
    return pattern_mus(
        contraction=np.append(quantities.every_step(contraction, run.steps), 1.0),
        sensitivity=np.append(quantities.every_step(quantities.sensitivities(run), run.steps), 0.0),
        noise=np.append(noise, quantities.release_noise(run)),
        patterns=[patterns[i] for i in chosen],
        diameter=quantities.diameter(run),
    )


def _closed_form_mu(run: TrainingRun, position: int) -> float:
    """The mu of a constant schedule with a known Lipschitz constant, without a cap."""
    rise = linear_rise(run)
    period = run.batches.period
    if rise is None or period is None:
        return np.inf
    tail = (run.steps - 1 - position) % period
    # 1 - |1 - eta lambda|, without cancelling where eta lambda is small.
    pull = float(quantities.step_sizes(run)[0]) * run.loss.regulariser
    shrinkage = down(pull, ulps(4)) if pull <= 0.5 else 1.0 - float(kept(run)[0])
    gap = shrinkage - up(float(rise[0]), ROUNDINGS) - (ulps(1) if pull > 0.5 else 0.0)
    periodic = PeriodicRun(
        gap=min(gap, 1.0),
        sensitivity=float(quantities.sensitivities(run)[0]),
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
    covers=rules(*Resampling, exact_size=True),
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
            f"{conditions.NOTHING_TO_DO}: fixed-order/convex covers this run, and is never worse",
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

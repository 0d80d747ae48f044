r"""The sensitivity that a run must state once errors of the computed residuals are charged.

**Bound.** If every computed residual is within e of the exact one, two runs on the same batch may
be driven apart by up to :math:`q = 2\eta e R` in *every* step, not only in those in which the
differing example takes part.  Stating :math:`L(1 + \kappa)` for L covers that, where

.. math:: \kappa = \frac{2eRb}{L}\Big(g + c^{-(g-1)}\sqrt{(g-1)(g + h)}\Big),

g is the most steps from one participation to the next, c the least contraction, and
:math:`h = (\rho/\eta\sigma)^2` the release noise in units of a step's.

**Holds when.** losses are convex, smooth and steps at most 2/smoothness, and the domain is
unbounded, unless every step sees the example: where the diameter caps the distance, a larger L may
cost nothing, so that no L covers the errors.  Before the first participation the runs are equal.
Errors up to the last one are moved to the next participation, which only raises mu.  The at most
g - 1 errors after it are shifted away one by one, at a cost of :math:`\sqrt{g-1}\,q/\eta\sigma`; mu
without them is at least that of the last participation alone,
:math:`c^{g-1}s/(\eta\sigma\sqrt{g + h})`.  Shifts superpose, and mu is proportional to L.

**Reserved noise.**  The amplified tail (`random-order/sampled/amplified-tail`) and windows of late
positions (`random-order/shuffled/joint-transport`, `random-order/balls-and-bins/windowed-mixture`)
leave a share w of the variance of the last steps' noise for other shifts.  Shifting errors away
there costs up to :math:`w^{-1/2}` times as much, so the root is divided by :math:`\sqrt w`, for the
least w that a bound may use; mu without them is only larger for less noise.  If no participation
came before these steps, the two runs are at the same point and make the same errors.  Within the
tail they are compared from the same point, where only the differing example's residuals differ, by
at most 2e, which g covers.

**Extra steps** that an example is no longer part of (`unlearn.extra_steps`) make errors, too.
Let K follow.  After the last participation come at most g - 1 + K errors, each shifted away as it
happens, and mu without them is at least :math:`c^{g+K-1}s/(\eta\sigma\sqrt{g + K + h'})`, h' for
the noise of all releases: as above, with g + K for g.  **Transport between positions** adds nothing
to that.  Its bounds use mus of fixed participations: of an example at one position, or of two
examples exchanged between positions e and t.  The latter have participations at both positions,
none smaller than s, so that the steps from one to the next, and to the end, are no more; extra
steps are drawn anew, and treat the two alike.  So every mu is covered by itself, and a bound that
grows with each is covered.  In joint transport the last participation of a late position is shifted
away in a window, in proportion to L.  All else, errors included, has the share w of the window's
noise and all of the extra steps'.  These shifts are a plan of their own, which still has e's
participations, of cost at most :math:`n_e` for L (1 + kappa); the theorem needs no more.

**Tight.** No need: for e = 1e-11 it is 3.5e-7 in the default run on 2,000 examples, and 1.1e-5 on
60,000 of ten classes, whatever the epsilon and the passes.
"""

import numpy as np

from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, at_least, down
from lastiterate.bounds.quantities import gaps
from lastiterate.errors import InvalidParameter
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.domain import Ball
from lastiterate.run.training_run import TrainingRun
from lastiterate.train.objectives import Objective

_MOST = 1e-3
_SOLVED = 2e-12  # below it there is only rounding, which is not charged here
LEAST_REST = 0.05  # of the variance, where noise is reserved


def charged_sensitivity(
    run: TrainingRun,
    objective: Objective,
    *,
    radius: float,
    extra_steps: int = 0,
    released: float | None = None,
) -> float:
    """The least `sensitivity` that `run` may state for this objective.

    Also if so many steps follow of which the example is no longer part.  `released` is then the
    noise of all releases together, by default that of two like the run's.
    """
    exact = objective.sensitivity(radius=radius, adjacency=run.adjacency)
    if objective.residual_error < _SOLVED:
        return exact
    if isinstance(run.domain, Ball) and run.batches.longest_wait(run.steps) > 1:
        must_be = "'margin' for batches on a bounded domain: no sensitivity covers its error there"
        raise InvalidParameter("clip", "envelope", must_be=must_be)
    if gaps(run).min() < 0.0:
        must_be = "'margin' for steps above 2/smoothness: they may magnify its error"
        raise InvalidParameter("clip", "envelope", must_be=must_be)
    error = 2.0 * objective.residual_error * radius * run.batches.largest_size / exact
    with np.errstate(over="ignore"):
        share = float(error * _steps_charged(run, extra_steps, released))
    if not share <= _MOST:
        raise InvalidParameter(
            "clip",
            "envelope",
            must_be="'margin' for this run (or l2 smaller): the error of the envelope would cost "
            f"{share:.2g} of the sensitivity",
        )
    return at_least(exact * (1.0 + share), ulps=16)


def _steps_charged(run: TrainingRun, extra_steps: int, released: float | None) -> float:
    steps, noises = np.atleast_1d(run.step_size), np.atleast_1d(run.noise_std)
    wait = run.batches.longest_wait(run.steps) + extra_steps
    releases = 1.0 if extra_steps == 0 else 2.0
    if released is not None and run.release_noise_std > 0.0:
        releases = max(releases, (released / run.release_noise_std) ** 2)
    # In a schedule, the least favourable of its steps for each part.
    uneven = float(steps.max() / steps.min())
    ahead = wait * uneven
    contraction = max(down(1.0 - float(gaps(run).max()), THOUSANDS_OF_ROUNDINGS), 1e-300)
    if noises.min() > 0.0:
        uneven *= float(noises.max() / noises.min())
        worth = releases * (run.release_noise_std / float(steps.min() * noises.min())) ** 2
        after = np.sqrt((wait - 1) * (wait + worth))
        if run.batches.resampling is not Resampling.NEVER:
            after /= np.sqrt(LEAST_REST)
    else:
        # All is paid for on release.
        worth = (float(steps.max() * noises.max()) / run.release_noise_std) ** 2
        after = (wait - 1) * np.sqrt(releases + wait * worth)
    return float(ahead + after * uneven * np.power(contraction, 1.0 - wait))

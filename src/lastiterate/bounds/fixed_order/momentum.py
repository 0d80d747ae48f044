"""The last iterate of runs with momentum, or the average of iterates, in a fixed batch order."""

from __future__ import annotations

from collections.abc import Sequence

from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation, Hypothesis
from lastiterate.bounds.composition.fixed_order_composition import worst_order_composition
from lastiterate.bounds.fixed_order.momentum_positions import position_mus, worst_mu
from lastiterate.bounds.line_style import BLUE, DASHES, LineStyle
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.run.batch_rules.base import Resampling, rules
from lastiterate.run.training_run import TrainingRun, Unbounded


def momentum(run: TrainingRun) -> GaussianProfile:
    r"""mu-GDP of what a run with momentum, or with an average of its iterates, releases.

    **Bound.** The least :math:`\mu^2 = \sum_k s_k^2/\kappa_k` that a convex programme finds, with a
    2 x 2 matrix for each step (`shifts.momentum.certificate` has the theorem), at the most exposed
    position.  Never above composition.  It stays bounded as steps are added if the loss is
    strongly convex and steps are short enough for the momentum (docs/momentum.md).

    **Holds when.** every loss is smooth, the domain unbounded, every step has noise, batches have
    a fixed size, and nothing but what is released leaves: neither the buffer nor other iterates.
    Convexity is not needed, but without it, or with gradients that a clip changes, a step may
    expand distances.

    **Tight.** 1.06 to 1.27 times what quadratic losses leak for positions in the middle of an
    epoch.  Late ones are charged alone: noise from before a participation is not used.

    **Source.** This library (docs/momentum.md).

    **Computed as** Newton steps on a barrier; the certificate is checked in interval arithmetic
    and mu is rounded up.
    """
    composed = worst_order_composition(run)
    found = quantities.gaussian(worst_mu(run))
    return min(found, composed, key=lambda profile: profile.mu)


def momentum_by_position(run: TrainingRun) -> Sequence[GaussianProfile]:
    """The guarantee of each position in the order of the batches."""
    composed = worst_order_composition(run).mu
    return [GaussianProfile(min(quantities.widened(mu), composed)) for mu in position_mus(run)]


def _both(run: TrainingRun) -> str | None:
    both = run.momentum != 0.0 and run.average is not None
    return f"momentum={run.momentum!r} and average={run.average!r}" if both else None


def _neither(run: TrainingRun) -> str | None:
    return "plain steps" if run.has_plain_steps else None


NOT_BOTH = Hypothesis(
    "momentum or an average of iterates, not both at once",
    _both,
    "publish the last iterate, or train without momentum",
)
NOT_PLAIN = Hypothesis(
    "momentum or an average of iterates",
    _neither,
    f"{conditions.NOTHING_TO_DO}: see fixed-order/convex for plain steps",
)
UNBOUNDED = Hypothesis(
    "an unbounded domain",
    lambda run: None if isinstance(run.domain, Unbounded) else f"{run.domain!r}",
    "do not project: a projection may turn what the buffer has hidden",
)
NEEDS = (
    conditions.ONLY_LAST_ITERATE,
    conditions.SMOOTH,
    UNBOUNDED,
    conditions.NOISY,
    NOT_BOTH,
)

MOMENTUM = Bound(
    id="fixed-order/momentum",
    gives="a Gaussian guarantee for the last iterate of SGD with momentum, or for an average of "
    "iterates, which converges where losses curve and steps are short",
    covers=rules(*Resampling, exact_size=True),
    needs=(NOT_PLAIN, *NEEDS),
    certainty=Certainty.UPPER,
    beyond_plain_steps=True,
    source=Citation("lastiterate", 2026, "Certificates for momentum", "docs, momentum"),
    evaluate=momentum,
    by_position=momentum_by_position,
    charges="{counts} {fading}",
    line_style=LineStyle(BLUE, DASHES[2]),
    quick=False,
)

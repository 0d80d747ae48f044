"""Feldman, Mironov, Talwar and Thakurta 2018: privacy amplification by iteration.

Their steps add noise of eta sigma to x and their losses are L_F-Lipschitz: our L = 2 L_F.
"""

from collections.abc import Sequence

from lastiterate._numerics.rounding import FEW_ROUNDINGS, up
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation, Hypothesis
from lastiterate.profile.renyi import ZCDPProfile
from lastiterate.run.batch_rules.ordered import Cyclic
from lastiterate.run.training_run import TrainingRun

PAPER = "published/feldman-mironov-talwar-thakurta"


def one_pass(run: TrainingRun) -> ZCDPProfile:
    r"""One pass over the batches; the last position, which later steps do not hide.

    **Bound.** :math:`R_\alpha \le \frac{\alpha r^2}{2 (T - t + 1)}` for an example in step t of T,
    r = L/(b sigma): shifts of r/(T - t + 1) in each of the steps from t on.

    **Holds when.** every loss is convex and smooth, no step exceeds 2/smoothness, and the run is at
    most one pass over the batches.  (Our shifts imply it.)

    **Tight.** Equal to our shifts where steps do not contract; above them where they do.

    **Source.** Theorem 22, the divergence of contractive noisy iterations, with equal shifts.

    **Computed as** printed; rounded up.
    """
    return one_pass_by_position(run)[-1]


def one_pass_by_position(run: TrainingRun) -> Sequence[ZCDPProfile]:
    """The guarantee of each position in the order of the batches."""
    ratio = quantities.sensitivity_over_noise(run)
    return [
        ZCDPProfile(up(ratio * ratio / (2.0 * (run.steps - t)), FEW_ROUNDINGS))
        for t in range(run.steps)
    ]


def _several_passes(run: TrainingRun) -> str | None:
    length = run.batches.batches_per_epoch
    return None if run.steps <= length else f"{run.steps} steps of {length} a pass"


BOUNDS = (
    Bound(
        id=f"{PAPER}/one-pass",
        gives="Renyi divergences of one pass, by position",
        covers=(Cyclic,),
        needs=(
            *conditions.GRADIENT_STEPS,
            Hypothesis("at most one pass", _several_passes, "see fixed-order/convex"),
        ),
        certainty=Certainty.UPPER,
        source=Citation(
            "Feldman, Mironov, Talwar and Thakurta",
            2018,
            "Privacy amplification by iteration",
            "Theorem 22",
        ),
        evaluate=one_pass,
        by_position=one_pass_by_position,
    ),
)

"""The runs that the papers' tables and figures are about."""

from lastiterate.run.batch_rules.rules import BatchRule, Cyclic, FullBatch
from lastiterate.run.conventions import chien_li, chourasia_ye_shokri, ye_shokri
from lastiterate.run.domain import Ball, Domain, Unbounded
from lastiterate.run.loss import Loss
from lastiterate.run.training_run import TrainingRun


def mnist(epochs: int, regulariser: float, batches: BatchRule | None = None) -> TrainingRun:
    """The run of Bok, Su and Altschuler's logistic regression, as if its steps contracted."""
    return TrainingRun(
        loss=Loss(smoothness=32.5 + regulariser, strong_convexity=regulariser),
        sensitivity=10.0,
        batches=batches or Cyclic(60_000, 1_500),
        steps=40 * epochs,
        step_size=0.05,
        noise_std=0.01,
    )


def contracting(
    *,
    contraction: float,
    steps: int,
    ratio: float,
    batches: int = 1,
    noise_std: float = 1.0,
    step_size: float = 1.0,
    domain: Domain | None = None,
) -> TrainingRun:
    """Quadratics whose steps contract by c, with L/(b sigma) = ratio."""
    curvature = (1.0 - contraction) / step_size
    return TrainingRun(
        loss=Loss(smoothness=curvature, strong_convexity=curvature),
        sensitivity=ratio * noise_std,
        batches=FullBatch(1) if batches == 1 else Cyclic(batches, 1),
        steps=steps,
        step_size=step_size,
        noise_std=noise_std,
        domain=domain or Unbounded(),
    )


def ye_shokri_example(epochs: int, rule: type[Cyclic]) -> TrainingRun:
    """The run of Figures 1 and 2 of Ye and Shokri; `rule` is the kind of batches."""
    return TrainingRun(
        loss=Loss(smoothness=4.0, strong_convexity=1.0),
        **ye_shokri(sigma=2.0, S_g=4.0, step_size=0.02),
        batches=rule(50, 2),
        steps=25 * epochs,
        step_size=0.02,
    )


def chourasia_example(steps: int) -> TrainingRun:
    """The run of Figure 2 of Chourasia, Ye and Shokri."""
    return TrainingRun(
        loss=Loss(smoothness=1.0, strong_convexity=1.0),
        **chourasia_ye_shokri(sigma=0.02, S_g=4.0, step_size=0.02),
        batches=FullBatch(5000),
        steps=steps,
        step_size=0.02,
    )


def chien_li_example(steps: int, loss: Loss) -> TrainingRun:
    """The run of Figures 1 and 2(a) of Chien and Li."""
    return TrainingRun(
        loss=loss,
        **chien_li(sigma=1.0, K=2.0, step_size=0.1),
        batches=FullBatch(5),
        steps=steps,
        step_size=0.1,
        domain=Ball(1.0),
    )

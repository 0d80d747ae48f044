"""A bound of several stages is the least of those that apply, whichever it evaluates first."""

import pytest

import lastiterate as li
from lastiterate.bounds.bound import StagedBound
from lastiterate.bounds.catalogue import CATALOGUE

SHORT_STEPS = li.TrainingRun(
    loss=li.Loss(smoothness=0.25, regulariser=0.01, lipschitz=1.0, outputs=1), sensitivity=2.0,
    batches=li.ShuffledOnce(50_000, 250), steps=4_000, step_size=1.0, noise_std=0.02,
)  # fmt: skip
LITTLE_GAIN = li.TrainingRun(
    loss=li.Loss(
        smoothness=0.723, strong_convexity=4.2e-6, regulariser=4.2e-6, lipschitz=3395.0, outputs=1
    ),
    sensitivity=6790.0, batches=li.BallsAndBins(645_616, 4_258), steps=20_838, step_size=1.0,
    noise_std=1.0,
)  # fmt: skip
FEW_CHANCES = SHORT_STEPS.replace(steps=400, batches=li.PoissonSampled(1_000, 10), noise_std=0.2)


@pytest.mark.parametrize(
    "run",
    [
        SHORT_STEPS,
        SHORT_STEPS.replace(batches=li.ShuffledEachEpoch(50_000, 250)),
        SHORT_STEPS.replace(batches=li.BallsAndBinsEachEpoch(50_000, 250)),
        LITTLE_GAIN,
        FEW_CHANCES,
        FEW_CHANCES.replace(batches=li.SampledWithoutReplacement(1_000, 10)),
    ],
    ids=["shuffled once", "each epoch", "bins each epoch", "bins", "poisson", "sampled"],
)
def test_no_stage_has_less(run):
    staged = [
        bound
        for bound in CATALOGUE.values()
        if isinstance(bound, StagedBound) and not bound.unmet(run)
    ]
    (whole,) = staged
    least = whole.profile(run).epsilon(1e-5)
    for stage in whole.stages:
        if not stage.unmet(run):
            assert stage.profile(run).epsilon(1e-5) >= least, stage.id

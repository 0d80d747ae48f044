"""The statistics that are published beside a model by default, from public quantities only."""

import math

from lastiterate._numerics.search import least_true
from lastiterate.accounting import account
from lastiterate.other_releases import INTERVALS, OUTLIERS, RATES, UNDECLARED, Release
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.run.training_run import TrainingRun
from lastiterate.train.centring_share import mean_release
from lastiterate.train.settings import RunSettings

_INTERVALS = 0.5  # of mu


def default_releases(
    settings: RunSettings, run: TrainingRun, features: int = 0
) -> tuple[Release, ...]:
    """The default other releases beside the last iterate of the run: a mean of rows, and counts.

    The mean is published only where its noise is expected to be much shorter than the longest row.
    """
    # Around a mean that noise has moved, intervals would be for that noise's coefficients.
    centring = settings.center and features > 0 and not settings.intervals
    if not (centring or settings.counting or settings.rate_matching or settings.intervals):
        return ()
    epsilon = settings.epsilon
    if epsilon is None:
        epsilon = account(run).epsilon(settings.delta)
    mu = gaussian_parameter(epsilon, settings.delta) / settings.examples_per_person
    found = []
    if centring:
        mean = mean_release(
            mu, adjacency=settings.adjacency, features=features, examples=run.batches.examples
        )
        found += [] if mean is None else [mean]
    if settings.counting > 0.0:
        kinds = (OUTLIERS, UNDECLARED) if settings.text_columns else (OUTLIERS,)
        each = settings.counting * mu / math.sqrt(len(kinds))
        found += [Release.of_mu(kind, each, adjacency=settings.adjacency) for kind in kinds]
    if settings.rate_matching > 0.0:
        share = settings.rate_matching * mu
        found.append(Release.of_mu(RATES, share, adjacency=settings.adjacency))
    if settings.intervals:
        found.append(Release.of_mu(INTERVALS, _INTERVALS * mu, adjacency=settings.adjacency))
    return tuple(found)


def gaussian_parameter(epsilon: float, delta: float) -> float:
    """The largest mu that is (epsilon, delta)-DP, to within a part in a million or so."""

    def too_large(log_mu: float) -> bool:
        return GaussianProfile(math.exp(log_mu)).delta(epsilon) > delta

    return math.exp(least_true(too_large, math.log(1e-9), math.log(1e6)))

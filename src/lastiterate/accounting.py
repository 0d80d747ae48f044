"""Accounting: the certified privacy of what a run releases."""

from collections.abc import Sequence
from functools import partial

from lastiterate.bounds.bound import Bound, Certainty
from lastiterate.bounds.catalogue import PUBLISHED, Chosen, select
from lastiterate.errors import InvalidType, NoBoundApplies
from lastiterate.other_releases import Release
from lastiterate.privacy_report import PrivacyReport as PrivacyReport
from lastiterate.profile.best import LazyProfiles
from lastiterate.profile.compose import compose_with_gaussian
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.report_bounds import person_mu
from lastiterate.report_forms import USUAL_DELTA as USUAL_DELTA
from lastiterate.run.training_run import TrainingRun


def account(
    run: TrainingRun,
    *,
    bounds: Chosen | None = None,
    including: Chosen | None = None,
    other_releases: Sequence[Release] = (),
) -> PrivacyReport:
    """The tightest certified privacy of what `run` releases.

    Parameters
    ----------
    run : TrainingRun
        The description of the training.
    bounds : str, Bound of the catalogue, or list of them, optional
        Ids, families such as "fixed-order", or bounds of `CATALOGUE`, to use instead of all
        certified bounds.
    including : str, Bound of the catalogue, or list of them, optional
        The same, to be evaluated in addition, such as "published".
    other_releases : sequence of Release, optional
        Statistics of the same examples that are also published, with Gaussian noise.

    Returns
    -------
    PrivacyReport
        The guarantee of every bound that applies, and why the others do not.

    Raises
    ------
    NoBoundApplies
        If no bound applies; the error lists the reasons for each.
    InvalidParameter, InvalidType
        If `run` is not a TrainingRun, or `bounds` or `including` names no bound.

    Examples
    --------
    >>> import lastiterate as li
    >>> run = li.TrainingRun(
    ...     loss=li.Loss(smoothness=32.502, strong_convexity=0.002), sensitivity=10.0,
    ...     batches=li.Cyclic(examples=60_000, batch_size=1_500), steps=2_000,
    ...     step_size=0.05, noise_std=0.01)
    >>> report = li.account(run)
    >>> round(report.epsilon(delta=1e-5), 4), report.bound
    (4.3392, 'fixed-order/convex')
    """
    if not isinstance(run, TrainingRun):
        raise InvalidType("run", run, must_be="a TrainingRun")
    chosen = select(bounds) if bounds is not None else _proved_bounds()
    if including is not None:
        chosen += [bound for bound in select(including, name="including") if bound not in chosen]
    unmet = {bound.id: bound.unmet(run) for bound in chosen}
    other_mu = person_mu(other_releases, run)
    applying = [bound for bound in chosen if not unmet[bound.id]]
    refused = {id_: reasons for id_, reasons in unmet.items() if reasons}
    for bound in applying:
        refused |= bound.unmet_stages(run)
    if not applying:
        raise NoBoundApplies(run, refused)
    by_id = {bound.id: bound for bound in applying}
    guarantees = LazyProfiles(by_id, partial(_guarantee, run, other_mu))
    return PrivacyReport(run, guarantees, refused, tuple(other_releases))


def _guarantee(run: TrainingRun, other_mu: float, bound: Bound) -> PrivacyProfile:
    return compose_with_gaussian(bound.guarantee(run), other_mu)


def _proved_bounds() -> list[Bound]:
    """The proved bounds of the library, which are used by default.

    Published bounds are never below the library's own, and some are not proved.
    """
    return [
        bound
        for bound in select(None)
        if bound.certainty is Certainty.UPPER and not bound.id.startswith(f"{PUBLISHED}/")
    ]

"""Discretised privacy losses, on `dp_accounting`'s privacy loss distributions.

The functions from `require` on are the only ones that use parts of `dp_accounting` which are not
public.  It takes longer to load than most runs to account for, so it is loaded where it is used.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy

from lastiterate import _check
from lastiterate._numerics.rounding import TINY, Array, roundings, suffix_sums, ulps, up
from lastiterate.errors import InvalidParameter, InvalidType, MissingExtra
from lastiterate.profile.losses import FiniteLosses
from lastiterate.profile.profile import PrivacyProfile, check_order

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent
    from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

_TAIL_DELTA = 1e-15
_MAX_CELLS = 2_000_000
_LEAST_CELLS = 16


class Losses(NamedTuple):
    """The losses of one direction: masses[i] at cell (first + i), and the infinite mass."""

    cell: float
    first: int
    masses: Array
    infinite: float


class LossDistributionProfile(PrivacyProfile):
    """A pessimistic `dp_accounting` privacy loss distribution.

    Distributions are composed by Fourier transforms, whose rounding is about log2(size) ulps
    in root mean square over the `size` cells, hence at most sqrt(size) times that in any sum
    of them; `slack`, by default four times this, is added to every delta.  Answers for a
    delta below it are inf.  (For thousands of compositions see `self_composed`.)
    """

    def __init__(self, pld: PrivacyLossDistribution, *, slack: float | None = None) -> None:
        if not is_distribution(pld):
            raise InvalidType("pld", pld, must_be="a dp_accounting PrivacyLossDistribution")
        if not is_pessimistic(pld):
            must_be = "built with pessimistic_estimate=True: an optimistic one is no upper bound"
            raise InvalidParameter("pld", pld, must_be=must_be)
        size = size_of(pld)
        default = ulps(4) * math.log2(size + 1) * math.sqrt(size)
        self._distribution = pld
        self._losses = [_Losses(losses) for losses in losses_of(pld)]
        self.slack = default if slack is None else _check.number("slack", slack, at_least=0.0)

    def __repr__(self) -> str:
        return f"LossDistributionProfile(cells of {self.discretization:g}, slack {self.slack:.1e})"

    @property
    def pld(self) -> PrivacyLossDistribution:
        """The distribution itself."""
        return self._distribution

    @property
    def discretization(self) -> float:
        """The size of its cells."""
        return cell_of(self._distribution)

    def deltas(self, epsilons: Array) -> Array:
        largest = np.max([losses.deltas(epsilons) for losses in self._losses], axis=0)
        return np.asarray(np.clip(largest + self.slack, TINY, 1.0))

    def renyi(self, order: float) -> float:
        """The Renyi divergence of the masses; inf if some mass has infinite loss."""
        alpha = check_order(order)
        return max(losses.renyi(alpha) for losses in self._losses)

    def gdp(self) -> float:
        """inf: a discretised curve does not fall off as a Gaussian's does."""
        return math.inf

    def to_pld(self, *, discretization: float | None = None) -> Any:
        """The distribution itself, if its cells are of the size asked for."""
        own = self.discretization
        if discretization is not None and discretization != own:
            raise InvalidParameter("discretization", discretization, must_be=f"{own!r}, its own")
        return self._distribution


class _Losses:
    """The losses of one direction."""

    def __init__(self, losses: Losses) -> None:
        at = losses.cell * (losses.first + np.arange(losses.masses.size))
        self._at = np.asarray(at, dtype=np.float64)
        self._mass, self._infinite = losses.masses, losses.infinite
        self._finite = FiniteLosses(self._at, self._mass)

    def deltas(self, epsilons: Array) -> Array:
        """P(loss > epsilon) - e^epsilon Q(loss > epsilon), rounded up."""
        return np.asarray(self._finite.deltas(epsilons) + self._infinite)

    def renyi(self, alpha: float) -> float:
        if self._infinite > 0.0 or alpha == math.inf:
            return math.inf
        if alpha == 1.0:
            off = ulps(4) * self._mass.size * float(self._mass @ np.abs(self._at))
            return max(float(self._mass @ self._at), 0.0) + off
        exponents = (alpha - 1.0) * self._at
        top = float(exponents.max())
        total = float(self._mass @ np.exp(exponents - top))
        off = ulps(4) * (self._mass.size + abs(top)) / (alpha - 1.0)
        return max((top + math.log(total)) / (alpha - 1.0), 0.0) + off


def from_pld(pld: PrivacyLossDistribution) -> LossDistributionProfile:
    """The profile of a `dp_accounting` privacy loss distribution.

    Compose it only with guarantees for the same adjacency.  It answers for a delta above its
    rounding (about 1e-11); Gaussian and Renyi guarantees do not follow from it where some
    mass sits at infinite loss.

    Parameters
    ----------
    pld : dp_accounting.pld.PrivacyLossDistribution
        Losses, rounded up, in both directions.

    Returns
    -------
    PrivacyProfile
        The guarantee that the losses imply.

    Examples
    --------
    >>> from dp_accounting.pld import privacy_loss_distribution
    >>> from lastiterate import from_pld
    >>> pld = privacy_loss_distribution.from_gaussian_mechanism(1.0)
    >>> round(from_pld(pld).epsilon(1e-5), 3)
    4.377
    """
    return LossDistributionProfile(pld)


def self_composed(pld: PrivacyLossDistribution, times: int) -> LossDistributionProfile:
    """The profile of `times` independent results, each with these losses.

    Powers of a Fourier transform multiply its rounding, and any mass that one result's losses
    lack, by the number of times: the latter is made up for first, the former is in the slack.
    """
    total = made_whole(pld)
    if times == 1:
        return LossDistributionProfile(total)
    composed = total.self_compose(times)
    size = size_of(composed)
    slack = times * ulps(8 * math.log2(size + 1) + 64)
    return LossDistributionProfile(composed, slack=LossDistributionProfile(composed).slack + slack)


def composed_groups(
    groups: Sequence[tuple[PrivacyLossDistribution, int]],
) -> LossDistributionProfile:
    """The profile of independent results, of which so many have each of these losses.

    The rounding of every convolution is in the slack.
    """
    first, *others = [self_composed(pld, times) for pld, times in groups]
    total, slack = first.pld, first.slack
    for other in others:
        total = total.compose(other.pld)
        slack += other.slack + LossDistributionProfile(total).slack
    return LossDistributionProfile(total, slack=up(slack, ulps(4)))


def to_pld(profile: PrivacyProfile, *, discretization: float = 1e-4) -> PrivacyLossDistribution:
    """Connect the dots of the delta curve, pessimistically.

    The curve bounds every adjacent pair in both directions, hence so does its lower convex
    envelope in e^epsilon, which is what is discretised.
    """
    cell = _check.number("discretization", discretization, above=0.0)
    least = least_discretization(profile)
    if not cell >= least:
        must_be = f"at least {least:.3g} for losses this large"
        raise InvalidParameter("discretization", discretization, must_be=must_be)
    cells = max(math.ceil(_reach(profile) / cell), _LEAST_CELLS)
    epsilons = cell * np.arange(cells + 1, dtype=np.float64)
    right = convex_envelope(epsilons, np.minimum.accumulate(profile.deltas(epsilons)))
    # The dual direction of a symmetric curve: delta(-t) = 1 - e^-t (1 - delta(t)).
    left = 1.0 - np.exp(-epsilons[:0:-1]) * (1.0 - right[:0:-1])
    deltas = np.minimum.accumulate(np.clip(np.concatenate([left, right]), 0.0, 1.0))
    return connected_dots(cell, cells, deltas)


def least_discretization(profile: PrivacyProfile) -> float:
    """The smallest cells that cover the losses of `profile` in memory."""
    return _reach(profile) / _MAX_CELLS


def _reach(profile: PrivacyProfile) -> float:
    """An epsilon beyond which next to nothing is left (what is left becomes infinite loss)."""
    floor = float(profile.deltas(np.array([1e9]))[0])
    return max(min(profile.epsilon(min(floor * 1.01 + _TAIL_DELTA, 1.0 - _TAIL_DELTA)), 1e9), 1e-12)


def convex_envelope(epsilons: Array, deltas: Array) -> Array:
    """The lower convex envelope of the points (e^epsilon, delta), at the same epsilons."""
    # Steps of e^epsilon, in units of its largest.
    growth = np.exp(epsilons[:-1] - epsilons[-1]) * np.expm1(np.diff(epsilons))
    if not growth.min() > TINY:
        return deltas
    slopes = np.diff(deltas) / growth
    if np.all(np.diff(slopes) >= 0.0):
        return deltas
    smoothed = scipy.optimize.isotonic_regression(slopes, weights=growth).x
    # Summed from the right the terms are of one sign, so that only the last digits are in doubt.
    above = np.append(suffix_sums(-smoothed * growth), 0.0) + deltas[-1]
    envelope = up(above, ulps(4 * roundings(deltas.size) + 64))
    return np.asarray(np.clip(np.minimum(envelope, deltas), 0.0, 1.0))


def require(what: str) -> None:
    """Raise `MissingExtra` unless the package, without which there is no `what`, is installed."""
    try:
        import dp_accounting  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise MissingExtra.of(error, what, extra="") from None


def is_distribution(value: object) -> bool:
    """Whether this is a privacy loss distribution."""
    if "dp_accounting" not in sys.modules:
        return False
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    return isinstance(value, PrivacyLossDistribution)


def is_pessimistic(pld: PrivacyLossDistribution) -> bool:
    """Whether both directions were rounded up."""
    return all(pmf._pessimistic_estimate for pmf in _directions(pld))


def cell_of(pld: PrivacyLossDistribution) -> float:
    """The size of its cells."""
    return float(pld._pmf_remove._discretization)


def size_of(pld: PrivacyLossDistribution) -> int:
    """The number of cells of the larger direction."""
    return max(int(pmf.size) for pmf in _directions(pld))


def losses_of(pld: PrivacyLossDistribution) -> list[Losses]:
    """The losses in both directions, or in one if they are the same."""
    dense = [pmf.to_dense_pmf() for pmf in dict.fromkeys(_directions(pld))]
    return [
        Losses(
            pmf._discretization,
            pmf._lower_loss,
            np.asarray(pmf._probs, dtype=float),
            float(pmf._infinity_mass),
        )
        for pmf in dense
    ]


def made_whole(pld: PrivacyLossDistribution) -> PrivacyLossDistribution:
    """`pld` with all missing probability mass at infinite loss."""
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    remove, add = _directions(pld)
    return PrivacyLossDistribution(
        _with_all_mass(remove), None if add is remove else _with_all_mass(add)
    )


def connected_dots(cell: float, cells: int, deltas: Array) -> PrivacyLossDistribution:
    """Pessimistic losses with these deltas at -cells .. cells times `cell`, in both directions."""
    require("a privacy loss distribution")
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(cell, -cells, cells, deltas)
    return PrivacyLossDistribution(pmf)


def sampled_gaussian_divergences(q: float, noise: float, orders: Array) -> Array:
    """Renyi divergences of one step on a Poisson batch, at whole orders; nan where it fails."""
    require("this bound")
    from dp_accounting.rdp.rdp_privacy_accountant import _compute_rdp_poisson_subsampled_gaussian

    with np.errstate(all="ignore"):
        return np.asarray(_compute_rdp_poisson_subsampled_gaussian(q, noise, orders))


def is_supported(event: DpEvent, relation: str) -> bool:
    """Whether the losses of an event are known for a neighbouring relation, by its name there."""
    from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
    from dp_accounting.privacy_accountant import NeighboringRelation

    return bool(PLDAccountant(NeighboringRelation[relation]).supports(event))


def event_distribution(event: DpEvent, relation: str) -> PrivacyLossDistribution:
    """The loss distribution of an event under a `dp_accounting` relation; no mass is missing."""
    from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
    from dp_accounting.privacy_accountant import NeighboringRelation, UnsupportedEventError

    accountant = PLDAccountant(NeighboringRelation[relation])
    try:
        accountant.compose(event)
    except UnsupportedEventError as error:
        must_be = f"an event that dp-accounting knows the losses of for {relation} ({error})"
        raise InvalidParameter("event", event, must_be=must_be) from None
    return made_whole(accountant_losses(accountant))


def accountant_losses(accountant: PLDAccountant) -> PrivacyLossDistribution:
    """The losses that an accountant has composed so far."""
    return accountant._pld


def compose_losses(accountant: PLDAccountant, pld: PrivacyLossDistribution) -> None:
    """Composes an accountant with further losses."""
    accountant._pld = accountant._pld.compose(pld)


def accountant_cell(accountant: PLDAccountant) -> float:
    """The size of an accountant's cells."""
    return float(accountant._value_discretization_interval)


def is_without_privacy(accountant: PLDAccountant) -> bool:
    """Whether an accountant has composed an event that is not private at all."""
    return bool(accountant._contains_non_dp_event)


def _directions(pld: PrivacyLossDistribution) -> tuple[Any, Any]:
    return pld._pmf_remove, pld._pmf_add


def _with_all_mass(pmf: Any) -> Any:
    """One direction with all missing mass at infinite loss."""
    from dp_accounting.pld import pld_pmf

    dense = pmf.to_dense_pmf()
    missing = max(0.0, 1.0 - math.fsum(dense._probs) - dense._infinity_mass) + ulps(4)
    return pld_pmf.DensePLDPmf(
        dense._discretization,
        dense._lower_loss,
        dense._probs,
        min(dense._infinity_mass + missing, 1.0),
        pessimistic_estimate=True,
    )

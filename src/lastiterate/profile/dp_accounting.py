"""Access to the parts of `dp_accounting` that are not public; no other module uses them.

`dp_accounting` takes longer to load than most runs to account for, so it is loaded where used.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lastiterate._numerics.rounding import Array, ulps
from lastiterate.errors import InvalidParameter, MissingExtra

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent
    from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution


class Losses(NamedTuple):
    """The losses of one direction: masses[i] at cell (first + i), and the infinite mass."""

    cell: float
    first: int
    masses: Array
    infinite: float


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
    """How many cells the larger direction has."""
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
    return PrivacyLossDistribution(_whole(remove), None if add is remove else _whole(add))


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


def _whole(pmf: Any) -> Any:
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

"""A file beside a data set: every release that was charged, and the budget they are held to.

`Ledger` is what users have.  `Budget` says what is spent, what would still fit and what is proved.
The library charges what it is about to publish by `reserve_training`, `reserve_selection` and
`charge_statistic`; a fitted model has a `KeptLedger`, for what is charged later.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lastiterate._display import down, printable, up
from lastiterate._numerics.rounding import FEW_ROUNDINGS, MILLIONS_OF_ROUNDINGS
from lastiterate._numerics.rounding import down as rounded_down
from lastiterate._numerics.rounding import up as rounded_up
from lastiterate._numerics.search import least_true
from lastiterate.accounting import PrivacyReport
from lastiterate.certificate.verify import read
from lastiterate.errors import BudgetExceeded, InvalidLedger, InvalidParameter, warn
from lastiterate.ledger import charges
from lastiterate.ledger.charges import PER_PERSON, Charge, Unit, covered_by
from lastiterate.ledger.costs import Cost, composed, with_failures
from lastiterate.ledger.entries import (
    ADDED,
    PUBLISHED,
    RESERVED,
    SETTLED,
    WITHDRAWN,
    LedgerState,
    of_other_versions,
    open_entry,
    wrong_entries,
)
from lastiterate.ledger.journal import Entry, Head, Journal, Witness, head
from lastiterate.other_releases import Release
from lastiterate.profile.compose import compose_with_gaussian
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.profile.rounded import Rounding, gdp_but_for_failure
from lastiterate.profile.selection import Tries

_IN_ADVANCE_NOTE = (
    "composed by privacy losses: for releases whose costs were fixed without a look at results"
)
_ADAPTIVE_NOTE = "composed by mu: also for releases chosen by looking at earlier ones"
_MOST_SPENT_NOTE = (
    "the most that could have been spent: what is spent depends on results, and is no guarantee"
)
_NEARLY_NOTHING_LEFT = 1e-3  # a share of epsilon
# What `charges_about` adds to the descriptions of charges.
_details: ContextVar[str] = ContextVar("details", default="")


class Ledger:
    """The privacy budget of a data set, and every release that was charged to it.

    A release is charged before it is made: what does not fit into the budget is refused, and a
    training that dies half-way stays charged.  The file is only ever appended to, each line with
    the hash of the one before, by any number of processes.

    Parameters
    ----------
    path : str or Path
        The file.  A new one is made if there is none; then a budget must be given.
    epsilon, delta : float, optional
        The budget.  If the ledger exists it is read from the file, and must be the same if given.
    adjacency : {"replace", "zero-out"}, optional
        What is hidden, "replace" unless said otherwise.  Releases that promise something else are
        converted where that is safe, else refused.
    examples_per_person : int, optional
        How many examples of one person are counted together, 1 unless said otherwise.  Releases
        for fewer are converted by the group property; releases for more are refused.
    adaptive : bool, optional
        Whether the settings of a release may depend on earlier ones, as they do when you look at a
        model before you decide on the next.  Then Gaussian guarantees alone are counted, for which
        that is proved to cost nothing.  By default False: composition by privacy losses, for
        releases whose costs are fixed without a look at results.
    allow_seeded : bool, optional
        For tests: charge trainings with a seed as if nobody knew it and no two were the same.
    witness : str or Path, optional
        A file, best on another machine, that says how far the ledger has come.  It is written
        with every entry, and a ledger that has gone back behind it is refused.  A new ledger
        begins its own; for one that is there, `write_witness` does.

    Examples
    --------
    >>> import tempfile, lastiterate as li
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = li.Ledger(f"{folder.name}/people.ledger", epsilon=2.0, delta=1e-5)
    >>> from dp_accounting import GaussianDpEvent
    >>> entry = ledger.add(GaussianDpEvent(8.0), "how many are married")
    >>> round(ledger.spent().epsilon(1e-5), 4), round(ledger.largest_epsilon(), 4)
    (0.9263, 1.7058)
    >>> ledger.add(GaussianDpEvent(2.0), "how many smoke")
    Traceback (most recent call last):
    ...
    lastiterate.errors.BudgetExceeded: ... has epsilon 2 at delta 1e-05, ...
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | Path,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        adjacency: str | None = None,
        examples_per_person: int | None = None,
        adaptive: bool | None = None,
        allow_seeded: bool | None = None,
        witness: str | Path | None = None,
    ) -> None:
        self._journal = Journal(path, witness=None if witness is None else Witness(witness))
        self._state = LedgerState()
        opened = open_entry(
            self._journal,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
            examples_per_person=examples_per_person,
            adaptive=adaptive,
            seeded=allow_seeded,
        )
        where = os.fspath(self.path)
        self.budget = Budget(where, opened["epsilon"], opened["delta"], opened["adaptive"])
        self.unit = Unit(opened["adjacency"], opened[PER_PERSON])
        self.allow_seeded: bool = opened["seeded"]

    @property
    def epsilon(self) -> float:
        """Epsilon of the budget."""
        return self.budget.epsilon

    @property
    def delta(self) -> float:
        """Delta of the budget."""
        return self.budget.delta

    @property
    def adjacency(self) -> str:
        """The kind of change that is hidden."""
        return self.unit.adjacency

    @property
    def examples_per_person(self) -> int:
        """How many examples of one person are counted together."""
        return self.unit.examples_per_person

    @property
    def adaptive(self) -> bool:
        """Whether settings may depend on earlier releases."""
        return self.budget.adaptive

    @property
    def path(self) -> Path:
        """The file."""
        return self._journal.path

    def entries(self) -> Sequence[Entry]:
        """All entries, first to last; the chain is checked.

        Returns
        -------
        sequence of mappings
            One for each charge, settlement and withdrawal.

        Raises
        ------
        InvalidLedger
            If the chain of entries is broken.

        Examples
        --------
        >>> import tempfile, lastiterate as li
        >>> from dp_accounting import GaussianDpEvent
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledger = li.Ledger(f"{folder.name}/people.ledger", epsilon=2.0, delta=1e-5)
        >>> _ = ledger.add(GaussianDpEvent(8.0), "how many are married")
        >>> [entry["what"] for entry in ledger.entries()]
        ['opened', 'added']
        >>> folder.cleanup()
        """
        return self._journal.entries()

    def head(self) -> str:
        """The hash of the last entry: kept elsewhere, it shows that nothing was cut off since.

        Returns
        -------
        str
            The hash.

        Raises
        ------
        InvalidLedger
            If the chain of entries is broken.

        Examples
        --------
        >>> import tempfile, lastiterate as li
        >>> from dp_accounting import GaussianDpEvent
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledger = li.Ledger(f"{folder.name}/people.ledger", epsilon=2.0, delta=1e-5)
        >>> ledger.head() == ledger.entries()[-1]["hash"]
        True
        >>> folder.cleanup()
        """
        return head(self.entries())

    def spent(self) -> PrivacyProfile:
        """The guarantee of all charges together, which is held against the budget.

        Returns
        -------
        PrivacyProfile
            The composition of all charges.

        Raises
        ------
        InvalidLedger
            If the chain of entries is broken.

        Examples
        --------
        >>> import tempfile, lastiterate as li
        >>> from dp_accounting import GaussianDpEvent
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledger = li.Ledger(f"{folder.name}/people.ledger", epsilon=2.0, delta=1e-5)
        >>> _ = ledger.add(GaussianDpEvent(8.0), "how many are married")
        >>> round(ledger.spent().epsilon(1e-5), 4)
        0.9263
        >>> folder.cleanup()
        """
        return self.budget.spent(LedgerState(self.entries()).costs())

    def guarantee(self) -> PrivacyProfile:
        """The proved guarantee of all that was charged.

        It is what is spent, if costs were fixed beforehand.  In an adaptive ledger it is the
        budget, however little of it is spent, and whatever was published already on top of it.

        Returns
        -------
        PrivacyProfile
            The guarantee.

        Raises
        ------
        InvalidLedger
            If the chain of entries is broken.

        Examples
        --------
        >>> import tempfile, lastiterate as li
        >>> from dp_accounting import GaussianDpEvent
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledger = li.Ledger(f"{folder.name}/people.ledger", epsilon=2.0, delta=1e-5)
        >>> _ = ledger.add(GaussianDpEvent(8.0), "how many are married")
        >>> round(ledger.guarantee().epsilon(1e-5), 4)
        0.9263
        >>> folder.cleanup()
        """
        return self.budget.guarantee(LedgerState(self.entries()))

    def largest_epsilon(self) -> float:
        """The epsilon of the most costly Gaussian release that still fits, at the ledger's delta.

        Returns
        -------
        float
            epsilon.

        Raises
        ------
        InvalidLedger
            If the chain of entries is broken.

        Examples
        --------
        >>> import tempfile, lastiterate as li
        >>> from dp_accounting import GaussianDpEvent
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledger = li.Ledger(f"{folder.name}/people.ledger", epsilon=2.0, delta=1e-5)
        >>> _ = ledger.add(GaussianDpEvent(8.0), "how many are married")
        >>> round(ledger.largest_epsilon(), 4)
        1.7058
        >>> folder.cleanup()
        """
        return self.budget.largest_epsilon(LedgerState(self.entries()).costs())

    def add(
        self,
        release: Any,
        about: str = "",
        *,
        adjacency: str | None = None,
        examples_per_person: int | None = None,
        already_published: bool = False,
    ) -> Entry:
        """The entry that charges a release.

        Parameters
        ----------
        release : str, Path, PrivacyReport, PrivateScore, Release, DpEvent, tuple
            A certificate (text or file), a report, a score, a dp-accounting event, or the
            (epsilon, delta) that is known of something else.  A certificate that is in the ledger
            is refused: publishing the same model again costs nothing more.
        about : str, optional
            What it is, for readers.
        adjacency : {"replace", "zero-out", "add-remove"}, optional
            What (epsilon, delta) promises; that of the ledger unless said.
        examples_per_person : int, optional
            For how many examples of one person (epsilon, delta), or an event's noise, is meant: 1
            unless said, so that a ledger of persons counts it several times.  Certificates,
            reports and scores say it themselves.
        already_published : bool, default=False
            Charge it even beyond the budget, because it cannot be undone.  Its cost must have been
            fixed without a look at other releases, also in an adaptive ledger.

        Returns
        -------
        mapping
            The entry.

        Raises
        ------
        BudgetExceeded
            If the release does not fit into the budget.
        InvalidParameter, InvalidType
            If the release cannot be charged in this ledger, or is charged already.

        Examples
        --------
        >>> import tempfile, lastiterate as li
        >>> from dp_accounting import GaussianDpEvent
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledger = li.Ledger(f"{folder.name}/people.ledger", epsilon=2.0, delta=1e-5)
        >>> ledger.add(GaussianDpEvent(8.0), "how many are married")["about"]
        'how many are married'
        >>> folder.cleanup()
        """
        made = charges.release_charge(
            release,
            adjacency=adjacency or self.adjacency,
            examples_per_person=examples_per_person,
        )
        self._check_seed(made.seeded)
        costs = charges.costs_of(made.charge, self.unit)

        def entry(before: Sequence[Entry]) -> Mapping[str, Any]:
            state = self._state.follow(before)
            if made.digest is not None and (same := state.entry_of(made.digest)) is not None:
                found = f"the certificate of entry {same}"
                must_be = "a release that is not charged yet: the same again costs nothing more"
                raise InvalidParameter("release", must_be=must_be, found=found)
            self.budget.check(state, costs, about, force=already_published)
            return {
                **self._charge_entry(ADDED, about, made.charge, costs),
                **({PUBLISHED: True} if already_published else {}),
                **({} if made.certificate is None else {"certificate": made.certificate}),
            }

        return self._journal.append(entry)

    def reserve(self, charge: Charge, about: str = "", *, seeded: bool = False) -> str:
        """The id of a reservation: a charge for a release that is about to be made.

        Parameters
        ----------
        charge : mapping
            The charge, as the trainers describe it.
        about : str, optional
            What it is, for readers.
        seeded : bool
            Whether its noise comes from a seed.

        Returns
        -------
        str
            The id to `settle` or `withdraw` it by.

        Raises
        ------
        BudgetExceeded, InvalidParameter
            If it does not fit into the budget, or is seeded and the ledger does not allow that.

        Examples
        --------
        >>> import tempfile, lastiterate as li
        >>> from lastiterate.ledger.charges import stated
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledger = li.Ledger(f"{folder.name}/people.ledger", epsilon=2.0, delta=1e-5)
        >>> charge = stated(0.5, 0.0, adjacency="replace", examples_per_person=1)
        >>> id_ = ledger.reserve(charge, "a histogram")
        >>> len(id_)
        16
        >>> folder.cleanup()
        """
        self._check_seed(seeded)
        costs = charges.costs_of(charge, self.unit)

        def entry(before: Sequence[Entry]) -> Mapping[str, Any]:
            self.budget.check(self._state.follow(before), costs, about)
            return self._charge_entry(RESERVED, about, charge, costs)

        return str(self._journal.append(entry)["id"])

    def settle(self, id_: str, certificate: str | None = None) -> Entry:
        """The entry that a reserved release was made; its cost stays what it was.

        Parameters
        ----------
        id_ : str
            The id of the reservation.
        certificate : str, optional
            The certificate of the release.

        Returns
        -------
        mapping
            The entry.

        Raises
        ------
        InvalidParameter
            If there is no such reservation, or the certificate is of something else.

        Examples
        --------
        >>> import tempfile, lastiterate as li
        >>> from lastiterate.ledger.charges import stated
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledger = li.Ledger(f"{folder.name}/people.ledger", epsilon=2.0, delta=1e-5)
        >>> charge = stated(0.5, 0.0, adjacency="replace", examples_per_person=1)
        >>> id_ = ledger.reserve(charge, "a histogram")
        >>> ledger.settle(id_)["what"]
        'settled'
        >>> folder.cleanup()
        """
        record = None if certificate is None else read(certificate)

        def entry(before: Sequence[Entry]) -> Mapping[str, Any]:
            charge = self._state.follow(before).open_charge(id_)
            if record is not None and not charges.is_charge_of(charge, record):
                must_be = "that of what was reserved"
                raise InvalidParameter("certificate", must_be=must_be, found="another")
            more = {} if record is None else {"certificate": record}
            return {"what": SETTLED, "id": id_, **more}

        return self._journal.append(entry)

    def withdraw(self, id_: str, because: str) -> Entry:
        """The entry that takes back a reservation of which nothing was published or looked at.

        A training that failed stays charged until its owner says so, with a reason.

        Parameters
        ----------
        id_ : str
            The id of the reservation.
        because : str
            The reason, which is kept.

        Returns
        -------
        mapping
            The entry.

        Raises
        ------
        InvalidParameter
            If there is no such reservation, or no reason.

        Examples
        --------
        >>> import tempfile, lastiterate as li
        >>> from lastiterate.ledger.charges import stated
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledger = li.Ledger(f"{folder.name}/people.ledger", epsilon=2.0, delta=1e-5)
        >>> charge = stated(0.5, 0.0, adjacency="replace", examples_per_person=1)
        >>> id_ = ledger.reserve(charge, "a histogram")
        >>> ledger.withdraw(id_, "the disk was full")["what"]
        'withdrawn'
        >>> folder.cleanup()
        """
        if not because.strip():
            raise InvalidParameter("because", because, must_be="a reason")

        def entry(before: Sequence[Entry]) -> Mapping[str, Any]:
            self._state.follow(before).open_charge(id_)
            return {"what": WITHDRAWN, "id": id_, "because": because}

        return self._journal.append(entry)

    def _charge_entry(
        self, what: str, about: str, charge: Charge, costs: Sequence[Cost]
    ) -> dict[str, Any]:
        return {
            "what": what,
            "id": secrets.token_hex(8),
            "about": about,
            "charge": charge,
            "costs": costs,
            "alone": self.budget.alone(costs),
        }

    def _check_seed(self, seeded: bool) -> None:
        if seeded and not self.allow_seeded:
            must_be = (
                "None under a ledger: trainings with the same seed have the same noise, and what "
                "they cost together is not what each costs"
            )
            raise InvalidParameter("random_state", must_be=must_be, found="a seed")

    def verify(self, *, head: str | Head | None = None) -> PrivacyProfile:
        """The guarantee of all charges, after every cost and certificate was derived again.

        Parameters
        ----------
        head : str or Head, optional
            The `head` of an earlier day, which must be part of the chain.  Without one, and
            without a witness, entries that were cut off at the end, or a file that was written
            anew as a whole, are not noticed.

        Returns
        -------
        PrivacyProfile
            As `guarantee`.

        Raises
        ------
        InvalidLedger
            If anything is wrong, with every reason.

        Examples
        --------
        >>> import tempfile, lastiterate as li
        >>> from dp_accounting import GaussianDpEvent
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledger = li.Ledger(f"{folder.name}/people.ledger", epsilon=2.0, delta=1e-5)
        >>> _ = ledger.add(GaussianDpEvent(8.0), "how many are married")
        >>> round(ledger.verify(head=ledger.head()).epsilon(1e-5), 4)
        0.9263
        >>> folder.cleanup()
        """
        entries = self.entries()
        reasons = wrong_entries(entries, self.unit)
        if isinstance(head, Head):
            reasons += [] if (why := head.missing_from(entries)) is None else [why]
        elif head is not None and head not in [entry["hash"] for entry in entries]:
            reasons.append(f"no entry has the hash {head}")
        if reasons:
            raise InvalidLedger(os.fspath(self.path), reasons)
        if other := of_other_versions(entries):
            warn(
                f"the certificates of entries {', '.join(map(str, other))} were issued by other "
                "versions of lastiterate and not derived again; their costs were",
                UserWarning,
            )
        return self.budget.guarantee(LedgerState(entries))

    def write_witness(self, path: str | Path) -> None:
        """None, after a file was written that shows how far the ledger has come.

        Keep it where whoever can replace the ledger cannot write.  From now on every entry of this
        object is noted there; later, open the ledger with `witness=path`.

        Parameters
        ----------
        path : str or Path
            The file.  An earlier head of this ledger is replaced; any other file is refused.

        Raises
        ------
        InvalidLedger
            If the chain of entries is broken.
        InvalidParameter
            If the file is the ledger itself, or anything but an earlier head of it.

        Examples
        --------
        >>> import tempfile, lastiterate as li
        >>> folder = tempfile.TemporaryDirectory()
        >>> ledger = li.Ledger(f"{folder.name}/people.ledger", epsilon=2.0, delta=1e-5)
        >>> ledger.write_witness(f"{folder.name}/people.witness")
        >>> len(li.Ledger(ledger.path, witness=f"{folder.name}/people.witness").entries())
        1
        >>> folder.cleanup()
        """
        self._journal.write_witness(Witness(path))

    def __repr__(self) -> str:
        return f"Ledger({os.fspath(self.path)!r})"

    def __str__(self) -> str:
        return as_text(self)

    def __reduce__(self) -> tuple[Any, ...]:
        witness = self._journal.witness
        return _reopen, (type(self), self.path, None if witness is None else witness.path)


def _reopen(kind: type[Ledger], path: Path, witness: Path | None) -> Ledger:
    return kind(path, witness=witness)


@dataclass(frozen=True)
class Budget:
    """The budget of the ledger at `where`, what is spent of it, and what would still fit."""

    where: str
    epsilon: float
    delta: float
    adaptive: bool

    def spent(self, costs: Sequence[Cost]) -> PrivacyProfile:
        """The guarantee of all of these together."""
        return composed(costs, adaptive=self.adaptive) if costs else GaussianProfile(0.0)

    def guarantee(self, state: LedgerState) -> PrivacyProfile:
        """The proved guarantee of all charges together.

        Where costs depend on results, what is spent is itself a result.  What holds is the most
        that could have been spent, whatever the results: the budget, and with it all that was added
        without asking it when others had been charged (docs/ledger.md).
        """
        if not self.adaptive:
            return self.spent(state.costs())
        before, late, chosen = state.by_time()
        if not (before or late or chosen):
            return GaussianProfile(0.0)
        most = self._most_mu()
        if not gdp_but_for_failure(self.spent(chosen)) <= most:
            return GaussianProfile(math.inf)
        first = max(most, gdp_but_for_failure(self.spent(before)))
        together = math.hypot(first, gdp_but_for_failure(self.spent(late)))
        whole = GaussianProfile(rounded_up(together, FEW_ROUNDINGS) if late else first)
        every = [*before, *late, *chosen]
        return with_failures(whole, [one["times"] * one.get("failure", 0.0) for one in every])

    def guaranteed_epsilon(self, state: LedgerState) -> float:
        """Epsilon of the guarantee at the budget's delta."""
        epsilon = self.guarantee(state).epsilon(self.delta)
        before, late, _ = state.by_time()
        if not self.adaptive or late or self.spent(before).epsilon(self.delta) > self.epsilon:
            return epsilon
        # What the budget let through has no more than its epsilon, by that very test.
        return min(epsilon, self.epsilon) if math.isfinite(epsilon) else epsilon

    def _most_mu(self) -> float:
        """The largest mu that the budget admits: no charge that was let through made it more."""

        def too_much(mu: float) -> bool:
            return not GaussianProfile(mu).epsilon(self.delta) <= self.epsilon

        mu = least_true(too_much, 0.0, 2.0 * self.epsilon + 10.0)
        return rounded_up(mu, MILLIONS_OF_ROUNDINGS)

    def alone(self, costs: Sequence[Cost]) -> float | None:
        """The epsilon of one charge; None if it has none at this delta."""
        epsilon = self.spent(costs).epsilon(self.delta)
        return epsilon if math.isfinite(epsilon) else None

    def check(
        self, state: LedgerState, more: Sequence[Cost], about: str, *, force: bool = False
    ) -> None:
        """Raise if there is no room for these costs; with `force` they were published already.

        The running composition decides in most cases.  Where it says that nearly nothing would be
        left, all costs are composed again, so that the decision does not depend on how they came.
        """
        if self.adaptive and any(cost["mu"] is None for cost in more):
            must_be = "one with a Gaussian guarantee (mu), as an adaptive ledger counts no other"
            raise InvalidParameter("release", about, must_be=must_be)
        if force:
            return
        quickly = state.running.composed(more, adaptive=self.adaptive).epsilon(self.delta)
        if quickly <= self.epsilon * (1.0 - _NEARLY_NOTHING_LEFT):
            return
        before = state.costs()
        together = self.spent([*before, *more]).epsilon(self.delta)
        if together <= self.epsilon:
            return
        spent = self.spent(before).epsilon(self.delta)
        if self._for_want_of_delta(before, more):
            raise BudgetExceeded(
                f"{self.where} has delta {self.delta:g} for all releases together, which that of "
                f"{about or 'this'} uses up. Nothing was charged. State a smaller --delta for it, "
                f"such as {self.delta / 100.0:.0e}, or open the ledger with a larger one."
            )
        raise BudgetExceeded(
            f"{self.where} has epsilon {self.epsilon:g} at delta {self.delta:g}, of which "
            f"{up(spent)} is spent; {about or 'this'} would make it {up(together)}. Nothing was "
            f"charged. A release of epsilon {down(self.largest_epsilon(before))} would fit."
        )

    def _for_want_of_delta(self, before: Sequence[Cost], more: Sequence[Cost]) -> bool:
        """Whether the same costs without their own delta would fit."""
        if not any(cost.get("delta", 0.0) > 0.0 for cost in more):
            return False
        freed: list[Cost] = [{**cost, "delta": 0.0} for cost in more]
        return self.spent([*before, *freed]).epsilon(self.delta) <= self.epsilon

    def largest_epsilon(self, costs: Sequence[Cost]) -> float:
        """Epsilon of the most costly Gaussian release that fits beside these; 0 if none does."""
        spent = self.spent(costs)

        def too_much(mu: float) -> bool:
            return not compose_with_gaussian(spent, mu).epsilon(self.delta) <= self.epsilon

        if too_much(0.0):
            return 0.0
        mu = least_true(too_much, 0.0, 2.0 * self.epsilon + 10.0)
        return GaussianProfile(rounded_down(mu, MILLIONS_OF_ROUNDINGS)).epsilon(self.delta)


def as_text(ledger: Ledger) -> str:
    """Text that lists all charges, their composition, and what is left."""
    return "\n".join(map(printable, _lines(ledger)))


def _lines(ledger: Ledger) -> Iterator[str]:
    entries = ledger.entries()
    state = LedgerState(entries)
    spent = ledger.spent().epsilon(ledger.delta)
    yield (
        f"{os.fspath(ledger.path)}: epsilon {ledger.epsilon:g} at delta {ledger.delta:g}, "
        f"{ledger.unit}"
    )
    yield f"spent: {up(spent)}, {_ADAPTIVE_NOTE if ledger.adaptive else _IN_ADVANCE_NOTE}"
    if ledger.adaptive:
        yield f"proved: {up(ledger.budget.guaranteed_epsilon(state))}, {_MOST_SPENT_NOTE}"
    if spent > ledger.epsilon:
        yield "overspent: something that was published already was added"
    else:
        yield f"left: a release of epsilon {down(ledger.largest_epsilon())}"
    if ledger.allow_seeded:
        yield "for tests only: trainings with a seed are charged as if nobody knew it"
    yield ""
    yield f"{'entry':>5}  {'when (UTC)':16}  {'epsilon alone':>13}  {'state':9}  about"
    for id_, entry in state.charges.items():
        alone = math.inf if entry["alone"] is None else entry["alone"]
        when = entry["time"][:16].replace("T", " ")
        about = entry["about"] or entry["charge"]["kind"]
        about += _counted_for(covered_by(entry["charge"]), ledger.unit)
        yield f"{entry['n']:5}  {when}  {up(alone):>13}  {state.state(id_):9}  {about}"
        if state.state(id_) == RESERVED:
            yield f"{'':5}  under way, or died half-way; id {id_}"
    yield ""
    yield f"head: {entries[-1]['hash']} ({len(entries)} entries)"


def _counted_for(covered: int, unit: Unit) -> str:
    """A note on a charge for fewer examples of a person than the ledger counts, else empty."""
    if covered == unit.examples_per_person:
        return ""
    few = "one example" if covered == 1 else f"{covered:,} examples of a person"
    return f" (for {few}; counted for {unit.examples_per_person:,})"


def reserve_training(
    ledger: Ledger | None, report: PrivacyReport, about: str, *, seeded: bool
) -> Reservation | None:
    """Charge a training that is about to begin, if there is a ledger."""
    if ledger is None:
        return None
    return Reservation(
        ledger, ledger.reserve(charges.training(report), _with_details(about), seeded=seeded)
    )


def reserve_selection(
    ledger: Ledger | None,
    tries: Tries,
    candidates: Sequence[Mapping[str, Any]],
    roundings: Sequence[Rounding | None],
    about: str,
    *,
    seeded: bool,
) -> Reservation | None:
    """Charge the best of several tries that are about to be made, if there is a ledger."""
    if ledger is None:
        return None
    charge = charges.selection(tries, candidates, roundings)
    return Reservation(ledger, ledger.reserve(charge, _with_details(about), seeded=seeded))


class Reservation:
    """A charge in a ledger that is still to be settled."""

    def __init__(self, ledger: Ledger, id_: str) -> None:
        self.ledger, self.id = ledger, id_

    def settle(self, certificate: str | None = None) -> None:
        """Settle the charge, once the release was made and before anybody sees it."""
        self.ledger.settle(self.id, certificate)


def charge_statistic(
    ledger: Ledger | None,
    release: Release,
    about: str,
    *,
    examples_per_person: int,
    rounding: Rounding,
    seeded: bool,
) -> None:
    """Charge a statistic before it is published, if there is a ledger."""
    if ledger is None:
        return
    charge = charges.statistic(
        release, adjacency="replace", examples_per_person=examples_per_person, rounding=rounding
    )
    ledger.settle(ledger.reserve(charge, _with_details(about), seeded=seeded))


@contextmanager
def charges_about(details: str) -> Iterator[None]:
    """A context in which descriptions of charges end with these words, for readers of a ledger."""
    before = _details.set(details)
    try:
        yield
    finally:
        _details.reset(before)


def _with_details(text: str) -> str:
    return text + _details.get()


class KeptLedger:
    """The ledger of a fit, for what is charged later.

    A pickle of it is opened only then: models are also used where their ledger is not.
    """

    def __init__(self, path: Path, witness: Path | None, opened: Ledger | None = None) -> None:
        self._path, self._witness, self._opened = path, witness, opened

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._path, self._witness)

    def __repr__(self) -> str:
        return f"Ledger({str(self._path)!r})"

    def opened(self) -> Ledger:
        """The ledger, read from its file if it is not open yet."""
        if self._opened is None:
            if not self._path.exists():
                must_be = "given where the ledger of the fit was moved: pass where it is now"
                raise InvalidParameter("ledger", must_be=must_be, found=f"nothing at {self._path}")
            self._opened = Ledger(self._path, witness=self._witness)
        return self._opened

    @property
    def is_gone(self) -> bool:
        """Whether there is no such file here."""
        return self._opened is None and not self._path.exists()


def kept(ledger: Ledger | None) -> KeptLedger | None:
    """A ledger for a fitted model to keep."""
    if ledger is None:
        return None
    path, witness = ledger.__reduce__()[1][1:]
    return KeptLedger(path.resolve(), None if witness is None else witness.resolve())


def one_ledger(*given: Ledger | KeptLedger | str | Path | None) -> Ledger | None:
    """The one ledger among these; None if none was given, an error if two were."""
    known = [one for one in given if one is not None]
    if len(known) > 1:  # where a ledger was moved, the one that is given now takes its place
        known = [one for one in known if not (isinstance(one, KeptLedger) and one.is_gone)]
    ledgers = [_open(one) for one in known]
    if len({one.path.resolve() for one in ledgers}) > 1:
        must_be = "one: a release is charged once; add its certificate to the other"
        raise InvalidParameter("ledger", [str(one.path) for one in ledgers], must_be=must_be)
    return ledgers[0] if ledgers else None


def _open(one: Ledger | KeptLedger | str | Path) -> Ledger:
    if isinstance(one, KeptLedger):
        return one.opened()
    return one if isinstance(one, Ledger) else Ledger(one)


def ledgers_of(model: Any) -> list[Any]:
    """The ledgers that a model was given, by its constructor and by its fit, or None for each."""
    return [getattr(model, name, None) for name in ("ledger", "ledger_")]

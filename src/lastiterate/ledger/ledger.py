"""A file beside a data set: every release that was charged, and the budget they are held to."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lastiterate.errors import InvalidLedger, InvalidParameter
from lastiterate.ledger import chargeable, charges, opening
from lastiterate.ledger.book import ADDED, PUBLISHED, RESERVED, SETTLED, WITHDRAWN, Book
from lastiterate.ledger.budget import Budget
from lastiterate.ledger.charges import Charge
from lastiterate.ledger.journal import Entry, Journal, head
from lastiterate.ledger.unit import PER_PERSON, Unit
from lastiterate.profile.privacy_profile import PrivacyProfile


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
    ) -> None:
        self._journal = Journal(path)
        opened = opening.opened(
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

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path,)

    def __repr__(self) -> str:
        return f"Ledger({os.fspath(self.path)!r})"

    def __str__(self) -> str:
        from lastiterate.ledger.ledger_text import as_text

        return as_text(self)

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
        """All entries, first to last, the chain checked."""
        return self._journal.entries()

    def head(self) -> str:
        """The hash of the last entry: kept elsewhere, it shows that nothing was cut off since."""
        return head(self.entries())

    def spent(self) -> PrivacyProfile:
        """All that was charged, together: what is held against the budget."""
        return self.budget.spent(Book(self.entries()).costs())

    def guarantee(self) -> PrivacyProfile:
        """The proved guarantee of all that was charged.

        It is what is spent, if costs were fixed beforehand.  In an adaptive ledger it is the
        budget, however little of it is spent, and whatever was published already on top of it.
        """
        return self.budget.guarantee(Book(self.entries()))

    def largest_epsilon(self) -> float:
        """The epsilon, at the ledger's delta, of the largest Gaussian release that still fits."""
        return self.budget.largest_epsilon(Book(self.entries()).costs())

    def add(
        self,
        release: Any,
        about: str = "",
        *,
        adjacency: str | None = None,
        examples_per_person: int | None = None,
        already_published: bool = False,
    ) -> Entry:
        """Charge a release.

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
        """
        made = chargeable.understood(
            release,
            adjacency=adjacency or self.adjacency,
            examples_per_person=examples_per_person,
        )
        self._check_seed(made.seeded)
        costs = charges.costs_of(made.charge, self.unit)

        def entry(before: Sequence[Entry]) -> Mapping[str, Any]:
            book = Book(before)
            if made.digest is not None and (same := book.entry_of(made.digest)) is not None:
                found = f"the certificate of entry {same}"
                must_be = "a release that is not charged yet: the same again costs nothing more"
                raise InvalidParameter("release", must_be=must_be, found=found)
            self.budget.check(book.costs(), costs, about, force=already_published)
            return {
                "what": ADDED,
                "id": secrets.token_hex(8),
                "about": about,
                "charge": made.charge,
                "costs": costs,
                "alone": self.budget.alone(costs),
                **({PUBLISHED: True} if already_published else {}),
                **({} if made.certificate is None else {"certificate": made.certificate}),
            }

        return self._journal.append(entry)

    def reserve(self, charge: Charge, about: str = "", *, seeded: bool = False) -> str:
        """Charge what is about to be made, or refuse; the id to settle it by."""
        self._check_seed(seeded)
        costs = charges.costs_of(charge, self.unit)

        def entry(before: Sequence[Entry]) -> Mapping[str, Any]:
            self.budget.check(Book(before).costs(), costs, about)
            id_ = secrets.token_hex(8)
            return {
                "what": RESERVED,
                "id": id_,
                "about": about,
                "charge": charge,
                "costs": costs,
                "alone": self.budget.alone(costs),
            }

        return str(self._journal.append(entry)["id"])

    def settle(self, id_: str, certificate: str | None = None) -> Entry:
        """Say that what was reserved was made; its cost stays what it was."""
        record = None if certificate is None else chargeable.certificate_record(certificate)

        def entry(before: Sequence[Entry]) -> Mapping[str, Any]:
            charge = Book(before).open_charge(id_)
            if record is not None and chargeable.charge_of(record) != charge:
                must_be = "that of what was reserved"
                raise InvalidParameter("certificate", must_be=must_be, found="another")
            more = {} if record is None else {"certificate": record}
            return {"what": SETTLED, "id": id_, **more}

        return self._journal.append(entry)

    def withdraw(self, id_: str, because: str) -> Entry:
        """Take back a reservation of which nothing was ever published or looked at.

        A training that failed stays charged until its owner says so, with a reason, which is kept.
        """
        if not because.strip():
            raise InvalidParameter("because", because, must_be="a reason")

        def entry(before: Sequence[Entry]) -> Mapping[str, Any]:
            Book(before).open_charge(id_)
            return {"what": WITHDRAWN, "id": id_, "because": because}

        return self._journal.append(entry)

    def verify(self, *, head: str | None = None) -> PrivacyProfile:
        """Check the whole chain and derive every cost and certificate again.

        The guarantee, or `InvalidLedger` with every reason.  With the `head` of an earlier day:
        that it is part of the chain.  Without one, entries that were cut off at the end, or a file
        that was written anew as a whole, are not noticed.
        """
        from lastiterate.ledger.verify_entries import wrong_entries

        entries = self.entries()
        reasons = wrong_entries(entries, self.unit)
        if head is not None and head not in [entry["hash"] for entry in entries]:
            reasons.append(f"no entry has the hash {head}")
        if reasons:
            raise InvalidLedger(os.fspath(self.path), reasons)
        return self.budget.guarantee(Book(entries))

    def _check_seed(self, seeded: bool) -> None:
        if seeded and not self.allow_seeded:
            must_be = (
                "None under a ledger: trainings with the same seed have the same noise, and what "
                "they cost together is not what each costs"
            )
            raise InvalidParameter("random_state", must_be=must_be, found="a seed")

"""A file beside a data set: every release that was charged, and the budget they are held to."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from lastiterate.errors import InvalidParameter
from lastiterate.ledger import charges, release_charges
from lastiterate.ledger.charges import Charge
from lastiterate.ledger.entries import ADDED, PUBLISHED, RESERVED, SETTLED, WITHDRAWN
from lastiterate.ledger.journal_lines import Entry
from lastiterate.ledger.ledger_file import LedgerFile


class Ledger(LedgerFile):
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

    def __str__(self) -> str:
        from lastiterate.ledger.ledger_text import as_text

        return as_text(self)

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
        made = release_charges.release_charge(
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
        record = None if certificate is None else release_charges.certificate_record(certificate)

        def entry(before: Sequence[Entry]) -> Mapping[str, Any]:
            charge = self._state.follow(before).open_charge(id_)
            if record is not None and not release_charges.is_charge_of(charge, record):
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

    def _check_seed(self, seeded: bool) -> None:
        if seeded and not self.allow_seeded:
            must_be = (
                "None under a ledger: trainings with the same seed have the same noise, and what "
                "they cost together is not what each costs"
            )
            raise InvalidParameter("random_state", must_be=must_be, found="a seed")

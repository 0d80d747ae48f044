"""The file of a ledger: its terms and entries, what is spent, and verification."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lastiterate.errors import InvalidLedger, warn
from lastiterate.ledger.budget import Budget
from lastiterate.ledger.entries import LedgerState, open_entry
from lastiterate.ledger.journal import Journal
from lastiterate.ledger.journal_lines import Entry, head
from lastiterate.ledger.unit import PER_PERSON, Unit
from lastiterate.ledger.witness import Head, Witness
from lastiterate.profile.privacy_profile import PrivacyProfile


class LedgerFile:
    """The file of a ledger, opened or made; `Ledger` adds to it."""

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

    def __reduce__(self) -> tuple[Any, ...]:
        witness = self._journal.witness
        return _opened_again, (type(self), self.path, None if witness is None else witness.path)

    def __repr__(self) -> str:
        return f"Ledger({os.fspath(self.path)!r})"

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
        from lastiterate.ledger.entries import of_other_versions, wrong_entries

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


def _opened_again(kind: type[LedgerFile], path: Path, witness: Path | None) -> LedgerFile:
    return kind(path, witness=witness)

"""Which rows are to be forgotten, and whether they can be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate import _check
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.linear_model.provenance import Past
from lastiterate.train.data import Examples
from lastiterate.train.data_digest import row_digests


def listed(rows: Any) -> list[Any]:
    """The given rows as a list; raises `InvalidType` if they are not a sequence."""
    must_be = "a sequence of row numbers, counted from 0"
    if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        raise InvalidType("rows", rows, must_be=must_be)
    return list(rows)


def checked_rows(rows: Any, examples: int) -> NDArray[np.intp]:
    """Numbers of rows, each once."""
    given = listed(rows)
    numbers = [_check.count("rows", one, at_least=0, at_most=examples - 1) for one in given]
    if not numbers:
        raise InvalidParameter("rows", rows, must_be="at least one row number")
    if len({*numbers}) < len(numbers):
        twice = next(one for one in numbers if numbers.count(one) > 1)
        raise InvalidParameter("rows", must_be="each row once", found=f"row {twice} twice")
    return np.array(numbers, dtype=np.intp)


def silenced(
    examples: Examples, asked: NDArray[np.intp], past: Past, secret: bytes
) -> tuple[NDArray[np.bool_], list[str]]:
    """Which have gradient 0 from now on, and the digests of those who go."""
    gone = np.zeros(len(examples), dtype=bool)
    if past.removed:
        every = row_digests(past.training["data"], range(len(examples)), secret)
        gone = np.array([one in past.removed for one in every])
    if gone[asked].any():
        again = int(asked[gone[asked]][0])
        must_be = "rows that are still part of the model"
        raise InvalidParameter(
            "rows", must_be=must_be, found=f"row {again} (counted from 0), removed before"
        )
    gone[asked] = True
    if gone.all():
        must_be = "some of the rows: of a model of nothing, nothing is left to publish"
        raise InvalidParameter("rows", must_be=must_be, found="all that were left")
    silent = gone if examples.silent is None else gone | examples.silent
    return silent, row_digests(past.training["data"], asked.tolist(), secret)


def check_labels(targets: NDArray[Any], silent: NDArray[np.bool_]) -> None:
    """A label set that was taken from the data must be the same without those who go."""
    if np.unique(targets[~silent]).size < np.unique(targets).size:
        must_be = (
            "rows whose labels others have, too: the label set was taken from y, and would tell "
            "of them; train again, with classes=[..] declared"
        )
        raise InvalidParameter("rows", must_be=must_be, found="a label that only they have")

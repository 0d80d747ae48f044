"""The option --features: fixed features of the encoded rows of a table."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from lastiterate.errors import InvalidParameter
from lastiterate.features.known_maps import map_from_text
from lastiterate.features.maps import FeatureMap
from lastiterate.tables.encoder import EncodedTable, Encoder, InMemory


def map_of_option(features: str | None, encoder: Encoder) -> FeatureMap | None:
    """The map that the option names, for rows of this encoder; None without one."""
    return None if features is None else map_from_text(features, encoder.width)


def with_features(
    table: EncodedTable, feature_map: FeatureMap | None, file: Path | None = None
) -> EncodedTable:
    """The table with features in the place of encoded rows, in a file if one is given."""
    if feature_map is None:
        return table
    if file is not None:
        return replace(table, rows=feature_map.write(table.rows, file))
    InMemory(feature_map.width, np.float32).check(len(table.rows))
    return replace(table, rows=feature_map.apply(table.rows))


def row_settings(
    encoder: Encoder, feature_map: FeatureMap | None, feature_bound: float | None
) -> dict[str, Any]:
    """The bound on rows, and the features of columns whose undeclared values are counted."""
    known = encoder.feature_bound if feature_map is None else feature_map.norm_bound
    return {
        "feature_bound": known if feature_bound is None else feature_bound,
        "text_columns": encoder.text_columns if feature_map is None else {},
    }


def check_scratch(mapped: Path | None) -> None:
    """Raise unless scratch files can be made there."""
    if mapped is None or mapped.is_dir():
        return
    if os.path.lexists(mapped):
        must_be = "a folder for scratch files, or a name that nothing has yet"
        raise InvalidParameter("mapped", must_be=must_be, found=f"{mapped}, which is a file")
    if not mapped.parent.is_dir():
        must_be = "in a folder that exists"
        raise InvalidParameter("mapped", str(mapped), must_be=must_be)


@contextmanager
def scratch_files(mapped: Path | None) -> Iterator[tuple[Path | None, Path | None]]:
    """Names for encoded rows and features, in a new folder that is removed with them.

    They are as private as the table, so that nobody else can read the folder.
    """
    check_scratch(mapped)
    if mapped is None:
        yield None, None
        return
    where, prefix = (mapped, "rows.") if mapped.is_dir() else (mapped.parent, f"{mapped.name}.")
    with TemporaryDirectory(prefix=prefix, dir=where) as folder:
        yield Path(folder, "rows"), Path(folder, "features")

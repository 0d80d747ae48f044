"""The option --features: fixed features of the encoded rows of a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lastiterate.features.feature_map import FeatureMap
from lastiterate.features.known_maps import map_from_text
from lastiterate.saved_model.pipeline_steps import FeatureStep, as_record
from lastiterate.tables.encoder import Encoder
from lastiterate.tables.file_encoding import EncodedTable, InMemory


def map_of_option(features: str | None, encoder: Encoder) -> FeatureMap | None:
    """The map that the option names, for rows of this encoder; None without one."""
    return None if features is None else map_from_text(features, encoder.width)


def with_features(
    table: EncodedTable, feature_map: FeatureMap | None, mapped: Path | None = None
) -> EncodedTable:
    """The table with features in the place of encoded rows, in a file if rows are in `mapped`."""
    if feature_map is None:
        return table
    file = features_file(mapped)
    if file is not None:
        return replace(table, rows=feature_map.write(table.rows, file))
    InMemory(feature_map.width, np.float32).check(len(table.rows))
    return replace(table, rows=feature_map.apply(table.rows))


def features_file(mapped: Path | None) -> Path | None:
    """The file of features beside a file of encoded rows."""
    return None if mapped is None else mapped.with_name(f"{mapped.name}.features")


def row_settings(
    encoder: Encoder, feature_map: FeatureMap | None, feature_bound: float | None
) -> dict[str, Any]:
    """The bound on rows, and the features of columns whose undeclared values are counted."""
    known = encoder.feature_bound if feature_map is None else feature_map.norm_bound
    return {
        "feature_bound": known if feature_bound is None else feature_bound,
        "text_columns": encoder.text_columns if feature_map is None else {},
    }


def model_steps(feature_map: FeatureMap | None) -> dict[str, Any]:
    """The steps of a model's file; none without features."""
    if feature_map is None:
        return {}
    return {"steps": [as_record(FeatureStep(FeatureStep.step, feature_map.as_record()))]}


@contextmanager
def removed_after(mapped: Path | None) -> Iterator[None]:
    """Remove files of encoded rows afterwards: they are as private as the table."""
    try:
        yield
    finally:
        for file in (mapped, features_file(mapped)):
            if file is not None:
                file.unlink(missing_ok=True)

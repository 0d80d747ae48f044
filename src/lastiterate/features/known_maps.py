"""All fixed maps by their kind: from records of models and certificates, and from a command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from lastiterate.errors import InvalidParameter, LastIterateError
from lastiterate.features.maps import BinsMap, FeatureMap, FourierMap, QuadraticMap
from lastiterate.features.scattering_map import ScatteringMap

MAPS: dict[str, type[FeatureMap]] = {
    kind.kind: kind for kind in (ScatteringMap, FourierMap, QuadraticMap, BinsMap)
}

FEATURE_MAPS = "feature maps"  # of a certificate
FEATURE_STEP = "features"  # of a model's file
_TEXTS = "scattering:28x28, scattering:32x32x3, fourier:2048,gamma=1 or quadratic:2048,seed=0"


class UnknownScale(InvalidParameter):
    """A scattering map of a version that took the scale of pixels from how all were stored."""


def map_of(record: Any) -> FeatureMap:
    """The map that a record describes, which must be complete and in its only form."""
    must_be = f"the record of a map of {', '.join(MAPS)}, as lastiterate wrote it"
    try:
        kind = MAPS[record["kind"]]
        if kind is ScatteringMap and "pixel_max" not in record:
            stated = (
                "stated, which earlier versions did not: fit Scattering2D(.., pixel_max=..) again"
            )
            raise UnknownScale("features.pixel_max", must_be=stated, found="none")
        given = {name: record[name] for name in (each.name for each in fields(kind))}
        found = kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()})
    except UnknownScale:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError, LastIterateError):
        raise InvalidParameter("features", record, must_be=must_be) from None
    # As text, since 8 == 8.0 == True would be other records of the same map.
    if json.dumps(found.as_record(), sort_keys=True) != json.dumps(record, sort_keys=True):
        raise InvalidParameter("features", record, must_be=must_be)
    return found


def encoded_maps(encoding: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Records of the fixed maps that a model's file applies to rows."""
    steps = encoding.get("steps", ())
    return [dict(one["map"]) for one in steps if one["step"] == FEATURE_STEP]


def map_in_words(record: Mapping[str, Any]) -> str:
    """The kind and the parameters of a record, in a line.

    Examples
    --------
    >>> map_in_words(FourierMap(3, 8, 1.0, seed=0).as_record())
    'fourier (columns 3, components 8, gamma 1.0, seed 0), norm bound 1.0'
    """
    named = {name: value for name, value in record.items() if name not in ("kind", "norm bound")}
    texts = [
        f"{name.replace('_', ' ')} {'x'.join(map(str, v)) if isinstance(v, list) else v}"
        for name, v in named.items()
        if not (isinstance(v, list) and len(v) > 3)
    ]
    return f"{record['kind']} ({', '.join(texts)}), norm bound {record['norm bound']}"


def map_from_text(text: str, columns: int) -> FeatureMap:
    """The map that a command's option names, of rows with this many columns.

    Examples
    --------
    >>> map_from_text("scattering:8x8,scales=1", columns=64).width
    144
    >>> map_from_text("fourier:512,gamma=0.5", columns=3).as_record()["gamma"]
    0.5
    """
    kind, _, rest = text.partition(":")
    first, *others = rest.split(",")
    try:
        given = {name.strip(): _value(one) for name, one in (each.split("=") for each in others)}
        found = _of_option(kind.strip(), first.strip(), columns, given)
    except (ValueError, TypeError, LookupError) as error:
        if isinstance(error, LastIterateError):
            raise
        raise InvalidParameter("--features", text, must_be=f"such as {_TEXTS}") from None
    if found.input_width != columns:
        must_be = f"images of {found.input_width} values for --features {text}"
        raise InvalidParameter("the encoded table", must_be=must_be, found=f"rows of {columns}")
    return found


def _of_option(kind: str, first: str, columns: int, given: dict[str, Any]) -> FeatureMap:
    if kind == ScatteringMap.kind:
        sides = [int(side) for side in first.split("x")]
        height, width, channels = sides if len(sides) == 3 else (*sides, 1)
        return ScatteringMap((height, width), channels, **given)
    components = int(first) if first else 2_048
    defaults = {FourierMap.kind: {"gamma": 1.0}, QuadraticMap.kind: {"input_bound": 1.0}}
    settings = {"columns": columns, "components": components, "seed": 0, **defaults[kind], **given}
    return MAPS[kind](**settings)


def _value(text: str) -> float | int | bool:
    plain = text.strip()
    if plain in ("true", "false"):
        return plain == "true"
    return int(plain) if plain.lstrip("-").isdigit() else float(plain)

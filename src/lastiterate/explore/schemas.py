"""The shapes of runs and of answers, as JSON schemas."""

from __future__ import annotations

from typing import Any

from lastiterate.explore.model_kinds import MODELS
from lastiterate.run.adjacency import ADJACENCIES
from lastiterate.run.description import NAMES
from lastiterate.run.training_run import RELEASES

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 1}
POSITIVE: Schema = {"type": "number", "exclusiveMinimum": 0}
AT_LEAST_0: Schema = {"type": "number", "minimum": 0}
NUMBER: Schema = {"type": "number"}
EPSILON: Schema = {"oneOf": [AT_LEAST_0, {"const": "inf"}]}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def table(properties: dict[str, Schema], *, required: tuple[str, ...] | None = None) -> Schema:
    """An object with these properties and no other; all of them are there unless told."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties if required is None else required),
        "additionalProperties": False,
    }


def _or_null(schema: Schema) -> Schema:
    return {"oneOf": [schema, {"type": "null"}]}


_EITHER: Schema = {"oneOf": [POSITIVE, _list(POSITIVE)]}  # constant, or one for each step
_NOISE: Schema = {"oneOf": [AT_LEAST_0, _list(AT_LEAST_0)]}
RUN = table(
    {
        "examples": COUNT,
        "batch_size": COUNT,
        "sample_rate": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "batches": {"type": "string", "enum": list(NAMES)},
        "epochs": POSITIVE,
        "steps": COUNT,
        "step_size": _EITHER,
        "noise_std": _NOISE,
        "noise_multiplier": AT_LEAST_0,
        "clip_norm": POSITIVE,
        "sensitivity": POSITIVE,
        "smoothness": AT_LEAST_0,
        "strong_convexity": AT_LEAST_0,
        "regulariser": AT_LEAST_0,
        "lipschitz": POSITIVE,
        "convex": FLAG,
        "holder": {**_list(NUMBER), "minItems": 2, "maxItems": 2},
        "diameter": POSITIVE,
        "release_noise_std": AT_LEAST_0,
        "adjacency": {"type": "string", "enum": list(ADJACENCIES)},
        "releases": {
            "type": "string",
            "enum": list(RELEASES),
        },
        "examples_per_person": COUNT,
        "model": {"type": "string", "enum": list(MODELS)},
        "feature_norm": POSITIVE,
    },
    required=("examples",),
)
_BOUND = table(
    {
        "id": TEXT,
        "epsilon": EPSILON,
        "epsilon_text": TEXT,
        "mu_text": TEXT,
        "times": TEXT,
        "used": FLAG,
        "source": TEXT,
    }
)
_COMPOSED = {"bound": TEXT, "epsilon": EPSILON, "epsilon_text": TEXT, "times": TEXT}
_UNMET = {"bounds": _list(TEXT), "needs": TEXT, "found": TEXT, "remedy": TEXT}
_CURVES: Schema = {"type": "object", "additionalProperties": _list(_or_null(EPSILON))}
GIVES: dict[str, Schema] = {
    "account": table(
        {
            "epsilon": EPSILON,
            "epsilon_text": TEXT,
            "delta": NUMBER,
            "delta_text": TEXT,
            "warning": _or_null(TEXT),
            "draft": FLAG,
            "if": TEXT,
            "bound": TEXT,
            "kind": TEXT,
            "why": TEXT,
            "done": TEXT,
            "composition": _or_null(table(_COMPOSED)),
            "bounds": _list(_BOUND),
            "unmet": _list(table(_UNMET)),
        }
    ),
    "witness": table(
        {
            "bound": _or_null(TEXT),
            "epsilon": EPSILON,
            "epsilon_text": TEXT,
            "ratio": EPSILON,
            "ratio_text": TEXT,
            "says": TEXT,
        }
    ),
    "curve": table(
        {"across": TEXT, "x": _list(POSITIVE), "here": _or_null(NUMBER), "curves": _CURVES}
    ),
    "tradeoff": table(
        {
            "across": TEXT,
            "x": _list(AT_LEAST_0),
            "curves": _CURVES,
            "best": TEXT,
            "told": table({"false_positives": _list(TEXT), "false_negatives": _list(TEXT)}),
            "advantage": TEXT,
        }
    ),
    "plan": table(
        {
            "across": TEXT,
            "x": _list(COUNT),
            "distance": _list(AT_LEAST_0),
            "paid": _list(AT_LEAST_0),
            "arrived": _list(AT_LEAST_0),
            "paid_on_release": AT_LEAST_0,
            "mu_text": TEXT,
            "who": _list(table({"who": TEXT, "share": NUMBER, "share_text": TEXT})),
            "says": TEXT,
        }
    ),
    "calibrate": table(
        {
            "epsilon": EPSILON,
            "epsilon_text": TEXT,
            "steps": COUNT,
            "epochs": POSITIVE,
            "epochs_text": TEXT,
            "noise_std": NUMBER,
            "noise_multiplier": _or_null(NUMBER),
            "release_noise_std": NUMBER,
            "run": {"type": "object"},
        }
    ),
    "unlearning": table(
        {
            "extra_steps": {"type": "integer", "minimum": 0},
            "share_of_training": AT_LEAST_0,
            "epsilon": EPSILON,
            "epsilon_text": TEXT,
            "bound": TEXT,
        }
    ),
    "remedies": table(
        {
            "remedies": _list(
                table(
                    {
                        "says": TEXT,
                        "epsilon": EPSILON,
                        "epsilon_text": TEXT,
                        "words": {"type": "object"},
                    }
                )
            )
        }
    ),
    "verify": table(
        {
            "holds": FLAG,
            "reasons": _list(TEXT),
            "statement": TEXT,
            "epsilon_text": TEXT,
            "delta": NUMBER,
            "bound": TEXT,
            "assumptions": _list(TEXT),
            "release": TEXT,
            "voided_by": _list(TEXT),
            "unchecked": _list(TEXT),
            "words": _or_null({"type": "object"}),
            "words_leave_out": TEXT,
        },
        required=("holds", "reasons"),
    ),
    "code": table({"python": TEXT, "command": TEXT, "toml": TEXT}),
    "report": table({"html": TEXT}),
}

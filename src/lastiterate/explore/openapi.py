"""An OpenAPI document of the questions and their answers."""

from __future__ import annotations

from typing import Any

import lastiterate
from lastiterate.accounting import USUAL_DELTA
from lastiterate.explore.answers import TAKES
from lastiterate.explore.guard import LARGEST_BODY, TOKEN_HEADER
from lastiterate.explore.presets import FIRST, PRESETS
from lastiterate.explore.schemas import (
    AT_LEAST_0,
    COUNT,
    FLAG,
    GIVES,
    POSITIVE,
    RUN,
    TEXT,
    Schema,
    table,
)

_IN_OPEN_INTERVAL: Schema = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
_ASKED: dict[str, Schema] = {
    "run": {"$ref": "#/components/schemas/Run"},
    "delta": {**_IN_OPEN_INTERVAL, "default": USUAL_DELTA},
    "draft": {
        **FLAG,
        "default": False,
        "description": "only what can be computed at once; certified, but a full answer is lower",
    },
    "epsilon": POSITIVE,
    "extra_steps": {"type": "integer", "minimum": 0},
    "examples": {**COUNT, "default": 1, "description": "how many go at once"},
    "certificate": {**TEXT, "description": "the text of a certificate.json"},
    "lane": {
        **TEXT,
        "maxLength": 100,
        "description": "a later question of the same lane stops this one",
    },
}
_OVER = {
    "curve": ["epochs", "noise", "extra_steps"],
    "calibrate": ["noise_std", "release_noise_std", "noise", "steps"],
}
_REQUIRED = {"calibrate": ("run", "epsilon"), "verify": ("certificate",)}
_SAYS = {
    "account": "Epsilon, the bound that certifies it, every other bound, and those that fail.",
    "witness": "A lower bound: what some model of such a run really leaks.",
    "curve": "Epsilon of every bound by epochs, by noise, or by steps of unlearning.",
    "tradeoff": "The least misses of any attacker at each rate of false alarms.",
    "plan": "How far two runs are apart after each step, and whose noise hides that.",
    "calibrate": "The least noise, or the most steps, for an epsilon.",
    "unlearning": "What extra steps without some examples promise these, or the fewest for an "
    "epsilon; give either.",
    "remedies": "Small changes of the run that lower epsilon.",
    "verify": "Whether a certificate holds; nothing but its text is read, and it is not kept.",
    "code": "The run as Python, as a command line and as TOML.",
    "report": "The report as an HTML page.",
}
_ERRORS = {
    "400": "what was asked means nothing; the message names it",
    "403": "no token, or another site asks",
    "409": "a later question of this lane superseded it",
    "413": f"more than {LARGEST_BODY:,} bytes",
    "422": "there is no such answer: no bound applies, or the target is out of reach",
    "503": "it took too long, needs too much memory, or too much is asked at once",
}


def document() -> Schema:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "lastiterate explore",
            "version": lastiterate.__version__,
            "description": "The questions that the page of `lastiterate explore` asks. "
            'A number that is not finite is the string "inf".',
        },
        "security": [{"token": []}],
        "paths": {f"/api/{question}": {"post": _operation(question)} for question in TAKES},
        "components": {
            "schemas": {"Run": RUN, "Error": table({"error": TEXT})},
            "securitySchemes": {
                "token": {"type": "apiKey", "in": "header", "name": TOKEN_HEADER.decode()}
            },
        },
    }


def asked(question: str) -> Schema:
    """The schema of a question's body."""
    properties = {name: _ASKED[name] for name in TAKES[question] if name != "over"}
    if question == "calibrate":
        properties["epsilon"] = AT_LEAST_0  # 0 is for delta alone
    if question in _OVER:
        listed = _OVER[question]
        properties["over"] = {"type": "string", "enum": listed, "default": listed[0]}
    lane = {"lane": _ASKED["lane"]}
    return table(properties | lane, required=_REQUIRED.get(question, ("run",)))


def _operation(question: str) -> Schema:
    body: Schema = {"schema": asked(question)}
    if question != "verify":
        body["example"] = _EXAMPLES.get(question, {}) | {"run": PRESETS[FIRST]}
    answers = {"200": {"description": "the answer", "content": _json(GIVES[question])}}
    error = _json({"$ref": "#/components/schemas/Error"})
    answers |= {
        status: {"description": says} | ({} if status in ("403", "413") else {"content": error})
        for status, says in _ERRORS.items()
    }
    return {
        "operationId": question,
        "summary": _SAYS[question],
        "requestBody": {"required": True, "content": {"application/json": body}},
        "responses": answers,
    }


_EXAMPLES: dict[str, dict[str, Any]] = {
    "calibrate": {"epsilon": 0.5},
    "unlearning": {"epsilon": 0.1},
}


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}

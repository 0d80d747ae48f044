"""The document says what the server does: nothing less is accepted, and nothing else answered."""

import dataclasses
import math

import pytest

from lastiterate.explore.answers import QUESTIONS, answered
from lastiterate.explore.openapi import asked, document
from lastiterate.explore.presets import FIRST, PRESETS
from lastiterate.explore.schemas import RUN
from lastiterate.run.description import Description

from .asgi import HOST

DOCUMENT = document()
OPERATIONS = {path.removeprefix("/api/"): one["post"] for path, one in DOCUMENT["paths"].items()}


def given(question):
    return OPERATIONS[question]["responses"]["200"]["content"]["application/json"]["schema"]


def fits(value, schema):
    """Whether JSON schema admits a value, for the words that the document uses."""
    if "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    unknown = set(schema) - WORDS
    assert not unknown, unknown
    if "oneOf" in schema:
        return sum(fits(value, one) for one in schema["oneOf"]) == 1
    if "const" in schema:
        return value == schema["const"]
    if not KINDS[schema["type"]](value) or value not in schema.get("enum", [value]):
        return False
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return (
            value >= schema.get("minimum", -math.inf)
            and value <= schema.get("maximum", math.inf)
            and value > schema.get("exclusiveMinimum", -math.inf)
            and value < schema.get("exclusiveMaximum", math.inf)
        )
    if isinstance(value, list):
        return all(fits(one, schema["items"]) for one in value)
    if isinstance(value, dict):
        properties, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        return set(schema.get("required", ())) <= set(value) and all(
            fits(one, properties[name])
            if name in properties
            else (more if isinstance(more, bool) else fits(one, more))
            for name, one in value.items()
        )
    return True


WORDS = {"type", "enum", "const", "oneOf", "minimum", "maximum", "exclusiveMinimum", "default"}
WORDS |= {"exclusiveMaximum", "items", "minItems", "maxItems", "maxLength", "properties"}
WORDS |= {"required", "additionalProperties", "description", "$ref"}
KINDS = {
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
    "null": lambda v: v is None,
}


def outside(schema):
    """Values that the schema does not admit, near its edges and of other kinds."""
    candidates = ["nonsense", {}, [[]], True, -1, 0, 1, 1.5, 10**400, -0.5, [-1], [1, 2, 3]]
    return [one for one in candidates if not fits(one, schema) and one != 10**400]


def test_every_question_is_described():
    assert list(OPERATIONS) == list(QUESTIONS)
    assert {one["operationId"] for one in OPERATIONS.values()} == set(QUESTIONS)


def test_it_is_served(client):
    assert client.send("GET", "/api/openapi.json").json() == DOCUMENT
    assert client.send("GET", "/api/openapi.json", headers={"host": HOST}).status == 403


@pytest.mark.parametrize(
    "question",
    [
        pytest.param(one, marks=[pytest.mark.slow] if one == "report" else [])
        for one in QUESTIONS
        if one != "verify"
    ],
)
def test_the_example_is_answered_as_described(question):
    body = OPERATIONS[question]["requestBody"]["content"]["application/json"]
    assert fits(body["example"], body["schema"])
    assert fits(answered(question, body["example"]), given(question))


@pytest.mark.parametrize("over", ["noise", "extra_steps"])
def test_other_curves_are_as_described(over):
    schema = given("curve")
    assert fits(answered("curve", {"run": PRESETS[FIRST], "over": over}), schema)


def test_verdicts_are_as_described(certificate):
    schema = given("verify")
    held = answered("verify", {"certificate": certificate})
    assert held["holds"]
    assert fits(held, schema)
    assert fits(answered("verify", {"certificate": "{}"}), schema)


def test_an_infinite_epsilon_is_as_described():
    words = PRESETS[FIRST] | {"noise_multiplier": 1e-300}
    told = answered("account", {"run": words})
    assert told["epsilon"] == "inf"
    schema = given("account")
    assert fits(told, schema)


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_is_not_described_is_refused(client, question):
    schema = asked(question)
    usual = {"certificate": "{}"} if question == "verify" else {"run": PRESETS[FIRST]}
    if question == "calibrate":
        usual["epsilon"] = 0.5
    if question == "unlearning":
        usual["extra_steps"] = 3
    assert fits(usual, schema)
    wrong = [usual | {"nonsense": 1}]
    wrong += [{k: v for k, v in usual.items() if k != name} for name in schema["required"]]
    for name, one in schema["properties"].items():
        if name not in ("run", "lane"):
            wrong += [usual | {name: value} for value in outside(one)]
    wrong += [usual | {"lane": 7}, usual | {"lane": "x" * 101}]
    for record in wrong:
        reply = client.ask(question, record)
        assert reply.status == 400, (record, reply.body[:200])
        assert fits(reply.json(), DOCUMENT["components"]["schemas"]["Error"])


SMALL = {"examples": 1_000, "steps": 20, "batches": "cyclic", "batch_size": 100, "smoothness": 1.0}
SMALL |= {"step_size": 0.1}
CLIPPED = SMALL | {"noise_multiplier": 2.0, "clip_norm": 1.0}
PLAIN = SMALL | {"noise_std": 0.1, "sensitivity": 1.0}


class TestRuns:
    def test_all_words_are_described_and_no_other(self):
        names = {entry.name for entry in dataclasses.fields(Description)}
        assert set(RUN["properties"]) == names - {"domain"} | {"model", "feature_norm"}

    @pytest.mark.parametrize("name", RUN["properties"])
    def test_values_that_are_not_described_are_refused(self, client, name):
        usual = PLAIN if name in ("noise_std", "sensitivity") else CLIPPED
        if name == "feature_norm":
            usual = usual | {"model": "logistic"}
        assert fits(usual, RUN)
        for value in outside(RUN["properties"][name]):
            reply = client.ask("code", {"run": usual | {name: value}})
            assert reply.status == 400, (value, reply.body[:200])

    @pytest.mark.parametrize(
        "more",
        [
            {"step_size": [0.1] * 20},
            {"diameter": 2.0},
            {"lipschitz": 1.0, "strong_convexity": 0.1},
            {"regulariser": 0.1},
            {"convex": False},
            {"smoothness": 0},
            {"releases": "every-iterate"},
            {"adjacency": "replace", "examples_per_person": 2},
            {"model": "logistic", "feature_norm": 2},
            {"release_noise_std": 0.1},
        ],
    )
    def test_values_that_are_described_are_answered(self, client, more):
        words = CLIPPED | more
        assert fits(words, RUN)
        reply = client.ask("account", {"run": words})
        assert reply.status == 200, reply.body[:200]
        assert reply.json()["epsilon"] > 0.0


def test_the_page_of_the_document_is_served(client):
    reply = client.send("GET", "/page/api.html", headers={"host": HOST})
    assert reply.status == 200
    assert b"api-page.js" in reply.body

"""Every question refuses bad input, in words, and answers good input."""

import dataclasses

import pytest

from lastiterate.explore.answers import QUESTION_KEYS, QUESTIONS, answer
from lastiterate.explore.server import FIRST, PRESETS
from lastiterate.run.description import Description

CERTIFICATE = "{}"
NO_NUMBER = ["nonsense", {}, [[]], True, None]
NOT_ABOVE_0 = [*NO_NUMBER, -1, 0]
BELOW_0 = [*NO_NUMBER, -1]
NO_COUNT = [*NOT_ABOVE_0, 1.5]
NO_WORD = ["nonsense", {}, [[]], True, 1]
NO_FLAG = ["nonsense", {}, [[]], 1, 0]
BAD_VALUES = {
    "delta": [*NOT_ABOVE_0, 1, 1.5],
    "draft": NO_FLAG,
    "over": NO_WORD,
    "epsilon": BELOW_0,
    "extra_steps": [*BELOW_0, 1.5],
    "examples": NO_COUNT,
    "certificate": [{}, [], 1, True],
    "run": ["nonsense", [], 1, True, {}],
    "lane": [7, "x" * 101],
}
REQUIRED = {"calibrate": ("run", "epsilon"), "verify": ("certificate",)}


def good_question(question):
    good = {"certificate": CERTIFICATE} if question == "verify" else {"run": PRESETS[FIRST]}
    if question == "calibrate":
        good["epsilon"] = 0.5
    if question == "unlearning":
        good["extra_steps"] = 3
    return good


def test_every_question_has_keys():
    assert list(QUESTIONS) == list(QUESTION_KEYS)
    assert {name for names in QUESTION_KEYS.values() for name in names} < set(BAD_VALUES)


@pytest.mark.parametrize("question", QUESTIONS)
def test_bad_questions_are_refused_in_words(client, question):
    good = good_question(question)
    bad = [good | {"nonsense": 1}]
    bad += [
        {key: value for key, value in good.items() if key != name}
        for name in REQUIRED.get(question, ("run",))
    ]
    for name in (*QUESTION_KEYS[question], "lane"):
        bad += [good | {name: value} for value in BAD_VALUES[name]]
    for record in bad:
        reply = client.ask(question, record)
        assert reply.status == 400, (record, reply.body[:200])
        assert len(reply.json()["error"]) > 10


@pytest.mark.parametrize("over", ["epochs", "noise", "extra_steps"])
def test_curves_have_a_value_at_each_x(over):
    curve = answer("curve", {"run": PRESETS[FIRST], "over": over})
    assert curve["curves"]
    assert {len(values) for values in curve["curves"].values()} == {len(curve["x"])}


def test_an_infinite_epsilon_is_the_text_inf():
    words = PRESETS[FIRST] | {"noise_multiplier": 1e-300}
    assert answer("account", {"run": words})["epsilon"] == "inf"


SMALL = {"examples": 1_000, "steps": 20, "batches": "cyclic", "batch_size": 100, "smoothness": 1.0}
SMALL |= {"step_size": 0.1}
CLIPPED = SMALL | {"noise_multiplier": 2.0, "clip_norm": 1.0}
PLAIN = SMALL | {"noise_std": 0.1, "sensitivity": 1.0}
MAY_BE_LEFT_OUT = [one for one in NOT_ABOVE_0 if one is not None]
BAD_RUN_VALUES = {
    **dict.fromkeys(("examples", "examples_per_person"), NO_COUNT),
    **{key: [*MAY_BE_LEFT_OUT, 1.5] for key in ("batch_size", "steps")},
    "sample_rate": [*MAY_BE_LEFT_OUT, 1.5],
    **dict.fromkeys(("batches", "adjacency", "releases", "model"), NO_WORD),
    **dict.fromkeys(("epochs", "clip_norm", "sensitivity", "diameter"), MAY_BE_LEFT_OUT),
    "step_size": [*MAY_BE_LEFT_OUT, [-1], [0.1, 0.1]],
    "noise_std": ["nonsense", {}, True, -1, [-1], [0.1, 0.1]],
    **{key: ["nonsense", {}, [[]], True, -1] for key in ("noise_multiplier", "smoothness")},
    **dict.fromkeys(("strong_convexity", "regulariser", "release_noise_std"), BELOW_0),
    "lipschitz": MAY_BE_LEFT_OUT,
    "outputs": [*MAY_BE_LEFT_OUT, 1.5],
    "convex": NO_FLAG,
    "holder": ["nonsense", 1, [1], [1, 2, 3], [-1, -1]],
    "feature_norm": NOT_ABOVE_0,
    "momentum": [*BELOW_0, 1.0, [0.9, 0.9]],
    "dampening": [*BELOW_0, 0.5],  # without momentum
    "nesterov": NO_FLAG,
    "buffer_resets": ["nonsense", 1, [1], [1.5], [7]],
}


class TestRuns:
    def test_there_are_bad_values_for_every_name(self):
        names = {entry.name for entry in dataclasses.fields(Description)}
        assert set(BAD_RUN_VALUES) == names - {"domain", "average"} | {"model", "feature_norm"}

    @pytest.mark.parametrize("name", BAD_RUN_VALUES)
    def test_bad_values_are_refused(self, client, name):
        good = PLAIN if name in ("noise_std", "sensitivity") else CLIPPED
        if name == "feature_norm":
            good = good | {"model": "logistic"}
        for value in BAD_RUN_VALUES[name]:
            reply = client.ask("code", {"run": good | {name: value}})
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
    def test_good_values_are_answered(self, client, more):
        reply = client.ask("account", {"run": CLIPPED | more})
        assert reply.status == 200, reply.body[:200]
        assert reply.json()["epsilon"] > 0.0

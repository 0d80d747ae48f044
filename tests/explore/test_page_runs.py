"""Runs in the words of the page: described, refused, and taken away as files and code."""

import dataclasses
import json
import shlex

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.bounds.conditions import CONVEX
from lastiterate.cli import main
from lastiterate.errors import InvalidParameter
from lastiterate.explore.answers import answer
from lastiterate.explore.page_runs import constants, page_words, run_from_page
from lastiterate.explore.server import PRESETS
from lastiterate.run.batch_rules.base import RULES
from lastiterate.run.description import Description

CYCLIC = PRESETS["Million-row logistic"]
NO_NUMBER = ["nonsense", {}, [[]], True, None]
NOT_ABOVE_0 = [*NO_NUMBER, -1, 0]
BELOW_0 = [*NO_NUMBER, -1]
NO_COUNT = [*NOT_ABOVE_0, 1.5]
NO_WORD = ["nonsense", {}, [[]], True, 1]
NO_FLAG = ["nonsense", {}, [[]], 1, 0]
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


class TestKindsOfModels:
    def test_logistic_gradients_are_below_the_norm_and_the_clip(self):
        words = {"model": "logistic", "feature_norm": 2.0, "regulariser": 0.5}
        said = constants(words)
        assert said["lipschitz"] >= 2.0
        assert said["smoothness"] >= 0.25 * 4.0 + 0.5
        assert constants(words | {"clip_norm": 1.0})["lipschitz"] == 1.0

    def test_a_clipped_softmax_is_not_taken_for_convex(self):
        words = CYCLIC | {"model": "softmax", "clip_norm": 1.0}
        assert run_from_page(words).clip_may_be_active
        assert CONVEX not in CATALOGUE[answer("account", {"run": words})["bound"]].needs
        assert not run_from_page(words | {"clip_norm": 1.5}).clip_may_be_active

    def test_curvature_and_gradients_are_at_least_those_of_the_losses(self):
        """By differences along the row, of norm 1, over scores far and near."""
        scores = np.linspace(-8, 8, 4001)
        softmax = np.exp(scores) / (np.exp(scores) + 1.0)  # of two classes, which are the worst
        for name, residuals in (
            ("logistic", 1.0 / (1.0 + np.exp(-scores))),
            ("linear", scores),
            ("softmax", 2**0.5 * softmax),
        ):
            said = constants({"model": name, "feature_norm": 1.0, "clip_norm": 100.0})
            slopes = np.diff(residuals) / np.diff(scores)
            slope = slopes.max() * (2**0.5 if name == "softmax" else 1.0)
            assert said["smoothness"] >= slope * (1 - 1e-9), name
            assert said["lipschitz"] >= residuals.max(), name

    def test_nothing_is_stated_of_an_unknown_model(self):
        assert not run_from_page(CYCLIC | {"model": "unknown"}).loss.convex

    def test_other_kinds_are_refused(self):
        with pytest.raises(InvalidParameter, match="model must be one of"):
            constants({"model": "transformer"})


class TestTakeAway:
    @pytest.mark.parametrize("name", PRESETS)
    def test_toml_and_python_are_the_same_run(self, name):
        told = answer("code", {"run": PRESETS[name]})
        run = run_from_page(PRESETS[name])
        assert li.TrainingRun.from_toml(told["toml"]) == run
        scope = {}
        exec(told["python"].rpartition("print(")[0], scope)
        assert scope["run"] == run

    @pytest.mark.parametrize("model", ["logistic", "softmax", "unknown"])
    def test_the_command_prints_the_pages_number(self, capsys, model):
        words = CYCLIC | {"model": model}
        told = answer("code", {"run": words, "delta": 1e-6})
        assert main([*shlex.split(told["command"])[1:], "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        expected = answer("account", {"run": words, "delta": 1e-6})
        assert printed["epsilon"] == expected["epsilon"]


class TestWordsOfARun:
    @pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.from_sizes])
    def test_describe_it(self, name):
        words = {"examples": 1000, "batches": name, "steps": 30, "step_size": 0.1}
        words |= {"noise_multiplier": 2.0, "clip_norm": 1.0, "smoothness": 1.0, "diameter": 3.0}
        if RULES[name].ordered:
            words["batch_size"] = 100
        run = run_from_page(words)
        assert run_from_page(page_words(run)) == run

    def test_schedules_have_no_slider(self):
        run = run_from_page({**CYCLIC, "epochs": 1}).replace(noise_std=(0.1,) * 50 + (0.2,) * 50)
        with pytest.raises(InvalidParameter, match="one step size, one noise"):
            page_words(run)

"""The page's numbers are the library's."""

import itertools
import json
import math
import shlex

import numpy as np
import pytest

import lastiterate as li
from lastiterate._digits import up
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.bounds.conditions import CONVEX
from lastiterate.cli import main
from lastiterate.errors import InvalidParameter
from lastiterate.explore.answers import answered
from lastiterate.explore.described import run_of, words_of
from lastiterate.explore.models import constants
from lastiterate.explore.presets import FIRST, PRESETS
from lastiterate.run.batches import RULES

from .random_runs import random_words

CYCLIC = PRESETS["Million-row logistic"]


@pytest.mark.parametrize("many", [30, pytest.param(200, marks=pytest.mark.slow)])
def test_epsilon_is_that_of_account_over_random_runs(many):
    rng = np.random.default_rng(many)
    for _ in range(many):
        words, delta = random_words(rng), float(10 ** rng.uniform(-9, -3))
        told = answered("account", {"run": words, "delta": delta})
        report = li.account(run_of(words))
        epsilon = report.epsilon(delta)
        assert told["epsilon"] == ("inf" if epsilon == math.inf else epsilon), words
        assert told["epsilon_text"] == up(epsilon), words
        assert told["bound"] == report.bound_at(delta), words


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_answered(name):
    told = answered("account", {"run": PRESETS[name]})
    assert 0.0 < told["epsilon"] < 10.0
    assert told["composition"]["epsilon"] >= told["epsilon"]
    if PRESETS[name]["model"] == "unknown":  # charged for by the best of those bounds
        assert told["composition"]["epsilon"] == told["epsilon"]


def test_the_first_preset_is_one():
    assert FIRST in PRESETS


class TestKindsOfModels:
    def test_logistic_gradients_are_below_the_norm_and_the_clip(self):
        words = {"model": "logistic", "feature_norm": 2.0, "regulariser": 0.5}
        said = constants(words)
        assert said["lipschitz"] >= 2.0
        assert said["smoothness"] >= 0.25 * 4.0 + 0.5
        assert constants(words | {"clip_norm": 1.0})["lipschitz"] == 1.0

    def test_a_clipped_softmax_is_not_taken_for_convex(self):
        words = CYCLIC | {"model": "softmax", "clip_norm": 1.0}
        assert run_of(words).clip_may_be_active
        assert CONVEX not in CATALOGUE[answered("account", {"run": words})["bound"]].needs
        assert not run_of(words | {"clip_norm": 1.5}).clip_may_be_active

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
        assert not run_of(CYCLIC | {"model": "unknown"}).loss.convex

    def test_other_kinds_are_refused(self):
        with pytest.raises(InvalidParameter, match="model must be one of"):
            constants({"model": "transformer"})


class TestCurves:
    def test_by_epochs_passes_through_the_answer(self):
        told = answered("curve", {"run": CYCLIC, "over": "epochs"})
        answer = answered("account", {"run": CYCLIC})
        here = told["x"].index(told["here"])
        assert told["curves"][answer["bound"]][here] == answer["epsilon"]
        assert told["x"] == sorted(told["x"])

    def test_by_noise_falls(self):
        told = answered("curve", {"run": CYCLIC, "over": "noise"})
        assert told["here"] in told["x"]
        for values in told["curves"].values():
            assert all(a > b for a, b in itertools.pairwise(values))

    def test_an_attacker_misses_no_more_than_the_bound_says(self):
        told = answered("tradeoff", {"run": CYCLIC})
        report = li.account(run_of(CYCLIC))
        profile = report.all[told["best"]]
        for rate, misses in list(zip(told["x"], told["curves"][told["best"]], strict=True))[::9]:
            assert misses <= profile.tradeoff(rate) + 1e-12
            assert misses >= profile.tradeoff(rate) - 0.02


def test_the_witness_is_the_reports():
    told, report = answered("witness", {"run": CYCLIC}), li.account(run_of(CYCLIC))
    assert told["epsilon"] == report.lower.epsilon(1e-5)
    assert told["ratio"] == report.ratio_to_lower_bound(1e-5)


def test_what_is_said_to_lower_epsilon_does():
    told = answered("remedies", {"run": CYCLIC})["remedies"]
    present = li.account(run_of(CYCLIC)).epsilon(1e-5)
    assert len(told) >= 3
    for one in told:
        assert li.account(run_of(CYCLIC | one["words"])).epsilon(1e-5) == one["epsilon"] < present


def test_the_least_noise_meets_the_target():
    told = answered("calibrate", {"run": CYCLIC, "epsilon": 0.5})
    found = CYCLIC | {"noise_multiplier": told["noise_multiplier"] * (1 + 1e-12)}
    assert li.account(run_of(found)).epsilon(1e-5) <= 0.5
    less = CYCLIC | {"noise_multiplier": told["noise_multiplier"] * 0.999}
    assert li.account(run_of(less)).epsilon(1e-5) > 0.5


@pytest.mark.parametrize("size", [7, 10, 300])
def test_the_most_epochs_are_as_many_steps_on_the_page(size):
    words = CYCLIC | {"examples": 1_000, "batch_size": size, "noise_multiplier": 20.0}
    words |= {"model": "unknown"}
    told = answered("calibrate", {"run": words, "epsilon": 1.0, "over": "steps"})
    assert 1 < told["steps"] < 10**6
    assert run_of(words | {"epochs": told["epochs"]}).steps == told["steps"]


class TestTakeAway:
    @pytest.mark.parametrize("name", PRESETS)
    def test_toml_and_python_are_the_same_run(self, name):
        told = answered("code", {"run": PRESETS[name]})
        run = run_of(PRESETS[name])
        assert li.TrainingRun.from_toml(told["toml"]) == run
        scope = {}
        exec(told["python"].rpartition("print(")[0], scope)
        assert scope["run"] == run

    @pytest.mark.parametrize("model", ["logistic", "softmax", "unknown"])
    def test_the_command_prints_the_pages_number(self, capsys, model):
        words = CYCLIC | {"model": model}
        told = answered("code", {"run": words, "delta": 1e-6})
        assert main([*shlex.split(told["command"])[1:], "--json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        expected = answered("account", {"run": words, "delta": 1e-6})
        assert printed["epsilon"] == expected["epsilon"]


class TestWordsOfARun:
    @pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.from_sizes])
    def test_describe_it(self, name):
        words = {"examples": 1000, "batches": name, "steps": 30, "step_size": 0.1}
        words |= {"noise_multiplier": 2.0, "clip_norm": 1.0, "smoothness": 1.0, "diameter": 3.0}
        if RULES[name].ordered:
            words["batch_size"] = 100
        run = run_of(words)
        assert run_of(words_of(run)) == run

    def test_schedules_have_no_slider(self):
        run = run_of({**CYCLIC, "epochs": 1}).replace(noise_std=(0.1,) * 50 + (0.2,) * 50)
        with pytest.raises(InvalidParameter, match="one step size, one noise"):
            words_of(run)

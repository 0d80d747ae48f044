"""The page's numbers are the library's."""

import itertools
import json
import math
import shlex

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lastiterate as li
from lastiterate._display import up
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.bounds.conditions import CONVEX
from lastiterate.bounds.fixed_order.convex import worst_schedule
from lastiterate.cli import main
from lastiterate.errors import InvalidParameter
from lastiterate.explore.answers import answer
from lastiterate.explore.page_runs import constants, page_words, run_from_page
from lastiterate.explore.server import FIRST, PRESETS, page_options, usual_delta
from lastiterate.run.batch_rules.base import RULES

from .random_runs import FIXED, SECRET, random_words

CYCLIC = PRESETS["Million-row logistic"]


@pytest.mark.parametrize("many", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_epsilon_is_that_of_account_over_random_runs(client, many):
    """To the last digit, through the server; one in ten of the many is drawn in secret."""
    rng = np.random.default_rng(many)
    for number in range(many):
        secret = many > 20 and number % 10 == 0
        words = random_words(rng, orders=SECRET if secret else FIXED)
        delta = float(10 ** rng.uniform(-9, -3))
        told = client.ask("account", {"run": words, "delta": delta}).json()
        report = li.account(run_from_page(words))
        epsilon = report.epsilon(delta)
        assert told["epsilon"] == ("inf" if epsilon == math.inf else epsilon), words
        assert told["epsilon_text"] == up(epsilon), words
        assert told["bound"] == report.bound_at(delta), words


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_answered(name):
    told = answer("account", {"run": PRESETS[name]})
    assert 0.0 < told["epsilon"] < 10.0
    assert told["composition"]["epsilon"] >= told["epsilon"]
    if PRESETS[name]["model"] == "unknown":  # charged for by the best of those bounds
        assert told["composition"]["epsilon"] == told["epsilon"]


def test_the_first_preset_is_one():
    assert FIRST in PRESETS


class TestDelta:
    def test_presets_begin_below_one_over_their_examples(self):
        offer = page_options(None)
        assert offer["delta"] == offer["deltas"][FIRST]
        for name, words in PRESETS.items():
            delta = offer["deltas"][name]
            assert delta * words["examples"] < 1.0
            assert answer("account", {"run": words, "delta": delta})["warning"] is None

    @given(examples=st.integers(1, 10**12))
    def test_one_to_begin_with(self, examples):
        delta = usual_delta(examples)
        assert delta <= 1e-5
        assert delta == 1e-5 or delta * examples <= 0.1 * (1 + 1e-9)
        assert delta * examples < 1.0

    def test_one_that_is_too_large_is_warned_of(self):
        told = answer("account", {"run": CYCLIC, "delta": 1e-6})
        assert "delta = 1e-06 is not below 1/examples" in told["warning"]
        assert answer("account", {"run": CYCLIC, "delta": 9.9e-7})["warning"] is None


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


class TestCurves:
    def test_by_epochs_passes_through_the_answer(self):
        told = answer("curve", {"run": CYCLIC, "over": "epochs"})
        account = answer("account", {"run": CYCLIC})
        here = told["x"].index(told["here"])
        assert told["curves"][account["bound"]][here] == account["epsilon"]
        assert told["x"] == sorted(told["x"])

    def test_by_noise_falls(self):
        told = answer("curve", {"run": CYCLIC, "over": "noise"})
        assert told["here"] in told["x"]
        for values in told["curves"].values():
            assert all(a > b for a, b in itertools.pairwise(values))

    def test_an_attacker_misses_no_more_than_the_bound_says(self):
        told = answer("tradeoff", {"run": CYCLIC})
        report = li.account(run_from_page(CYCLIC))
        profile = report.all[told["best"]]
        for rate, misses in list(zip(told["x"], told["curves"][told["best"]], strict=True))[::9]:
            assert misses <= profile.tradeoff(rate) + 1e-12
            assert misses >= profile.tradeoff(rate) - 0.02


class TestDrafts:
    SHUFFLED = PRESETS["MNIST softmax"]

    def test_are_certified_and_no_less(self):
        draft = answer("account", {"run": self.SHUFFLED, "draft": True})
        whole = answer("account", {"run": self.SHUFFLED})
        assert draft["draft"]
        assert not whole["draft"]
        assert draft["epsilon"] >= whole["epsilon"]
        by_id = {row["id"]: row["epsilon"] for row in whole["bounds"]}
        for row in draft["bounds"]:
            assert by_id[row["id"]] <= row["epsilon"]

    def test_curves_have_the_values_of_whole_ones(self):
        words = CYCLIC | {"epochs": 2}
        draft = answer("curve", {"run": words, "draft": True})
        assert draft["curves"] == answer("curve", {"run": words})["curves"]


class TestPlans:
    def test_distances_are_those_of_the_plan(self):
        words = CYCLIC | {"examples": 1_000, "batch_size": 100, "epochs": 3}
        told, plan = answer("plan", {"run": words}), worst_schedule(run_from_page(words))
        assert told["x"] == list(range(1, 31))
        unit = plan.sensitivities.max()
        np.testing.assert_allclose(told["distance"], plan.shifts.z[1:-1] / unit, rtol=1e-4)
        np.testing.assert_allclose(told["shift"], plan.shifts.a[:-1] / unit, rtol=1e-4)
        seen = [i for i, one in enumerate(told["sensitivity"]) if one]
        assert seen == plan.participations.tolist()

    @pytest.mark.parametrize("release", [0.0, 1e-3])
    def test_whose_noise_hides_what_adds_up(self, release):
        words = CYCLIC | {"release_noise_std": release}
        told = answer("plan", {"run": words})
        assert sum(one["share"] for one in told["noise_shares"]) == pytest.approx(1.0)
        assert (
            "noise on the published model" in {one["noise"] for one in told["noise_shares"]}
        ) == (release > 0.0)

    def test_what_is_neither_hidden_nor_shrunk_is_nothing(self):
        """What arrives is paid, or shrunk: c = 1 - step size times curvature."""
        words = CYCLIC | {"examples": 1_000, "batch_size": 100, "epochs": 3}
        plan, run = worst_schedule(run_from_page(words)), run_from_page(words)
        shrunk = run.step_size * run.loss.strong_convexity * plan.shifts.z[:-1].sum()
        arrived, paid = plan.sensitivities.sum(), plan.shifts.a.sum()
        assert arrived == pytest.approx(paid + shrunk, rel=1e-6)
        said = float(answer("plan", {"run": words})["says"].split("contract ")[1].split(" %")[0])
        assert said == pytest.approx(100.0 * shrunk / arrived, rel=5e-3)

    def test_columns_have_the_largest_of_their_steps(self):
        told, plan = answer("plan", {"run": CYCLIC}), worst_schedule(run_from_page(CYCLIC))
        assert len(told["x"]) == len(told["distance"]) <= 240
        assert told["x"][-1] == 3_000
        largest = plan.shifts.z[1:-1].max() / plan.sensitivities.max()
        assert max(told["distance"]) == pytest.approx(largest, rel=1e-4)

    def test_where_there_is_none_it_is_said(self):
        with pytest.raises(InvalidParameter, match="a single sequence of shifts"):
            answer("plan", {"run": CYCLIC | {"batches": "poisson"}})


class TestUnlearning:
    def test_is_the_librarys(self):
        told = answer("unlearning", {"run": CYCLIC, "epsilon": 0.2, "examples": 2})
        found = li.unlearning(run_from_page(CYCLIC), epsilon=0.2, delta=1e-5, examples=2)
        assert told["extra_steps"] == found.extra_steps
        assert told["epsilon"] == found.epsilon(1e-5) <= 0.2
        assert told["share_of_training"] == found.extra_steps / 3_000
        again = answer("unlearning", {"run": CYCLIC, "extra_steps": 7})
        assert again["epsilon"] == li.unlearning(run_from_page(CYCLIC), extra_steps=7).epsilon(1e-5)

    def test_its_curve_is_too(self):
        told = answer("curve", {"run": CYCLIC, "over": "extra_steps"})
        (values,) = told["curves"].values()
        for steps, epsilon in list(zip(told["x"], values, strict=True))[::5]:
            assert li.unlearning(run_from_page(CYCLIC), extra_steps=steps).epsilon(1e-5) == epsilon
        assert told["x"][-1] == 3_000

    @pytest.mark.parametrize("more", [{}, {"epsilon": 1.0, "extra_steps": 1}])
    def test_either_steps_or_epsilon_is_given(self, more):
        with pytest.raises(InvalidParameter, match="epsilon must be given, or extra_steps"):
            answer("unlearning", {"run": CYCLIC, **more})


def test_the_lower_bound_is_the_reports():
    told, report = answer("lower_bound", {"run": CYCLIC}), li.account(run_from_page(CYCLIC))
    assert told["epsilon"] == report.lower.epsilon(1e-5)
    assert told["ratio"] == report.ratio_to_lower_bound(1e-5)


def test_what_is_said_to_lower_epsilon_does():
    told = answer("remedies", {"run": CYCLIC})["remedies"]
    present = li.account(run_from_page(CYCLIC)).epsilon(1e-5)
    assert len(told) >= 3
    for one in told:
        assert (
            li.account(run_from_page(CYCLIC | one["words"])).epsilon(1e-5)
            == one["epsilon"]
            < present
        )


def test_the_least_noise_meets_the_target():
    told = answer("calibrate", {"run": CYCLIC, "epsilon": 0.5})
    found = CYCLIC | {"noise_multiplier": told["noise_multiplier"] * (1 + 1e-12)}
    assert li.account(run_from_page(found)).epsilon(1e-5) <= 0.5
    less = CYCLIC | {"noise_multiplier": told["noise_multiplier"] * 0.999}
    assert li.account(run_from_page(less)).epsilon(1e-5) > 0.5


@pytest.mark.parametrize("size", [7, 10, 300])
def test_the_most_epochs_are_as_many_steps_on_the_page(size):
    words = CYCLIC | {"examples": 1_000, "batch_size": size, "noise_multiplier": 20.0}
    words |= {"model": "unknown"}
    told = answer("calibrate", {"run": words, "epsilon": 1.0, "over": "steps"})
    assert 1 < told["steps"] < 10**6
    assert run_from_page(words | {"epochs": told["epochs"]}).steps == told["steps"]


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

"""The page's numbers are the library's, and bad questions are refused in words."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lastiterate as li
from lastiterate._display import up
from lastiterate.bounds.fixed_order.convex import worst_schedule
from lastiterate.errors import InvalidParameter
from lastiterate.explore.answers import QUESTION_KEYS, QUESTIONS, answer
from lastiterate.explore.page_runs import run_from_page
from lastiterate.explore.server import FIRST, PRESETS, page_options, usual_delta

from .random_runs import FIXED, SECRET, random_words
from .test_page_runs import BELOW_0, NO_COUNT, NO_FLAG, NO_WORD, NOT_ABOVE_0

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


class TestCurves:
    @pytest.mark.parametrize("over", ["epochs", "noise", "extra_steps"])
    def test_have_a_value_at_each_x_and_pass_through_the_answer(self, over):
        told = answer("curve", {"run": CYCLIC, "over": over})
        assert told["curves"]
        assert {len(values) for values in told["curves"].values()} == {len(told["x"])}
        assert told["x"] == sorted(told["x"])
        if over == "extra_steps":
            (values,) = told["curves"].values()
            for steps, epsilon in list(zip(told["x"], values, strict=True))[::5]:
                found = li.unlearning(run_from_page(CYCLIC), extra_steps=steps)
                assert found.epsilon(1e-5) == epsilon
            return
        account, here = answer("account", {"run": CYCLIC}), told["x"].index(told["here"])
        assert told["curves"][account["bound"]][here] == account["epsilon"]
        for values in told["curves"].values() if over == "noise" else ():
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
    def test_are_the_librarys(self):
        words = CYCLIC | {"examples": 1_000, "batch_size": 100, "epochs": 3}
        run, told = run_from_page(words), answer("plan", {"run": words})
        plan = worst_schedule(run)
        assert told["x"] == list(range(1, 31))
        unit = plan.sensitivities.max()
        np.testing.assert_allclose(told["distance"], plan.shifts.z[1:-1] / unit, rtol=1e-4)
        np.testing.assert_allclose(told["shift"], plan.shifts.a[:-1] / unit, rtol=1e-4)
        seen = [i for i, one in enumerate(told["sensitivity"]) if one]
        assert seen == plan.participations.tolist()
        # What arrives is paid, or shrunk: c = 1 - step size times curvature.
        shrunk = run.step_size * run.loss.strong_convexity * plan.shifts.z[:-1].sum()
        arrived, paid = plan.sensitivities.sum(), plan.shifts.a.sum()
        assert arrived == pytest.approx(paid + shrunk, rel=1e-6)
        said = float(told["says"].split("contract ")[1].split(" %")[0])
        assert said == pytest.approx(100.0 * shrunk / arrived, rel=5e-3)

    @pytest.mark.parametrize("release", [0.0, 1e-3])
    def test_whose_noise_hides_what_adds_up(self, release):
        words = CYCLIC | {"release_noise_std": release}
        told = answer("plan", {"run": words})
        assert sum(one["share"] for one in told["noise_shares"]) == pytest.approx(1.0)
        assert (
            "noise on the published model" in {one["noise"] for one in told["noise_shares"]}
        ) == (release > 0.0)

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
    good = {"certificate": "{}"} if question == "verify" else {"run": PRESETS[FIRST]}
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


def test_an_infinite_epsilon_is_the_text_inf():
    words = PRESETS[FIRST] | {"noise_multiplier": 1e-300}
    assert answer("account", {"run": words})["epsilon"] == "inf"

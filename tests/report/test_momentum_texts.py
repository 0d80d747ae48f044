"""Reports, statements and refusals about runs with momentum or averages say what ran."""

import numpy as np
import pytest

import lastiterate as li
from lastiterate import planning
from lastiterate.audit import exact
from lastiterate.cli import main
from lastiterate.explore.page_runs import page_words
from lastiterate.langevin_sampling import stationary_profile
from lastiterate.report.sentences import protection_sentence, run_sentence
from lastiterate.train.noisy_descent import noisy_descent
from lastiterate.unlearn.unlearning import deletion_capacity


def run_with(**changes):
    settings = {
        "loss": li.Loss(smoothness=0.26, strong_convexity=0.01),
        "sensitivity": 1.0,
        "batches": li.Cyclic(4, 1),
        "steps": 8,
        "step_size": 0.05,
        "noise_std": 1.0,
        "momentum": 0.9,
    }
    return li.TrainingRun(**{**settings, **changes})


AVERAGED = run_with(momentum=0.0, average=li.ExponentialAverage(0.99))


@pytest.mark.parametrize(
    "changes, said",
    [
        ({}, "descent with momentum 0.9, "),
        ({"nesterov": True}, "descent with Nesterov momentum 0.9, "),
        ({"dampening": 0.5}, "descent with momentum 0.9 and dampening 0.5, "),
        ({"buffer_resets": (3,)}, "momentum 0.9 and a buffer emptied once, "),
        ({"momentum": tuple(np.linspace(0.5, 0.9, 8))}, "momentum between 0.5 and 0.9, "),
        ({"momentum": 0.0}, "descent, "),
    ],
)
def test_the_run_names_its_momentum(changes, said):
    assert said in run_sentence(run_with(**changes))


def test_the_release_names_the_average():
    assert "the exponential average of the iterates with decay 0.99" in protection_sentence(
        AVERAGED
    )
    tail = AVERAGED.replace(average=li.TailAverage(3))
    text = li.account(tail).statement(delta=1e-5)
    assert "the mean of the last 3 iterates after step 8" in text
    assert "the parameters after step" not in text


def test_the_optimizer_s_state_must_stay_secret():
    text = li.account(run_with()).statement(delta=1e-5)
    assert "plain gradient step" not in text
    assert "SGD with momentum 0.9" in text
    assert "optimizer's state and all checkpoints stay secret" in text
    assert "optimizer's state, which holds the momentum buffer" in text
    plain = li.account(run_with(momentum=0.0)).statement(delta=1e-5)
    assert "optimizer" not in plain


@pytest.mark.parametrize("run", [run_with(), AVERAGED], ids=["momentum", "average"])
@pytest.mark.parametrize(
    "entry",
    [
        lambda run: li.unlearning(run, extra_steps=1),
        lambda run: deletion_capacity(run, epsilon=1.0, delta=1e-5),
        lambda run: exact.worst(run),
        lambda run: planning.excess_risk(run, 3),
        lambda run: stationary_profile(run),
        lambda run: noisy_descent(run, None, None),
        lambda run: page_words(run),
    ],
    ids=["unlearning", "capacity", "audit", "plan", "langevin", "trainer", "page"],
)
def test_what_is_for_plain_steps_refuses_others(entry, run):
    with pytest.raises(li.InvalidParameter, match=r"^(momentum|average) must be left out"):
        entry(run)


def test_an_event_keeps_the_momentum():
    event = li.account(run_with(nesterov=True)).to_dp_event()
    assert li.TrainingRun.from_json(event.run) == run_with(nesterov=True)


class TestCommand:
    WORDS = (
        "account",
        "--examples",
        "40",
        "--batch-size",
        "10",
        "--steps",
        "8",
        "--batches",
        "cyclic",
        "--step-size",
        "0.05",
        "--noise-std",
        "1",
        "--sensitivity",
        "1",
        "--smoothness",
        "0.26",
        "--strong-convexity",
        "0.01",
    )

    def test_takes_momentum(self, capsys):
        assert main([*self.WORDS, "--momentum", "0.9", "--nesterov"]) == 0
        assert "with Nesterov momentum 0.9" in " ".join(capsys.readouterr().out.split())

    def test_names_the_option_that_is_out_of_range(self, capsys):
        assert main([*self.WORDS, "--momentum", "1"]) == 2
        assert "--momentum must be in [0, 1)" in capsys.readouterr().err
        assert main([*self.WORDS, "--dampening", "0.5"]) == 2
        assert "--dampening must be 0 without momentum" in capsys.readouterr().err

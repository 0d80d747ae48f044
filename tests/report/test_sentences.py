"""Sentences about runs and advice: they say what ran, and what advice names comes true."""

import json
import re

import numpy as np
import pytest

import lastiterate as li
from lastiterate import planning
from lastiterate.audit import exact
from lastiterate.cli import main
from lastiterate.explore.page_runs import page_words
from lastiterate.langevin_sampling import stationary_profile
from lastiterate.report import sentences as module
from lastiterate.report.sentences import advice, protection_sentence, run_sentence
from lastiterate.train.noisy_descent import noisy_descent
from lastiterate.unlearn.unlearning import deletion_capacity
from tests.slow import slow

DELTA = 1e-5
RUN = li.TrainingRun(
    loss=li.Loss(smoothness=0.26, strong_convexity=0.01), sensitivity=2.0,
    batches=li.Cyclic(examples=2_560, batch_size=512), steps=10, step_size=0.05,
    noise_std=4 / 512, momentum=0.9,
)  # fmt: skip
FLATTER = li.Loss(smoothness=0.251, strong_convexity=0.001)


def said(run):
    return advice(li.account(run), DELTA)


def named(pattern, sentence):
    return map(float, re.search(pattern, sentence).groups())


class TestReleaseNoise:
    @pytest.mark.parametrize(
        "changes",
        [
            {},
            slow({"nesterov": True}),
            slow({"momentum": (0.9,) * 9 + (0.8,)}),
            slow({"momentum": 0.0, "average": li.ExponentialAverage(0.9)}),
        ],
        ids=["heavy ball", "nesterov", "schedule", "average"],
    )
    def test_gives_the_epsilon_that_is_named(self, changes):
        run = RUN.replace(**changes)
        (sentence,) = said(run)
        if not changes:  # as large as what one noise adds in the end
            assert "deviation 0.0039 on" in sentence  # 0.05/(1 - 0.9) 4/512 = 0.00390625
        noise, epsilon = named(r"deviation (\S+) on .* = ([\d.]+):", sentence)
        found = li.account(run.replace(release_noise_std=noise)).epsilon(DELTA)
        assert found <= epsilon <= found + 1e-4
        assert epsilon < 0.95 * li.account(run).epsilon(DELTA)

    def test_is_named_alone_where_its_epsilon_takes_long(self, monkeypatch):
        """A printed report must not take twice as long as its epsilon."""
        report = li.account(RUN.replace(batches=li.ShuffledOnce(275_373, 1_457), steps=3_780))
        monkeypatch.setattr(module, "account", None)
        monkeypatch.setattr(type(report), "epsilon", None)
        *_, sentence = advice(report, DELTA)
        assert sentence.startswith("Noise of standard deviation about 0.0039 on")
        assert "Not computed" in sentence

    def test_says_nothing_where_there_is_some(self):
        assert said(RUN.replace(release_noise_std=0.004)) == ()


class TestConvergence:
    def test_names_a_step_that_converges(self, capsys, tmp_path):
        """In the command's answer and in JSON, too; advice is no part of a guarantee."""
        file = tmp_path / "run.toml"
        file.write_text(RUN.replace(loss=FLATTER).to_toml())
        assert main(["account", str(file)]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert "A step of 0.047 instead of 0.05 would let it converge" in text
        assert "would give epsilon = " in text
        assert main(["account", str(file), "--json"]) == 0
        first, _ = json.loads(capsys.readouterr().out)["advice"]
        assert first.startswith("A step of 0.047 instead of 0.05")
        assert "valid all the same" in first
        shorter = RUN.replace(loss=FLATTER, step_size=0.047)
        assert not any("converge" in one for one in said(shorter))
        assert "release_noise_std" not in li.account(RUN).statement(delta=DELTA)

    @pytest.mark.parametrize(
        "changes, step",
        [
            ({"loss": FLATTER, "step_size": 0.1, "dampening": 0.5}, "0.095 instead of 0.1"),
            # An average converges as plain steps do.
            (
                {"momentum": 0.0, "average": li.TailAverage(9), "step_size": 9.0},
                "7.6 instead of 9",
            ),
        ],
    )
    def test_counts_dampening_and_averages(self, changes, step):
        assert said(RUN.replace(**changes))[0].startswith(f"A step of {step}")

    @pytest.mark.parametrize(
        "changes",
        [
            {"loss": li.Loss(smoothness=0.25)},
            slow({"loss": li.Loss(smoothness=0.25, convex=False)}),
            slow({"clip_norm": 1.0}),
        ],
        ids=["flat", "not convex", "clip"],
    )
    def test_names_a_penalty_where_no_step_is_short_enough(self, changes):
        assert "a penalty (a regulariser above 0)" in said(RUN.replace(**changes))[0]


class TestWholeEpochs:
    RUN = li.TrainingRun.from_dp_sgd(
        loss=li.Loss(smoothness=0.26, regulariser=0.01, lipschitz=1.0, outputs=1),
        batches=li.ShuffledEachEpoch(examples=1_000, batch_size=100),
        clip_norm=1.0, noise_multiplier=1.0, steps=21, step_size=0.5,
    )  # fmt: skip

    def test_give_the_epsilon_that_is_named(self):
        (sentence,) = said(self.RUN)
        steps, epsilon = named(r"epochs, (\d+) steps .* = ([\d.]+):", sentence)
        found = li.account(self.RUN.replace(steps=int(steps))).epsilon(DELTA)
        assert found <= epsilon <= found + 1e-4
        assert epsilon < 0.95 * li.account(self.RUN).epsilon(DELTA)


@pytest.mark.parametrize(
    "run",
    [
        TestWholeEpochs.RUN.replace(steps=5),
        TestWholeEpochs.RUN.replace(steps=20),
        slow(TestWholeEpochs.RUN.replace(batches=li.ShuffledEachEpoch(5_000, 100), steps=549)),
        TestWholeEpochs.RUN.replace(batches=li.Cyclic(1_000, 100)),
        RUN.replace(momentum=0.0),
        RUN.replace(releases="every-iterate"),
        RUN.replace(batches=li.PoissonSampled(2_560, 512, 1_024)),
        RUN.replace(average=li.ExponentialAverage(0.9)),
    ],
)
def test_nothing_where_nothing_is_gained(run):
    assert said(run) == ()


def run_with(**changes):
    return RUN.replace(**{"batches": li.Cyclic(4, 1), "steps": 8, **changes})


AVERAGED = run_with(momentum=0.0, average=li.ExponentialAverage(0.99))


class TestMomentum:
    @pytest.mark.parametrize(
        "changes, words",
        [
            ({}, "descent with momentum 0.9, "),
            ({"nesterov": True}, "descent with Nesterov momentum 0.9, "),
            ({"dampening": 0.5}, "descent with momentum 0.9 and dampening 0.5, "),
            ({"buffer_resets": (3,)}, "momentum 0.9 and a buffer emptied once, "),
            ({"momentum": tuple(np.linspace(0.5, 0.9, 8))}, "momentum between 0.5 and 0.9, "),
            ({"momentum": 0.0}, "descent, "),
        ],
    )
    def test_is_named(self, changes, words):
        assert words in run_sentence(run_with(**changes))

    def test_the_release_names_the_average(self):
        average = "the exponential average of the iterates with decay 0.99"
        assert average in protection_sentence(AVERAGED)
        text = li.account(AVERAGED.replace(average=li.TailAverage(3))).statement(delta=1e-5)
        assert "the mean of the last 3 iterates after step 8" in text
        assert "the parameters after step" not in text

    def test_the_optimizer_s_state_must_stay_secret(self):
        text = li.account(run_with()).statement(delta=1e-5)
        assert "plain gradient step" not in text
        assert "SGD with momentum 0.9" in text
        assert "optimizer's state and all checkpoints stay secret" in text
        assert "optimizer" not in li.account(run_with(momentum=0.0)).statement(delta=1e-5)

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
    def test_is_refused_by_what_is_for_plain_steps(self, entry, run):
        with pytest.raises(li.InvalidParameter, match=r"^(momentum|average) must be left out"):
            entry(run)

    def test_is_kept_by_an_event(self):
        event = li.account(run_with(nesterov=True)).to_dp_event()
        assert li.TrainingRun.from_json(event.run) == run_with(nesterov=True)

    def test_in_the_command(self, capsys):
        words = [
            "account", "--examples", "40", "--batch-size", "10", "--steps", "8", "--step-size", "1",
            "--batches", "cyclic", "--noise-std", "1", "--sensitivity", "1", "--smoothness", "0.26",
        ]  # fmt: skip
        assert main([*words, "--momentum", "0.9", "--nesterov"]) == 0
        assert "with Nesterov momentum 0.9" in " ".join(capsys.readouterr().out.split())
        assert main([*words, "--momentum", "1"]) == 2
        assert "--momentum must be in [0, 1)" in capsys.readouterr().err
        assert main([*words, "--dampening", "0.5"]) == 2
        assert "--dampening must be 0 without momentum" in capsys.readouterr().err

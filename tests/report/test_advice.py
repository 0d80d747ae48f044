"""Advice beside the guarantee of a run with momentum: what it names comes true."""

import json
import re

import pytest

import lastiterate as li
from lastiterate.cli import main
from lastiterate.report.sentences import advice
from tests.slow import slow

DELTA = 1e-5
RUN = li.TrainingRun(
    loss=li.Loss(smoothness=0.26, strong_convexity=0.01),
    sensitivity=2.0,
    batches=li.Cyclic(examples=10_240, batch_size=512),
    steps=100,
    step_size=0.05,
    noise_std=4 / 512,
    momentum=0.9,
)
FLATTER = li.Loss(smoothness=0.251, strong_convexity=0.001)


def said(run):
    return advice(li.account(run), DELTA)


class TestReleaseNoise:
    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"nesterov": True},
            slow({"momentum": (0.9,) * 99 + (0.8,)}),
            slow({"momentum": 0.0, "average": li.ExponentialAverage(0.9)}),
        ],
        ids=["heavy ball", "nesterov", "schedule", "average"],
    )
    def test_gives_the_epsilon_that_is_named(self, changes):
        run = RUN.replace(**changes)
        (sentence,) = said(run)
        noise, epsilon = map(
            float, re.search(r"deviation (\S+) on .* = ([\d.]+):", sentence).groups()
        )
        found = li.account(run.replace(release_noise_std=noise)).epsilon(DELTA)
        assert found <= epsilon <= found + 1e-4
        assert epsilon < 0.95 * li.account(run).epsilon(DELTA)

    def test_is_as_large_as_what_one_noise_adds_in_the_end(self):
        (sentence,) = said(RUN)
        assert "deviation 0.0039 on" in sentence  # 0.05/(1 - 0.9) 4/512 = 0.00390625

    def test_is_named_alone_where_its_epsilon_takes_long(self, monkeypatch):
        """A printed report must not take twice as long as its epsilon."""
        run = RUN.replace(batches=li.ShuffledOnce(275_373, 1_457), steps=3_780)
        monkeypatch.setattr("lastiterate.report.sentences.account", None)
        report = li.account(run)
        monkeypatch.setattr(type(report), "epsilon", None)
        *_, sentence = advice(report, DELTA)
        assert sentence.startswith("Noise of standard deviation about 0.0039 on")
        assert "Not computed" in sentence

    def test_says_nothing_where_there_is_some(self):
        assert said(RUN.replace(release_noise_std=0.004)) == ()


class TestConvergence:
    def test_names_a_step_that_converges(self):
        first, _ = said(RUN.replace(loss=FLATTER))
        assert first.startswith("A step of 0.047 instead of 0.05 would let it converge")
        assert "valid all the same" in first
        shorter = RUN.replace(loss=FLATTER, step_size=0.047)
        assert not any("converge" in one for one in said(shorter))
        assert not any("converge" in one for one in said(RUN))

    def test_dampening_makes_steps_shorter(self):
        found = said(RUN.replace(loss=FLATTER, step_size=0.1, dampening=0.5))
        assert found[0].startswith("A step of 0.095 instead of 0.1")

    def test_an_average_converges_as_plain_steps_do(self):
        averaged = RUN.replace(momentum=0.0, average=li.TailAverage(20), step_size=9.0)
        assert said(averaged)[0].startswith("A step of 7.6 instead of 9")

    @pytest.mark.parametrize(
        "changes",
        [
            {"loss": li.Loss(smoothness=0.25)},
            {"loss": li.Loss(smoothness=0.25, convex=False)},
            {"clip_norm": 1.0},
        ],
        ids=["flat", "not convex", "clip"],
    )
    def test_names_a_penalty_where_no_step_is_short_enough(self, changes):
        assert "a penalty (a regulariser above 0)" in said(RUN.replace(**changes))[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"momentum": 0.0},
        {"releases": "every-iterate"},
        {"batches": li.PoissonSampled(10_240, 512, 1_024)},
        {"average": li.ExponentialAverage(0.9)},
    ],
    ids=["plain", "every iterate", "poisson", "momentum and an average"],
)
def test_nothing_where_no_bound_counts_on_it(changes):
    assert said(RUN.replace(**changes)) == ()


def test_it_is_in_the_command_s_answer_and_in_json(capsys, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(RUN.replace(loss=FLATTER).to_toml())
    assert main(["account", str(file)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "A step of 0.047 instead of 0.05 would let it converge" in text
    assert "would give epsilon = 1.1" in text
    assert main(["account", str(file), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["advice"]) == 2
    statement = li.account(RUN).statement(delta=DELTA)
    assert "release_noise_std" not in statement  # advice is no part of a guarantee


class TestWholeEpochs:
    RUN = li.TrainingRun.from_dp_sgd(
        loss=li.Loss(smoothness=0.26, regulariser=0.01, lipschitz=1.0, outputs=1),
        batches=li.ShuffledEachEpoch(examples=5_000, batch_size=100),
        clip_norm=1.0,
        noise_multiplier=1.0,
        steps=501,
        step_size=0.5,
    )

    def test_gives_the_epsilon_that_is_named(self):
        (sentence,) = said(self.RUN)
        steps, epsilon = re.search(r"epochs, (\d+) steps .* = ([\d.]+):", sentence).groups()
        found = li.account(self.RUN.replace(steps=int(steps))).epsilon(DELTA)
        assert found <= float(epsilon) <= found + 1e-4
        assert float(epsilon) < 0.95 * li.account(self.RUN).epsilon(DELTA)

    @pytest.mark.parametrize("steps", [20, 500, 549])
    def test_says_nothing_of_whole_ones_or_where_little_is_gained(self, steps):
        assert said(self.RUN.replace(steps=steps)) == ()

    def test_says_nothing_of_fixed_orders(self):
        assert said(self.RUN.replace(batches=li.Cyclic(5_000, 100))) == ()

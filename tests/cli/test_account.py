"""account, calibrate and compare: what they answer, and of which run."""

import json
import re

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

import lastiterate as li
from lastiterate.cli import main

from .people import CYCLIC, FIVE, SHUFFLED


@pytest.fixture
def asked(capsys):
    """The record of `account`, and what is said beside it."""

    def account(*words):
        assert main(["account", *words, "--json"]) == 0
        printed = capsys.readouterr()
        return json.loads(printed.out, parse_constant=pytest.fail), printed.err

    return account


class TestAccount:
    def test_by_flags_or_a_run_file(self, answer, asked, tmp_path):
        assert "3.4073" in answer("account", *SHUFFLED)
        record, _ = asked(*SHUFFLED)
        assert record["bound"] == "random-order/shuffled"
        assert record["epsilon"] == pytest.approx(3.4073, abs=2e-4)
        run = li.TrainingRun.from_json(json.dumps(record["run"]))
        assert run.steps == 2_000
        for file, text in (("run.toml", run.to_toml()), ("run.json", run.to_json())):
            (tmp_path / file).write_text(text)
            assert asked(str(tmp_path / file))[0] == record

    def test_what_has_no_finite_epsilon_is_text_in_json(self, asked):
        record, _ = asked(
            "--clip-norm", "1", "--noise-multiplier", "1.1", "--batch-size", "256", "--epochs",
            "10", "--examples", "60000", "--batches", "shuffled-once", "--step-size", "0.1",
        )  # fmt: skip
        assert "inf" in record["all"].values()
        assert record["epsilon"] > 0.0

    def test_no_answer_says_what_would_help(self, answer):
        silent = [*SHUFFLED, "--noise-std", "0", "--releases", "every-iterate"]
        assert "noise" in answer("account", *silent, "--release-noise-std", "1", code=1)

    def test_the_delta_of_an_epsilon(self, answer, asked):
        record, _ = asked(*CYCLIC, "--epsilon", "0.5")
        run = li.TrainingRun.from_json(json.dumps(record["run"]))
        assert record["asked"] == {"epsilon": 0.5, "delta": li.account(run).delta(0.5)}
        assert answer("account", *CYCLIC, "--epsilon", "0.5").startswith("delta = ")
        refusal = answer("account", *FIVE, "--epsilon", "nan", code=2)
        assert "epsilon must be a number" in refusal

    def test_every_answer_says_of_which_change_of_data(self, answer):
        for command in (["account"], ["calibrate", "--epsilon", "2"], ["compare"]):
            for adjacency, words in (("zero-out", "left out"), ("replace", "replaced by another")):
                asked = [*command, *CYCLIC, "--adjacency", adjacency]
                assert f"if one example is {words}" in answer(*asked).splitlines()[0]
                assert json.loads(answer(*asked, "--json"))["adjacency"] == adjacency


class TestCalibrate:
    def test_the_noise(self, answer):
        assert "noise-std = 0.02899" in answer("calibrate", *SHUFFLED, "--epsilon", "1")

    @pytest.mark.parametrize("over", ["release-noise-std", "release_noise_std"])
    def test_over_an_option_or_its_python_name(self, answer, over):
        run = [*SHUFFLED, "--batches", "cyclic"]
        text = answer("calibrate", *run, "--epsilon", "1", "--over", over)
        assert "\nnoise-std = 0.01\n" in text
        assert float(re.search(r"release-noise-std = (\S+)", text)[1]) > 0.0
        refusal = answer("calibrate", *SHUFFLED, "--epsilon", "1", "--over", "clip-norm", code=2)
        assert "--over must be one of 'noise-std'" in refusal

    def test_needs_no_noise_to_begin_with(self, answer, asked):
        flags = [*FIVE[:2], *FIVE[4:], "--batches", "cyclic"]
        lines = answer("calibrate", *flags, "--epsilon", "2").splitlines()
        printed = dict(line.split(" = ", 1) for line in lines if " = " in line)
        record, _ = asked(*flags, "--noise-multiplier", printed["noise-multiplier"])
        assert record["epsilon"] == pytest.approx(2.0, rel=1e-5)


class TestCompare:
    def test_prints_no_less_than_there_is(self, answer):
        run = [*SHUFFLED, "--batches", "cyclic"]
        rows = json.loads(answer("compare", *run, "--json"))["epsilon"]
        assert list(rows) == ["200", "400", "1000", "2000", "4000", "10000", "20000", "200000"]
        printed = answer("compare", *run).splitlines()
        assert max(map(len, printed)) <= 100
        for line in filter(None, printed[5:]):
            steps, *epsilons = line.replace(",", "").split()
            for shown, exact in zip(epsilons, rows[steps].values(), strict=True):
                assert exact <= float(shown) <= exact + 1e-4

    def test_says_why_a_run_that_ends_cannot_go_on(self, answer, tmp_path):
        run = li.TrainingRun.from_dp_sgd(
            batches=li.Cyclic(100, 10), clip_norm=1.0, noise_multiplier=1.0, steps=20,
            step_size=[0.1 / k for k in range(1, 21)],
        )  # fmt: skip
        (tmp_path / "run.toml").write_text(run.to_toml())
        answer("account", tmp_path / "run.toml")
        assert "one of any length" in answer("compare", tmp_path / "run.toml", code=2)


class TestDpSgd:
    """From the five numbers that everyone with a DP-SGD pipeline knows."""

    def test_the_five_alone_are_what_other_accountants_charge(self, asked):
        record, said = asked(*FIVE)
        step = dp_accounting.PoissonSampledDpEvent(20 / 1010, dp_accounting.GaussianDpEvent(1.1))
        theirs = PLDAccountant().compose(dp_accounting.SelfComposedDpEvent(step, 4 * 51))
        assert record["epsilon"] == pytest.approx(theirs.get_epsilon(1e-5), rel=2e-3)
        assert record["bound"] == "composition/sampled"
        assert record["run"]["releases"] == "every-iterate"
        for words in ("assumed: --batches poisson", "assumed: --adjacency zero-out", "--step-size",
                      "--smoothness", "--lipschitz", "with Adam"):  # fmt: skip
            assert words in said
        # Adding or removing is leaving out, where batches allow it.
        assert asked(*FIVE, "--adjacency", "add-remove")[0] == record

    def test_all_flags_give_a_bound_for_the_last_iterate(self, asked):
        more = ["--step-size", "0.1", "--smoothness", "1", "--lipschitz", "1"]
        record, said = asked(*FIVE, *more, "--batches", "poisson", "--adjacency", "zero-out")
        assert record["run"]["releases"] == "last-iterate"
        assert "random-order/poisson" in record["all"]
        assert said == ""  # what is said is not assumed

    @pytest.mark.parametrize("batches", ["shuffled-each-epoch", "cyclic", "sampled"])
    def test_the_adjacency_is_one_whatever_the_batches_and_that_of_python(self, asked, batches):
        record, said = asked(*FIVE, "--batches", batches)
        assert record["adjacency"] == "zero-out"
        assert "assumed: --adjacency zero-out" in said
        run = li.TrainingRun.from_dp_sgd(
            examples=1_010, batch_size=20, epochs=4, clip_norm=1.0, noise_multiplier=1.1,
            batches=batches,
        )  # fmt: skip
        assert li.account(run).epsilon(1e-5) == record["epsilon"]
        if batches == "shuffled-each-epoch":  # charged without amplification
            assert record["bound"] == "composition/fixed-order"
            assert (run.sensitivity, run.steps) == (1.0, 200)

    def test_a_sensitivity_is_of_two_examples_and_follows_from_a_clip(self, asked):
        flags = ["--examples", "100", "--batch-size", "10", "--steps", "5", "--noise-std", "1"]
        for batches in ("poisson", "shuffled-once", "cyclic"):
            record, said = asked(*flags, "--sensitivity", "2", "--batches", batches)
            assert record["adjacency"] == "replace"
            assert "assumed: --adjacency replace" in said
        record, _ = asked(*flags, "--clip-norm", "3", "--batches", "cyclic")
        assert (record["run"]["sensitivity"], record["adjacency"]) == (3.0, "zero-out")

    @pytest.mark.parametrize(
        "more, wanted",
        [
            (["--batches", "shuffled-once"], "--step-size and --diameter for iterates projected"),
            (["--step-size", "1", "--batches", "cyclic"], "or --diameter for iterates projected"),
            (["--non-convex", "--batches", "cyclic"], "needs --step-size and --diameter for"),
            (["--non-convex", "--batches", "balls-and-bins"], "needs convex losses, or --batches"),
        ],
    )
    def test_what_a_last_iterate_bound_would_need(self, asked, more, wanted):
        assert wanted in asked(*FIVE, *more)[1]

    def test_nothing_is_missing_from_a_projected_run(self, asked):
        more = ["--step-size", "0.1", "--diameter", "1", "--non-convex", "--adjacency", "zero-out"]
        assert asked(*CYCLIC, *more)[1] == ""

    def test_without_a_step_size_no_bound_uses_one(self, asked):
        """The step size that fills the gap must not matter."""
        record, _ = asked(*CYCLIC, "--smoothness", "1", "--lipschitz", "1")
        run = li.TrainingRun.from_json(json.dumps(record["run"]))
        for step_size in (1e-3, 0.5, 7.0):
            assert li.account(run.replace(step_size=step_size)).epsilon(1e-5) == record["epsilon"]

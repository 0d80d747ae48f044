"""From the five numbers that everyone with a DP-SGD pipeline knows."""

import json

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

import lastiterate as li
from lastiterate.cli import main

FIVE = [
    "--clip-norm", "1", "--noise-multiplier", "1.1", "--batch-size", "20", "--epochs", "4",
    "--examples", "1010",
]  # fmt: skip


def asked(capsys, *arguments):
    assert main(["account", *arguments, "--json"]) == 0
    printed = capsys.readouterr()
    return json.loads(printed.out), printed.err


def test_the_five_alone_are_what_other_accountants_charge(capsys):
    record, said = asked(capsys, *FIVE)
    step = dp_accounting.PoissonSampledDpEvent(20 / 1010, dp_accounting.GaussianDpEvent(1.1))
    theirs = PLDAccountant().compose(dp_accounting.SelfComposedDpEvent(step, 4 * 51))
    assert record["epsilon"] == pytest.approx(theirs.get_epsilon(1e-5), rel=2e-3)
    assert record["bound"] == "composition/sampled"
    assert record["run"]["releases"] == "every-iterate"
    assert "assumed: --batches poisson" in said
    assert "assumed: --adjacency zero-out" in said
    for flag in ("--step-size", "--smoothness", "--lipschitz", "with Adam"):
        assert flag in said


def test_what_is_said_is_not_assumed(capsys):
    _, said = asked(
        capsys, *FIVE, "--batches", "poisson", "--adjacency", "zero-out", "--step-size", "0.1",
        "--smoothness", "1", "--lipschitz", "1",
    )  # fmt: skip
    assert said == ""


def test_all_flags_give_a_bound_for_the_last_iterate(capsys):
    more = ["--step-size", "0.1", "--smoothness", "1", "--lipschitz", "1"]
    record, _ = asked(capsys, *FIVE, *more)
    assert record["run"]["releases"] == "last-iterate"
    assert "random-order/poisson" in record["all"]


def test_a_shuffling_loader_is_charged_without_amplification(capsys):
    record, said = asked(capsys, *FIVE, "--batches", "shuffled-each-epoch")
    assert record["bound"] == "composition/fixed-order"
    run = li.TrainingRun.from_json(json.dumps(record["run"]))
    assert (run.adjacency, run.sensitivity, run.steps) == ("zero-out", 1.0, 200)
    assert "assumed: --adjacency zero-out" in said


@pytest.mark.parametrize("batches", ["poisson", "shuffled-each-epoch", "cyclic", "sampled"])
def test_the_adjacency_is_one_whatever_the_batches_and_that_of_python(capsys, batches):
    record, said = asked(capsys, *FIVE, "--batches", batches)
    assert record["adjacency"] == "zero-out"
    assert "assumed: --adjacency zero-out" in said
    run = li.TrainingRun.from_dp_sgd(
        examples=1_010, batch_size=20, epochs=4, clip_norm=1.0, noise_multiplier=1.1,
        batches=batches,
    )  # fmt: skip
    assert li.account(run).epsilon(1e-5) == record["epsilon"]


def test_a_sensitivity_is_of_two_examples_whatever_the_batches(capsys):
    flags = ["--examples", "100", "--batch-size", "10", "--steps", "5", "--noise-std", "1"]
    for batches in ("poisson", "shuffled-once", "cyclic"):
        record, said = asked(capsys, *flags, "--sensitivity", "2", "--batches", batches)
        assert record["adjacency"] == "replace"
        assert "assumed: --adjacency replace" in said


def test_the_sensitivity_follows_from_the_clip(capsys):
    flags = ["--examples", "100", "--batch-size", "10", "--steps", "5", "--noise-std", "1"]
    record, _ = asked(capsys, *flags, "--clip-norm", "3", "--batches", "cyclic")
    assert (record["run"]["sensitivity"], record["adjacency"]) == (3.0, "zero-out")


def test_adding_or_removing_is_leaving_out_where_batches_allow_it(capsys):
    left_out, _ = asked(capsys, *FIVE, "--adjacency", "zero-out")
    record, _ = asked(capsys, *FIVE, "--adjacency", "add-remove")
    assert record == left_out
    assert main(["account", *FIVE, "--adjacency", "add-remove", "--batches", "cyclic"]) == 2
    assert "would change the batches of the others" in capsys.readouterr().err


@pytest.mark.parametrize(
    "more, wanted",
    [
        (["--batches", "shuffled-once"], "--step-size and --diameter for iterates projected"),
        (["--step-size", "1", "--batches", "cyclic"], "or --diameter for iterates projected"),
        (["--non-convex"], "needs convex losses, or --batches cyclic or shuffled-once"),
        (["--non-convex", "--batches", "cyclic"], "needs --step-size and --diameter for"),
        (["--non-convex", "--batches", "balls-and-bins"], "needs convex losses, or --batches"),
    ],
)
def test_what_a_last_iterate_bound_would_need(capsys, more, wanted):
    assert wanted in asked(capsys, *FIVE, *more)[1]


def test_nothing_is_missing_from_a_projected_run(capsys):
    more = ["--step-size", "0.1", "--batches", "cyclic", "--diameter", "1", "--non-convex"]
    more += ["--adjacency", "zero-out"]
    assert asked(capsys, *FIVE, *more)[1] == ""


def test_without_a_step_size_no_bound_uses_one(capsys):
    """The step size that fills the gap must not matter."""
    flags = [*FIVE, "--batches", "cyclic", "--smoothness", "1", "--lipschitz", "1"]
    record, _ = asked(capsys, *flags)
    run = li.TrainingRun.from_json(json.dumps(record["run"]))
    for step_size in (1e-3, 0.5, 7.0):
        assert li.account(run.replace(step_size=step_size)).epsilon(1e-5) == record["epsilon"]


def test_calibrate_needs_no_noise_to_begin_with(capsys):
    flags = [*FIVE[:2], *FIVE[4:], "--batches", "cyclic"]
    assert main(["calibrate", *flags, "--epsilon", "2"]) == 0
    printed = dict(
        line.split(" = ", 1) for line in capsys.readouterr().out.splitlines() if " = " in line
    )
    multiplier = float(printed["noise-multiplier"])
    again = [*flags, "--noise-multiplier", str(multiplier)]
    record, _ = asked(capsys, *again)
    assert record["epsilon"] == pytest.approx(2.0, rel=1e-5)


@pytest.mark.parametrize(
    "more, refused",
    [
        (["--noise-std", "1"], "--noise-std must be omitted: --noise-multiplier already"),
        (
            ["--sensitivity", "1"],
            "--sensitivity must be omitted: --noise-multiplier already",
        ),
        (["--steps", "10"], "--steps must be omitted: --epochs already sets it"),
        (["--batches", "full"], "--batch-size must be left out with full batches"),
        (["--releases", "last-iterate"], "RUN must be described in full: add --step-size,"),
    ],
)
def test_nothing_is_ignored_in_silence(capsys, more, refused):
    assert main(["account", *FIVE, *more]) == 2
    said = capsys.readouterr().err
    assert refused in said
    assert len(said.splitlines()) == 1


def test_no_noise_is_refused_by_the_name_that_was_typed(capsys):
    words = ["account", "--examples", "600", "--batch-size", "15", "--epochs", "5"]
    assert main([*words, "--clip-norm", "1", "--noise-multiplier", "0"]) == 2
    assert "--noise-multiplier must be a number in (0, inf)" in capsys.readouterr().err

"""A run that is written down: what `--save` writes, what is read, and what flags change of it."""

import json

import pytest

import lastiterate as li
from lastiterate.cli import main

FIVE = [
    "--clip-norm", "1", "--noise-multiplier", "1.1", "--batch-size", "20", "--epochs", "4",
    "--examples", "1_010",
]  # fmt: skip
CYCLIC = [*FIVE, "--batches", "cyclic"]  # which is quick
PLAIN = [
    "--examples", "60,000", "--batch-size", "1.5e3", "--epochs", "2", "--lr", "0.05",
    "--noise-std", "0.01", "--sensitivity", "10", "--smoothness", "32.502", "--regulariser", "0.1",
    "--diameter", "3", "--release-noise-std", "0.1", "--releases", "last-iterate-and-order",
]  # fmt: skip


def answer(capsys, *words):
    assert main(["account", *words, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def refusal(capsys, *words):
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("flags", [FIVE, PLAIN, [*FIVE, "--non-convex", "--batches", "cyclic"]])
def test_what_is_saved_is_the_run_in_the_words_of_the_flags(capsys, tmp_path, flags):
    file = tmp_path / "run.toml"
    record = answer(capsys, *flags, "--save", str(file))
    assert answer(capsys, str(file)) == record
    words = {line.split(" = ")[0] for line in file.read_text().splitlines()}
    said = {flag.strip("-").replace("-", "_") for flag in flags if flag.startswith("--")}
    said = {{"lr": "step_size", "non_convex": "convex"}.get(word, word) for word in said}
    assert words == said | {"batches", "adjacency"}
    run = li.TrainingRun.from_json(json.dumps(record["run"]))
    assert li.TrainingRun.from_toml(file.read_text()) == run


def test_flags_have_the_last_word(capsys, tmp_path):
    file = tmp_path / "run.toml"
    answer(capsys, *FIVE, "--batches", "shuffled-once", "--save", str(file))
    changes = ["--epochs", "8", "--batches", "cyclic", "--adjacency", "replace"]
    flags = dict(zip(FIVE[::2], FIVE[1::2], strict=True))
    flags["--epochs"] = "8"
    told = [word for pair in flags.items() for word in pair]
    assert answer(capsys, str(file), *changes) == answer(capsys, *told, *changes[2:])
    steps = answer(capsys, str(file), "--steps", "7")
    assert steps["run"]["steps"] == 7


@pytest.mark.parametrize("command", ["account", "calibrate"])
def test_an_answer_is_a_run_again(capsys, tmp_path, command):
    file = tmp_path / "answer.json"
    assert main([command, *CYCLIC, "--json"]) == 0
    file.write_text(capsys.readouterr().out)
    record = json.loads(file.read_text())
    again = answer(capsys, str(file))
    assert (again["run"], again["epsilon"]) == (record["run"], record["epsilon"])
    changed = answer(capsys, str(file), "--batch-size", "40")["run"]
    of_both = {run["batches"]["batch_size"] * run["noise_std"] for run in (record["run"], changed)}
    assert max(of_both) == pytest.approx(min(of_both), rel=1e-14)


def test_what_calibrate_saves_is_the_run_to_the_last_bit(capsys, tmp_path):
    file = tmp_path / "run.toml"
    words = ["calibrate", *CYCLIC, "--epsilon", "2", "--save", str(file)]
    assert main([*words, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert answer(capsys, str(file))["epsilon"] == record["epsilon"]


def test_nothing_is_overwritten(capsys, tmp_path):
    file = tmp_path / "run.toml"
    answer(capsys, *CYCLIC, "--save", str(file))
    before = file.read_text()
    for command in ("account", "calibrate"):
        words = [command, *FIVE, "--epochs", "9", "--save", str(file)]
        assert "--save must be a new file; found" in refusal(capsys, *words)
    assert file.read_text() == before
    assert "ends in .toml" in refusal(capsys, "account", *FIVE, "--save", "run.txt")


def test_a_certificate_is_no_run(capsys, tmp_path):
    file = tmp_path / "certificate.json"
    file.write_text(json.dumps({"guarantee": {}, "run": {}}))
    assert "is for `lastiterate verify`" in refusal(capsys, "account", str(file))


def test_other_releases_are_kept(capsys, tmp_path):
    record = answer(capsys, *CYCLIC) | {"other_releases": [{"kind": "outliers"}]}
    file = tmp_path / "answer.json"
    file.write_text(json.dumps(record))
    assert "statistics published beside it" in refusal(capsys, "account", str(file))


def test_all_that_is_missing_is_named_at_once(capsys):
    line = refusal(capsys, "account")
    for flag in ("--examples", "--batch-size", "--epochs (or --steps)", "--clip-norm"):
        assert flag in line
    assert "--noise-multiplier (or --noise-std)" in line
    assert "--noise" not in refusal(capsys, "calibrate")
    only_noise = refusal(capsys, "account", *FIVE[:2], *FIVE[4:])
    assert "add --noise-multiplier (or --noise-std), or name a run file" in only_noise


@pytest.mark.parametrize("delta", ["0", "1", "nan", "-1"])
def test_no_delta_that_says_nothing(capsys, delta):
    for command in (["account"], ["calibrate"], ["compare"], ["plot", "epsilon-by-steps"]):
        words = [*command, *CYCLIC, "--delta", delta]
        assert "delta must be a number in (0, 1)" in refusal(capsys, *words)


def test_the_delta_of_an_epsilon(capsys):
    record = answer(capsys, *CYCLIC, "--epsilon", "0.5")
    run = li.TrainingRun.from_json(json.dumps(record["run"]))
    assert record["asked"] == {"epsilon": 0.5, "delta": li.account(run).delta(0.5)}
    assert main(["account", *CYCLIC, "--epsilon", "0.5"]) == 0
    assert capsys.readouterr().out.startswith("delta = ")
    assert "epsilon must be a number" in refusal(capsys, "account", *FIVE, "--epsilon", "nan")


def test_compare_says_why_a_run_that_ends_cannot_go_on(capsys, tmp_path):
    run = li.TrainingRun.from_dp_sgd(
        batches=li.Cyclic(100, 10), clip_norm=1.0, noise_multiplier=1.0, steps=20,
        step_size=[0.1 / k for k in range(1, 21)],
    )  # fmt: skip
    (tmp_path / "run.toml").write_text(run.to_toml())
    assert main(["account", str(tmp_path / "run.toml")]) == 0
    capsys.readouterr()
    assert "one of any length" in refusal(capsys, "compare", str(tmp_path / "run.toml"))


def test_every_answer_says_of_which_change_of_data(capsys):
    for command in (["account"], ["calibrate", "--epsilon", "2"], ["compare"]):
        for adjacency, words in (("zero-out", "left out"), ("replace", "replaced by another")):
            assert main([*command, *CYCLIC, "--adjacency", adjacency]) == 0
            assert f"if one example is {words}" in capsys.readouterr().out.splitlines()[0]
            assert main([*command, *CYCLIC, "--adjacency", adjacency, "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["adjacency"] == adjacency

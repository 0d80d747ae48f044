"""Flags and run files: what is read, saved, and never ignored in silence."""

import json

import pytest

import lastiterate as li
from tests.slow import slow

from .people import CYCLIC, FIVE

PLAIN = [
    "--examples", "60,000", "--batch-size", "1.5e3", "--epochs", "2", "--lr", "0.05",
    "--noise-std", "0.01", "--sensitivity", "10", "--smoothness", "32.502", "--regulariser", "0.1",
    "--diameter", "3", "--release-noise-std", "0.1", "--releases", "last-iterate-and-order",
    "--batches", "cyclic",
]  # fmt: skip


@pytest.fixture
def account(answer):
    return lambda *words: json.loads(answer("account", *words, "--json"))


@pytest.fixture
def refusal(answer):
    def line(*words):
        (said,) = answer(*words, code=2).splitlines()
        return said

    return line


@pytest.fixture
def file(tmp_path):
    return str(tmp_path / "run.toml")


class TestRunFiles:
    @pytest.mark.parametrize("flags", [slow(FIVE), PLAIN, [*CYCLIC, "--non-convex"]])
    def test_what_is_saved_is_the_run_in_the_words_of_the_flags(self, account, file, flags):
        record = account(*flags, "--save", file)
        assert account(file) == record
        with open(file) as lines:
            words = {line.split(" = ")[0] for line in lines}
        said = {flag.strip("-").replace("-", "_") for flag in flags if flag.startswith("--")}
        said = {{"lr": "step_size", "non_convex": "convex"}.get(word, word) for word in said}
        assert words == said | {"batches", "adjacency"}
        run = li.TrainingRun.from_json(json.dumps(record["run"]))
        with open(file) as text:
            assert li.TrainingRun.from_toml(text.read()) == run

    def test_flags_have_the_last_word(self, account, file):
        account(*FIVE, "--batches", "shuffled-once", "--save", file)
        changes = ["--batches", "cyclic", "--adjacency", "replace"]
        flags = dict(zip(FIVE[::2], FIVE[1::2], strict=True)) | {"--epochs": "8"}
        told = [word for pair in flags.items() for word in pair]
        assert account(file, "--epochs", "8", *changes) == account(*told, *changes)
        assert account(file, "--steps", "7")["run"]["steps"] == 7

    @pytest.mark.parametrize("command", ["account", "calibrate"])
    def test_an_answer_is_a_run_again_to_the_last_bit(self, answer, account, tmp_path, command):
        saved = tmp_path / "run.toml"
        text = answer(command, *CYCLIC, "--json", "--save", saved)
        (tmp_path / "answer.json").write_text(text)
        record, again = json.loads(text), account(tmp_path / "answer.json")
        assert (again["run"], again["epsilon"]) == (record["run"], record["epsilon"])
        assert account(saved)["epsilon"] == record["epsilon"]
        changed = account(tmp_path / "answer.json", "--batch-size", "40")["run"]
        one, other = (run["batches"]["batch_size"] * run["noise_std"]
                      for run in (record["run"], changed))  # fmt: skip
        assert one == pytest.approx(other, rel=1e-14)

    def test_what_is_no_run_or_more_than_one(self, account, refusal, tmp_path):
        assert "ends in .toml" in refusal("account", *FIVE, "--save", "run.txt")
        file = tmp_path / "answer.json"
        file.write_text(json.dumps({"guarantee": {}, "run": {}}))
        assert "is for `lastiterate verify`" in refusal("account", file)
        file.write_text(json.dumps(account(*CYCLIC) | {"other_releases": [{"kind": "outliers"}]}))
        assert "statistics published beside it" in refusal("account", file)


class TestFlags:
    def test_all_that_is_missing_is_named_at_once(self, refusal):
        line = refusal("account")
        for flag in ("--examples", "--batch-size", "--epochs (or --steps)", "--clip-norm",
                     "--noise-multiplier (or --noise-std)"):  # fmt: skip
            assert flag in line
        assert "--noise" not in refusal("calibrate")
        only_noise = refusal("account", *FIVE[:2], *FIVE[4:])
        assert "add --noise-multiplier (or --noise-std), or name a run file" in only_noise

    @pytest.mark.parametrize("delta", ["0", "1", "nan", "-1"])
    def test_no_delta_that_says_nothing(self, refusal, delta):
        for command in (["account"], ["calibrate"], ["compare"], ["plot", "epsilon-by-steps"]):
            said = refusal(*command, *CYCLIC, "--delta", delta)
            assert "delta must be a number in (0, 1)" in said

    @pytest.mark.parametrize(
        "words, refused",
        [
            (["--noise-std", "1"], "--noise-std must be omitted: --noise-multiplier already"),
            (["--sensitivity", "1"], "--sensitivity must be omitted: --noise-multiplier already"),
            (["--steps", "10"], "--steps must be omitted: --epochs already sets it"),
            (["--batches", "full"], "--batch-size must be left out with full batches"),
            (["--releases", "last-iterate"], "RUN must be described in full: add --step-size,"),
            (["--adjacency", "add-remove", "--batches", "cyclic"], "would change the batches of"),
            (["--noise-multiplier", "0"], "--noise-multiplier must be a number in (0, inf)"),
            (["--batches", "shuffled"], "DataLoader(shuffle=True)"),
            (["--batches", "cylic"], "did you mean 'cyclic'"),
            (["--adam", "1"], "are charged for every iterate"),
            (["--optimizer=adam"], "are charged for every iterate"),
        ],
    )
    def test_nothing_is_ignored_in_silence(self, refusal, words, refused):
        assert refused in refusal("account", *FIVE, *words)
        assert "every iterate" not in refusal("account", "--colour")

    @pytest.mark.parametrize("text", ["600", "6e2", "6_00", "600.0", "0.6e3", "+600"])
    def test_whole_numbers_as_people_write_them(self, answer, text):
        flags = ["--steps", "1,000", "--clip-norm", "1", "--noise-multiplier", "1"]
        said = answer("account", "--examples", text, *flags, "--batches", "full")
        assert "1,000 steps of noisy gradient descent, each on all of 600" in said

    @pytest.mark.parametrize("text", ["5,00", "1.5", "1e-2", "1e400", "", "x", "1,5e3", "nan"])
    def test_what_is_no_whole_number(self, refusal, text):
        said = refusal("account", "--examples", text)
        assert "is not a whole number, such as 50000" in said

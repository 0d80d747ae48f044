"""The command's pictures and pages."""

import json

import pytest

from lastiterate.cli import main
from lastiterate.report import html

RUN = [
    "--examples", "60000", "--batch-size", "15000", "--steps", "80", "--step-size", "0.05",
    "--noise-std", "0.001", "--sensitivity", "10", "--smoothness", "32.502",
]  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [
        ["epsilon-by-steps", *RUN, "--at", "40", "--at", "80", "--bounds", "fixed-order"],
        ["tradeoff", *RUN],
        ["delta-by-epsilon", *RUN, "--delta", "1e-6"],
        ["shift-schedule", *RUN],
    ],
    ids=lambda command: command[0],
)
def test_each_picture_is_one_command(capsys, tmp_path, command):
    assert main(["plot", *command, "--out", str(tmp_path / "figure")]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figure.png", "figure.svg"]
    assert "figure.svg" in capsys.readouterr().out


@pytest.mark.parametrize("batches", ["poisson", "sampled"])
def test_a_run_without_a_plan_to_draw_is_not_said_to_be_uncertified(capsys, batches):
    run = [*RUN, "--batches", batches, "--releases", "every-iterate"]
    assert main(["account", *run]) == 0
    capsys.readouterr()
    assert main(["plot", "shift-schedule", *run]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "RUN must be one whose guarantee comes from a single sequence of shifts" in line
    assert "`account` may certify it" in line
    assert "no certified bound" not in line


def test_accuracies_from_a_file(tmp_path):
    results, out = tmp_path / "results.json", tmp_path / "figure.svg"
    results.write_text(json.dumps({"ours": {"1": [0.8, 0.9], "4": [0.95]}}))
    assert main(["plot", "accuracy-by-epsilon", str(results), "--out", str(out)]) == 0
    assert out.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    "command, says",
    [
        (["tradeoff", *RUN, "--out", "figure.jpg"], "--out must be"),
        (["epsilon-by-steps", *RUN, "--at", "0"], "--at must be"),
        (["accuracy-by-epsilon", "nowhere.json"], "nowhere.json"),
        ([], "Missing command"),
    ],
)
def test_bad_input_is_one_line(capsys, command, says):
    assert main(["plot", *command]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.splitlines()) == 1


def test_a_results_file_that_is_not_json(capsys, tmp_path):
    file = tmp_path / "results.json"
    file.write_text("{")
    assert main(["plot", "accuracy-by-epsilon", str(file)]) == 2
    assert "RESULTS must be JSON" in capsys.readouterr().err


def test_account_writes_a_page(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(html, "_picture", lambda *_: [])  # which take long
    page = tmp_path / "report.html"
    assert main(["account", *RUN, "--html", str(page), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bound"].startswith("random-order/")
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")

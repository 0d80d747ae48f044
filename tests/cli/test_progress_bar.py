"""What someone at a terminal sees while waiting, and what an interrupt does."""

import io
import os
import pty
import re
import subprocess
import sys
from importlib import import_module

import pytest

import lastiterate as li
from lastiterate._progress import track
from lastiterate.cli import main

SAMPLED = [
    "account", "--examples", "100", "--batch-size", "20", "--steps", "12", "--step-size", "0.05",
    "--noise-std", "0.05", "--sensitivity", "2", "--smoothness", "1", "--batches", "sampled",
    "--adjacency", "replace",
]  # fmt: skip


def everything_from(descriptor):
    """What was written to the other end of a terminal; reading on is an error there."""
    read = io.BytesIO()
    try:
        while chunk := os.read(descriptor, 65536):
            read.write(chunk)
    except OSError:
        pass
    return read.getvalue().decode()


def test_a_bar_on_a_terminal_only_and_never_in_the_answer(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")  # whatever the terminals
    ours, theirs = pty.openpty()
    code = "import sys, lastiterate.cli as c; m = sys.modules['lastiterate.cli.terminal']"
    code += "; m.BEFORE_THE_BAR = m.BETWEEN_DRAWINGS = 0.0; sys.exit(c.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *SAMPLED]
    watched = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    drawn = everything_from(ours)
    os.close(ours)
    assert "accounting" in drawn
    assert "law of the energy" not in drawn
    shares = [int(share) for share in re.findall(r"(\d+)%", drawn)]
    assert shares == sorted(shares)
    assert len(set(shares)) > 3
    assert main(SAMPLED) == 0
    assert capsys.readouterr() == (watched.stdout.decode(), "")


def test_an_interrupt_leaves_in_one_line(monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(li, "account", interrupt)
    assert main(SAMPLED) == 130
    assert capsys.readouterr() == ("", "lastiterate: interrupted\n")


@pytest.mark.parametrize("terminal", [True, False])
def test_an_interrupt_takes_the_bar_away(monkeypatch, capsys, terminal):
    def interrupt(*_, **__):
        for _ in track("waiting", range(10)):
            raise KeyboardInterrupt

    monkeypatch.setattr(li, "account", interrupt)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(SAMPLED) == 130
    said = capsys.readouterr().err
    assert said.endswith("lastiterate: interrupted\n")
    assert ("waiting" in said) == terminal


class TestLines:
    """Where nobody sees a bar, a log tells that something goes on."""

    @pytest.fixture
    def clock(self, monkeypatch):
        module = import_module("lastiterate.cli.terminal")
        now = [0.0]
        monkeypatch.setattr(module, "BEFORE_A_LINE", 5.0)
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
        return now

    def test_few_lines_each_later_than_the_one_before(self, clock, capsys):
        from lastiterate.cli.terminal import progress_bar

        with progress_bar():
            for _ in track("waiting", range(100)):
                clock[0] += 1.0
        lines = capsys.readouterr().err.splitlines()
        assert lines == [
            "lastiterate: waiting, 5% done, after 5 s",
            "lastiterate: waiting, 20% done, after 20 s",
            "lastiterate: waiting, 80% done, after 80 s",
        ]

    def test_what_is_quick_is_not_told(self, clock, capsys):
        from lastiterate.cli.terminal import progress_bar

        with progress_bar():
            list(track("waiting", range(100)))
        assert capsys.readouterr().err == ""

"""What someone at a terminal sees while waiting, and what an interrupt does."""

import io
import os
import pty
import subprocess
import sys

import pytest

import lastiterate as li
from lastiterate.cli import main

SAMPLED = [
    "account", "--examples", "100", "--batch-size", "20", "--steps", "12", "--step-size", "0.05",
    "--noise-std", "0.05", "--sensitivity", "2", "--smoothness", "1", "--batches", "sampled",
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


def test_a_bar_on_a_terminal_only_and_never_in_the_answer(capsys):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "lastiterate.cli", *SAMPLED]
    watched = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    assert "law of the energy" in everything_from(ours)
    os.close(ours)
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
    from lastiterate._progress import told

    def interrupt(*_, **__):
        for _ in told("waiting", range(10)):
            raise KeyboardInterrupt

    monkeypatch.setattr(li, "account", interrupt)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(SAMPLED) == 130
    said = capsys.readouterr().err
    assert said.endswith("lastiterate: interrupted\n")
    assert ("waiting" in said) == terminal

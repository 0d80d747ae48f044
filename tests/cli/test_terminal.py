"""What someone at a terminal sees while waiting, and what an interrupt leaves."""

import io
import os
import pty
import re
import subprocess
import sys

import pytest

import lastiterate as li
from lastiterate._progress import track
from lastiterate.cli import main

from .people import progress_bar

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


def test_a_bar_is_never_in_the_answer(capsys, monkeypatch):
    assert main(SAMPLED) == 0
    plain = capsys.readouterr()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(SAMPLED) == 0
    watched = capsys.readouterr()
    assert (plain.out, plain.err) == (watched.out, "")
    assert "accounting" in watched.err


@pytest.mark.slow
def test_a_bar_on_a_terminal_only_and_never_in_the_answer(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")  # whatever the terminals
    ours, theirs = pty.openpty()
    code = f"import sys, lastiterate.cli as c; m = sys.modules[{progress_bar.__name__!r}]"
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


@pytest.mark.parametrize("terminal", [True, False])
def test_an_interrupt_takes_the_bar_away(monkeypatch, capsys, terminal):
    def interrupt(*_, **__):
        for _ in track("waiting", range(10)):
            raise KeyboardInterrupt

    monkeypatch.setattr(li, "account", interrupt)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(SAMPLED) == 130
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.endswith("lastiterate: interrupted\n")
    assert ("waiting" in printed.err) == terminal
    assert terminal or printed.err == "lastiterate: interrupted\n"


def test_few_lines_in_a_log_each_later_than_the_one_before(monkeypatch, capsys):
    """Where nobody sees a bar, they tell that something goes on; what is quick is not told."""
    now = [0.0]
    monkeypatch.setattr(progress_bar, "BEFORE_A_LINE", 5.0)
    monkeypatch.setattr(progress_bar, "monotonic", lambda: now[0])
    with progress_bar.progress_bar():
        list(track("waiting", range(100)))
        assert capsys.readouterr().err == ""
        for _ in track("waiting", range(100)):
            now[0] += 1.0
    assert capsys.readouterr().err.splitlines() == [
        "lastiterate: waiting, 5% done, after 5 s",
        "lastiterate: waiting, 20% done, after 20 s",
        "lastiterate: waiting, 80% done, after 80 s",
    ]

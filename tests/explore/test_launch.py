"""Where the page may be served, and what is missing if it cannot."""

import sys

import pytest

from lastiterate.cli import main
from lastiterate.errors import InvalidParameter, MissingExtra
from lastiterate.explore.server import serve


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "example.org", "::"])
def test_others_cannot_reach_it_without_a_token(host):
    with pytest.raises(InvalidParameter, match=r"host must be 127\.0\.0\.1"):
        serve(host=host)


@pytest.mark.parametrize("token", ["", "short", "ü" * 20])
def test_a_token_that_can_be_guessed_is_refused(token):
    with pytest.raises(InvalidParameter, match="token must be at least 16"):
        serve(host="0.0.0.0", token=token)


def test_the_extra_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingExtra, match=r"lastiterate\[explore\]"):
        serve()


def test_a_run_that_has_no_controls_is_refused_in_one_line(tmp_path, capsys):
    file = tmp_path / "run.toml"
    file.write_text(
        'examples = 100\nbatch_size = 50\nbatches = "cyclic"\nsteps = 2\nstep_size = [0.1, 0.2]\n'
        "noise_std = 1.0\nsensitivity = 1.0\nsmoothness = 1.0\n"
    )
    assert main(["explore", "--run", str(file), "--no-browser"]) == 2
    assert "one step size" in capsys.readouterr().err


def test_the_command_says_what_it_does(capsys):
    assert main(["explore", "--help"]) == 0
    said = capsys.readouterr().out
    assert "Example: lastiterate explore --run run.toml" in said
    assert "--no-browser" in said

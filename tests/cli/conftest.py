"""A test must not depend on how long it takes: nobody waits for what is computed here."""

import math
import shutil

import pytest

from lastiterate.cli import main

from .people import TOKEN, TRAIN, progress_bar, write_people


@pytest.fixture(autouse=True)
def _no_lines_of_progress(monkeypatch):
    monkeypatch.setattr(progress_bar, "BEFORE_A_LINE", math.inf)
    monkeypatch.setattr(progress_bar, "BEFORE_THE_BAR", 0.0)
    monkeypatch.setattr(progress_bar, "BETWEEN_DRAWINGS", 0.0)


@pytest.fixture(scope="package")
def _people(tmp_path_factory):
    folder = tmp_path_factory.mktemp("people")
    write_people(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main([*TRAIN, "--epochs", "5", "--out", "trained"]) == 0
    return folder


@pytest.fixture
def folder(_people, tmp_path, monkeypatch):
    """A table of people where commands run, its schema, and a model of it in `trained`."""
    shutil.copytree(_people, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def answer(capsys):
    """What a command prints, or says if it ends with that code; no private cell is quoted."""

    def asked(*words, code=0):
        capsys.readouterr()
        assert main(list(map(str, words))) == code, capsys.readouterr().err
        said = capsys.readouterr()
        assert TOKEN not in said.err
        return said.err if code else said.out

    return asked

"""The built site: strict, complete, and whole without a network."""

import os
import re
import subprocess
import sys

import pytest

import lastiterate as li
from lastiterate import linear_model
from lastiterate.bounds.catalogue import APPROXIMATIONS
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS

from .pages import ROOT


@pytest.mark.slow
def test_the_site(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    built = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )
    assert built.returncode == 0, built.stderr
    pages = {
        path.relative_to(tmp_path).as_posix(): path.read_text(encoding="utf-8")
        for path in tmp_path.rglob("*.html")
    }
    _nothing_is_fetched(pages)
    _markup_is_rendered(pages)
    for id_ in (*li.CATALOGUE, *LOWER_BOUNDS, *APPROXIMATIONS):
        assert f'id="{id_.replace("/", "-")}"' in pages["bounds.html"]
    for name in linear_model.__all__:
        assert f'id="lastiterate.linear_model.{name}"' in pages["api/training.html"]
    for name, text in pages.items():
        assert not name.startswith("api/") or "<blockquote" not in text, name
        assert f"lastiterate {li.__version__}" in text, name
    assert "_written_out" not in pages["api/more.html"]
    assert "setting(" not in pages["api/training.html"]
    for word in ("account", "calibrate", "compare", "train", "verify"):
        assert f'<h2 id="{word}">' in pages["commands.html"]
    for picture in re.findall(r'src="(pictures/[^"]+)"', "".join(pages.values())):
        assert (tmp_path / picture).read_text(encoding="utf-8").startswith("<svg")


def _nothing_is_fetched(pages):
    for name, text in pages.items():
        fetched = re.findall(r'<(?:script|img|link|iframe)\b[^>]*(?:src|href)="(\w+:|//)', text)
        assert not fetched, (name, fetched)


def _markup_is_rendered(pages):
    assert pages["notation.html"].count("<math") > 30
    assert pages["notation.html"].count('<mo stretchy="false">&#x02016;</mo>') > 4
    for name, text in pages.items():
        for left in ('class="arithmatex"', ":math:", ".. math::", "====="):
            assert left not in text, (name, left)

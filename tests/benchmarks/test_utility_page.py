import json

import pytest

from tests.docs.pages import ROOT

BENCHMARKS = ROOT / "benchmarks"


def test_the_pages_are_what_the_results_give(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.syspath_prepend(BENCHMARKS)
    import utility_page

    monkeypatch.setattr(utility_page, "ALL_RESULTS", tmp_path / "utility_results.md")
    monkeypatch.setattr(utility_page, "picture", lambda *_: None)
    utility_page.write(
        json.loads((BENCHMARKS / "utility.json").read_text()), tmp_path / "utility.md"
    )
    expected = (BENCHMARKS / "utility_results.md").read_text(encoding="utf-8")
    assert (tmp_path / "utility_results.md").read_text(encoding="utf-8") == expected

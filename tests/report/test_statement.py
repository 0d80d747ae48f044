"""Statements for papers and model cards, and what notebooks show."""

from html.parser import HTMLParser

import numpy as np
import pytest

import lastiterate as li
from lastiterate.linear_model import PrivateLogisticRegression
from tests.readme_run import readme_run

RUN = readme_run().replace(batches=li.Cyclic(60_000, 1_500))


@pytest.fixture(scope="module")
def report():
    return li.account(RUN)


class TestStatement:
    def test_says_what_is_needed_to_judge_it(self, report):
        text = report.statement()
        for said in (
            "2,000 steps",
            "epsilon = 4.3392",
            "delta = 1e-05",
            "one example being replaced by another",
            f"lastiterate {li.__version__}, bound {report.bound}",
            "Only this may be published: the parameters after step 2,000; the order of the",
            "stated by whoever trained the model",
            "- Every batch has exactly 1,500",
            "Any of these voids it:",
        ):
            assert said in text, said

    def test_users_by_group_privacy(self, report):
        text = report.statement(max_examples_per_user=3)
        three = li.GaussianProfile(3.0 * report.gdp()).epsilon(1e-5)
        assert "a user with at most 3 examples" in text
        stated = float(text.split("group privacy gives epsilon = ")[1].split(" ")[0])
        assert three <= stated <= three * 1.001
        with pytest.raises(li.InvalidParameter, match="max_examples_per_user must be"):
            report.statement(max_examples_per_user=0)

    def test_formats(self, report):
        assert report.statement(format="markdown").startswith("**Differential privacy.**")
        card = report.statement(format="model-card")
        assert card.startswith("## Privacy\n")
        assert "### What voids it" in card
        with pytest.raises(li.InvalidParameter, match="format must be one of"):
            report.statement(format="latex")


class Tags(HTMLParser):
    """Names of all tags; fails where they are not closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.attributes = [], set(), ""

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.add(tag)
        self.attributes += " ".join(f"{name}={value}" for name, value in attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def shown(value):
    tags = Tags()
    html = value._repr_html_()
    tags.feed(html)
    assert not tags.open
    assert tags.seen <= {"div", "strong", "table", "tbody", "tr", "th", "td", "ul", "li"}
    # Colours of its own would be unreadable by night.
    assert "#" not in tags.attributes
    assert "http" not in tags.attributes
    return html


class TestNotebooks:
    def test_reports_runs_and_bounds(self, report):
        assert "epsilon = 4.3392" in shown(report)
        assert "any other iterate" in shown(report)
        assert "ShuffledOnce" not in shown(RUN)
        assert "Cyclic(examples=60000, batch_size=1500)" in shown(RUN)
        assert "a convex loss for every example" in shown(li.CATALOGUE["fixed-order/convex"])
        forgetting = li.unlearning(RUN.replace(noise_std=0.05), extra_steps=10)
        assert "10 after 2,000" in shown(forgetting)

    def test_estimators(self):
        model = PrivateLogisticRegression(epsilon=2.0, epochs=1, random_state=0, classes=[0, 1])
        assert "not fitted" in shown(model)
        rows = np.random.default_rng(0).normal(size=(200, 2))
        model.fit(rows, (rows[:, 0] > 0).astype(int))
        assert "epsilon" in shown(model)
        assert model._repr_mimebundle_()["text/html"] == model._repr_html_()

    def test_what_is_shown_is_escaped(self):
        from lastiterate._display import card

        assert "<b>" not in card("<b>", [("<b>", "<b>")], lead="<b>", notes=["<b>"])

    def test_a_page_without_a_path_is_text(self, report):
        assert report.to_html(title="A run").startswith("<!DOCTYPE html>")

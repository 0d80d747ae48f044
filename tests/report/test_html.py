"""Pages and cards: whole, escaped, fetching nothing, and with what the text tells."""

from html.parser import HTMLParser

import numpy as np
import pytest

import lastiterate as li
from lastiterate._display import card, up
from lastiterate.linear_model import PrivateLogisticRegression
from lastiterate.report.summary import summary
from tests.readme_run import accounted, readme_run
from tests.report.example_runs import RUN


class Parsed(HTMLParser):
    """Collects tags, ids and references, and checks that what is opened is closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.tags, self.attributes = [], [], [], set(), ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        found = dict(attributes)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found[key] for key in ("href", "xlink:href", "src") if key in found]
        self.attributes += " ".join(f"{name}={value}" for name, value in attributes)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


ON_A_PAGE = RUN.replace(
    batches=li.ShuffledOnce(60_000, 15_000), steps=12, noise_std=0.001, release_noise_std=0.0002
)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "report.html"
    accounted(ON_A_PAGE).to_html(file, title="<script>alert('&')</script>")
    return file.read_text(encoding="utf-8")


class TestHtml:
    def test_is_one_file_that_fetches_nothing_and_escapes_what_it_shows(self, page):
        parsed = Parsed(page)
        assert not parsed.tags & {"script", "link", "img", "iframe", "object"}
        assert all(link.startswith("#") for link in parsed.links)
        assert "@import" not in page
        assert "url(http" not in page
        assert "&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;" in page
        # Parts of pictures have names of their own.
        assert len(parsed.ids) == len(set(parsed.ids))
        assert {link[1:] for link in parsed.links} <= set(parsed.ids)
        assert page.count("<svg") == 4

    def test_tells_what_the_text_tells(self, page):
        report = accounted(ON_A_PAGE)
        told = summary(report, 1e-5)
        assert up(told.epsilon) in page
        for clause in (*told.assumptions, *told.release.voided_by):
            assert clause.replace("'", "&#x27;") in page
        for id_ in (*report.all, "fixed-order/convex"):
            assert id_ in page

    def test_tells_in_plain_words_what_the_trade_off_is(self, page):
        right = 100.0 * (1.0 - accounted(ON_A_PAGE).tradeoff(0.05))
        stated = int(page.split("they rightly say it in at most ")[1].split(" of 100")[0])
        assert right <= stated < right + 1.0
        assert "in 5 of 100 cases" in page

    def test_pictures_follow_the_colours_of_the_page(self, page):
        pictures = page[page.index("<svg") :]
        assert "#0072b2" not in pictures
        assert "var(--ink)" in pictures


def shown(value):
    html = value._repr_html_()
    parsed = Parsed(html)
    assert parsed.tags <= {"div", "strong", "table", "tbody", "tr", "th", "td", "ul", "li"}
    # Colours of its own would be unreadable by night.
    assert "#" not in parsed.attributes
    assert "http" not in parsed.attributes
    return html


class TestNotebooks:
    def test_reports_runs_and_bounds(self):
        run = readme_run().replace(batches=li.Cyclic(60_000, 1_500))
        report = shown(accounted(run))
        assert "epsilon = 4.3392" in report
        assert "any other iterate" in report
        assert "Cyclic(examples=60000, batch_size=1500)" in shown(run)
        assert "a convex loss for every example" in shown(li.CATALOGUE["fixed-order/convex"])
        assert "10 after 2,000" in shown(li.unlearning(run.replace(noise_std=0.05), extra_steps=10))

    def test_estimators(self):
        model = PrivateLogisticRegression(epsilon=2.0, epochs=1, random_state=0, classes=[0, 1])
        assert "not fitted" in shown(model)
        rows = np.random.default_rng(0).normal(size=(200, 2))
        model.fit(rows, (rows[:, 0] > 0).astype(int))
        assert "epsilon" in shown(model)
        assert model._repr_mimebundle_()["text/html"] == model._repr_html_()

    def test_what_is_shown_is_escaped(self):
        assert "<b>" not in card("<b>", [("<b>", "<b>")], lead="<b>", notes=["<b>"])

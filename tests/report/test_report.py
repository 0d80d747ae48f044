"""What a report tells: the numbers are certified as printed, the words follow from the bound."""

import json
import math
from dataclasses import replace
from decimal import Decimal
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lastiterate as li
from lastiterate._display import down, times, up
from lastiterate.accounting import PrivacyReport
from lastiterate.bounds.catalogue import CATALOGUE, PUBLISHED
from lastiterate.other_releases import Release
from lastiterate.report.sentences import charges, release_rule
from lastiterate.report.summary import as_record, assumptions, summary
from lastiterate.report.text import as_text
from lastiterate.run.batch_rules.base import RULES as BATCH_RULES
from tests.readme_run import accounted

RUN = li.TrainingRun(
    loss=li.Loss(smoothness=32.502, strong_convexity=0.002),
    sensitivity=10.0,
    batches=li.ShuffledOnce(examples=60_000, batch_size=1_500),
    steps=80,
    step_size=0.05,
    noise_std=0.01,
)
POISSON = li.TrainingRun.from_dp_sgd(
    loss=li.Loss(smoothness=1.0, regulariser=0.01, lipschitz=1.0),
    batches=li.PoissonSampled(1_000, 20, 40),
    clip_norm=1.0,
    noise_multiplier=1.1,
    steps=20,
    step_size=0.1,
    adjacency="zero-out",
)
NON_CONVEX = RUN.replace(
    loss=li.Loss(smoothness=0.5, convex=False, holder=(0.3, 0.5), lipschitz=7.0, regulariser=0.01)
)
RUNS = {
    "shuffled once": RUN,
    "its order published": RUN.replace(releases="last-iterate-and-order"),
    "every iterate": RUN.replace(releases="every-iterate"),
    "cyclic, with a rest": RUN.replace(batches=li.Cyclic(60_100, 1_500)),
    "fixed order": RUN.replace(batches=li.FixedOrder(60_000, 1_500, [3, 40, 77])),
    "shuffled each epoch": RUN.replace(batches=li.ShuffledEachEpoch(60_000, 1_500)),
    "sampled": RUN.replace(
        batches=li.SampledWithoutReplacement(60_000, 1_500), steps=20, noise_std=0.1
    ),
    "full": RUN.replace(batches=li.FullBatch(60_000)),
    "ball": RUN.replace(domain=li.Ball(0.5)),
    "release noise": RUN.replace(release_noise_std=0.002),
    "output perturbation": RUN.replace(noise_std=0.0, release_noise_std=0.1),
    "schedule": RUN.replace(step_size=[0.05 / (1 + k) for k in range(80)]),
    "non-convex": NON_CONVEX,
    "poisson, cut": POISSON,
    "not finite": RUN.replace(noise_std=1e-300),
}


def told_of(name, delta=1e-5):
    return summary(accounted(RUNS[name]), delta)


def stated(name):
    return " | ".join(told_of(name).assumptions)


class TestDigits:
    @given(value=st.floats(0.0, 1e300))
    def test_print_is_certified(self, value):
        exact = Decimal(value)
        assert Decimal(up(value)) >= exact >= Decimal(down(value))
        room = max(Decimal("0.0001"), exact / 1000) if value >= 1e-3 else exact / 500
        assert Decimal(up(value)) - exact <= room
        assert Decimal(times(value)) >= exact * Decimal(1 - 2e-9)

    @pytest.mark.parametrize("ratio", [1.0, 1.0 + 1e-12, 1.0 - 1e-12])
    def test_a_ratio_that_rounding_alone_sets_apart_from_1(self, ratio):
        assert times(ratio) == "1.00"
        assert times(1.0 + 1e-6) == "1.01"

    def test_what_is_not_finite(self):
        assert up(math.inf) == times(math.inf) == "inf"


class TestText:
    @pytest.mark.parametrize("name", RUNS)
    def test_fits_and_has_every_part(self, name):
        text = str(accounted(RUNS[name]))
        assert max(map(len, text.splitlines())) <= 100
        for part in ("epsilon = ", "<- used", "You state that", "You may publish", "voids the"):
            assert part in text
        assert "nan" not in text.split("Bounds for such batches")[0].replace("nance", "")

    def test_the_lower_bound_is_named_and_the_ratio_is_to_it(self):
        told = told_of("full")
        assert told.lower_bound in as_text(accounted(RUNS["full"]))
        assert told.ratio_to_lower_bound == pytest.approx(told.epsilon / told.lower_epsilon)
        assert told.ratio_to_lower_bound == pytest.approx(1.0, abs=1e-3)

    def test_other_deltas_are_asked_not_assumed(self):
        report = accounted(RUN)
        assert f"epsilon = {up(report.epsilon(1e-8))} at delta = 1e-08" in as_text(
            report, delta=1e-8
        )


class TestAdjacency:
    """Said first, everywhere, and the other beside it where that is known and quick."""

    DP_SGD = li.TrainingRun.from_dp_sgd(
        examples=600, batch_size=20, epochs=2, clip_norm=1.0, noise_multiplier=2.0
    )

    @pytest.mark.parametrize(
        "adjacency, words",
        [("replace", "replaced by another"), ("zero-out", "left out (zeroed)")],
    )
    @pytest.mark.parametrize("batches", ["poisson", "shuffled-each-epoch", "cyclic"])
    def test_the_first_line_names_it_and_the_next_the_other(self, adjacency, words, batches):
        rule = BATCH_RULES[batches].of_sizes(600, 20)
        report = accounted(self.DP_SGD.under(adjacency).replace(batches=rule))
        first, second = str(report).splitlines()[:2]
        assert f"if one example is {words}" in first
        other = report.run.under("zero-out" if adjacency == "replace" else "replace")
        assert f"instead: epsilon = {up(li.account(other).epsilon(1e-5))}." in second
        record = json.loads(report.to_json())
        assert record["adjacency"] == adjacency
        assert record["other_adjacency"] == {
            "adjacency": other.adjacency,
            "epsilon": li.account(other).epsilon(1e-5),
        }
        assert f"adjacency={adjacency!r}" in repr(report)

    def test_what_one_example_adds_may_not_be_known(self):
        report = accounted(RUN)
        assert report.under_other_adjacency is None
        assert json.loads(report.to_json())["other_adjacency"] is None
        assert "instead" not in str(report)

    def test_what_takes_long_is_not_computed_unasked(self):
        assert accounted(POISSON).under_other_adjacency is None

    def test_statistics_published_beside_are_charged_anew(self):
        beside = Release.of_mu("outliers", 0.5, adjacency="zero-out")
        report = li.account(self.DP_SGD, other_releases=[beside])
        other = report.under_other_adjacency
        assert other.other_releases[0].sensitivity >= math.sqrt(3.0) > beside.sensitivity
        assert other.other_releases[0].noise_std == beside.noise_std


class TestTable:
    def test_no_mu_is_a_dash_which_is_explained(self):
        report = accounted(TestAdjacency.DP_SGD)
        assert math.isinf(report.all["composition/sampled"].gdp())
        (row,) = [line for line in str(report).splitlines() if "<- used" in line]
        assert row.split()[4:6] == ["-", up(report.advantage())]
        assert "- if no mu describes the guarantee" in str(report)

    def test_bounds_far_above_the_best_are_named_apart(self):
        report = accounted(TestAdjacency.DP_SGD)
        composed = report.all["composition/fixed-order"].epsilon(1e-5)
        assert composed > 10 * report.epsilon(1e-5)
        (line,) = [line for line in str(report).splitlines() if "composition/fixed-order (" in line]
        named = f"composition/fixed-order ({up(composed)})."
        assert line == f"Also valid, but at least 10 times as large: {named}"
        assert "composition/fixed-order" in json.loads(report.to_json())["all"]

    def test_a_delta_can_be_asked_for(self):
        report = accounted(RUN)
        first = as_text(report, at_epsilon=1.0).splitlines()[0]
        assert first.startswith(f"delta = {up(report.delta(1.0))} at epsilon = 1, epsilon = ")
        assert as_record(report, delta=1e-5, at_epsilon=1.0)["asked"] == {
            "epsilon": 1.0,
            "delta": report.delta(1.0),
        }


class TestEnforced:
    def test_what_a_trainer_saw_to_is_not_stated_by_its_user(self):
        stated, enforced = accounted(RUN), replace(accounted(RUN), enforced=True)
        assert "You state that" in str(stated)
        assert "You state that" not in str(enforced)
        assert "The trainer enforced that" in str(enforced)
        assert json.loads(enforced.to_json())["enforced"] is True


class TestWhy:
    def test_every_bound_of_the_library_has_words_of_its_own(self):
        own = [bound for id_, bound in CATALOGUE.items() if not id_.startswith(PUBLISHED)]
        assert all(not charges(bound, RUN).startswith("gives") for bound in own)

    def test_names_the_best_and_the_next(self):
        text = told_of("shuffled once").why
        assert text.startswith("random-order/shuffled is the least: it averages over")
        assert "Next, fixed-order/convex charges the most exposed" in text

    def test_one_bound_alone(self):
        report = li.account(RUN, bounds="composition/fixed-order")
        assert "only bound that applies" in summary(report, 1e-5).why

    def test_bounds_that_differ_by_rounding_alone_are_equal(self):
        profiles = {
            "fixed-order/convex": li.GaussianProfile(1.0),
            "composition/fixed-order": li.GaussianProfile(1.0 + 1e-12),
        }
        told = summary(PrivacyReport(RUN, profiles, {}), 1e-5)
        assert told.bounds[0].epsilon < told.bounds[1].epsilon
        assert "composition/fixed-order gives the same here" in told.why

    def test_contraction_is_claimed_only_where_losses_curve(self):
        flat = RUN.replace(loss=li.Loss(smoothness=1.0))
        assert "contracting" in charges(CATALOGUE["fixed-order/convex"], RUN)
        assert "contracting" not in charges(CATALOGUE["fixed-order/convex"], flat)


class TestAssumptions:
    def test_the_numbers_of_the_run(self):
        text = stated("shuffled once")
        assert "32.502-smooth and 0.002-strongly convex" in text
        assert "differ by at most 10 in norm" in text
        assert "exactly 1,500 of 60,000 examples" in text
        assert "standard deviation 0.01 per coordinate" in text
        assert "the start does not depend on the examples" in text

    def test_composition_needs_nothing_of_the_loss(self):
        text = stated("every iterate")
        assert "smooth" not in text
        assert "convex" not in text
        assert "in secret" not in text

    @pytest.mark.parametrize(
        "name", ["shuffled once", "shuffled each epoch", "sampled", "poisson, cut"]
    )
    def test_secrecy_where_the_bound_uses_it(self, name):
        assert "in secret" in stated(name)

    @pytest.mark.parametrize("name", ["its order published", "cyclic, with a rest", "full"])
    def test_no_secrecy_where_it_does_not(self, name):
        assert "in secret" not in stated(name)

    def test_each_kind_of_run(self):
        assert "the 100 left over sit out" in stated("cyclic, with a rest")
        assert "seen in steps 3, 40, 77" in stated("fixed order")
        assert "all 60,000 examples" in stated("full")
        assert "closed convex set of diameter 0.5" in stated("ball")
        assert "0.002 per coordinate is added once, to the published" in stated("release noise")
        assert "averaged gradient" not in stated("output perturbation")
        assert "cut to that size at random" in stated("poisson, cut")
        assert "so that the clip never acts" in stated("poisson, cut")

    def test_noise_that_is_scheduled(self):
        run = RUN.replace(noise_std=[0.01 + k / 1000 for k in range(80)])
        text = " ".join(assumptions(CATALOGUE["fixed-order/convex"], run))
        assert "between 0.01 and 0.089, as scheduled, per coordinate" in text

    def test_without_convexity(self):
        text = stated("non-convex")
        assert "0.5-smooth (a penalty of curvature 0.01 included)" in text
        assert "at most 0.3 d^0.5 between points at distance d" in text
        assert "gradient of norm above 7" in text
        assert "convex" not in text

    def test_a_penalty_stays_when_an_example_is_left_out(self):
        """Inside each example's loss, its share would go as well, which is not charged."""
        curved = RUN.replace(loss=li.Loss(smoothness=0.5, regulariser=0.01), adjacency="zero-out")
        for bound in ("fixed-order/convex", "composition/fixed-order"):
            clause = "the penalty is shared: it stays"
            assert clause in " ".join(assumptions(CATALOGUE[bound], curved))
            replaced = curved.replace(adjacency="replace")
            assert clause not in " ".join(assumptions(CATALOGUE[bound], replaced))

    def test_no_smoothness_where_a_clip_hides_curvature(self):
        run = RUN.replace(clip_norm=5.0)
        text = " ".join(assumptions(CATALOGUE["fixed-order/non-convex"], run))
        assert "clipped to norm 5" in text
        assert "strongly" not in text


class TestRelease:
    def test_follows_what_the_bound_refuses(self):
        last = release_rule(CATALOGUE["random-order/shuffled"], RUN)
        assert last.allowed == ("the parameters after step 80",)
        assert any("order of the batches" in one for one in last.voided_by)
        assert any("checkpoint" in one for one in last.voided_by)
        fixed = release_rule(CATALOGUE["fixed-order/convex"], RUN)
        assert fixed.allowed == ("the parameters after step 80", "the order of the batches")
        every = release_rule(CATALOGUE["composition/fixed-order"], RUN)
        assert every.allowed == ("the parameters after every step", "the order of the batches")
        assert not any("checkpoint" in one for one in every.voided_by)


def _refuse(text):
    raise AssertionError(f"{text} is not JSON")


class TestJson:
    @pytest.mark.parametrize("name", RUNS)
    def test_is_json_with_stable_keys(self, name):
        report = accounted(RUNS[name])
        record = json.loads(report.to_json(), parse_constant=_refuse)
        assert list(record) == [
            "delta", "epsilon", "adjacency", "other_adjacency", "asked", "bound", "certainty",
            "all", "bounds", "lower", "why", "advice", "examples_per_person", "protected",
            "qualifications", "selected", "followed", "seeded", "assumptions", "enforced",
            "preprocessing", "release",
            "other_releases", "unmet", "run",
        ]  # fmt: skip
        assert list(record["bounds"][0]) == [
            "id", "epsilon", "mu", "advantage", "ratio", "used", "certainty", "gives", "source",
        ]  # fmt: skip
        assert record["bounds"][0]["id"] == record["bound"] == report.bound
        assert record["epsilon"] == (report.epsilon(1e-5) if name != "not finite" else "inf")
        assert li.TrainingRun.from_json(json.dumps(record["run"])) == report.run

    def test_what_is_only_published_says_so(self):
        record = as_record(li.account(RUN, including="published"), delta=1e-5)
        others = [row for row in record["bounds"] if not row["used"]]
        assert all(row["certainty"] == "as_published" for row in others)

    def test_bad_delta_is_refused(self):
        with pytest.raises(li.InvalidParameter, match="delta must be"):
            accounted(RUN).to_json(delta=2.0)


class _Page(HTMLParser):
    """Collects ids and references, and checks that what is opened is closed."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.tags = [], [], [], set()

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        found = dict(attributes)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found[key] for key in ("href", "xlink:href", "src") if key in found]
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
    def test_is_one_file_that_fetches_nothing(self, page):
        parsed = _Page()
        parsed.feed(page)
        assert not parsed.open
        assert not parsed.tags & {"script", "link", "img", "iframe", "object"}
        assert all(link.startswith("#") for link in parsed.links)
        assert "@import" not in page
        assert "url(http" not in page

    def test_parts_of_pictures_have_names_of_their_own(self, page):
        parsed = _Page()
        parsed.feed(page)
        assert len(parsed.ids) == len(set(parsed.ids))
        assert {link[1:] for link in parsed.links} <= set(parsed.ids)
        assert page.count("<svg") == 4

    def test_text_is_escaped(self, page):
        assert "&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;" in page

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


def test_an_epsilon_of_persons_is_not_said_to_be_of_one_example():
    run = li.TrainingRun.from_dp_sgd(
        examples=1_000, batch_size=100, batches="cyclic", epochs=2, clip_norm=1.0,
        noise_multiplier=4.0, examples_per_person=3,
    )  # fmt: skip
    said = " ".join(str(li.account(run)).split("\n\n")[0].split())
    assert "if all examples of one person, at most 3, are left out (zeroed), certified." in said
    assert "If all examples of one person, at most 3, are replaced by others instead" in said
    assert "one example" not in said

"""Reports as text, and statements: certified as printed, complete, and of a given width."""

import json
import math
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lastiterate as li
from lastiterate._display import down, times, up
from lastiterate.other_releases import Release
from lastiterate.report.summary import as_record, summary
from lastiterate.report.text import as_text, in_columns, ruled, wrapped
from lastiterate.run.batch_rules.base import RULES as BATCH_RULES
from tests.readme_run import accounted, readme_run
from tests.report.example_runs import POISSON, RUN, RUNS

CELLS = st.text(st.sampled_from("ab-/ "), max_size=40)


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


def letters(text):
    return sorted(text.replace(" ", "").replace("\n", ""))


class TestLines:
    """Nothing is lost, nothing sticks out, columns stay columns."""

    @given(text=CELLS, width=st.integers(4, 30))
    def test_paragraphs(self, text, width):
        lines = wrapped(text, width)
        assert max(map(len, lines)) <= width
        assert letters("".join(lines)) == letters(text)

    @given(
        rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=4), width=st.integers(20, 90)
    )
    def test_cells_beside_each_other(self, rows, width):
        lines = in_columns(rows, width, apart=2)
        assert max(map(len, lines)) <= width
        assert letters("".join(lines)) == letters("".join(map("".join, rows)))

    def test_columns_are_as_wide_as_they_need_to_be(self):
        assert in_columns([(" -", "one two"), (" -", "three")], 100, apart=1) == [
            " - one two",
            " - three",
        ]
        narrow = in_columns([("id", "one two\n-> three")], 9, apart=2)
        assert narrow == ["id  one", "    two", "    ->", "    three"]
        head, rows = (
            ("bound", "epsilon", "mu"),
            [("first", "1.5", "-"), ("the second", "10.25", "2")],
        )
        assert ruled(head, rows, 100) == [
            "",
            " bound        epsilon   mu",
            f" {'─' * 25}",
            " first            1.5    -",
            " the second     10.25    2",
            "",
        ]
        # The widest gives way.
        assert ruled(head, rows[1:], 23)[3:5] == [" the        10.25    2", " second"]

    @pytest.mark.parametrize("width", [60, 100])
    def test_no_id_is_cut_off_however_narrow_the_terminal(self, width):
        report = li.account(RUNS["full"], including="published")
        text = as_text(report, width=width)
        assert max(map(len, text.splitlines())) <= width
        assert "…" not in text
        joined = "".join(line[: width - 40] for line in text.splitlines()).replace(" ", "")
        assert all(id_ in joined for id_ in report.all)


class TestText:
    @pytest.mark.parametrize("name", RUNS)
    def test_fits_and_has_every_part(self, name):
        text = str(accounted(RUNS[name]))
        assert max(map(len, text.splitlines())) <= 100
        for part in ("epsilon = ", "<- used", "You state that", "You may publish", "voids the"):
            assert part in text
        assert "nan" not in text.split("Bounds for such batches")[0].replace("nance", "")

    def test_the_lower_bound_is_named_and_the_ratio_is_to_it(self):
        told = summary(accounted(RUNS["full"]), 1e-5)
        assert told.lower_bound in as_text(accounted(RUNS["full"]))
        assert told.ratio_to_lower_bound == pytest.approx(told.epsilon / told.lower_epsilon)
        assert told.ratio_to_lower_bound == pytest.approx(1.0, abs=1e-3)

    def test_other_deltas_are_asked_not_assumed(self):
        report = accounted(RUN)
        said = f"epsilon = {up(report.epsilon(1e-8))} at delta = 1e-08"
        assert said in as_text(report, delta=1e-8)


class TestAdjacency:
    """Said first, everywhere, and the other beside it where that is known and quick."""

    DP_SGD = li.TrainingRun.from_dp_sgd(
        examples=600, batch_size=20, epochs=2, clip_norm=1.0, noise_multiplier=2.0
    )

    @pytest.mark.parametrize(
        "adjacency, words, batches",
        [
            ("replace", "replaced by another", "poisson"),
            ("zero-out", "left out (zeroed)", "shuffled-each-epoch"),
            ("zero-out", "left out (zeroed)", "cyclic"),
        ],
    )
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
    def test_names_bounds_far_above_the_best_apart_and_a_dash_for_no_mu(self):
        report = accounted(TestAdjacency.DP_SGD)
        assert math.isinf(report.all["composition/sampled"].gdp())
        (row,) = [line for line in str(report).splitlines() if "<- used" in line]
        assert row.split()[4:6] == ["-", up(report.advantage())]
        assert "- if no mu describes the guarantee" in str(report)
        composed = report.all["composition/fixed-order"].epsilon(1e-5)
        assert composed > 10 * report.epsilon(1e-5)
        (line,) = [line for line in str(report).splitlines() if "composition/fixed-order (" in line]
        named = f"composition/fixed-order ({up(composed)})."
        assert line == f"Also valid, but at least 10 times as large: {named}"

    def test_a_delta_can_be_asked_for(self):
        report = accounted(RUN)
        first = as_text(report, at_epsilon=1.0).splitlines()[0]
        assert first.startswith(f"delta = {up(report.delta(1.0))} at epsilon = 1, epsilon = ")
        asked = as_record(report, delta=1e-5, at_epsilon=1.0)["asked"]
        assert asked == {"epsilon": 1.0, "delta": report.delta(1.0)}


def test_what_a_trainer_saw_to_is_not_stated_by_its_user():
    stated, enforced = accounted(RUN), replace(accounted(RUN), enforced=True)
    assert "You state that" in str(stated)
    assert "You state that" not in str(enforced)
    assert "The trainer enforced that" in str(enforced)
    assert json.loads(enforced.to_json())["enforced"] is True


def test_an_epsilon_of_persons_is_not_said_to_be_of_one_example():
    run = li.TrainingRun.from_dp_sgd(
        examples=1_000, batch_size=100, batches="cyclic", epochs=2, clip_norm=1.0,
        noise_multiplier=4.0, examples_per_person=3,
    )  # fmt: skip
    said = " ".join(str(li.account(run)).split("\n\n")[0].split())
    assert "if all examples of one person, at most 3, are left out (zeroed), certified." in said
    assert "If all examples of one person, at most 3, are replaced by others instead" in said
    assert "one example" not in said


class TestStatement:
    REPORT = accounted(readme_run().replace(batches=li.Cyclic(60_000, 1_500)))

    def test_says_what_is_needed_to_judge_it(self):
        text = self.REPORT.statement()
        for said in (
            "2,000 steps",
            "epsilon = 4.3392",
            "delta = 1e-05",
            "one example being replaced by another",
            f"lastiterate {li.__version__}, bound {self.REPORT.bound}",
            "Only this may be published: the parameters after step 2,000; the order of the",
            "stated by whoever trained the model",
            "- Every batch has exactly 1,500",
            "Any of these voids it:",
        ):
            assert said in text, said

    def test_users_by_group_privacy(self):
        text = self.REPORT.statement(max_examples_per_user=3)
        three = li.GaussianProfile(3.0 * self.REPORT.gdp()).epsilon(1e-5)
        assert "a user with at most 3 examples" in text
        stated = float(text.split("group privacy gives epsilon = ")[1].split(" ")[0])
        assert three <= stated <= three * 1.001
        with pytest.raises(li.InvalidParameter, match="max_examples_per_user must be"):
            self.REPORT.statement(max_examples_per_user=0)

    def test_formats(self):
        assert self.REPORT.statement(format="markdown").startswith("**Differential privacy.**")
        card = self.REPORT.statement(format="model-card")
        assert card.startswith("## Privacy\n")
        assert "### What voids it" in card
        with pytest.raises(li.InvalidParameter, match="format must be one of"):
            self.REPORT.statement(format="latex")

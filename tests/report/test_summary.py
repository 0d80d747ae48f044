"""What a report tells: the words follow from the bound, and the record is JSON."""

import json

import pytest

import lastiterate as li
from lastiterate.accounting import PrivacyReport
from lastiterate.bounds.catalogue import CATALOGUE, PUBLISHED
from lastiterate.report.sentences import charges, release_rule
from lastiterate.report.summary import as_record, assumptions, summary
from tests.readme_run import accounted
from tests.report.example_runs import RUN, RUNS


def stated(name):
    return " | ".join(summary(accounted(RUNS[name]), 1e-5).assumptions)


class TestWhy:
    def test_every_bound_of_the_library_has_words_of_its_own(self):
        own = [bound for id_, bound in CATALOGUE.items() if not id_.startswith(PUBLISHED)]
        assert all(not charges(bound, RUN).startswith("gives") for bound in own)

    def test_names_the_best_and_the_next(self):
        text = summary(accounted(RUN), 1e-5).why
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
    @pytest.mark.parametrize(
        "name, said",
        [
            ("shuffled once", "32.502-smooth and 0.002-strongly convex"),
            ("shuffled once", "differ by at most 10 in norm"),
            ("shuffled once", "exactly 1,500 of 60,000 examples"),
            ("shuffled once", "standard deviation 0.01 per coordinate"),
            ("shuffled once", "the start does not depend on the examples"),
            ("cyclic, with a rest", "the 100 left over sit out"),
            ("fixed order", "seen in steps 3, 40, 77"),
            ("full", "all 60,000 examples"),
            ("ball", "closed convex set of diameter 0.5"),
            ("release noise", "0.002 per coordinate is added once, to the published"),
            ("poisson, cut", "cut to that size at random"),
            ("poisson, cut", "so that the clip never acts"),
            ("non-convex", "0.5-smooth (a penalty of curvature 0.01 included)"),
            ("non-convex", "at most 0.3 d^0.5 between points at distance d"),
            ("non-convex", "gradient of norm above 7"),
        ],
    )
    def test_name_what_the_run_must_be(self, name, said):
        assert said in stated(name)

    @pytest.mark.parametrize(
        "name, words",
        [
            ("every iterate", ("smooth", "convex", "in secret")),  # composition needs none of it
            ("output perturbation", ("averaged gradient",)),
            ("non-convex", ("convex",)),
            ("its order published", ("in secret",)),
            ("cyclic, with a rest", ("in secret",)),
            ("full", ("in secret",)),
        ],
    )
    def test_name_nothing_that_the_bound_does_not_use(self, name, words):
        assert not any(word in stated(name) for word in words)

    @pytest.mark.parametrize(
        "name", ["shuffled once", "shuffled each epoch", "sampled", "poisson, cut"]
    )
    def test_name_secrecy_where_the_bound_uses_it(self, name):
        assert "in secret" in stated(name)

    def test_noise_that_is_scheduled(self):
        run = RUN.replace(noise_std=[0.01 + k / 1000 for k in range(80)])
        text = " ".join(assumptions(CATALOGUE["fixed-order/convex"], run))
        assert "between 0.01 and 0.089, as scheduled, per coordinate" in text

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


class TestLaterLowerBounds:
    """Those that may take longer than the guarantee are left out of a report, which says so."""

    @staticmethod
    def report(steps):
        run = RUNS["full"].replace(momentum=0.99, batches=li.ShuffledEachEpoch(1_000, 2))
        loss = li.Loss(smoothness=3.0)
        return li.account(run.replace(loss=loss, steps=steps, step_size=1.0, noise_std=10.0))

    def test_of_long_runs_with_momentum(self):
        report = self.report(20_000)
        assert report.quick_lower_bounds == {}
        assert [one.id for one in report.later_lower_bounds] == ["lower/momentum"]
        text = " ".join(str(report).split())
        assert "No lower bound is known" not in text
        assert "Not computed, since it may take longer than the guarantee: the lower bound " in text
        assert "report.lower.epsilon(1e-05)" in text
        record = json.loads(json.dumps(as_record(report, delta=1e-5)))
        assert record["lower"]["not_computed"] == ["lower/momentum"]

    def test_of_short_ones(self):
        report = self.report(4)
        assert report.later_lower_bounds == ()
        assert report.lower_bounds == report.quick_lower_bounds != {}
        assert summary(report, 1e-5).lower_bound == "lower/momentum"
        assert "Not computed" not in str(report)

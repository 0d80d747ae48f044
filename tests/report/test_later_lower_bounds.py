"""A report leaves out lower bounds that may take longer than the guarantee, and says so."""

import json

import lastiterate as li
from lastiterate.report.summary import as_record, summary


def run_of(steps):
    return li.TrainingRun(
        loss=li.Loss(smoothness=3.0), sensitivity=1.0, batches=li.ShuffledEachEpoch(1_000, 2),
        steps=steps, step_size=1.0, noise_std=1.0, momentum=0.99,
    )  # fmt: skip


def test_long_runs_with_momentum():
    report = li.account(run_of(20_000))
    assert report.quick_lower_bounds == {}
    assert [one.id for one in report.later_lower_bounds] == ["lower/momentum"]
    text = " ".join(str(report).split())
    assert "No lower bound is known" not in text
    assert (
        "Not computed, since it may take longer than the guarantee: the lower bound "
        "lower/momentum. In Python report.lower.epsilon(1e-05) is the largest."
    ) in text
    record = json.loads(json.dumps(as_record(report, delta=1e-5)))
    assert record["lower"]["not_computed"] == ["lower/momentum"]


def test_short_ones_have_all():
    report = li.account(run_of(20))
    assert report.later_lower_bounds == ()
    assert report.lower_bounds == report.quick_lower_bounds != {}
    assert summary(report, 1e-5).lower_bound == "lower/momentum"
    assert "Not computed" not in str(report)

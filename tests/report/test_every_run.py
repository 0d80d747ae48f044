"""Reports of runs of every kind can be read, whatever is known of their losses."""

import pytest
from hypothesis import given, settings

import lastiterate as li
from lastiterate.bounds.catalogue import RECORDS
from tests.bounds.test_catalogue import runs

CONVEX_WITHOUT_SMOOTHNESS = li.TrainingRun(
    loss=li.Loss(lipschitz=0.5), sensitivity=1.0, batches=li.ShuffledOnce(40, 10), steps=9,
    step_size=1.0, noise_std=0.005, release_noise_std=0.001,
)  # fmt: skip


def read(run):
    """Asks for all that tells of a report in words, and nothing that raises but for a reason."""
    report = li.account(run)
    assert "epsilon" in str(report)
    assert "epsilon" in report._repr_html_()
    assert report.to_json()
    assert report.statement()
    assert report.explain().keys() >= report.used.keys()


@given(run=runs(), flat=runs().filter(lambda run: run.loss.smoothness is None))
@settings(max_examples=6)
def test_of_every_kind_and_without_smoothness(run, flat):
    read(run)
    read(flat)


@pytest.mark.parametrize(
    "changes",
    [
        *({"steps": steps} for steps in (1, 4)),
        {"batches": li.ShuffledEachEpoch(40, 10), "momentum": [0.1 * k for k in range(1, 10)]},
    ],
)
def test_where_the_next_bound_needs_no_smoothness(changes):
    read(CONVEX_WITHOUT_SMOOTHNESS.replace(**changes))


@pytest.mark.parametrize("rule", [li.Cyclic, li.ShuffledOnce, li.PoissonSampled])
def test_printed_reports_list_no_stages_and_no_refusal_that_a_better_bound_answers(rule):
    loss = li.Loss(smoothness=1.0, lipschitz=1.0, regulariser=0.01)
    run = CONVEX_WITHOUT_SMOOTHNESS.replace(batches=rule(40, 10), loss=loss, noise_std=0.1)
    report = li.account(run)
    text = str(report)
    assert [id_ for id_ in RECORDS.keys() - li.CATALOGUE.keys() if id_ in text] == []
    assert "nothing to do" not in text
    staged = rule is not li.Cyclic
    assert ("report.unmet" in text) == staged == bool(report.unmet.keys() - li.CATALOGUE.keys())


def test_page_without_smoothness():
    pytest.importorskip("matplotlib")
    assert "composition/fixed-order" in li.account(CONVEX_WITHOUT_SMOOTHNESS).to_html()


@pytest.mark.parametrize("rule", [li.Cyclic, li.ShuffledOnce, li.ShuffledEachEpoch])
def test_composition_answers_without_smoothness_and_says_what_is_missing(rule):
    report = li.account(CONVEX_WITHOUT_SMOOTHNESS.replace(batches=rule(40, 10), domain=li.Ball(1)))
    assert report.epsilon(1e-5) <= report.all["composition/fixed-order"].epsilon(1e-5)
    (unmet,) = report.unmet["fixed-order/convex"]
    assert unmet.found == "smoothness=None"
    assert "squared hinge" in unmet.remedy

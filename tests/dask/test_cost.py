"""Steps that are left open: as for rows in memory, unless their messages take too long."""

import pytest

from lastiterate.dask.estimators import PrivateLogisticRegression, StepCost, affordable_batches
from lastiterate.train.defaults import default_run, steps_asked_for
from lastiterate.train.objectives import Logistic


def chosen(examples, *, features=64, workers=2, block=1, step_seconds=0.02, **settings):
    """The run that follows from what is left open, and the steps that the rule asks for."""
    asked = PrivateLogisticRegression(epsilon=1.0, delta=1e-10, **settings).checked()
    public = {"examples": examples, "radius": 1.0}
    wanted = steps_asked_for(Logistic(), asked, **public)
    cost = StepCost(features, 1, workers, step_seconds)
    asked.batch_size, asked.epochs = affordable_batches(
        asked, Logistic(), cost, **public, block=block
    )
    return default_run(Logistic(), asked, **public), wanted


class TestMessagesOfAMinute:
    def test_are_enough_for_few_rows(self):
        run, wanted = chosen(20_000)
        local = PrivateLogisticRegression(epsilon=1.0, delta=1e-10, epochs=20).checked()
        assert wanted < 3_000
        assert run.steps == wanted
        assert run.batches == default_run(Logistic(), local, examples=20_000, radius=1.0).batches

    @pytest.mark.parametrize("examples", [200_000, 1_000_003])
    @pytest.mark.parametrize("epochs", [None, 3, 20])
    def test_limit_the_steps_for_more_and_batches_are_larger(self, examples, epochs):
        run, wanted = chosen(examples, epochs=epochs)
        assert wanted > 5_000
        assert 2_900 <= run.steps <= 3_000
        assert run.steps * run.batches.batch_size <= (epochs or 20) * examples

    def test_are_counted_by_what_a_message_costs(self):
        run, wanted = chosen(200_000, step_seconds=0.06)
        assert 900 <= run.steps <= 1_000
        assert chosen(200_000, step_seconds=1e-9)[0].steps == wanted

    def test_may_be_longer_where_computing_is(self):
        """Twenty passes over ten million rows of a thousand columns take ten workers 40 seconds."""
        assert 2_900 <= chosen(10_000_000, features=1_000, workers=10)[0].steps <= 3_000
        run, wanted = chosen(10_000_000, features=1_000, workers=2)
        assert 9_900 <= run.steps <= 10_000 < wanted


class TestWhatIsStated:
    def test_batches_have_passes_that_take_a_minute(self):
        run, _ = chosen(200_000, batch_size=100_000)
        assert run.batches.batch_size == 100_000
        assert 40 < run.steps <= 3_000
        run, _ = chosen(200_000, batch_size=100)
        assert run.steps <= 20 * 2_000

    def test_full_batches(self):
        run, wanted = chosen(200_000, batches="full")
        assert 20 < run.steps <= 3_000 < wanted
        assert chosen(200_000, batches="full", epochs=7)[0].steps == 7

    def test_blocks_are_kept_whole(self):
        run, _ = chosen(200_000, block=25_000)
        assert run.batches.batch_size == 25_000


def test_cost_of_a_step():
    cost = StepCost(1_000, 1, 100, step_seconds=0.02, rate=1e9, network=1e9)
    assert cost.bytes == 1_600_000
    assert cost.hidden_rows == 1_000_000
    assert cost.seconds(1_000_000) == pytest.approx(0.02 + 0.0016 + 0.02)
    assert cost.most_steps(1_000_000) == 3_000

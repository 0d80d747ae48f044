"""What one example may become: the two adjacencies, and the name that others have for one."""

import pytest

import lastiterate as li
from lastiterate.errors import InvalidParameter
from lastiterate.run.batch_rules.base import RULES
from lastiterate.run.training_run import TrainingRun

SIZED = [name for name, rule in RULES.items() if rule.from_sizes and rule.ordered]
INDEPENDENT = ["poisson", "balanced", "balls-and-bins", "balls-and-bins-each-epoch"]


def run(**changes):
    settings = {
        "loss": li.Loss(convex=False), "sensitivity": 1.0, "steps": 3, "step_size": 1.0,
        "noise_std": 1.0, "batches": li.PoissonSampled(100, 10),
    }  # fmt: skip
    return TrainingRun(**settings | changes)


class TestAddRemove:
    @pytest.mark.parametrize("name", INDEPENDENT)
    def test_is_zero_out_where_examples_take_part_independently(self, name):
        rule = RULES[name].of_sizes(100, 10)
        assert run(batches=rule, adjacency="add-remove").adjacency == "zero-out"

    @pytest.mark.parametrize("name", [name for name in SIZED if name not in INDEPENDENT])
    def test_is_refused_with_the_reason_where_it_moves_others(self, name):
        rule = RULES[name].of_sizes(100, 10)
        with pytest.raises(InvalidParameter, match="would change the batches of the others"):
            run(batches=rule, adjacency="add-remove")

    def test_is_refused_where_batches_are_cut(self):
        """One that is removed leaves its place in a full batch to another."""
        with pytest.raises(InvalidParameter, match="a largest size"):
            run(batches=li.PoissonSampled(100, 10, 20), adjacency="add-remove")

    def test_other_words_are_told_what_there_is(self):
        with pytest.raises(InvalidParameter, match="'add-remove', which is 'zero-out' for"):
            run(adjacency="remove")


class TestUnder:
    CLIPPED = TrainingRun.from_dp_sgd(
        batches=li.Cyclic(100, 10), clip_norm=3.0, noise_multiplier=1.0, steps=3, step_size=1.0
    )

    def test_replacing_costs_twice_a_clip(self):
        other = self.CLIPPED.under("replace")
        assert (other.adjacency, other.sensitivity) == ("replace", 6.0)
        assert other.under("zero-out") == self.CLIPPED
        assert self.CLIPPED.under("zero-out") is self.CLIPPED

    def test_a_difference_of_gradients_does_not_bound_one(self):
        assert run(adjacency="replace", sensitivity=0.1).under("zero-out") is None
        bounded = run(loss=li.Loss(lipschitz=5.0), adjacency="replace", sensitivity=0.1)
        assert bounded.under("zero-out").sensitivity == 5.0

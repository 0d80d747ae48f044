"""What a ledger proves: what is spent, or the most that could be if costs depend on results."""

import dp_accounting as dpa
import numpy as np
import pytest

import lastiterate as li
from lastiterate.cli import main
from lastiterate.ledger.ledger import Ledger

BUDGET = {"epsilon": 2.0, "delta": 1e-5}
SMALL = dpa.GaussianDpEvent(20.0)  # mu .1 for a replacement
LARGE = dpa.GaussianDpEvent(1.0)  # mu 2, far beyond the budget


@pytest.fixture
def adaptive(tmp_path):
    return Ledger(tmp_path / "people.ledger", adaptive=True, **BUDGET)


def mu_of(epsilon, delta):
    """By bisection, of the Gaussian mechanism that has this epsilon."""
    low, high = 0.0, 10.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if li.GaussianProfile(middle).epsilon(delta) <= epsilon
            else (low, middle)
        )
    return low


MOST = mu_of(**BUDGET)


class TestAdaptive:
    def test_nothing_was_charged(self, adaptive):
        assert adaptive.guarantee().epsilon(1e-5) == 0.0

    def test_the_budget_is_what_holds_however_little_is_spent(self, adaptive):
        """Had the first result been otherwise, the rest would have been spent."""
        adaptive.add(SMALL)
        assert adaptive.spent().epsilon(1e-5) < 0.5
        for proved in (adaptive.guarantee(), adaptive.verify()):
            assert 2.0 <= proved.epsilon(1e-5) <= 2.0 * (1 + 1e-6)
        assert "proved: 2.0000, the most that could have been spent" in str(adaptive)

    def test_what_is_recorded_late_comes_on_top_of_the_budget(self, adaptive):
        adaptive.add(SMALL)
        adaptive.add(SMALL, already_published=True)
        assert adaptive.spent().gdp() == pytest.approx(np.hypot(0.1, 0.1))
        assert adaptive.guarantee().gdp() == pytest.approx(np.hypot(MOST, 0.1), rel=1e-6)

    def test_also_beyond_it(self, adaptive):
        adaptive.add(SMALL)
        adaptive.add(LARGE, already_published=True)
        assert adaptive.guarantee().gdp() == pytest.approx(np.hypot(MOST, 2.0), rel=1e-6)
        assert adaptive.guarantee().epsilon(1e-5) > adaptive.spent().epsilon(1e-5) > 2.0

    def test_what_is_recorded_first_is_part_of_the_budget(self, adaptive):
        adaptive.add(SMALL, already_published=True)
        adaptive.add(SMALL)
        assert adaptive.guarantee().gdp() == pytest.approx(MOST, rel=1e-6)

    def test_what_is_recorded_first_beyond_it_leaves_no_room(self, adaptive):
        adaptive.add(LARGE, already_published=True)
        assert adaptive.guarantee().gdp() == pytest.approx(2.0, rel=1e-6)
        assert adaptive.largest_epsilon() == 0.0

    def test_a_strategy_that_spends_by_results(self, tmp_path):
        """Its most exposed outcome is beyond what the ledger spends in others, and within this."""
        spent, proved = [], []
        for outcome in range(2):
            ledger = Ledger(tmp_path / f"{outcome}.ledger", adaptive=True, **BUDGET)
            ledger.add(SMALL)
            for _ in range(20 * outcome):
                ledger.add(SMALL)
            ledger.add(SMALL, already_published=True)
            spent.append(ledger.spent().gdp())
            proved.append(ledger.guarantee().gdp())
        assert spent[0] < max(spent) <= min(proved)

    def test_the_command_says_what_is_proved(self, adaptive, capsys):
        adaptive.add(SMALL)
        assert main(["ledger", "verify", str(adaptive.path)]) == 0
        assert "epsilon 2.0000 at delta" in capsys.readouterr().out


def test_costs_fixed_beforehand_are_proved_as_spent(tmp_path):
    ledger = Ledger(tmp_path / "people.ledger", **BUDGET)
    ledger.add(SMALL)
    ledger.add(LARGE, already_published=True)
    assert ledger.guarantee().epsilon(1e-5) == ledger.spent().epsilon(1e-5) > 2.0


@pytest.mark.parametrize("batches", [li.ShuffledOnce, li.Cyclic])
@pytest.mark.parametrize("persons", [1, 2])
def test_a_replacement_in_a_ledger_for_leaving_out_keeps_no_curvature_of_its_own(
    tmp_path, batches, persons
):
    """Two examples that are left out leave a loss that curves less than all examples do."""
    run = li.TrainingRun(
        loss=li.Loss(smoothness=1.0, strong_convexity=0.9, lipschitz=1.0),
        sensitivity=1.0,
        batches=batches(examples=100, batch_size=20),
        steps=20,
        step_size=0.5,
        noise_std=0.2,
        domain=li.Ball(diameter=1.0),
        examples_per_person=persons,
    )
    path = tmp_path / "people.ledger"
    unit = {"adjacency": "zero-out", "examples_per_person": persons}
    ledger = Ledger(path, **unit, epsilon=20.0, delta=1e-5)
    ledger.add(li.account(run))
    left_out = li.account(run.replace(adjacency="zero-out")).epsilon(1e-5)
    assert ledger.spent().epsilon(1e-5) >= left_out * (1 - 1e-9)


def test_a_release_without_an_epsilon_is_not_said_to_have_none(tmp_path, capsys):
    path = tmp_path / "people.ledger"
    Ledger(path, **BUDGET)
    words = ["--epsilon", "1", "--delta", "0.1", "--already-published"]
    assert main(["ledger", "add", str(path), *words]) == 0
    assert "epsilon inf alone" in capsys.readouterr().out

"""The ledger: charged before, refused beyond the budget, the same whoever looks."""

import copy
import json
import math
import pickle

import dp_accounting as dpa
import numpy as np
import pytest

import lastiterate as li
from lastiterate.errors import BudgetExceeded, InvalidLedger, InvalidParameter
from lastiterate.ledger import charges
from lastiterate.ledger import journal as journal_lines
from lastiterate.ledger.ledger import Ledger
from lastiterate.other_releases import Release
from lastiterate.profile.rounded import Rounding
from lastiterate.train.arithmetic import release_rounding

GAUSSIAN = dpa.GaussianDpEvent(8.0)  # mu 1/4 for a replacement, epsilon .926 at delta 1e-5


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.ledger"


@pytest.fixture
def ledger(path):
    return Ledger(path, epsilon=2.0, delta=1e-5)


def run(**changes):
    settings = {
        "loss": li.Loss(smoothness=1.0, strong_convexity=0.1, lipschitz=1.0),
        "sensitivity": 2.0,
        "batches": li.Cyclic(examples=1_000, batch_size=100),
        "steps": 20,
        "step_size": 0.5,
        "noise_std": 0.2,
    }
    return li.TrainingRun(**(settings | changes))


def forged(path, change):
    """Entries changed, and all hashes made anew."""
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    change(entries)
    known = []
    for n, entry in enumerate(entries):
        content = {k: v for k, v in entry.items() if k != "hash"}
        content |= {"n": n, "previous": journal_lines.head(known)}
        known.append(content | {"hash": journal_lines.hash_of(content)})
    path.write_text("".join(json.dumps(entry) + "\n" for entry in known))


class TestOpening:
    def test_a_new_one_needs_a_budget(self, path):
        with pytest.raises(InvalidParameter, match="epsilon must be given, as there is no ledger"):
            Ledger(path)
        assert not path.exists()

    def test_the_budget_is_read_from_the_file(self, ledger):
        again = Ledger(ledger.path)
        assert (again.epsilon, again.delta, again.adjacency) == (2.0, 1e-5, "replace")

    @pytest.mark.parametrize(
        "other",
        [{"epsilon": 3.0}, {"delta": 1e-6}, {"adjacency": "zero-out"}, {"adaptive": True}],
    )
    def test_another_budget_is_refused(self, ledger, other):
        with pytest.raises(InvalidParameter, match="as the ledger was opened with"):
            Ledger(ledger.path, **other)

    @pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, "2"])
    def test_budgets_that_are_none(self, path, epsilon):
        with pytest.raises(InvalidParameter, match="epsilon must be"):
            Ledger(path, epsilon=epsilon, delta=1e-5)

    def test_another_file_is_refused(self, path):
        path.write_text("a,b\n1,2\n")
        with pytest.raises(InvalidLedger, match="line 1"):
            Ledger(path, epsilon=1.0, delta=1e-5)
        assert path.read_text() == "a,b\n1,2\n"

    def test_copies_are_of_the_same_file(self, ledger):
        for same in (copy.deepcopy(ledger), pickle.loads(pickle.dumps(ledger))):
            same.add(GAUSSIAN)
        assert len(ledger.entries()) == 3


class TestBudget:
    def test_is_spent_and_then_refused(self, ledger):
        for k in range(4):
            ledger.add(GAUSSIAN, f"count {k}")
        spent = ledger.spent().epsilon(1e-5)
        assert spent == pytest.approx(li.GaussianProfile(0.5).epsilon(1e-5), rel=1e-9)
        with pytest.raises(BudgetExceeded, match=r"Nothing was charged. A release of epsilon 0\."):
            ledger.add(GAUSSIAN)
        assert len(ledger.entries()) == 5
        assert ledger.spent().epsilon(1e-5) == spent <= 2.0

    def test_what_is_said_to_fit_does_and_more_does_not(self, ledger):
        ledger.add(dpa.LaplaceDpEvent(4.0))
        largest = ledger.largest_epsilon()
        least = li.calibrate(run(steps=1), epsilon=largest, delta=1e-5)
        with pytest.raises(BudgetExceeded):
            ledger.add(li.account(least.replace(noise_std=0.98 * least.noise_std)))
        ledger.add(li.account(least.replace(noise_std=1.001 * least.noise_std)))
        assert ledger.largest_epsilon() < 0.1

    def test_what_is_published_already_is_charged_beyond_it(self, ledger):
        ledger.add(dpa.GaussianDpEvent(0.5), already_published=True)
        assert ledger.spent().epsilon(1e-5) > 2.0
        assert "overspent" in str(ledger)
        with pytest.raises(BudgetExceeded, match=r"epsilon 0\.0"):
            ledger.add(GAUSSIAN)

    def test_nothing_spent(self, ledger):
        assert ledger.spent().epsilon(1e-5) == 0.0
        assert ledger.largest_epsilon() == pytest.approx(2.0, rel=1e-6)


class TestReservations:
    def test_count_from_the_beginning(self, ledger):
        charge = charges.training(li.account(run()))
        id_ = ledger.reserve(charge, "a model")
        reserved = ledger.spent().epsilon(1e-5)
        assert reserved == pytest.approx(li.account(run()).epsilon(1e-5), rel=1e-3)
        assert "died half-way" in str(ledger)
        ledger.settle(id_)
        assert ledger.spent().epsilon(1e-5) == reserved
        assert "died half-way" not in str(ledger)

    def test_end_once(self, ledger):
        id_ = ledger.reserve(charges.training(li.account(run())))
        ledger.settle(id_)
        for again in (ledger.settle, lambda id_: ledger.withdraw(id_, "a mistake")):
            with pytest.raises(InvalidParameter, match="neither settled nor withdrawn"):
                again(id_)
        with pytest.raises(InvalidParameter, match="neither settled nor withdrawn"):
            ledger.settle("unknown")

    def test_can_be_withdrawn_with_a_reason(self, ledger):
        id_ = ledger.reserve(charges.training(li.account(run())))
        with pytest.raises(InvalidParameter, match="a reason"):
            ledger.withdraw(id_, " ")
        ledger.withdraw(id_, "out of memory before the first step")
        assert ledger.spent().epsilon(1e-5) == 0.0
        assert ledger.entries()[-1]["because"].startswith("out of memory")

    def test_what_was_added_cannot_be_withdrawn(self, ledger):
        id_ = ledger.add(GAUSSIAN)["id"]
        with pytest.raises(InvalidParameter):
            ledger.withdraw(id_, "regret")


class TestReleases:
    def test_reports_and_pairs(self, ledger):
        report = li.account(run())
        ledger.add(report)
        alone = report.epsilon(1e-5)
        assert alone * (1 - 1e-9) <= ledger.spent().epsilon(1e-5) <= 1.001 * alone
        ledger.add((0.1, 1e-9))
        assert ledger.spent().epsilon(1e-5) < alone + 0.1

    def test_what_is_no_release(self, ledger):
        for wrong in (1.0, None, (1.0, 2.0, 3.0), np.zeros(3)):
            with pytest.raises(InvalidParameter, match="release must be"):
                ledger.add(wrong)

    def test_a_training_left_out_counts_twice_for_a_replacement(self, ledger):
        left_out = run(sensitivity=1.0, adjacency="zero-out")
        ledger.add(li.account(left_out))
        replaced = li.account(run()).epsilon(1e-5)
        assert ledger.spent().epsilon(1e-5) == pytest.approx(replaced, rel=1e-3)
        assert replaced > 1.9 * li.account(left_out).epsilon(1e-5)

    def test_a_replacement_is_accounted_anew_for_leaving_out_where_gradients_are_bounded(
        self, path
    ):
        ledger = Ledger(path, epsilon=2.0, delta=1e-5, adjacency="zero-out")
        ledger.add(li.account(run()))
        left_out = li.account(run(adjacency="zero-out", sensitivity=1.0)).epsilon(1e-5)
        assert ledger.spent().epsilon(1e-5) == pytest.approx(left_out, rel=1e-3)
        assert left_out < 0.6 * li.account(run()).epsilon(1e-5)
        unbounded = run(loss=li.Loss(smoothness=1.0, strong_convexity=0.1))
        with pytest.raises(InvalidParameter, match="train with adjacency='zero-out'"):
            ledger.add(li.account(unbounded))


class TestAdaptive:
    def test_counts_mu_alone(self, path):
        ledger = Ledger(path, epsilon=2.0, delta=1e-5, adaptive=True)
        shuffled = run(batches=li.ShuffledOnce(1_000, 100))
        report = li.account(shuffled)
        ledger.add(report)
        assert ledger.spent().gdp() == pytest.approx(report.gdp(), rel=1e-9)
        assert "chosen by looking" in str(ledger)

    def test_refuses_what_has_no_mu(self, path):
        ledger = Ledger(path, epsilon=2.0, delta=1e-5, adaptive=True)
        with pytest.raises(InvalidParameter, match="Gaussian guarantee"):
            ledger.add(dpa.PoissonSampledDpEvent(0.1, GAUSSIAN))


class TestVerify:
    @pytest.fixture
    def full(self, ledger):
        ledger.add(GAUSSIAN, "a")
        ledger.add(li.account(run(batches=li.ShuffledOnce(1_000, 100))), "b")
        ledger.settle(ledger.reserve(charges.training(li.account(run(steps=1))), "c"))
        return ledger

    def test_whole(self, full):
        assert full.verify().epsilon(1e-5) == full.spent().epsilon(1e-5)
        assert full.verify(head=full.entries()[2]["hash"]) is not None

    def test_a_head_that_is_gone(self, full):
        head = full.head()
        forged(full.path, lambda entries: entries.pop())
        Ledger(full.path).verify()
        with pytest.raises(InvalidLedger, match="no entry has the hash"):
            Ledger(full.path).verify(head=head)

    @pytest.mark.parametrize(
        "change, reason",
        [
            (lambda e: e[1]["costs"][0].update(mu=0.01), "entry 1 costs other"),
            (lambda e: e[2]["costs"][0].update(mu=0.01), "entry 2 costs other"),
            (lambda e: e[2]["costs"][0]["curve"].update(cell=1e-9), "entry 2 costs other"),
            (lambda e: e[2]["costs"].clear(), "entry 2 costs other"),
            (lambda e: e[2]["charge"]["run"].update(noise_std=0.1), "entry 2 costs other"),
            (lambda e: e.append(e[4]), "entry 5 ends what was not reserved"),
            (lambda e: e.append(e[1]), "entry 5 has an id that another has"),
            (lambda e: e.append({**e[0]}), "entry 5 is 'opened'"),
            (lambda e: e[1].pop("charge"), "entry 1 cannot be read"),
            (lambda e: e[1]["charge"].update(kind="gift"), "entry 1 cannot be read"),
        ],
    )
    def test_forged_entries(self, full, change, reason):
        forged(full.path, change)
        with pytest.raises(InvalidLedger, match=reason):
            Ledger(full.path).verify()


def test_a_thousand_entries_of_as_many_kinds_are_composed_by_one_transform_each(path, monkeypatch):
    """And equal ones by one for all of them."""
    transforms = []
    rfft = np.fft.rfft
    monkeypatch.setattr(np.fft, "rfft", lambda *a, **k: transforms.append(1) or rfft(*a, **k))
    ledger = Ledger(path, epsilon=50.0, delta=1e-5)
    for _ in range(20):
        for limit in (0.01, 0.02, 0.03):
            ledger.add((limit, 1e-9))
    transforms.clear()
    ledger.spent()
    assert len(transforms) == 3


def test_rounding_is_charged(ledger):
    """No delta below the failure is ever promised, and mu has twice the distance in it."""
    exact = li.account(run(noise_std=1.0))
    ledger.add(exact.computed(Rounding(1e-3, 1e-18)))
    least = li.GaussianProfile(exact.gdp() + 2e-3).epsilon(1e-5)
    assert ledger.spent().epsilon(1e-5) >= least * (1 - 1e-9)
    assert ledger.spent().epsilon(1e-19) == math.inf


def test_rounding_of_a_statistic_alone_is_charged(ledger):
    """It says neither its examples nor its width: as many as there may be."""
    release = Release.of_mu("accuracy", 0.1, adjacency="replace")
    ledger.add(release)
    rounding = release_rounding(release, 10**9)
    least = li.GaussianProfile(release.mu + 2.0 * rounding.mu).epsilon(1e-5)
    assert ledger.spent().epsilon(1e-5) >= least * (1 - 1e-12)
    assert ledger.spent().epsilon(1e-5) < release_epsilon(release) * (1 + 1e-4)
    assert ledger.spent().epsilon(1e-29) == math.inf


def release_epsilon(release):
    return li.GaussianProfile(release.mu).epsilon(1e-5)

"""The ledger: charged before, refused beyond the budget, the same whoever looks."""

import copy
import math
import os
import pickle

import dp_accounting as dpa
import numpy as np
import pytest
from scipy.optimize import brentq

import lastiterate as li
from lastiterate.errors import BudgetExceeded, InvalidLedger, InvalidParameter, OtherVersion
from lastiterate.ledger import charges, journal
from lastiterate.ledger.costs import composed
from lastiterate.ledger.entries import LedgerState
from lastiterate.ledger.ledger import Ledger
from lastiterate.other_releases import Release
from lastiterate.profile.rounded import Rounding
from lastiterate.train.arithmetic import release_rounding

from .releases import forged, run

GAUSSIAN = dpa.GaussianDpEvent(8.0)  # mu 1/4 for a replacement, epsilon .926 at delta 1e-5
SMALL, LARGE = dpa.GaussianDpEvent(20.0), dpa.GaussianDpEvent(1.0)  # mu .1, and far too much
BUDGET = {"epsilon": 2.0, "delta": 1e-5}
# Of the Gaussian mechanism that spends the budget.
MOST = brentq(lambda mu: li.GaussianProfile(mu).epsilon(1e-5) - 2.0, 0.01, 10.0, xtol=1e-12)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.ledger"


@pytest.fixture
def ledger(path):
    return Ledger(path, **BUDGET)


@pytest.fixture
def adaptive(path):
    return Ledger(path, adaptive=True, **BUDGET)


class TestOpening:
    def test_a_new_one_needs_a_budget(self, path):
        with pytest.raises(InvalidParameter, match="epsilon must be given, as there is no ledger"):
            Ledger(path)
        for epsilon in (0.0, -1.0, math.nan, math.inf, "2"):
            with pytest.raises(InvalidParameter, match="epsilon must be"):
                Ledger(path, epsilon=epsilon, delta=1e-5)
        with pytest.raises(InvalidParameter, match="examples_per_person must be"):
            Ledger(path, **BUDGET, examples_per_person=0)
        assert not path.exists()

    def test_the_budget_is_read_from_the_file_and_never_changed(self, path):
        Ledger(path, **BUDGET, examples_per_person=3)
        again = Ledger(path)
        assert (again.epsilon, again.delta, again.adjacency) == (2.0, 1e-5, "replace")
        assert again.examples_per_person == 3
        for other in (
            {"epsilon": 3.0}, {"delta": 1e-6}, {"adjacency": "zero-out"}, {"adaptive": True},
            {"examples_per_person": 1},
        ):  # fmt: skip
            with pytest.raises(InvalidParameter, match="as the ledger was opened with"):
                Ledger(path, **other)

    def test_another_file_is_refused(self, path):
        path.write_text("a,b\n1,2\n")
        with pytest.raises(InvalidLedger, match="line 1"):
            Ledger(path, epsilon=1.0, delta=1e-5)
        assert path.read_text() == "a,b\n1,2\n"

    def test_an_older_one_is_refused(self, ledger):
        forged(ledger.path, lambda entries: entries[0].update(format="lastiterate ledger 1"))
        with pytest.raises(OtherVersion, match="'lastiterate ledger 1'"):
            Ledger(ledger.path)

    def test_copies_are_of_the_same_file(self, ledger):
        for same in (copy.deepcopy(ledger), pickle.loads(pickle.dumps(ledger))):
            same.add(GAUSSIAN)
        assert len(ledger.entries()) == 3


class TestBudget:
    def test_is_spent_and_then_refused(self, ledger):
        assert ledger.spent().epsilon(1e-5) == 0.0
        assert ledger.largest_epsilon() == pytest.approx(2.0, rel=1e-6)
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
        ledger.add(SMALL)
        ledger.add(dpa.GaussianDpEvent(0.5), already_published=True)
        assert ledger.guarantee().epsilon(1e-5) == ledger.spent().epsilon(1e-5) > 2.0
        assert "overspent" in str(ledger)
        with pytest.raises(BudgetExceeded, match=r"epsilon 0\.0"):
            ledger.add(GAUSSIAN)

    def test_does_not_depend_on_how_costs_were_kept(self, path):
        """A ledger that was opened again refuses, and takes, what the one that was open does."""
        kept, outcomes = Ledger(path, epsilon=0.2, delta=1e-5), set()
        for k in range(8):
            for one in (Ledger(path), kept):
                state = LedgerState(one.entries())
                charge = charges.stated(0.02 + 1e-4 * k, 1e-9, adjacency="replace",
                                        examples_per_person=1)  # fmt: skip
                costs = [*state.costs(), *charges.costs_of(charge, charges.Unit("replace"))]
                together = composed(costs, adaptive=False).epsilon(1e-5)
                try:
                    one.add((0.02 + 1e-4 * k, 1e-9))
                    assert together <= 0.2
                    outcomes.add(True)
                except BudgetExceeded:
                    assert together > 0.2
                    outcomes.add(False)
        assert outcomes == {True, False}


class TestReservations:
    @pytest.fixture
    def reserved(self, ledger):
        return ledger.reserve(charges.training(li.account(run())), "a model")

    def test_count_from_the_beginning(self, ledger, reserved):
        spent = ledger.spent().epsilon(1e-5)
        assert spent == pytest.approx(li.account(run()).epsilon(1e-5), rel=1e-3)
        assert "died half-way" in str(ledger)
        ledger.settle(reserved)
        assert ledger.spent().epsilon(1e-5) == spent
        assert "died half-way" not in str(ledger)

    def test_end_once(self, ledger, reserved):
        ledger.settle(reserved)
        added = ledger.add(SMALL)["id"]
        for id_ in (reserved, added, "unknown"):
            for again in (ledger.settle, lambda id_: ledger.withdraw(id_, "a mistake")):
                with pytest.raises(InvalidParameter, match="neither settled nor withdrawn"):
                    again(id_)

    def test_can_be_withdrawn_with_a_reason(self, ledger, reserved):
        with pytest.raises(InvalidParameter, match="a reason"):
            ledger.withdraw(reserved, " ")
        ledger.withdraw(reserved, "out of memory before the first step")
        assert ledger.spent().epsilon(1e-5) == 0.0
        assert ledger.entries()[-1]["because"].startswith("out of memory")


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

    def test_rounding_is_charged(self, ledger):
        """No delta below the failure is ever promised, and mu has twice the distance in it."""
        exact = li.account(run(noise_std=1.0))
        ledger.add(exact.computed(Rounding(1e-3, 1e-18)))
        least = li.GaussianProfile(exact.gdp() + 2e-3).epsilon(1e-5)
        assert ledger.spent().epsilon(1e-5) >= least * (1 - 1e-9)
        assert ledger.spent().epsilon(1e-19) == math.inf

    def test_rounding_of_a_statistic_alone_is_charged(self, ledger):
        """It says neither its examples nor its width: as many as there may be."""
        release = Release.of_mu("accuracy", 0.1, adjacency="replace")
        ledger.add(release)
        rounding = release_rounding(release, 10**9)
        least = li.GaussianProfile(release.mu + 2.0 * rounding.mu).epsilon(1e-5)
        assert ledger.spent().epsilon(1e-5) >= least * (1 - 1e-12)
        exact = li.GaussianProfile(release.mu).epsilon(1e-5)
        assert ledger.spent().epsilon(1e-5) < exact * (1 + 1e-4)
        assert ledger.spent().epsilon(1e-29) == math.inf


class TestAdaptive:
    def test_counts_mu_alone(self, adaptive):
        report = li.account(run(batches=li.ShuffledOnce(1_000, 100)))
        adaptive.add(report)
        assert adaptive.spent().gdp() == pytest.approx(report.gdp(), rel=1e-9)
        assert "chosen by looking" in str(adaptive)
        with pytest.raises(InvalidParameter, match="Gaussian guarantee"):
            adaptive.add(dpa.PoissonSampledDpEvent(0.1, GAUSSIAN))

    @pytest.mark.parametrize(
        "before, late, mu",
        [
            # However little is spent: had the first result been otherwise, the rest would be.
            (1, [], MOST),
            (1, [SMALL], math.hypot(MOST, 0.1)),
            (20, [SMALL], math.hypot(MOST, 0.1)),
            (1, [LARGE], math.hypot(MOST, 2.0)),
        ],
    )
    def test_the_budget_is_what_holds_and_what_is_late_comes_on_top(
        self, adaptive, before, late, mu
    ):
        assert adaptive.guarantee().epsilon(1e-5) == 0.0
        for _ in range(before):
            adaptive.add(SMALL)
        for release in late:
            adaptive.add(release, already_published=True)
        for proved in (adaptive.guarantee(), adaptive.verify()):
            assert proved.gdp() == pytest.approx(mu, rel=1e-6)
            assert proved.epsilon(1e-5) > max(2.0 * (1 - 1e-9), adaptive.spent().epsilon(1e-5))
        assert late or "proved: 2.0000, the most that could have been spent" in str(adaptive)

    def test_what_is_recorded_first_is_part_of_the_budget(self, adaptive):
        adaptive.add(SMALL, already_published=True)
        adaptive.add(SMALL)
        assert adaptive.spent().gdp() == pytest.approx(math.hypot(0.1, 0.1))
        assert adaptive.guarantee().gdp() == pytest.approx(MOST, rel=1e-6)

    def test_what_is_recorded_first_beyond_it_leaves_no_room(self, adaptive):
        adaptive.add(LARGE, already_published=True)
        assert adaptive.guarantee().gdp() == pytest.approx(2.0, rel=1e-6)
        assert adaptive.largest_epsilon() == 0.0


class TestVerify:
    @pytest.fixture
    def full(self, ledger):
        ledger.add(GAUSSIAN, "a")
        ledger.add(li.account(run(batches=li.ShuffledOnce(1_000, 100), steps=10)), "b")
        ledger.settle(ledger.reserve(charges.training(li.account(run(steps=1))), "c"))
        return ledger

    def test_whole_and_with_a_head(self, full):
        assert full.verify().epsilon(1e-5) == full.spent().epsilon(1e-5)
        head = full.head()
        assert full.verify(head=full.entries()[2]["hash"]) is not None
        forged(full.path, lambda entries: entries.pop())
        Ledger(full.path).verify()
        with pytest.raises(InvalidLedger, match="no entry has the hash"):
            Ledger(full.path).verify(head=head)

    def test_forged_entries(self, full):
        whole = full.path.read_text()
        for change, reason in (
            (lambda e: e[0].update(examples_per_person=6), "entry 1 costs other"),
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
            (lambda e: e[1]["charge"].pop("examples_per_person"), "entry 1 cannot be read"),
        ):
            full.path.write_text(whole)
            forged(full.path, change)
            with pytest.raises(InvalidLedger, match=reason):
                Ledger(full.path).verify()


def test_equal_kinds_of_entries_are_composed_by_one_transform(path, monkeypatch):
    transforms, rfft = [], np.fft.rfft
    monkeypatch.setattr(np.fft, "rfft", lambda *a, **k: transforms.append(1) or rfft(*a, **k))
    ledger = Ledger(path, epsilon=50.0, delta=1e-5)
    for limit in (0.01, 0.02, 0.03) * 5:
        ledger.add((limit, 1e-9))
    transforms.clear()
    ledger.spent()
    assert len(transforms) == 3


def test_an_entry_costs_the_same_however_many_there_are(path, monkeypatch):
    """Bytes read, lines parsed and hashed, costs taken up and transforms of one `add`."""
    ledger, work, sizes = Ledger(path, epsilon=50.0, delta=1e-5), {}, []
    read = os.read
    monkeypatch.setattr(os, "read", lambda *a: sizes.append(data := read(*a)) or data)

    def counting(owner, name):
        real = getattr(owner, name)

        def counter(*arguments, **named):
            work[name] = work.get(name, 0) + 1
            return real(*arguments, **named)

        monkeypatch.setattr(owner, name, counter)

    counting(journal, "entry_of")
    counting(journal, "hash_of")
    counting(LedgerState, "_apply")
    counting(np.fft, "rfft")
    seen = []
    for k in range(60):
        work.clear()
        sizes.clear()
        ledger.add(
            [
                dpa.GaussianDpEvent(50.0 + k),
                (0.02 + 1e-4 * k, 0.0),
                dpa.PoissonSampledDpEvent(0.1, dpa.GaussianDpEvent(3.0 + k)),
            ][k % 3]
        )
        seen.append((dict(work), sum(map(len, sizes))))
    for (some, reads), (more, later) in zip(seen[21:36], seen[-15:], strict=True):
        assert more == some
        assert abs(later - reads) < 60  # digits of numbers
    assert max(one["entry_of"] for one, _ in seen) == 1

"""Costs composed as they come: never below what they compose to, and one more costs the same."""

import os

import dp_accounting as dpa
import numpy as np
import pytest

from lastiterate.errors import BudgetExceeded
from lastiterate.ledger import charges, journal
from lastiterate.ledger import journal as journal_lines
from lastiterate.ledger.charges import Unit, release_charge
from lastiterate.ledger.costs import RunningCosts, composed
from lastiterate.ledger.entries import LedgerState
from lastiterate.ledger.ledger import Ledger

UNIT = Unit("replace")


def costs_of(release):
    made = release_charge(release, adjacency="replace")
    return charges.costs_of(made.charge, UNIT)


def releases(kind, count):
    """So many, each of another cost."""
    return [
        {
            "gaussians": lambda k: dpa.GaussianDpEvent(100.0 + k),
            "pairs": lambda k: (0.01 + 1e-4 * k, 1e-9),
            "laplace": lambda k: dpa.LaplaceDpEvent(90.0 + k),
            "mixed": lambda k: [
                dpa.GaussianDpEvent(50.0 + k),
                (0.02 + 1e-4 * k, 0.0),
                dpa.PoissonSampledDpEvent(0.1, dpa.GaussianDpEvent(3.0 + k)),
            ][k % 3],
        }[kind](k)
        for k in range(count)
    ]


@pytest.mark.parametrize("kind", ["gaussians", "pairs", "laplace", "mixed"])
class TestAgainstTheWholeComposition:
    def test_as_they_come(self, kind):
        """At every length, grids that were outgrown included."""
        running, every = RunningCosts(), []
        for k, release in enumerate(releases(kind, 40)):
            more = costs_of(release)
            found = running.composed(more, adaptive=False)
            running.include(more)
            every += more
            if k % 7 == 0:
                whole = composed(every, adaptive=False)
                for delta in (1e-3, 1e-6):
                    exact = whole.epsilon(delta)
                    assert exact * (1 - 2e-3) <= found.epsilon(delta) <= exact * 1.01 + 1e-4

    def test_what_is_taken_back_leaves_nothing(self, kind):
        kept, gone = releases(kind, 9), releases(kind, 12)[9:]
        one, other = RunningCosts(), RunningCosts()
        for release in kept:
            one.include(costs_of(release))
            other.include(costs_of(release))
        for release in gone:
            other.composed((), adaptive=False)
            other.include(costs_of(release))
            other.include(costs_of(release), sign=-1)
        found = [each.composed((), adaptive=False).epsilon(1e-5) for each in (one, other)]
        assert found[0] == pytest.approx(found[1], rel=1e-9)


def test_an_upper_bound_of_what_is_known_exactly():
    """Randomised responses, whose sum is binomial."""
    from scipy.stats import binom

    running = RunningCosts()
    for _ in range(200):
        running.include(costs_of((0.05, 0.0)))
    found = running.composed((), adaptive=False)
    p = 1.0 / (1.0 + np.exp(-0.05))
    ups = np.arange(201)
    losses = 0.05 * (2 * ups - 200)
    for epsilon in (0.2, 1.0, 2.0):
        gain = np.maximum(-np.expm1(epsilon - losses), 0.0)
        exact = float(binom.pmf(ups, 200, p) @ gain)
        assert exact <= found.delta(epsilon) <= 1.05 * exact + 1e-9


def test_failures_and_adaptive_ledgers():
    running = RunningCosts()
    running.include([{"times": 3, "mu": 0.1, "failure": 1e-8}])
    assert running.composed((), adaptive=True).epsilon(2e-8) == np.inf
    running.include([{"times": 1, "mu": None, "epsilon": 0.1, "delta": 1e-6}])
    assert running.composed((), adaptive=True).epsilon(1e-3) == np.inf
    assert running.composed((), adaptive=False).epsilon(1e-3) < 1.0


class Counted:
    """In place of `os`: how many bytes are read and written."""

    def __init__(self):
        self.bytes = 0

    def __getattr__(self, name):
        return getattr(os, name)

    def read(self, descriptor, most):
        data = os.read(descriptor, most)
        self.bytes += len(data)
        return data


@pytest.mark.parametrize("kind", ["gaussians", "mixed"])
def test_an_entry_costs_the_same_however_many_there_are(tmp_path, monkeypatch, kind):
    """Bytes read, lines parsed, costs taken up and transforms of one `add`."""
    ledger = Ledger(tmp_path / "people.ledger", epsilon=50.0, delta=1e-5)
    counted, work = Counted(), {}
    monkeypatch.setattr(journal, "os", counted)

    def counting(owner, name):
        real = getattr(owner, name)

        def counter(*arguments, **named):
            work[name] = work.get(name, 0) + 1
            return real(*arguments, **named)

        monkeypatch.setattr(owner, name, counter)

    counting(journal, "entry_of")
    counting(journal_lines, "hash_of")
    counting(LedgerState, "_take")
    counting(np.fft, "rfft")
    seen = []
    for release in releases(kind, 150):
        work.clear()
        counted.bytes = 0
        ledger.add(release)
        seen.append((dict(work), counted.bytes))
    early, late = seen[21:51], seen[-30:]
    for (some, read), (more, reads) in zip(early, late, strict=True):
        assert more == some
        assert abs(reads - read) < 60  # digits of numbers
    assert max(one["entry_of"] for one, _ in seen) == 1


def test_a_refusal_does_not_depend_on_how_costs_were_kept(tmp_path):
    """A ledger that was opened again refuses, and takes, what the one that was open does."""
    kept = Ledger(tmp_path / "people.ledger", epsilon=0.4, delta=1e-5)
    outcomes = []
    for release in releases("pairs", 60):
        for one in (Ledger(kept.path), kept):
            before = LedgerState(one.entries()).costs()
            together = composed([*before, *costs_of(release)], adaptive=False).epsilon(1e-5)
            try:
                one.add(release)
                outcomes.append(True)
                assert together <= 0.4
            except BudgetExceeded:
                outcomes.append(False)
                assert together > 0.4
    assert {True, False} == set(outcomes)

"""Runs and events to charge, and ledgers whose entries were forged."""

import json

import dp_accounting as dpa

import lastiterate as li
from lastiterate import dp_accounting as events
from lastiterate.ledger import charges, journal

GAUSSIAN, LAPLACE = dpa.GaussianDpEvent(3.0), dpa.LaplaceDpEvent(5.0)


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


def of_event(event):
    return charges.event(events.as_record(event), examples_per_person=1)


def of_pair(epsilon, delta, adjacency):
    return charges.stated(epsilon, delta, adjacency=adjacency, examples_per_person=1)


def forged(path, change):
    """Entries changed, and all hashes made anew."""
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    change(entries)
    known = []
    for n, entry in enumerate(entries):
        content = {k: v for k, v in entry.items() if k != "hash"}
        content |= {"n": n, "previous": journal.head(known)}
        known.append(content | {"hash": journal.hash_of(content)})
    path.write_text("".join(json.dumps(entry) + "\n" for entry in known))


def states(ledger):
    return [entry["what"] for entry in ledger.entries()[1:]]

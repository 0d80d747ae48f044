"""A table of people, its schema, and what is asked about it."""

import csv
import io
import json
from importlib import import_module

import numpy as np

# The package has a function of the same name.
progress_bar = import_module("lastiterate.cli.terminal")

TOKEN = "Tr0ub4dor"
SCHEMA = {
    "id": "drop",
    "age": {"range": [18, 90]},
    "job": {"values": ["clerk", "nurse"]},
    "weight": {"range": [0, 400_000], "missing": 200_000, "indicator": True},
    "pay": "drop",
    "rich": {"values": ["no", "yes"]},
}
TRAIN = ["train", "t.csv", "--target", "rich", "--schema", "s.json", "--epsilon", "2"]
PAY = ["train", "t.csv", "--target", "pay", "--schema", "s.json", "--task", "regression"]
SHUFFLED = [
    "--examples", "60000", "--batch-size", "1500", "--epochs", "50", "--step-size", "0.05",
    "--noise-std", "0.01", "--sensitivity", "10", "--smoothness", "32.502",
    "--strong-convexity", "0.002",
]  # fmt: skip
FIVE = [
    "--clip-norm", "1", "--noise-multiplier", "1.1", "--batch-size", "20", "--epochs", "4",
    "--examples", "1_010",
]  # fmt: skip
CYCLIC = [*FIVE, "--batches", "cyclic"]  # which is quick


def write(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def write_people(folder):
    rng, rows = np.random.default_rng(0), []
    for k in range(2_000):
        age, job = int(rng.integers(18, 91)), str(rng.choice(["clerk", "nurse", "spy"]))
        pay = 20_000 + 500 * age + 10_000 * (job == "nurse") + int(rng.normal(0, 2_000))
        weight = "" if k % 10 == 0 else 180_000 + k
        rows.append([f"{TOKEN}-{k:03}", age, job, weight, pay, "yes" if pay > 50_000 else "no"])
    write(folder / "t.csv", [list(SCHEMA), *rows])
    write(folder / "test.csv", [list(SCHEMA), *rows[:500]])
    (folder / "s.json").write_text(json.dumps(SCHEMA))


def change(folder, **entries):
    """The schema with other entries; None removes one."""
    changed = {name: rule for name, rule in (SCHEMA | entries).items() if rule is not None}
    (folder / "s.json").write_text(json.dumps(changed))


def columns(text):
    lines = list(csv.reader(io.StringIO(text)))
    return {name: [line[k] for line in lines[1:]] for k, name in enumerate(lines[0])}


def numbers(column):
    return np.array(column, dtype=float)

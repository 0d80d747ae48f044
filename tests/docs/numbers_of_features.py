"""What the page about fixed features says in numbers, from the kept results of its benchmark."""

import json

import numpy as np

from .claims import ROOT, claim

PAGE = "docs/features.md"
RESULTS = json.loads((ROOT / "benchmarks/features.json").read_text(encoding="utf-8"))
NAMES = {"MNIST": "mnist", "Fashion-MNIST": "fashion", "CIFAR-10": "cifar"}


def kept(name, epsilon, what):
    """One number of every seed."""
    begin = f"{name}/scattering/zero-out/{epsilon}/"
    return np.array([one[what] for key, one in RESULTS.items() if key.startswith(begin)])


def shown(values):
    """The mean, and the lowest and highest where there are several."""
    if not values.size:
        return "not measured"
    mean = f"{values.mean():.1f}"
    return mean if values.size == 1 else f"{mean} ({values.min():.1f} to {values.max():.1f})"


@claim(PAGE, r"delta 1e-5, adjacency (?s:.*?)epsilon 3 \|\n\|[- |]+\|\n((?:\|.*\n)+)")
def accuracies(table):
    for line in table.strip().splitlines():
        name, one, three, seeds, _ = line.strip("| ").split(" | ")
        found = [kept(NAMES[name], epsilon, "accuracy") for epsilon in (1, 3)]
        assert [one, three] == [shown(values) for values in found]
        assert int(seeds) == found[1].size


@claim(
    PAGE,
    r"A fit took (\d+) to (\d+) CPU seconds at epsilon 1 on MNIST and Fashion-MNIST, (\d+) to "
    r"(\d+) at epsilon 3, and (\d+) on CIFAR-10",
)
def seconds(*said):
    small = [
        np.concatenate([kept(name, epsilon, "seconds") for name in ("mnist", "fashion")])
        for epsilon in (1, 3)
    ]
    found = [f(times) for times in small for f in (np.min, np.max)]
    assert [round(one) for one in [*found, *kept("cifar", 3, "seconds")]] == [int(x) for x in said]


@claim(
    PAGE,
    r"On 10,000 of its training images held out, 9 groups of channels a colour instead of 27 made "
    r"no difference \((63\.9) and (63\.8)\)",
)
def groups(nine, usual):
    """Measured once; the data are not here."""
    assert float(nine) >= float(usual)


def mean_accuracy(kind, adjacency, epsilon):
    begin = f"mnist/{kind}/{adjacency}/{epsilon}/"
    return np.mean([one["accuracy"] for key, one in RESULTS.items() if key.startswith(begin)])


@claim(PAGE, r"MNIST by epsilon, (?s:.*?)\| 3 \|\n\|[- |]+\|\n((?:\|.*\n)+)")
def by_epsilon(table):
    for line in table.strip().splitlines():
        label, *shares = line.strip("| ").split(" | ")
        kind, adjacency = label.split(", ")
        kind = {"raw pixels": "pixels"}.get(kind, kind)
        found = [mean_accuracy(kind, adjacency, epsilon) for epsilon in ("0.5", "1", "2", "3")]
        assert shares == [f"{one:.1f}" for one in found]


@claim(PAGE, r"logistic regression reaches ([\d.]+) on the same features and ([\d.]+) on pixels")
def without_privacy(*said):
    found = [RESULTS[f"mnist/{kind}/not private"]["accuracy"] for kind in ("scattering", "pixels")]
    assert list(said) == [f"{one:.1f}" for one in found]


REGRESSION = json.loads((ROOT / "benchmarks/regression.json").read_text(encoding="utf-8"))
TASKS = {
    "synthetic, linear": "synthetic",
    "Ames house prices": "ames",
    "diamonds, price": "diamonds",
    "Adult, age": "adult age",
    "flights, delay": "flights",
}
METHODS = ("adassp", "boosted", "ridge", "huber")
EPSILONS = ("0.5", "1", "3")


def r2(task, epsilon, method):
    """R2 of every seed."""
    begin = f"{task}/replace/{epsilon}/{method}/"
    return [one for key, one in REGRESSION.items() if key.startswith(begin)]


@claim(PAGE, r"R2 on test rows (?s:.*?)\| seeds \|\n\|[- |]+\|\n((?:\|.*\n)+)")
def regression(table):
    lines = table.strip().splitlines()
    assert len(lines) == len(TASKS)
    for line in lines:
        label, plain, *shown, seeds = line.strip("| ").split(" | ")
        task = TASKS[label]
        assert plain == f"{REGRESSION[f'{task}/not private']:.3f}"
        for cell, method in zip(shown, METHODS, strict=True):
            found = [f"{np.mean(r2(task, epsilon, method)):.3f}" for epsilon in EPSILONS]
            assert cell == " / ".join(found)
        assert int(seeds) == len(r2(task, "1", "ridge"))


def behind(task):
    """How far AdaSSP is ahead of the better of both regressors, at most."""
    gaps = []
    for epsilon in EPSILONS:
        best = max(np.mean(r2(task, epsilon, own)) for own in ("ridge", "huber"))
        gaps.append(np.mean(r2(task, epsilon, "adassp")) - best)
    return max(gaps)


@claim(PAGE, r"On the first (four) sets (?s:.*?)AdaSSP is ahead by up to ([\d.]+)\.")
def against_adassp(many, most):
    del many
    assert all(behind(task) < 0.0 for task in TASKS.values() if task != "flights")
    assert behind("flights") <= float(most) <= behind("flights") + 0.001


@claim(
    "docs/linear-models.md",
    r"Over 1,000 simulated data sets, 95 % intervals of a coefficient covered in ([\d.]+) to "
    r"([\d.]+) % (?s:.*?)(\d+) sets for Huber(?s:.*?)50,000 examples covered in ([\d.]+) to "
    r"([\d.]+) %(?s:.*?)infinite in (\d+) of the sets",
)
def coverage(least, most, fewer, least_large, most_large, infinite):
    cells = json.loads((ROOT / "benchmarks/interval_coverage.json").read_text("utf-8"))
    sizes = {
        "logistic": (2_000, 10_000, 50_000),
        "ridge": (2_000, 50_000),
        "huber": (2_000, 50_000),
    }
    assert set(cells) == {f"{kind}:{n}:{e}" for kind in sizes for n in sizes[kind] for e in (1, 4)}
    sets = {cell: one["sets"] for cell, one in cells.items()}
    assert sets.pop("huber:50000:4") == int(fewer)
    assert set(sets.values()) == {1_000}
    every = np.concatenate([one["covered"] for one in cells.values()])
    assert [float(least), float(most)] == [every.min(), every.max()]
    large = [*cells["logistic:50000:1"]["covered"], *cells["logistic:50000:4"]["covered"]]
    assert [float(least_large), float(most_large)] == [min(large), max(large)]
    assert int(infinite) == cells["logistic:2000:1"]["infinite"]
    assert sum(one["infinite"] for one in cells.values()) == int(infinite)

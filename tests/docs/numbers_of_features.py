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

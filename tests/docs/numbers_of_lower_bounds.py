"""What the page about tightness says of lower bounds in numbers."""

import re

import pytest

import lastiterate as li
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS

from .claims import claim
from .numbers_of_momentum import BATCHES, training

PAGE = "docs/tightness.md"
SMOOTHNESS, PENALTY = 0.26, 0.01


def shuffled(reach, adjacency):
    """The run of the page with this step size times smoothness."""
    return li.TrainingRun.from_dp_sgd(
        loss=li.Loss(smoothness=SMOOTHNESS, regulariser=PENALTY, lipschitz=1.0),
        batches=li.ShuffledEachEpoch(50_000, 512),
        clip_norm=1.0,
        noise_multiplier=1.0,
        steps=12 * 97,
        step_size=reach / SMOOTHNESS,
        adjacency=adjacency,
    )


def lower(id_, reach, adjacency):
    return LOWER_BOUNDS[id_].profile(shuffled(reach, adjacency)).epsilon(1e-5)


@claim(
    PAGE,
    r"For 50,000 examples in batches of 512, a noise multiplier of 1 and \$\\eta M = (\.\d+)\$ "
    r"this raises the lower bound from (\.\d+) to ([\d.]+) \(left out\) and from (\.\d+) to "
    r"([\d.]+) \(replaced\)",
)
def raised_by_curved_intervals(reach, *numbers):
    cells = [
        lower(id_, float(reach), adjacency)
        for adjacency in ("zero-out", "replace")
        for id_ in ("lower/quadratic", "lower/curved-interval")
    ]
    assert cells == pytest.approx([float(one) for one in numbers], abs=0.006)


@claim(
    PAGE,
    r"Epsilon at delta 1e-5 for 50,000 examples, batches of 512 shuffled each epoch, 12 epochs, "
    r"noise multiplier 1, penalty \.01, smoothness \.26, by the step size; the larger of the two "
    r"counts:\n\n((?:\|.*\n)+)\nAround \.13 neither",
)
def by_step_size(table):
    head, _, *rows = [line.strip("| ").split(" | ") for line in table.strip().splitlines()]
    for name, *cells in rows:
        adjacency = "zero-out" if name.startswith("left out") else "replace"
        (id_,) = re.findall(r"`([^`]+)`", name)
        found = [lower(id_, float(reach), adjacency) for reach in head[1:]]
        assert found == pytest.approx([float(one) for one in cells], abs=0.006)


@claim(
    PAGE,
    r"\(98 batches of 512, step size \.05, momentum \.9, penalty \.01\) `fixed-order/momentum` is "
    r"([\d.]+) times this lower bound for a position in the middle after 3 epochs, ([\d.]+) times "
    r"after 8, and ([\d.]+) times for the last position after 10",
)
def momentum_over_its_lower_bound(three, eight, last):
    def ratio(epochs, tail):
        run = training(epochs, tail, 1.0)
        return li.account(run).gdp() / LOWER_BOUNDS["lower/momentum"].profile(run).gdp()

    assert ratio(3, BATCHES // 2 - 1) == pytest.approx(float(three), abs=0.02)
    assert ratio(8, BATCHES // 2 - 1) == pytest.approx(float(eight), abs=0.02)
    assert ratio(10, 0) == pytest.approx(float(last), abs=0.1)

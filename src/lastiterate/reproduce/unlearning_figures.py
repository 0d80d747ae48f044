"""Chien, Wang, Chen and Li 2024, twice: Figure 3(a) of both papers on certified unlearning.

MNIST, 3 against 8: logistic regression on rows of norm 1, penalty 1e-6 n, steps 1/L, gradients
clipped to 1, delta = 1/n.  Their noise is that of a step's square root, sigma sqrt(2 eta); a
replaced example goes, one extra step of full batches or one extra epoch of batches follows.
"""

import math
from collections.abc import Callable

import numpy as np

from lastiterate._numerics.rounding import Array
from lastiterate.reproduce.items import Cell, Table, TableItem
from lastiterate.run.batch_rules.rules import Cyclic, FullBatch
from lastiterate.run.loss import Loss
from lastiterate.run.training_run import TrainingRun
from lastiterate.unlearn.unlearning import Unlearning, unlearning

FULL, PARTS, SIZE = 11_982, 11_264, 128  # examples; of batches, and in one
_EPOCHS_FULL, _EPOCHS = 10_000, 100
# Epsilon, the digits that the noise is known to, and the noise: full batches, batches.
FIGURES = (
    (0.05, 2, 0.1872, 0.0791),
    (0.1, 2, 0.094, 0.0396),
    (0.5, 2, 0.019, 0.00805),
    (1.0, 2, 0.0096, 0.0041),
    (2.0, 1, 0.0049, 0.00213),
    (5.0, 0, 0.0021, 0.000933),
)


def _constants(examples: int) -> tuple[float, float]:
    """Penalty and step size."""
    penalty = 1e-6 * examples
    return penalty, 1.0 / (0.25 + penalty)


def langevin_epsilon(noise: float, *, examples: int = FULL, extra_steps: int = 1) -> float:
    """Epsilon by the formula of arXiv 2401.10371, for full batches and training without end."""
    penalty, step = _constants(examples)
    start = 4.0 / (penalty * noise**2 * examples**2)
    return _converted(
        lambda order: order * start * np.exp(-extra_steps * penalty * step / order), 1.0 / examples
    )


def sgd_epsilon(noise: float, *, examples: int = PARTS, size: int = SIZE, epochs: int = 1) -> float:
    """Epsilon after arXiv 2403.17105, for batches: its bound at twice the order.

    The weak triangle's factor was found from the noise that the figure needs, not from the text.
    """
    penalty, step = _constants(examples)
    c, length = 1.0 - step * penalty, examples / size
    apart = 2.0 * step / size / (1.0 - c**length)
    squared = (apart * c ** (epochs * length)) ** 2 / (step * noise**2)
    return _converted(lambda order: (order - 0.5) / (order - 1.0) * order * squared, 1.0 / examples)


def _converted(renyi: Callable[[Array], Array], delta: float) -> float:
    """The least epsilon over a grid of Renyi orders, by the conversion of the two papers."""
    orders = 1.0 + np.geomspace(1e-3, 1e5, 100_001)
    return float(np.min(renyi(orders) + math.log(1.0 / delta) / (orders - 1.0)))


def ours(noise: float, *, batches: bool) -> Unlearning:
    """The library's guarantee at the same noise and settings, for the worst position."""
    rule = Cyclic(PARTS, SIZE) if batches else FullBatch(FULL)
    penalty, step = _constants(rule.examples)
    epochs, length = (_EPOCHS, rule.batches_per_epoch) if batches else (_EPOCHS_FULL, 1)
    run = TrainingRun(
        loss=Loss(smoothness=0.25 + penalty, regulariser=penalty),
        sensitivity=2.0,
        batches=rule,
        steps=epochs * length,
        step_size=step,
        noise_std=noise * math.sqrt(2.0 / step),
    )
    return unlearning(run, extra_steps=length)


def figures_3a() -> Table:
    """Their epsilon from their noise, and ours at that noise."""
    full = [
        Cell(f"full batches, sigma = {noise:g}", langevin_epsilon(noise), epsilon, digits)
        for epsilon, digits, noise, _ in FIGURES
    ]
    parts = [
        Cell(f"batches of {SIZE}, sigma = {noise:g}", sgd_epsilon(noise), epsilon, digits)
        for epsilon, digits, _, noise in FIGURES
    ]
    notes = []
    for name, batches, examples in (("full batches", False, FULL), ("batches", True, PARTS)):
        values = [
            f"{ours(noise[batches], batches=batches).epsilon(1.0 / examples):.3g}"
            for *_, a, b in FIGURES
            for noise in [(a, b)]
        ]
        notes.append(f"this library at the same noise, {name}: epsilon {', '.join(values)}")
    return Table(_ID, _TITLE, (*full, *parts), tuple(notes))


_ID = "cwcl-figures-3a"
_TITLE = "Chien, Wang, Chen and Li 2024 (two papers), Figures 3(a): noise for unlearning"
TABLES = (TableItem(_ID, _TITLE, figures_3a),)

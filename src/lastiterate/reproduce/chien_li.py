"""Chien and Li 2024, Figure 2(a); Chien, Wang, Chen and Li 2024, Figures 3(a) on unlearning.

Figure 2(a) has Hoelder constants of a small network, and what they certify.  The constants are
estimates from samples, as in the paper, so the curves are illustrations and certify nothing about
the network.

Figures 3(a) of two papers on certified unlearning are of MNIST, 3 against 8, by logistic regression
on rows of norm 1, penalty 1e-6 n, steps 1/L, gradients clipped to 1, delta = 1/n.  Their noise is
that of a step's square root, sigma sqrt(2 eta); a replaced example goes, one extra step of full
batches or one extra epoch of batches follows.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.rounding import Array
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.errors import MissingExtra
from lastiterate.reproduce import runs
from lastiterate.reproduce.items import Cell, FigureItem, Table, TableItem
from lastiterate.run.batch_rules.ordered import Cyclic, FullBatch
from lastiterate.run.loss import Loss
from lastiterate.run.training_run import TrainingRun
from lastiterate.unlearn.unlearning import Unlearning, unlearning

_HIDDEN, _EPOCHS, _STEP, _CLIP, _SCALE = 64, 200, 0.1, 1.0, 0.1
_STARTS, _POINTS, _EVERY = 20, 100, 20
_ORDERS = (0.5, 0.7, 0.9, 1.0)
Floats = NDArray[np.float64]
FULL, PARTS, SIZE = 11_982, 11_264, 128  # examples; of batches, and in one
_EPOCHS_FULL, _UNLEARNING_EPOCHS = 10_000, 100
# Epsilon, the digits that the noise is known to, and the noise: full batches, batches.
_EXTRA_EPOCHS = (
    (0.05, 2, 0.1872, 0.0791),
    (0.1, 2, 0.094, 0.0396),
    (0.5, 2, 0.019, 0.00805),
    (1.0, 2, 0.0096, 0.0041),
    (2.0, 1, 0.0049, 0.00213),
    (5.0, 0, 0.0021, 0.000933),
)
_FIGURE_ID = "cwcl-figures-3a"
_TITLE = "Chien, Wang, Chen and Li 2024 (two papers), Figures 3(a): noise for unlearning"


def _iris() -> tuple[Floats, NDArray[np.int64]]:
    try:
        from sklearn.datasets import load_iris
    except ImportError:
        raise MissingExtra("the Iris data", "scikit-learn", extra="sklearn") from None
    x, y = load_iris(return_X_y=True)
    return np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.int64)


def gradient(weights: Floats, x: Floats, y: NDArray[np.int64]) -> Floats:
    """The gradient of .1 times the mean cross-entropy of a network with one hidden ReLU layer."""
    inputs, classes = x.shape[1], 3
    cut = (inputs + 1) * _HIDDEN
    first = weights[:cut].reshape(inputs + 1, _HIDDEN)
    second = weights[cut:].reshape(_HIDDEN + 1, classes)
    ones = np.ones((len(x), 1))
    wide = np.hstack([x, ones])
    hidden = np.maximum(wide @ first, 0.0)
    deep = np.hstack([hidden, ones])
    logits = deep @ second
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(y)), y] -= 1.0
    p *= _SCALE / len(y)
    back = (p @ second[:-1].T) * (hidden > 0.0)
    return np.concatenate([(wide.T @ back).ravel(), (deep.T @ p).ravel()])


def hoelder_constants(orders: tuple[float, ...], seed: int = 0) -> list[float]:
    """The largest |difference of gradients| / distance^order seen along training, by order.

    Directions are uniform, and so are distances in (0, 1).
    """
    x, y = _iris()
    rng = np.random.default_rng(seed)
    size = (x.shape[1] + 1) * _HIDDEN + (_HIDDEN + 1) * 3
    largest = np.zeros(len(orders))
    for _ in range(_STARTS):
        weights = rng.normal(scale=0.3, size=size)
        for epoch in range(_EPOCHS):
            slope = gradient(weights, x, y)
            if epoch % _EVERY == 0:
                for _ in range(_POINTS):
                    away = rng.normal(size=size)
                    # Uniform in the unit ball would be at distance 1 in 515 dimensions.
                    away *= rng.random() / np.linalg.norm(away)
                    change = np.linalg.norm(gradient(weights + away, x, y) - slope)
                    distance = np.linalg.norm(away)
                    largest = np.maximum(largest, [change / distance**order for order in orders])
            norm = float(np.linalg.norm(slope))
            weights = weights - _STEP * slope * min(1.0, _CLIP / norm)
    return [float(constant) for constant in largest]


def figure_2(canvas: Any) -> None:
    axes = canvas.subplots()
    steps = list(range(1, 302, 10))
    bound = CATALOGUE["published/chien-li/hoelder"]
    for order, constant in zip(_ORDERS, hoelder_constants(_ORDERS), strict=True):
        loss = Loss(convex=False, holder=(constant, order), lipschitz=2.0)
        values = [bound.profile(runs.chien_li_example(T, loss)).renyi(1.0) for T in steps]
        axes.plot(steps, values, label=f"order {order:g}, constant {constant:.2g}")
    s = 2 * 0.1 * 2 / 5
    axes.plot(
        steps, [T * s * s / 2 for T in steps], color="0.5", linestyle="--", label="composition"
    )
    axes.axhline(0.5, color="0.5", linestyle=":", label="output perturbation")
    axes.set(xlabel="steps", ylabel="divergence / order", ylim=(0, 0.8))
    axes.legend()


FIGURES = (
    FigureItem(
        "cl-figure-2", "without smoothness: a network on Iris", figure_2,
        (
            f"Hoelder constants estimated at every {_EVERY}th of {_EPOCHS} steps of {_STARTS} "
            f"starts, from {_POINTS} points each (they: every step).",
            "They draw points uniformly in a ball.  In 515 dimensions these are all at distance 1, "
            "and the constants of all orders are then the same; here distances are uniform.",
            "Estimated constants certify nothing.",
        ),
        size=(4.2, 3.2),
    ),
)  # fmt: skip


def _constants(examples: int) -> tuple[float, float]:
    """Penalty and step size."""
    penalty = 1e-6 * examples
    return penalty, 1.0 / (0.25 + penalty)


def langevin_epsilon(noise: float, *, examples: int = FULL, extra_steps: int = 1) -> float:
    """Epsilon by the formula of arXiv 2401.10371, for full batches and training without end."""
    penalty, step = _constants(examples)
    start = 4.0 / (penalty * noise**2 * examples**2)
    return _least_epsilon(
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
    return _least_epsilon(
        lambda order: (order - 0.5) / (order - 1.0) * order * squared, 1.0 / examples
    )


def _least_epsilon(renyi: Callable[[Array], Array], delta: float) -> float:
    """The least epsilon over a grid of Renyi orders, by the conversion of the two papers."""
    orders = 1.0 + np.geomspace(1e-3, 1e5, 100_001)
    return float(np.min(renyi(orders) + math.log(1.0 / delta) / (orders - 1.0)))


def ours(noise: float, *, batches: bool) -> Unlearning:
    """The library's guarantee at the same noise and settings, for the worst position."""
    rule = Cyclic(PARTS, SIZE) if batches else FullBatch(FULL)
    penalty, step = _constants(rule.examples)
    epochs, length = (_UNLEARNING_EPOCHS, rule.batches_per_epoch) if batches else (_EPOCHS_FULL, 1)
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
        for epsilon, digits, noise, _ in _EXTRA_EPOCHS
    ]
    parts = [
        Cell(f"batches of {SIZE}, sigma = {noise:g}", sgd_epsilon(noise), epsilon, digits)
        for epsilon, digits, _, noise in _EXTRA_EPOCHS
    ]
    notes = []
    for name, batches, examples in (("full batches", False, FULL), ("batches", True, PARTS)):
        values = [
            f"{ours(noise[batches], batches=batches).epsilon(1.0 / examples):.3g}"
            for *_, a, b in _EXTRA_EPOCHS
            for noise in [(a, b)]
        ]
        notes.append(f"this library at the same noise, {name}: epsilon {', '.join(values)}")
    return Table(_FIGURE_ID, _TITLE, (*full, *parts), tuple(notes))


TABLES = (TableItem(_FIGURE_ID, _TITLE, figures_3a),)

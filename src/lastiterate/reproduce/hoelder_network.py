"""Chien and Li 2024, Figure 2(a): Hoelder constants of a small network, and what they certify.

The constants are estimates from samples, as in the paper, so the curves are illustrations and
certify nothing about the network.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.errors import MissingExtra
from lastiterate.reproduce import runs
from lastiterate.reproduce.items import FigureItem
from lastiterate.run.loss import Loss

_HIDDEN, _EPOCHS, _STEP, _CLIP, _SCALE = 64, 200, 0.1, 1.0, 0.1
_STARTS, _POINTS, _EVERY = 20, 100, 20
_ORDERS = (0.5, 0.7, 0.9, 1.0)

Floats = NDArray[np.float64]


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

"""Other ways to a private linear model, each calibrated to the same epsilon and delta.

DP-SGD here is the algorithm of the libraries (norm-clipped per-example gradients, noise in every
step), written for linear models with two matrix products a step so that a grid can be searched in
minutes.  Its noise is calibrated as those libraries do: composition over every step, by privacy
loss distributions.
"""

import warnings
from functools import cache

import dp_accounting
import numpy as np
from dp_accounting.pld import PLDAccountant
from scipy.special import expit

import lastiterate as li
from lastiterate.train.data import bounded
from lastiterate.train.defaults import gaussian_parameter
from lastiterate.train.defaults import default_run
from lastiterate.train.noisy_descent import noisy_descent
from lastiterate.train.objectives import Logistic, Softmax
from lastiterate.train.settings import RunSettings

DELTA = 1e-5
INTERCEPT = 0.125
RADIUS = float(np.hypot(1.0, INTERCEPT))


@cache
def poisson_multiplier(epsilon, rate, steps):
    """Noise in units of the clip for Poisson batches under add-or-remove adjacency."""

    def event(multiplier):
        step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
        return dp_accounting.SelfComposedDpEvent(step, steps)

    return dp_accounting.calibrate_dp_mechanism(
        lambda: PLDAccountant(value_discretization_interval=1e-3),
        event,
        epsilon,
        DELTA,
        dp_accounting.LowerEndpointAndGuess(0.2, 4.0),
        tol=1e-3,
    )


@cache
def fixed_size_multiplier(epsilon, examples, size, steps):
    """Noise in units of the clip for batches of a fixed size under replacement."""
    run = li.TrainingRun(
        loss=li.Loss(convex=False),
        sensitivity=2.0,
        batches=li.SampledWithoutReplacement(examples, size),
        steps=steps,
        step_size=1.0,
        noise_std=1.0 / size,
        releases="every-iterate",
    )
    return li.calibrate(run, epsilon=epsilon, delta=DELTA).noise_std * size


def dp_sgd(data, passes, seed, trials, *, poisson):
    """Accuracies of DP-SGD, for trials (epsilon, setting) with their `batches` a pass in common.

    Trained side by side on the same batches and the same standard normal draws: one product then
    serves all of them.  The clip is in units of the radius.
    """
    rows, labels, test_rows, test_labels = data
    count, classes = len(rows), int(labels.max()) + 1
    (batches,) = {setting["batches"] for _, setting in trials}
    size, steps = count // batches, batches * passes
    multipliers = [
        poisson_multiplier(epsilon, size / count, steps)
        if poisson
        else fixed_size_multiplier(epsilon, count, size, steps)
        for epsilon, _ in trials
    ]
    clip, step, multiplier = (
        np.array(values, np.float32)[:, np.newaxis, np.newaxis]
        for values in (
            [setting["clip"] for _, setting in trials],
            [setting["step_size"] for _, setting in trials],
            multipliers,
        )
    )
    rng = np.random.default_rng(seed)
    rows = np.hstack([rows, np.full((count, 1), INTERCEPT, np.float32)])
    outputs, width = 1 if classes == 2 else classes, rows.shape[1]
    weights = np.zeros((len(trials), outputs, width), np.float32)
    noise_scale = multiplier * clip * np.float32(RADIUS)
    for _ in range(steps):
        if poisson:
            chosen = np.flatnonzero(rng.random(count) < size / count)
        else:
            chosen = rng.choice(count, size, replace=False, shuffle=False)
        batch = rows[chosen]
        products = weights.reshape(-1, width) @ batch.T
        residual = _residual(products.reshape(len(trials), outputs, -1), labels[chosen])
        norms = np.sqrt(np.einsum("tkb,tkb->tb", residual, residual))[:, np.newaxis]
        residual *= np.minimum(1.0, clip / np.maximum(norms, 1e-12))
        gradient = residual.reshape(-1, chosen.size) @ batch
        noise = noise_scale * rng.standard_normal((outputs, width), dtype=np.float32)
        weights -= step / size * (gradient.reshape(weights.shape) + noise)
    return [_accuracy(each, test_rows, test_labels) for each in weights]


def _residual(outputs, labels):
    """Of logits (trials, outputs, examples), which are overwritten."""
    if outputs.shape[1] == 1:
        return expit(outputs, out=outputs) - labels.astype(np.float32)
    outputs -= outputs.max(axis=1, keepdims=True)
    np.exp(outputs, out=outputs)
    outputs /= outputs.sum(axis=1, keepdims=True)
    outputs[:, labels, np.arange(labels.size)] -= 1.0
    return outputs


def _accuracy(weights, rows, labels):
    outputs = rows @ weights[:, :-1].T + INTERCEPT * weights[:, -1]
    guess = outputs[:, 0] > 0 if outputs.shape[1] == 1 else outputs.argmax(axis=1)
    return float((guess == labels).mean())


def output_perturbation(data, epsilon, passes, seed, *, stretch):
    """The same engine and rule, `stretch` times the steps, and all noise on release."""
    rows, labels, test_rows, test_labels = data
    classes = int(labels.max()) + 1
    objective = Logistic() if classes == 2 else Softmax(classes=classes)
    run = _silent_run(objective, epsilon, passes, len(rows), stretch)
    examples = bounded(rows, labels.astype(np.intp), bound=1.0, intercept=INTERCEPT)
    from lastiterate.train.noise import Randomness, SeededBits

    weights = noisy_descent(run, objective, examples, Randomness(SeededBits(seed)))
    return _accuracy(weights, test_rows, test_labels)


@cache
def _silent_run(objective, epsilon, passes, count, stretch):
    settings = RunSettings(epsilon=epsilon, delta=DELTA, epochs=passes)
    run = default_run(objective, settings, examples=count, radius=RADIUS)
    steps = max(1, int(run.steps * stretch))
    size = max(1, count // -(-steps // passes))
    run = run.replace(
        steps=steps, batches=li.ShuffledOnce(count, size), noise_std=0.0, release_noise_std=1.0
    )
    run = run.replace(sensitivity=run.sensitivity * (1 + 1e-6))
    return li.calibrate(run, epsilon=epsilon, delta=DELTA, over="release_noise_std")


def objective_perturbation(data, epsilon, passes, seed, *, C):
    """diffprivlib's LogisticRegression, which is pure epsilon-DP."""
    from diffprivlib.models import LogisticRegression

    rows, labels, test_rows, test_labels = data
    model = LogisticRegression(epsilon=epsilon, data_norm=1.0, C=C, max_iter=200, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(model.fit(rows, labels).score(test_rows, test_labels))


def adassp(data, epsilon, adjacency, seed, *, bound, declared, rounds=1, constant=0.5):
    """R2 of AdaSSP (Wang 2018), or with many rounds of its boosted form (Tang et al. 2023).

    Ridge regression from a noisy X'X and a noisy X'y, with a penalty as large as the noise may be
    less the smallest eigenvalue, also noisy.  Boosted, X'y is that of the clipped errors so far,
    and the models of all rounds add up.  A third of the squared mu each, by Gaussian DP, which is
    less noise than the papers' accounting.
    """
    rows, targets, test_rows, test_targets = data
    rng = np.random.default_rng(seed)
    middle, half = (declared[0] + declared[1]) / 2, (declared[1] - declared[0]) / 2

    def within(some):
        scale = 1.0 / np.maximum(np.linalg.norm(some, axis=1), bound)
        units = (some * scale[:, np.newaxis]).astype(np.float64)
        return np.column_stack([units, np.full(len(some), constant)])

    x, y = within(rows), np.clip((targets - middle) / half, -1, 1)
    width, square = x.shape[1], 1 + constant**2
    mu = gaussian_parameter(epsilon, DELTA) / 3**0.5
    of_matrix = square * (2**0.5 if adjacency == "replace" else 1.0) / mu
    of_vector = square**0.5 * (2.0 if adjacency == "replace" else 1.0) * rounds**0.5 / mu
    noise = rng.normal(size=(width, width)) * of_matrix
    exact = x.T @ x
    values, vectors = np.linalg.eigh(exact + (noise + noise.T) / 2)
    least = max(np.linalg.eigvalsh(exact)[0] + square / mu * (rng.normal() - 1.65), 0.0)
    penalty = max(of_matrix * (2 * width) ** 0.5 - least, 1e-9)
    weights = np.zeros(width)
    for _ in range(rounds):
        errors = np.clip(y - x @ weights, -1, 1)
        moved = x.T @ errors + of_vector * rng.normal(size=width)
        weights += vectors @ ((vectors.T @ moved) / (np.maximum(values, 0.0) + penalty))
    guess = np.clip(within(test_rows) @ weights, -1, 1) * half + middle
    left = np.sum((guess - test_targets) ** 2)
    return float(1 - left / np.sum((test_targets - test_targets.mean()) ** 2))

"""Whether momentum, or an average of iterates, makes models more accurate at equal epsilon.

    python benchmarks/momentum_accuracy.py --data folder --save benchmarks/momentum_accuracy.json

Only rows of the training sets are read.  A fifth of them is held out, in a new way for each seed.
Every setting is calibrated to the same epsilon (delta = 1e-5, one example replaced) in batches
shuffled before each epoch, with noise on release h sigma.  h, the step over 1 - momentum, is how
far a gradient moves the parameters in the end; steps of momentum are short, as its bound asks.  Of
every kind of step the setting with the best mean accuracy on held-out rows is shown: that choice
is not private, and it flatters every kind alike.
"""

import argparse
import json
from itertools import product
from pathlib import Path

import datasets
import numpy as np

import lastiterate as li

DELTA = 1e-5
EPSILONS = (0.5, 1.0, 3.0)
PENALTY = 1e-3
BATCHES = 40
KINDS = {  # settings of the optimizer, and h in units of 1/smoothness
    "plain": ({}, (0.5, 1.0, 2.0)),
    "momentum 0.5": ({"momentum": 0.5}, (0.25, 0.5, 1.0)),
    "momentum 0.9": ({"momentum": 0.9}, (0.12, 0.25, 0.5)),
    "Nesterov 0.9": ({"momentum": 0.9, "nesterov": True}, (0.12, 0.25, 0.5)),
    "exponential average 0.9": ({"average": li.ExponentialAverage(0.9)}, (0.5, 1.0, 2.0)),
}
EPOCHS = (3, 10)


def smoothness(classes):
    """That of the logistic or softmax loss of rows of norm 1, with the penalty."""
    return (0.25 if classes == 2 else 0.5) + PENALTY


def described(rows, classes, epochs, length, optimizer):
    """The run that one setting is, before its noise is calibrated."""
    curved = smoothness(classes)
    step = length / curved * (1.0 - optimizer.get("momentum", 0.0))
    gradient = 1.0 if classes == 2 else np.sqrt(2.0)
    batch = rows // BATCHES
    return li.TrainingRun(
        loss=li.Loss(
            smoothness=curved, strong_convexity=PENALTY, regulariser=PENALTY, lipschitz=gradient
        ),
        sensitivity=2.0 * gradient,
        batches=li.ShuffledEachEpoch(rows, batch),
        steps=BATCHES * epochs,
        step_size=step,
        noise_std=4.0 / batch,
        release_noise_std=length / curved * 4.0 / batch,
        **optimizer,
    )


def trained(run, rows, labels, classes, rng):
    """The parameters that the run publishes, in floats: no proved arithmetic, and no claim."""
    outputs = 1 if classes == 2 else classes
    x = np.zeros((rows.shape[1], outputs))
    buffer, kept, path = None, run.average, []
    size = run.batches.batch_size
    for step in range(run.steps):
        if step % BATCHES == 0:
            order = rng.permutation(len(rows))
        chosen = order[step % BATCHES * size :][:size]
        seen = rows[chosen]
        off = residuals(seen @ x.astype(seen.dtype), labels[chosen])
        noisy = seen.T @ off / size + PENALTY * x
        noisy += run.noise_std * rng.standard_normal(x.shape)
        if run.momentum:
            buffer = noisy if buffer is None else run.momentum * buffer + noisy
            noisy = noisy + run.momentum * buffer if run.nesterov else buffer
        x = x - run.step_size * noisy
        if kept is not None:
            path.append(x)
    if kept is not None:
        x = np.zeros_like(x)
        for point, share in zip(path, kept.decays(run.steps), strict=True):
            x = share * x + (1.0 - share) * point
    return x + run.release_noise_std * rng.standard_normal(x.shape)


def residuals(scores, labels):
    """The derivative of every row's loss by its scores."""
    if scores.shape[1] == 1:
        return 1.0 / (1.0 + np.exp(-scores)) - labels[:, None]
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(len(labels)), labels] -= 1.0
    return shares


def accuracy(x, rows, labels):
    """The share of rows that these parameters classify well."""
    scores = rows @ x
    said = scores[:, 0] > 0.0 if x.shape[1] == 1 else scores.argmax(axis=1)
    return float(np.mean(said == labels))


def accuracies(run, rows, labels, classes, seeds):
    """Accuracies on held-out rows, one for each seed."""
    found = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(rows))
        held, used = order[: len(rows) // 5], order[len(rows) // 5 :]
        x = trained(run, rows[used], labels[used], classes, rng)
        found.append(accuracy(x, rows[held], labels[held]))
    return found


def compared(name, folder, epsilons, seeds):
    """For each epsilon and kind of step, the best setting's mean accuracy and its error."""
    rows, labels = getattr(datasets, name)(folder)[:2]
    labels, classes = labels.astype(np.intp), len(np.unique(labels))
    used = len(rows) - len(rows) // 5
    found = {}
    for kind, (optimizer, lengths) in KINDS.items():
        for epochs, length in product(EPOCHS, lengths):
            run = described(used, classes, epochs, length, optimizer)
            for epsilon in epsilons:
                private = li.calibrate(run, epsilon=epsilon, delta=DELTA, over="noise")
                scores = accuracies(private, rows, labels, classes, seeds)
                mean, error = np.mean(scores), np.std(scores, ddof=1) / np.sqrt(seeds)
                best = found.setdefault(str(epsilon), {}).get(kind, {"accuracy": 0.0})
                if mean > best["accuracy"]:
                    found[str(epsilon)][kind] = {
                        "accuracy": round(float(mean), 5),
                        "error": round(float(error), 5),
                        "epochs": epochs,
                        "length": length,
                    }
                print(f"{name} {kind} {epochs} {length} {epsilon}: {mean:.4f}", flush=True)
    return found


def main():
    """Compare, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--datasets", nargs="+", default=["mnist", "adult"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--save", type=Path)
    asked = parser.parse_args()
    found = {
        name: compared(name, asked.data, asked.epsilons, asked.seeds) for name in asked.datasets
    }
    for name, by_epsilon in found.items():
        for epsilon, kinds in by_epsilon.items():
            for kind, best in kinds.items():
                print(f"{name:6} {epsilon:>4} {kind:24} {best}")
    if asked.save is not None:
        asked.save.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

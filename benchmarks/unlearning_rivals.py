"""Accuracy after unlearning, by three methods with the same promise to the removed rows.

    python benchmarks/unlearning_rivals.py --data data
    python benchmarks/unlearning_rivals.py

Logistic regression for MNIST, three against eight, on rows of norm 1 without intercept.  Of each
way the penalty that is best on the *test* rows counts, and the others' noise is as small as a look
at the rows that go allows, or as an exact account of Gaussian noise.  Nobody is promised anything
about the training here: noise is there only to unlearn.

* Newton: certified removal (Guo, Goldstein, Hannun and van der Maaten 2020).  The optimum of the
  sum of losses and b.w, b normal, and one Newton step without those who go.
* Descent: descent to delete (Neel, Roth and Sharifi-Malvajerdi 2021).  The secret optimum by full
  gradients, some more of them without those who go, noise on what is published.
* Noisy steps: this library, in at most as many extra steps as one per cent of the training, or as
  one pass.

Writes `unlearning_rivals.json` next to itself, whose table the second command prints.
"""

import argparse
import json
import math
import warnings
from pathlib import Path

import datasets
import numpy as np
from scipy.linalg import solve
from scipy.optimize import brentq, minimize
from scipy.special import expit, ndtr

from lastiterate.linear_model import PrivateLogisticRegression

DELTA, KEY = 1e-5, bytes(32)
ASKED = [(many, epsilon) for many in (1, 10, 100) for epsilon in (0.1, 1.0)]
PENALTIES = (0.001, 0.01)  # of the mean of the losses
PASSES = (1, 30)  # of full gradients, by descent
STEPS = (6, 30)  # of 665, each on 400 rows
TRAINED_FOR = (0.1, 0.3, 1, 3, 10, 30, 100, 300)  # epsilon, which decides the noise


def optimum(rows, signs, penalty, slope=0.0, start=None):
    """Of the mean of the losses, the penalty and slope.w; and what is left of the gradient."""

    def value_and_gradient(w):
        margins = signs * (rows @ w)
        gradient = -(rows.T @ (signs * expit(-margins))) / len(rows) + penalty * w + slope
        losses = np.logaddexp(0, -margins).mean()
        return losses + penalty / 2 * w @ w + np.sum(slope * w), gradient

    found = minimize(
        value_and_gradient,
        np.zeros(rows.shape[1]) if start is None else start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 2000, "gtol": 1e-9, "ftol": 0.0, "maxcor": 30},
    ).x
    return found, float(np.linalg.norm(value_and_gradient(found)[1]))


class Newton:
    """One Newton step; its error is bounded by what the rows that go say."""

    def __init__(self, rows, signs, penalty):
        self.rows, self.signs, self.penalty = rows, signs, penalty
        self.length = float(np.linalg.norm(rows, 2))
        self.plain = optimum(rows, signs, penalty)
        self.first = {}

    def step(self, w, gone):
        """The new parameters, and the largest gradient of the sum of losses that may be left."""
        stay = np.setdiff1d(np.arange(len(self.rows)), gone)
        rows = self.rows[stay]
        slopes = expit(rows @ w) * expit(-(rows @ w))
        halves = (rows * np.sqrt(slopes)[:, None]).astype(np.float32)
        hessian = (halves.T @ halves).astype(float)
        hessian[np.diag_indices_from(hessian)] += self.penalty * len(self.rows)
        left = self.rows[gone], self.signs[gone]
        pulled = -(left[0].T @ (left[1] * expit(-left[1] * (left[0] @ w))))
        moved = solve(hessian, pulled, assume_a="pos")
        error = self.length * np.linalg.norm(moved) * np.linalg.norm(rows @ moved) / 4
        return w + moved, float(error)

    def unlearned(self, gone, epsilon, rng):
        """With the least noise that the error allows, as known afterwards."""
        times, count = math.sqrt(2 * math.log(1.5 / DELTA)) / epsilon, len(self.rows)
        # The error of a first look, which noise hardly changes.
        noise = self.first.get((len(gone), epsilon), 1.0)
        for _ in range(9):
            slope = noise * rng.standard_normal(self.rows.shape[1]) / count
            w, left = optimum(self.rows, self.signs, self.penalty, slope, self.plain[0])
            new, error = self.step(w, gone)
            needed = times * (error + count * left)
            if needed <= noise <= 2.0 * needed:
                self.first[len(gone), epsilon] = noise
                return new
            noise = 1.2 * needed
        return new


class Descent:
    """Full gradients from the secret optimum, and noise on what is published."""

    def __init__(self, rows, signs, penalty):
        self.rows, self.signs, self.penalty = rows, signs, penalty
        self.best = optimum(rows, signs, penalty)[0]

    def unlearned(self, gone, epsilon, rng, passes):
        penalty, count = self.penalty, len(self.rows)
        step = 2 / (0.25 + 2 * penalty)
        kept = (0.25 / (0.25 + 2 * penalty)) ** passes
        # Both, this one and one trained without them, are this close to the optimum.
        away = kept / (1 - kept) * len(gone) / (penalty * count)
        noise = 2 * away / gaussian_mu(epsilon)
        stay = np.setdiff1d(np.arange(count), gone)
        rows, signs, w = self.rows[stay], self.signs[stay], self.best.copy()
        for _ in range(passes):
            pulled = -(rows.T @ (signs * expit(-signs * (rows @ w)))) / count
            w -= step * (pulled + penalty * w)
        return w + noise * rng.standard_normal(w.size)


def gaussian_mu(epsilon):
    """The mu that has this epsilon at delta."""

    def excess(mu):
        return (
            ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu) - DELTA
        )

    return brentq(excess, 1e-4, 10)


class NoisySteps:
    """As little noise in training as those few steps can do with."""

    def __init__(self, rows, signs, penalty):
        self.rows, self.signs = rows, signs
        self.models = []
        for epsilon in TRAINED_FOR:
            model = PrivateLogisticRegression(
                epsilon=epsilon, delta=DELTA, batches="cyclic", l2=penalty, batch_size=400,
                epochs=22, classes=[-1, 1], center=False, counting=0.0, fit_intercept=False,
            )  # fmt: skip
            self.models.append(model.fit(rows, signs, key=KEY))

    def unlearned(self, gone, epsilon, rng, steps):
        del rng
        for model in reversed(self.models):
            try:
                planned = model.plan_unlearning(gone, epsilon=epsilon)
            except ValueError:
                continue
            if planned.extra_steps <= steps:
                new = model.unlearn(
                    self.rows, self.signs, rows=gone, epsilon=epsilon, key=KEY, at_any_cost=True
                )
                return np.ravel(new.coef_)
        return None


def measured(folder, repeats):
    rows, targets, test_rows, test_targets = datasets.load("mnist", folder)
    mine, test = np.isin(targets, [3, 8]), np.isin(test_targets, [3, 8])
    rows, signs = rows[mine].astype(float), np.where(targets[mine] == 8, 1, -1)
    test_rows, test_signs = test_rows[test], np.where(test_targets[test] == 8, 1, -1)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1)
    found = {}
    for penalty in PENALTIES:
        for number in range(repeats):
            rng = np.random.default_rng(number)
            gone = rng.permutation(len(rows))
            ways = ways_of(rows, signs, penalty)
            for name, way in ways.items():
                for many, epsilon in ASKED:
                    w = way(gone[:many], epsilon, rng)
                    right = math.nan if w is None else 100 * np.mean(test_rows @ w * test_signs > 0)
                    found.setdefault(f"{name}, {many}, {epsilon}", {}).setdefault(
                        str(penalty), []
                    ).append(round(float(right), 3))
            print(
                penalty, number, {key: one[str(penalty)] for key, one in found.items()}, flush=True
            )
    return found


_ONCE = {}


def ways_of(rows, signs, penalty):
    """What does not depend on chance is trained once."""
    if penalty not in _ONCE:
        _ONCE.clear()
        _ONCE[penalty] = Newton(rows, signs, penalty), Descent(rows, signs, penalty)
    newton, descent = _ONCE[penalty]
    noisy = NoisySteps(rows, signs, penalty)
    return {
        "Newton step": newton.unlearned,
        **{
            f"descent, {passes} passes": lambda *a, passes=passes: descent.unlearned(*a, passes)
            for passes in PASSES
        },
        **{
            f"noisy steps, {steps}": lambda *a, steps=steps: noisy.unlearned(*a, steps)
            for steps in STEPS
        },
    }


def table(found):
    """As on the page."""
    names = list(
        dict.fromkeys(
            key.split(", ")[0] if key[0] == "N" else ", ".join(key.split(", ")[:2]) for key in found
        )
    )
    head = " | ".join(f"{many}, {epsilon:g}" for many, epsilon in ASKED)
    lines = [f"| rows removed, epsilon | {head} |", "|---|" + "---:|" * len(ASKED)]
    for name in names:
        cells = []
        for many, epsilon in ASKED:
            tried = found[f"{name}, {many}, {epsilon}"].values()
            means = [(np.mean(one), np.std(one, ddof=1) / len(one) ** 0.5) for one in tried]
            means = [one for one in means if math.isfinite(one[0])]
            cells.append("{:.1f} ± {:.1f}".format(*max(means)) if means else "-")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="measure again")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    file = Path(__file__).with_suffix(".json")
    warnings.simplefilter("ignore")
    if given.data is not None:
        file.write_text(json.dumps(measured(given.data, given.repeats), indent=1) + "\n")
    print(table(json.loads(file.read_text())))


if __name__ == "__main__":
    main()

"""Batches sampled anew every step: how epsilon grows, how near the bound is, what others give.

python examples/sampled_batches.py curves --save FILE    epsilon against epochs, five curves
python examples/sampled_batches.py nearness              against a simulation of the mixture
python examples/sampled_batches.py bounded               against two theorems for bounded domains
"""

import argparse
import math

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.optimize import isotonic_regression

import lastiterate as li
from lastiterate import plot
from lastiterate.bounds.bound import BLUE, GREEN, GREY, VERMILLION, LineStyle
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS
from lastiterate.profile import GaussianMixtureProfile

DELTA = 1e-5
DRAWS = 4_000


def mnist(epochs, regulariser, batches=li.SampledWithoutReplacement):
    return li.TrainingRun(
        loss=li.Loss(smoothness=32.5 + regulariser, strong_convexity=regulariser),
        sensitivity=10.0,
        batches=batches(60_000, 1_500),
        steps=40 * epochs,
        step_size=0.05,
        noise_std=0.01,
    )


def simulated(run, draws=DRAWS, seed=0):
    """epsilon of the exact mixture, from participations drawn at random, with its error."""
    rng = np.random.default_rng(seed)
    contraction = 1.0 - run.step_size * run.loss.strong_convexity
    steps = min(run.steps, math.ceil(14 / (1 - contraction)))  # e^-14 of what is older is left
    unit = contraction ** np.arange(steps - 1, -1, -1)
    variances = unit**2
    probability = run.batches.batch_size / run.batches.examples
    energies = np.empty(draws)
    for i in range(draws):
        sensitivities = unit * (rng.random(steps) < probability)
        slopes = isotonic_regression(sensitivities / variances, weights=variances).x
        energies[i] = slopes**2 @ variances
    mus = run.sensitivity / run.batches.batch_size / run.noise_std * np.sqrt(energies)
    whole_and_eighths = [
        GaussianMixtureProfile(np.full(part.size, 1 / part.size), part).epsilon(DELTA)
        for part in (mus, *np.array_split(mus, 8))
    ]
    return whole_and_eighths[0], float(np.std(whole_and_eighths[1:]) / math.sqrt(8))


def nearness(epochs=(50, 100, 200, 500, 1_000, 2_000), regularisers=(0.0002, 0.002, 0.02)):
    table = Table("lam", "epochs", "T(1-c)", "certified", "simulated", "above")
    cases = [(lam, count) for lam in regularisers for count in epochs]
    for lam, count in track(cases, description="simulating", transient=True):
        run = mnist(count, lam)
        ours = li.account(run, bounds="random-order/sampled/average").epsilon(DELTA)
        exact, error = simulated(run)
        table.add_row(
            f"{lam:g}", f"{count:,}", f"{run.steps * run.step_size * lam:.2f}", f"{ours:.3f}",
            f"{exact:.3f} +- {error:.3f}", f"{100 * (ours / exact - 1):+.1f} %",
        )  # fmt: skip
    return table


def bounded(shares=(10, 20, 40), sensitivities=(0.25, 0.5, 1.0), steps=5_000):
    """D = 1, sigma = 3, eta = .02: the grid of Bok, Su and Altschuler's Tables 10 to 12."""
    table = Table("b/n", "L/b", "ours", "BSA Theorem 4.10", "AT (3.6), as published", "composition")
    cases = [(share, moved) for share in shares for moved in sensitivities]
    for share, moved in track(cases, description="accounting", transient=True):
        run = li.TrainingRun(
            loss=li.Loss(smoothness=1.0),
            sensitivity=moved * 100,
            batches=li.SampledWithoutReplacement(100 * share, 100),
            steps=steps,
            step_size=0.02,
            noise_std=3.0,
            domain=li.Ball(diameter=1.0),
        )
        ids = (
            "random-order/sampled",
            "published/bok-su-altschuler/sampled-bounded-domain",
            "published/altschuler-talwar/sampled-bounded",
            "composition/sampled",
        )
        values = [li.account(run, bounds=id_).epsilon(DELTA) for id_ in ids]
        table.add_row(f"1/{share}", f"{moved:g}", *(f"{value:.3f}" for value in values))
    return table


def curves(epochs, regulariser):
    """Five values of epsilon for each number of epochs."""
    rows = []
    for count in track(epochs, description="accounting", transient=True):
        sampled = mnist(count, regulariser)
        cyclic = mnist(count, regulariser, li.Cyclic)
        rows.append(
            (
                li.account(sampled, bounds="composition/sampled").epsilon(DELTA),
                li.account(cyclic).epsilon(DELTA),
                li.account(sampled).epsilon(DELTA),
                li.account(mnist(count, regulariser, li.ShuffledOnce)).epsilon(DELTA),
                LOWER_BOUNDS["published/bok-su-altschuler/cyclic-lower"]
                .evaluate(cyclic)
                .epsilon(DELTA),
            )
        )
    return list(zip(*rows, strict=True))


NAMES = (
    ("every iterate, sampled\n(composition)", LineStyle(GREY, "-")),
    ("last iterate, fixed order", LineStyle(BLUE, "-")),
    ("last iterate, sampled", LineStyle(VERMILLION, "-")),
    ("last iterate, shuffled once", LineStyle(GREEN, "-")),
    ("lower bound, fixed order\n(BSA C.17)", LineStyle(BLUE, ":")),
)


def draw(path, regulariser=0.02):
    epochs = sorted({round(10 ** (k / 6)) for k in range(27)})
    values = dict(zip(dict(NAMES), curves(epochs, regulariser), strict=True))
    up = f"epsilon at delta = {DELTA:g}"
    plot.save(plot.lines(epochs, values, across="epochs", up=up, line_styles=dict(NAMES)), path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("curves", "nearness", "bounded"))
    parser.add_argument("--save", default="sampled_batches.png", help="where curves are drawn")
    options = parser.parse_args()
    if options.what == "curves":
        draw(options.save)
        print(f"drawn into {options.save}")
    else:
        Console().print(nearness() if options.what == "nearness" else bounded())

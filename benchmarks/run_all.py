"""Speed, as ratios to floors measured in the same run.  `make bench` prints the table."""

import math
import resource
import subprocess
import sys
import time

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import isotonic_regression

import lastiterate as li
from lastiterate import calibration

RUN = li.TrainingRun(
    loss=li.Loss(smoothness=32.502, strong_convexity=0.002),
    sensitivity=10.0,
    batches=li.Cyclic(examples=60_000, batch_size=1_500),
    steps=2_000,
    step_size=0.05,
    noise_std=0.01,
)

FLAGS = [
    "--examples", "60000", "--batch-size", "1500", "--epochs", "50", "--step-size", "0.05",
    "--noise-std", "0.01", "--sensitivity", "10", "--smoothness", "32.502",
    "--strong-convexity", "0.002", "--batches",
]  # fmt: skip


def best_of(action, repeats=7):
    """The least of several timings, in seconds: the others measure the machine."""
    times = []
    for _ in range(repeats):
        before = time.perf_counter()
        action()
        times.append(time.perf_counter() - before)
    return min(times)


def random_schedule(low, high, steps=1_000_000):
    rng = np.random.default_rng(0)
    return {
        "contraction": rng.uniform(low, high, steps),
        "sensitivity": rng.random(steps),
        "noise": rng.uniform(0.5, 2.0, steps),
    }


def engine_against_isotonic_regression():
    for low, high in [(0.9999, 1.0001), (0.99999, 1.0), (0.999, 1.0), (1.0, 1.001)]:
        schedule = random_schedule(low, high)
        c, s, n = schedule.values()
        # The regression on the same arrays, as far as its weights do not underflow.
        unit = np.clip(np.append(np.cumprod(c[:0:-1])[::-1], 1.0), 1e-140, 1e140)
        masses, variances = unit * s, (unit * n) ** 2
        ratios = masses / variances
        floor = best_of(lambda: isotonic_regression(ratios, weights=variances))  # noqa: B023 - called at once
        ours = best_of(lambda: li.optimal_shifts(**schedule))  # noqa: B023 - called at once
        plan = best_of(lambda: li.optimal_shifts(**schedule).a, repeats=3)  # noqa: B023 - called at once
        what = f"optimal_shifts, a million steps, c in [{low}, {high}]"
        yield what, f"{1e3 * ours:.0f} ms", f"{ours / floor:.2f} x one isotonic_regression", "<= 3"
        yield "  with the plan written out", f"{1e3 * plan:.0f} ms", f"{plan / floor:.2f} x", ""


def endless_runs():
    for name, change in [("", {}), (", bounded domain", {"domain": li.Ball(3.0)})]:
        run = RUN.replace(steps=10**12, **change)
        ours = best_of(lambda: li.account(run).gdp())  # noqa: B023 - called at once
        yield f"account, 10^12 steps{name}", f"{1e3 * ours:.2f} ms", "", "< 5 ms"


def calibrated(run):
    return li.calibrate(run, epsilon=2.0, delta=1e-5).noise_std


def sampled_runs():
    run = RUN.replace(batches=li.SampledWithoutReplacement(60_000, 1_500), steps=8_000)
    first = best_of(lambda: li.account(run).epsilon(1e-5), repeats=1)
    yield "account, 8,000 sampled steps, first", f"{first:.1f} s", "", "< 10 s"
    again = best_of(lambda: li.account(run.replace(noise_std=0.011)).epsilon(1e-5), repeats=3)
    what = "  another noise level (composition included)"
    yield what, f"{again:.2f} s", f"{again / first:.3f} x the first", "< 0.2 s"
    yield "  calibrate it", f"{best_of(lambda: calibrated(run), repeats=1):.1f} s", "", "< 15 s"
    noisy = run.replace(release_noise_std=0.00316)
    first = best_of(lambda: li.account(noisy).epsilon(1e-5), repeats=1)
    yield "account, 8,000 sampled steps with noise on release", f"{first:.1f} s", "", "< 10 s"
    again = best_of(lambda: li.account(noisy.replace(noise_std=0.0101)).epsilon(1e-5), repeats=3)
    yield "  another noise level", f"{again:.2f} s", f"{again / first:.3f} x the first", "< 0.2 s"
    yield "  calibrate it", f"{best_of(lambda: calibrated(noisy), repeats=1):.1f} s", "", "< 15 s"
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    yield "  most memory so far", f"{most:.2f} GB", "", "< 1 GB"
    shuffled = RUN.replace(batches=li.ShuffledOnce(10**6, 1_000), steps=200_000)
    ours = best_of(lambda: li.account(shuffled).epsilon(1e-5), repeats=3)
    yield "account, 1,000 shuffled batches x 200 epochs", f"{ours:.2f} s", "", "< 1 s"


def calibration_calls():
    account, calls = calibration.account, []
    calibration.account = lambda *a, **k: (calls.append(1), account(*a, **k))[1]
    most = 0
    for epsilon in (0.1, 1.0, 8.0):
        for noise in (1e-6, 0.01, 1e6):
            calls.clear()
            li.calibrate(RUN.replace(noise_std=noise), epsilon=epsilon, delta=1e-5)
            most = max(most, len(calls))
    calibration.account = account
    yield "calibrate, most account calls of 9 searches", f"{most}", "", "<= 40"


def importing():
    def python(code):
        return best_of(lambda: subprocess.run([sys.executable, "-c", code], check=True), repeats=5)

    bare, numpy, ours = python(""), python("import numpy"), python("import lastiterate")
    difference = max(ours - bare, 0.0)
    ratio = f"{difference / max(numpy - bare, 1e-9):.2f} x importing numpy"
    yield "import lastiterate", f"{1e3 * difference:.0f} ms", ratio, "< 500 ms"
    for goal, *words in [
        ("", "--help"),
        ("< 1 s", "account", *FLAGS, "cyclic"),
        ("< 1 s", "account", *FLAGS, "shuffled-once"),
        ("< 1 s", "account", *FLAGS, "shuffled-each-epoch"),
    ]:
        ours = python(f"import os, sys; sys.stdout = open(os.devnull, 'w'); {command(words)}")
        against = f"{ours / bare:.1f} x python, {ours / numpy:.1f} x importing numpy"
        yield f"lastiterate {words[0]} .. {words[-1]}", f"{ours:.2f} s", against, goal


def command(words):
    return f"from lastiterate.cli import main; assert main({words}) == 0"


def main():
    table = Table("what", "measured", "against", "goal")
    for benchmark in (
        sampled_runs,  # first: it reports the most memory in use
        engine_against_isotonic_regression,
        endless_runs,
        calibration_calls,
        importing,
    ):
        for row in benchmark():
            table.add_row(*row)
    Console(width=120).print(table)
    assert math.isfinite(li.account(RUN).gdp())


if __name__ == "__main__":
    main()

"""Accounts of sampled runs, timed against dp-accounting's PLD accountant in the same process.

    python benchmarks/accounting_speed.py

Every case is a process of its own: loading is not counted, the first account and the next noise
level are, and the most memory ever resident is.
"""

import resource
import subprocess
import sys
import time

CASES = {
    "T = 8,000, n = 60,000, b = 1,500": (60_000, 1_500, 8_000, 10.0, 0.05, 32.502, 0.002, 0.01),
    "T = 100,000, n = 1e6, b = 1,000": (10**6, 1_000, 100_000, 1.0, 1.0, 1.0, 1e-4, 1e-3),
    "T = 1e6, n = 1e6, b = 1,000": (10**6, 1_000, 10**6, 1.0, 1.0, 1.0, 1e-4, 1e-3),
}
DELTA = 1e-6
COLD = {"cyclic": 0.6, "shuffled-once": 0.6, "sampled": 2.5}
FLAGS = [
    "--examples", "60000", "--batch-size", "1500", "--epochs", "50", "--step-size", "0.05",
    "--noise-std", "0.01", "--sensitivity", "10", "--smoothness", "32.502",
    "--strong-convexity", "0.002", "--batches",
]  # fmt: skip


def timed(action):
    before = time.perf_counter()
    action()
    return time.perf_counter() - before


def measure(name):
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    import lastiterate as li

    examples, size, steps, sensitivity, eta, smooth, strong, noise = CASES[name]

    def run(noise_std):
        return li.TrainingRun(
            loss=li.Loss(smoothness=smooth, strong_convexity=strong),
            sensitivity=sensitivity,
            batches=li.SampledWithoutReplacement(examples, size),
            steps=steps,
            step_size=eta,
            noise_std=noise_std,
        )

    def theirs():
        event = dp_accounting.GaussianDpEvent(noise * size / sensitivity)
        step = dp_accounting.PoissonSampledDpEvent(size / examples, event)
        accountant = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
        accountant.compose(dp_accounting.SelfComposedDpEvent(step, steps))
        accountant.get_epsilon(DELTA)

    li.account(run(noise).replace(steps=2)).epsilon(DELTA)  # loads what is loaded on first use
    floor = min(timed(theirs) for _ in range(3))
    first = timed(lambda: li.account(run(noise)).epsilon(DELTA))
    after = timed(lambda: li.account(run(1.01 * noise)).epsilon(DELTA))
    whole = timed(lambda: li.calibrate(run(noise), epsilon=1.0, delta=DELTA))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(
        f"  dp-accounting {floor:.2f} s; first account {first:.2f} s, {first / floor:.2f} x; "
        f"next noise level {after:.2f} s; calibrate {whole / first:.1f} x the first; "
        f"{memory:.0f} MB"
    )


def main():
    if len(sys.argv) > 1:
        measure(sys.argv[1])
        return
    for name in CASES:
        print(name, flush=True)
        subprocess.run([sys.executable, __file__, name], check=True)
    for batches, goal in COLD.items():
        words = ["account", *FLAGS, batches]
        code = f"from lastiterate.cli import main; assert main({words}) == 0"
        taken = timed(
            lambda: subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)  # noqa: B023 - called at once
        )
        print(f"cold start, {batches}: {taken:.2f} s (goal {goal} s)", flush=True)


if __name__ == "__main__":
    main()

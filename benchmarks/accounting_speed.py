"""How long accounts take, against dp-accounting's PLD accountant on the same Poisson run.

    python benchmarks/accounting_speed.py                     # everything
    python benchmarks/accounting_speed.py poisson sampled     # only these batches

Every case is a process of its own.  Times are of the processor, the least of some repetitions where
that is possible: loading is not counted, except from a cold start, where the package is compiled
as an installed one is.  The most memory ever resident is told, too.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time

# Examples, batch size, steps, sensitivity, step size, smoothness, penalty, noise.
CASES = {
    "T = 8,000, n = 60,000, b = 1,500": (60_000, 1_500, 8_000, 10.0, 0.05, 32.502, 0.002, 0.01),
    "T = 100,000, n = 1e6, b = 1,000": (10**6, 1_000, 100_000, 1.0, 1.0, 1.0, 1e-4, 1e-3),
    "T = 1e6, n = 1e6, b = 1,000": (10**6, 1_000, 10**6, 1.0, 1.0, 1.0, 1e-4, 1e-3),
}
FIRST = dict(zip(CASES, (2.0, 3.0, 3.0), strict=True))  # goals, in times of dp-accounting's
RULES = {
    "sampled": "SampledWithoutReplacement",
    "poisson": "PoissonSampled",
    "shuffled-once": "ShuffledOnce",
    "shuffled-each-epoch": "ShuffledEachEpoch",
}
SHUFFLED, NEXT, CALIBRATE, MEMORY = 0.2, 0.1, 5.0, 500  # goals
DELTA = 1e-6
NEARBY = (1.01, 1.02, 1.03, 1.04, 1.05)  # noise levels
COLD = {"cyclic": 0.6, "shuffled-once": 0.6, "shuffled-each-epoch": 0.6, "sampled": 2.5}
FLAGS = [
    "--examples", "60000", "--batch-size", "1500", "--epochs", "50", "--step-size", "0.05",
    "--noise-std", "0.01", "--sensitivity", "10", "--smoothness", "32.502",
    "--strong-convexity", "0.002", "--batches",
]  # fmt: skip


def timed(action):
    before = time.process_time()
    action()
    return time.process_time() - before


def measure(name, rule):
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    import lastiterate as li

    examples, size, steps, sensitivity, eta, smooth, penalty, noise = CASES[name]
    left_out = {"adjacency": "zero-out", "sensitivity": sensitivity / 2}  # with half the gradients
    adjacency = left_out if rule == "poisson" else {"sensitivity": sensitivity}

    def run(noise_std):
        return li.TrainingRun(
            loss=li.Loss(smoothness=smooth, regulariser=penalty),
            batches=getattr(li, RULES[rule])(examples, size),
            steps=steps,
            step_size=eta,
            noise_std=noise_std,
            **adjacency,
        )

    def theirs():
        event = dp_accounting.GaussianDpEvent(noise * size / adjacency["sensitivity"])
        step = dp_accounting.PoissonSampledDpEvent(size / examples, event)
        accountant = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
        accountant.compose(dp_accounting.SelfComposedDpEvent(step, steps))
        accountant.get_epsilon(DELTA)

    def ours(noise_std):
        return timed(lambda: li.account(run(noise_std)).epsilon(DELTA))

    # Load what is loaded on first use, by runs that share nothing with these.
    for other in (2, 400):
        small = run(noise).replace(steps=other, batches=getattr(li, RULES[rule])(400, 20))
        li.account(small).epsilon(DELTA)
    floor = timed(theirs)
    first = ours(noise)
    floor = min(floor, *(timed(theirs) for _ in range(2)))
    later = [ours(factor * noise) for factor in NEARBY]
    whole = timed(lambda: li.calibrate(run(noise), epsilon=1.0, delta=DELTA))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    goal = SHUFFLED if rule.startswith("shuffled") else FIRST[name]
    print(
        f"  {rule:20s} dp-accounting {floor:.2f} s; first account {first:.2f} s, "
        f"{first / floor:.2f} x (goal {goal} x); next noise level {min(later):.3f} to "
        f"{max(later):.3f} s (goal {NEXT} s); calibrate {whole:.2f} s, {whole / first:.1f} x the "
        f"first account (goal {CALIBRATE:g} x); {memory:.0f} MB (goal {MEMORY} MB)",
        flush=True,
    )


def from_cold(batches, goal):
    words = ["account", *FLAGS, batches]
    with tempfile.TemporaryDirectory() as compiled:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-m", "lastiterate", *words]
        taken = []
        for _ in range(6):  # the first of them compiles
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, check=True, capture_output=True, env=environment)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            taken.append(sum(after[:2]) - sum(before[:2]))
    print(f"cold start, {batches}: {min(taken[1:]):.2f} s (goal {goal} s)", flush=True)


def main():
    if len(sys.argv) == 3 and sys.argv[1] in CASES:
        measure(*sys.argv[1:])
        return
    rules = sys.argv[1:] or [*RULES]
    for name in CASES:
        print(name, flush=True)
        for rule in rules:
            subprocess.run([sys.executable, __file__, name, rule], check=True)
    for batches, goal in COLD.items():
        from_cold(batches, goal)


if __name__ == "__main__":
    main()

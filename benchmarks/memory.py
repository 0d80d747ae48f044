"""The most memory that training takes beyond the user's own array, in units of that array.

    python benchmarks/memory.py

Every case runs in a process of its own, which makes the rows, notes how much memory it ever held
resident, trains, and notes it again.
"""

import argparse
import resource
import subprocess
import sys

BATCHES = ("shuffled-once", "shuffled-each-epoch", "sampled", "cyclic")
EXAMPLES, WIDTH, BATCH = 60_000, 784, 1_500


def peak():
    """The most bytes ever resident."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(batches, classes):
    """Print what training took beyond the rows, and the size of the rows and of a batch."""
    import numpy as np

    from lastiterate.linear_model import PrivateLogisticRegression

    rng = np.random.default_rng(0)

    def made(count):
        rows = np.empty((count, WIDTH), np.float32)
        for start in range(0, count, 1_000):
            part = rows[start : start + 1_000]
            rng.standard_normal(out=part, dtype=np.float32)
            part /= np.linalg.norm(part, axis=1, keepdims=True)
        return rows, (rows[:, :classes]).argmax(axis=1)

    model = PrivateLogisticRegression(epsilon=4.0, epochs=1, batches=batches, batch_size=BATCH)
    model.fit(*made(5_000))  # what is loaded on first use is not the trainer's
    rows, labels = made(EXAMPLES)
    before = peak()
    model.fit(rows, labels)
    print(peak() - before, rows.nbytes, BATCH * WIDTH * rows.itemsize)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs=2)
    options = parser.parse_args()
    if options.case:
        measure(options.case[0], int(options.case[1]))
        return
    print(f"{EXAMPLES:,} float32 rows of {WIDTH}: memory beyond them, in units of them")
    for batches in BATCHES:
        for classes in (2, 10):
            command = [sys.executable, __file__, "--case", batches, str(classes)]
            found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            extra, whole, batch = map(int, found.split())
            print(
                f"  {batches}, {classes} classes: {extra / whole:.2f} "
                f"(allowed: 1 + {batch / whole:.3f} for a batch)"
            )


if __name__ == "__main__":
    main()

"""What one `add` to a ledger costs, of the first hundred and of the last hundred.

`python benchmarks/ledger_adds.py [--adds 10000]` prints CPU times (others' work does not count) of
ledgers whose releases all have another cost, and of one whose releases are alike.
"""

import argparse
import tempfile
import time

import dp_accounting as dpa
import numpy as np

import lastiterate as li

KINDS = {
    "one Gaussian, again and again": lambda k: dpa.GaussianDpEvent(4_000.0),
    "Gaussians, no two alike": lambda k: dpa.GaussianDpEvent(4_000.0 + k),
    "(epsilon, delta), no two alike": lambda k: (1e-3 + 1e-8 * k, 1e-12),
    "Laplace, no two alike": lambda k: dpa.LaplaceDpEvent(2_000.0 + 0.1 * k),
}
_WARM = 20  # the first few load packages


def seconds_of_adds(release_of, adds):
    """CPU seconds of each `add`."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = li.Ledger(f"{folder}/people.ledger", epsilon=20.0, delta=1e-5)
        taken = []
        for k in range(adds):
            release = release_of(k)
            start = time.process_time()
            ledger.add(release)
            taken.append(time.process_time() - start)
        start = time.process_time()
        li.Ledger(ledger.path)
        opened = time.process_time() - start
    return np.array(taken), opened


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--adds", type=int, default=10_000)
    adds = parser.parse_args().adds
    print(f"{adds:,} adds; milliseconds of CPU; the largest counts grids that were outgrown")
    for name, release_of in KINDS.items():
        taken, opened = seconds_of_adds(release_of, adds)
        first, last = (1e3 * np.median(one) for one in (taken[_WARM : _WARM + 100], taken[-100:]))
        print(
            f"{name:32} first {first:6.2f}  last {last:6.2f}  ratio {last / first:5.2f}  "
            f"largest {1e3 * taken[_WARM:].max():8.1f}  opening {1e3 * opened:7.1f}"
        )


if __name__ == "__main__":
    main()

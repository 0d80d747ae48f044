"""Trains on a mapped float32 file and prints the most memory that was resident.

    python mapped_file.py --gigabytes 8

The file is made first, in a temporary folder, and removed at the end.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from lastiterate.linear_model import PrivateLogisticRegression

WIDTH = 784


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=8.0)
    parser.add_argument("--folder", help="where to put the file")
    options = parser.parse_args()
    count = int(options.gigabytes * 1e9 / (4 * WIDTH))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "rows.f32"
        labels = np.empty(count, dtype=np.int8)
        rng, hidden = np.random.default_rng(0), np.random.default_rng(1).normal(size=WIDTH)
        with path.open("wb") as file:
            for start in range(0, count, 10_000):
                part = rng.standard_normal((min(10_000, count - start), WIDTH), dtype=np.float32)
                labels[start : start + len(part)] = part @ hidden > 0
                part.tofile(file)
        rows = np.memmap(path, dtype=np.float32, mode="r", shape=(count, WIDTH))
        before = time.perf_counter()
        model = PrivateLogisticRegression(epsilon=1.0, epochs=2).fit(rows, labels)
        seconds = time.perf_counter() - before
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        held_out = rng.standard_normal((10_000, WIDTH), dtype=np.float32)
        score = model.score(held_out, held_out @ hidden > 0)
    print(f"{path.name}: {count:,} rows, {options.gigabytes:g} GB, two passes in {seconds:.0f} s")
    print(f"most resident memory {most:.2f} GiB; accuracy {100 * score:.1f} %")


if __name__ == "__main__":
    main()

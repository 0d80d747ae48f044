"""Accuracy on images with scattering features: private, private on raw pixels, and not private.

Every setting is the library's own default; nothing is chosen on test rows.  A folder is to have
`mnist` and `fashion-mnist`, with the four files of each as they are published, and
`cifar-10-batches-bin`; what is missing is said and left out.  Results are kept in `features.json`
after every fit, and a run goes on from there.

    python benchmarks/features.py --data folder --cells mnist:3,fashion:3,cifar:3 --seeds 5

Texts are the same with `--kind embeddings`: rows of a frozen public model, which `text_data.py`
writes into the folder.

    python benchmarks/features.py --data folder --kind embeddings --cells newsgroups:1,r8:1
"""

import argparse
import gzip
import json
import time
import warnings
from pathlib import Path

import datasets
import numpy as np
import text_data

from lastiterate.features import Scattering2D
from lastiterate.linear_model import PrivateLogisticRegression

KEPT = Path(__file__).with_suffix(".json")
DELTA = 1e-5
KINDS = ("scattering", "pixels", "embeddings")
FOLDERS = {"mnist": "mnist", "fashion": "fashion-mnist", "cifar": "cifar-10-batches-bin"} | {
    name: text_data.path_of("", name) for name in text_data.SETS
}
PUBLISHED = {"mnist": 98.7, "fashion": 89.7, "cifar": 67.0}  # Tramer and Boneh 2021, epsilon 3
PENALTIES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
MAPS = {"mnist": {}, "fashion": {}, "cifar": {"channels": 3}}


def _read(path, skip):
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), np.uint8, offset=skip)


def images(name, folder):
    """Training and test images as bytes, with labels."""
    root = folder / FOLDERS[name]
    if name == "cifar":
        files = [[f"data_batch_{k}.bin" for k in range(1, 6)], ["test_batch.bin"]]
        parts = [
            np.concatenate([np.fromfile(root / one, np.uint8) for one in some]).reshape(-1, 3_073)
            for some in files
        ]
        return [(one[:, 1:], one[:, 0].astype(np.intp)) for one in parts]
    return [
        (
            _read(root / f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 784),
            _read(root / f"{part}-labels-idx1-ubyte.gz", 8).astype(np.intp),
        )
        for part in ("train", "t10k")
    ]


def features(name, folder, cache, kind):
    """Rows of features and labels of both parts; scattering features are kept in `cache`."""
    found = []
    for part, (pixels, labels) in zip(("train", "test"), images(name, folder), strict=True):
        if kind == "pixels":
            rows = pixels.astype(np.float32)
            rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
        else:
            path = cache / f"{name}_{part}.npy"
            if not path.exists():
                shape = (32, 32) if name == "cifar" else (28, 28)
                begin = time.process_time()
                rows = Scattering2D(shape, **MAPS[name]).fit_transform(pixels)
                rate = len(rows) / (time.process_time() - begin)
                print(f"{name} {part}: {rate:,.0f} images a second", flush=True)
                np.save(path, rows)
            rows = np.load(path)
        found += [rows, labels]
    return found


def private_accuracy(data, epsilon, adjacency, seed):
    """Test accuracy in per cent, CPU seconds and steps of a fit with the default settings."""
    rows, labels, test, expected = data
    model = PrivateLogisticRegression(
        epsilon=epsilon,
        delta=DELTA,
        adjacency=adjacency,
        classes=list(range(int(expected.max()) + 1)),
        feature_bound=1.0,
        random_state=seed,
    )
    begin = time.process_time()
    model.fit(rows, labels)
    taken = time.process_time() - begin
    accuracy = 100.0 * model.score(test, expected)
    return {"accuracy": accuracy, "seconds": taken, "steps": int(model.n_iter_)}


def ceiling(data, inverse_penalty=1.0):
    """Test accuracy of logistic regression that is not private, on the same rows."""
    from sklearn.linear_model import LogisticRegression

    rows, labels, test, expected = data
    begin = time.process_time()
    # Around their mean and in units of their spread, so that the optimizer gets somewhere.
    mean = rows.mean(axis=0)
    spread = np.sqrt(np.mean((rows - mean) ** 2))
    model = LogisticRegression(C=inverse_penalty, max_iter=100, tol=1e-6)
    model.fit((rows - mean) / spread, labels)
    taken = time.process_time() - begin
    return {"accuracy": 100.0 * model.score((test - mean) / spread, expected), "seconds": taken}


def ceiling_of_texts(data):
    """The same with the penalty that is best on a fifth of the training rows, and all sizes.

    Embeddings of few texts are learnt by heart, so that the usual penalty is no ceiling.
    """
    rows, labels, _, expected = data
    order = np.random.default_rng(0).permutation(len(labels))
    held, kept = order[: len(order) // 5], order[len(order) // 5 :]
    parts = rows[kept], labels[kept], rows[held], labels[held]
    best = max(PENALTIES, key=lambda one: ceiling(parts, one)["accuracy"])
    sizes = {"training": len(labels), "test": len(expected), "classes": len(set(labels))}
    return ceiling(data, best) | sizes


def main():
    warnings.filterwarnings("ignore", category=UserWarning)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, help="folder for features; that of the data if none")
    parser.add_argument("--cells", default="mnist:3,mnist:1,fashion:3,fashion:1,cifar:3")
    parser.add_argument("--kind", default="scattering", choices=KINDS)
    parser.add_argument("--adjacency", default="zero-out", choices=["zero-out", "replace"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--ceiling", action="store_true", help="train without privacy instead")
    options = parser.parse_args()
    results = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    loaded = {}
    for cell in options.cells.split(","):
        name, epsilon = cell.split(":")
        if not (options.data / FOLDERS[name]).exists():
            print(f"{FOLDERS[name]} is missing in {options.data}: {cell} is left out", flush=True)
            continue
        if name not in loaded:
            cache = options.cache or options.data
            loaded = {
                name: datasets.load(name, options.data)
                if options.kind == "embeddings"
                else features(name, options.data, cache, options.kind)
            }
        data = loaded[name]
        for seed in range(1 if options.ceiling else options.seeds):
            how = "not private" if options.ceiling else f"{options.adjacency}/{epsilon}/{seed}"
            key = f"{name}/{options.kind}/{how}"
            if key in results:
                continue
            found = (
                (ceiling_of_texts if options.kind == "embeddings" else ceiling)(data)
                if options.ceiling
                else private_accuracy(data, float(epsilon), options.adjacency, seed)
            )
            # Read again, as another run may have added to it.
            results = json.loads(KEPT.read_text()) if KEPT.exists() else {}
            results[key] = {k: round(v, 2) for k, v in found.items()}
            KEPT.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
            print(key, results[key], flush=True)


if __name__ == "__main__":
    main()

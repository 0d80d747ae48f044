"""Accuracy on images with scattering features: private, private on raw pixels, and not private.

Every setting is the library's own default; nothing is chosen on test rows.  A folder is to have
`mnist` and `fashion-mnist`, with the four files of each as they are published, and
`cifar-10-batches-bin`; what is missing is said and left out.  Results are kept in `features.json`
after every fit, and a run goes on from there.

    python benchmarks/features.py --data folder --cells mnist:3,fashion:3,cifar:3 --seeds 5
    python benchmarks/features.py --from-results    (prints the table of docs/utility.md)

Texts are the same with `--kind embeddings`: rows of a frozen public model, which `text_data.py`
writes into the folder.

    python benchmarks/features.py --data folder --kind embeddings --cells newsgroups:1,r8:1
"""

import argparse
import gzip
import itertools
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
KEPT_DP_SGD = KEPT.with_name("features_dp_sgd.json")
EPSILONS = ("0.5", "1", "2", "3")
TITLES = {"mnist": "MNIST", "fashion": "Fashion-MNIST", "cifar": "CIFAR-10"}
WORDS = {"scattering": "scattering", "mirrored": "with mirror images", "pixels": "raw pixels"}
KINDS = ("scattering", "mirrored", "pixels", "embeddings")
FOLDERS = {"mnist": "mnist", "fashion": "fashion-mnist", "cifar": "cifar-10-batches-bin"} | {
    name: text_data.path_of("", name) for name in text_data.SETS
}
PUBLISHED = {"mnist": 98.7, "fashion": 89.7, "cifar": 67.0}  # Tramer and Boneh 2021, epsilon 3
PENALTIES = {
    "embeddings": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0),
    "pixels": (1e-4, 1e-3, 1e-2, 1e-1),
    "scattering": (1e-4, 1e-3, 1e-2),
    "mirrored": (1e-4, 1e-3, 1e-2),
}
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
            path = cache / f"{name}_{kind}_{part}.npy"
            if not path.exists():
                shape = (32, 32) if name == "cifar" else (28, 28)
                begin = time.process_time()
                images_to = Scattering2D(
                    shape, pixel_max=255, mirror=kind == "mirrored", **MAPS[name]
                )
                rows = images_to.fit_transform(pixels)
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


def tuned_ceiling(data, penalties):
    """The same with the penalty that is best on a fifth of the training rows, and all sizes.

    Many features of few rows are learnt by heart, so that the usual penalty is no ceiling.
    """
    rows, labels, _, expected = data
    order = np.random.default_rng(0).permutation(len(labels))
    held, kept = order[: len(order) // 5], order[len(order) // 5 :]
    parts = rows[kept], labels[kept], rows[held], labels[held]
    best = max(penalties, key=lambda one: ceiling(parts, one)["accuracy"])
    sizes = {"training": len(labels), "test": len(expected), "classes": len(set(labels))}
    return ceiling(data, best) | sizes


def rows_of_page(results):
    """The rows of the page's table of images: means over seeds, by epsilon."""
    dp_sgd = json.loads(KEPT_DP_SGD.read_text()) if KEPT_DP_SGD.exists() else {}
    found = []
    for (name, title), kind, adjacency in itertools.product(
        TITLES.items(), KINDS[:-1], ("zero-out", "replace")
    ):
        begin = f"{name}/{kind}"
        by_epsilon = [
            [one["accuracy"] for key, one in results.items() if key.startswith(f"{start}/")]
            for start in (f"{begin}/{adjacency}/{epsilon}" for epsilon in EPSILONS)
        ]
        if not any(by_epsilon):
            continue
        cells = [f"{np.mean(one):.1f}" if one else "" for one in by_epsilon]
        plain = results.get(f"{begin}/not private", {}).get("accuracy")
        published = PUBLISHED[name] if (kind, adjacency) == ("scattering", "zero-out") else ""
        tuned = dp_sgd.get(f"{begin}/3") if adjacency == "zero-out" else None
        ends = [
            "" if tuned is None else f"{np.mean(tuned['accuracy']):.1f}",
            str(published),
            "" if plain is None else f"{plain:.1f}",
        ]
        found.append(f"| {' | '.join([title, f'{WORDS[kind]}, {adjacency}', *cells, *ends])} |")
    return found


def main():
    warnings.filterwarnings("ignore", category=UserWarning)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cache", type=Path, help="folder for features; that of the data if none")
    parser.add_argument("--cells", default="mnist:3,mnist:1,fashion:3,fashion:1,cifar:3")
    parser.add_argument("--kind", default="scattering", choices=KINDS)
    parser.add_argument("--adjacency", default="zero-out", choices=["zero-out", "replace"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--ceiling", action="store_true", help="train without privacy instead")
    parser.add_argument("--from-results", action="store_true", help="print the page's table")
    options = parser.parse_args()
    results = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if options.from_results:
        print("\n".join(rows_of_page(results)))
        return
    if options.data is None:
        parser.error("--data is needed")
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
                tuned_ceiling(data, PENALTIES[options.kind])
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

"""MNIST, Adult and sentence embeddings of texts, from a folder given by `--data`.

What is done to a row depends on that row and on public facts only, so it costs no privacy.
"""

import csv
import gzip
from functools import partial
from pathlib import Path

import numpy as np
import text_data
from sklearn.preprocessing import normalize

ADULT_NAMES = {
    0: "age",
    4: "education-num",
    10: "capital-gain",
    11: "capital-loss",
    12: "hours-per-week",
}
ADULT_NUMBERS = {  # public cut points, chosen by meaning
    0: [20, 25, 30, 35, 40, 45, 50, 55, 60, 65],
    4: list(range(2, 17)),
    10: [1, 3000, 4000, 5000, 6000, 7000, 10000, 20000],
    11: [1, 1500, 1700, 1800, 2000, 2200, 2500],
    12: [20, 30, 38, 41, 46, 51, 60],
}
_ADULT_WORDS = (1, 5, 6, 7, 8, 9, 13)


def mnist(folder):
    """60,000 and 10,000 images of 784 pixels, ten classes."""

    def read(name, skip):
        with gzip.open(folder / "mnist" / name) as file:
            return np.frombuffer(file.read(), np.uint8, offset=skip)

    parts = []
    for name in ("train", "t10k"):
        images = read(f"{name}-images-idx3-ubyte.gz", 16).reshape(-1, 784)
        parts += [unit_rows(images.astype(np.float32)), read(f"{name}-labels-idx1-ubyte.gz", 8)]
    return parts


def adult(folder):
    """32,561 and 16,281 people in one-hot form; income over 50,000."""

    def read(name):
        with gzip.open(folder / "adult" / name, "rt") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file)]
        return [row for row in rows if len(row) == 15]

    tables = [read("adult.data.gz"), read("adult.test.gz")]
    words = {j: sorted({row[j] for table in tables for row in table}) for j in _ADULT_WORDS}

    def one_hot(table):
        blocks = []
        for j, cuts in ADULT_NUMBERS.items():
            place = np.searchsorted(cuts, [float(row[j]) for row in table], side="right")
            blocks.append(np.eye(len(cuts) + 1, dtype=np.float32)[place])
        for j, vocabulary in words.items():
            place = [vocabulary.index(row[j]) for row in table]
            blocks.append(np.eye(len(vocabulary), dtype=np.float32)[place])
        return np.hstack(blocks)

    parts = []
    for table in tables:
        rich = np.array([row[14].startswith(">50K") for row in table], dtype=np.intp)
        parts += [unit_rows(one_hot(table)), rich]
    return parts


def imdb(folder):
    """20,000 and 4,904 reviews as 256 numbers of a frozen public model; good or bad."""
    stored = np.load(folder / "imdb_wordllama256.npz")
    rows, labels = unit_rows(stored["X"].astype(np.float32)), stored["y"].astype(np.intp)
    return rows[:-4904], labels[:-4904], rows[-4904:], labels[-4904:]


def texts(name, folder):
    """Texts by topic as 256 numbers of a frozen public model, as `text_data.py` writes them."""
    stored = np.load(text_data.path_of(folder, name))
    parts = [(stored[f"X_{part}"], stored[f"y_{part}"]) for part in text_data.PARTS]
    return [one for rows, topics in parts for one in (unit_rows(rows), topics.astype(np.intp))]


def unit_rows(rows):
    return normalize(rows)


LOADERS = {"mnist": mnist, "adult": adult, "imdb": imdb} | {
    name: partial(texts, name) for name in text_data.SETS
}


def load(name, folder):
    """Training rows and labels, test rows and labels."""
    return LOADERS[name](Path(folder))

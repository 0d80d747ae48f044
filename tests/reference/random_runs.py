"""Descriptions of runs, drawn at random over everything that a description may say."""

import numpy as np

import lastiterate as li
from lastiterate.run.optimizer import ExponentialAverage, TailAverage

RULES = (
    li.FullBatch, li.Cyclic, li.FixedOrder, li.ShuffledOnce, li.ShuffledEachEpoch,
    li.SampledWithoutReplacement, li.PoissonSampled, li.BallsAndBins, li.BallsAndBinsEachEpoch,
    li.BalancedSampled,
)  # fmt: skip


def random_run(seed, *, most_steps=30, momentum=None):
    """A run; `momentum` says whether its steps have some, or its result is an average."""
    rng = np.random.default_rng(seed)

    def around(low, high):
        return float(10 ** rng.uniform(low, high))

    steps = int(around(0.0, np.log10(most_steps)))
    batches = _batches(rng, steps)
    adjacency = str(rng.choice(["replace", "zero-out"]))
    sensitivity = around(-1, 1)
    # Gradients are often bounded by just what the sensitivity needs, sometimes by more.
    bound = sensitivity / (2.0 if adjacency == "replace" else 1.0)
    bound *= float(rng.choice([1.0, 1.0, rng.uniform(1.0, 3.0)]))
    lipschitz, clip = [(None, None), (None, None), (bound, None), (None, bound), (bound, bound)][
        int(rng.integers(5))
    ]
    step_size, noise = around(-2, 0.3), sensitivity / batches.batch_size / around(-1, 0.7)
    regulariser = float(rng.choice([0.0, 0.0, around(-3, 0)]))
    convex = bool(rng.random() < 0.85)
    strong = float(rng.choice([0.0, 0.0, around(-3, 0)])) if convex else 0.0
    smooth = max(strong, regulariser) + float(rng.choice([around(-1.5, 0.5) / step_size, 0.1]))
    more = {}
    if rng.random() < 0.2:
        more["step_size"] = (step_size * rng.uniform(0.3, 1.0, steps)).tolist()
    if rng.random() < 0.25:
        more["release_noise_std"] = step_size * noise * around(-1, 1)
    if momentum or (momentum is None and rng.random() < 0.4):
        more |= _optimizer(rng, steps)
    elif rng.random() < 0.2:
        more["domain"] = li.Ball(step_size * sensitivity / batches.batch_size * around(0, 2.5))
    return li.TrainingRun(
        loss=li.Loss(
            smoothness=smooth, strong_convexity=strong, convex=convex, regulariser=regulariser,
            lipschitz=lipschitz, outputs=int(rng.integers(1, 4)) if rng.random() < 0.5 else None,
        ),
        sensitivity=sensitivity, batches=batches, steps=steps, clip_norm=clip,
        adjacency=adjacency, examples_per_person=min(batches.examples, int(rng.choice([1, 1, 3]))),
        **{"step_size": step_size, "noise_std": noise, **more},
    )  # fmt: skip


def _batches(rng, steps):
    size, length = int(rng.integers(1, 7)), int(rng.integers(1, 7))
    examples = size * length + int(rng.integers(0, size))
    rule = RULES[int(rng.integers(len(RULES)))]
    if rule is li.FullBatch:
        return rule(examples)
    if rule is li.FixedOrder:
        return rule(examples, size, sorted({*rng.integers(1, steps + 1, 3).tolist()}))
    if rule is li.BalancedSampled:
        return rule(examples, size, epochs=int(rng.integers(1, 5)))
    if rule is li.PoissonSampled and rng.random() < 0.5:
        return rule(examples, size, largest_batch=int(rng.integers(size, examples + 1)))
    return rule(examples, size)


def _optimizer(rng, steps):
    kind = int(rng.integers(6))
    if kind == 4:
        return {"average": ExponentialAverage(float(rng.uniform(0.0, 0.99)))}
    if kind == 5:
        return {"average": TailAverage(int(rng.integers(1, steps + 1)))}
    momentum = float(rng.choice([0.5, 0.9, 0.99, rng.uniform(0.01, 0.999)]))
    schedule = (momentum * rng.uniform(0.5, 1.0, steps)).tolist() if kind == 3 else momentum
    return {"momentum": schedule, "nesterov": kind == 1, "dampening": 0.4 * (kind == 2)}

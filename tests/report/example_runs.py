"""Runs of every kind of which reports are written."""

import lastiterate as li

RUN = li.TrainingRun(
    loss=li.Loss(smoothness=32.502, strong_convexity=0.002), sensitivity=10.0,
    batches=li.ShuffledOnce(examples=60_000, batch_size=1_500), steps=80, step_size=0.05,
    noise_std=0.01,
)  # fmt: skip
POISSON = li.TrainingRun.from_dp_sgd(
    loss=li.Loss(smoothness=1.0, regulariser=0.01, lipschitz=1.0),
    batches=li.PoissonSampled(1_000, 20, 40), clip_norm=1.0, noise_multiplier=1.1, steps=20,
    step_size=0.1, adjacency="zero-out",
)  # fmt: skip
NON_CONVEX = RUN.replace(
    loss=li.Loss(smoothness=0.5, convex=False, holder=(0.3, 0.5), lipschitz=7.0, regulariser=0.01)
)
RUNS = {
    "shuffled once": RUN,
    "its order published": RUN.replace(releases="last-iterate-and-order"),
    "every iterate": RUN.replace(releases="every-iterate"),
    "cyclic, with a rest": RUN.replace(batches=li.Cyclic(60_100, 1_500)),
    "fixed order": RUN.replace(batches=li.FixedOrder(60_000, 1_500, [3, 40, 77])),
    "shuffled each epoch": RUN.replace(batches=li.ShuffledEachEpoch(60_000, 1_500)),
    "sampled": RUN.replace(
        batches=li.SampledWithoutReplacement(60_000, 1_500), steps=20, noise_std=0.1
    ),
    "full": RUN.replace(batches=li.FullBatch(60_000)),
    "ball": RUN.replace(domain=li.Ball(0.5)),
    "release noise": RUN.replace(release_noise_std=0.002),
    "output perturbation": RUN.replace(noise_std=0.0, release_noise_std=0.1),
    "schedule": RUN.replace(step_size=[0.05 / (1 + k) for k in range(80)]),
    "non-convex": NON_CONVEX,
    "poisson, cut": POISSON,
    "not finite": RUN.replace(noise_std=1e-300),
}

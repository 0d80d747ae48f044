"""The run that most pages speak of, and what is certified of it."""

from functools import cache

import lastiterate as li

accounted = cache(li.account)  # of runs that several tests look at


def readme_run(batches=li.ShuffledOnce, epochs=50, regulariser=0.002, **others):
    return li.TrainingRun(
        loss=li.Loss(smoothness=32.5 + regulariser, strong_convexity=regulariser),
        sensitivity=10.0,
        batches=batches(60_000, 1_500),
        steps=40 * epochs,
        step_size=0.05,
        noise_std=0.01,
        **others,
    )

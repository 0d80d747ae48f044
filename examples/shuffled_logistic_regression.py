"""The example of most pages: logistic regression, 60,000 examples, 50 passes, shuffled once."""

import lastiterate as li

run = li.TrainingRun(
    loss=li.Loss(smoothness=32.502, strong_convexity=0.002),  # per example, regulariser included
    sensitivity=10.0,  # sup |grad f - grad g| over two examples
    batches=li.ShuffledOnce(examples=60_000, batch_size=1_500),
    steps=2_000,
    step_size=0.05,
    noise_std=0.01,  # on the averaged gradient
)
print(li.account(run))

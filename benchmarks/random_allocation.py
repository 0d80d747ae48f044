"""Balls and bins with every iterate released, beside PLD-accounting (Feldman and Shenfeld).

    pip install PLD-accounting numba
    python random_allocation.py [--seconds 60] [--settings 40]

For each setting that package gives an upper and a lower bound on epsilon.  Ours must not be below
its lower bound, and should not be above its upper bound.  Epochs are composed on both sides.  A
setting that takes it longer than `--seconds` of processor time is left out, and printed as such.
"""

import argparse
import math
import multiprocessing
import resource
import time

import numpy as np

import lastiterate as li

RATIOS, BATCHES, EPOCHS = (0.3, 5.0), (10, 10_000), (1, 300)
DELTAS = (1e-3, 1e-5, 1e-7, 1e-10)


def settings(count):
    """Ratios of clip and noise, batches an epoch, epochs and deltas, spread over their ranges."""
    points = np.random.default_rng(0).random((count, 3))
    for number, (first, second, third) in enumerate(points):
        ratio = RATIOS[0] * (RATIOS[1] / RATIOS[0]) ** first
        batches = round(BATCHES[0] * (BATCHES[1] / BATCHES[0]) ** second)
        epochs = round(EPOCHS[0] * (EPOCHS[1] / EPOCHS[0]) ** third)
        yield round(float(ratio), 3), batches, epochs, DELTAS[number % len(DELTAS)]


def run_of(ratio, batches, epochs, rule=li.BallsAndBinsEachEpoch):
    """A run whose examples draw one of so many batches in every epoch."""
    return li.TrainingRun.from_dp_sgd(
        loss=li.Loss(convex=False),
        batches=rule(100 * batches, 100),
        clip_norm=1.0,
        noise_multiplier=1.0 / ratio,
        steps=batches * epochs,
        step_size=0.1,
        adjacency="zero-out",
    )


def timed(function):
    """What a function returns, and the processor time that it took."""
    start = time.process_time()
    return function(), time.process_time() - start


def ours(ratio, batches, epochs, delta):
    """Our epsilon."""
    report = li.account(run_of(ratio, batches, epochs), bounds="composition/balls-and-bins")
    return report.epsilon(delta)


def poisson(ratio, batches, epochs, delta):
    """The epsilon of dp-accounting for Poisson batches of the same expected size."""
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    one = from_gaussian_mechanism(
        1.0 / ratio, sampling_prob=1.0 / batches, value_discretization_interval=1e-4
    )
    return one.self_compose(batches * epochs).get_epsilon_for_delta(delta)


def theirs(pipe, seconds, ratio, batches, epochs, delta):
    """Send the lower and the upper bound of the other package."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    from PLD_accounting import gaussian_allocation_epsilon_range

    upper, lower = gaussian_allocation_epsilon_range(
        delta=delta, sigma=1.0 / ratio, num_steps=batches, num_epochs=epochs
    )
    pipe.send((lower, upper))


def within(seconds, *setting):
    """Both bounds of the other package, or None if it takes too long or fails."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=theirs, args=(sending, seconds, *setting))
    process.start()
    process.join()
    return receiving.recv() if receiving.poll() else None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--settings", type=int, default=40)
    options = parser.parse_args()
    answered = between = below = 0
    slowest = 0.0
    print("ratio batches epochs   delta |     ours   s | Poisson   s | lower      upper")
    for setting in settings(options.settings):
        epsilon, seconds = timed(lambda setting=setting: ours(*setting))
        usual, usual_seconds = timed(lambda setting=setting: poisson(*setting))
        slowest = max(slowest, min(seconds / 2.0, seconds / (3.0 * usual_seconds)))
        bounds = within(options.seconds, *setting)
        ratio, batches, epochs, delta = setting
        line = (
            f"{ratio:5g} {batches:7d} {epochs:6d} {delta:7.0e} | {epsilon:8.4f} {seconds:4.1f} "
            f"| {usual:8.4f} {usual_seconds:4.1f} | "
        )
        if bounds is None:
            print(line + "no answer", flush=True)
            continue
        lower, upper = bounds
        answered += 1
        between += lower <= epsilon <= upper
        below += not epsilon >= lower
        print(line + f"{lower:8.4f} {upper:8.4f}" + " BELOW" * (epsilon < lower), flush=True)
    print(
        f"{answered} of {options.settings} answered; ours between the bounds in {between}, "
        f"below the lower bound in {below}; largest share of the limit on time {slowest:.2f}"
    )
    assert math.isfinite(slowest)


if __name__ == "__main__":
    main()

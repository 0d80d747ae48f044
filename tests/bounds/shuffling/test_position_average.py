"""Secret orders: the published numbers, exact mixtures, and the oracle with random batches."""

import numpy as np
import pytest

import lastiterate as li
from tests.readme_run import readme_run
from tests.reference.gaussian import delta_of_gaussian


def revealed(run):
    """The report of the average over positions, which holds even if these are revealed."""
    return li.account(
        run,
        bounds=["random-order/shuffled/average-once", "random-order/shuffled/average-each-epoch"],
    )


class TestShuffled:
    @pytest.mark.parametrize(
        "regulariser, epochs, epsilon",
        [
            (0.002, 50, 3.483),
            (0.002, 100, 4.793),
            (0.002, 200, 6.882),
            (0.004, 50, 3.464),
            (0.004, 100, 4.691),
            (0.004, 200, 6.363),
        ],
    )
    def test_reference_values(self, regulariser, epochs, epsilon):
        once = revealed(readme_run(li.ShuffledOnce, epochs, regulariser))
        assert once.epsilon(1e-5) == pytest.approx(epsilon, abs=2e-3)
        assert once.bound == "random-order/shuffled/average-once"
        each = revealed(readme_run(li.ShuffledEachEpoch, epochs, regulariser)).epsilon(1e-5)
        assert once.epsilon(1e-5) <= each <= 1.01 * once.epsilon(1e-5)

    @pytest.mark.parametrize("epochs, epsilon", [(50, 3.1198), (100, 4.6127)])
    def test_with_noise_on_release(self, epochs, epsilon):
        run = readme_run(li.ShuffledOnce, epochs, release_noise_std=0.002)
        assert revealed(run).epsilon(1e-5) == pytest.approx(epsilon, abs=5e-4)

    def test_is_the_average_over_positions(self):
        run = readme_run(li.ShuffledOnce, 3)
        report = revealed(run)
        mus = [p.gdp() for p in li.account(run).by_position()]
        exact = sum(delta_of_gaussian(mu, 0.5) for mu in mus) / 40
        assert exact <= report.delta(0.5) <= exact * (1 + 1e-9)

    def test_examples_left_over_take_no_part(self):
        run = readme_run(li.ShuffledOnce, 3)
        some = revealed(run.replace(batches=li.ShuffledOnce(62_000, 1_500), steps=41 * 3))
        all_ = revealed(run.replace(batches=li.ShuffledOnce(61_500, 1_500), steps=41 * 3))
        assert some.delta(1.0) == pytest.approx(all_.delta(1.0) * 61_500 / 62_000, rel=1e-6)

    @pytest.mark.parametrize("batches", [li.ShuffledOnce, li.ShuffledEachEpoch])
    def test_a_published_order_is_charged_at_its_worst(self, batches):
        run = readme_run(batches, 50, releases="last-iterate-and-order")
        report = li.account(run)
        assert report.bound == "fixed-order/convex"
        assert report.epsilon(1e-5) == pytest.approx(4.3392, abs=1e-4)
        assert "stays secret" in str(report.unmet["random-order/shuffled"][0])

    @pytest.mark.parametrize("steps", [4, 5, 7, 8])
    @pytest.mark.parametrize("schedule", [None, "random", "falling"])
    @pytest.mark.parametrize("diameter", [None, 0.3])
    def test_each_epoch_is_not_below_all_orders(self, steps, schedule, diameter):
        """4 batches of one: the exact average over every order of every epoch."""
        rng = np.random.default_rng(steps)
        sizes = 0.2 if schedule is None else rng.uniform(0.1, 0.5, steps)
        if schedule == "falling":
            sizes = np.tile([0.5, 0.05, 0.02, 0.01], 2)[:steps]
        run = li.TrainingRun(
            loss=li.Loss(smoothness=4.0, strong_convexity=0.5),
            sensitivity=1.0,
            batches=li.ShuffledEachEpoch(4, 1),
            steps=steps,
            step_size=sizes,
            noise_std=list(rng.uniform(0.5, 1.0, steps)) if schedule else 1.0,
            domain=li.Unbounded() if diameter is None else li.Ball(diameter),
        )
        mixed = li.account(run, bounds="random-order").delta(0.2)
        total = 0.0
        for first in range(4):
            for second in range(4):
                seen = [k + 1 for k in (first, 4 + second) if k < steps]
                order = run.replace(batches=li.FixedOrder(4, 1, seen))
                total += li.account(order, bounds="fixed-order").delta(0.2) / 16
        assert total <= mixed * (1 + 1e-9)
        assert mixed <= li.account(run, bounds="fixed-order").delta(0.2) * (1 + 1e-9)

    @pytest.mark.parametrize("release", [0.0, 1.0])
    def test_very_many_batches_are_grouped_on_the_safe_side(self, monkeypatch, release):
        run = readme_run(li.ShuffledOnce, 1).replace(
            batches=li.ShuffledOnce(300, 1), steps=700, noise_std=10.0, release_noise_std=release
        )
        for batches in (li.ShuffledOnce(300, 1), li.ShuffledEachEpoch(300, 1)):
            exact = li.account(run.replace(batches=batches)).epsilon(1e-4)
            monkeypatch.setattr("lastiterate.bounds.fixed_order.convex._MOST_ALONE", 20)
            grouped = li.account(run.replace(batches=batches)).epsilon(1e-4)
            monkeypatch.undo()
            assert exact * (1 - 1e-12) <= grouped <= exact * 1.05

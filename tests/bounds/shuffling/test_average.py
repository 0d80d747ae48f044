"""Secret orders, averaged: exact mixtures, and runs that may expand on the line."""

import math
from collections import Counter
from itertools import pairwise, permutations, product

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.bounds.fixed_order import convex
from lastiterate.bounds.fixed_order import nonconvex as last_epochs
from lastiterate.profile import GaussianMixtureProfile
from tests.bounds.lines import EPSILONS, RUN, Line, largest_share, of_orders, some_run
from tests.readme_run import readme_run
from tests.reference.gaussian import delta_of_gaussian
from tests.reference.grid import exact_pair
from tests.slow import slow_if

ONCE, EACH, NON_CONVEX = (
    RECORDS[f"random-order/shuffled/average-{name}"]
    for name in ("once", "each-epoch", "non-convex")
)


def revealed(run):
    """The report of the average over positions, which holds even if these are revealed."""
    return li.account(run, bounds=[ONCE.id, EACH.id])


class TestContracting:
    @pytest.mark.parametrize(
        "regulariser, epochs, epsilon",
        [(0.002, 50, 3.483), (0.002, 200, 6.882), (0.004, 100, 4.691)],
    )
    def test_reference_values(self, regulariser, epochs, epsilon):
        once = revealed(readme_run(li.ShuffledOnce, epochs, regulariser))
        assert once.epsilon(1e-5) == pytest.approx(epsilon, abs=2e-3)
        assert once.bound == ONCE.id
        each = revealed(readme_run(li.ShuffledEachEpoch, epochs, regulariser)).epsilon(1e-5)
        assert once.epsilon(1e-5) <= each <= 1.01 * once.epsilon(1e-5)

    @pytest.mark.parametrize("epochs, epsilon", [(50, 3.1198), (100, 4.6127)])
    def test_with_noise_on_release(self, epochs, epsilon):
        run = readme_run(li.ShuffledOnce, epochs, release_noise_std=0.002)
        assert revealed(run).epsilon(1e-5) == pytest.approx(epsilon, abs=5e-4)

    def test_is_the_average_over_positions(self):
        run = readme_run(li.ShuffledOnce, 3)
        mus = [p.gdp() for p in li.account(run).by_position()]
        exact = sum(delta_of_gaussian(mu, 0.5) for mu in mus) / 40
        assert exact <= revealed(run).delta(0.5) <= exact * (1 + 1e-9)

    def test_examples_left_over_take_no_part(self):
        run = readme_run(li.ShuffledOnce, 3).replace(steps=41 * 3)
        some, all_ = (
            revealed(run.replace(batches=li.ShuffledOnce(examples, 1_500))).delta(1.0)
            for examples in (62_000, 61_500)
        )
        assert some == pytest.approx(all_ * 61_500 / 62_000, rel=1e-6)

    @pytest.mark.parametrize("batches", [li.ShuffledOnce, li.ShuffledEachEpoch])
    def test_a_published_order_is_charged_at_its_worst(self, batches):
        report = li.account(readme_run(batches, 50, releases="last-iterate-and-order"))
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
            loss=li.Loss(smoothness=4.0, strong_convexity=0.5), sensitivity=1.0,
            batches=li.ShuffledEachEpoch(4, 1), steps=steps, step_size=sizes,
            noise_std=list(rng.uniform(0.5, 1.0, steps)) if schedule else 1.0,
            domain=li.Unbounded() if diameter is None else li.Ball(diameter),
        )  # fmt: skip
        mixed, total = li.account(run, bounds="random-order").delta(0.2), 0.0
        orders = Counter(
            tuple(k + 1 for k in (first, 4 + second) if k < steps)
            for first, second in product(range(4), repeat=2)
        )
        for seen, often in orders.items():
            order = run.replace(batches=li.FixedOrder(4, 1, seen))
            total += often / 16 * li.account(order, bounds="fixed-order").delta(0.2)
        assert total <= mixed * (1 + 1e-9)
        assert mixed <= li.account(run, bounds="fixed-order").delta(0.2) * (1 + 1e-9)

    @pytest.mark.parametrize("release", [0.0, 1.0])
    @pytest.mark.parametrize("rule", [li.ShuffledOnce, li.ShuffledEachEpoch])
    def test_very_many_batches_are_grouped_on_the_safe_side(self, monkeypatch, rule, release):
        run = readme_run(li.ShuffledOnce, 1).replace(
            batches=rule(300, 1), steps=700, noise_std=10.0, release_noise_std=release
        )
        exact = li.account(run).epsilon(1e-4)
        monkeypatch.setattr(convex, "_MAX_SINGLE_POSITIONS", 20)
        assert exact * (1 - 1e-12) <= li.account(run).epsilon(1e-4) <= exact * 1.05


def deltas(run):
    profile = NON_CONVEX.profile(run)
    return np.array([profile.delta(epsilon) for epsilon in EPSILONS])


def averaged(run):
    """delta at every epsilon, of all orders, by the fixed-order bound for each."""
    examples, size = run.batches.examples, run.batches.batch_size
    length = examples // size
    one = [order.index(0) // size for order in permutations(range(examples))]
    orders = Counter()
    for positions in product(one, repeat=-(-run.steps // length)):
        seen = (k * length + j + 1 for k, j in enumerate(positions) if j < length)
        orders[tuple(step for step in seen if step <= run.steps)] += 1
    return of_orders(run, [(often / orders.total(), seen) for seen, often in orders.items()])


def epochs_of(size, batch=1, **changes):
    return RUN.replace(batches=li.ShuffledEachEpoch(size, batch), **changes)


class TestExpanding:
    @pytest.mark.parametrize("seed", slow_if(bool, range(26)))
    def test_exact_instances(self, seed):
        """20 instances a seed; whatever they leak, at every epsilon, the bound covers."""
        rng = np.random.default_rng(seed)
        runs = [
            some_run(rng, li.ShuffledEachEpoch, sizes=(1, 4), epochs=4)
            for _ in range(20)
        ]  # fmt: skip
        free = [run.replace(domain=li.Unbounded()) if rng.random() < 0.3 else run for run in runs]
        assert largest_share(NON_CONVEX, free, rng) > 0.5  # else they would say nothing

    @pytest.mark.parametrize("seed", range(3))
    def test_every_order_written_out(self, seed):
        run = epochs_of(6, 2, steps=6, domain=li.Ball(0.6))
        line = Line(run, np.random.default_rng(100 + seed), "steep")
        orders = list(product(range(3), range(3, 6)))
        pair = exact_pair(
            [(1 / len(orders), line.instance(0.1 * seed, set(seen))) for seen in orders]
        )
        for epsilon, certified in zip(EPSILONS, deltas(run), strict=True):
            assert pair.delta(epsilon) <= certified + 1e-9

    @pytest.mark.parametrize(
        "run",
        [
            epochs_of(3, steps=9, noise_std=5.0),
            epochs_of(4, 2, steps=7, noise_std=2.0),  # cut short
            epochs_of(3, steps=5, noise_std=2.0, domain=li.Unbounded()),
            epochs_of(3, steps=6, release_noise_std=0.3),
        ],
    )
    def test_is_the_average_over_all_orders(self, run):
        assert deltas(run) == pytest.approx(averaged(run), rel=1e-6, abs=1e-12)

    def test_those_left_over_are_charged_as_if_they_were_not(self):
        run = epochs_of(5, 2, steps=4, noise_std=2.0)
        found, exactly = deltas(run), averaged(run)
        assert np.all(found >= exactly * (1 - 1e-9))
        assert np.all(found <= 1.6 * exactly + 1e-12)

    def test_four_hundred_epochs(self):
        assert NON_CONVEX.profile(RUN).epsilon(1e-5) <= 2.26
        longer = NON_CONVEX.profile(RUN.replace(steps=30_000)).epsilon(1e-5)
        assert longer == pytest.approx(NON_CONVEX.profile(RUN).epsilon(1e-5), rel=1e-9)

    def test_hoelder_gradients(self):
        run = RUN.replace(loss=li.Loss(convex=False, lipschitz=2.0, holder=(0.5, 0.5)))
        worst = li.account(run, bounds="fixed-order/non-convex").epsilon(1e-5)
        assert NON_CONVEX.profile(run).epsilon(1e-5) < min(worst, 3.0)

    @pytest.mark.parametrize("domain", [li.Ball(1.0), li.Unbounded()])
    @pytest.mark.parametrize("smoothness", [0.3, 3.0])
    def test_fewer_choices_never_promise_more(self, monkeypatch, domain, smoothness):
        """Groups are charged at their last step: where steps expand, with the growth until then."""
        loss = li.Loss(smoothness=smoothness, convex=False)
        run = epochs_of(5, loss=loss, steps=15, noise_std=3.0, domain=domain)
        found = []
        for choices in (4_096, 25, 4, 1):
            monkeypatch.setattr(last_epochs, "_WINDOW_SIZES", ((choices, 64),))
            found.append(deltas(run))
        assert all(np.all(more <= fewer * (1 + 1e-6)) for more, fewer in pairwise(found))

    def test_many_batches_an_epoch(self):
        run = epochs_of(4_000, 4, steps=200_000)
        average, worst = NON_CONVEX.profile(run), li.account(run, bounds="fixed-order/non-convex")
        # With one participation in a thousand steps hardly anything but the diameter is seen.
        idle = RUN.replace(sensitivity=1e-9, batches=li.FixedOrder(4_000, 4, [1]), steps=2_000)
        least = li.account(idle, bounds="fixed-order/non-convex")
        assert least.epsilon(1e-5) < average.epsilon(1e-5) < worst.epsilon(1e-5)
        assert math.isfinite(average.epsilon(1e-5))

    def test_windows_that_begin_later_start_from_more(self):
        """Fewer epochs, from the farthest or the diameter, never promise more."""
        run, found = RUN.replace(steps=18, noise_std=4.0), []
        for steps in (64, 9, 3):
            solved = last_epochs.LastEpochs(run, last_epochs.last_epochs(run, 4_096, steps))
            mixture = GaussianMixtureProfile(solved.weights, solved.mus)
            found.append(np.array([mixture.delta(epsilon) for epsilon in EPSILONS]))
        assert all(np.all(more <= fewer * (1 + 1e-6)) for more, fewer in pairwise(found))

    def test_a_published_order_or_nothing_known_is_refused(self):
        run = RUN.replace(releases="last-iterate-and-order")
        assert NON_CONVEX.unmet(run)
        worst = li.account(run)
        assert worst.bound == "fixed-order/non-convex"
        assert NON_CONVEX.profile(RUN).epsilon(1e-5) < worst.epsilon(1e-5) < 2.595
        assert NON_CONVEX.unmet(RUN.replace(loss=li.Loss(convex=False)))

"""Hidden positions in short steps: below transport by later shifts, never below the truth."""

import math
import pickle
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import lastiterate as li
from lastiterate._numerics.rounding import ulps
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.bounds.fixed_order.short_steps import equal_short_steps
from lastiterate.bounds.shuffling import early_transport as module
from lastiterate.bounds.shuffling.early_transport import _Sums, earlier_factors
from lastiterate.bounds.shuffling.joint_transport import JointTransport, TransportGrid
from lastiterate.bounds.shuffling.positions import PositionsEachEpoch
from lastiterate.bounds.shuffling.transport import sensitivity_factors
from lastiterate.shifts import early_shifts
from lastiterate.shifts.patterns import Participations, mus_of_few
from tests.bounds.climbing import ShortSteps, worst_share
from tests.bounds.runs import described, short_run
from tests.bounds.shuffling.orders import RULES, contracting, mu_of
from tests.reference.all_orders import epochs_seen, hockey_sticks, means
from tests.slow import slow

EPSILONS = (0.05, 0.3, 0.8, 1.5, 2.5, 3.5)
SHAPES = [  # examples, batch size, steps
    (2, 1, 2), (3, 1, 3), (4, 1, 4), (5, 1, 5), (5, 2, 2), (4, 2, 4), (2, 1, 4), (2, 1, 5),
    (2, 1, 8), (3, 1, 6), (3, 1, 7), (4, 1, 6),
]  # fmt: skip
ROUGH = TransportGrid(receiving=40, every_nth_knot=2, cells=400, step=0.25)


class Instance(ShortSteps):
    """One shuffled run on the line."""

    share_of_factors = 0.4

    def __init__(self, rng, rule, shape, ratio, least, contraction, adjacency):
        examples, size, steps = shape
        super().__init__(rng, steps, least, contraction)
        self.seen = epochs_seen(examples, size, steps, rule is li.ShuffledEachEpoch)
        self.low = 0.0 if adjacency == "replace" else -1.0
        self.adjacency, self.unit = adjacency, ratio * size
        shape = (examples + 1, steps)
        ends, between = rng.choice([self.low, 1.0], shape), rng.uniform(self.low, 1.0, shape)
        self.added = np.where(rng.random(shape) < 0.8, ends, between)
        if rng.random() < 0.5:  # the differing example always pulls the same way
            self.added[0], self.added[-1] = 1.0, self.low

    def deltas(self):
        ours, theirs = self.unit * self.added[:-1], self.unit * self.added[:-1]
        theirs[0] = 0.0 if self.adjacency == "zero-out" else self.unit * self.added[-1]
        first, spread = means(self.seen, self.factors, ours)
        second, _ = means(self.seen, self.factors, theirs)
        return np.array(hockey_sticks(first, second, spread, EPSILONS))


def short(rule, shape, ratio, least, contraction, adjacency):
    """A run, and its short steps if an example changes a step by the same wherever it is."""
    loss = li.Loss(smoothness=1.0 - least, strong_convexity=1.0 - contraction, outputs=1)
    run = contracting(rule, shape, ratio, contraction, adjacency).replace(loss=loss)
    return run, early_shifts.ShortSteps(
        steps=run.steps, gap=run.loss.strong_convexity, curvature=1.0 - least, ratio=ratio,
        drift=1e-300, dimension=2,
    )  # fmt: skip


def drawn(rng):
    rule, shape = RULES[rng.integers(2)], SHAPES[rng.integers(len(SHAPES))]
    least = rng.uniform(0.1, 0.95)
    contraction = rng.uniform(max(least, 0.7), 1.0)
    ratio, adjacency = rng.choice([0.5, 1.0, 2.0]), str(rng.choice(["replace", "zero-out"]))
    arguments = rule, shape, ratio, least, contraction, adjacency
    return *short(*arguments), lambda rng: Instance(rng, *arguments)


def transported(rng, run, short_steps):
    """delta by transport, at every epsilon."""
    profile = module._quick_profile(run, module._parts(run, short_steps), short_steps.failure)
    return np.array([profile.delta(epsilon) for epsilon in EPSILONS])


def jointly_transported(rng, run, short_steps):
    """delta by some joint transport, at every epsilon: the average over earlier epochs."""
    parts = module._parts(run, short_steps)
    total = parts[0][1].weights().size
    late = int(rng.integers(1, total))
    hidden, noise = int(rng.integers(1, late + 1)), float(rng.choice([0.3, 0.7, 0.95]))
    first, multiplier = int(rng.integers(1, 6)), float(rng.choice([1.0, 2.0, 4.0, 9.0]))
    deltas = np.zeros(len(EPSILONS))
    for at, epsilon in enumerate(EPSILONS):
        for factors in sensitivity_factors(run):
            one_way = 0.0
            for share, positions in parts:
                laws = positions.joint_laws(late, hidden, noise, *factors, first)
                retained = laws.retained_shares(epsilon, multiplier)
                one_way += share * JointTransport(laws, retained, epsilon, ROUGH).delta(epsilon)
            deltas[at] = max(deltas[at], one_way)
    return deltas


class TestSoundness:
    @pytest.mark.parametrize(
        "bound, count, used", [(transported, 24, 6), (jointly_transported, 15, 4)]
    )
    def test_no_instance_leaks_more(self, bound, count, used):
        worst, gained = worst_share(count, 0, drawn, bound)
        assert worst <= 1.0 + 1e-9
        assert gained > used  # else earlier noise was not used

    @pytest.mark.slow
    @pytest.mark.parametrize("bound", [transported, jointly_transported])
    @pytest.mark.parametrize("seed", range(2, 10))
    def test_nor_in_a_long_search(self, seed, bound):
        assert worst_share(100, seed, drawn, bound, 60)[0] <= 1.0 + 1e-9

    def test_without_the_visit_the_claim_is_false(self, monkeypatch):
        """The exchanged example visits the receiving position, which must count."""
        arguments = li.ShuffledEachEpoch, (2, 1, 2), 1.0, 0.28, 0.29, "replace"
        instance = Instance(np.random.default_rng(0), *arguments)
        # The other example marks the early position.
        instance.factors = np.array([0.29, 0.283])
        instance.added = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
        exact, run = instance.deltas(), short(*arguments)
        assert np.all(exact <= transported(None, *run))
        true = PositionsEachEpoch.transport_mus
        monkeypatch.setattr(
            PositionsEachEpoch,
            "transport_mus",
            lambda self, count, receiving, late: true(self, count, 0.0, late),
        )
        assert np.any(exact > transported(None, *run))


class TestAccounts:
    """Of shuffled batches, and of balls and bins."""

    SHUFFLED = "shuffled/early-transport", "shuffled/joint-transport"
    BINS = "balls-and-bins/early-mixture", "balls-and-bins/windowed-mixture"

    def stages(self, rule):
        """With earlier shifts, and with later ones alone."""
        return [f"random-order/{one}" for one in (self.SHUFFLED if rule in RULES else self.BINS)]

    @pytest.mark.parametrize(
        "rule, zero_out, replace",
        [
            (li.ShuffledEachEpoch, 1.00, 2.01), (li.ShuffledOnce, 1.15, 2.38),
            (li.BallsAndBins, 0.81, 1.68), (li.BallsAndBinsEachEpoch, 0.80, 1.68),
        ],
    )  # fmt: skip
    def test_short_steps_hide_positions(self, rule, zero_out, replace):
        for adjacency, most in (("zero-out", zero_out), ("replace", replace)):
            report = li.account(short_run(rule, adjacency))
            assert report.lower.epsilon(1e-5) < report.epsilon(1e-5) <= most

    @pytest.mark.parametrize(
        "rule, growth", [(li.ShuffledOnce, 1.0), (li.BallsAndBins, math.exp(20.0))]
    )
    def test_they_are_no_gaussian_guarantee(self, rule, growth):
        early, _ = self.stages(rule)
        profile = RECORDS[early].evaluate(short_run(rule))
        assert math.isinf(profile.gdp())
        assert math.isinf(profile.renyi(2.0))
        assert profile.usual.delta(20.0) >= 1e-15 * growth
        assert pickle.loads(pickle.dumps(profile)).epsilon(1e-5) == profile.epsilon(1e-5)

    @pytest.mark.parametrize(
        "rule, small, share", [(li.ShuffledOnce, 1e-17, 0.6), (li.BallsAndBins, 1e-13, 0.8)]
    )
    def test_small_deltas_are_those_of_later_shifts(self, rule, small, share):
        early, late = self.stages(rule)
        both = li.account(short_run(rule), bounds=[early, late]).all
        assert both[early].epsilon(small) <= both[late].epsilon(small) < math.inf
        assert both[early].epsilon(1e-5) < share * both[late].epsilon(1e-5)

    @pytest.mark.parametrize("rule", [*RULES, li.BallsAndBins, li.BallsAndBinsEachEpoch])
    def test_unknown_outputs_long_steps_and_balls_change_nothing(self, rule):
        early, late = self.stages(rule)
        known = short_run(rule, "replace")
        unknown = short_run(rule, "replace", outputs=None)
        long = short_run(rule, "replace", step_size=4.0)
        for run in (unknown, long, known.replace(domain=li.Ball(diameter=100.0))):
            assert RECORDS[early].unmet(run)
            assert equal_short_steps(run) is None
        later = li.account(known, bounds=late).epsilon(1e-5)
        assert li.account(unknown).epsilon(1e-5) == later

    def test_two_participations_hidden_early_may_fail(self):
        """In joint transport the one at the receiving position, and the late one."""
        run = short_run(li.ShuffledOnce, "replace")
        search = module.early_transport(run).usual._directions[0]
        rounded = ulps(16)  # of probabilities
        assert search(1.0, 0.01).failure >= 2.0 * early_shifts.FAILURE + rounded

    def test_more_dimensions_cost_a_little(self):
        epsilons = [
            li.account(short_run(li.ShuffledOnce, outputs=outputs)).epsilon(1e-5)
            for outputs in (1, 100, 10_000)
        ]
        assert epsilons[0] <= epsilons[1] <= epsilons[2] < 1.3 * epsilons[0]

    @pytest.mark.slow
    def test_two_examples_of_a_person_cost_more_than_twice_one(self):
        run = short_run(li.ShuffledOnce)
        one, two = (
            li.account(run.replace(examples_per_person=size)).epsilon(1e-5) for size in (1, 2)
        )
        assert 2.0 * one < two < 6.0 * one


class TestStages:
    """The stage with early shifts replaces the others only where it is certainly better."""

    def settled(self, outputs, rule, adjacency, loss, *, size=100, steps=1_001, ratio=0.18):
        return described(
            rule(100 * size, size), steps, loss=li.Loss(outputs=outputs, **loss),
            noise_std=1.0 / (size * ratio), adjacency=adjacency,
        )  # fmt: skip

    @pytest.mark.parametrize(
        "case",
        [  # curvature of the losses that early shifts of a left-out example do not use
            (li.ShuffledOnce, "zero-out", {"smoothness": 0.37, "strong_convexity": 0.17}),
            (li.ShuffledOnce, "replace", {"smoothness": 0.9, "regulariser": 0.1}),  # no gain
        ],
    )
    def test_known_outputs_never_raise_epsilon(self, case):
        known, unknown = (
            li.account(self.settled(outputs, *case)).epsilon(1e-5) for outputs in (1, None)
        )
        assert known <= unknown * (1.0 + 1e-9)

    def test_a_left_out_example_takes_the_curvature_of_its_loss_along(self):
        """Runs without it are compared with each other, and share the penalty alone."""
        curved = {"smoothness": 0.26, "regulariser": 0.01, "strong_convexity": 0.05}
        shared = {"smoothness": 0.26, "regulariser": 0.01}
        case = li.ShuffledOnce, "zero-out"
        of_curved, of_shared = (
            module.early_transport(self.settled(1, *case, loss)).epsilon(1e-5)
            for loss in (curved, shared)
        )
        assert of_curved == of_shared
        replaced = module.early_transport(self.settled(1, case[0], "replace", curved))
        assert replaced.epsilon(1e-5) < 0.9 * module.early_transport(
            self.settled(1, case[0], "replace", shared)
        ).epsilon(1e-5)

    def test_laws_some_of_which_are_beyond_transport(self):
        """Little noise: mus of earlier epochs are below and above the limit of transport."""
        run = short_run(li.ShuffledEachEpoch, "replace", step_size=0.05, smoothness=0.35)
        run = run.replace(
            noise_std=0.018 / 512, loss=replace(run.loss, regulariser=0.1, strong_convexity=0.1)
        )
        largest = [one.mus().max() for _, one in module._parts(run, module._exchange_steps(run))]
        assert min(largest) < module.LARGEST_MU < max(largest)
        report = li.account(run)
        assert report.lower.epsilon(1e-5) <= report.epsilon(1e-5) < math.inf


class TestEarlierEpochs:
    """What they add: its law by enumeration, and the lemma by optimal shifts."""

    @pytest.mark.parametrize("contraction", [0.9, 0.8, 0.97])
    @pytest.mark.parametrize("length, epochs", [(2, 4), (3, 3), (4, 3), (5, 2), (6, 1)])
    @pytest.mark.parametrize("examples", [0, 1])  # that are left over
    def test_the_law_is_that_of_all_positions(self, contraction, length, epochs, examples):
        law = _Sums(1.0 - contraction, length, epochs, 1.0 / (length + examples))
        needed = np.array([
            needed_factor(
                [j * length + v for j, v in enumerate(places) if v < length],
                contraction, length, epochs,
            )
            for places in product(range(length + examples), repeat=epochs)
        ])  # fmt: skip
        for factor in (0.5, 0.7, 0.8, 0.9, 0.95, 0.99):
            found = law.probability(factor)
            assert found <= np.mean(needed <= factor) + 1e-12
            assert found >= np.mean(needed <= factor - 0.005) - 1e-6


def needed_factor(before_end, contraction, length, epochs):
    """The least factor of the lemma for positions so many steps before the end, nearest first."""
    c, whole = contraction, (epochs - 1) * length
    total = sum(c ** (length * j) for j in range(epochs))
    variances = np.append(0.0, np.cumsum(c ** (2.0 * np.arange(1, whole + 1))))
    added, needed = 0.0, 0.0
    for steps in before_end:
        added += c**steps
        part = variances[min(steps, whole)] / variances[-1] if whole else 1.0
        needed = max(needed, added / (1.0 + (total - 1.0) * part))
    return needed


@pytest.mark.parametrize("epochs", [1, 3, 29, 10_000])
def test_factors_are_a_law(epochs):
    law = earlier_factors(0.005, 97, epochs, 512 / 50_000)
    assert sum(p for p, _ in law) == pytest.approx(1.0, abs=1e-12)
    assert all(p > 0.0 and 0.0 < factor <= 1.0 for p, factor in law)
    assert sum(p * factor for p, factor in law) < 0.9


def test_nothing_is_gained_where_an_epoch_forgets_nothing():
    assert earlier_factors(0.0, 97, 5, 0.01) == ((1.0, 1.0),)
    assert earlier_factors(1e-5, 97, 5, 0.01) == ((1.0, 1.0),)


def check_lemma(contraction, length, seen, last, later=()):
    """mu of true positions over that of scaled ones at the ends of epochs: at most 1.

    They are so many steps before the end of the epoch before the `last` steps; `later` are (tail,
    times) in these.
    """
    epochs = -(-(seen[-1] + 1) // length)
    factor = needed_factor(seen, contraction, length, epochs)
    scaled = [Participations(last, factor, epochs - 1, length)]
    scaled += [Participations(tail, size) for tail, size in later]
    claimed = float(mus_of_few(gap=1.0 - contraction, participations=scaled))
    steps, tails = last + epochs * length, [*((last + u, 1.0) for u in seen), *later]
    return mu_of([(steps - 1 - tail, size) for tail, size in tails], steps, contraction) / claimed


def random_lemma(rng):
    epochs, length = int(rng.integers(1, 6)), int(rng.integers(2, 8))
    contraction, last = rng.uniform(0.7, 0.999), int(rng.integers(1, 12))
    places = rng.integers(0, length, epochs) * (rng.random(epochs) < 0.8)
    later = np.sort(rng.choice(last, size=min(int(rng.integers(0, 3)), last), replace=False))[::-1]
    times = rng.uniform(0.1, 3.0, later.size)
    seen = (length * np.arange(epochs) + places).tolist()
    return contraction, length, seen, last, list(zip(later.tolist(), times.tolist(), strict=True))


@pytest.mark.parametrize("seed, count", [(0, 200), *(slow(seed, 5_000) for seed in range(1, 6))])
def test_scaled_participations_cost_no_less(seed, count):
    rng = np.random.default_rng(seed)
    assert max(check_lemma(*random_lemma(rng)) for _ in range(count)) <= 1.0 + 1e-9


@pytest.mark.parametrize(
    "contraction, length, seen, last, later",
    [(0.912, 5, [4, 5, 13], 7, [(2, 1.0)]), (0.868, 3, [1, 3], 4, [(1, 1.0)])],
)
def test_a_factor_from_the_latest_epoch_alone_would_be_false_of(
    contraction, length, seen, last, later
):
    assert check_lemma(contraction, length, seen, last, later) <= 1.0 + 1e-12

"""Runs with momentum and averages: every order against exact quadratics, and what is refused."""

import math
from itertools import pairwise, product

import numpy as np
import pytest
from scipy.special import ndtr

import lastiterate as li
from lastiterate.bounds.catalogue import CATALOGUE, RECORDS
from lastiterate.errors import InvalidParameter
from tests.reference import momentum as reference
from tests.slow import slow

BATCHES, STEPS = 3, 7
CURVATURE = (0.05, 0.8)
OPTIMIZERS = {
    "heavy ball": {"momentum": 0.8},
    "dampened": {"momentum": 0.7, "dampening": 0.5},
    "nesterov": {"momentum": 0.6, "nesterov": True},
    "schedule": {"momentum": tuple(np.linspace(0.3, 0.9, STEPS))},
    "steps that shrink": {"momentum": 0.8, "step_size": tuple(np.geomspace(2.0, 0.05, STEPS))},
    "nesterov, steps that grow": {
        "momentum": 0.7,
        "nesterov": True,
        "step_size": tuple(np.geomspace(0.05, 1.5, STEPS)),
    },
    "noise that varies": {"momentum": 0.8, "noise_std": (0.5, 2.0, 1.0, 3.0, 0.4, 1.5, 0.8)},
    "all schedules": {
        "momentum": tuple(np.linspace(0.9, 0.4, STEPS)),
        "dampening": 0.4,
        "step_size": tuple(np.geomspace(0.1, 3.0, STEPS)),
        "noise_std": (0.5, 2.0, 1.0, 3.0, 0.4, 1.5, 0.8),
        "buffer_resets": (5,),
    },
    "average, steps that shrink": {
        "average": li.ExponentialAverage(0.6),
        "step_size": tuple(np.geomspace(1.5, 0.1, STEPS)),
    },
    "nesterov, reset": {"momentum": 0.9, "nesterov": True, "buffer_resets": (4, 7)},
    "reset": {"momentum": 0.8, "dampening": 0.3, "buffer_resets": (4,)},
    "exponential average": {"average": li.ExponentialAverage(0.7)},
    "from the start": {"average": li.ExponentialAverage(0.7, copies_first=False)},
    "tail average": {"average": li.TailAverage(3)},
}


def run_with(optimizer, batches=None, **changes):
    """A short run of batches of one."""
    settings = {
        "loss": li.Loss(smoothness=CURVATURE[1], strong_convexity=CURVATURE[0]),
        "sensitivity": 0.9,
        "batches": batches or li.Cyclic(BATCHES, 1),
        "steps": STEPS,
        "step_size": 0.7,
        "noise_std": 1.0,
    }
    return li.TrainingRun(**{**settings, **optimizer, **changes})


def released(run):
    """What a loop as torch has it publishes, given the gradients of its steps."""
    lr = np.broadcast_to(np.array(run.step_size), run.steps)
    betas = np.broadcast_to(np.array(run.momentum), run.steps)
    edges = [1, *run.buffer_resets, run.steps + 1]

    def publish(gradients):
        x, path = np.zeros(1), []
        for first, after in pairwise(edges):
            part = slice(first - 1, after - 1)
            path += reference.torch_sgd(
                gradients[part],
                lr=lr[part],
                momentum=betas[part],
                dampening=np.full(run.steps, run.dampening)[part],
                nesterov=run.nesterov,
                start=x,
            )
            x = path[-1]
        if run.average is None:
            return path[-1]
        if isinstance(run.average, li.TailAverage):
            return np.mean(path[-run.average.last :], axis=0)
        decay = np.full(run.steps, run.average.decay)
        if run.average.copies_first:
            decay[0] = 0.0
        return reference.averages(path, decay, np.zeros(1))[-1]

    return publish


def moments(run, curvatures, seen):
    """Mean with the example in these steps, and standard deviation, of what is published."""
    publish = released(run)
    bend = [np.array([[c]]) for c in curvatures]

    def final(pushes):
        return float(publish([lambda x, k=k: bend[k] @ x + pushes[k] for k in range(run.steps)])[0])

    pushes = np.zeros((run.steps, 1))
    pushes[list(seen)] = run.sensitivity / run.batches.batch_size
    variance = run.release_noise_std**2
    noise = np.broadcast_to(np.array(run.noise_std), run.steps)
    for impulse in np.diag(noise):
        variance += final(impulse[:, None]) ** 2
    return final(pushes), math.sqrt(variance)


def curvature_choices(steps, rng, count):
    yield [CURVATURE[0]] * steps
    yield [CURVATURE[1]] * steps
    for _ in range(count):
        yield rng.choice(CURVATURE, steps)


@pytest.mark.parametrize("name", OPTIMIZERS)
class TestFixedOrders:
    @pytest.mark.parametrize("release", [0.0, 0.3])
    def test_no_quadratic_leaks_more_at_any_position(self, name, release):
        run = run_with(OPTIMIZERS[name], release_noise_std=release)
        bound = CATALOGUE["fixed-order/momentum"]
        assert not bound.unmet(run)
        rng = np.random.default_rng(3)
        mus = [profile.mu for profile in bound.by_position(run)]
        for position, mu in enumerate(mus):
            seen = range(position, STEPS, BATCHES)
            for curvatures in curvature_choices(STEPS, rng, 20):
                mean, deviation = moments(run, curvatures, seen)
                assert abs(mean) / deviation <= mu * (1 + 1e-9)
        assert bound.profile(run).mu == pytest.approx(max(mus), rel=1e-9)

    def test_is_below_composition(self, name):
        report = li.account(run_with(OPTIMIZERS[name]))
        assert report.bound == "fixed-order/momentum"
        composed = report.all["composition/fixed-order"].epsilon(1e-5)
        assert report.epsilon(1e-5) < composed


@pytest.mark.parametrize("step_size, nesterov", [(2.6, False), (3.7, False), (3.7, True)])
def test_a_buffer_that_is_emptied_may_leak_more_than_one_that_is_kept(step_size, nesterov):
    """Momentum lets longer steps be stable: without it, early participations are blown up."""
    steep = li.Loss(smoothness=0.8, strong_convexity=0.78)
    kept = run_with(
        {"momentum": 0.9, "nesterov": nesterov},
        li.Cyclic(STEPS, 1),
        loss=steep,
        step_size=step_size,
    )
    emptied = kept.replace(buffer_resets=tuple(range(2, STEPS + 1)))
    mus, leaks = [], []
    for run in (kept, emptied):
        mus.append(CATALOGUE["fixed-order/momentum"].by_position(run)[0].mu)
        mean, deviation = moments(run, [0.8] * STEPS, [0])
        leaks.append(abs(mean) / deviation)
    assert mus[0] < leaks[1] <= mus[1] <= leaks[1] * (1 + 1e-4)
    assert leaks[0] <= mus[0]


def hockey_stick(mixture, other, epsilon):
    """sup_A P(A) - e^eps Q(A) of two mixtures of Gaussians (weight, mean, deviation), on a grid."""
    spread = max(deviation for _, _, deviation in mixture + other)
    far = max(abs(mean) for _, mean, _ in mixture + other) + 12 * spread
    edges = np.linspace(-far, far, 20_001)

    def cells(parts):
        return sum(
            weight * np.diff(ndtr((edges - mean) / deviation)) for weight, mean, deviation in parts
        )

    return float(np.maximum(cells(mixture) - math.exp(epsilon) * cells(other), 0.0).sum())


def all_orders(anew):
    """Every pattern of participations of one example in two epochs of three batches."""
    if anew:
        return [(a, BATCHES + b) for a, b in product(range(BATCHES), repeat=2)]
    return [(a, BATCHES + a) for a in range(BATCHES)]


@pytest.mark.parametrize("rule", [li.ShuffledOnce, li.ShuffledEachEpoch])
@pytest.mark.parametrize("name", ["heavy ball", "nesterov", "exponential average"])
def test_no_secret_order_leaks_more(rule, name):
    """The other examples have gradient 0, or pull against the example with all their strength."""
    run = run_with(OPTIMIZERS[name], rule(BATCHES, 1), steps=2 * BATCHES)
    profile = RECORDS["random-order/shuffled/momentum"].profile(run)
    rng = np.random.default_rng(5)
    for curvatures in curvature_choices(run.steps, rng, 6):
        patterns = all_orders(rule is li.ShuffledEachEpoch)
        parts = [(1 / len(patterns), *moments(run, curvatures, seen)) for seen in patterns]
        base = [(1.0, 0.0, parts[0][2])]
        halved = [(w, mean / 2, deviation) for w, mean, deviation in parts]
        minus = [(w, -mean / 2, deviation) for w, mean, deviation in parts]
        for epsilon in (0.05, 0.3, 1.0):
            certified = profile.delta(epsilon)
            assert hockey_stick(parts, base, epsilon) <= certified + 1e-9
            assert hockey_stick(base, parts, epsilon) <= certified + 1e-9
            assert hockey_stick(halved, minus, epsilon) <= certified + 1e-9


class TestRefusals:
    def test_no_bound_for_plain_steps_takes_momentum(self):
        run = run_with({"momentum": 0.9})
        report = li.account(run)
        assert set(report.all) == {"composition/fixed-order", "fixed-order/momentum"}
        assert "momentum=0.9" in str(report.unmet["fixed-order/convex"][0])
        assert set(report.lower_bounds) == {"lower/momentum"}

    def test_momentum_and_an_average_are_composed(self):
        run = run_with({"momentum": 0.9, "average": li.ExponentialAverage(0.9)})
        assert set(li.account(run).all) == {"composition/fixed-order"}

    def test_not_on_a_ball_nor_for_unknown_smoothness(self):
        bound = CATALOGUE["fixed-order/momentum"]
        assert bound.unmet(run_with({"momentum": 0.9}, domain=li.Ball(1.0)))
        assert bound.unmet(run_with({"momentum": 0.9}, loss=li.Loss()))
        assert bound.unmet(run_with({}))

    @pytest.mark.parametrize(
        "changes, message",
        [
            ({"momentum": 1.0}, "momentum must be in"),
            ({"momentum": math.nan}, "momentum"),
            ({"momentum": 0.9, "dampening": 1.0}, "dampening"),
            ({"dampening": 0.5}, "dampening must be 0"),
            ({"momentum": 0.9, "dampening": 0.5, "nesterov": True}, "dampening must be 0"),
            ({"nesterov": True}, "nesterov must be False"),
            ({"momentum": (0.9,) * 6 + (0.0,)}, r"momentum\[6\] must be above 0"),
            ({"momentum": 0.9, "buffer_resets": (1,)}, "buffer_resets"),
            ({"momentum": 0.9, "buffer_resets": (5, 4)}, "buffer_resets must be increasing"),
            ({"average": li.TailAverage(8)}, "average.last must be at most"),
        ],
    )
    def test_settings_out_of_range(self, changes, message):
        with pytest.raises(InvalidParameter, match=message):
            run_with(changes)


def test_a_run_survives_its_files():
    for optimizer in OPTIMIZERS.values():
        run = run_with(optimizer)
        assert li.TrainingRun.from_json(run.to_json()) == run
        assert li.TrainingRun.from_toml(run.to_toml()) == run
    assert "momentum" not in run_with({}).to_json()


def test_an_active_clip_and_a_loss_that_is_not_convex_may_bend_either_way():
    loss = li.Loss(smoothness=0.5, regulariser=0.1, strong_convexity=0.1)
    clipped = run_with({"momentum": 0.5}, loss=loss, clip_norm=0.45)
    from lastiterate.bounds.momentum import curvature

    assert curvature(clipped)[0] <= -0.3 <= curvature(clipped)[0] + 1e-9
    assert curvature(clipped)[1] >= 0.5
    assert curvature(run_with({"momentum": 0.5}, loss=loss)) == (0.1, 0.5)


@pytest.mark.parametrize("name", ["heavy ball", "exponential average"])
def test_a_hidden_position_never_costs_more_than_composition(name):
    run = run_with(OPTIMIZERS[name], li.ShuffledEachEpoch(20, 2), steps=30, step_size=0.1)
    report = li.account(run)
    composed = report.all["composition/fixed-order"].epsilon(1e-5)
    assert report.all["random-order/shuffled"].epsilon(1e-5) <= composed * (1 + 1e-9)


@pytest.mark.parametrize(
    "batches, steps, smoothness, momentum",
    [
        (li.ShuffledEachEpoch(600, 2), 400, 50.0, 0.9),
        (li.FixedOrder(10, 2, (2, 4)), 6, 0.0, 0.9),
        (li.FixedOrder(10, 2, (2, 4)), 300, 1e9, 0.9),
        (li.FixedOrder(10, 2, (2, 4)), 300, 1e300, 0.9),
        slow(li.Cyclic(600, 2), 400, 50.0, 0.9),
        slow(li.Cyclic(1_000, 2), 100_000, 3.0, 0.9),
        slow(li.ShuffledEachEpoch(1_000, 2), 100_000, 3.0, 0.99),
    ],
)
def test_beyond_the_range_of_floats_composition_answers(batches, steps, smoothness, momentum):
    """Distances that grow without end are no certificate, and neither an error nor a warning."""
    run = li.TrainingRun(
        loss=li.Loss(smoothness=smoothness), sensitivity=1.0, batches=batches, steps=steps,
        step_size=1.0, noise_std=1.0, momentum=momentum,
    )  # fmt: skip
    report = li.account(run)
    composed = report.all["composition/fixed-order"]
    assert 0.0 < report.epsilon(1e-5) <= composed.epsilon(1e-5) < math.inf
    assert RECORDS["fixed-order/momentum"].profile(run).gdp() <= composed.gdp()

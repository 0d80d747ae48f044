"""Runs with momentum and averages: every order against exact quadratics, and what is refused."""

import math
from itertools import pairwise, product

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds import momentum as momentum_positions
from lastiterate.bounds.catalogue import CATALOGUE, RECORDS
from lastiterate.errors import InvalidParameter
from lastiterate.shifts.momentum.mu import converges
from tests.bounds.runs import described
from tests.reference import momentum as reference
from tests.reference.all_orders import hockey_sticks
from tests.slow import slow, slow_if

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
BOUND = CATALOGUE["fixed-order/momentum"]
SLACK = 1 + 2e-3  # certificates are found by a search that stops a little early


def run_with(optimizer, batches=None, **changes):
    """A short run of batches of one."""
    loss = li.Loss(smoothness=CURVATURE[1], strong_convexity=CURVATURE[0])
    usual = {"steps": STEPS, "loss": loss, "sensitivity": 0.9, "step_size": 0.7}
    return described(batches or li.Cyclic(BATCHES, 1), **{**usual, **optimizer, **changes})


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
        assert not BOUND.unmet(run)
        rng = np.random.default_rng(3)
        mus = [profile.mu for profile in BOUND.by_position(run)]
        for position, mu in enumerate(mus):
            seen = range(position, STEPS, BATCHES)
            for curvatures in curvature_choices(STEPS, rng, 12):
                mean, deviation = moments(run, curvatures, seen)
                assert abs(mean) / deviation <= mu * (1 + 1e-9)
        assert BOUND.profile(run).mu == pytest.approx(max(mus), rel=1e-9)

    def test_is_below_composition(self, name):
        report = li.account(run_with(OPTIMIZERS[name]))
        assert report.bound == "fixed-order/momentum"
        composed = report.all["composition/fixed-order"].epsilon(1e-5)
        assert report.epsilon(1e-5) < composed


@pytest.mark.parametrize("step_size, nesterov", [(2.6, False), slow(3.7, False), (3.7, True)])
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
        mus.append(BOUND.by_position(run)[0].mu)
        mean, deviation = moments(run, [0.8] * STEPS, [0])
        leaks.append(abs(mean) / deviation)
    assert mus[0] < leaks[1] <= mus[1] <= leaks[1] * (1 + 1e-4)
    assert leaks[0] <= mus[0]


@pytest.mark.parametrize("rule", [li.ShuffledOnce, li.ShuffledEachEpoch])
@pytest.mark.parametrize("name", ["heavy ball", "nesterov", "exponential average"])
def test_no_secret_order_leaks_more(rule, name):
    """The other examples have gradient 0, or pull against the example with all their strength."""
    run = run_with(OPTIMIZERS[name], rule(BATCHES, 1), steps=2 * BATCHES)
    profile = RECORDS["random-order/shuffled/momentum"].profile(run)
    rng, epsilons = np.random.default_rng(5), (0.05, 0.3, 1.0)
    certified = np.array([profile.delta(epsilon) for epsilon in epsilons])
    anew = product(range(BATCHES), repeat=2) if rule is li.ShuffledEachEpoch else None
    patterns = [(a, BATCHES + b) for a, b in anew or ((a, a) for a in range(BATCHES))]
    for curvatures in curvature_choices(run.steps, rng, 6):
        laws = [moments(run, curvatures, seen) for seen in patterns]
        means, deviation = np.array([mean for mean, _ in laws]), laws[0][1]
        for one, other in ((means, 0.0 * means), (means / 2, -means / 2)):
            assert np.all(hockey_sticks(one, other, deviation, epsilons) <= certified + 1e-9)


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
        bound = BOUND
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
    assert (
        momentum_positions.curvature(clipped)[0]
        <= -0.3
        <= momentum_positions.curvature(clipped)[0] + 1e-9
    )
    assert momentum_positions.curvature(clipped)[1] >= 0.5
    assert momentum_positions.curvature(run_with({"momentum": 0.5}, loss=loss)) == (0.1, 0.5)


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
    run = described(batches, steps, smoothness=smoothness, momentum=momentum)
    report = li.account(run)
    composed = report.all["composition/fixed-order"]
    assert 0.0 < report.epsilon(1e-5) <= composed.epsilon(1e-5) < math.inf
    assert RECORDS["fixed-order/momentum"].profile(run).gdp() <= composed.gdp()


@pytest.fixture(params=[True, False], ids=["one by one", "in groups"])
def one_by_one(request, monkeypatch):
    """Whether every position has a certificate of its own."""
    if not request.param:
        monkeypatch.setattr(momentum_positions, "_MOST_WORK", 0)
    return request.param


def random_run(rng):
    """A short run on either side of the threshold."""
    optimizer = {"momentum": float(rng.uniform(0.1, 0.95)), "nesterov": bool(rng.integers(2))}
    if rng.integers(3) == 0:
        optimizer = {"average": li.ExponentialAverage(float(rng.uniform(0.1, 0.95)))}
    batches = int(rng.integers(2, 7))
    return run_with(
        optimizer,
        li.Cyclic(batches, 1),
        steps=batches * int(rng.integers(1, 4)) + int(rng.integers(0, batches)),
        step_size=float(10 ** rng.uniform(-2, 0.3)),
        release_noise_std=float(rng.choice([0.0, 0.1])),
    )


@pytest.mark.parametrize("seed", slow_if(lambda seed: seed in (0, 2, 3, 5), range(6)))
class TestMonotone:
    """Nothing here says that epsilon grows with every step.

    An example that the last batch does not see is hidden by it, and in an order that is drawn anew
    an example may be seen at the end of one epoch and at the start of a last one that is cut short.
    """

    def test_in_noise_and_in_release_noise(self, seed, one_by_one):
        run = random_run(np.random.default_rng(seed))
        noisier = [run.replace(noise_std=noise) for noise in (0.5, 1.0, 4.0)]
        on_release = [run.replace(release_noise_std=noise) for noise in (0.0, 0.03, 2.0)]
        for runs in (noisier, on_release):
            mus = [BOUND.profile(one).mu for one in runs]
            assert all(after <= before * SLACK for before, after in pairwise(mus))

    def test_never_above_composition(self, seed, one_by_one):
        run = random_run(np.random.default_rng(seed))
        composed = CATALOGUE["composition/fixed-order"].profile(run).mu
        assert BOUND.profile(run).mu <= composed * (1 + 1e-9)

    def test_no_quadratic_leaks_more_in_a_cut_epoch(self, seed, one_by_one):
        rng = np.random.default_rng(seed)
        run = random_run(rng)
        length = run.batches.batches_per_epoch
        for position, profile in enumerate(BOUND.by_position(run)):
            for curvatures in curvature_choices(run.steps, rng, 8):
                mean, deviation = moments(run, curvatures, range(position, run.steps, length))
                assert abs(mean) / deviation <= profile.mu * (1 + 1e-9)


@pytest.mark.parametrize("name", ["heavy ball", slow("nesterov"), slow("exponential average")])
@pytest.mark.parametrize("rule", [li.Cyclic, slow(li.ShuffledOnce)])
def test_an_epoch_that_is_cut_short_costs_what_a_whole_one_costs(name, rule, monkeypatch):
    monkeypatch.setattr(momentum_positions, "_MOST_WORK", 0)
    many = run_with(OPTIMIZERS[name], rule(400, 10), step_size=0.05)
    shorter, *cut, whole = (
        BOUND.profile(many.replace(steps=steps)).mu for steps in (80, 81, 95, 119, 120)
    )
    assert shorter <= min(cut) * SLACK
    assert max(cut) <= whole * 1.02


@pytest.mark.parametrize("name, cut", [("heavy ball", 3), ("nesterov", 6), slow("nesterov", 3)])
def test_an_order_drawn_anew_may_see_an_example_twice_in_a_row(name, cut, monkeypatch):
    """At the end of an epoch and at the start of the last one: so epochs count from the start."""
    monkeypatch.setattr(momentum_positions, "_MOST_WORK", 0)
    length, steep = 40, (0.7, 0.8)
    run = run_with(
        OPTIMIZERS[name],
        li.ShuffledEachEpoch(length, 1),
        loss=li.Loss(smoothness=steep[1], strong_convexity=steep[0]),
        steps=length + cut,
        step_size=0.04,
        release_noise_std=3.0,
    )
    means = [moments(run, [bend] * run.steps, (length - 1, length)) for bend in steep]
    leak = max(abs(mean) / deviation for mean, deviation in means)
    once = BOUND.profile(run.replace(batches=li.Cyclic(length, 1))).mu
    assert once < leak <= BOUND.profile(run).mu * (1 + 1e-9)


def test_no_momentum_is_plain_steps_to_the_digit():
    plain, none = {"steps": 60, "batches": li.Cyclic(60, 6)}, {"momentum": 0.0, "dampening": 0.0}
    same = run_with(none | {"nesterov": False, "buffer_resets": ()}, **plain)
    assert same == run_with({}, **plain)
    assert BOUND.unmet(same)
    least = BOUND.profile(same.replace(momentum=1e-6)).mu
    assert least == pytest.approx(CATALOGUE["fixed-order/convex"].profile(same).mu, rel=5e-3)


def test_the_curvature_of_these_runs_lets_some_converge_and_some_not():
    """Both sides of the threshold are among the random runs above."""
    runs = [random_run(np.random.default_rng(seed)) for seed in (1, 4)]
    found = {converges(r.step_size, CURVATURE, r.momentum, nesterov=r.nesterov) for r in runs}
    assert found == {True, False}

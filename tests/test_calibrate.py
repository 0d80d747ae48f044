"""The inverse: meets the target, only just, in few evaluations."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lastiterate as li
from lastiterate import calibration

RUN = li.TrainingRun(
    loss=li.Loss(smoothness=32.502, strong_convexity=0.002), sensitivity=10.0,
    batches=li.Cyclic(examples=60_000, batch_size=1_500), steps=2_000, step_size=0.05,
    noise_std=0.01,
)  # fmt: skip
RUNS = [
    RUN,
    RUN.replace(noise_std=1e9),
    RUN.replace(noise_std=1e-9),
    RUN.replace(release_noise_std=0.002),
    RUN.replace(noise_std=0.0, release_noise_std=0.002),
    RUN.replace(domain=li.Ball(1.0)),
    RUN.replace(steps=200, noise_std=np.linspace(0.01, 0.02, 200)),
    RUN.replace(loss=li.Loss(convex=False)),
]


@pytest.fixture
def calls(monkeypatch):
    made = []

    def counted(*arguments, **options):
        made.append(arguments)
        return li.account(*arguments, **options)

    monkeypatch.setattr(calibration, "account", counted)
    return made


@pytest.mark.parametrize("noise_std", [0.01, 0.0, np.linspace(0.01, 0.02, 2_000)], ids=range(3))
def test_least_of_both_kinds_of_noise(noise_std, calls):
    run = RUN.replace(noise_std=noise_std, release_noise_std=0.03)
    private = li.calibrate(run, epsilon=1.0, delta=1e-5, over="noise")
    assert len(calls) <= 40
    factor = private.release_noise_std / 0.03
    np.testing.assert_allclose(private.noise_std, np.array(noise_std) * factor)
    assert li.account(private).delta(1.0) <= 1e-5
    less = run.replace(
        noise_std=np.array(noise_std) * factor * (1 - 1e-6),
        release_noise_std=private.release_noise_std * (1 - 1e-6),
    )
    assert li.account(less).delta(1.0) > 1e-5


@pytest.mark.parametrize("run", RUNS, ids=range(len(RUNS)))
@pytest.mark.parametrize(
    "epsilon, delta", [(1.0, 1e-5), (8.0, 1e-9), (1e-3, 1e-5), (0.0, 1e-5), (50.0, 1e-200)]
)
def test_least_noise(run, epsilon, delta, calls):
    private = li.calibrate(run, epsilon=epsilon, delta=delta)
    assert len(calls) <= 40
    report = li.account(private)
    assert report.epsilon(delta) <= epsilon
    assert report.delta(epsilon) <= delta
    less = private.replace(noise_std=np.array(private.noise_std) * (1 - 1e-6))
    assert li.account(less).delta(epsilon) > delta


@given(
    st.floats(-3, 2).map(lambda x: 10.0**x),
    st.floats(-100, -0.5).map(lambda x: 10.0**x),
    st.floats(-6, 6).map(lambda x: 10.0**x),
)
@settings(max_examples=30)
def test_always_on_the_safe_side(epsilon, delta, noise):
    private = li.calibrate(RUN.replace(noise_std=noise), epsilon=epsilon, delta=delta)
    assert li.account(private).epsilon(delta) <= epsilon


def test_no_noise_at_all_where_that_of_the_release_is_enough():
    run = RUN.replace(release_noise_std=100.0)
    assert li.calibrate(run, epsilon=1.0, delta=1e-5).noise_std == 0.0


@pytest.mark.parametrize(
    "change",
    [
        {"releases": "every-iterate"},
        {"releases": "every-iterate", "batches": li.SampledWithoutReplacement(60, 10)},
        pytest.param({"batches": li.SampledWithoutReplacement(60, 10)}, marks=pytest.mark.slow),
    ],
)
def test_runs_that_composition_covers(change):
    private = li.calibrate(RUN.replace(release_noise_std=0.1, **change), epsilon=1.0, delta=1e-5)
    assert 1.0 - 1e-5 < li.account(private).epsilon(1e-5) <= 1.0


@pytest.mark.parametrize("noise", [1e-250, 1e250])
def test_from_very_far_away(noise):
    private = li.calibrate(RUN.replace(noise_std=noise), epsilon=1.0, delta=1e-5)
    assert private.noise_std == pytest.approx(0.037026198, rel=1e-6)


@pytest.mark.parametrize("epsilon", [4.0, 4.3392, 7.5, 11.0])
def test_most_steps(epsilon, calls):
    private = li.calibrate(RUN, epsilon=epsilon, delta=1e-5, over="steps")
    assert len(calls) <= 40
    assert li.account(private).epsilon(1e-5) <= epsilon
    more = private.replace(steps=math.ceil(private.steps * (1 + 1e-6)) + 1)
    assert li.account(more).epsilon(1e-5) > epsilon


def test_most_steps_of_a_run_that_converges_below_the_target():
    assert li.calibrate(RUN, epsilon=20.0, delta=1e-5, over="steps").steps == 10**12


@pytest.mark.parametrize("noise_std", [0.0, 0.01])
def test_least_noise_on_release(noise_std, calls):
    run = RUN.replace(noise_std=noise_std, release_noise_std=1.0)
    private = li.calibrate(run, epsilon=3.5, delta=1e-5, over="release_noise_std")
    assert len(calls) <= 40
    assert private.noise_std == noise_std
    assert li.account(private).epsilon(1e-5) <= 3.5
    less = private.replace(release_noise_std=private.release_noise_std * (1 - 1e-6))
    assert li.account(less).epsilon(1e-5) > 3.5


def test_no_noise_on_release_where_that_of_training_is_enough():
    private = li.calibrate(RUN, epsilon=5.0, delta=1e-5, over="release_noise_std")
    assert private.release_noise_std == 0.0


class TestUnreachable:
    @pytest.mark.parametrize("over", ["noise_std", "release_noise_std", "steps"])
    def test_a_run_that_the_bounds_asked_for_do_not_cover(self, over):
        with pytest.raises(li.NoBoundApplies, match="needs batches of"):
            li.calibrate(RUN, epsilon=1.0, delta=1e-5, over=over, bounds="random-order/poisson")

    def test_noise_on_release_where_every_iterate_is_published(self):
        run = RUN.replace(releases="every-iterate")
        with pytest.raises(li.UnreachableTarget, match="more noise_std"):
            li.calibrate(run, epsilon=1.0, delta=1e-5, over="release_noise_std")

    def test_one_step_is_too_much(self):
        with pytest.raises(li.UnreachableTarget, match="noise_std of at least") as caught:
            li.calibrate(RUN, epsilon=1.0, delta=1e-5, over="steps")
        enough = float(caught.value.possible_with.split()[-1])
        one = RUN.replace(steps=1, noise_std=enough)
        assert li.account(one).epsilon(1e-5) == pytest.approx(1.0, rel=1e-4)

    def test_noise_where_it_does_not_help(self):
        silent_last = [0.01] * 1999 + [0.0]
        run = RUN.replace(noise_std=silent_last, release_noise_std=1e-9)
        with pytest.raises(li.UnreachableTarget, match="noise in every step"):
            li.calibrate(run, epsilon=1.0, delta=1e-5)


class TestRefusals:
    @pytest.mark.parametrize(
        "name, says, values",
        [
            ("epsilon", r"a number in \[0, 100\]", [math.nan, math.inf, -1.0, "x", None, 100.1]),
            ("delta", r"a number in \(0, 1\)", [math.nan, 0.0, 1.0, -1.0, "x", None]),
            ("over", "one of 'noise_std', 'release", ["epochs", 3, None]),
            ("run", "a TrainingRun", [None]),
        ],
    )
    def test_name_the_argument(self, name, says, values):
        for value in values:
            with pytest.raises(li.InvalidParameter, match=f"{name} must be {says}"):
                li.calibrate(**{"run": RUN, "epsilon": 1.0, "delta": 1e-5, name: value})

    @pytest.mark.parametrize(
        "change",
        [{"noise_std": [0.01, *[0.02] * 1999]}, {"batches": li.FixedOrder(60_000, 1_500, [1])}],
    )
    def test_steps_of_a_run_whose_length_is_fixed(self, change):
        with pytest.raises(li.InvalidParameter, match="over must be 'noise_std' unless"):
            li.calibrate(RUN.replace(**change), epsilon=1.0, delta=1e-5, over="steps")

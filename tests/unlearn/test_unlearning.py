"""Extra steps without some examples: what they certify is attained, and never too little."""

import gc
import json
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lastiterate as li
from lastiterate.audit import exact
from lastiterate.certificate.verify import verified_certificate
from lastiterate.cli import main
from lastiterate.linear_model import PrivateLogisticRegression, PrivateSelection
from lastiterate.other_releases import MEAN, Release
from lastiterate.profile.rounded import gdp_but_for_failure
from lastiterate.unlearn import unlearning as module
from lastiterate.unlearn.unlearning import deletion_capacity, epsilon_by_extra_steps
from tests.reference.all_orders import epochs_seen, hockey_sticks, means
from tests.slow import slow, slow_if

EPSILONS = (0.0, 0.3, 0.8, 1.5, 2.5)


def three_against_eight(noise, batches, steps):
    """Logistic regression on unit rows, as in two papers on unlearning (2401.10371, 2403.17105)."""
    penalty = 1e-6 * batches.examples
    step_size = 1.0 / (0.25 + penalty)
    return li.TrainingRun(
        loss=li.Loss(smoothness=0.25 + penalty, regulariser=penalty), sensitivity=2.0,
        batches=batches, steps=steps, step_size=step_size,
        noise_std=noise * math.sqrt(2.0 / step_size),
    )  # fmt: skip


class TestPublishedSettings:
    """Their noise for epsilon .05, .5, 1 and 5, and what the engine certifies there."""

    @pytest.mark.parametrize(
        "batches, steps, extra, noise, certified",
        [
            (li.FullBatch(11_982), 10_000, 1, 0.1872, 0.0147),
            (li.FullBatch(11_982), 10_000, 1, 0.019, 0.206),
            (li.FullBatch(11_982), 10_000, 1, 0.0096, 0.443),
            (li.FullBatch(11_982), 10_000, 1, 0.0021, 2.47),
            (li.Cyclic(11_264, 128), 8_800, 88, 0.0791, 0.0021),
            (li.Cyclic(11_264, 128), 8_800, 88, 0.00805, 0.036),
            (li.Cyclic(11_264, 128), 8_800, 88, 0.0041, 0.078),
            (li.Cyclic(11_264, 128), 8_800, 88, 0.000933, 0.415),
        ],
    )
    def test_certified(self, batches, steps, extra, noise, certified):
        run = three_against_eight(noise, batches, steps)
        found = li.unlearning(run, extra_steps=extra).epsilon(1 / batches.examples)
        assert found == pytest.approx(certified, rel=2e-2 if extra > 1 else 3e-3)

    def test_a_few_steps_are_enough_for_epsilon_1(self):
        run = three_against_eight(0.03, li.Cyclic(11_264, 128), 8_800)
        assert li.unlearning(run, epsilon=1.0, delta=1 / 11_264).extra_steps == 4
        assert li.unlearning(run, extra_steps=3).epsilon(1 / 11_264) > 1.0


def described(rule, steps, *, ratio=1.0, contraction=0.8, adjacency="replace", **others):
    settings = {
        "loss": li.Loss(smoothness=1.0 + 1e-9, strong_convexity=1.0 - contraction),
        "sensitivity": ratio * rule.batch_size, "batches": rule, "steps": steps, "step_size": 1.0,
        "noise_std": 1.0, "adjacency": adjacency,
    }  # fmt: skip
    return li.TrainingRun(**(settings | others))


class TestQuadratics:
    """Every example pulls one way, so that the laws are Gaussian and known."""

    @pytest.mark.parametrize("steps, extra, c", [(1, 1, 0.5), (40, 3, 0.9), (500, 60, 0.99)])
    def test_are_attained(self, steps, extra, c):
        run = described(li.FullBatch(10), steps, contraction=c)
        apart = sum(c ** (steps + extra - k) for k in range(1, steps + 1))
        spread = math.sqrt(sum(c ** (2 * k) for k in range(steps + extra)))
        certified = li.unlearning(run, extra_steps=extra).gdp()
        assert certified == pytest.approx(apart / spread, rel=1e-6)
        assert certified >= apart / spread

    def test_noise_on_both_releases_and_other_extra_steps(self):
        run = described(li.FullBatch(10), 30, contraction=0.9, release_noise_std=1.5)
        found = li.unlearning(
            run, extra_steps=4, step_size=0.5, noise_std=3.0, release_noise_std=0.7
        )
        c = 1.0 - 0.5 * 0.1
        apart = c**4 * sum(0.9**k for k in range(30))
        variance = c**8 * (sum(0.81**k for k in range(30)) + 1.5**2)
        variance += 1.5**2 * sum(c ** (2 * k) for k in range(4)) + 0.7**2
        assert found.gdp() == pytest.approx(apart / math.sqrt(variance), rel=1e-6)


@settings(max_examples=50)
@given(
    steps=st.integers(1, 40), extra=st.integers(1, 30), every=st.integers(1, 7),
    c=st.sampled_from([1.0, 0.999, 0.9, 0.3]), ball=st.sampled_from([None, 0.1, 1.0, 30.0]),
)  # fmt: skip
def test_equals_the_whole_written_out(steps, extra, every, c, ball):
    """As one run in which the example takes part in the first steps only."""
    domain = li.Unbounded() if ball is None else li.Ball(ball)
    run = described(li.Cyclic(every, 1), steps, contraction=c, domain=domain)
    seen = tuple(range(steps, 0, -every))[::-1]
    order = li.FixedOrder(every, 1, positions=seen)
    whole = li.account(run.replace(batches=order, steps=steps + extra), bounds="fixed-order")
    found = li.unlearning(run, extra_steps=extra).gdp()
    assert found == pytest.approx(whole.gdp(), rel=1e-6)


def attacked(rng):
    """(largest exact delta over the certified one, of a random run with every order enumerated).

    Other examples mark the places, steps forget, in training and in the extra steps.
    """
    examples, steps, extra = [(2, 2, 1), (2, 3, 2), (3, 3, 1), (3, 4, 2), (3, 3, 3)][
        rng.integers(5)
    ]
    each, kept = rng.random() < 0.5, False
    if not each:
        kept = bool(rng.random() < 0.4)
    adjacency = ["replace", "zero-out"][rng.integers(2)]
    ratio, c = rng.choice([0.5, 1.0, 2.0]), rng.choice([1.0, 0.9, 0.6])
    rule = (li.ShuffledEachEpoch if each else li.ShuffledOnce)(examples, 1)
    run = described(rule, steps, ratio=ratio, contraction=c, adjacency=adjacency)
    if kept:
        seen = epochs_seen(examples, 1, steps + extra, False)
    else:
        first, then = (epochs_seen(examples, 1, many, each) for many in (steps, extra))
        seen = np.array([np.concatenate([a, b]) for a in first for b in then])
    low = 0.0 if adjacency == "replace" else -1.0
    added = ratio * rng.choice([low, 1.0], (examples, steps + extra))
    other = added.copy()
    other[0] = 0.0 if adjacency == "zero-out" else ratio - added[0]
    added[0, steps:] = other[0, steps:]
    factors = np.where(rng.random(steps + extra) < 0.3, rng.uniform(0.0, c, steps + extra), c)
    ours, spread = means(seen, factors, added)
    theirs, _ = means(seen, factors, other)
    found = li.unlearning(run, extra_steps=extra, order_kept=kept)
    leaks = hockey_sticks(ours, theirs, spread, EPSILONS)
    # A step that forgets everything may come last, and nothing leaks.
    told = [leak / found.delta(e) for leak, e in zip(leaks, EPSILONS, strict=True) if leak > 1e-9]
    return max(told, default=0.0)


class TestSoundness:
    @pytest.mark.parametrize("seed, tries", [(0, 15), *(slow(k, 50) for k in range(10, 30))])
    def test_no_shuffled_instance_leaks_more(self, seed, tries):
        rng = np.random.default_rng(seed)
        worst = [attacked(rng) for _ in range(tries)]
        assert max(worst) <= 1.0 + 1e-9
        assert max(worst) > 0.5  # else nothing was tried

    @pytest.mark.parametrize("seed", range(3))
    def test_no_fixed_order_s_instance_leaks_more(self, seed):
        rng = np.random.default_rng(seed)
        steps, extra, every = (int(rng.integers(1, high)) for high in (12, 6, 4))
        ratio, c = float(rng.choice([0.5, 2.0])), float(rng.choice([1.0, 0.9, 0.5]))
        run = described(li.Cyclic(every, 1), steps, ratio=ratio, contraction=c)
        seen = tuple(range(steps, 0, -every))[::-1]
        order = li.FixedOrder(every, 1, positions=seen)
        attack = exact.worst(run.replace(batches=order, steps=steps + extra), delta=1e-3, tries=6)
        assert attack.epsilon <= li.unlearning(run, extra_steps=extra).epsilon(1e-3) * (1 + 1e-9)


class TestWhatTheRemovedTakeAlong:
    def test_curvature_of_theirs_is_not_counted(self):
        """Half of the curvature of the mean of two losses goes with one of them."""
        run = described(li.FullBatch(2), 50, contraction=0.5, adjacency="zero-out")
        # The one that stays has curvature .5, and the sum is still divided by two.
        c, apart, extra = 0.75, 1.0, 10
        exact = c**extra * apart / math.sqrt(sum(c ** (2 * k) for k in range(extra + 50)))
        assert li.unlearning(run, extra_steps=extra).gdp() >= exact

    def test_a_penalty_stays(self):
        settings = {"smoothness": 1.0 + 1e-9, "strong_convexity": 0.5}
        runs = [
            described(li.FullBatch(2), 50, adjacency="zero-out", loss=li.Loss(**settings, **more))
            for more in ({}, {"regulariser": 0.5})
        ]
        alone, penalised = (li.unlearning(run, extra_steps=10).gdp() for run in runs)
        assert penalised < alone / 10


def test_both_models_share_the_order_that_is_kept():
    """Who is last is last twice: a mixture of few places, not two independent ones."""
    many, apart = 100, 3.0
    run = described(li.ShuffledOnce(many, 1), many, ratio=apart, contraction=1e-9)
    found = li.unlearning(run, extra_steps=many, order_kept=True)
    epsilon = found.both_published.epsilon(1e-5)
    together = apart * math.sqrt(2.0)
    exact = li.GaussianProfile(together).delta(math.log1p(many * math.expm1(epsilon))) / many
    assert exact <= 1e-5


RULES = [
    li.FullBatch(20),
    li.Cyclic(20, 5),
    li.ShuffledOnce(20, 5),
    li.ShuffledEachEpoch(20, 5),
    li.PoissonSampled(20, 5),
]


def gently_penalised(rule):
    loss = li.Loss(smoothness=0.5, regulariser=0.1, lipschitz=float(rule.batch_size))
    return described(rule, 40, loss=loss, step_size=0.3, adjacency="zero-out")


class TestEveryRule:
    @pytest.mark.parametrize(
        "rule", slow_if(lambda rule: rule in RULES[-2:], RULES), ids=lambda rule: rule.name
    )
    def test_more_steps_unlearn_more_and_the_least_number_is_found(self, rule):
        """Those who stay are charged for the extra steps."""
        run = gently_penalised(rule)
        some = li.unlearning(run, extra_steps=7)
        before, alone = li.account(run).epsilon(1e-5), some.retained.epsilon(1e-5)
        assert before * (1 - 1e-6) <= alone <= some.both_published.epsilon(1e-5)
        assert some.share_of_training == 7 / 40
        start = li.unlearning(run, extra_steps=0).epsilon(1e-5)
        found = li.unlearning(run, epsilon=start / 2, delta=1e-5)
        assert 0 < found.extra_steps < 400
        assert found.epsilon(1e-5) <= start / 2
        fewer = li.unlearning(run, extra_steps=found.extra_steps - 1)
        assert fewer.epsilon(1e-5) > start / 2 * (1 - 2e-2)  # steps count whole, laws have grids
        assert start == before

    def test_a_kept_order_goes_on_for_those_who_stay(self):
        run = described(li.ShuffledOnce(20, 5), 40)
        kept = li.unlearning(run, extra_steps=7, order_kept=True)
        assert kept.retained.epsilon(1e-5) == li.account(run.replace(steps=47)).epsilon(1e-5)
        anew = li.unlearning(run, extra_steps=7)
        assert anew.retained.epsilon(1e-5) > kept.retained.epsilon(1e-5)
        assert "random-order/shuffled" in anew.report.all
        assert "random-order/shuffled" not in kept.report.all

    def test_the_next_request_has_seen_the_extra_steps(self):
        run = described(li.ShuffledEachEpoch(50, 5), 40)
        second = li.unlearning(run, extra_steps=10).then(extra_steps=3)
        assert second.run.steps == 50
        assert second.epsilon(1e-5) == (
            li.unlearning(run.replace(steps=50), extra_steps=3).epsilon(1e-5)
        )

    def test_schedules(self):
        run = described(li.Cyclic(4, 1), 6, step_size=[1.0, 0.9, 0.8, 0.7, 0.6, 0.5])
        found = li.unlearning(run, extra_steps=2)
        assert found.extra.step_size == 0.5
        assert found.retained.epsilon(1e-5) <= found.both_published.epsilon(1e-5)


PENALISED = li.TrainingRun(
    loss=li.Loss(smoothness=0.27, regulariser=0.01), sensitivity=1.0, batches=li.Cyclic(1_000, 10),
    steps=200, step_size=2.0, noise_std=0.01, adjacency="zero-out",
)  # fmt: skip


class TestLeastSteps:
    """The fewest extra steps: found exactly, from few accounts."""

    @pytest.fixture
    def accounts(self, monkeypatch):
        """How many accounts were made."""
        made, account = [], module.account

        def counted(*args, **settings):
            made.append(args)
            return account(*args, **settings)

        monkeypatch.setattr(module, "account", counted)
        return made

    @pytest.mark.parametrize(
        "penalty, release, others",
        [(0.01, 0.0, ()), (0.01, 0.02, (Release(MEAN, 2.0, 24.0),)), (0.0, 0.02, ()),
         (0.0, 0.0, (Release(MEAN, 2.0, 24.0),))],
    )  # fmt: skip
    @pytest.mark.parametrize("epsilon", [30.0, 2.9, 1.5, 0.6])
    def test_one_step_less_is_not_enough(self, epsilon, penalty, release, others, accounts):
        loss = li.Loss(smoothness=0.26 + penalty, regulariser=penalty)
        run = PENALISED.replace(loss=loss, release_noise_std=release)
        found = li.unlearning(run, epsilon=epsilon, delta=1e-5, other_releases=others)
        assert found.epsilon(1e-5) <= epsilon
        assert len(accounts) <= 30
        if found.extra_steps:
            fewer = li.unlearning(run, extra_steps=found.extra_steps - 1, other_releases=others)
            assert fewer.epsilon(1e-5) > epsilon

    def test_slow_bounds_are_asked_at_the_end_only(self, accounts):
        run = PENALISED.replace(batches=li.ShuffledEachEpoch(2_000, 200))
        assert li.unlearning(run, epsilon=0.3, delta=1e-5).extra_steps > 5
        assert len(accounts) <= 10


class TestCapacity:
    """How many can go, and the picture."""

    RUN = PENALISED.replace(
        loss=li.Loss(smoothness=0.26, regulariser=0.01), batches=li.Cyclic(1_000, 100)
    )

    @pytest.mark.parametrize("share", [0.1, 1.0])
    def test_one_more_would_take_longer(self, share):
        many = deletion_capacity(self.RUN, epsilon=1.0, delta=1e-5, share=share)
        assert 0 <= many < 999
        if many:
            found = li.unlearning(self.RUN, epsilon=1.0, delta=1e-5, examples=many)
            assert found.extra_steps <= share * self.RUN.steps
        more = li.unlearning(self.RUN, epsilon=1.0, delta=1e-5, examples=many + 1)
        assert more.extra_steps >= share * self.RUN.steps

    @pytest.mark.parametrize("name, value", [("share", 1.5), ("epsilon", 0.0)])
    def test_bad_input(self, name, value):
        with pytest.raises(li.InvalidParameter, match=name):
            deletion_capacity(self.RUN, **{"epsilon": 1.0, "delta": 1e-5, name: value})

    def test_the_picture_shows_what_is_certified(self):
        pytest.importorskip("matplotlib")
        canvas = epsilon_by_extra_steps(self.RUN, examples=[1, 5], steps=[1, 10, 50])
        drawn = {tuple(np.ravel(line.get_ydata()).tolist()) for line in canvas.axes[0].lines}
        for many in (1, 5):
            told = (li.unlearning(self.RUN, extra_steps=k, examples=many) for k in (1, 10, 50))
            assert tuple(one.epsilon(1e-5) for one in told) in drawn

    def test_the_command(self, tmp_path):
        pytest.importorskip("matplotlib")
        out = tmp_path / "faded.svg"
        run = [
            "--examples", "1000", "--batch-size", "100", "--steps", "200", "--step-size", "2",
            "--noise-std", "0.01", "--smoothness", "0.26", "--strong-convexity", "0.01",
            "--sensitivity", "1", "--batches", "cyclic", "--at", "1", "--at", "20", "--remove", "1",
        ]  # fmt: skip
        assert main(["plot", "epsilon-by-extra-steps", *run, "--out", str(out)]) == 0
        assert out.stat().st_size > 1_000


class TestRefusals:
    RUN = described(li.Cyclic(4, 1), 6)

    @pytest.mark.parametrize(
        "arguments, match",
        [
            ({}, "epsilon"),
            ({"epsilon": 1.0}, "delta"),
            ({"extra_steps": -1}, "extra_steps"),
            ({"extra_steps": 1, "epsilon": 1.0}, "extra_steps"),
            ({"epsilon": math.nan, "delta": 1e-5}, "epsilon"),
            ({"epsilon": 0.0, "delta": 1e-5}, "epsilon"),
            ({"extra_steps": 1, "examples": 0}, "examples"),
            ({"extra_steps": 1, "examples": 4}, "examples"),
            ({"extra_steps": 1, "noise_std": -1.0}, "noise_std"),
        ],
    )
    def test_bad_arguments(self, arguments, match):
        with pytest.raises(li.InvalidParameter, match=match):
            li.unlearning(self.RUN, **arguments)

    @pytest.mark.parametrize(
        "run, how, error, says",
        [
            ("run", {"extra_steps": 1}, TypeError, "TrainingRun"),
            (
                RUN.replace(releases="every-iterate"),
                {"extra_steps": 1},
                li.InvalidParameter,
                "every-iterate",
            ),
            (  # steps that may expand
                RUN.replace(loss=li.Loss(convex=False, smoothness=1.0)),
                {"extra_steps": 1},
                li.NoBoundApplies,
                "convex",
            ),
            (
                described(li.FullBatch(4), 6, contraction=1.0, noise_std=1e-9),
                {"epsilon": 1e-3, "delta": 1e-6},
                li.UnreachableTarget,
                "a penalty",
            ),
        ],
    )
    def test_say_what_would_help(self, run, how, error, says):
        with pytest.raises(error, match=says):
            li.unlearning(run, **how)

    def test_words(self):
        text = str(li.unlearning(self.RUN, extra_steps=3))
        assert "3 extra steps without it unlearn 1 example" in text
        assert "Cost: 50 % of training again." in text
        text = str(li.unlearning(self.RUN, extra_steps=6))
        assert "train again instead" in text


X = np.random.default_rng(0).normal(size=(600, 3)) / 2
Y = X[:, 0] > 0.0
MODEL = {
    "batches": "cyclic", "batch_size": 100, "classes": [False, True], "center": False, "counting": 0
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::lastiterate.errors.PrivacyWarning")
def test_what_was_chosen_among_several_is_refused():
    """Which of them was chosen depends on the rows, and stays."""
    base = PrivateLogisticRegression(**MODEL, epochs=2)
    chosen = PrivateSelection(base, {"l2": [0.1, 0.2]}, epsilon=3.0, random_state=0).fit(X, Y)
    model = chosen.best_estimator_
    for asked in (
        lambda: model.plan_unlearning(1, epsilon=1.0),
        lambda: model.unlearn(X, Y, rows=[3], epsilon=1.0, key=bytes(32)),
    ):
        with pytest.raises(li.InvalidParameter, match="the best of several trials"):
            asked()


@pytest.mark.filterwarnings("ignore::lastiterate.errors.PrivacyWarning")
@pytest.mark.parametrize("many", [8, slow(100)])
def test_many_requests_verify_are_reported_and_leave_nothing_but_certificates(many):
    settings = {"epsilon": 4.0, "epochs": 4, "l2": 0.1, "random_state": 1}
    model = PrivateLogisticRegression(**MODEL, **settings).fit(X, Y, key=bytes(32))
    sizes, held = [len(model.certificate_)], []
    try:
        for row in range(many):
            if 0 < row == many - 15:
                tracemalloc.start()  # which takes most of the time
            model = model.unlearn(X, Y, rows=[row], extra_steps=2, key=bytes(32))
            sizes.append(len(model.certificate_))
            if tracemalloc.is_tracing():
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    growth = np.diff(sizes)
    assert growth[1:].max() <= 1.05 * growth[1:].min()  # each adds as much as any other
    # By then the caches, of the last few, are full.
    assert not held or held[-1] - held[-5] <= 4 * (sizes[-1] - sizes[-5]) + 100_000
    found = verified_certificate(model.certificate_, parameters=model.parameters_)
    assert len(found.requests.done) == many
    each = [
        gdp_but_for_failure(found.requests.current_request_guarantee(k))
        for k in (0, many // 2, many - 1)
    ]
    assert each == sorted(each)  # those who went first are farthest away
    joint = gdp_but_for_failure(found.requests.joint_request_guarantee)
    assert each[-1] <= joint < many * each[-1]
    record = json.loads(model.certificate_)
    told = [one["unlearning"]["guarantee"]["epsilon"] for one in (*record["earlier"][1:], record)]
    assert len(told) == many
    assert np.isfinite(told).all()

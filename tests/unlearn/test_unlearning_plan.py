"""Extra steps without some examples: what they certify is attained, and never too little."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lastiterate as li
from lastiterate.audit import exact
from tests.reference.all_orders import epochs_seen, hockey_sticks, means
from tests.slow import slow_if

EPSILONS = (0.0, 0.3, 0.8, 1.5, 2.5)


def three_against_eight(examples, noise, **others):
    """Logistic regression on unit rows, as in two papers on unlearning (2401.10371, 2403.17105)."""
    penalty = 1e-6 * examples
    step_size = 1.0 / (0.25 + penalty)
    settings = {
        "loss": li.Loss(smoothness=0.25 + penalty, regulariser=penalty),
        "sensitivity": 2.0,
        "step_size": step_size,
        "noise_std": noise * math.sqrt(2.0 / step_size),
    }
    return li.TrainingRun(**(settings | others))


class TestPublishedSettings:
    """Their noise for epsilon .05, .5, 1 and 5, and what the engine certifies there."""

    @pytest.mark.parametrize(
        "noise, certified", [(0.1872, 0.0147), (0.019, 0.206), (0.0096, 0.443), (0.0021, 2.47)]
    )
    def test_full_batches(self, noise, certified):
        run = three_against_eight(11_982, noise, batches=li.FullBatch(11_982), steps=10_000)
        found = li.unlearning(run, extra_steps=1).epsilon(1 / 11_982)
        assert found == pytest.approx(certified, rel=3e-3)

    @pytest.mark.parametrize(
        "noise, certified", [(0.0791, 0.0021), (0.00805, 0.036), (0.0041, 0.078), (0.000933, 0.415)]
    )
    def test_batches_of_128(self, noise, certified):
        run = three_against_eight(11_264, noise, batches=li.Cyclic(11_264, 128), steps=8_800)
        found = li.unlearning(run, extra_steps=88).epsilon(1 / 11_264)
        assert found == pytest.approx(certified, rel=2e-2)

    def test_a_few_steps_are_enough_for_epsilon_1(self):
        run = three_against_eight(11_264, 0.03, batches=li.Cyclic(11_264, 128), steps=8_800)
        found = li.unlearning(run, epsilon=1.0, delta=1 / 11_264)
        assert found.extra_steps == 4
        assert li.unlearning(run, extra_steps=3).epsilon(1 / 11_264) > 1.0


def described(rule, steps, *, ratio=1.0, contraction=0.8, adjacency="replace", **others):
    settings = {
        "loss": li.Loss(smoothness=1.0 + 1e-9, strong_convexity=1.0 - contraction),
        "sensitivity": ratio * rule.batch_size,
        "batches": rule,
        "steps": steps,
        "step_size": 1.0,
        "noise_std": 1.0,
        "adjacency": adjacency,
    }
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


@given(
    steps=st.integers(1, 40),
    extra=st.integers(1, 30),
    every=st.integers(1, 7),
    c=st.sampled_from([1.0, 0.999, 0.9, 0.3]),
    ball=st.sampled_from([None, 0.1, 1.0, 30.0]),
)
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
    @pytest.mark.parametrize("seed", range(2))
    def test_no_shuffled_instance_leaks_more(self, seed):
        rng = np.random.default_rng(seed)
        worst = [attacked(rng) for _ in range(15)]
        assert max(worst) <= 1.0 + 1e-9
        assert max(worst) > 0.5  # else nothing was tried

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(10, 30))
    def test_no_shuffled_instance_leaks_more_in_a_long_search(self, seed):
        rng = np.random.default_rng(seed)
        assert max(attacked(rng) for _ in range(50)) <= 1.0 + 1e-9

    @pytest.mark.parametrize("seed", range(3))
    def test_no_fixed_order_s_instance_leaks_more(self, seed):
        rng = np.random.default_rng(seed)
        steps, extra, every = (int(rng.integers(1, high)) for high in (12, 6, 4))
        run = described(
            li.Cyclic(every, 1),
            steps,
            ratio=float(rng.choice([0.5, 2.0])),
            contraction=float(rng.choice([1.0, 0.9, 0.5])),
        )
        seen = tuple(range(steps, 0, -every))[::-1]
        order = li.FixedOrder(every, 1, positions=seen)
        attack = exact.worst(run.replace(batches=order, steps=steps + extra), delta=1e-3, tries=6)
        assert attack.epsilon <= li.unlearning(run, extra_steps=extra).epsilon(1e-3) * (1 + 1e-9)

    def test_with_one_step_less_a_quadratic_would_leak_more(self):
        run = described(li.FullBatch(10), 40, contraction=0.9)
        assert li.unlearning(run, extra_steps=2).gdp() > li.unlearning(run, extra_steps=3).gdp()


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
        run = gently_penalised(rule)
        start = li.unlearning(run, extra_steps=0).epsilon(1e-5)
        found = li.unlearning(run, epsilon=start / 2, delta=1e-5)
        assert 0 < found.extra_steps < 400
        assert found.epsilon(1e-5) <= start / 2
        fewer = li.unlearning(run, extra_steps=found.extra_steps - 1)
        assert fewer.epsilon(1e-5) > start / 2 * (1 - 2e-2)  # steps count whole, laws have grids
        assert start == li.account(run).epsilon(1e-5)

    @pytest.mark.parametrize(
        "rule", slow_if(lambda rule: rule in RULES[-2:], RULES), ids=lambda rule: rule.name
    )
    def test_retained_examples_are_charged_for_the_extra_steps(self, rule):
        run = gently_penalised(rule)
        found = li.unlearning(run, extra_steps=7)
        before, alone = li.account(run).epsilon(1e-5), found.retained.epsilon(1e-5)
        assert before * (1 - 1e-6) <= alone <= found.both_published.epsilon(1e-5)
        assert found.share_of_training == 7 / 40

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

    def test_what_is_no_run(self):
        with pytest.raises(TypeError, match="TrainingRun"):
            li.unlearning("run", extra_steps=1)

    def test_published_iterates_cannot_be_unlearned(self):
        with pytest.raises(li.InvalidParameter, match="every-iterate"):
            li.unlearning(self.RUN.replace(releases="every-iterate"), extra_steps=1)

    def test_steps_that_may_expand(self):
        run = self.RUN.replace(loss=li.Loss(convex=False, smoothness=1.0))
        with pytest.raises(li.NoBoundApplies, match="convex"):
            li.unlearning(run, extra_steps=1)

    def test_an_impossible_target_says_what_would_help(self):
        run = described(li.FullBatch(4), 6, contraction=1.0, noise_std=1e-9)
        with pytest.raises(li.UnreachableTarget, match="penalty"):
            li.unlearning(run, epsilon=1e-3, delta=1e-6)

    def test_words(self):
        text = str(li.unlearning(self.RUN, extra_steps=3))
        assert "3 extra steps without it unlearn 1 example" in text
        assert "Cost: 50 % of training again." in text
        text = str(li.unlearning(self.RUN, extra_steps=6))
        assert "train again instead" in text

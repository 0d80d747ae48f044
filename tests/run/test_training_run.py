"""Runs: frozen, exact to write down and read back, and refused when they mean nothing."""

import dataclasses
import inspect
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lastiterate as li
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.reproduce import runs as conventions
from lastiterate.run.training_run import TrainingRun

RUN = {
    "loss": li.Loss(smoothness=10.0, strong_convexity=0.1),
    "sensitivity": 2.0,
    "batches": li.Cyclic(100, 10),
    "steps": 20,
    "step_size": 0.1,
    "noise_std": 1.0,
}

finite = st.floats(1e-300, 1e300, allow_nan=False)


@st.composite
def runs(draw):
    steps = draw(st.integers(1, 5))
    schedule = st.one_of(finite, st.lists(finite, min_size=steps, max_size=steps))
    size = draw(st.integers(1, 50))
    batches = draw(
        st.sampled_from(
            [
                li.FullBatch(50),
                li.Cyclic(50, size),
                li.ShuffledOnce(50, size),
                li.ShuffledEachEpoch(50, size),
                li.SampledWithoutReplacement(50, size),
                li.PoissonSampled(50, size, 50),
                li.FixedOrder(50, size, range(1, steps + 1)),
                li.FixedOrder(50, size, []),
            ]
        )
    )
    m = draw(st.one_of(st.just(0.0), finite))
    return TrainingRun(
        loss=li.Loss(
            smoothness=m * 2,
            strong_convexity=m,
            holder=draw(st.sampled_from([None, (1.5, 0.25)])),
            regulariser=m / 2,
        ),
        sensitivity=draw(finite),
        batches=batches,
        steps=steps,
        step_size=draw(schedule),
        noise_std=draw(schedule),
        release_noise_std=draw(st.one_of(st.just(0.0), finite)),
        domain=draw(st.sampled_from([li.Unbounded(), li.Ball(0.1)])),
        adjacency=draw(st.sampled_from(["replace", "zero-out"])),
        releases=draw(st.sampled_from(["last-iterate", "every-iterate"])),
    )


class TestRoundTrip:
    @given(runs())
    def test_json_and_toml_are_exact(self, run):
        assert TrainingRun.from_json(run.to_json()) == run
        assert TrainingRun.from_toml(run.to_toml()) == run

    def test_a_clip_survives(self):
        run = TrainingRun(**RUN | {"clip_norm": 1.0})
        assert TrainingRun.from_toml(run.to_toml()) == run

    def test_numpy_schedules_become_plain_numbers(self):
        run = TrainingRun(**RUN | {"step_size": np.linspace(0.1, 0.05, 20, dtype=np.float32)})
        assert isinstance(run.step_size, tuple)
        assert TrainingRun.from_json(run.to_json()) == run

    @pytest.mark.parametrize(
        "text, says",
        [
            ("{", "valid JSON"),
            ("[1]", "run must be a table"),
            ('{"stepsize": 1}', "run key must be one of examples"),
            ('{"batches": {"kind": "Bogus"}}', "batches.kind must be one of .*FullBatch"),
            ('{"batches": {"kind": "Cyclic", "size": 3}}', "batches key must be one of examples"),
            ('{"batches": {"kind": "Cyclic", "examples": 3}}', "batches must be complete"),
            ('{"steps": 3}', "run must be described in full; found no examples"),
            ('{"steps": 5, "steps": 1}', "valid JSON .a name occurs twice"),
            ('{"loss": {"smoothness": 5, "smoothness": 1}}', "a name occurs twice"),
            ('{"steps": NaN}', "NaN is no number"),
        ],
    )
    def test_says_what_is_wrong_with_a_file(self, text, says):
        with pytest.raises(InvalidParameter, match=says):
            TrainingRun.from_json(text)

    def test_refuses_bad_toml(self):
        with pytest.raises(InvalidParameter, match="valid TOML"):
            TrainingRun.from_toml("steps =")


class TestFrozen:
    def test_fields_cannot_be_changed(self):
        with pytest.raises(dataclasses.FrozenInstanceError):
            TrainingRun(**RUN).steps = 3

    def test_replace_checks_again(self):
        with pytest.raises(InvalidParameter, match="steps must be"):
            TrainingRun(**RUN).replace(steps=0)
        with pytest.raises(InvalidParameter, match="'stepsize'"):
            TrainingRun(**RUN).replace(stepsize=0)

    def test_a_schedule_is_copied(self):
        schedule = np.linspace(0.1, 0.2, 20)
        run = TrainingRun(**RUN | {"step_size": schedule})
        schedule[0] = 9.0
        assert run.step_size[0] == 0.1


WRONG = [math.nan, math.inf, -1.0, 0.0, "1", None, [1.0, 2.0], True, 1j]


class TestRefusals:
    """Each message names the argument, the allowed range and the value."""

    @pytest.mark.parametrize("value", WRONG, ids=repr)
    @pytest.mark.parametrize("name", ["sensitivity", "step_size", "noise_std"])
    def test_positive_numbers(self, name, value):
        with pytest.raises(InvalidParameter, match=rf"^{name}\S* must be a number .*; got {name}"):
            TrainingRun(**RUN | {name: value})

    @pytest.mark.parametrize("value", [w for w in WRONG if w != 0.0], ids=repr)
    def test_release_noise(self, value):
        with pytest.raises(
            InvalidParameter, match=r"release_noise_std must be a number in \[0, inf\)"
        ):
            TrainingRun(**RUN | {"release_noise_std": value})

    @pytest.mark.parametrize("value", [w for w in WRONG if w is not None], ids=repr)
    def test_clip_norm(self, value):
        with pytest.raises(InvalidParameter, match=r"clip_norm must be a number in \(0, inf\)"):
            TrainingRun(**RUN | {"clip_norm": value})

    @pytest.mark.parametrize("value", [*WRONG, 2.5, 2**54], ids=repr)
    def test_steps(self, value):
        with pytest.raises(
            InvalidParameter, match=r"steps must be a whole number in \[1, 2\*\*53\]"
        ):
            TrainingRun(**RUN | {"steps": value})

    @pytest.mark.parametrize("value", WRONG, ids=repr)
    @pytest.mark.parametrize("name", ["loss", "batches", "domain", "adjacency", "releases"])
    def test_objects_and_words(self, name, value):
        with pytest.raises(InvalidParameter, match=rf"^{name} must be .*; got {name}="):
            TrainingRun(**RUN | {name: value})

    @pytest.mark.parametrize("name", ["step_size", "noise_std"])
    @pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 0.0])
    def test_one_bad_entry_of_a_schedule_is_pointed_at(self, name, bad):
        schedule = [0.1] * 20
        schedule[7] = bad
        with pytest.raises(InvalidParameter, match=rf"{name}\[7\] must be .*; got {name}\[7\]="):
            TrainingRun(**RUN | {name: schedule})

    @pytest.mark.parametrize("schedule", [[], [0.1] * 19, [[0.1] * 20], ["a"] * 20])
    def test_schedules_of_the_wrong_shape(self, schedule):
        with pytest.raises(InvalidParameter, match=r"step_size must be .* of length 20"):
            TrainingRun(**RUN | {"step_size": schedule})

    def test_silence_needs_noise_on_release(self):
        with pytest.raises(InvalidParameter, match="or 0 where release_noise_std is positive"):
            TrainingRun(**RUN | {"noise_std": 0.0})
        assert TrainingRun(**RUN | {"noise_std": 0.0, "release_noise_std": 1.0}).noise_std == 0.0

    @pytest.mark.parametrize("value", [*WRONG, 101], ids=repr)
    def test_batch_size(self, value):
        with pytest.raises(
            InvalidParameter, match=r"batch_size must be a whole number in \[1, 100\]"
        ):
            li.Cyclic(100, value)

    @pytest.mark.parametrize("value", WRONG, ids=repr)
    def test_examples(self, value):
        with pytest.raises(InvalidParameter, match="examples must be a whole number"):
            li.FullBatch(value)

    @pytest.mark.parametrize("value", [*(w for w in WRONG if w is not None), 9, 101], ids=repr)
    def test_largest_batch(self, value):
        with pytest.raises(
            InvalidParameter, match=r"largest_batch must be a whole number in \[10, 100\]"
        ):
            li.PoissonSampled(100, 10, value)

    @pytest.mark.parametrize("value", [[0], [1, 1], [2, 1], [1.5], ["a"], "12", 3, None], ids=repr)
    def test_positions(self, value):
        with pytest.raises(InvalidParameter, match=r"positions\S* must be"):
            li.FixedOrder(100, 10, value)

    def test_positions_beyond_the_run(self):
        with pytest.raises(InvalidParameter, match=r"positions must be .* \[1, 20\]"):
            TrainingRun(**RUN | {"batches": li.FixedOrder(100, 10, [3, 21])})

    @pytest.mark.parametrize("value", WRONG, ids=repr)
    def test_diameter(self, value):
        with pytest.raises(InvalidParameter, match=r"diameter must be a number in \(0, inf\)"):
            li.Ball(value)

    @pytest.mark.parametrize("value", [w for w in WRONG if w not in (0.0, None)], ids=repr)
    @pytest.mark.parametrize("name", ["smoothness", "strong_convexity", "regulariser"])
    def test_curvatures(self, name, value):
        with pytest.raises(InvalidParameter, match=rf"{name} must be a number in \[0, inf\); got"):
            li.Loss(**{name: value})

    @pytest.mark.parametrize("value", [w for w in WRONG if w is not None], ids=repr)
    def test_lipschitz(self, value):
        with pytest.raises(InvalidParameter, match=r"lipschitz must be a number in \(0, inf\)"):
            li.Loss(lipschitz=value)

    @pytest.mark.parametrize("value", [1.0, (1.0,), (1.0, 0.0), (1.0, 1.1), (-1.0, 0.5), "ab"])
    def test_holder(self, value):
        with pytest.raises(InvalidParameter, match=r"holder\S* must be"):
            li.Loss(holder=value)

    @pytest.mark.parametrize("value", [1, 0, None, "yes"])
    def test_convex(self, value):
        with pytest.raises(InvalidParameter, match="convex must be True or False"):
            li.Loss(convex=value)

    def test_contradictions_of_a_loss(self):
        with pytest.raises(InvalidParameter, match=r"at least strong_convexity = 2\.0"):
            li.Loss(smoothness=1.0, strong_convexity=2.0)
        with pytest.raises(InvalidParameter, match="0 when convex=False"):
            li.Loss(strong_convexity=1.0, convex=False)
        with pytest.raises(InvalidParameter, match=r"at least regulariser = 2\.0"):
            li.Loss(smoothness=1.0, regulariser=2.0, convex=False)

    def test_a_sensitivity_that_the_clip_rules_out(self):
        with pytest.raises(
            InvalidParameter, match=r"at most 2 \* .* = 1.0 with adjacency='replace'"
        ):
            TrainingRun(**RUN | {"clip_norm": 0.5})


class TestConventions:
    """Each paper's own example, converted, gives the noise-to-sensitivity ratio it states."""

    def test_bok_su_altschuler(self):
        # Theorem 4.1: mu = L sqrt(t) / (n sigma).
        run = TrainingRun(**RUN | conventions.bok_su_altschuler(sigma=0.5, L=3.0))
        run = run.replace(batches=li.FullBatch(100), steps=16)
        mu = li.account(run, bounds="composition").gdp()
        assert mu == pytest.approx(3.0 * 4 / (100 * 0.5), rel=1e-13)

    def test_altschuler_talwar(self):
        # Full batch, T steps of L-Lipschitz losses: Renyi 2 alpha T (L/(n sigma))^2.
        run = TrainingRun(**RUN | conventions.altschuler_talwar(sigma=0.5, L=3.0))
        run = run.replace(batches=li.FullBatch(100), steps=16)
        renyi = li.account(run, bounds="composition").renyi(4.0)
        assert renyi == pytest.approx(2 * 4.0 * 16 * (3.0 / (100 * 0.5)) ** 2, rel=1e-13)

    def test_ye_shokri(self):
        # Theorem 2.1: alpha S_g^2 eta K / (4 n^2 sigma^2) after K steps on the whole data.
        eta, sigma, S_g, steps, n = 0.02, 0.3, 4.0, 25, 100
        converted = conventions.ye_shokri(sigma=sigma, S_g=S_g, step_size=eta)
        run = TrainingRun(**RUN | converted | {"step_size": eta})
        run = run.replace(batches=li.FullBatch(n), steps=steps)
        renyi = li.account(run, bounds="composition").renyi(3.0)
        assert renyi == pytest.approx(3.0 * S_g**2 * eta * steps / (4 * n**2 * sigma**2), rel=1e-13)
        assert conventions.chourasia_ye_shokri is conventions.ye_shokri

    def test_chien_li(self):
        # Full batch composition: alpha T (2 eta K / n)^2 / (2 sigma^2).
        eta, sigma, K, steps, n = 0.1, 1.0, 2.0, 60, 5
        run = TrainingRun(
            **RUN | conventions.chien_li(sigma=sigma, K=K, step_size=eta) | {"step_size": eta}
        )
        run = run.replace(batches=li.FullBatch(n), steps=steps)
        renyi = li.account(run, bounds="composition").renyi(2.0)
        assert renyi == pytest.approx(2.0 * steps * (2 * eta * K / n) ** 2 / 2, rel=1e-13)

    @pytest.mark.parametrize("adjacency, factor", [("replace", 2.0), ("zero-out", 1.0)])
    def test_dp_sgd(self, adjacency, factor):
        # One step on one batch is a Gaussian mechanism of noise z on a sum moved by factor * C.
        run = TrainingRun.from_dp_sgd(
            loss=li.Loss(convex=False),
            batches=li.Cyclic(1000, 50),
            clip_norm=3.0,
            noise_multiplier=1.1,
            steps=1,
            step_size=0.5,
            adjacency=adjacency,
        )
        assert li.account(run).gdp() == pytest.approx(factor / 1.1, rel=1e-13)

    def test_refuse_nonsense(self):
        with pytest.raises(InvalidParameter, match="step_size must be"):
            conventions.ye_shokri(sigma=1.0, S_g=1.0, step_size=0.0)
        with pytest.raises(InvalidParameter, match="noise_multiplier must be"):
            TrainingRun.from_dp_sgd(
                loss=li.Loss(),
                batches=li.FullBatch(3),
                clip_norm=1.0,
                noise_multiplier=-1.0,
                steps=1,
                step_size=1.0,
            )
        with pytest.raises(InvalidType, match="batches must be"):
            TrainingRun.from_dp_sgd(
                loss=li.Loss(),
                batches=3,
                clip_norm=1.0,
                noise_multiplier=1.0,
                steps=1,
                step_size=1.0,
            )


class TestSmallComforts:
    def test_whole_floats_count(self):
        assert TrainingRun(**RUN | {"steps": 2 * 100 / 10}).steps == 20

    def test_poisson_batches_are_not_cut_unless_asked(self):
        assert li.PoissonSampled(100, 10).largest_batch == 100

    def test_the_multiplier_comes_back(self):
        run = TrainingRun.from_dp_sgd(
            loss=li.Loss(convex=False),
            batches=li.Cyclic(1000, 50),
            clip_norm=3.0,
            noise_multiplier=1.1,
            steps=2,
            step_size=0.5,
        )
        assert run.noise_multiplier == pytest.approx(1.1, rel=1e-15)
        assert run.replace(noise_std=[0.1, 0.2]).noise_multiplier == pytest.approx((5 / 3, 10 / 3))
        assert TrainingRun(**RUN).noise_multiplier is None

    def test_long_schedules_have_short_reprs(self):
        run = TrainingRun(**RUN | {"steps": 5000, "step_size": [0.1, *[0.2] * 4999]})
        run = run.replace(batches=li.FixedOrder(100, 10, range(1, 5000)))
        assert len(repr(run)) < 600
        assert "5000 values" in repr(run)

    @pytest.mark.parametrize("positions", [{1: 2}, {1, 2}])
    def test_what_has_no_order_is_no_order(self, positions):
        with pytest.raises(InvalidParameter, match="the steps that see one example"):
            li.FixedOrder(100, 10, positions)


def test_a_remainder_is_left_out():
    assert li.Cyclic(61, 10).batches_per_epoch == 6


class TestWordsOfOtherLibraries:
    def run(self, **more):
        said = {"examples": 1_000, "batch_size": 100, "epochs": 5, "clip_norm": 2.0}
        return TrainingRun.from_dp_sgd(noise_multiplier=5.0, **said, **more)

    @pytest.mark.parametrize("other", [{"betas": (0.9, 0.999)}, {"optimizer": "adam"}])
    def test_of_other_steps_are_refused_with_the_reason(self, other):
        (name,) = other
        with pytest.raises(li.InvalidParameter, match=f"{name} must be left out: .*any optimizer"):
            self.run(**other)

    def test_that_change_nothing_pass(self):
        assert self.run(momentum=0.0, nesterov=False, optimizer="SGD") == self.run()

    def test_have_another_word_here(self):
        with pytest.raises(InvalidType, match="lr must be said as step_size"):
            self.run(lr=0.1)
        with pytest.raises(TypeError, match="colour must be left out: no such argument"):
            self.run(colour="red")


class TestSpelling:
    def test_of_properties_of_a_loss(self):
        with pytest.raises(TypeError, match=r"takes no such argument \(did you mean 'regulariser'"):
            li.Loss(regularizer=1.0)
        assert next(iter(inspect.signature(li.Loss).parameters)) == "smoothness"
        loss = li.Loss(smoothness=2.0)
        assert pickle.loads(pickle.dumps(loss)) == loss == dataclasses.replace(loss)

"""Runs: frozen, exact to write and read back, under either adjacency, refused without meaning."""

import dataclasses
import inspect
import math
import pickle
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lastiterate as li
from lastiterate.errors import InvalidParameter
from lastiterate.reproduce import runs as conventions
from lastiterate.run.batch_rules.base import RULES
from lastiterate.run.training_run import TrainingRun

RUN = {
    "loss": li.Loss(smoothness=10.0, strong_convexity=0.1), "sensitivity": 2.0,
    "batches": li.Cyclic(100, 10), "steps": 20, "step_size": 0.1, "noise_std": 1.0,
}  # fmt: skip

DP_SGD = {
    "loss": li.Loss(convex=False), "batches": li.Cyclic(1000, 50), "clip_norm": 3.0,
    "noise_multiplier": 1.1, "steps": 1, "step_size": 0.5,
}  # fmt: skip
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
            smoothness=m * 2, strong_convexity=m, holder=draw(st.sampled_from([None, (1.5, 0.25)])),
            regulariser=m / 2,
        ),
        sensitivity=draw(finite), batches=batches, steps=steps, step_size=draw(schedule),
        noise_std=draw(schedule), release_noise_std=draw(st.one_of(st.just(0.0), finite)),
        domain=draw(st.sampled_from([li.Unbounded(), li.Ball(0.1)])),
        adjacency=draw(st.sampled_from(["replace", "zero-out"])),
        releases=draw(st.sampled_from(["last-iterate", "every-iterate"])),
    )  # fmt: skip


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
GIVEN = [w for w in WRONG if w is not None]
NON_ZERO = [w for w in WRONG if w != 0.0]
NUMBERS = [w for w in GIVEN if w != 0.0]
NO_POSITIONS = [[0], [1, 1], [2, 1], [1.5], ["a"], "12", 3, None]
NO_HOLDER = [1.0, (1.0,), (1.0, 0.0), (1.0, 1.1), (-1.0, 0.5), "ab"]


def loss_with(name):
    return lambda value: li.Loss(**{name: value})


class TestRefusals:
    """Each message names the argument, the allowed range and the value."""

    @pytest.mark.parametrize(
        "name, span, values",
        [
            *((name, "a number ", WRONG) for name in ("sensitivity", "step_size", "noise_std")),
            ("release_noise_std", r"a number in \[0, inf\)", NON_ZERO),
            ("clip_norm", r"a number in \(0, inf\)", GIVEN),
            ("steps", r"a whole number in \[1, 2\*\*53\]", [*WRONG, 2.5, 2**54]),
            *((n, "", WRONG) for n in ("loss", "batches", "domain", "adjacency", "releases")),
            ("step_size", ".* of length 20", [[], [0.1] * 19, [[0.1] * 20], ["a"] * 20]),
        ],
    )
    def test_of_a_run(self, name, span, values):
        for value in values:
            with pytest.raises(InvalidParameter, match=rf"^{name}\S* must be {span}.*; got {name}"):
                TrainingRun(**RUN | {name: value})

    @pytest.mark.parametrize(
        "make, says, values",
        [
            (partial(li.Cyclic, 100), r"batch_size must be a whole .* \[1, 100\]", [*WRONG, 101]),
            (li.FullBatch, "examples must be a whole number", WRONG),
            (
                partial(li.PoissonSampled, 100, 10),
                r"largest_batch .* \[10, 100\]",
                [*GIVEN, 9, 101],
            ),
            (partial(li.FixedOrder, 100, 10), r"positions\S* must be", NO_POSITIONS),
            (partial(li.FixedOrder, 100, 10), "the steps that see one example", [{1: 2}, {1, 2}]),
            (li.Ball, r"diameter must be a number in \(0, inf\)", WRONG),
            *(
                (loss_with(name), rf"{name} must be a number in \[0, inf\); got", NUMBERS)
                for name in ("smoothness", "strong_convexity", "regulariser")
            ),
            (loss_with("lipschitz"), r"lipschitz must be a number in \(0, inf\)", GIVEN),
            (loss_with("holder"), r"holder\S* must be", NO_HOLDER),
            (loss_with("convex"), "convex must be True or False", [1, 0, None, "yes"]),
        ],
    )
    def test_of_its_parts(self, make, says, values):
        for value in values:
            with pytest.raises(InvalidParameter, match=says):
                make(value)

    @pytest.mark.parametrize("name", ["step_size", "noise_std"])
    @pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 0.0])
    def test_one_bad_entry_of_a_schedule_is_pointed_at(self, name, bad):
        schedule = [0.1] * 20
        schedule[7] = bad
        with pytest.raises(InvalidParameter, match=rf"{name}\[7\] must be .*; got {name}\[7\]="):
            TrainingRun(**RUN | {name: schedule})

    @pytest.mark.parametrize(
        "changes, says",
        [
            ({"noise_std": 0.0}, "or 0 where release_noise_std is positive"),
            ({"batches": li.FixedOrder(100, 10, [3, 21])}, r"positions must be .* \[1, 20\]"),
            ({"clip_norm": 0.5}, r"at most 2 \* .* = 1.0 with adjacency='replace'"),
        ],
    )
    def test_of_contradictions(self, changes, says):
        with pytest.raises(InvalidParameter, match=says):
            TrainingRun(**RUN | changes)
        assert TrainingRun(**RUN | {"noise_std": 0.0, "release_noise_std": 1.0}).noise_std == 0.0

    @pytest.mark.parametrize(
        "words, says",
        [
            ({"smoothness": 1.0, "strong_convexity": 2.0}, r"at least strong_convexity = 2\.0"),
            ({"strong_convexity": 1.0, "convex": False}, "0 when convex=False"),
            (
                {"smoothness": 1.0, "regulariser": 2.0, "convex": False},
                r"at least regulariser = 2\.0",
            ),
        ],
    )
    def test_of_contradictions_of_a_loss(self, words, says):
        with pytest.raises(InvalidParameter, match=says):
            li.Loss(**words)


class TestConventions:
    """Each paper's own example, converted, gives the noise-to-sensitivity ratio it states."""

    def composed(self, converted, examples, steps, step_size=0.1):
        run = TrainingRun(**RUN | converted | {"step_size": step_size})
        run = run.replace(batches=li.FullBatch(examples), steps=steps)
        return li.account(run, bounds="composition")

    def test_bok_su_altschuler(self):
        # Theorem 4.1: mu = L sqrt(t) / (n sigma).
        found = self.composed(conventions.bok_su_altschuler(sigma=0.5, L=3.0), 100, 16).gdp()
        assert found == pytest.approx(3.0 * 4 / (100 * 0.5), rel=1e-13)

    def test_altschuler_talwar(self):
        # Full batch, T steps of L-Lipschitz losses: Renyi 2 alpha T (L/(n sigma))^2.
        found = self.composed(conventions.altschuler_talwar(sigma=0.5, L=3.0), 100, 16).renyi(4.0)
        assert found == pytest.approx(2 * 4.0 * 16 * (3.0 / (100 * 0.5)) ** 2, rel=1e-13)

    def test_ye_shokri(self):
        # Theorem 2.1: alpha S_g^2 eta K / (4 n^2 sigma^2) after K steps on the whole data.
        eta, sigma, S_g, steps, n = 0.02, 0.3, 4.0, 25, 100
        converted = conventions.ye_shokri(sigma=sigma, S_g=S_g, step_size=eta)
        found = self.composed(converted, n, steps, eta).renyi(3.0)
        assert found == pytest.approx(3.0 * S_g**2 * eta * steps / (4 * n**2 * sigma**2), rel=1e-13)
        assert conventions.chourasia_ye_shokri is conventions.ye_shokri
        with pytest.raises(InvalidParameter, match="step_size must be"):
            conventions.ye_shokri(sigma=1.0, S_g=1.0, step_size=0.0)

    def test_chien_li(self):
        # Full batch composition: alpha T (2 eta K / n)^2 / (2 sigma^2).
        eta, sigma, K, steps, n = 0.1, 1.0, 2.0, 60, 5
        converted = conventions.chien_li(sigma=sigma, K=K, step_size=eta)
        found = self.composed(converted, n, steps, eta).renyi(2.0)
        assert found == pytest.approx(2.0 * steps * (2 * eta * K / n) ** 2 / 2, rel=1e-13)

    @pytest.mark.parametrize("adjacency, factor", [("replace", 2.0), ("zero-out", 1.0)])
    def test_dp_sgd(self, adjacency, factor):
        # One step on one batch is a Gaussian mechanism of noise z on a sum moved by factor * C.
        run = TrainingRun.from_dp_sgd(**DP_SGD, adjacency=adjacency)
        assert li.account(run).gdp() == pytest.approx(factor / 1.1, rel=1e-13)


class TestSmallComforts:
    def test_whole_floats_count(self):
        assert TrainingRun(**RUN | {"steps": 2 * 100 / 10}).steps == 20

    def test_poisson_batches_are_not_cut_unless_asked(self):
        assert li.PoissonSampled(100, 10).largest_batch == 100

    def test_the_multiplier_comes_back(self):
        run = TrainingRun.from_dp_sgd(**DP_SGD).replace(steps=2)
        assert run.noise_multiplier == pytest.approx(1.1, rel=1e-15)
        assert run.replace(noise_std=[0.1, 0.2]).noise_multiplier == pytest.approx((5 / 3, 10 / 3))
        assert TrainingRun(**RUN).noise_multiplier is None

    def test_long_schedules_have_short_reprs(self):
        run = TrainingRun(**RUN | {"steps": 5000, "step_size": [0.1, *[0.2] * 4999]})
        run = run.replace(batches=li.FixedOrder(100, 10, range(1, 5000)))
        assert len(repr(run)) < 600
        assert "5000 values" in repr(run)

    def test_a_remainder_is_left_out(self):
        assert li.Cyclic(61, 10).batches_per_epoch == 6


class TestSpelling:
    def test_of_properties_of_a_loss(self):
        with pytest.raises(TypeError, match=r"takes no such argument \(did you mean 'regulariser'"):
            li.Loss(regularizer=1.0)
        assert next(iter(inspect.signature(li.Loss).parameters)) == "smoothness"
        loss = li.Loss(smoothness=2.0)
        assert pickle.loads(pickle.dumps(loss)) == loss == dataclasses.replace(loss)


SIZED = [name for name, rule in RULES.items() if rule.from_sizes and rule.ordered]
INDEPENDENT = ["poisson", "balanced", "balls-and-bins", "balls-and-bins-each-epoch"]


def run(**changes):
    return TrainingRun(
        **RUN | {"loss": li.Loss(convex=False), "batches": li.PoissonSampled(100, 10)} | changes
    )


class TestAddRemove:
    @pytest.mark.parametrize("name", INDEPENDENT)
    def test_is_zero_out_where_examples_take_part_independently(self, name):
        rule = RULES[name].of_sizes(100, 10)
        assert run(batches=rule, adjacency="add-remove").adjacency == "zero-out"

    @pytest.mark.parametrize("name", [name for name in SIZED if name not in INDEPENDENT])
    def test_is_refused_with_the_reason_where_it_moves_others(self, name):
        rule = RULES[name].of_sizes(100, 10)
        with pytest.raises(InvalidParameter, match="would change the batches of the others"):
            run(batches=rule, adjacency="add-remove")

    def test_is_refused_where_batches_are_cut(self):
        """One that is removed leaves its place in a full batch to another."""
        with pytest.raises(InvalidParameter, match="a largest size"):
            run(batches=li.PoissonSampled(100, 10, 20), adjacency="add-remove")

    def test_other_words_are_told_what_there_is(self):
        with pytest.raises(InvalidParameter, match="'add-remove', which is 'zero-out' for"):
            run(adjacency="remove")


class TestUnderTheOtherAdjacency:
    CLIPPED = TrainingRun.from_dp_sgd(**DP_SGD, adjacency="zero-out")

    def test_replacing_costs_twice_a_clip(self):
        other = self.CLIPPED.under("replace")
        assert (other.adjacency, other.sensitivity) == ("replace", 6.0)
        assert other.under("zero-out") == self.CLIPPED
        assert self.CLIPPED.under("zero-out") is self.CLIPPED

    def test_a_difference_of_gradients_does_not_bound_one(self):
        assert run(adjacency="replace", sensitivity=0.1).under("zero-out") is None
        bounded = run(loss=li.Loss(lipschitz=5.0), adjacency="replace", sensitivity=0.1)
        assert bounded.under("zero-out").sensitivity == 5.0

"""A run in the words of DP-SGD libraries, files and flags."""

import pytest

import lastiterate as li
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.run.description import Description
from lastiterate.run.serialise import from_dict
from lastiterate.run.training_run import TrainingRun

FIVE = {
    "examples": 1_000, "batch_size": 20, "epochs": 4, "clip_norm": 2.0, "noise_multiplier": 1.5,
}  # fmt: skip


class TestDpSgd:
    def test_five_numbers_are_enough(self):
        run = TrainingRun.from_dp_sgd(**FIVE)
        assert run.batches == li.PoissonSampled(1_000, 20)
        assert (run.steps, run.noise_std, run.sensitivity) == (200, 0.15, 2.0)
        assert (run.adjacency, run.releases, run.loss) == (
            "zero-out",
            "every-iterate",
            li.Loss(convex=False),
        )

    @pytest.mark.parametrize("rate", [0.02, 20 / 1_000, 1 / 50])
    def test_a_sample_rate_is_a_batch_size(self, rate):
        rated = {name: value for name, value in FIVE.items() if name != "batch_size"}
        assert TrainingRun.from_dp_sgd(**rated, sample_rate=rate) == TrainingRun.from_dp_sgd(**FIVE)
        # Between two sizes it is refused with the next larger.
        with pytest.raises(InvalidParameter, match=r"batch_size=31, 0\.031"):
            TrainingRun.from_dp_sgd(**rated, sample_rate=1 / 33)

    def test_the_adjacency_does_not_depend_on_the_batches(self):
        for name in ("poisson", "cyclic", "shuffled-once", "shuffled-each-epoch", "sampled"):
            assert TrainingRun.from_dp_sgd(**FIVE, batches=name).adjacency == "zero-out"

    def test_the_lesser_of_clip_and_lipschitz_bounds_gradients(self):
        run = TrainingRun.from_dp_sgd(**FIVE, loss=li.Loss(lipschitz=0.5))
        assert (run.sensitivity, run.noise_std) == (0.5, 0.15)

    @pytest.mark.parametrize(
        "changes, says",
        [
            ({"steps": 3}, "steps must be omitted: epochs already sets it"),
            ({"epochs": None}, "found no epochs or steps"),
            ({"epochs": 0}, "epochs must be a number in"),
            ({"examples": None, "batch_size": None}, "no examples, no batch_size or sample_rate"),
            ({"releases": "last-iterate"}, "found no step_size"),
            ({"sample_rate": 0.1}, "sample_rate must be omitted"),
            ({"batches": "shuffled"}, "batches must be one of .*full, cyclic"),
            ({"loss": 3}, "loss must be"),
            ({"noise_multiplier": -1.0}, "noise_multiplier must be"),
        ],
    )
    def test_what_is_missing_or_said_twice(self, changes, says):
        with pytest.raises(InvalidParameter, match=says):
            TrainingRun.from_dp_sgd(**FIVE | changes)


class TestWordsOfOtherLibraries:
    def run(self, **more):
        return TrainingRun.from_dp_sgd(**FIVE, **more)

    @pytest.mark.parametrize("other", [{"betas": (0.9, 0.999)}, {"optimizer": "adam"}])
    def test_of_other_steps_are_refused_with_the_reason(self, other):
        (name,) = other
        with pytest.raises(InvalidParameter, match=f"{name} must be left out: .*any optimizer"):
            self.run(**other)

    def test_that_change_nothing_pass(self):
        assert self.run(momentum=0.0, nesterov=False, optimizer="SGD") == self.run()

    def test_have_another_word_here(self):
        with pytest.raises(InvalidType, match="lr must be said as step_size"):
            self.run(lr=0.1)
        with pytest.raises(TypeError, match="colour must be left out: no such argument"):
            self.run(colour="red")


TOML = """
examples = 1_000
batch_size = 20
epochs = 4
clip_norm = 2
noise_multiplier = 1.5
"""


class TestFile:
    def test_the_words_of_dp_sgd(self):
        run = TrainingRun.from_toml(TOML)
        assert run.replace(loss=li.Loss(convex=False)) == TrainingRun.from_dp_sgd(**FIVE)

    def test_a_certificate_takes_no_short_form(self):
        with pytest.raises(InvalidParameter, match="run key must be"):
            from_dict(FIVE)

    @pytest.mark.parametrize(
        "text, says",
        [
            ("", "no examples, no batch_size or sample_rate, no epochs or steps, no noise_mult"),
            (TOML + "lr = 3\n", "run key must be one of examples, .*; got run key='lr'"),
            (TOML + "domain = 3\n", "domain must be a table"),
            (TOML + 'adjacency = ""\n', "adjacency must be one of"),
            (TOML.replace("= 2\n", '= "2"\n'), "clip_norm must be a number"),
        ],
    )
    def test_says_what_is_wrong(self, text, says):
        with pytest.raises(InvalidParameter, match=says):
            TrainingRun.from_toml(text)


class TestChanges:
    RUN = TrainingRun(
        loss=li.Loss(smoothness=1.0), sensitivity=1.0, batches=li.Cyclic(100, 10), steps=30,
        step_size=0.5, noise_std=0.1,
    )  # fmt: skip
    CLIPPED = TrainingRun.from_dp_sgd(**FIVE, step_size=0.1, loss=li.Loss(smoothness=1.0))

    def changed(self, run, **words):
        return Description.of(run).changed(words).run()

    @pytest.mark.parametrize("run", [RUN, CLIPPED], ids=["plain", "clipped"])
    def test_nothing_changed_is_the_run(self, run):
        assert self.changed(run) == run

    @pytest.mark.parametrize(
        "rule",
        [
            li.FullBatch(100), li.PoissonSampled(100, 10), li.PoissonSampled(100, 10, 20),
            li.FixedOrder(100, 10, [3, 5]), li.ShuffledEachEpoch(100, 10),
        ],
    )  # fmt: skip
    def test_every_rule_comes_back(self, rule):
        run = self.RUN.replace(batches=rule)
        assert self.changed(run) == run

    def test_one_word_at_a_time(self):
        run = self.RUN
        assert self.changed(run, epochs=5) == run.replace(steps=50)
        assert self.changed(run, batches="poisson") == run.replace(
            batches=li.PoissonSampled(100, 10)
        )
        assert self.changed(run, batches="full").batches == li.FullBatch(100)
        assert self.changed(run, batch_size=20).batches == li.Cyclic(100, 20)
        cut = run.replace(batches=li.PoissonSampled(100, 10, 20))
        assert self.changed(cut, examples=200).batches == li.PoissonSampled(200, 10, 20)
        whole = run.replace(batches=li.PoissonSampled(100, 10))
        assert self.changed(whole, examples=200).batches == li.PoissonSampled(200, 10)
        assert self.changed(run, diameter=2.0).domain == li.Ball(2.0)
        assert self.changed(run, noise_std=3.0).noise_std == 3.0

    def test_what_follows_from_a_clip_follows_it(self):
        run = self.CLIPPED
        assert self.changed(run, adjacency="replace").sensitivity == 4.0
        assert self.changed(run, clip_norm=1.0).sensitivity == 1.0
        assert self.changed(run, batch_size=40).noise_multiplier == pytest.approx(1.5, rel=1e-14)
        assert self.changed(run, noise_std=0.5).noise_std == 0.5

    def test_a_stated_sensitivity_is_kept(self):
        with pytest.raises(InvalidType, match="found no clip_norm"):
            self.changed(self.RUN, noise_multiplier=1.0)
        with pytest.raises(InvalidParameter, match="stated anew with this adjacency"):
            self.changed(self.RUN, adjacency="zero-out")
        left_out = self.changed(self.RUN, adjacency="zero-out", sensitivity=0.7)
        assert left_out.sensitivity == 0.7
        assert self.changed(left_out, adjacency="replace").sensitivity == 1.4
        assert self.changed(left_out, adjacency="zero-out") == left_out

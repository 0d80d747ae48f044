"""The number is that of the run as it took place, whatever way Opacus is used."""

from itertools import islice

import pytest
import torch
from opacus.accountants.utils import get_noise_multiplier
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn

import lastiterate as li
import lastiterate.opacus as lo

from .trainings import Training, loader_of

BINARY = lo.softmax(feature_bound=1.0, classes=2)
DELTA = 1e-5


@pytest.fixture(autouse=True)
def registered():
    return lo.register(loss=BINARY)


def direct(batches, steps, **changes):
    """The same run as a user of `li.account` would describe it."""
    stated = {
        "loss": li.Loss(smoothness=1.05, regulariser=0.05, lipschitz=2.0, outputs=1),
        "clip_norm": 2.0,
        "noise_multiplier": 2.0,
        "step_size": 0.5,
    }
    return li.TrainingRun.from_dp_sgd(batches=batches, steps=steps, **stated | changes)


def same(accountant, run, *, rel=1e-9):
    expected = li.account(run).epsilon(DELTA)
    assert accountant.get_epsilon(DELTA) == pytest.approx(expected, rel=rel)
    assert accountant.reasons == ()
    return True


class TestTheRunThatWasAskedFor:
    """4,000 unit rows, z = 2, clip 2, 30 epochs of batches of 200."""

    @staticmethod
    def trained(**settings):
        return Training(loader_of(4_000, 200, width=16), **settings).epochs(30)

    def test_shuffled(self):
        accountant = self.trained().accountant
        assert accountant.get_epsilon(DELTA) <= 1.710
        assert same(accountant, direct(li.ShuffledEachEpoch(4_000, 200), 600))

    def test_poisson(self):
        accountant = self.trained(poisson_sampling=True).accountant
        assert accountant.get_epsilon(DELTA) <= 1.162
        assert same(accountant, direct(li.PoissonSampled(4_000, 200), 600))

    def test_what_opacus_says(self):
        other = lo.register(loss=BINARY)()  # an accountant that saw nothing
        assert other.get_epsilon(DELTA) == 0.0
        from opacus.accountants import PRVAccountant

        prv = PRVAccountant()
        prv.history = [(2.0, 0.05, 600)]
        assert prv.get_epsilon(DELTA) == pytest.approx(2.805, abs=0.001)


class TestEveryWayToUseIt:
    @pytest.mark.parametrize("mode", ["hooks", "functorch", "ew", "ghost"])
    def test_modes(self, mode):
        training = Training(loader_of(), grad_sample_mode=mode).epochs(2)
        assert same(training.accountant, direct(li.ShuffledEachEpoch(120, 20), 12))

    def test_rules(self):
        cyclic = Training(loader_of(shuffle=False)).epochs(2)
        with pytest.warns(UserWarning, match="^batches are in the same order .* Poisson batches"):
            found = cyclic.accountant.get_epsilon(DELTA)
        assert found == pytest.approx(li.account(direct(li.Cyclic(120, 20), 12)).epsilon(DELTA))
        full = Training(loader_of(batch_size=120)).epochs(3)
        assert same(full.accountant, direct(li.FullBatch(120), 3))
        certain = Training(loader_of(batch_size=120), poisson_sampling=True).epochs(3)
        assert same(certain.accountant, direct(li.FullBatch(120), 3))
        part = Training(loader_of()).epochs(1).epoch(batches=2)
        assert same(part.accountant, direct(li.ShuffledEachEpoch(120, 20), 8))

    def test_poisson_in_passes_that_are_cut_short(self):
        training = Training(loader_of(), poisson_sampling=True)
        for steps in (2, 3):
            training.epoch(loader=islice(training.loader, steps))
        assert same(training.accountant, direct(li.PoissonSampled(120, 20), 5))

    def test_schedules_of_steps_and_noise(self):
        training = Training(loader_of())
        scheduler = torch.optim.lr_scheduler.StepLR(
            training.optimizer.original_optimizer, 1, gamma=0.5
        )

        def more_noise():
            scheduler.step()
            training.optimizer.noise_multiplier += 1.0

        training.epoch(each=more_noise)
        rates = [0.5 * 0.5**k for k in range(6)]
        noises = tuple((2.0 + k) * 2.0 / 20 for k in range(6))
        expected = direct(li.ShuffledEachEpoch(120, 20), 6, step_size=rates)
        with pytest.warns(UserWarning, match="found a schedule"):
            found = training.accountant.get_epsilon(DELTA)
        exact = li.account(expected.replace(noise_std=noises)).epsilon(DELTA)
        assert found == pytest.approx(exact, rel=1e-9)

    def test_sums_that_are_not_divided(self):
        """A step of .01 on a sum of 20 gradients is one of .2 on their mean, the decay apart."""
        training = Training(
            loader_of(),
            loss_reduction="sum",
            criterion=nn.CrossEntropyLoss(reduction="sum"),
            lr=0.01,
        ).epochs(2)
        loss = li.Loss(smoothness=1.0025, regulariser=0.0025, lipschitz=2.0, outputs=1)
        run = direct(li.ShuffledEachEpoch(120, 20), 12, step_size=0.2, loss=loss)
        assert same(training.accountant, run)

    def test_virtual_batches(self):
        for mode in ("hooks", "ghost"):
            training = Training(loader_of(), grad_sample_mode=mode)
            for _ in range(2):
                with BatchMemoryManager(
                    data_loader=training.loader,
                    max_physical_batch_size=7,
                    optimizer=training.optimizer,
                ) as smaller:
                    training.epoch(loader=smaller)
            assert same(training.accountant, direct(li.ShuffledEachEpoch(120, 20), 12))

    def test_workers_that_draw_batches_ahead(self):
        training = Training(loader_of(num_workers=1), poisson_sampling=False).epochs(2)
        assert same(training.accountant, direct(li.ShuffledEachEpoch(120, 20), 12))

    def test_one_logit(self):
        lo.register(loss=lo.logistic(feature_bound=1.0, bias=False))

        def criterion(outputs, labels):
            return nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], labels.float())

        model = nn.Linear(4, 1, bias=False)
        training = Training(loader_of(), model=model, criterion=criterion, clip=0.5).epochs(2)
        loss = li.Loss(smoothness=0.3, regulariser=0.05, lipschitz=0.5, outputs=1)
        run = direct(li.ShuffledEachEpoch(120, 20), 12, loss=loss, clip_norm=0.5)
        assert same(training.accountant, run)

    def test_three_classes(self):
        lo.register(loss=lo.softmax(feature_bound=1.0, classes=3), adjacency="replace")
        training = Training(loader_of(classes=3), outputs=3, clip=2.1).epochs(2)
        loss = li.Loss(smoothness=1.05, regulariser=0.05, lipschitz=2.0, outputs=3)
        run = direct(
            li.ShuffledEachEpoch(120, 20), 12, loss=loss, adjacency="replace", clip_norm=2.1
        )
        assert same(training.accountant, run)

    def test_a_clip_at_the_bound_of_three_classes(self):
        """Opacus divides by the norm plus 1e-6, so it does act, on saturated gradients only."""
        loss = lo.softmax(feature_bound=1.0, classes=3)
        lo.register(loss=loss)
        three = {"outputs": 3, "loader": loader_of(classes=3)}
        at_bound = Training(clip=2.0, **three).epochs(2).accountant
        never = Training(clip=loss.max_grad_norm, **three).epochs(2).accountant
        assert not never.run().clip_may_be_active
        assert not at_bound.run().clip_may_be_active
        assert at_bound.run().loss.strong_convexity < 0.05  # which is what it costs
        rule, known = li.ShuffledEachEpoch(120, 20), {"smoothness": 1.05, "regulariser": 0.05}
        unbent, any_outputs = (
            direct(rule, 12, loss=li.Loss(**known, lipschitz=2.0, outputs=outputs))
            for outputs in (3, None)
        )
        assert same(never, unbent, rel=1e-5)
        # Where the clip twists gradients, a step is not the gradient of a loss.
        assert same(at_bound, any_outputs, rel=1e-3)
        assert at_bound.get_epsilon(DELTA) > li.account(any_outputs).epsilon(DELTA)

    def test_a_clip_at_the_bound_without_decay_is_said_to_act(self):
        loss = lo.softmax(feature_bound=1.0, classes=3)
        lo.register(loss=loss)
        training = Training(loader_of(classes=3), outputs=3, clip=2.0, decay=0.0).epochs(2)
        assert training.accountant.run().clip_may_be_active
        (reason,) = training.accountant.reasons
        assert f"take max_grad_norm=loss.max_grad_norm, {loss.max_grad_norm!r}" in reason

    def test_a_stated_loss(self):
        lo.register(loss=li.Loss(smoothness=1.0, lipschitz=1.9), examples_per_person=2)
        training = Training(loader_of()).epochs(2)
        loss = li.Loss(smoothness=1.05, regulariser=0.05, lipschitz=1.9)
        run = direct(li.ShuffledEachEpoch(120, 20), 12, loss=loss, examples_per_person=2)
        assert same(training.accountant, run)


class TestCheckpoints:
    @pytest.mark.parametrize("poisson", [False, True])
    def test_saved_loaded_and_continued(self, tmp_path, poisson):
        first = Training(loader_of(), poisson_sampling=poisson).epochs(2)
        file = tmp_path / "checkpoint.pt"
        first.engine.save_checkpoint(path=file, module=first.model, optimizer=first.optimizer)
        second = Training(loader_of(), poisson_sampling=poisson)
        second.engine.load_checkpoint(path=file, module=second.model, optimizer=second.optimizer)
        assert second.accountant.run() == first.accountant.run()
        assert len(second.accountant) == 12
        rule = li.PoissonSampled if poisson else li.ShuffledEachEpoch
        assert same(second.epochs(1).accountant, direct(rule(120, 20), 18))

    def test_in_the_middle_of_an_epoch(self):
        """The rest of it is shuffled anew, so that some may be seen twice."""
        first = Training(loader_of()).epochs(1).epoch(batches=2)
        second = Training(loader_of(), model=nn.Linear(4, 2))
        second.model.load_state_dict(first.model.state_dict())
        second.accountant.load_state_dict(first.accountant.state_dict())
        second.epochs(1)
        with pytest.warns(UserWarning, match="not finished"):
            report = second.accountant.report()
        assert report.run.batches.positions == (1, 7, 9)
        assert report.bound == "composition/fixed-order"

    def test_of_a_loss_that_is_not_stated(self):
        """An older state would forget the steps that the model made since."""
        lo.register()
        first = Training(loader_of()).epochs(1)
        state = first.accountant.state_dict()
        for later in (0, 1):
            first.epochs(later)
            second = Training(loader_of())
            second.model.load_state_dict(first.model.state_dict())
            second.accountant.load_state_dict(state)
            if later:
                with pytest.raises(lo.RefusedTraining, match="changed between steps"):
                    second.epochs(1)
            else:
                assert second.epochs(1).accountant.run().steps == 12

    def test_of_another_model_or_of_other_batches(self):
        first = Training(loader_of()).epochs(1)
        other = Training(loader_of())
        other.accountant.load_state_dict(first.accountant.state_dict())
        with pytest.raises(lo.RefusedTraining, match="load the model and the optimizer"):
            other.epochs(1)
        smaller = Training(loader_of(batch_size=10))
        with pytest.raises(lo.RefusedTraining, match="other batches"):
            smaller.accountant.load_state_dict(first.accountant.state_dict())
        with pytest.raises(ValueError, match="'watched'"):
            smaller.accountant.load_state_dict({"history": [], "mechanism": "last-iterate"})


class TestTheNoiseForATarget:
    def test_by_make_private_with_epsilon(self):
        loader, model = loader_of(), nn.Linear(4, 2)
        plain = torch.optim.SGD(model.parameters(), lr=0.5, weight_decay=0.05)
        lo.register(
            loss=BINARY,
            plan=lo.TrainingPlan(
                optimizer=plain, max_grad_norm=2.0, data_loader=loader, poisson_sampling=False
            ),
        )
        noise = get_noise_multiplier(
            target_epsilon=2.0,
            target_delta=DELTA,
            sample_rate=1 / 6,
            epochs=3,
            accountant="last-iterate",
            epsilon_tolerance=0.5,
        )
        expected = direct(li.ShuffledEachEpoch(120, 20), 18, noise_multiplier=noise)
        assert 1.5 <= li.account(expected).epsilon(DELTA) <= 2.0
        training = Training(loader, model=model, noise=noise).epochs(3)
        assert same(training.accountant, expected)

    def test_without_a_plan_every_iterate_is_charged_for(self):
        with pytest.warns(UserWarning, match="the plan has no optimizer"):
            noise = get_noise_multiplier(
                target_epsilon=2.0,
                target_delta=DELTA,
                sample_rate=1 / 6,
                steps=18,
                accountant="last-iterate",
                epsilon_tolerance=1.5,
            )
        run = li.TrainingRun.from_dp_sgd(
            examples=120, batch_size=20, steps=18, clip_norm=2.0, noise_multiplier=noise
        )
        assert 0.5 <= li.account(run).epsilon(DELTA) <= 2.0

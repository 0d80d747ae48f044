"""Batch sizes that do not divide the number of examples, as Opacus treats them."""

import pytest
import torch
from torch import nn

import lastiterate as li
import lastiterate.opacus as lo

from .trainings import Training, loader_of

BINARY = lo.softmax(feature_bound=1.0, classes=2)
DELTA = 1e-5


@pytest.fixture(autouse=True)
def registered():
    return lo.register(loss=BINARY)


def in_opacus_words(batches, steps, divisor):
    """The run with the step size and penalty that make up for another divisor."""
    scale = batches.batch_size / divisor
    loss = li.Loss(
        smoothness=1.0 + 0.05 / scale, regulariser=0.05 / scale, lipschitz=2.0, outputs=1
    )
    return li.TrainingRun.from_dp_sgd(
        batches=batches,
        steps=steps,
        loss=loss,
        clip_norm=2.0,
        noise_multiplier=2.0,
        step_size=0.5 * scale,
    )


def check(training, run, *, reasons=()):
    accountant = training.accountant
    assert accountant.reasons == reasons
    assert accountant.get_epsilon(DELTA) == pytest.approx(li.account(run).epsilon(DELTA), rel=1e-9)
    assert accountant.run().batches == run.batches


class TestTheRunIsTheOneThatTookPlace:
    def test_shuffled_and_left_over(self):
        """130 = 6 * 20 + 10, another ten in every epoch; sums are divided by 21."""
        training = Training(loader_of(130)).epochs(3)
        assert training.optimizer.expected_batch_size == 21
        check(training, in_opacus_words(li.ShuffledEachEpoch(130, 20), 18, 21))

    def test_in_order_and_left_over(self):
        training = Training(loader_of(130, shuffle=False)).epochs(3)
        with pytest.warns(UserWarning, match="poisson_sampling=True.*shuffle=True"):
            training.accountant.report()
        (reason,) = training.accountant.reasons
        assert reason.startswith("batches are in the same order in every pass")
        check(training, in_opacus_words(li.Cyclic(130, 20), 18, 21), reasons=(reason,))

    def test_left_over_where_the_divisor_is_the_batch_size(self):
        training = Training(loader_of(123)).epochs(3)
        assert training.optimizer.expected_batch_size == 20
        check(training, in_opacus_words(li.ShuffledEachEpoch(123, 20), 18, 20))

    def test_one_batch_of_a_part(self):
        training = Training(loader_of(130, 100)).epochs(3)
        check(training, in_opacus_words(li.ShuffledEachEpoch(130, 100), 3, 130))

    @pytest.mark.parametrize("drop", [False, True])
    def test_poisson(self, drop):
        training = Training(loader_of(130, drop_last=drop), poisson_sampling=True).epochs(3)
        batches, divisor = (6, 21) if drop else (7, 18)
        assert training.optimizer.expected_batch_size == divisor
        rule = li.PoissonSampled(130, divisor, sample_rate=1 / batches)
        check(training, in_opacus_words(rule, 3 * batches, divisor))

    def test_a_divisor_that_somebody_else_set(self):
        training = Training(loader_of(), poisson_sampling=True)
        training.optimizer.expected_batch_size = 12.5
        training.epochs(2)
        check(training, in_opacus_words(li.PoissonSampled(120, 20), 12, 12.5))

    def test_a_divisor_that_changes(self):
        training = Training(loader_of()).epochs(1)
        training.optimizer.expected_batch_size = 25
        training.epochs(1)
        with pytest.warns(UserWarning, match="divisor of gradient sums changes from step to step"):
            report = training.accountant.report()
        assert report.bound == "composition/fixed-order"

    def test_a_plan(self):
        loader, model = loader_of(130), nn.Linear(4, 2)
        plain = torch.optim.SGD(model.parameters(), lr=0.5, weight_decay=0.05)
        for poisson in (False, True):
            plan = lo.TrainingPlan(
                optimizer=plain, max_grad_norm=2.0, data_loader=loader, poisson_sampling=poisson
            )
            accountant = lo.register(loss=BINARY, plan=plan)()
            accountant.history = [(2.0, 1 / 6, 18)]
            rule = li.ShuffledEachEpoch(130, 20)
            if poisson:
                rule = li.PoissonSampled(130, 21, sample_rate=1 / 6)
            expected = li.account(in_opacus_words(rule, 18, 21)).epsilon(DELTA)
            assert accountant.get_epsilon(DELTA) == pytest.approx(expected, rel=1e-9)


def test_the_step_that_opacus_makes_is_the_step_that_is_described():
    """x - eta'(mean of gradients + noise + w' x), with the noise that was drawn."""
    training = Training(loader_of(130), decay=0.05)
    model, optimizer = training.model, training.optimizer
    rows, labels = next(iter(training.loader))
    before = torch.cat([one.detach().flatten() for one in model.parameters()])
    training.backward(rows, labels)
    sums = torch.cat([one.grad_sample.sum(dim=0).flatten() for one in model.parameters()])
    optimizer.step()
    with_noise = torch.cat([one.grad.flatten() for one in model.parameters()])
    after = torch.cat([one.detach().flatten() for one in model.parameters()])
    run = training.accountant.run()
    size = run.batches.batch_size
    noise = (with_noise * optimizer.expected_batch_size - sums) / size
    expected = before - run.step_size * (sums / size + noise + run.loss.regulariser * before)
    assert torch.allclose(after, expected, atol=1e-6)
    assert run.noise_std == 2.0 * 2.0 / size

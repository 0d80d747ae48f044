"""SGD with momentum: what ran is what is charged for, and what is not proved is composed."""

import math

import numpy as np
import pytest
import torch
from opacus.accountants.utils import get_noise_multiplier
from torch import nn

import lastiterate as li
import lastiterate.opacus as lo
from lastiterate.bounds.momentum import curvature, recursion_of
from lastiterate.opacus.accountant import better_batches

from .trainings import Training, loader_of

BINARY = lo.softmax(feature_bound=1.0, classes=2)
DELTA = 1e-5
OPTIMIZERS = {
    "heavy ball": {"momentum": 0.9},
    "dampened": {"momentum": 0.8, "dampening": 0.4},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "no foreach": {"momentum": 0.9, "foreach": False},
}


@pytest.fixture(autouse=True)
def registered():
    return lo.register(loss=BINARY)


def sgd(**more):
    return lambda parameters, **settings: torch.optim.SGD(parameters, **settings, **more)


def training_with(more, *, loader=None, **settings):
    settings = {"lr": 0.05, "decay": 0.01} | settings
    made = loader_of(shuffle=False) if loader is None else loader
    return Training(made, optimizer=sgd(**more), **settings)


def direct(batches, steps, *, noise=2.0, **changes):
    """The same run as a user of `li.account` would describe it."""
    run = li.TrainingRun(
        loss=li.Loss(
            smoothness=1.01, strong_convexity=0.01, regulariser=0.01, lipschitz=2.0, outputs=1
        ),
        sensitivity=2.0,
        batches=batches,
        steps=steps,
        step_size=0.05,
        noise_std=noise * 2.0 / 20,
        adjacency="zero-out",
    )
    return run.replace(**changes)


def in_double(loader):
    rows, labels = loader.dataset.tensors
    loader.dataset.tensors = (rows.double(), labels)
    return loader


class Replay:
    """The parameters that the charged run's own recursion gives, from the gradients that ran."""

    def __init__(self, training):
        self.training = training
        self.start = self.parameters()
        self.gradients, self.points = [], []

    def parameters(self):
        return torch.cat([one.detach().flatten() for one in self.training.model.parameters()])

    def watch(self):
        """Keep the noisy gradients of every step, and where they were taken."""
        optimizer = self.training.optimizer
        observe = optimizer.step_hook

        def hook(found):
            observe(found)
            self.gradients.append(torch.cat([one.grad.flatten().clone() for one in found.params]))
            self.points.append(self.parameters())

        optimizer.step_hook = hook
        return self

    def parameters_of(self, run, divisor, decay):
        """z_k = A_k z_{k-1} + B_k g_k with the entries that the certificate is about."""
        entries = [np.asarray(entry) for entry in recursion_of(run).entries()]
        x, buffer = self.start.numpy().copy(), np.zeros(len(self.start))
        for k, (a00, a01, a10, a11, b0, b1) in enumerate(zip(*entries, strict=True)):
            # The charged run averages over a batch, and its penalty is scaled as the rest is.
            raw = self.gradients[k].numpy() + decay * x
            gradient = raw * divisor / run.batches.batch_size
            x, buffer = (
                a00 * x + a01 * buffer + b0 * gradient,
                (a10 * x + a11 * buffer + b1 * gradient),
            )
        return x


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("examples", [120, 130])
class TestWhatRanIsWhatIsCharged:
    """With 130 examples Opacus divides sums over batches of 20 by 21."""

    def test_in_a_replay(self, name, examples):
        loader = in_double(loader_of(examples, shuffle=False))
        training = training_with(OPTIMIZERS[name], loader=loader, model=nn.Linear(4, 2).double())
        replay = Replay(training).watch()
        training.epochs(2)
        training.optimizer.param_groups[0]["lr"] = 0.02  # keeps the buffer
        training.epochs(1)
        training.optimizer.original_optimizer.state.clear()
        training.epochs(1)
        assert not [one for one in training.accountant.reasons if "charged for" in one]
        run = training.accountant.run()
        assert run.buffer_resets == (19,)
        assert run.momentum == OPTIMIZERS[name]["momentum"]
        divisor = training.optimizer.expected_batch_size
        assert (divisor == 20) == (examples == 120)
        found = replay.parameters_of(run, divisor, 0.01)
        assert found == pytest.approx(replay.parameters().numpy(), abs=1e-13)

    def test_in_the_account(self, name, examples):
        training = training_with(OPTIMIZERS[name], loader=loader_of(examples, shuffle=False))
        run = training.epochs(3).accountant.run()
        assert li.account(run).bound == "fixed-order/momentum"
        if examples == 120:
            settings = {k: v for k, v in OPTIMIZERS[name].items() if k != "foreach"}
            assert run == direct(li.Cyclic(120, 20), 18, **settings)


def test_the_loop_that_people_write():
    """Shuffled batches, momentum .9, decay .01: the momentum bound, far below composition."""
    training = training_with({"momentum": 0.9}, loader=loader_of()).epochs(2)
    with pytest.warns(UserWarning, match="Poisson batches"):
        report = training.accountant.report()
    assert not [one for one in training.accountant.reasons if "charged for" in one]
    assert report.run == direct(li.ShuffledEachEpoch(120, 20), 12, momentum=0.9)
    assert report.epsilon(DELTA) < report.all["composition/fixed-order"].epsilon(DELTA)
    assert training.accountant.get_epsilon(DELTA) == report.epsilon(DELTA)
    said = report.statement(delta=DELTA)
    assert "SGD with momentum 0.9" in said
    assert "optimizer's state and all checkpoints stay secret" in said


class TestCurvature:
    """The condition on gradient differences that the bound for momentum rests on."""

    def differences(self, training, classes, seed):
        rng = torch.Generator().manual_seed(seed)
        rows, labels = training.loader.dataset.tensors
        found = []
        for size in (0.3, 3.0, 3.0, 30.0, 30.0):
            with torch.no_grad():
                for one in training.model.parameters():
                    one.copy_(size * torch.randn(one.shape, generator=rng))
            training.backward(rows[:6], labels[:6])
            training.optimizer.clip_and_accumulate()
            gradient = torch.cat([one.summed_grad.flatten() for one in training.optimizer.params])
            point = torch.cat([one.detach().flatten() for one in training.optimizer.params])
            found.append((point.double(), gradient.double() / 6))
            training.optimizer._is_last_step_skipped = False
        return [(p - q, g - h) for p, g in found for q, h in found]

    @pytest.mark.parametrize("classes, clip", [(2, 0.3), (2, 1.5), (3, 0.7), (3, 2.0)])
    @pytest.mark.parametrize("seed", range(4))
    def test_clipped_gradients_stay_in_the_ball(self, classes, clip, seed):
        loss = lo.softmax(feature_bound=1.0, classes=classes)
        lo.register(loss=loss)
        loader = loader_of(classes=classes, shuffle=False)
        training = training_with({"momentum": 0.9}, loader=loader, outputs=classes, clip=clip)
        pairs = self.differences(training, classes, seed)
        trained = training_with({"momentum": 0.9}, loader=loader, outputs=classes, clip=clip)
        low, top = curvature(trained.epochs(1).accountant.run())
        for moved, turned in pairs:
            turned = turned + 0.01 * moved
            off = float((turned - (low + top) / 2 * moved).norm())
            assert off <= (top - low) / 2 * float(moved.norm()) + 1e-5

    def test_an_active_clip_of_three_classes_may_bend_either_way(self):
        lo.register(loss=lo.softmax(feature_bound=1.0, classes=3))
        loader = loader_of(classes=3, shuffle=False)
        training = training_with({"momentum": 0.9}, loader=loader, outputs=3, clip=0.7).epochs(1)
        low, _ = curvature(training.accountant.run())
        assert low == pytest.approx(0.01 - 1.0)

    def test_decay_of_some_parameters_only(self):
        def without_decay_of_the_bias(parameters, *, lr, weight_decay):
            weight, bias = parameters
            groups = [{"params": [weight], "weight_decay": weight_decay}, {"params": [bias]}]
            return torch.optim.SGD(groups, lr=lr, momentum=0.9)

        training = Training(
            loader_of(shuffle=False), optimizer=without_decay_of_the_bias, lr=0.05, decay=0.01
        )
        run = training.epochs(2).accountant.run()
        assert curvature(run) == (0.0, 1.01)
        assert not [one for one in training.accountant.reasons if "charged for" in one]


class TestEveryIterateIsChargedFor:
    def charged(self, training, why):
        with pytest.warns(UserWarning, match=why):
            report = training.accountant.report()
        assert report.bound == "composition/fixed-order"
        assert report.gdp() == pytest.approx(math.sqrt(2) / 2.0, rel=1e-6)

    @pytest.mark.parametrize("more", [{"dampening": 1.0}, {"dampening": -0.5}])
    def test_dampening_out_of_range(self, more):
        self.charged(training_with({"momentum": 0.9, **more}).epochs(2), "not in \\[0, 1\\)")

    @pytest.mark.parametrize(
        "name, value, why",
        [
            ("momentum", 0.0, "momentum is 0 in some steps"),
            ("dampening", 0.3, "dampening changes"),
            ("nesterov", True, "nesterov changes"),
        ],
    )
    def test_settings_that_change(self, name, value, why):
        training = training_with({"momentum": 0.9}).epochs(1)
        training.optimizer.param_groups[0][name] = value
        self.charged(training.epochs(1), why)

    def test_a_buffer_from_elsewhere(self):
        training = training_with({"momentum": 0.9})
        for one in training.optimizer.params:
            training.optimizer.state[one]["momentum_buffer"] = torch.ones_like(one)
        self.charged(training.epochs(2), "not empty before the first step")

    def test_a_buffer_that_something_else_changes(self):
        training = training_with({"momentum": 0.9}).epochs(1)
        for one in training.optimizer.params:
            training.optimizer.state[one]["momentum_buffer"].mul_(0.5)
        self.charged(training.epochs(1), "buffer was changed between steps")

    def test_a_buffer_that_is_emptied_in_part(self):
        training = training_with({"momentum": 0.9}).epochs(1)
        training.optimizer.state[training.optimizer.params[0]].clear()
        self.charged(training.epochs(1), "buffer was changed between steps")

    def test_poisson_batches(self):
        training = training_with({"momentum": 0.9}, loader=loader_of(), poisson_sampling=True)
        with pytest.warns(UserWarning, match="only batches of a fixed size have a bound"):
            report = training.epochs(2).accountant.report()
        assert report.bound.startswith("composition/")


class TestWhichBatchesHaveLess:
    """The reason has the epsilon of either, and advises none that is worse."""

    def accountant(self, loader, **settings):
        made = training_with({"momentum": 0.9}, loader=loader, lr=0.5, decay=0.1, **settings)
        return made.epochs(2).accountant

    def test_shuffled_batches_that_cost_more_than_composition_of_poisson_batches(self):
        shuffled = self.accountant(loader_of())
        with pytest.warns(UserWarning, match=r"Poisson batches \(poisson_sampling=True\) have"):
            here = shuffled.get_epsilon(DELTA)
        poisson = self.accountant(loader_of(), poisson_sampling=True)
        with pytest.warns(UserWarning, match="which may be less or more"):
            there = poisson.get_epsilon(DELTA)
        assert here > 2.0 * there
        (reason,) = shuffled.reasons
        assert f"epsilon {here:.4g}, Poisson batches (poisson_sampling=True) have {there:.4g}" in (
            reason
        )
        (reason,) = poisson.reasons
        assert reason.endswith(f"epsilon {there:.4g}, and no others have less")

    def test_the_same_warning_is_given_once(self):
        training = training_with({"momentum": 0.9}, loader=loader_of(), lr=0.5)
        with pytest.warns(UserWarning, match="Poisson batches"):
            training.epoch().accountant.report()
        training.epoch().accountant.report()  # a further warning would be an error

    @pytest.mark.slow
    def test_batches_of_a_fixed_size_that_cost_less(self):
        short = {"momentum": 0.9, "step_size": 0.05, "noise": 4.0}
        loss = li.Loss(
            smoothness=0.35, strong_convexity=0.1, regulariser=0.1, lipschitz=2.0, outputs=1
        )
        run = direct(li.PoissonSampled(120, 20), 600, **short, loss=loss)
        (reason,) = better_batches(run, thorough=True)
        there = li.account(run.replace(batches=li.Cyclic(120, 20))).epsilon(DELTA)
        assert there < 0.5 * li.account(run).epsilon(DELTA)
        assert f"shuffle=False, drop_last=True) have {there:.4g}" in reason
        assert better_batches(run.replace(batches=li.Cyclic(120, 20)), thorough=True) == ()

    def test_plain_steps_with_a_secret_order_have_no_such_reason(self):
        run = direct(li.ShuffledEachEpoch(120, 20), 12)
        assert better_batches(run, thorough=True) == ()


class TestCheckpoints:
    def test_a_schedule_of_momentum(self):
        training = training_with({"momentum": 0.5}).epochs(1)
        training.optimizer.param_groups[0]["momentum"] = 0.9
        run = training.epochs(1).accountant.run()
        assert run.momentum == (0.5,) * 6 + (0.9,) * 6
        assert li.account(run).bound == "fixed-order/momentum"

    @pytest.mark.parametrize("whole", [True, False])
    def test_saved_loaded_and_continued(self, tmp_path, whole):
        """Without the optimizer's state the buffer begins anew, and that is recorded."""
        first = training_with({"momentum": 0.9}).epochs(2)
        file = tmp_path / "checkpoint.pt"
        first.engine.save_checkpoint(path=file, module=first.model, optimizer=first.optimizer)
        second = training_with({"momentum": 0.9})
        if whole:
            second.engine.load_checkpoint(
                path=file, module=second.model, optimizer=second.optimizer
            )
        else:
            second.engine.load_checkpoint(path=file, module=second.model)
        run = second.epochs(1).accountant.run()
        resets = () if whole else (13,)
        assert run == direct(li.Cyclic(120, 20), 18, momentum=0.9, buffer_resets=resets)

    def test_the_plan_for_a_target(self):
        loader, model = loader_of(shuffle=False), nn.Linear(4, 2)
        plain = torch.optim.SGD(model.parameters(), lr=0.05, weight_decay=0.01, momentum=0.9)
        planned = {"max_grad_norm": 2.0, "data_loader": loader, "poisson_sampling": False}
        lo.register(loss=BINARY, plan=lo.TrainingPlan(optimizer=plain, **planned))
        with pytest.warns(UserWarning, match="same order"):
            noise = get_noise_multiplier(
                target_epsilon=2.0,
                target_delta=DELTA,
                sample_rate=1 / 6,
                epochs=3,
                accountant="last-iterate",
                epsilon_tolerance=0.5,
            )
        run = direct(li.Cyclic(120, 20), 18, momentum=0.9, noise=noise)
        assert 1.5 <= li.account(run).epsilon(DELTA) <= 2.0
        training = training_with({"momentum": 0.9}, loader=loader, model=model, noise=noise)
        assert training.epochs(3).accountant.run() == run

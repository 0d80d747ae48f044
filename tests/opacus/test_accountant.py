"""The number is that of the run as it took place, whatever way Opacus is used."""

import copy
import math
import re
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from opacus.accountants import PRVAccountant
from opacus.accountants.utils import get_noise_multiplier
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import lastiterate as li
import lastiterate.opacus as lo
from lastiterate.bounds.momentum import recursion_of
from lastiterate.opacus.accountant import better_batches
from tests.docs.pages import blocks

from .trainings import (
    BINARY,
    DELTA,
    MODES,
    Training,
    direct,
    epsilon,
    loader_of,
    refused,
    same,
    sgd,
)

EACH, POISSON = li.ShuffledEachEpoch(120, 20), li.PoissonSampled(120, 20)
TWICE = direct(EACH, 12)


def logistic_outputs(outputs, labels):
    return nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], labels.float())


def one_logit():
    lo.register(loss=lo.logistic(feature_bound=1.0, bias=False))
    model = nn.Linear(4, 1, bias=False)
    return Training(model=model, criterion=logistic_outputs, clip=0.5).epochs(2)


def three_classes():
    lo.register(loss=lo.softmax(feature_bound=1.0, classes=3), adjacency="replace")
    return Training(loader_of(classes=3), outputs=3, clip=2.1).epochs(2)


def a_stated_loss():
    lo.register(loss=li.Loss(smoothness=1.0, lipschitz=1.9), examples_per_person=2)
    return Training().epochs(2)


def passes_that_are_cut():
    training = Training(poisson_sampling=True)
    return training.epoch(islice(training.loader, 2)).epoch(islice(training.loader, 3))


def sums():
    """A step of .01 on a sum of 20 gradients is one of .2 on their mean, the decay apart."""
    summed = nn.CrossEntropyLoss(reduction="sum")
    return Training(loss_reduction="sum", criterion=summed, lr=0.01).epochs(2)


def another_divisor():
    training = Training(poisson_sampling=True)
    training.optimizer.expected_batch_size = 12.5
    return training.epochs(2)


def in_mode(mode):
    return Training(grad_sample_mode=mode)


def stated(smoothness=1.05, regulariser=0.05, lipschitz=2.0, outputs=1):
    return li.Loss(
        smoothness=smoothness, regulariser=regulariser, lipschitz=lipschitz, outputs=outputs
    )


# A training, and the run that it is; of 130 examples, ten are left over in every epoch.
WAYS = {
    **{f"mode {one}": (lambda one=one: in_mode(one).epochs(2), TWICE) for one in MODES},
    "virtual": (lambda: in_mode("hooks").virtual().virtual(), TWICE),
    "virtual ghost": (lambda: in_mode("ghost").virtual().virtual(), TWICE),
    "workers": (lambda: Training(loader_of(num_workers=1)).epochs(2), TWICE),
    "full": (lambda: Training(loader_of(batch_size=120)).epochs(3), direct(li.FullBatch(120), 3)),
    "Poisson at rate 1": (
        lambda: Training(loader_of(batch_size=120), poisson_sampling=True).epochs(3),
        direct(li.FullBatch(120), 3)),
    "Poisson": (lambda: Training(poisson_sampling=True).epochs(2), direct(POISSON, 12)),
    "Poisson, cut short": (passes_that_are_cut, direct(POISSON, 5)),
    "last pass cut short": (lambda: Training().epoch().epoch(batches=2), direct(EACH, 8)),
    "sums": (sums, direct(EACH, 12, lr=0.2, loss=stated(1.0025, 0.0025))),
    "one logit": (
        one_logit, direct(EACH, 12, loss=stated(smoothness=0.3, lipschitz=0.5), clip_norm=0.5)),
    "three classes": (
        three_classes,
        direct(EACH, 12, loss=stated(outputs=3), clip_norm=2.1, adjacency="replace")),
    "a stated loss": (
        a_stated_loss,
        direct(EACH, 12, loss=stated(lipschitz=1.9, outputs=None), examples_per_person=2)),
    "left over, divided by 21": (
        lambda: Training(loader_of(130)).epochs(3),
        direct(li.ShuffledEachEpoch(130, 20), 18, divisor=21)),
    "left over, divided by 20": (
        lambda: Training(loader_of(123)).epochs(3),
        direct(li.ShuffledEachEpoch(123, 20), 18, divisor=20)),
    "one batch of a part": (
        lambda: Training(loader_of(130, 100)).epochs(3),
        direct(li.ShuffledEachEpoch(130, 100), 3, divisor=130)),
    "Poisson, dropped": (
        lambda: Training(loader_of(130), poisson_sampling=True).epochs(3),
        direct(li.PoissonSampled(130, 21, sample_rate=1 / 6), 18, divisor=21)),
    "Poisson, not dropped": (
        lambda: Training(loader_of(130, drop_last=False), poisson_sampling=True).epochs(3),
        direct(li.PoissonSampled(130, 18, sample_rate=1 / 7), 21, divisor=18)),
    "somebody's divisor": (another_divisor, direct(POISSON, 12, divisor=12.5)),
}  # fmt: skip


class TestTheRunIsTheOneThatTookPlace:
    @pytest.mark.parametrize("name", WAYS)
    def test_by_every_way_to_use_it(self, name):
        make, run = WAYS[name]
        assert same(make().accountant, run)

    @pytest.mark.parametrize("examples, divisor", [(120, None), (130, 21)])
    def test_in_order(self, examples, divisor):
        cyclic = Training(loader_of(examples, shuffle=False)).epochs(2)
        why = "^batches are in the same order .*poisson_sampling=True.*shuffle=True"
        with pytest.warns(UserWarning, match=why):
            assert not same(cyclic.accountant, direct(li.Cyclic(examples, 20), 12, divisor=divisor))
        (reason,) = cyclic.accountant.reasons
        assert re.match(why, reason)

    def test_schedules_of_steps_and_noise(self):
        training = Training()
        scheduler = torch.optim.lr_scheduler.StepLR(
            training.optimizer.original_optimizer, 1, gamma=0.5
        )

        def more_noise():
            scheduler.step()
            training.optimizer.noise_multiplier += 1.0

        training.epoch(each=more_noise)
        expected = direct(EACH, 6, step_size=[0.5 * 0.5**k for k in range(6)])
        noises = tuple((2.0 + k) * 2.0 / 20 for k in range(6))
        with pytest.warns(UserWarning, match="found a schedule"):
            same(training.accountant, expected.replace(noise_std=noises))

    def test_a_divisor_that_changes(self):
        training = Training().epoch()
        training.optimizer.expected_batch_size = 25
        with pytest.warns(UserWarning, match="divisor of gradient sums changes from step to step"):
            report = training.epoch().accountant.report()
        assert report.bound == "composition/fixed-order"

    def test_in_the_step_that_opacus_makes(self):
        """x - eta'(mean of gradients + noise + w' x), with the noise that was drawn."""
        training = Training(loader_of(130))
        model, optimizer = training.model, training.optimizer
        before = torch.cat([one.detach().flatten() for one in model.parameters()])
        training.backward(*next(iter(training.loader)))
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

    def test_models_are_still_copied_and_saved(self, tmp_path):
        training = Training().epoch()
        torch.save(training.model._module, tmp_path / "model")
        copies = copy.deepcopy(training.model), torch.load(tmp_path / "model", weights_only=False)
        with torch.no_grad():
            expected = training.model(torch.ones(3, 4))
            assert all(torch.equal(one(torch.ones(3, 4)), expected) for one in copies)
        assert training.epoch().accountant.reasons == ()


class TestAClipAtTheBoundOfThreeClasses:
    """Opacus divides by the norm plus 1e-6, so it does act, on saturated gradients only."""

    def trained(self, clip=None, **settings):
        loss = lo.softmax(feature_bound=1.0, classes=3)
        lo.register(loss=loss)
        clip = loss.max_grad_norm if clip is None else clip
        return Training(loader_of(classes=3), outputs=3, clip=clip, **settings).epochs(2).accountant

    def test_costs_strong_convexity(self):
        at_bound, never = self.trained(2.0), self.trained()
        assert not never.run().clip_may_be_active
        assert not at_bound.run().clip_may_be_active
        assert at_bound.run().loss.strong_convexity < 0.05
        unbent, any_outputs = (direct(EACH, 12, loss=stated(outputs=k)) for k in (3, None))
        assert same(never, unbent, rel=1e-5)
        # Where the clip twists gradients, a step is not the gradient of a loss.
        assert same(at_bound, any_outputs, rel=1e-3)
        assert at_bound.get_epsilon(DELTA) > epsilon(any_outputs)

    @pytest.mark.parametrize("clip, decay", [(2.0, 0.0), (1.0, 0.05)])
    def test_or_below_it_is_said_to_act(self, clip, decay):
        accountant = self.trained(clip, decay=decay)
        assert accountant.run().clip_may_be_active
        (reason,) = accountant.reasons
        advised = lo.softmax(feature_bound=1.0, classes=3).max_grad_norm
        assert f"take max_grad_norm=loss.max_grad_norm, {advised!r}" in reason

    def test_two_mistakes_are_named_at_once(self):
        """The bound for clipped steps would ask for a bounded domain, which is neither."""
        reasons = " ".join(self.trained(1.0, lr=2.5).reasons)
        assert "max_grad_norm=loss.max_grad_norm" in reasons
        assert "shorten the steps" in reasons
        assert "Ball" not in reasons


class TestReasons:
    def test_all_at_once(self):
        """Those of composition, and those that would be left without them."""
        lo.register(loss=lo.softmax(feature_bound=1.0, classes=3))
        loader = loader_of(130, classes=3, drop_last=False)
        training = Training(loader, outputs=3, optimizer=torch.optim.Adam, clip=1.0).epoch()
        training.optimizer.param_groups[0]["lr"] = 50.0
        with pytest.warns(UserWarning, match="charged for: .*Adam.*Without that: a better bound"):
            training.epoch().accountant.report()
        found = "; ".join(training.accountant.reasons)
        for why in (
            "Adam, not torch.optim.SGD",
            "drop_last=True",
            "take max_grad_norm=loss.max_grad_norm",
            "found a schedule",
        ):
            assert why in found

    def reason(self, each=lambda training: lambda: None, **settings):
        training = Training(**settings)
        for _ in range(2):
            training.epoch(each=each(training))
        with pytest.warns(UserWarning, match="a better bound needs"):
            training.accountant.report()
        (reason,) = training.accountant.reasons
        return reason

    def test_steps_that_are_too_long(self):
        assert "found step_size 5.0 > 1.9" in self.reason(lr=5.0)

    @pytest.mark.parametrize("poisson", [False, True])
    def test_schedules(self, poisson):
        def cosine(training):
            plain = training.optimizer.original_optimizer
            return torch.optim.lr_scheduler.CosineAnnealingLR(plain, 100).step

        assert "found a schedule" in self.reason(poisson_sampling=poisson, each=cosine)

    def test_a_stated_loss_without_a_bound(self):
        lo.register(loss=li.Loss(smoothness=1.0))
        assert "state loss.lipschitz" in self.reason()

    @pytest.mark.parametrize(
        "released, bound",
        [("last-iterate-and-order", None), ("every-iterate", "composition/fixed-order")],
    )
    def test_what_is_published_is_the_users_choice(self, released, bound):
        lo.register(loss=BINARY, releases=released)
        accountant = Training().epochs(2).accountant
        assert accountant.reasons == ()
        assert accountant.run().releases == released
        assert bound is None or accountant.report().bound == bound


class TestRegister:
    @pytest.mark.parametrize(
        "settings, kind, why",
        [
            (
                {"loss": li.Loss(smoothness=1.0, regulariser=0.1)},
                li.InvalidParameter,
                "weight decay is read from the optimizer",
            ),
            ({"loss": "convex"}, TypeError, "loss must be"),
            ({"adjacency": "add-remove"}, li.InvalidParameter, "adjacency"),
        ],
    )
    def test_refuses(self, settings, kind, why):
        with pytest.raises(kind, match=why):
            lo.register(**settings)

    def test_needs_no_loader(self):
        made = lo.register(loss=BINARY, name="another")
        assert made.mechanism() == "another"
        assert made().get_epsilon(DELTA) == 0.0


class TestCheckpoints:
    @pytest.mark.parametrize("poisson", [False, True])
    def test_saved_loaded_and_continued(self, tmp_path, poisson):
        first = Training(poisson_sampling=poisson).epochs(2)
        file = tmp_path / "checkpoint.pt"
        first.engine.save_checkpoint(path=file, module=first.model, optimizer=first.optimizer)
        second = Training(poisson_sampling=poisson)
        second.engine.load_checkpoint(path=file, module=second.model, optimizer=second.optimizer)
        assert second.accountant.run() == first.accountant.run()
        assert len(second.accountant) == 12
        assert same(second.epoch().accountant, direct(POISSON if poisson else EACH, 18))

    def test_in_the_middle_of_an_epoch(self):
        """The rest of it is shuffled anew, so that some may be seen twice."""
        first = Training().epoch().epoch(batches=2)
        second = Training(model=nn.Linear(4, 2)).continued(first).epoch()
        with pytest.warns(UserWarning, match="not finished"):
            report = second.accountant.report()
        assert report.run.batches.positions == (1, 7, 9)
        assert report.bound == "composition/fixed-order"

    def test_of_a_loss_that_is_not_stated(self):
        """An older state would forget the steps that the model made since."""
        lo.register()
        first = Training().epoch()
        state = first.accountant.state_dict()
        same_model = Training().continued(first).epoch()
        assert same_model.accountant.run().steps == 12
        later = Training()
        later.model.load_state_dict(first.epoch().model.state_dict())
        later.accountant.load_state_dict(state)
        refused(later, "changed between steps")

    def test_of_another_model_or_of_other_batches(self):
        first = Training().epoch()
        other = Training()
        other.accountant.load_state_dict(first.accountant.state_dict())
        refused(other, "load the model and the optimizer")
        smaller = Training(loader_of(batch_size=10))
        with pytest.raises(lo.RefusedTraining, match="other batches"):
            smaller.accountant.load_state_dict(first.accountant.state_dict())
        with pytest.raises(ValueError, match="'watched'"):
            smaller.accountant.load_state_dict({"history": [], "mechanism": "last-iterate"})


class TestWhatALoopCatches:
    """A refusal that was caught is no training that can be accounted for after all."""

    def refused_for_good(self, training, why):
        for ask in (
            lambda: training.engine.get_epsilon(DELTA),
            training.accountant.report,
            training.accountant.run,
            lambda: training.accountant.reasons,
            training.epoch,
        ):
            with pytest.raises(lo.RefusedTraining, match=why):
                ask()

    @pytest.mark.parametrize("earlier", [0, 1])
    @pytest.mark.parametrize("bare", [False, True])
    def test_and_goes_on(self, earlier, bare):
        training = Training().epochs(earlier)
        rows, labels = next(iter(training.loader))
        refused(training, "of 40 rows", [(torch.cat([rows, rows]), torch.cat([labels, labels]))])
        if bare:
            training.optimizer.original_optimizer.step()
        self.refused_for_good(training, "of 40 rows")

    @pytest.mark.parametrize("mode", ["hooks", "ghost"])
    def test_before_the_step(self, mode):
        training = Training(grad_sample_mode=mode).epoch()
        rows, labels = next(iter(training.loader))
        rows[3] = math.nan
        refused(training, "nan or infinite", [(rows, labels)])
        self.refused_for_good(training, "nan or infinite")

    def test_and_saves(self):
        training = Training().epoch()
        rows, labels = next(iter(training.loader))
        refused(training, "of 3 rows", [(rows[:3], labels[:3])])
        second = Training()
        second.accountant.load_state_dict(training.accountant.state_dict())
        self.refused_for_good(second, "of 3 rows")

    @pytest.mark.parametrize(
        "earlier, why", [(0, "attach_step_hook"), (1, "after the last private step")]
    )
    def test_another_hook_for_the_one_of_the_accountant(self, earlier, why):
        lo.register()
        training = Training().epochs(earlier)
        training.optimizer.attach_step_hook(lambda _: None)
        training.epoch()
        with pytest.raises(lo.RefusedTraining, match=why):
            training.engine.get_epsilon(DELTA)

    def test_a_history_that_is_emptied(self):
        training = Training().epoch()
        before = training.engine.get_epsilon(DELTA)
        training.accountant.history.clear()
        assert training.engine.get_epsilon(DELTA) == before > 0.0

    def test_a_state_of_before(self):
        lo.register()
        training = Training().epoch()
        state = training.accountant.state_dict()
        training.epoch()
        with pytest.warns(UserWarning, match="every iterate"):
            before = training.engine.get_epsilon(DELTA)
        with pytest.raises(lo.RefusedTraining, match="saw 12 steps"):
            training.accountant.load_state_dict(state)
        assert training.engine.get_epsilon(DELTA) == before

    def test_another_loader(self):
        """The one that was watched stays so."""
        training = Training().epoch()
        before = training.accountant.run()
        with pytest.raises(lo.RefusedTraining, match="saw other batches"):
            training.accountant.watch(loader_of(batch_size=30))
        assert training.accountant.run() == before
        assert training.epoch().accountant.run().steps == 12


def noise_for(target=2.0, tolerance=0.5, **settings):
    return get_noise_multiplier(
        target_epsilon=target,
        target_delta=DELTA,
        sample_rate=1 / 6,
        accountant="last-iterate",
        epsilon_tolerance=tolerance,
        **settings,
    )


class TestTheNoiseForATarget:
    @pytest.mark.parametrize("momentum", [0.0, 0.9])
    @pytest.mark.filterwarnings("ignore:batches are in the same order")
    def test_by_make_private_with_epsilon(self, momentum):
        rule, settings = (li.Cyclic(120, 20) if momentum else EACH), {"lr": 0.05, "decay": 0.01}
        loader, model = loader_of(shuffle=not momentum), nn.Linear(4, 2)
        plain = torch.optim.SGD(model.parameters(), lr=0.05, weight_decay=0.01, momentum=momentum)
        planned = {"max_grad_norm": 2.0, "data_loader": loader, "poisson_sampling": False}
        lo.register(loss=BINARY, plan=lo.TrainingPlan(optimizer=plain, **planned))
        noise = noise_for(epochs=3)
        expected = direct(rule, 18, noise_multiplier=noise, **settings)
        expected = expected.replace(momentum=momentum, clip_norm=None)
        assert 1.5 <= epsilon(expected) <= 2.0
        optimizer = sgd(momentum=momentum)
        training = Training(loader, model=model, noise=noise, optimizer=optimizer, **settings)
        assert training.epochs(3).accountant.run() == expected

    @pytest.mark.parametrize(
        "rule", [li.ShuffledEachEpoch(130, 20), li.PoissonSampled(130, 21, sample_rate=1 / 6)]
    )
    def test_by_a_plan_with_another_divisor(self, rule):
        plain = torch.optim.SGD(nn.Linear(4, 2).parameters(), lr=0.5, weight_decay=0.05)
        plan = lo.TrainingPlan(
            optimizer=plain,
            max_grad_norm=2.0,
            data_loader=loader_of(130),
            poisson_sampling=not rule.exact_size,
        )
        accountant = lo.register(loss=BINARY, plan=plan)()
        accountant.history = [(2.0, 1 / 6, 18)]
        expected = epsilon(direct(rule, 18, divisor=21))
        assert accountant.get_epsilon(DELTA) == pytest.approx(expected, rel=1e-9)

    def test_without_a_plan_every_iterate_is_charged_for(self):
        with pytest.warns(UserWarning, match="the plan has no optimizer"):
            noise = noise_for(steps=18, tolerance=1.5)
        run = li.TrainingRun.from_dp_sgd(
            examples=120, batch_size=20, steps=18, clip_norm=2.0, noise_multiplier=noise
        )
        assert 0.5 <= epsilon(run) <= 2.0


OPTIMIZERS = {
    "heavy ball": {"momentum": 0.9},
    "dampened": {"momentum": 0.8, "dampening": 0.4},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "no foreach": {"momentum": 0.9, "foreach": False},
}


def with_momentum(more=OPTIMIZERS["heavy ball"], loader=None, **settings):
    loader = loader_of(shuffle=False) if loader is None else loader
    settings = {"lr": 0.05, "decay": 0.01} | settings
    return Training(loader, optimizer=sgd(**more), **settings)


def direct_with_momentum(batches, steps, **changes):
    changes = {"momentum": 0.9, "clip_norm": None} | changes
    return direct(batches, steps, decay=0.01, lr=0.05).replace(**changes)


class TestMomentum:
    """What is not proved is composed; see test_training_record.py."""

    @pytest.mark.parametrize("name", OPTIMIZERS)
    @pytest.mark.parametrize("examples", [120, 130])  # Opacus divides sums over 20 of 130 by 21
    def test_the_recursion_that_is_charged_is_the_one_that_ran(self, name, examples):
        loader = loader_of(examples, shuffle=False)
        rows, labels = loader.dataset.tensors
        loader.dataset.tensors = (rows.double(), labels)
        training = with_momentum(OPTIMIZERS[name], loader, model=nn.Linear(4, 2).double())

        def parameters():
            return torch.cat([one.detach().flatten() for one in training.model.parameters()])

        x, gradients, observe = parameters().numpy().copy(), [], training.optimizer.step_hook

        def hook(found):
            observe(found)
            gradients.append(torch.cat([one.grad.flatten().clone() for one in found.params]))

        training.optimizer.step_hook = hook
        training.epochs(2)
        training.optimizer.param_groups[0]["lr"] = 0.02  # keeps the buffer
        training.epoch()
        training.optimizer.original_optimizer.state.clear()
        training.epoch()
        run, divisor = training.accountant.run(), training.optimizer.expected_batch_size
        assert run.releases == "last-iterate"  # not every iterate is charged for
        assert run.buffer_resets == (19,)
        assert run.momentum == OPTIMIZERS[name]["momentum"]
        assert divisor == (20 if examples == 120 else 21)
        # z_k = A_k z_{k-1} + B_k g_k with the entries that the certificate is about; the charged
        # run averages over a batch, and its penalty is scaled as the rest is.
        entries = [np.asarray(entry) for entry in recursion_of(run).entries()]
        buffer = np.zeros(len(x))
        for noisy, a00, a01, a10, a11, b0, b1 in zip(gradients, *entries, strict=True):
            gradient = (noisy.numpy() + 0.01 * x) * divisor / run.batches.batch_size
            x, buffer = (
                a00 * x + a01 * buffer + b0 * gradient,
                a10 * x + a11 * buffer + b1 * gradient,
            )
        assert x == pytest.approx(parameters().numpy(), abs=1e-13)

    @pytest.mark.parametrize("name", OPTIMIZERS)
    def test_is_accounted_for(self, name):
        run = with_momentum(OPTIMIZERS[name]).epochs(3).accountant.run()
        settings = {k: v for k, v in OPTIMIZERS[name].items() if k != "foreach"}
        assert run == direct_with_momentum(li.Cyclic(120, 20), 18, **settings)
        assert li.account(run).bound == "fixed-order/momentum"

    def test_the_loop_that_people_write(self):
        """Shuffled batches, momentum .9, decay .01: the momentum bound, far below composition."""
        training = with_momentum(loader=loader_of()).epochs(2)
        with pytest.warns(UserWarning, match="Poisson batches"):
            report = training.accountant.report()
        assert report.run == direct_with_momentum(EACH, 12)  # of which the last iterate is released
        assert report.epsilon(DELTA) < report.all["composition/fixed-order"].epsilon(DELTA)
        assert training.accountant.get_epsilon(DELTA) == report.epsilon(DELTA)
        said = report.statement(delta=DELTA)
        assert "SGD with momentum 0.9" in said
        assert "optimizer's state and all checkpoints stay secret" in said
        training.epoch().accountant.report()  # the same warning again would be an error

    def test_a_schedule(self):
        training = with_momentum({"momentum": 0.5}).epoch()
        training.optimizer.param_groups[0]["momentum"] = 0.9
        run = training.epoch().accountant.run()
        assert run.momentum == (0.5,) * 6 + (0.9,) * 6
        assert li.account(run).bound == "fixed-order/momentum"

    @pytest.mark.parametrize("whole", [True, False])
    def test_saved_loaded_and_continued(self, tmp_path, whole):
        """Without the optimizer's state the buffer begins anew, and that is recorded."""
        first, file = with_momentum().epochs(2), tmp_path / "checkpoint.pt"
        first.engine.save_checkpoint(path=file, module=first.model, optimizer=first.optimizer)
        second = with_momentum()
        more = {"optimizer": second.optimizer} if whole else {}
        second.engine.load_checkpoint(path=file, module=second.model, **more)
        resets = () if whole else (13,)
        expected = direct_with_momentum(li.Cyclic(120, 20), 18, buffer_resets=resets)
        assert second.epoch().accountant.run() == expected

    @pytest.mark.parametrize("drawn", [EACH, POISSON])
    def test_the_batches_that_have_less_are_advised(self, drawn):
        """The reason has the epsilon of either, and advises none that is worse."""
        poisson = drawn == POISSON
        settings = {"lr": 0.5, "decay": 0.1, "poisson_sampling": poisson}
        accountant = with_momentum(loader=loader_of(), **settings).epochs(2).accountant
        why = "which may be less or more" if poisson else "Poisson batches .* have"
        with pytest.warns(UserWarning, match=why):
            here = accountant.get_epsilon(DELTA)
        (reason,) = accountant.reasons
        if poisson:
            assert reason.endswith(f"epsilon {here:.4g}, and no others have less")
            return
        there = epsilon(accountant.run().replace(batches=POISSON))
        assert here > 2.0 * there
        said = f"epsilon {here:.4g}, Poisson batches (poisson_sampling=True) have {there:.4g}"
        assert said in reason

    @pytest.mark.slow
    def test_batches_of_a_fixed_size_that_cost_less(self):
        loss = li.Loss(
            smoothness=0.35, strong_convexity=0.1, regulariser=0.1, lipschitz=2.0, outputs=1
        )
        run = direct_with_momentum(POISSON, 600, noise_std=0.4, loss=loss)
        (reason,) = better_batches(run, thorough=True)
        cyclic = run.replace(batches=li.Cyclic(120, 20))
        assert epsilon(cyclic) < 0.5 * epsilon(run)
        assert f"shuffle=False, drop_last=True) have {epsilon(cyclic):.4g}" in reason
        assert better_batches(cyclic, thorough=True) == ()

    def test_plain_steps_with_a_secret_order_have_no_such_reason(self):
        assert better_batches(TWICE, thorough=True) == ()


ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "dp-sgd.md"


def loops(page):
    """The blocks of a page that import Opacus."""
    parts = page.read_text(encoding="utf-8").split("```")
    return [part.removeprefix("python\n") for part in parts if "from opacus import" in part]


def changed_lines(page, added):
    """The code after the change that a page shows, without what was taken out."""
    (diff,) = [one.text for one in blocks(ROOT / page) if one.language == "diff"]
    assert len(re.findall(r"^\+", diff, re.MULTILINE)) == added
    return re.sub(r"^[+ ]", "", re.sub(r"^-.*\n", "", diff, flags=re.MULTILINE), flags=re.MULTILINE)


def trained(code, rows, labels, model, criterion, epochs=1):
    """The accountant after the usual loop with the model that a page's code makes private."""
    dataset = TensorDataset(rows, labels)
    names = {
        "DataLoader": DataLoader,
        "PrivacyEngine": PrivacyEngine,
        "lo": lo,
        "dataset": dataset,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.5, weight_decay=0.01),
        "loader": DataLoader(dataset, batch_size=40),
    }
    exec(compile(code, str(PAGE), "exec"), names)
    for _ in range(epochs):
        for features, labels in names["loader"]:
            names["optimizer"].zero_grad()
            criterion(names["model"](features), labels).backward()
            names["optimizer"].step()
    return names["engine"].accountant


def described(rule, steps):
    """The numbers of the loop of README and page."""
    return li.TrainingRun.from_dp_sgd(
        batches=rule,
        steps=steps,
        clip_norm=1.0,
        noise_multiplier=1.0,
        step_size=0.5,
        adjacency="zero-out",
        loss=li.Loss(smoothness=0.26, regulariser=0.01, lipschitz=1.0, outputs=1),
    )


def unit_rows(*shape):
    rows = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    return rows / rows.norm(dim=1, keepdim=True)


@pytest.mark.filterwarnings("ignore")
class TestPages:
    """The loops that the documentation shows, run as they stand there."""

    def test_every_page_shows_the_loop_that_is_run_here(self):
        (text,) = loops(PAGE)
        for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
            assert set(loops(page)) <= {text}

    def loop(self, shuffled):
        """One epoch instead of 30, of Poisson or of shuffled batches."""
        (text,) = loops(PAGE)
        changes = {"range(30)": "range(1)"}
        if shuffled:
            changes["shuffle=True)"] = "shuffle=True, drop_last=True)"
            changes["max_grad_norm=1.0,"] = "max_grad_norm=1.0, poisson_sampling=False,"
        for old, new in changes.items():
            assert text.count(old) == 1
            text = text.replace(old, new)
        features = unit_rows(50_000, 4)
        names = {"features": features, "labels": (features[:, 0] > 0).float()}
        exec(compile(text, str(PAGE), "exec"), names)
        assert names["engine"].accountant.reasons == ()
        return names["engine"], names["engine"].accountant.run()

    def test_the_loop_with_poisson_batches(self):
        engine, run = self.loop(shuffled=False)
        expected = epsilon(described(li.PoissonSampled(50_000, 510, sample_rate=1 / 98), 98))
        assert engine.get_epsilon(DELTA) == pytest.approx(expected, rel=1e-9)
        whole = li.account(run.replace(steps=2_940))
        assert 0.9 <= whole.epsilon(DELTA) <= 0.92
        prv = PRVAccountant()
        prv.history = [(1.0, 1 / 98, 2_940)]
        every = whole.all["composition/sampled"].epsilon(DELTA)
        assert every == pytest.approx(prv.get_epsilon(DELTA), rel=0.01)

    def test_the_loop_with_shuffled_batches(self):
        engine, run = self.loop(shuffled=True)
        certified = epsilon(described(li.ShuffledEachEpoch(50_000, 512), 97))
        # A step of .5 * 512/515 with a penalty of .01 * 515/512 contracts as that one does, and is
        # a little shorter, so that it keeps more of earlier noise.
        assert 0.99 * certified <= engine.get_epsilon(DELTA) <= certified
        assert 0.75 <= epsilon(run.replace(steps=2_910)) <= 2.13

    def test_the_loader_for_networks(self):
        (text,) = [
            part.removeprefix("python\n")
            for part in PAGE.read_text(encoding="utf-8").split("```")
            if "collate_fn=lt.EmptyBatches(" in part
        ]
        rows, model = torch.randn(50_000, 4), nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
        labels = (rows[:, :1] > 0).float()
        accountant = trained(text, rows, labels, model, nn.BCEWithLogitsLoss())
        assert accountant.run().batches == li.BallsAndBinsEachEpoch(50_000, 512)
        assert accountant.report().bound == "composition/balls-and-bins"

    def test_the_change_of_the_readme_has_the_epsilon_of_its_table(self):
        rows, model = unit_rows(4_000, 3), nn.Linear(3, 1, bias=False)
        code, labels = changed_lines("README.md", 3), (rows[:, :1] > 0).float()
        accountant = trained(code, rows, labels, model, nn.BCEWithLogitsLoss(), epochs=3)
        assert accountant.reasons == ()
        expected = epsilon(described(li.PoissonSampled(4_000, 40), 300))
        assert accountant.get_epsilon(DELTA) == pytest.approx(expected, rel=1e-6)
        assert accountant.report().bound_at(DELTA) == "random-order/poisson"

    def test_the_change_for_ten_classes_has_no_reason_left(self):
        rows, code = unit_rows(400, 12), changed_lines("docs/dp-sgd.md", 5)
        labels, model = rows[:, :10].argmax(dim=1), nn.Linear(12, 10)
        accountant = trained(code, rows, labels, model, nn.CrossEntropyLoss())
        assert accountant.reasons == ()
        assert not accountant.run().clip_may_be_active

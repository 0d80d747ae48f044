"""What the accountant cannot see or prove is refused, or charged for by composition."""

import math

import pytest
import torch
from opacus.optimizers import DistributedDPOptimizer
from torch import nn
from torch.utils.data import RandomSampler, WeightedRandomSampler

import lastiterate as li
import lastiterate.opacus as lo

from .trainings import Training, loader_of, unit_rows

BINARY = lo.softmax(feature_bound=1.0, classes=2)
DELTA = 1e-5


@pytest.fixture(autouse=True)
def registered():
    return lo.register(loss=BINARY)


class TestNoNumberIsTrue:
    def refused(self, training, why):
        with pytest.raises(lo.RefusedTraining, match=why):
            training.epoch()

    def test_per_layer_clipping(self):
        training = Training(loader_of(), clipping="per_layer", clip=[1.0, 1.0])
        self.refused(training, "every layer is clipped by itself")

    def test_adaptive_clipping(self):
        training = Training(
            loader_of(),
            clipping="adaptive",
            target_unclipped_quantile=0.5,
            clipbound_learning_rate=0.1,
            max_clipbound=10.0,
            min_clipbound=0.1,
            unclipped_num_std=10.0,
        )
        self.refused(training, "learns the clip from the examples")

    def test_distributed_training(self):
        training = Training(loader_of())
        training.optimizer.__class__ = DistributedDPOptimizer
        training.optimizer.rank, training.optimizer.world_size = 0, 1
        self.refused(training, "distributed")

    def test_accumulated_gradients(self):
        training = Training(loader_of())
        rows, labels = next(iter(training.loader))
        training.backward(rows, labels)
        training.criterion(training.model(rows), labels).backward()
        with pytest.raises(lo.RefusedTraining, match="2 forward passes"):
            training.optimizer.step()

    def test_ghost_clipping_where_batches_have_no_step(self):
        training = Training(loader_of(), grad_sample_mode="ghost")
        batches = iter(training.loader)
        for rows, labels in (next(batches), next(batches)):
            training.criterion(training.model(rows), labels).backward()
        with pytest.raises(lo.RefusedTraining, match="cannot be seen"):
            training.optimizer.step()

    @pytest.mark.parametrize(
        "settings, why",
        [
            ({"sampler": WeightedRandomSampler([1.0] * 120, 120)}, "WeightedRandomSampler"),
            (
                {"sampler": RandomSampler(unit_rows(120), replacement=True)},
                "several times into one batch",
            ),
            (
                {"sampler": RandomSampler(unit_rows(120), num_samples=240)},
                "several times into one batch",
            ),
            (
                {"sampler": torch.utils.data.SubsetRandomSampler(range(60))},
                "SubsetRandomSampler",
            ),
            ({"batch_sampler": [[0, 0, 1]]}, "drawn by a list"),
        ],
    )
    def test_samplers(self, settings, why):
        with pytest.raises(lo.RefusedTraining, match=why):
            Training(loader_of(**settings))

    def test_empty_batches_that_are_made_up(self):
        with pytest.raises(lo.RefusedTraining, match="rand_on_empty"):
            Training(loader_of(), poisson_sampling=True, rand_on_empty=True)

    def test_another_loader_than_the_one_that_was_made(self):
        """Left to make Poisson batches, and then trained on shuffled ones: a common mistake."""
        original = loader_of()
        training = Training(original, poisson_sampling=True)
        with pytest.raises(lo.RefusedTraining, match="iterate over that loader"):
            training.epoch(loader=original)

    def test_several_steps_on_one_batch(self):
        training = Training(loader_of())
        rows, labels = next(iter(training.loader))
        training.backward(rows, labels)
        training.optimizer.step()
        training.backward(rows, labels)
        with pytest.raises(lo.RefusedTraining, match="more steps"):
            training.optimizer.step()

    def test_one_engine_for_two_trainings(self):
        first, second = Training(loader_of()).epochs(1), Training(loader_of())
        hook = first.accountant.get_optimizer_hook_fn(1 / 6)
        first.accountant.watch(second.loader)
        second.optimizer.attach_step_hook(hook)
        with pytest.raises(lo.RefusedTraining, match="two trainings"):
            second.epoch()

    def test_parameters_that_something_else_changes(self):
        training = Training(loader_of())
        with pytest.raises(lo.RefusedTraining, match="changed between steps by something else"):
            training.epoch(each=lambda: next(training.model.parameters()).data.mul_(0.5))

    def test_no_noise(self):
        training = Training(loader_of(), noise=0.0)
        with pytest.raises(li.InvalidParameter, match="noise_multiplier must be"):
            training.epoch()
        with pytest.raises(lo.RefusedTraining, match="a step was refused: noise_multiplier"):
            training.engine.get_epsilon(DELTA)

    @pytest.mark.parametrize("kind", [nn.CrossEntropyLoss, nn.NLLLoss])
    def test_a_mean_by_label_weights(self, kind):
        weights = torch.tensor([0.05, 1.0])
        with pytest.raises(lo.RefusedTraining, match=rf"{kind.__name__}\(weight=..\) divides"):
            Training(loader_of(), criterion=kind(weight=weights))
        Training(loader_of(), criterion=kind(weight=weights), grad_sample_mode="ghost")
        summed = kind(weight=weights, reduction="sum")
        Training(loader_of(), criterion=summed, loss_reduction="sum")


class TestWhatALoopCatches:
    """A refusal that was caught is no training that can be accounted for after all."""

    def refused(self, training, why):
        for ask in (
            lambda: training.engine.get_epsilon(DELTA),
            training.accountant.report,
            training.accountant.run,
            lambda: training.accountant.reasons,
            lambda: training.epoch(),
        ):
            with pytest.raises(lo.RefusedTraining, match=why):
                ask()

    @pytest.mark.parametrize("earlier", [0, 1])
    @pytest.mark.parametrize("bare", [False, True])
    def test_and_goes_on(self, earlier, bare):
        training = Training(loader_of()).epochs(earlier)
        rows, labels = next(iter(training.loader))
        training.backward(torch.cat([rows, rows]), torch.cat([labels, labels]))
        with pytest.raises(lo.RefusedTraining, match="of 40 rows"):
            training.optimizer.step()
        if bare:
            training.optimizer.original_optimizer.step()
        self.refused(training, "of 40 rows")

    @pytest.mark.parametrize("mode", ["hooks", "ghost"])
    def test_before_the_step(self, mode):
        training = Training(loader_of(), grad_sample_mode=mode).epochs(1)
        rows, labels = next(iter(training.loader))
        rows[3] = math.nan
        with pytest.raises(lo.RefusedTraining, match="nan or infinite"):
            training.epoch(loader=[(rows, labels)])
        self.refused(training, "nan or infinite")

    def test_and_saves(self):
        training = Training(loader_of()).epochs(1)
        rows, labels = next(iter(training.loader))
        training.backward(rows[:3], labels[:3])
        with pytest.raises(lo.RefusedTraining, match="of 3 rows"):
            training.optimizer.step()
        second = Training(loader_of())
        second.accountant.load_state_dict(training.accountant.state_dict())
        self.refused(second, "of 3 rows")

    def test_another_hook_for_the_one_of_the_accountant(self):
        training = Training(loader_of())
        training.optimizer.attach_step_hook(lambda _: None)
        training.epoch()
        with pytest.raises(lo.RefusedTraining, match="attach_step_hook"):
            training.engine.get_epsilon(DELTA)

    def test_another_hook_after_some_steps(self):
        lo.register()
        training = Training(loader_of()).epochs(1)
        training.optimizer.attach_step_hook(lambda _: None)
        training.epoch()
        with pytest.raises(lo.RefusedTraining, match="after the last private step"):
            training.engine.get_epsilon(DELTA)

    def test_a_history_that_is_emptied(self):
        training = Training(loader_of()).epochs(1)
        before = training.engine.get_epsilon(DELTA)
        training.accountant.history.clear()
        assert training.engine.get_epsilon(DELTA) == before > 0.0

    def test_a_state_of_before(self):
        lo.register()
        training = Training(loader_of()).epochs(1)
        state = training.accountant.state_dict()
        training.epochs(1)
        with pytest.warns(UserWarning, match="every iterate"):
            before = training.engine.get_epsilon(DELTA)
        with pytest.raises(lo.RefusedTraining, match="saw 12 steps"):
            training.accountant.load_state_dict(state)
        assert training.engine.get_epsilon(DELTA) == before

    def test_another_loader(self):
        """The one that was watched stays so."""
        training = Training(loader_of()).epochs(1)
        before = training.accountant.run()
        with pytest.raises(lo.RefusedTraining, match="saw other batches"):
            training.accountant.watch(loader_of(batch_size=30))
        assert training.accountant.run() == before
        training.epochs(1)
        assert training.accountant.run().steps == 12


class TestStepsOfOtherOptimizers:
    """Their gradients have no noise, and a network's parameters are not compared."""

    @pytest.fixture(params=[False, True])
    def training(self, request):
        model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
        return Training(loader_of(), model=model if request.param else None)

    def bare(self, training, optimizer):
        for one in training.model.parameters():
            one.grad = torch.ones_like(one)
        optimizer.step()

    def test_of_the_one_that_opacus_wraps(self, training):
        plain = training.optimizer.original_optimizer
        with pytest.raises(lo.RefusedTraining, match="original_optimizer"):
            training.epoch(each=lambda: self.bare(training, plain))

    def test_of_another(self, training):
        other = torch.optim.Adam(training.model.parameters())
        with pytest.raises(lo.RefusedTraining, match=r"another optimizer \(Adam\)"):
            training.epoch(each=lambda: self.bare(training, other))

    def test_of_another_on_what_the_private_one_leaves_alone(self):
        """It is in the model that is published all the same."""
        model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
        training = Training(
            loader_of(), model=model, optimizer=lambda _, **settings: torch.optim.SGD(
                model[2].parameters(), **settings
            ),
        )  # fmt: skip
        first = torch.optim.SGD(model[0].parameters(), lr=0.1)
        with pytest.raises(lo.RefusedTraining, match=r"another optimizer \(SGD\)"):
            training.epoch(each=first.step)

    def test_of_another_private_training_on_other_layers(self):
        """Each has its own noise and its own guarantee."""
        model = nn.Sequential(nn.Linear(4, 3), nn.Linear(4, 2))
        parts = [
            Training(loader_of(), model=model[k], noise=2.0) for k in range(2)
        ]  # fmt: skip
        first, second = (iter(one.loader) for one in parts)
        for one, other in zip(first, second, strict=True):
            for training, batch in zip(parts, (one, other), strict=True):
                training.backward(*batch)
                training.optimizer.step()
        assert [one.accountant.run().steps for one in parts] == [6, 6]

    def test_after_the_last_private_step(self, training):
        training.epoch()
        self.bare(training, training.optimizer.original_optimizer)
        with pytest.raises(lo.RefusedTraining, match="after the last private step"):
            training.engine.get_epsilon(DELTA)

    def test_of_another_after_the_last_private_step(self, training):
        training.epoch()
        self.bare(training, torch.optim.Adam(training.model.parameters()))
        with pytest.raises(lo.RefusedTraining, match=r"(?s)Adam.*after the last private step"):
            training.engine.get_epsilon(DELTA)

    def test_that_are_no_matter(self, training):
        """Before the first step, and of other parameters."""
        self.bare(training, torch.optim.Adam(training.model.parameters()))
        elsewhere = nn.Linear(2, 2)
        other = torch.optim.SGD(elsewhere.parameters(), lr=0.1)
        elsewhere(torch.ones(1, 2)).sum().backward()
        training.epoch(each=other.step)
        assert training.accountant.run().steps == 6

    def test_the_two_halves_of_a_private_step(self, training):
        for rows, labels in training.loader:
            training.backward(rows, labels)
            if training.optimizer.pre_step():
                training.optimizer.original_optimizer.step()
        assert training.accountant.run().steps == 6


class TestEveryIterateIsChargedFor:
    """What composition charges, and the reason, for what is no plain gradient step."""

    def charged(self, training, why, *, seen=2):
        with pytest.warns(UserWarning, match=why):
            report = training.accountant.report()
        assert report.bound == "composition/fixed-order"
        assert report.gdp() == pytest.approx(math.sqrt(seen) / 2.0, rel=1e-6)
        assert training.accountant.reasons
        return report

    def made(self, **settings):
        return Training(loader_of(**settings.pop("loader", {})), **settings).epochs(2)

    def test_other_optimizers(self):
        for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop):
            self.charged(self.made(optimizer=kind), f"{kind.__name__}, not torch.optim.SGD")

    @pytest.mark.parametrize("name, others", [("lr", 0.1), ("momentum", 0.9), ("dampening", 0.5)])
    def test_groups_that_differ(self, name, others):
        def with_another_bias(parameters, *, lr, weight_decay):
            weight, bias = parameters
            groups = [{"params": [weight]}, {"params": [bias], name: others}]
            return torch.optim.SGD(groups, lr=lr, weight_decay=weight_decay)

        training = self.made(optimizer=with_another_bias)
        self.charged(training, f"differ in {name}")

    def test_steps_uphill(self):
        training = self.made(optimizer=lambda p, **k: torch.optim.SGD(p, maximize=True, **k))
        self.charged(training, "maximize=True")

    def test_a_last_batch_that_is_smaller(self):
        training = self.made(loader={"examples": 130, "drop_last": False})
        self.charged(training, "use drop_last=True")

    def test_a_network(self):
        model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
        self.charged(self.made(model=model), "tensors of shapes")

    def test_nothing_said_of_the_loss(self):
        lo.register()
        self.charged(self.made(), "the loss is not stated")

    def test_hooks_of_the_optimizer(self):
        training = Training(loader_of())
        training.optimizer.original_optimizer.register_step_post_hook(lambda *_: None)
        self.charged(training.epochs(2), "hooks of the optimizer")

    def test_weight_decay_that_changes(self):
        training = Training(loader_of()).epochs(1)
        training.optimizer.param_groups[0]["weight_decay"] = 0.1
        self.charged(training.epochs(1), "weight decay changes")

    def test_passes_that_are_cut_short(self):
        training = Training(loader_of())
        for _ in range(3):
            training.epoch(batches=2)
        self.charged(training, "not finished", seen=3)

    def test_batches_that_are_skipped(self):
        training = Training(loader_of())
        for _ in range(2):
            for number, (rows, labels) in enumerate(training.loader):
                if number % 2:
                    training.backward(rows, labels)
                    training.optimizer.step()
        self.charged(training, "skipped")

    def test_a_loader_that_is_not_known(self):
        """Then every step may have seen the example."""
        training = Training(loader_of())
        training.optimizer.attach_step_hook(training.accountant.get_optimizer_hook_fn(1 / 6))
        self.charged(training.epochs(2), "loader is not known", seen=12)

    def test_checkpoints_that_are_published(self):
        lo.register(loss=BINARY, releases="every-iterate")
        report = self.made().accountant.report()
        assert report.bound == "composition/fixed-order"

    def test_a_pass_that_only_looks_is_none_that_trains(self):
        training = Training(loader_of()).epochs(1)
        assert len(list(training.loader)) == 6
        training.epochs(1)
        assert training.accountant.reasons == ()


def test_what_register_refuses():
    with pytest.raises(li.InvalidParameter, match="weight decay is read from the optimizer"):
        lo.register(loss=li.Loss(smoothness=1.0, regulariser=0.1))
    with pytest.raises(TypeError, match="loss must be"):
        lo.register(loss="convex")
    with pytest.raises(li.InvalidParameter, match="adjacency"):
        lo.register(adjacency="add-remove")
    with pytest.raises(li.InvalidParameter, match="feature_bound must be"):
        lo.softmax(feature_bound=math.nan, classes=2)


@pytest.mark.parametrize("clip", [0.3, 1.0, 2.0])
def test_clipped_gradients_of_two_classes_are_those_of_a_convex_smooth_loss(clip):
    """As the derivation in `linear_loss` has it: monotone, and no steeper than stated."""
    training = Training(loader_of(batch_size=120), clip=clip, noise=1e-9, decay=0.0)
    rng = torch.Generator().manual_seed(1)
    points, gradients = [], []
    for _ in range(8):
        with torch.no_grad():
            for one in training.model.parameters():
                one.copy_(3.0 * torch.randn(one.shape, generator=rng))
        rows, labels = training.loader.dataset.tensors
        training.backward(rows[:1], labels[:1])
        training.optimizer.clip_and_accumulate()
        points.append(torch.cat([one.detach().flatten() for one in training.model.parameters()]))
        gradients.append(
            torch.cat([one.summed_grad.flatten() for one in training.model.parameters()])
        )
        training.optimizer._is_last_step_skipped = False
    for p, g in zip(points, gradients, strict=True):
        assert float(g.norm()) <= clip * (1.0 + 1e-6)
        for q, h in zip(points, gradients, strict=True):
            moved, turned = p - q, g - h
            assert float(moved @ turned) >= -1e-5
            assert float(turned.norm()) <= BINARY.smoothness * float(moved.norm()) + 1e-5


def test_registering_needs_no_loader():
    assert lo.register(loss=BINARY, name="another").mechanism() == "another"


def test_two_mistakes_are_named_at_once():
    """Together they make the bound for clipped steps ask for a bounded domain, which is neither."""
    loss = lo.softmax(feature_bound=1.0, classes=3)
    lo.register(loss=loss)
    training = Training(loader_of(classes=3), outputs=3, clip=1.0, lr=2.5).epoch()
    reasons = " ".join(training.accountant.reasons)
    assert "max_grad_norm=loss.max_grad_norm" in reasons
    assert "shorten the steps" in reasons
    assert "Ball" not in reasons

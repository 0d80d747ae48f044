"""What gradients show: rows that are repeated, and statements about the loss that do not hold."""

import copy
import itertools
import math
from fractions import Fraction

import pytest
import torch
from opacus.optimizers import DPOptimizer
from opacus.schedulers import ExponentialGradClip
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import default_collate

import lastiterate as li
import lastiterate.opacus as lo
from lastiterate.opacus.watched_steps import _ForwardPasses

from .trainings import Training, loader_of

BINARY = lo.softmax(feature_bound=1.0, classes=2)
DELTA = 1e-5
MODES = ["hooks", "functorch", "ew", "ghost"]


@pytest.fixture(autouse=True)
def registered():
    return lo.register(loss=BINARY)


class Repeating:
    """Gives the loop every row several times."""

    def __init__(self, loader, times):
        self.loader, self.times = loader, times

    def __iter__(self):
        for rows, labels in self.loader:
            yield torch.cat([rows] * self.times), torch.cat([labels] * self.times)


class TestRepeatedRows:
    @pytest.mark.parametrize("mode", MODES)
    def test_in_the_loop(self, mode):
        training = Training(loader_of(), grad_sample_mode=mode)
        with pytest.raises(lo.RefusedTraining, match="of 60 rows, but the loader drew 20"):
            training.epoch(loader=Repeating(training.loader, 3))

    @pytest.mark.parametrize("poisson", [False, True])
    def test_in_collate_fn(self, poisson):
        loader = loader_of(collate_fn=lambda items: default_collate(items * 3))
        training = Training(loader, poisson_sampling=poisson)
        with pytest.raises(lo.RefusedTraining, match="rows are repeated"):
            training.epoch()

    @pytest.mark.parametrize("mode", ["hooks", "ghost"])
    def test_in_a_part_of_a_virtual_batch(self, mode):
        """Of three physical batches the first has its rows twice."""
        training = Training(loader_of(), grad_sample_mode=mode)
        with BatchMemoryManager(
            data_loader=training.loader, max_physical_batch_size=7, optimizer=training.optimizer
        ) as smaller:
            parts = iter(smaller)
            rows, labels = next(parts)
            training.backward(torch.cat([rows, rows]), torch.cat([labels, labels]))
            training.optimizer.step()
            with pytest.raises(lo.RefusedTraining, match="of 27 rows"):
                training.epoch(loader=parts)

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("poisson", [False, True])
    def test_are_not_in_a_network(self, mode, poisson):
        lo.register()
        model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
        training = Training(
            loader_of(), model=model, grad_sample_mode=mode, poisson_sampling=poisson
        )
        training.epoch()
        assert training.accountant.run().steps == len(training.loader)

    def test_fewer_rows_than_were_drawn(self):
        training = Training(loader_of())
        with pytest.raises(lo.RefusedTraining, match="of 5 rows"):
            training.epoch(loader=([one[:5] for one in batch] for batch in training.loader))

    def test_two_backward_passes_with_ghost_clipping(self):
        """Their gradients add up, and nothing but a count shows it."""
        training = Training(loader_of(), grad_sample_mode="ghost")
        rows, labels = next(iter(training.loader))
        training.backward(rows, labels)
        first = [one.grad.clone() for one in training.model.parameters()]
        training.criterion(training.model(rows), labels).backward()
        for one, grad in zip(training.model.parameters(), first, strict=True):
            one.grad.add_(grad)
        with pytest.raises(lo.RefusedTraining, match="of 40 rows"):
            training.optimizer.step()

    def test_a_backward_pass_that_does_not_clip(self):
        training = Training(loader_of(), grad_sample_mode="ghost")
        rows, labels = next(iter(training.loader))
        training.backward(rows, labels)
        training.model.disable_hooks()
        nn.functional.cross_entropy(training.model(rows), labels).backward()
        with pytest.raises(lo.RefusedTraining, match="does not clip"):
            training.optimizer.step()


class TestForwardPasses:
    """Opacus adds up the gradients of row i of all forward passes before one backward pass."""

    @pytest.mark.parametrize("stated", [None, BINARY])
    @pytest.mark.parametrize(
        "mode, poisson",
        [
            ("hooks", False),
            ("hooks", True),
            ("functorch", False),
            ("functorch", True),
            ("ew", False),
        ],
    )
    def test_of_two_batches(self, mode, stated, poisson):
        lo.register(loss=stated)
        training = Training(loader_of(), grad_sample_mode=mode, poisson_sampling=poisson)
        (rows, labels), (others, _) = itertools.islice(training.loader, 2)
        few = min(len(rows), len(others))
        training.optimizer.zero_grad()
        loss = training.criterion(training.model(rows), labels)
        (loss + training.model(others[:few]).square().mean()).backward()
        with pytest.raises(lo.RefusedTraining, match="2 forward passes"):
            training.optimizer.step()

    def test_of_a_layer_by_itself(self):
        model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
        training = Training(loader_of(), model=model)
        first, second = training.model._module
        rows, labels = next(iter(training.loader))
        outputs = second(first(rows) + first(rows.flip(0)))
        training.criterion(outputs, labels).backward()
        with pytest.raises(lo.RefusedTraining, match="2 forward passes"):
            training.optimizer.step()

    @pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
    def test_of_a_frozen_layer(self, mode):
        """It has no gradient, so that its passes add up to nothing."""
        lo.register()
        model = nn.ModuleDict({"frozen": nn.Linear(4, 4), "head": nn.Linear(4, 2)})
        model["frozen"].requires_grad_(False)
        training = Training(loader_of(), model=model, grad_sample_mode=mode)
        for rows, labels in training.loader:
            training.optimizer.zero_grad()
            features = model["frozen"](rows) + model["frozen"](-rows)
            training.criterion(model["head"](features), labels).backward()
            training.optimizer.step()
        assert training.accountant.run().steps == 6

    def test_of_layers_that_are_frozen_in_part_or_later(self):
        class Adapted(nn.Linear):
            def __init__(self):
                super().__init__(4, 4)
                self.requires_grad_(False)
                self.added = nn.Linear(4, 4)

            def forward(self, rows):
                return super().forward(rows) + self.added(self.added(rows))

        model = nn.Sequential(Adapted(), nn.Linear(4, 2))
        passes, rows = _ForwardPasses(model), torch.ones(3, 4)
        assert passes.take() == 0
        for layer, trained, times in (
            (model[0], True, 2),
            (model[1], True, 2),
            (model[1], False, 0),
            (model[1], True, 2),
            (model[0].added, True, 2),
            (model, False, 2),
        ):
            layer.requires_grad_(trained)
            for _ in range(2):
                layer(rows)
            assert passes.take() == times, layer

    @pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
    def test_that_no_gradient_comes_from(self, mode):
        training = Training(loader_of(), grad_sample_mode=mode)

        def evaluate():
            with torch.no_grad():
                training.model(torch.ones(3, 4))
                training.model(torch.ones(5, 4))

        training.epoch(each=evaluate).epoch(each=evaluate)
        assert training.accountant.reasons == ()

    def test_in_evaluation(self):
        training = Training(loader_of())

        def evaluate():
            training.model.eval()(torch.ones(3, 4))
            training.model.train()

        assert training.epoch(each=evaluate).accountant.run().steps == 6

    def test_that_fail(self):
        training = Training(loader_of())
        with pytest.raises(RuntimeError):
            training.model(torch.ones(3, 5))
        with torch.no_grad(), pytest.raises(RuntimeError):
            training.model(torch.ones(3, 5))
        passes = training.accountant._gradients._forward
        assert passes.take() == 1
        training.model(torch.ones(3, 4))
        assert passes.take() == 1

    @pytest.mark.parametrize("reentrant", [False, True])
    def test_that_checkpointing_computes_again(self, reentrant):
        model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
        passes = _ForwardPasses(model)
        rows = torch.ones(3, 4, requires_grad=True)
        for times in (1, 2):
            each = [checkpoint(model, rows, use_reentrant=reentrant) for _ in range(times)]
            sum(each).sum().backward()
            assert passes.take() == times

    def test_models_are_still_copied_and_saved(self, tmp_path):
        training = Training(loader_of()).epochs(1)
        torch.save(training.model._module, tmp_path / "model")
        copies = copy.deepcopy(training.model), torch.load(tmp_path / "model", weights_only=False)
        with torch.no_grad():
            expected = training.model(torch.ones(3, 4))
            assert all(torch.equal(one(torch.ones(3, 4)), expected) for one in copies)
        assert training.epochs(1).accountant.reasons == ()


class TestRowsThatAreNotFinite:
    @pytest.mark.parametrize("stated", [None, BINARY])
    @pytest.mark.parametrize("value", [math.nan, math.inf])
    @pytest.mark.parametrize("mode", MODES)
    def test_are_refused_before_they_are_in_the_model(self, mode, value, stated):
        lo.register(loss=stated)
        loader = loader_of()
        loader.dataset.tensors[0][3, 0] = value
        training = Training(loader, grad_sample_mode=mode)
        with pytest.raises(lo.RefusedTraining, match="nan or infinite"):
            training.epoch()
        assert all(bool(torch.isfinite(one).all()) for one in training.model.parameters())

    @pytest.mark.parametrize("mode", ["hooks", "ghost"])
    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_are_zero_for_a_bounded_layer(self, value, mode):
        found = []
        for numbers in ([value, 1.0, 0.0, 0.0], [0.0] * 4):
            loader = loader_of(shuffle=False)
            loader.dataset.tensors[0][3] = torch.tensor(numbers)
            torch.manual_seed(0)
            model = lo.BoundedLinear(4, 2, bound=1.0)
            training = Training(loader, model=model, grad_sample_mode=mode)
            torch.manual_seed(1)
            found.append([one.detach() for one in training.epoch().model.parameters()])
            assert not [one for one in training.accountant.reasons if "batches are" not in one]
        assert all(map(torch.equal, *found))


class TestClipsThatChange:
    """The clip of every physical batch counts, not only the one that noise is drawn by."""

    def virtual(self, gamma, mode="hooks"):
        training = Training(loader_of(batch_size=60), grad_sample_mode=mode)
        scheduler = ExponentialGradClip(training.optimizer, gamma=gamma)
        with BatchMemoryManager(
            data_loader=training.loader, max_physical_batch_size=20, optimizer=training.optimizer
        ) as smaller:
            training.epoch(loader=smaller, each=scheduler.step)
        return training

    @pytest.mark.parametrize("gamma", [0.5, 2.0])
    def test_inside_a_logical_batch(self, gamma):
        """Of three parts; noise has the clip of the last."""
        training = self.virtual(gamma)
        with pytest.warns(UserWarning, match="the clip changed within a step"):
            report = training.accountant.report()
        multiplier = 2.0 * min(gamma**2, 1.0)
        assert report.bound == "composition/fixed-order"
        assert report.gdp() == pytest.approx(1.0 / multiplier, rel=1e-6)

    @pytest.mark.parametrize("gamma", [0.5, 2.0])
    def test_of_ghost_clipping_which_a_scheduler_does_not_change(self, gamma):
        training = Training(loader_of(), grad_sample_mode="ghost")
        training.epoch(each=ExponentialGradClip(training.optimizer, gamma=gamma).step)
        with pytest.warns(UserWarning, match="ghost clipping has another one than the noise"):
            report = training.accountant.report()
        least = 2.0 * min(gamma**5, 1.0)
        assert report.gdp() == pytest.approx(1.0 / least, rel=1e-6)

    def test_from_step_to_step(self):
        training = Training(loader_of())
        training.epoch(each=ExponentialGradClip(training.optimizer, gamma=0.9).step)
        assert not [one for one in training.accountant.reasons if "the clip" in one]
        assert len(set(training.accountant.run().noise_std)) == 6

    def test_noise_that_adaptive_clipping_adjusts(self):
        training = Training(loader_of(), grad_sample_mode="ghost")
        training.optimizer._adjusted_noise_multiplier = 1.0
        with pytest.raises(lo.RefusedTraining, match="learns the clip"):
            training.epoch()


class TestStatementsThatDoNotHold:
    def charged(self, training, *why):
        with pytest.warns(UserWarning, match="every iterate is charged for"):
            report = training.accountant.report()
        assert report.bound.startswith("composition/")
        for one in why:
            assert any(one in reason for reason in training.accountant.reasons)

    @pytest.mark.parametrize("mode", MODES)
    def test_rows_that_are_too_long(self, mode):
        training = Training(loader_of(length=10.0), grad_sample_mode=mode).epochs(2)
        self.charged(training, "lipschitz=2")

    def test_rows_a_little_too_long(self):
        """No gradient exceeds the bound; those of the bias tell how long a row is."""
        training = Training(loader_of(length=1.01)).epochs(2)
        self.charged(training, "feature_bound=1")

    def test_another_loss(self):
        def squares(outputs, labels):
            targets = nn.functional.one_hot(labels, outputs.shape[1]).float()
            return 0.1 * ((outputs - targets) ** 2).sum(dim=1).mean()

        self.charged(Training(loader_of(), criterion=squares).epochs(2), "did not add up to 0")

    def test_one_logit_with_a_weight(self):
        lo.register(loss=lo.logistic(feature_bound=1.0))

        def heavier(outputs, labels):
            weights = torch.tensor(5.0)
            return nn.functional.binary_cross_entropy_with_logits(
                outputs[:, 0], labels.float(), pos_weight=weights
            )

        model = nn.Linear(4, 1)
        training = Training(loader_of(), model=model, criterion=heavier, clip=1.5).epochs(2)
        self.charged(training, "loss is a different one")

    def test_a_stated_bound(self):
        lo.register(loss=li.Loss(smoothness=1.0, lipschitz=0.1))
        self.charged(Training(loader_of()).epochs(1), "lipschitz=0.1")

    def test_what_was_seen_is_kept_in_checkpoints(self):
        first = Training(loader_of(length=10.0)).epochs(1)
        second = Training(loader_of(length=10.0))
        second.accountant.load_state_dict(first.accountant.state_dict())
        assert second.accountant.reasons == first.accountant.reasons != ()

    @pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
    def test_rows_that_the_model_keeps_within_the_bound(self, mode):
        model = lo.BoundedLinear(4, 2, bound=1.0)
        training = Training(loader_of(length=10.0), model=model, grad_sample_mode=mode).epochs(2)
        unit = Training(loader_of()).epochs(2)
        assert training.accountant.reasons == ()
        found = training.accountant.get_epsilon(DELTA)
        assert found == unit.accountant.get_epsilon(DELTA)

    def test_gradients_of_a_bounded_layer(self):
        training = Training(loader_of(length=10.0), model=lo.BoundedLinear(4, 2, bound=1.0))
        training.backward(*next(iter(training.loader)))
        weight, bias = (one.grad_sample for one in training.model.parameters())
        lengths = weight.flatten(1).norm(dim=1)
        assert torch.allclose(lengths, bias.norm(dim=1), atol=1e-5)  # every row has norm 1


class TestReasons:
    def test_all_at_once(self):
        """Those of composition, and those that would be left without them."""
        loss = lo.softmax(feature_bound=1.0, classes=3)
        lo.register(loss=loss)
        training = Training(
            loader_of(130, classes=3, drop_last=False),
            outputs=3,
            optimizer=torch.optim.Adam,
            clip=1.0,
        ).epochs(1)
        training.optimizer.param_groups[0]["lr"] = 50.0
        with pytest.warns(UserWarning, match="charged for: .*Adam.*Without that: a better bound"):
            training.epochs(1).accountant.report()
        found = "; ".join(training.accountant.reasons)
        for why in (
            "Adam, not torch.optim.SGD",
            "drop_last=True",
            "take max_grad_norm=loss.max_grad_norm",
            "found a schedule",
        ):
            assert why in found

    def reason(self, **settings):
        each = settings.pop("each", None)
        training = Training(loader_of(), **settings)
        for _ in range(2):
            training.epoch(each=(lambda: None) if each is None else each(training))
        with pytest.warns(UserWarning, match="a better bound needs"):
            training.accountant.report()
        (reason,) = training.accountant.reasons
        return reason

    def test_steps_that_are_too_long(self):
        assert "found step_size 5.0 > 1.9" in self.reason(lr=5.0)

    @pytest.mark.parametrize("poisson", [False, True])
    def test_schedules(self, poisson):
        kinds = (
            lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9),
            lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100),
        )
        for kind in kinds:
            found = self.reason(
                poisson_sampling=poisson,
                each=lambda training, kind=kind: kind(training.optimizer.original_optimizer).step,
            )
            assert "found a schedule" in found

    def test_a_clip_below_the_gradients_of_three_classes(self):
        loss = lo.softmax(feature_bound=1.0, classes=3)
        lo.register(loss=loss)
        found = self.reason(model=nn.Linear(4, 3), clip=1.0)
        assert f"take max_grad_norm=loss.max_grad_norm, {loss.max_grad_norm!r}" in found

    def test_a_stated_loss_without_a_bound(self):
        lo.register(loss=li.Loss(smoothness=1.0))
        assert "state loss.lipschitz" in self.reason()

    def test_what_is_published_is_the_users_choice(self):
        lo.register(loss=BINARY, releases="last-iterate-and-order")
        assert Training(loader_of()).epochs(2).accountant.reasons == ()


class TestConstants:
    @pytest.mark.parametrize("bound", [1e-3, 0.1, 1 / 3, 1.0, math.sqrt(2.0), 7.7, 1e6])
    @pytest.mark.parametrize("bias", [False, True])
    def test_the_least_floats_that_are_not_below(self, bound, bias):
        square = Fraction(bound) ** 2 + bias
        for loss, half, twice in (
            (lo.softmax(feature_bound=bound, classes=5, bias=bias), square / 2, 2 * square),
            (lo.logistic(feature_bound=bound, bias=bias), square / 4, square),
        ):
            assert Fraction(loss.smoothness) >= half > Fraction(math.nextafter(loss.smoothness, 0))
            below = math.nextafter(loss.lipschitz, 0)
            assert Fraction(loss.lipschitz) ** 2 >= twice > Fraction(below) ** 2

    def test_unit_rows(self):
        assert lo.softmax(feature_bound=1.0, classes=10).lipschitz == 2.0
        assert lo.logistic(feature_bound=1.0, bias=False).max_grad_norm == 1.0

    @pytest.mark.parametrize("bound", [0.0, -1.0, math.nan, math.inf, 1e200])
    def test_refused(self, bound):
        with pytest.raises(li.InvalidParameter, match="feature_bound must be"):
            lo.logistic(feature_bound=bound)

    @pytest.mark.parametrize("slack", [1e-6, 1e-3, 0.05])
    def test_a_clip_of_saturated_gradients_twists_no_more_than_is_charged(self, slack):
        """Jacobians of clipped gradients, by differences, against the symmetric part's."""
        loss = lo.softmax(feature_bound=1.0, classes=4, bias=False)
        clip = loss.lipschitz + 1e-6 - slack
        charged = loss.asymmetry(clip)
        generator = torch.Generator().manual_seed(0)
        acted = 0
        for top in torch.linspace(-1.0, 12.0, 60, dtype=torch.float64):
            logits = torch.randn(4, generator=generator, dtype=torch.float64)
            logits[1] += top - math.log(slack)
            p = torch.softmax(logits, 0)
            hessian = torch.diag(p) - torch.outer(p, p)
            norm = float((p - torch.eye(4, dtype=torch.float64)[0]).norm())
            factor = min(1.0, clip / (norm + 1e-6))
            jacobian = torch.autograd.functional.jacobian(gradient_of(clip), logits)
            acted += factor < 1.0
            apart = torch.linalg.matrix_norm(jacobian - factor * hessian, ord=2)
            assert float(apart) <= charged * (1.0 + 1e-9) + 1e-15
        assert acted


def gradient_of(clip):
    """The clipped gradient in the logits of a row of norm 1 whose label is 0."""

    def gradient(logits):
        residual = torch.softmax(logits, 0) - torch.eye(4, dtype=torch.float64)[0]
        return residual * torch.clamp(clip / (residual.norm() + 1e-6), max=1.0)

    return gradient


def test_layers_in_training_are_counted_inside_a_model_in_evaluation():
    from opacus import GradSampleModule

    from lastiterate.opacus.watched_steps import _ForwardPasses

    model = GradSampleModule(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)))
    passes = _ForwardPasses(model)
    model.eval()
    model._module[1].train()
    for _ in range(2):
        model(torch.zeros(4, 3))
    assert passes.take() == 2
    model.eval()
    model(torch.zeros(4, 3))
    assert passes.take() == 0


class Remembering(nn.Module):
    """A linear layer beside the mean of the rows that it saw."""

    def __init__(self, *, persistent):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("seen", torch.zeros(4), persistent=persistent)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, rows):
        self.seen = 0.9 * self.seen + 0.1 * rows.detach().mean(dim=0)
        return self.layer(rows * self.scale)


class TestBuffersWithoutNoise:
    @pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
    def test_that_are_saved_are_refused(self, mode):
        model = Remembering(persistent=True)
        with pytest.raises(lo.RefusedTraining, match=r"'seen'.* was changed in training"):
            Training(loader_of(), model=model, grad_sample_mode=mode).epoch()

    def test_that_change_after_the_last_step_are_refused(self):
        training = Training(loader_of(), model=(model := Remembering(persistent=False))).epoch()
        assert training.accountant.get_epsilon(1e-5) > 0.0
        model.scale.mul_(2.0)
        with pytest.raises(lo.RefusedTraining, match="'scale'"):
            training.accountant.get_epsilon(1e-5)

    @pytest.mark.parametrize("mode", MODES)
    def test_frozen_parameters_that_a_forward_pass_writes(self, mode):
        """As the codebook of a quantised network, which is saved with it."""

        class Codes(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 2)
                self.code = nn.Parameter(torch.zeros(4), requires_grad=False)

            def forward(self, rows):
                with torch.no_grad():
                    self.code.add_(rows.mean(0))
                return self.layer(rows)

        lo.register()
        training = Training(loader_of(), model=nn.Sequential(Codes()), grad_sample_mode=mode)
        with pytest.raises(lo.RefusedTraining, match=r"the parameter '.*code'"):
            training.epoch()

    @pytest.mark.filterwarnings("ignore:every iterate is charged")
    @pytest.mark.parametrize("mode", ["hooks", "ghost"])
    @pytest.mark.parametrize("how", ["data", "numpy"])
    def test_frozen_parameters_that_are_written_where_torch_does_not_count(self, mode, how):
        class Codes(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 2)
                self.code = nn.Parameter(torch.zeros(4), requires_grad=False)

            def forward(self, rows):
                mean = rows.detach().mean(0)
                if how == "data":
                    self.code.data.mul_(0.9).add_(0.1 * mean)
                else:
                    self.code.numpy()[:] = mean.numpy()
                return self.layer(rows)

        lo.register()
        training = Training(loader_of(), model=nn.Sequential(Codes()), grad_sample_mode=mode)
        training.epoch()
        with pytest.raises(lo.RefusedTraining, match=r"the parameter '.*code'"):
            training.engine.get_epsilon(DELTA)

    def frozen(self, **settings):
        lo.register()
        model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
        model[0].requires_grad_(False)
        return Training(loader_of(), model=model, **settings)

    @pytest.mark.filterwarnings("ignore:every iterate is charged")
    def test_the_same_numbers_may_be_loaded_moved_or_cast(self):
        training = self.frozen()
        with torch.no_grad():
            training.model(training.loader.dataset.tensors[0])  # before pretrained weights come
        training.model.load_state_dict(
            {key: one + 1.0 for key, one in training.model.state_dict().items()}
        )
        training.epoch()
        training.model.load_state_dict(copy.deepcopy(training.model.state_dict()))
        training.epoch()
        training.model.load_state_dict(copy.deepcopy(training.model.state_dict()))
        assert training.engine.get_epsilon(DELTA) > 0.0
        training.model.share_memory()
        assert training.engine.get_epsilon(DELTA) > 0.0
        training.model.double()
        assert training.engine.get_epsilon(DELTA) > 0.0

    @pytest.mark.filterwarnings("ignore:every iterate is charged")
    @pytest.mark.parametrize("accountant", ["last-iterate", "prv"])
    def test_another_private_training_may_follow(self, accountant):
        first = self.frozen().epoch()
        model = first.model.to_standard_module()
        model.requires_grad_(True)
        Training(loader_of(), model=model, accountant=accountant).epoch()
        assert first.engine.get_epsilon(DELTA) > 0.0

    def test_a_forward_pass_before_training_may_write_none(self):
        """As a layer does that takes its scale from what it sees first."""

        class FromData(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.done = nn.Linear(4, 2), False
                self.register_buffer("mean", torch.zeros(4))

            def forward(self, rows):
                if not self.done:
                    self.done = True
                    self.mean.copy_(rows.mean(0))
                return self.layer(rows - self.mean)

        lo.register()
        training = Training(loader_of(), model=nn.Sequential(FromData()))
        with torch.no_grad():
            training.model(training.loader.dataset.tensors[0])
        with pytest.raises(lo.RefusedTraining, match="mean"):
            training.epoch()

    @pytest.mark.filterwarnings("ignore:every iterate is charged")
    def test_what_another_private_training_made_is_not_written_to(self):
        first = self.frozen().epoch()
        model = first.model.to_standard_module()
        model.requires_grad_(True)
        Training(loader_of(), model=model).epoch()
        assert first.engine.get_epsilon(DELTA) > 0.0
        with torch.no_grad():
            model[0].weight.copy_(first.loader.dataset.tensors[0][:3])
        with pytest.raises(lo.RefusedTraining, match="was changed in training"):
            first.engine.get_epsilon(DELTA)

    @pytest.mark.filterwarnings("ignore:every iterate is charged")
    def test_a_training_without_noise_is_no_private_one(self):
        first = self.frozen().epoch()
        model = first.model.to_standard_module()
        model.requires_grad_(True)
        bare = DPOptimizer(
            torch.optim.SGD(model[0].parameters(), lr=0.1),
            noise_multiplier=0.0,
            max_grad_norm=1e9,
            expected_batch_size=1,
        )
        for one in bare.params:
            one.grad_sample = torch.ones(1, *one.shape)
        bare.step()
        with pytest.raises(lo.RefusedTraining, match="another optimizer"):
            first.engine.get_epsilon(DELTA)

    def test_that_are_loaded_before_training_are_not_changed(self):
        training = Training(loader_of(), model=Remembering(persistent=False))
        state = {**training.model.state_dict()}
        state["_module.scale"] = torch.full((4,), 0.5)
        training.model.load_state_dict(state)
        assert training.epoch().accountant.get_epsilon(1e-5) > 0.0


class TestKeptBatches:
    @pytest.mark.parametrize("mode", MODES)
    def test_are_refused(self, mode):
        training = Training(loader_of(), grad_sample_mode=mode)
        kept = next(iter(training.loader))
        with pytest.raises(lo.RefusedTraining, match="rows of an earlier batch were used again"):
            training.epoch(loader=(kept for _ in training.loader))

    def test_of_an_earlier_pass(self):
        training = Training(loader_of())
        kept = list(training.loader)
        training.epoch(loader=kept)
        with pytest.raises(lo.RefusedTraining, match="used again"):
            training.epoch(loader=(kept[k] for k, _ in enumerate(training.loader)))

    @pytest.mark.parametrize(
        "wrap",
        [
            lambda rows: {"x": rows},
            lambda rows: [rows],
            lambda rows: rows.view(-1, 4),
            lambda rows: rows[:],
            lambda rows: rows.detach(),
        ],
    )
    def test_in_other_forms(self, wrap):
        class Taken(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 2)

            def forward(self, given, scale):
                rows = given["x"] if isinstance(given, dict) else given
                return self.layer(rows[0] if isinstance(rows, list) else rows) * scale

        lo.register()
        training = Training(loader_of(), model=Taken())
        rows, labels = next(iter(training.loader))

        def step():
            training.optimizer.zero_grad()
            found = training.model(wrap(rows), torch.ones(2))
            training.criterion(found, labels).backward()
            training.optimizer.step()

        batches = iter(training.loader)
        next(batches)
        step()
        next(batches)
        with pytest.raises(lo.RefusedTraining, match="used again"):
            step()

    @pytest.mark.parametrize("poisson", [False, True])
    def test_of_all_examples_are_fine(self, poisson):
        training = Training(loader_of(batch_size=120), poisson_sampling=poisson)
        kept = tuple(training.loader.dataset.tensors)
        for _ in range(3):
            training.epoch(loader=(kept for _ in training.loader))
        assert training.accountant.run().steps == 3

    def test_an_empty_batch_beside_what_is_always_the_same(self):
        """Of Poisson batches; all that is left to compare are other inputs."""
        lo.register()
        training = Training(loader_of(batch_size=1), model=nn.Sequential(nn.Linear(4, 2)),
                            poisson_sampling=True)  # fmt: skip
        inner, scale = training.model._module, torch.ones(1, 2)
        inner.forward = lambda rows, scale: inner[0](rows) * scale
        for rows, labels in training.loader:
            training.optimizer.zero_grad()
            training.criterion(training.model(rows, scale), labels).backward()
            training.optimizer.step()
        assert training.accountant.run().steps == 120

    def test_rows_in_the_same_memory_are_others(self):
        """As with CUDA graphs, whose inputs stay where they are."""
        training = Training(loader_of())
        place = torch.empty(20, 4)
        training.epoch(loader=((place.copy_(rows), labels) for rows, labels in training.loader))
        assert training.accountant.run().steps == 6

    def test_other_inputs_may_be_the_same(self):
        lo.register()
        training = Training(loader_of(), model=nn.Sequential(nn.Linear(4, 2)))
        scale = torch.ones(20, 1)
        inner = training.model._module
        inner.forward = lambda rows, scale: inner[0](rows) * scale
        for rows, labels in training.loader:
            training.optimizer.zero_grad()
            training.criterion(training.model(rows, scale), labels).backward()
            training.optimizer.step()
        assert training.accountant.run().steps == 6


class TestGhostClipping:
    """Gradients that go through no call of a layer have no clip."""

    @pytest.mark.parametrize("freeze", [False, True])
    def test_layers_that_take_no_part_in_a_batch(self, freeze):
        """Opacus would clip by the gradients that they had in an earlier one."""

        class Parts(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.other, self.both = nn.Linear(2, 2), nn.Linear(2, 2), True

            def forward(self, rows):
                found = self.first(rows[:, :2])
                return found + self.other(rows[:, 2:]) if self.both else found

        training = self.training(Parts())
        batches = iter(training.loader)
        training.epoch(loader=[next(batches)])
        training.model._module.both = freeze
        training.model._module.other.requires_grad_(not freeze)
        with pytest.raises(lo.RefusedTraining, match="took no part in a batch"):
            training.epoch(loader=batches)

    def training(self, model=None, criterion=None):
        model = (
            nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)) if model is None else model
        )
        lo.register()
        return Training(loader_of(), model=model, grad_sample_mode="ghost", criterion=criterion)

    @pytest.mark.parametrize("size", [1e-6, 100.0])
    @pytest.mark.parametrize("kind", [torch.abs, torch.square])
    def test_penalties_in_the_loss(self, kind, size):
        training = self.training()
        rows, labels = next(iter(training.loader))
        weights = next(training.model.parameters())
        loss = training.criterion(training.model(rows), labels) + size * kind(weights).sum()
        with pytest.raises(lo.RefusedTraining, match="as by a penalty"):
            loss.backward()
        with pytest.raises(lo.RefusedTraining, match="as by a penalty"):
            training.engine.get_epsilon(DELTA)

    def test_functions_of_parameters(self):
        class Beside(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

            def forward(self, rows):
                return self.last(nn.functional.linear(self.first(rows), self.first.weight))

        training = self.training(Beside())
        rows, labels = next(iter(training.loader))
        with pytest.raises(lo.RefusedTraining, match="beside the calls of their layers"):
            training.backward(rows, labels)

    def test_sums_of_losses_of_one_forward_pass(self):
        training = self.training()
        for rows, labels in training.loader:
            training.optimizer.zero_grad()
            found = training.model(rows)
            loss = training.criterion(found, labels)
            (loss + 0.5 * training.criterion(found, 1 - labels)).backward()
            training.optimizer.step()
        assert training.accountant.run().steps == 6

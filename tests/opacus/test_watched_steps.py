"""Loops whose steps are not what would be accounted for are refused, and those alone."""

import copy
import itertools
import math

import pytest
import torch
from opacus import GradSampleModule
from opacus.optimizers import DistributedDPOptimizer, DPOptimizer
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import default_collate

import lastiterate as li
import lastiterate.opacus as lo
from lastiterate.opacus.watched_steps import _ForwardPasses

from .trainings import BINARY, DELTA, MODES, Training, loader_of, network, refused

REFUSED, ACCEPTED = [], []
NETWORK = {"model": network}
POISSON = {"poisson_sampling": True}
UNSTATED = {"stated": None}
EITHER_MODEL = ({}, NETWORK)


def refuse(why, *variants, modes=("hooks",), **settings):
    """The loop below is refused for this reason, in every variant and mode of the training."""
    return _noted(REFUSED, why, variants, modes, settings)


def accept(steps, *variants, modes=("hooks",), **settings):
    """The loop below is charged for so many steps."""
    return _noted(ACCEPTED, steps, variants, modes, settings)


def _noted(cases, expected, variants, modes, settings):
    def note(loop):
        for mode, variant in itertools.product(modes, variants or ({},)):
            known = settings | variant | {"grad_sample_mode": mode}
            cases.append(pytest.param(loop, known, expected, id=f"{loop.__name__}-{mode}"))
        return loop

    return note


def made(*, stated=BINARY, loader=None, model=None, **settings):
    lo.register(loss=stated)
    loader = loader_of(**(loader or {}))
    return Training(loader, model=None if model is None else model(), **settings)


def frozen_first(kind=network):
    model = kind()
    model[0].requires_grad_(False)
    return model


def first_batch(training):
    return next(iter(training.loader))


def repeated(batch, times):
    return [torch.cat([one] * times) for one in batch]


def set_gradients(parameters):
    for one in parameters:
        one.grad = torch.ones_like(one)


# Rows that are more, fewer or others than those that were drawn.


@refuse("of 60 rows, but the loader drew 20", modes=MODES)
def rows_repeated_in_the_loop(training):
    training.epoch(repeated(batch, 3) for batch in training.loader)


@refuse("rows are repeated", {}, POISSON, loader={"collate_fn": lambda x: default_collate(x * 3)})
def rows_repeated_in_collate_fn(training):
    training.epoch()


@refuse("of 27 rows", modes=["hooks", "ghost"])
def rows_repeated_in_one_of_three_physical_batches(training):
    twice = itertools.chain([2], itertools.repeat(1))
    step = training.step
    training.step = lambda *batch: step(*repeated(batch, next(twice)))
    training.virtual()


@refuse("of 5 rows")
def fewer_rows_than_were_drawn(training):
    training.epoch([one[:5] for one in batch] for batch in training.loader)


@refuse("more steps")
def several_steps_on_one_batch(training):
    batch = first_batch(training)
    training.epoch([batch, batch])


@refuse("rows of an earlier batch were used again", modes=MODES)
def one_batch_kept_for_all_steps(training):
    kept = first_batch(training)
    training.epoch(kept for _ in training.loader)


@refuse("used again")
def batches_of_an_earlier_pass(training):
    kept = list(training.loader)
    training.epoch(kept)
    training.epoch(kept[k] for k, _ in enumerate(training.loader))


@accept(3, {}, POISSON, loader={"batch_size": 120})
def batches_of_all_examples_that_are_kept(training):
    kept = tuple(training.loader.dataset.tensors)
    for _ in range(3):
        training.epoch(kept for _ in training.loader)


@accept(6)
def rows_in_the_same_memory(training):
    """As with CUDA graphs, whose inputs stay where they are."""
    place = torch.empty(20, 4)
    training.epoch((place.copy_(rows), labels) for rows, labels in training.loader)


@accept(6, {}, POISSON, modes=MODES, stated=None, **NETWORK)
def rows_of_a_network(training):
    training.epoch()


def single_layer():
    return nn.Sequential(nn.Linear(4, 2))


@accept(6, stated=None, model=single_layer)
@accept(120, POISSON, stated=None, model=single_layer, loader={"batch_size": 1})
def other_inputs_that_are_always_the_same(training):
    """Of an empty Poisson batch, nothing else is left to compare."""
    inner, scale = training.model._module, torch.ones(1, 2)
    inner.forward = lambda rows, scale: inner[0](rows) * scale
    for rows, labels in training.loader:
        training.optimizer.zero_grad()
        training.criterion(training.model(rows, scale), labels).backward()
        training.optimizer.step()


@refuse("nan or infinite", {}, UNSTATED, modes=MODES)
def rows_that_are_not_finite(training):
    training.loader.dataset.tensors[0][3, 0] = math.nan
    training.epoch()


@refuse("nan or infinite", {}, UNSTATED, modes=MODES)
def rows_that_are_infinite(training):
    training.loader.dataset.tensors[0][3, 0] = math.inf
    training.epoch()


# Opacus adds up the gradients of row i of all forward passes before one backward pass.


@refuse("2 forward passes", modes=["hooks", "functorch", "ew"])
@refuse("2 forward passes", UNSTATED | POISSON, modes=["hooks", "functorch"])
def forward_passes_of_two_batches(training):
    (rows, labels), (others, _) = itertools.islice(training.loader, 2)
    few = min(len(rows), len(others))
    training.optimizer.zero_grad()
    loss = training.criterion(training.model(rows), labels)
    (loss + training.model(others[:few]).square().mean()).backward()
    training.optimizer.step()


@refuse("2 forward passes")
def accumulated_gradients(training):
    rows, labels = first_batch(training)
    training.backward(rows, labels)
    training.criterion(training.model(rows), labels).backward()
    training.optimizer.step()


@refuse("2 forward passes", model=lambda: nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)))
def forward_passes_of_a_layer_by_itself(training):
    first, second = training.model._module
    rows, labels = first_batch(training)
    training.criterion(second(first(rows) + first(rows.flip(0))), labels).backward()
    training.optimizer.step()


@accept(
    6,
    modes=["hooks", "functorch", "ghost"],
    stated=None,
    model=lambda: frozen_first(lambda: nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 2)])),
)
def forward_passes_of_a_frozen_layer(training):
    """It has no gradient, so that its passes add up to nothing."""
    frozen, head = training.model._module
    for rows, labels in training.loader:
        training.optimizer.zero_grad()
        training.criterion(head(frozen(rows) + frozen(-rows)), labels).backward()
        training.optimizer.step()


@accept(12, modes=["hooks", "functorch", "ghost"])
def forward_passes_that_no_gradient_comes_from(training):
    def evaluate():
        with torch.no_grad():
            training.model(torch.ones(3, 4))
            training.model(torch.ones(5, 4))

    training.epoch(each=evaluate).epoch(each=evaluate)
    assert training.accountant.reasons == ()


@accept(6)
def forward_passes_in_evaluation(training):
    def evaluate():
        training.model.eval()(torch.ones(3, 4))
        training.model.train()

    training.epoch(each=evaluate)


# Ghost clipping: gradients add up unseen, or go through no call of a layer and have no clip.


@refuse("cannot be seen", modes=["ghost"])
def two_batches_of_which_one_has_no_step(training):
    for rows, labels in itertools.islice(training.loader, 2):
        training.criterion(training.model(rows), labels).backward()
    training.optimizer.step()


@refuse("of 40 rows", modes=["ghost"])
def two_backward_passes(training):
    """Nothing but a count shows it."""
    rows, labels = first_batch(training)
    training.backward(rows, labels)
    first = [one.grad.clone() for one in training.model.parameters()]
    training.criterion(training.model(rows), labels).backward()
    for one, grad in zip(training.model.parameters(), first, strict=True):
        one.grad.add_(grad)
    training.optimizer.step()


@refuse("does not clip", modes=["ghost"])
def a_backward_pass_that_does_not_clip(training):
    rows, labels = first_batch(training)
    training.backward(rows, labels)
    training.model.disable_hooks()
    nn.functional.cross_entropy(training.model(rows), labels).backward()
    training.optimizer.step()


@refuse("learns the clip", modes=["ghost"])
def noise_that_adaptive_clipping_adjusts(training):
    training.optimizer._adjusted_noise_multiplier = 1.0
    training.epoch()


class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.other, self.both = nn.Linear(2, 2), nn.Linear(2, 2), True

    def forward(self, rows):
        found = self.first(rows[:, :2])
        return found + self.other(rows[:, 2:]) if self.both else found


@refuse("took no part in a batch", modes=["ghost"], stated=None, model=Parts)
def a_layer_that_takes_no_part_in_a_batch(training, freeze=False):
    """Opacus would clip by the gradients that it had in an earlier one."""
    batches = iter(training.loader)
    training.epoch([next(batches)])
    training.model._module.both = freeze
    training.model._module.other.requires_grad_(not freeze)
    training.epoch(batches)


@refuse("took no part in a batch", modes=["ghost"], stated=None, model=Parts)
def a_layer_that_is_frozen_later(training):
    a_layer_that_takes_no_part_in_a_batch(training, freeze=True)


def with_penalty(training, penalty):
    rows, labels = first_batch(training)
    weights = next(training.model.parameters())
    loss = training.criterion(training.model(rows), labels) + penalty(weights)
    with pytest.raises(lo.RefusedTraining, match="as by a penalty"):
        loss.backward()
    training.engine.get_epsilon(DELTA)


@refuse("as by a penalty", modes=["ghost"], stated=None, **NETWORK)
def a_small_penalty_in_the_loss(training):
    with_penalty(training, lambda weights: 1e-6 * weights.abs().sum())


@refuse("as by a penalty", modes=["ghost"], stated=None, **NETWORK)
def a_large_penalty_in_the_loss(training):
    with_penalty(training, lambda weights: 100.0 * weights.square().sum())


class Beside(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, rows):
        return self.last(nn.functional.linear(self.first(rows), self.first.weight))


@refuse("beside the calls of their layers", modes=["ghost"], stated=None, model=Beside)
def functions_of_parameters(training):
    training.backward(*first_batch(training))


@accept(6, modes=["ghost"], stated=None, **NETWORK)
def sums_of_losses_of_one_forward_pass(training):
    for rows, labels in training.loader:
        training.optimizer.zero_grad()
        found = training.model(rows)
        loss = training.criterion(found, labels)
        (loss + 0.5 * training.criterion(found, 1 - labels)).backward()
        training.optimizer.step()


# Other steps, clips and changes.


@refuse("every layer is clipped by itself", clipping="per_layer", clip=[1.0, 1.0])
@refuse(
    "learns the clip from the examples",
    clipping="adaptive",
    target_unclipped_quantile=0.5,
    clipbound_learning_rate=0.1,
    max_clipbound=10.0,
    min_clipbound=0.1,
    unclipped_num_std=10.0,
)
def another_clipping(training):
    training.epoch()


@refuse("distributed")
def distributed_training(training):
    training.optimizer.__class__ = DistributedDPOptimizer
    training.optimizer.rank, training.optimizer.world_size = 0, 1
    training.epoch()


@refuse("two trainings")
def one_engine_for_two_trainings(second):
    first = Training().epoch()
    hook = first.accountant.get_optimizer_hook_fn(1 / 6)
    first.accountant.watch(second.loader)
    second.optimizer.attach_step_hook(hook)
    second.epoch()


@refuse("changed between steps by something else")
def parameters_that_something_else_changes(training):
    training.epoch(each=lambda: next(training.model.parameters()).data.mul_(0.5))


@refuse("a step was refused: noise_multiplier", noise=0.0)
def no_noise(training):
    with pytest.raises(li.InvalidParameter, match="noise_multiplier must be"):
        training.epoch()
    training.engine.get_epsilon(DELTA)


# Steps of other optimizers have no noise, and a network's parameters are not compared.


def bare_step(training, optimizer):
    set_gradients(training.model.parameters())
    optimizer.step()


def adam(training):
    return torch.optim.Adam(training.model.parameters())


@refuse("original_optimizer", *EITHER_MODEL)
def steps_of_the_optimizer_that_opacus_wraps(training):
    training.epoch(each=lambda: bare_step(training, training.optimizer.original_optimizer))


@refuse(r"another optimizer \(Adam\)", *EITHER_MODEL)
def steps_of_another_optimizer(training):
    other = adam(training)
    training.epoch(each=lambda: bare_step(training, other))


@refuse("after the last private step", *EITHER_MODEL)
def a_bare_step_after_the_last_private_one(training):
    training.epoch()
    bare_step(training, training.optimizer.original_optimizer)
    training.engine.get_epsilon(DELTA)


@refuse(r"(?s)Adam.*after the last private step", *EITHER_MODEL)
def a_step_of_another_after_the_last_private_one(training):
    training.epoch()
    bare_step(training, adam(training))
    training.engine.get_epsilon(DELTA)


@refuse(
    r"another optimizer \(SGD\)",
    **NETWORK,
    optimizer=lambda parameters, **settings: torch.optim.SGD([*parameters][2:], **settings),
)
def steps_on_what_the_private_optimizer_leaves_alone(training):
    """It is in the model that is published all the same."""
    first = torch.optim.SGD([*training.model.parameters()][:2], lr=0.1)
    training.epoch(each=first.step)


@accept(6, *EITHER_MODEL)
def steps_that_are_no_matter(training):
    """Before the first private step, and of other parameters."""
    bare_step(training, adam(training))
    elsewhere = nn.Linear(2, 2)
    elsewhere(torch.ones(1, 2)).sum().backward()
    training.epoch(each=torch.optim.SGD(elsewhere.parameters(), lr=0.1).step)


@accept(6, *EITHER_MODEL)
def the_two_halves_of_a_private_step(training):
    for rows, labels in training.loader:
        training.backward(rows, labels)
        if training.optimizer.pre_step():
            training.optimizer.original_optimizer.step()


# Buffers and frozen parameters that forward passes write without noise.


class Remembering(nn.Module):
    """A linear layer beside the mean of the rows that it saw."""

    def __init__(self, *, persistent=True):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("seen", torch.zeros(4), persistent=persistent)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, rows):
        self.seen = 0.9 * self.seen + 0.1 * rows.detach().mean(dim=0)
        return self.layer(rows * self.scale)


def forgetting():
    return Remembering(persistent=False)


class Codes(nn.Module):
    """A linear layer beside the codebook of a quantised network, which is saved with it."""

    def __init__(self, how):
        super().__init__()
        self.layer, self.how = nn.Linear(4, 2), how
        self.code = nn.Parameter(torch.zeros(4), requires_grad=False)

    def forward(self, rows):
        mean = rows.detach().mean(0)
        if self.how == "in place":
            with torch.no_grad():
                self.code.add_(mean)
        elif self.how == "data":  # which torch does not count
            self.code.data.mul_(0.9).add_(0.1 * mean)
        else:
            self.code.numpy()[:] = mean.numpy()
        return self.layer(rows)


class FromData(nn.Module):
    """A layer that takes its mean from what it sees first."""

    def __init__(self):
        super().__init__()
        self.layer, self.done = nn.Linear(4, 2), False
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, rows):
        if not self.done:
            self.done = True
            self.mean.copy_(rows.mean(0))
        return self.layer(rows - self.mean)


def codes(how):
    return lambda: nn.Sequential(Codes(how))


@refuse(
    r"'seen'.* was changed in training", modes=["hooks", "functorch", "ghost"], model=Remembering
)
@refuse(r"the parameter '.*code'", modes=MODES, stated=None, model=codes("in place"))
def state_that_a_forward_pass_writes(training):
    training.epoch()


@refuse(
    r"the parameter '.*code'",
    *[{"model": codes(how)} for how in ("data", "numpy")],
    modes=["hooks", "ghost"],
    stated=None,
)
def state_that_is_written_where_torch_does_not_count(training):
    training.epoch().engine.get_epsilon(DELTA)


@refuse("'scale'", model=forgetting)
def buffers_that_change_after_the_last_step(training):
    assert training.epoch().accountant.get_epsilon(DELTA) > 0.0
    training.model._module.scale.mul_(2.0)
    training.accountant.get_epsilon(DELTA)


@accept(6, model=forgetting)
def buffers_that_are_loaded_before_training(training):
    state = {**training.model.state_dict(), "_module.scale": torch.full((4,), 0.5)}
    training.model.load_state_dict(state)
    training.epoch()


@refuse("mean", stated=None, model=lambda: nn.Sequential(FromData()))
def buffers_that_an_earlier_forward_pass_writes(training):
    with torch.no_grad():
        training.model(training.loader.dataset.tensors[0])
    training.epoch()


FROZEN = {"stated": None, "model": lambda: frozen_first()}


@accept(12, **FROZEN)
def the_same_numbers_loaded_moved_or_cast(training):
    model = training.model
    with torch.no_grad():
        model(training.loader.dataset.tensors[0])  # before pretrained weights come
    model.load_state_dict({key: one + 1.0 for key, one in model.state_dict().items()})
    for change in (training.epoch, training.epoch, model.share_memory, model.double):
        change()
        assert training.engine.get_epsilon(DELTA) > 0.0
        model.load_state_dict(copy.deepcopy(model.state_dict()))


def followed(training, **settings):
    """The model, after all of it was trained privately a second time."""
    model = training.epoch().model.to_standard_module()
    model.requires_grad_(True)
    Training(model=model, **settings).epoch()
    assert training.engine.get_epsilon(DELTA) > 0.0
    return model


@accept(6, **FROZEN)
def another_private_training_that_follows(training):
    followed(training)


@accept(6, **FROZEN)
def another_private_training_with_another_accountant(training):
    followed(training, accountant="prv")


@refuse("was changed in training", **FROZEN)
def what_another_private_training_made_is_written_to(training):
    model = followed(training)
    with torch.no_grad():
        model[0].weight.copy_(training.loader.dataset.tensors[0][:3])
    training.engine.get_epsilon(DELTA)


@refuse("another optimizer", **FROZEN)
def a_training_without_noise_that_follows(training):
    model = training.epoch().model.to_standard_module()
    model.requires_grad_(True)
    plain, settings = torch.optim.SGD(model[0].parameters(), lr=0.1), {"max_grad_norm": 1e9}
    bare = DPOptimizer(plain, noise_multiplier=0.0, expected_batch_size=1, **settings)
    for one in bare.params:
        one.grad_sample = torch.ones(1, *one.shape)
    bare.step()
    training.engine.get_epsilon(DELTA)


@pytest.mark.filterwarnings("ignore:every iterate is charged")
@pytest.mark.parametrize("loop, settings, why", REFUSED)
def test_refused(loop, settings, why):
    training = made(**settings)
    with pytest.raises(lo.RefusedTraining, match=why):
        loop(training)
    assert all(bool(torch.isfinite(one).all()) for one in training.model.parameters())


@pytest.mark.filterwarnings("ignore:every iterate is charged")
@pytest.mark.parametrize("loop, settings, steps", ACCEPTED)
def test_accepted(loop, settings, steps):
    training = made(**settings)
    loop(training)
    steps = len(training.loader) if loop is rows_of_a_network else steps
    assert training.accountant.run().steps == steps


def test_another_private_training_on_other_layers():
    """Each has its own noise and its own guarantee."""
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(4, 2))
    parts = [Training(model=model[k]) for k in range(2)]
    for batches in zip(*[one.loader for one in parts], strict=True):
        for training, batch in zip(parts, batches, strict=True):
            training.step(*batch)
    assert [one.accountant.run().steps for one in parts] == [6, 6]


@pytest.mark.parametrize("kind", [nn.CrossEntropyLoss, nn.NLLLoss])
def test_a_mean_by_label_weights(kind):
    weights = torch.tensor([0.05, 1.0])
    with pytest.raises(lo.RefusedTraining, match=rf"{kind.__name__}\(weight=..\) divides"):
        Training(criterion=kind(weight=weights))
    Training(criterion=kind(weight=weights), grad_sample_mode="ghost")
    Training(criterion=kind(weight=weights, reduction="sum"), loss_reduction="sum")


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_rows_that_are_not_finite_are_zero_for_a_bounded_layer(value, mode):
    found = []
    for numbers in ([value, 1.0, 0.0, 0.0], [0.0] * 4):
        loader = loader_of(shuffle=False)
        loader.dataset.tensors[0][3] = torch.tensor(numbers)
        torch.manual_seed(0)
        model = lo.BoundedLinear(4, 2, bound=1.0)
        training = Training(loader, model=model, grad_sample_mode=mode)
        torch.manual_seed(1)
        found.append([one.detach() for one in training.epoch().model.parameters()])
    assert all(map(torch.equal, *found))


class Taken(nn.Module):
    """A linear layer that takes rows in several forms, and a scale."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, given, scale):
        rows = given["x"] if isinstance(given, dict) else given
        return self.layer(rows[0] if isinstance(rows, list) else rows) * scale


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
def test_kept_batches_in_other_forms(wrap):
    lo.register()
    training = Training(model=Taken())
    rows, labels = first_batch(training)
    usual, batches = training.model, iter(training.loader)
    training.model = lambda rows: usual(wrap(rows), torch.ones(2))
    next(batches)
    training.step(rows, labels)
    next(batches)
    refused(training, "used again", [(rows, labels)])


class TestForwardPasses:
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

    def test_that_fail(self):
        training = Training()
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
        model = network()
        passes = _ForwardPasses(model)
        rows = torch.ones(3, 4, requires_grad=True)
        for times in (1, 2):
            each = [checkpoint(model, rows, use_reentrant=reentrant) for _ in range(times)]
            sum(each).sum().backward()
            assert passes.take() == times

    def test_of_layers_in_training_inside_a_model_in_evaluation(self):
        model = GradSampleModule(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1)))
        passes = _ForwardPasses(model)
        model.eval()
        model._module[1].train()
        for _ in range(2):
            model(torch.zeros(4, 3))
        assert passes.take() == 2
        model.eval()
        model(torch.zeros(4, 3))
        assert passes.take() == 0

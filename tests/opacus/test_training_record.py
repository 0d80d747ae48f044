"""What no bound for the last iterate covers is charged for by composition, with the reason."""

import pytest
import torch
from opacus.schedulers import ExponentialGradClip
from torch import nn

import lastiterate as li
import lastiterate.opacus as lo

from .trainings import DELTA, MODES, Training, charged, loader_of, network, sgd


def optimized(kind):
    return Training(optimizer=kind).epochs(2)


def differing(name, others):
    def with_another_bias(parameters, *, lr, weight_decay):
        weight, bias = parameters
        groups = [{"params": [weight]}, {"params": [bias], name: others}]
        return torch.optim.SGD(groups, lr=lr, weight_decay=weight_decay)

    return optimized(with_another_bias)


def nothing_said():
    lo.register()
    return Training().epochs(2)


def hooked():
    training = Training()
    training.optimizer.original_optimizer.register_step_post_hook(lambda *_: None)
    return training.epochs(2)


def changed(name, value, **settings):
    training = Training(**settings).epoch()
    training.optimizer.param_groups[0][name] = value
    return training.epoch()


def cut_short():
    return Training().epoch(batches=2).epoch(batches=2).epoch(batches=2)


def skipped():
    training = Training()
    for _ in range(2):
        training.epoch(batch for k, batch in enumerate(training.loader) if k % 2)
    return training


def unknown_loader():
    """Then every step may have seen the example."""
    training = Training()
    training.optimizer.attach_step_hook(training.accountant.get_optimizer_hook_fn(1 / 6))
    return training.epochs(2)


def with_momentum(**more):
    return {"optimizer": sgd(momentum=0.9, **more), "loader": loader_of(shuffle=False)}


def then(**setting):
    ((name, value),) = setting.items()
    return changed(name, value, **with_momentum())


def buffers(training):
    return [training.optimizer.state[one] for one in training.optimizer.params]


def buffer_from_elsewhere():
    training = Training(**with_momentum())
    for one in training.optimizer.params:
        training.optimizer.state[one]["momentum_buffer"] = torch.ones_like(one)
    return training.epochs(2)


def changed_buffer():
    training = Training(**with_momentum()).epoch()
    for state in buffers(training):
        state["momentum_buffer"].mul_(0.5)
    return training.epoch()


def emptied_buffer():
    training = Training(**with_momentum()).epoch()
    buffers(training)[0].clear()
    return training.epoch()


def dampened(dampening):
    return Training(**with_momentum(dampening=dampening)).epochs(2)


def uneven():
    return Training(loader_of(130, drop_last=False)).epochs(2)


# A training, and the reason.
COMPOSED = {
    "Adam": (lambda: optimized(torch.optim.Adam), "Adam, not torch.optim.SGD"),
    "AdamW": (lambda: optimized(torch.optim.AdamW), "AdamW, not torch.optim.SGD"),
    "RMSprop": (lambda: optimized(torch.optim.RMSprop), "RMSprop, not torch.optim.SGD"),
    "other rates": (lambda: differing("lr", 0.1), "differ in lr"),
    "other momenta": (lambda: differing("momentum", 0.9), "differ in momentum"),
    "other dampening": (lambda: differing("dampening", 0.5), "differ in dampening"),
    "steps uphill": (lambda: optimized(sgd(maximize=True)), "maximize=True"),
    "a smaller last batch": (uneven, "use drop_last=True"),
    "a network": (lambda: Training(model=network()).epochs(2), "tensors of shapes"),
    "nothing said of the loss": (nothing_said, "the loss is not stated"),
    "hooks of the optimizer": (hooked, "hooks of the optimizer"),
    "another decay": (lambda: changed("weight_decay", 0.1), "weight decay changes"),
    "passes cut short": (cut_short, "not finished"),
    "skipped batches": (skipped, "skipped"),
    "an unknown loader": (unknown_loader, "loader is not known"),
    "dampening of 1": (lambda: dampened(1.0), "not in \\[0, 1\\)"),
    "dampening below 0": (lambda: dampened(-0.5), "not in \\[0, 1\\)"),
    "no more momentum": (lambda: then(momentum=0.0), "momentum is 0 in some steps"),
    "dampening that begins": (lambda: then(dampening=0.3), "dampening changes"),
    "nesterov that begins": (lambda: then(nesterov=True), "nesterov changes"),
    "a buffer from elsewhere": (buffer_from_elsewhere, "not empty before the first step"),
    "a changed buffer": (changed_buffer, "buffer was changed between steps"),
    "a buffer emptied in part": (emptied_buffer, "buffer was changed between steps"),
}
SEEN = {"passes cut short": 3, "an unknown loader": 12}  # steps that see an example, if not 2


@pytest.mark.parametrize("name", COMPOSED)
def test_every_iterate_is_charged_for(name):
    make, why = COMPOSED[name]
    charged(make(), why, gdp=SEEN.get(name, 2) ** 0.5 / 2.0)


def test_momentum_with_poisson_batches():
    training = Training(optimizer=sgd(momentum=0.9), poisson_sampling=True).epochs(2)
    with pytest.warns(UserWarning, match="only batches of a fixed size have a bound"):
        assert training.accountant.report().bound.startswith("composition/")


class TestClipsThatChange:
    """The clip of every physical batch counts, not only the one that noise is drawn by."""

    @pytest.mark.parametrize("gamma", [0.5, 2.0])
    def test_inside_a_logical_batch(self, gamma):
        """Of three parts; noise has the clip of the last."""
        training = Training(loader_of(batch_size=60))
        training.virtual(20, each=ExponentialGradClip(training.optimizer, gamma=gamma).step)
        charged(training, "the clip changed within a step", gdp=0.5 / min(gamma**2, 1.0))

    @pytest.mark.parametrize("gamma", [0.5, 2.0])
    def test_of_ghost_clipping_which_a_scheduler_does_not_change(self, gamma):
        training = Training(grad_sample_mode="ghost")
        training.epoch(each=ExponentialGradClip(training.optimizer, gamma=gamma).step)
        why = "ghost clipping has another one than the noise"
        charged(training, why, gdp=0.5 / min(gamma**5, 1.0))

    def test_from_step_to_step(self):
        training = Training()
        training.epoch(each=ExponentialGradClip(training.optimizer, gamma=0.9).step)
        assert not [one for one in training.accountant.reasons if "the clip" in one]
        assert len(set(training.accountant.run().noise_std)) == 6


class TestStatementsThatDoNotHold:
    @pytest.mark.parametrize("mode", MODES)
    def test_rows_that_are_too_long(self, mode):
        training = Training(loader_of(length=10.0), grad_sample_mode=mode).epochs(2)
        charged(training, "lipschitz=2")

    def test_rows_a_little_too_long(self):
        """No gradient exceeds the bound; those of the bias tell how long a row is."""
        charged(Training(loader_of(length=1.01)).epochs(2), "feature_bound=1")

    def test_another_loss(self):
        def squares(outputs, labels):
            targets = nn.functional.one_hot(labels, outputs.shape[1]).float()
            return 0.1 * ((outputs - targets) ** 2).sum(dim=1).mean()

        charged(Training(criterion=squares).epochs(2), "did not add up to 0")

    def test_one_logit_with_a_weight(self):
        lo.register(loss=lo.logistic(feature_bound=1.0))

        def heavier(outputs, labels):
            return nn.functional.binary_cross_entropy_with_logits(
                outputs[:, 0], labels.float(), pos_weight=torch.tensor(5.0)
            )

        training = Training(model=nn.Linear(4, 1), criterion=heavier, clip=1.5).epochs(2)
        charged(training, "loss is a different one")

    def test_a_stated_bound(self):
        lo.register(loss=li.Loss(smoothness=1.0, lipschitz=0.1))
        charged(Training().epoch(), "lipschitz=0.1")

    def test_what_was_seen_is_kept_in_checkpoints(self):
        first = Training(loader_of(length=10.0)).epoch()
        second = Training(loader_of(length=10.0))
        second.accountant.load_state_dict(first.accountant.state_dict())
        assert second.accountant.reasons == first.accountant.reasons != ()

    @pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
    def test_rows_that_the_model_keeps_within_the_bound(self, mode):
        model = lo.BoundedLinear(4, 2, bound=1.0)
        training = Training(loader_of(length=10.0), model=model, grad_sample_mode=mode).epochs(2)
        unit = Training().epochs(2)
        assert training.accountant.reasons == ()
        found = training.accountant.get_epsilon(DELTA)
        assert found == unit.accountant.get_epsilon(DELTA)

    def test_gradients_of_a_bounded_layer(self):
        training = Training(loader_of(length=10.0), model=lo.BoundedLinear(4, 2, bound=1.0))
        training.backward(*next(iter(training.loader)))
        weight, bias = (one.grad_sample for one in training.model.parameters())
        lengths = weight.flatten(1).norm(dim=1)
        assert torch.allclose(lengths, bias.norm(dim=1), atol=1e-5)  # every row has norm 1

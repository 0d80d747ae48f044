"""Real trainings by Opacus, small enough to be run often, and the runs that they are."""

from functools import cache

import pytest
import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import lastiterate as li
import lastiterate.opacus as lo

BINARY = lo.softmax(feature_bound=1.0, classes=2)
DELTA = 1e-5
MODES = ["hooks", "functorch", "ew", "ghost"]


def unit_rows(count, width=4, classes=2, seed=0, length=1.0):
    torch.manual_seed(seed)
    rows = torch.randn(count, width)
    rows = rows / rows.norm(dim=1, keepdim=True)
    return TensorDataset(length * rows, rows[:, :classes].argmax(dim=1))


def loader_of(examples=120, batch_size=20, *, classes=2, width=4, length=1.0, **settings):
    settings = {"shuffle": True, "drop_last": True} | settings
    if "sampler" in settings or "batch_sampler" in settings:
        settings.pop("shuffle")
    if "batch_sampler" in settings:
        settings.pop("drop_last")
    else:
        settings["batch_size"] = batch_size
    return DataLoader(unit_rows(examples, width, classes, length=length), **settings)


def network():
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))


def sgd(**more):
    return lambda parameters, **settings: torch.optim.SGD(parameters, **settings, **more)


class Training:
    """One model, made private, with the usual loop."""

    def __init__(
        self,
        loader=None,
        *,
        model=None,
        optimizer=torch.optim.SGD,
        outputs=2,
        lr=0.5,
        decay=0.05,
        noise=2.0,
        clip=2.0,
        accountant="last-iterate",
        criterion=None,
        **settings,
    ):
        loader = loader_of() if loader is None else loader
        self.model = nn.Linear(4, outputs) if model is None else model
        plain = optimizer(self.model.parameters(), lr=lr, weight_decay=decay)
        self.engine = PrivacyEngine(accountant=accountant)
        self.criterion = nn.CrossEntropyLoss() if criterion is None else criterion
        made_private = self.engine.make_private(
            module=self.model,
            optimizer=plain,
            criterion=self.criterion,
            data_loader=loader,
            noise_multiplier=noise,
            max_grad_norm=clip,
            **{"poisson_sampling": False} | settings,
        )
        self.model, self.optimizer, *more, self.loader = made_private
        self.criterion = more[0] if more else self.criterion

    @property
    def accountant(self):
        return self.engine.accountant

    def backward(self, rows, labels):
        self.optimizer.zero_grad()
        self.criterion(self.model(rows), labels).backward()

    def step(self, rows, labels):
        self.backward(rows, labels)
        self.optimizer.step()

    def epoch(self, loader=None, *, batches=None, each=lambda: None):
        """A pass; after `batches` steps one more batch is drawn, and dropped."""
        for number, (rows, labels) in enumerate(self.loader if loader is None else loader):
            if number == batches:
                break
            self.step(rows, labels)
            each()
        return self

    def epochs(self, count):
        for _ in range(count):
            self.epoch()
        return self

    def virtual(self, size=7, **settings):
        """A pass in physical batches of at most `size` rows."""
        with BatchMemoryManager(
            data_loader=self.loader, max_physical_batch_size=size, optimizer=self.optimizer
        ) as smaller:
            return self.epoch(smaller, **settings)

    def continued(self, other):
        """Go on with the model and the accountant of another training."""
        self.model.load_state_dict(other.model.state_dict())
        self.accountant.load_state_dict(other.accountant.state_dict())
        return self


def direct(batches, steps, *, divisor=None, decay=0.05, lr=0.5, **changes):
    """The run as a user of `li.account` describes it; another divisor changes step and penalty."""
    scale = 1.0 if divisor is None else batches.batch_size / divisor
    stated = {
        "loss": li.Loss(
            smoothness=1.0 + decay / scale, regulariser=decay / scale, lipschitz=2.0, outputs=1
        ),
        "clip_norm": 2.0,
        "noise_multiplier": 2.0,
        "step_size": lr * scale,
    }
    return li.TrainingRun.from_dp_sgd(batches=batches, steps=steps, **stated | changes)


@cache
def epsilon(run):
    return li.account(run).epsilon(DELTA)


def same(accountant, run, *, rel=1e-9):
    """Whether the accountant charges what that run costs, with its batches and no reason."""
    assert accountant.get_epsilon(DELTA) == pytest.approx(epsilon(run), rel=rel)
    assert accountant.run().batches == run.batches
    return accountant.reasons == ()


def charged(training, why, *, gdp=None):
    """Every iterate of this training is charged for, with this reason, and as so much in all."""
    with pytest.warns(UserWarning, match=f"every iterate is charged for.*{why}"):
        report = training.accountant.report()
    assert report.bound.startswith("composition/")
    if gdp is not None:
        assert report.bound == "composition/fixed-order"
        assert report.gdp() == pytest.approx(gdp, rel=1e-6)


def refused(training, why, loader=None, **settings):
    """A pass of this training, or over this loader, ends in a refusal for this reason."""
    with pytest.raises(lo.RefusedTraining, match=why):
        training.epoch(loader, **settings)

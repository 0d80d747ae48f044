"""Real trainings by Opacus, small enough to be run often."""

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


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


class Training:
    """One model, made private, with the usual loop."""

    def __init__(
        self,
        loader,
        *,
        model=None,
        optimizer=None,
        outputs=2,
        lr=0.5,
        decay=0.05,
        noise=2.0,
        clip=2.0,
        accountant="last-iterate",
        criterion=None,
        **settings,
    ):
        if model is None:
            model = nn.Linear(loader.dataset.tensors[0].shape[1], outputs)
        self.model = model
        made = torch.optim.SGD if optimizer is None else optimizer
        plain = made(self.model.parameters(), lr=lr, weight_decay=decay)
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

    def epoch(self, *, batches=None, each=lambda: None, loader=None):
        for number, (rows, labels) in enumerate(self.loader if loader is None else loader):
            if number == batches:
                break
            self.backward(rows, labels)
            self.optimizer.step()
            each()
        return self

    def backward(self, rows, labels):
        self.optimizer.zero_grad()
        self.criterion(self.model(rows), labels).backward()

    def epochs(self, count):
        for _ in range(count):
            self.epoch()
        return self

"""The loop on the README's first screen runs, and has the epsilon of the run that it describes."""

import re

import pytest
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import lastiterate as li
from tests.docs.pages import ROOT, blocks


def changed_lines(page, added):
    """The code after the change, without what was taken out."""
    (diff,) = [one.text for one in blocks(ROOT / page) if one.language == "diff"]
    assert len(re.findall(r"^\+", diff, re.MULTILINE)) == added
    return re.sub(r"^[+ ]", "", re.sub(r"^-.*\n", "", diff, flags=re.MULTILINE), flags=re.MULTILINE)


@pytest.mark.filterwarnings("ignore")
def test_the_loop_has_the_epsilon_of_the_table_s_run():
    torch.manual_seed(0)
    rows = torch.randn(4_000, 3)
    rows = rows / rows.norm(dim=1, keepdim=True)
    model = nn.Linear(3, 1, bias=False)
    made = {
        "PrivacyEngine": PrivacyEngine,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.5, weight_decay=0.01),
        "loader": DataLoader(TensorDataset(rows, (rows[:, :1] > 0).float()), batch_size=40),
    }
    exec(changed_lines("README.md", 3), made)
    criterion = nn.BCEWithLogitsLoss()
    for _ in range(3):
        for features, labels in made["loader"]:
            made["optimizer"].zero_grad()
            criterion(made["model"](features), labels).backward()
            made["optimizer"].step()
    run = li.TrainingRun.from_dp_sgd(
        batches=li.PoissonSampled(4_000, 40),
        steps=300,
        clip_norm=1.0,
        noise_multiplier=1.0,
        step_size=0.5,
        adjacency="zero-out",
        loss=li.Loss(smoothness=0.26, regulariser=0.01, lipschitz=1.0, outputs=1),
    )
    accountant = made["engine"].accountant
    assert not accountant.reasons
    expected = li.account(run).epsilon(1e-5)
    assert made["engine"].get_epsilon(1e-5) == pytest.approx(expected, rel=1e-6)
    assert accountant.report().bound_at(1e-5) == "random-order/poisson"


@pytest.mark.filterwarnings("ignore")
def test_the_loop_for_ten_classes_has_no_reason_left():
    rows = torch.randn(400, 12)
    rows = rows / rows.norm(dim=1, keepdim=True)
    model = nn.Linear(12, 10)
    made = {
        "PrivacyEngine": PrivacyEngine,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.5, weight_decay=0.01),
        "loader": DataLoader(TensorDataset(rows, rows[:, :10].argmax(dim=1)), batch_size=40),
    }
    exec(changed_lines("docs/dp-sgd.md", 5), made)
    for features, labels in made["loader"]:
        made["optimizer"].zero_grad()
        nn.functional.cross_entropy(made["model"](features), labels).backward()
        made["optimizer"].step()
    assert made["engine"].accountant.reasons == ()
    assert not made["engine"].accountant.run().clip_may_be_active

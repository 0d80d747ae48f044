"""The loop that the documentation shows, run as it stands there."""

from pathlib import Path

import pytest
import torch
from opacus import PrivacyEngine
from opacus.accountants import PRVAccountant
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import lastiterate as li
import lastiterate.opacus as lo

DELTA = 1e-5
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "dp-sgd.md"


def loops(page):
    """The blocks of a page that import Opacus."""
    parts = page.read_text(encoding="utf-8").split("```")
    return [part.removeprefix("python\n") for part in parts if "from opacus import" in part]


def loop(*, epochs, shuffled):
    (text,) = loops(PAGE)
    changes = {"range(30)": f"range({epochs})"}
    if shuffled:
        changes["shuffle=True)"] = "shuffle=True, drop_last=True)"
        changes["max_grad_norm=1.0,"] = "max_grad_norm=1.0, poisson_sampling=False,"
    for old, new in changes.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


def trained(**settings):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(50_000, 4, generator=generator)
    features /= features.norm(dim=1, keepdim=True)
    names = {"features": features, "labels": (features[:, 0] > 0).float()}
    exec(compile(loop(**settings), str(PAGE), "exec"), names)
    return names["engine"]


def described(rule, steps):
    """The numbers of the loop; Opacus' divisor is that of `rule`, or made up for by the step."""
    return li.TrainingRun.from_dp_sgd(
        batches=rule,
        steps=steps,
        clip_norm=1.0,
        noise_multiplier=1.0,
        step_size=0.5,
        loss=li.Loss(smoothness=0.26, regulariser=0.01, lipschitz=1.0, outputs=1),
    )


def test_every_page_shows_this_loop():
    """So that it is run wherever it is shown."""
    (text,) = loops(PAGE)
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        assert set(loops(page)) <= {text}


class TestTwoEpochs:
    """The same loop and the same run as in 30, but for the number of steps."""

    def test_poisson(self):
        engine = trained(epochs=2, shuffled=False)
        run, rule = engine.accountant.run(), li.PoissonSampled(50_000, 510, sample_rate=1 / 98)
        assert engine.accountant.reasons == ()
        expected = li.account(described(rule, 196)).epsilon(DELTA)
        assert engine.get_epsilon(DELTA) == pytest.approx(expected, rel=1e-9)
        whole = li.account(run.replace(steps=2_940))
        assert 0.9 <= whole.epsilon(DELTA) <= 0.92
        prv = PRVAccountant()
        prv.history = [(1.0, 1 / 98, 2_940)]
        every = whole.all["composition/sampled"].epsilon(DELTA)
        assert every == pytest.approx(prv.get_epsilon(DELTA), rel=0.01)

    def test_shuffled(self):
        engine = trained(epochs=2, shuffled=True)
        run = engine.accountant.run()
        assert engine.accountant.reasons == ()
        expected = described(li.ShuffledEachEpoch(50_000, 512), 194)
        certified = li.account(expected).epsilon(DELTA)
        # A step of .5 * 512/515 with a penalty of .01 * 515/512 contracts as that one does, and is
        # a little shorter, so that it keeps more of earlier noise.
        assert 0.99 * certified <= engine.get_epsilon(DELTA) <= certified
        whole = li.account(run.replace(steps=2_910)).epsilon(DELTA)
        assert 0.75 <= whole <= 2.13


@pytest.mark.slow
@pytest.mark.parametrize("shuffled, least, most", [(False, 0.9, 0.92), (True, 0.75, 2.13)])
def test_thirty_epochs(shuffled, least, most):
    engine = trained(epochs=30, shuffled=shuffled)
    assert engine.accountant.reasons == ()
    assert least <= engine.get_epsilon(DELTA) <= most


@pytest.mark.filterwarnings("ignore")
def test_the_loader_for_networks_is_charged_as_the_page_says():
    parts = PAGE.read_text(encoding="utf-8").split("```")
    (text,) = [part for part in parts if "collate_fn=lt.EmptyBatches(" in part]
    rows = torch.randn(50_000, 4)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    names = {
        "DataLoader": DataLoader,
        "PrivacyEngine": PrivacyEngine,
        "lo": lo,
        "dataset": TensorDataset(rows, (rows[:, :1] > 0).float()),
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }
    exec(compile(text.removeprefix("python\n"), str(PAGE), "exec"), names)
    for features, labels in names["loader"]:
        names["optimizer"].zero_grad()
        nn.functional.binary_cross_entropy_with_logits(names["model"](features), labels).backward()
        names["optimizer"].step()
    run = names["engine"].accountant.run()
    assert run.batches == li.BallsAndBinsEachEpoch(50_000, 512)
    assert names["engine"].accountant.report().bound == "composition/balls-and-bins"

"""Canaries in a network: a lower bound below the guarantee, and a bad loop that is caught."""

import warnings

import pytest
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import lastiterate as li
import lastiterate.opacus as lo
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.report.text import NO_GUARANTEE

ROWS, STEPS, NOISE, CLIP, LR = 12, 2, 1.4142, 1.0, 0.5
DATA = torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(0))
DATASET = TensorDataset(DATA, (DATA[:, 0] > 0).long())
GRADIENT = lo.GradientCanary()
INPUT = lo.InputCanary(inputs=torch.full((1, 3), 6.0), target=torch.tensor([0]))
EACH_CANARY = pytest.mark.parametrize("canary", [GRADIENT, INPUT], ids=["gradient", "input"])


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def loop(*, noise=NOISE, steps=STEPS, watched=True):
    """A training of a small network on full batches."""

    def train(session, seed):
        model = network()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, optimizer, loader = PrivacyEngine(accountant="rdp").make_private(
                module=model,
                optimizer=torch.optim.SGD(model.parameters(), lr=LR),
                data_loader=DataLoader(DATASET, batch_size=ROWS),
                noise_multiplier=noise,
                max_grad_norm=CLIP,
                poisson_sampling=False,
            )
            if watched:
                session.watch(model, optimizer)
            torch.manual_seed(seed)
            for _ in range(steps):
                for x, y in loader:
                    optimizer.zero_grad()
                    nn.functional.cross_entropy(model(x), y).backward()
                    optimizer.step()

    return train


@pytest.fixture(scope="module")
def report():
    run = li.TrainingRun.from_dp_sgd(
        batches=li.FullBatch(ROWS),
        steps=STEPS,
        clip_norm=CLIP,
        noise_multiplier=NOISE,
        step_size=LR,
        adjacency="zero-out",
    )
    return li.account(run)


def test_a_lower_bound_below_the_guarantee(report):
    found = lo.audit_training(loop(), report, GRADIENT, runs=40)
    assert not found.refuted
    assert 0.0 <= found.lower_epsilon <= report.epsilon(1e-5)
    text = str(found)
    lines = text.splitlines()
    assert "at least: this canary" in lines[1]
    assert NO_GUARANTEE in text
    assert "the guarantee" in lines[-2]
    assert lines[-1].startswith("not refuted at 99.000% confidence")


@pytest.mark.slow
@EACH_CANARY
def test_an_honest_loop_is_not_refuted(report, canary):
    found = lo.audit_training(loop(), report, canary, runs=300)
    assert not found.refuted
    assert found.lower_epsilon <= report.epsilon(1e-5)


def test_a_loop_without_noise_is_caught(report):
    found = lo.audit_training(loop(noise=NOISE / 50), report, GRADIENT, runs=40)
    assert found.refuted
    assert "REFUTED" in str(found)


@pytest.mark.slow
def test_half_the_noise_is_caught(report):
    found = lo.audit_training(loop(noise=NOISE / 2), report, GRADIENT, runs=300)
    assert found.refuted
    assert found.verdict.gdp() > report.gdp()


class TestTheMechanism:
    @EACH_CANARY
    def test_moves_a_step_by_at_most_the_clip_norm(self, canary):
        ends = []
        for inserted in (True, False):
            session = lo.CanarySession(canary, inserted=inserted, seed=0)
            loop(noise=0.0, steps=1)(session, 0)
            ends.append(torch.cat([p.detach().ravel() for p in session._parameters]))
        most = LR * CLIP / ROWS
        assert 0.5 * most < float((ends[0] - ends[1]).norm()) <= most * (1 + 1e-5)

    def test_takes_part_at_its_rate(self):
        canary, often = lo.GradientCanary(rate=0.25), 0
        scores = []
        for inserted in (True, False):
            session = lo.CanarySession(canary, inserted=inserted, seed=3)
            loop(noise=0.0, steps=40)(session, 0)
            scores.append(session.score())
        assert scores[0] > scores[1]
        counted = lo.CanarySession(canary, inserted=True, seed=3)
        counted._parameters = list(network().parameters())
        for p in counted._parameters:
            p.summed_grad = torch.zeros_like(p)
        for _ in range(400):
            before = counted._parameters[0].summed_grad.clone()
            counted._insert(CLIP)
            often += not torch.equal(before, counted._parameters[0].summed_grad)
        assert 70 <= often <= 130

    def test_the_gradient_of_an_input_is_that_of_autograd(self):
        model = network()
        parameters = list(model.parameters())
        found = INPUT._gradient(model, parameters)
        nn.functional.cross_entropy(model(INPUT.inputs), INPUT.target).backward()
        for one, p in zip(found, parameters, strict=True):
            torch.testing.assert_close(one, p.grad)


class TestRefused:
    def test_a_loop_that_is_never_watched(self, report):
        with pytest.raises(InvalidParameter, match="calls session"):
            lo.audit_training(loop(watched=False), report, GRADIENT, runs=20)

    def test_other_optimizers_and_canaries(self, report):
        session, model = lo.CanarySession(GRADIENT, inserted=True, seed=0), network()
        plain = torch.optim.SGD(model.parameters(), lr=0.1)
        one_label = torch.tensor([0])
        for call, kind, why in (
            (lambda: session.watch(model, plain), InvalidType, "a DPOptimizer of Opacus"),
            (lambda: lo.audit_training(loop(), report, "c"), InvalidType, "canary must be"),
            (lambda: lo.audit_training(loop(), 3.0, GRADIENT), InvalidType, "report must be"),
            (
                lambda: lo.InputCanary(inputs=torch.ones(2, 3), target=one_label),
                InvalidType,
                "inputs must be a tensor of one",
            ),
            (lambda: lo.GradientCanary(rate=0.0), InvalidParameter, "rate must be"),
        ):
            with pytest.raises(kind, match=why):
                call()

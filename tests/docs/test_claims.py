"""Claims of the pages that a session or a generated table cannot show, and nothing else tests."""

import json
import math
import tomllib

import numpy as np
import pytest

import lastiterate as li
from lastiterate.linear_model import PrivateLogisticRegression
from lastiterate.reproduce import chien_li
from lastiterate.shifts.optimal_shifts import optimal_shifts
from lastiterate.train.defaults import default_run
from lastiterate.train.objectives import Huber, Logistic, Softmax
from lastiterate.train.settings import RunSettings
from tests.readme_run import readme_run
from tests.reference import momentum as reference

from .pages import ROOT


def test_the_version_of_python():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    least = project["requires-python"].removeprefix(">=")
    for page in ("README.md", "docs/index.md"):
        assert f"Python {least}" in (ROOT / page).read_text(encoding="utf-8")


class TestChoosing:
    """The trainers take what the page advises."""

    @staticmethod
    def planned(objective):
        settings = RunSettings(epsilon=1.0, delta=1e-5)
        return default_run(objective, settings, examples=5_000, radius=1.0)

    @pytest.mark.parametrize("objective, product", [
        (Logistic(), 2.0), (Softmax(classes=3), 2.0), (Huber(clip=1.0), 1.0)
    ])  # fmt: skip
    def test_step_size(self, objective, product):
        run = self.planned(objective)
        assert run.step_size * run.loss.smoothness == pytest.approx(product, rel=1e-12)

    def test_batches_and_noise_on_release(self):
        run = self.planned(Logistic())
        half_an_epoch = math.sqrt(run.batches.batches_per_epoch / 2)
        assert isinstance(run.batches, li.ShuffledOnce)
        expected = run.step_size * run.noise_std * half_an_epoch
        assert run.release_noise_std == pytest.approx(expected, rel=1e-9)

    def test_penalty_and_delta(self):
        model = PrivateLogisticRegression()
        assert (model.l2, model.delta) == (0.0, 1e-5)

    @pytest.mark.parametrize("share, helps", [(0.95, False), (1.05, True)])
    def test_a_ball_helps_once_two_runs_would_be_so_far_apart(self, share, helps):
        passes = 4 * 0.3 * 1_500 / (0.05 * 10)
        flat = readme_run(li.ShuffledOnce, epochs=round(share * passes), regulariser=0.0)
        free, held = (
            li.account(one, bounds="fixed-order").gdp()
            for one in (flat, flat.replace(domain=li.Ball(diameter=0.3)))
        )
        assert (held < free * (1 - 1e-9)) == helps


def test_common_losses():
    """Smoothness, gradients and sensitivity as the page of notation has them."""
    radius, l2, root, clip = 7.0, 0.1, math.sqrt(2), 3.0
    for objective, *expected in (
        (Logistic(clip=1.0), radius**2 / 4, radius),
        (Softmax(classes=3, clip=root), radius**2 / 2, root * radius),
        (Huber(clip=clip), radius**2, clip * radius),
    ):
        smoothness, gradient = expected
        found = objective.loss(radius=radius, l2=l2).smoothness
        assert found == pytest.approx(smoothness + l2, rel=1e-12)
        assert objective.gradient_bound(radius=radius) == pytest.approx(gradient, rel=1e-12)
        replaced = objective.sensitivity(radius=radius, adjacency="replace")
        assert replaced == pytest.approx(2 * gradient, rel=1e-12)


@pytest.mark.parametrize("changes", [
    {"batches": li.Cyclic(60_000, 1_500)},
    {"batches": li.FullBatch(60_000), "steps": 500},
    {"batches": li.Cyclic(60_000, 1_500), "release_noise_std": 0.002},
    {"batches": li.Cyclic(60_000, 1_500), "loss": li.Loss(smoothness=30.0)},
    {"batches": li.Cyclic(60_000, 1_500), "loss": li.Loss(smoothness=30.0, convex=False)},
])  # fmt: skip
def test_bounds_of_fixed_orders_are_attained(changes):
    report = li.account(readme_run().replace(**changes))
    for delta in (1e-5, 1e-2):
        assert report.ratio_to_lower_bound(delta) == pytest.approx(1.0, abs=5e-4)


class TestMomentum:
    def test_plain_steps_claim_too_little(self):
        """In the middle of an epoch: plain steps, what heavy ball leaks, and the theorem."""
        batches, size, epochs, step, beta, penalty = 98, 512, 3, 0.05, 0.9, 0.01
        steps, middle, h = batches * epochs, batches // 2 - 1, step / (1 - beta)
        run = li.TrainingRun(
            loss=li.Loss(smoothness=0.25 + penalty, strong_convexity=penalty),
            sensitivity=2.0,
            batches=li.FixedOrder(batches * size, size, tuple(range(middle + 1, steps, batches))),
            steps=steps,
            step_size=step,
            noise_std=1.0 / size,
            momentum=beta,
        )
        seen = np.zeros(steps)
        seen[middle::batches] = 1.0
        plain = optimal_shifts(
            contraction=1 - h * penalty, sensitivity=h * seen, noise=np.full(steps, h)
        ).mu
        moved = variance = 0.0
        for k in range(steps):
            gradients = [lambda x, g=float(j == k): penalty * x + g for j in range(steps)]
            path = reference.torch_sgd(
                gradients,
                lr=[step] * steps,
                momentum=[beta] * steps,
                dampening=[0.0] * steps,
                nesterov=False,
                start=np.zeros(1),
            )
            moved, variance = moved + seen[k] * path[-1][0], variance + path[-1][0] ** 2
        leaks = abs(moved) / math.sqrt(variance)
        certified = li.account(run).gdp() / (run.sensitivity / size / run.noise_std)
        assert plain < 0.97 * leaks < leaks < certified

    def test_plain_steps_were_more_accurate_at_every_epsilon(self):
        stored = json.loads((ROOT / "benchmarks/momentum_accuracy.json").read_text("utf-8"))
        assert stored.keys() == {"mnist", "adult"}
        for by_epsilon in stored.values():
            for kinds in by_epsilon.values():
                assert max(kinds, key=lambda kind: kinds[kind]["accuracy"]) == "plain"


@pytest.mark.parametrize("batches", [False, True])
def test_unlearning_costs_less_than_half_of_what_two_papers_charge(batches):
    for epsilon, _, *noise in chien_li._EXTRA_EPOCHS:
        examples = chien_li.PARTS if batches else chien_li.FULL
        ours = chien_li.ours(noise[batches], batches=batches).epsilon(1 / examples)
        assert ours < epsilon / 2

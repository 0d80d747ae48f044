"""Audits of forgetting: broken unlearners are caught, the honest one is left alone."""

import warnings
from dataclasses import dataclass

import numpy as np
import pytest

import lastiterate as li
from lastiterate.audit import empirical, exact
from lastiterate.audit.certified_trainers import OwnTrainer, OwnUnlearner, trainer_of_certificate
from lastiterate.audit.exact import quadratics
from lastiterate.cli import main
from lastiterate.linear_model import PrivateHuberRegressor
from lastiterate.train.objectives import Huber

HUBER = Huber(clip=1.0)
LOSS = HUBER.loss(radius=1.0, l2=1.0)
RUN = li.TrainingRun(
    loss=LOSS,
    sensitivity=HUBER.sensitivity(radius=1.0, adjacency="zero-out"),
    batches=li.Cyclic(4, 2),
    steps=4,
    step_size=0.5,
    noise_std=0.1,
    adjacency="zero-out",
)
PROMISED = li.unlearning(RUN, extra_steps=2)
HONEST = OwnUnlearner((RUN, RUN.replace(steps=2)), HUBER, 1.0)


@dataclass(frozen=True)
class KeepsTheRows(OwnUnlearner):
    """To the end, in world 1."""

    def __call__(self, world, seeds):
        data = [self.data(used=world == 1)] * len(self.stages)
        return np.array([self._released(data, int(seed)) for seed in seeds])


def quieter(run):
    return run.replace(noise_std=run.noise_std / 2)


BROKEN = {
    "no extra steps": KeepsTheRows((RUN,), HUBER, 1.0),
    "half the noise": OwnUnlearner(tuple(map(quieter, HONEST.stages)), HUBER, 1.0),
    "rows still used": KeepsTheRows(HONEST.stages, HUBER, 1.0),
}
RUNS = 400


class TestExactly:
    def test_quadratics_attain_what_is_certified(self):
        for many, release in ((1, 0.0), (2, 0.0), (1, 0.2)):
            run = RUN.replace(batches=li.FullBatch(4), release_noise_std=release)
            found = li.unlearning(run, extra_steps=3, examples=many)
            true = exact.curve(quadratics(found)).epsilon(1e-5)
            assert true.upper <= found.epsilon(1e-5) * (1 + 1e-6)
            assert true.lower >= found.epsilon(1e-5) * (1 - 1e-6)

    def test_batches_are_bounded(self):
        true = exact.curve(quadratics(PROMISED)).epsilon(1e-5)
        assert 0.99 * PROMISED.epsilon(1e-5) <= true.upper <= PROMISED.epsilon(1e-5) * (1 + 1e-9)

    def test_the_broken_are_found_out(self):
        skipped = exact.curve(quadratics(li.unlearning(RUN, extra_steps=0)))
        assert skipped.epsilon(1e-5).lower > 1.5 * PROMISED.epsilon(1e-5)
        loud = exact.curve(quadratics(li.unlearning(quieter(RUN), extra_steps=2)))
        assert loud.epsilon(1e-5).lower > 1.5 * PROMISED.epsilon(1e-5)


@pytest.mark.parametrize("what", BROKEN)
def test_the_broken_are_caught_by_their_runs(what):
    verdict = empirical.audit(BROKEN[what], PROMISED, runs=RUNS)
    assert verdict.refuted
    assert "REFUTED at 99" in str(verdict)


def test_the_honest_is_not_flagged():
    for seed in range(2):
        assert not empirical.audit(HONEST, PROMISED, runs=200, seed=seed).refuted


@pytest.mark.slow
def test_the_honest_is_not_flagged_in_fifty_repetitions():
    for seed in range(50):
        verdict = empirical.audit(HONEST, PROMISED, runs=RUNS, seed=seed)
        assert not verdict.refuted
        assert verdict.gdp() <= PROMISED.gdp()


@pytest.fixture(scope="module")
def models():
    X = np.random.default_rng(0).normal(size=(40, 1)) / 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PrivateHuberRegressor(
            epsilon=3.0, batches="cyclic", batch_size=20, epochs=3, l2=0.5, center=False,
            counting=0.0, target_range=(-1, 1), random_state=0,
        ).fit(X, X[:, 0], key=bytes(32))  # fmt: skip
        first = model.unlearn(X, X[:, 0], rows=[3], extra_steps=1, key=bytes(32))
        return model, first.unlearn(X, X[:, 0], rows=[5, 6], extra_steps=2, key=bytes(32))


@pytest.mark.filterwarnings("ignore::lastiterate.errors.PrivacyWarning")
class TestCertificates:
    def test_say_what_to_run(self, models):
        unlearner, promised = trainer_of_certificate(models[1].certificate_)
        assert [run.steps for run in unlearner.stages] == [models[0].n_iter_, 1, 2]
        assert (unlearner.examples, promised.extra_steps) == (2, 2)
        assert unlearner.data(used=False).silent.sum() == 2
        assert not empirical.audit(unlearner, promised, runs=60).refuted

    def test_of_a_training_are_of_the_trainer(self, models):
        trainer, promised = trainer_of_certificate(models[0].certificate_)
        assert isinstance(trainer, OwnTrainer)
        assert promised.gdp() == models[0].privacy_.gdp()

    def test_the_command_audits_what_was_done_last(self, models, tmp_path, capsys):
        path = tmp_path / "certificate.json"
        path.write_text(models[1].certificate_)
        assert main(["audit", "--certificate", str(path), "--runs", "40"]) == 0
        assert "never having seen" in capsys.readouterr().out

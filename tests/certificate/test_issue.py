"""What is issued can be derived again, whoever trains and whatever the objective."""

import json

import numpy as np
import pytest

from lastiterate.accounting import account
from lastiterate.audit.certified_trainers import certified_trainer
from lastiterate.certificate.issue import issue
from lastiterate.certificate.verify import verify
from lastiterate.errors import InvalidCertificate, InvalidParameter
from lastiterate.linear_model import PrivateLogisticRegression
from lastiterate.profile.rounded import Rounding
from lastiterate.run.optimizer import ExponentialAverage
from lastiterate.train.arithmetic import arithmetic, problem_of
from lastiterate.train.data import bounded
from lastiterate.train.defaults import default_run
from lastiterate.train.noise import SECURE
from lastiterate.train.objectives import OBJECTIVES
from lastiterate.train.settings import RunSettings
from tests.train.problems import MODELS, instances, targets_for

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3))


def problem(kind):
    """An objective of this kind, rows for it, the run of the defaults, and parameters."""
    objective = instances(kind)[-1]
    rows = bounded(X, targets_for(objective, 300, RNG), bound=1.0, intercept=0.1)
    run = default_run(objective, RunSettings(), examples=300, radius=rows.radius)
    return objective, rows, run, np.zeros((objective.outputs, 4))


@pytest.mark.parametrize("estimator", MODELS)
def test_derives_the_same_guarantee(estimator, tmp_path, fitted):
    model = fitted(estimator)
    path = tmp_path / "certificate.json"
    path.write_text(model.certificate_)
    for certificate in (path, str(path), model.certificate_):
        assert verify(certificate).epsilon(1e-5) == model.privacy_.epsilon(1e-5) <= 1.0


@pytest.mark.parametrize("kind", OBJECTIVES.values())
def test_of_every_objective(kind):
    """Whatever estimator uses it: what is issued holds, and can be audited."""
    objective, rows, run, released = problem(kind)
    report = account(run)
    text = issue(report, objective, rows, released, delta=1e-5, provenance=SECURE)
    trainer, derived = certified_trainer(text, parameters=released)
    assert derived.epsilon(1e-5) == report.epsilon(1e-5) <= 1.0
    assert trainer.objective == objective
    for world in (0, 1):
        examples = trainer.examples(world)
        assert objective.admits(examples.targets)
        assert len(examples) == 300


@pytest.mark.parametrize(
    "changes", [{"momentum": 0.9}, {"average": ExponentialAverage(0.9)}], ids=["buffer", "mean"]
)
def test_runs_that_no_trainer_carries_out(changes):
    """Momentum and averages have no proved arithmetic, and no certificate."""
    objective, rows, run, released = problem(next(iter(OBJECTIVES.values())))
    run = run.replace(step_size=0.1, noise_std=0.1, steps=30, **changes)
    text = issue(account(run), objective, rows, released, delta=1e-5, provenance=SECURE)
    (name,) = changes
    with pytest.raises(InvalidCertificate, match=f"{name} must be left out"):
        verify(text)
    with pytest.raises(InvalidParameter, match=f"{name} must be left out: proved arithmetic"):
        arithmetic([run], problem_of(objective, rows))
    with pytest.raises(InvalidParameter, match=f"{name} must be left out: the charge for"):
        account(run).computed(Rounding(1e-6, 1e-18))


def test_seeds_are_confessed():
    model = PrivateLogisticRegression(random_state=0).fit(X, X[:, 0] > 0)
    said = json.loads(model.certificate_)["randomness"]
    assert "not private against someone who knows" in said

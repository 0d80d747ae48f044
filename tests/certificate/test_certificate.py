"""A certificate can be derived again, and a changed one is found out."""

import json
from pathlib import Path

import numpy as np
import pytest

from lastiterate.accounting import account
from lastiterate.audit.certified_trainers import certified_trainer
from lastiterate.certificate.fields import digest
from lastiterate.certificate.issue import issue
from lastiterate.certificate.verify import verify
from lastiterate.errors import InvalidCertificate, InvalidParameter, InvalidType
from lastiterate.linear_model.classifiers import PrivateLogisticRegression
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


@pytest.fixture(scope="module")
def model():
    model = PrivateLogisticRegression(epsilon=2.0, delta=1e-4, classes=range(3))
    return model.fit(X, np.arange(300) % 3)


def leaves(node, path=()):
    """Every number and string in the certificate, with how to get there."""
    if isinstance(node, dict | list):
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for key, value in items:
            yield from leaves(value, (*path, key))
    else:
        yield path, node


def changed(record, path, value):
    copy = json.loads(json.dumps(record))
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return copy


class TestVerification:
    @pytest.mark.parametrize("estimator", MODELS)
    def test_derives_the_same_guarantee(self, estimator, tmp_path, fitted):
        model = fitted(estimator)
        path = tmp_path / "certificate.json"
        path.write_text(model.certificate_)
        for report in (verify(path), verify(str(path)), verify(model.certificate_)):
            assert report.epsilon(1e-5) == model.privacy_.epsilon(1e-5) <= 1.0

    @pytest.mark.parametrize("kind", OBJECTIVES.values())
    def test_of_every_objective(self, kind):
        """Whatever estimator uses it: what is issued holds, and can be audited."""
        objective = instances(kind)[-1]
        rows = bounded(X, targets_for(objective, 300, RNG), bound=1.0, intercept=0.1)
        run = default_run(objective, RunSettings(), examples=300, radius=rows.radius)
        report = account(run)
        released = np.zeros((objective.outputs, 4))
        text = issue(report, objective, rows, released, delta=1e-5, provenance=SECURE)
        trainer, derived = certified_trainer(text, parameters=released)
        assert derived.epsilon(1e-5) == report.epsilon(1e-5) <= 1.0
        assert trainer.objective == objective
        for world in (0, 1):
            examples = trainer.examples(world)
            assert objective.admits(examples.targets)
            assert len(examples) == 300

    def test_says_what_matters(self, model):
        record = json.loads(model.certificate_)
        assert record["randomness"].startswith("secure")
        assert record["guarantee"]["bound"] == "random-order/shuffled"
        assert record["guarantee"]["epsilon"] == model.privacy_.epsilon(1e-4) <= 2.0
        assert record["arithmetic"]["products"] == "float64"
        described = [one for one in record["hypotheses"] if "description" in one["enforced"]]
        of_the_run = ("fixed-order", "constant", "noise in every step", "places", "positions")
        assert all(any(word in one["needs"] for word in of_the_run) for one in described)
        assert len(record["hypotheses"]) >= 6

    def test_seeds_are_confessed(self):
        model = PrivateLogisticRegression(random_state=0).fit(X, X[:, 0] > 0)
        assert (
            "not private against someone who knows" in json.loads(model.certificate_)["randomness"]
        )

    def test_belongs_to_one_model(self, model):
        verify(model.certificate_, parameters=model.parameters_)
        with pytest.raises(InvalidCertificate, match="another model"):
            verify(model.certificate_, parameters=model.parameters_ + 1e-9)


class TestForgery:
    def test_every_change_fails(self, model):
        record = json.loads(model.certificate_)
        found = list(leaves(record))
        assert len(found) > 40
        for path, value in found:
            new = value * 1.01 + 1 if isinstance(value, int | float) else f"{value}."
            with pytest.raises(InvalidCertificate):
                verify(json.dumps(changed(record, path, new)))

    @pytest.mark.parametrize(
        "path, factor, reason",
        [
            (("guarantee", "epsilon"), 0.99, "states epsilon"),
            (("run", "sensitivity"), 0.99, r"run\.sensitivity must be at least"),
            (("run", "loss", "smoothness"), 0.99, r"run\.loss\.smoothness must be at least"),
            (("run", "noise_std"), 0.99, "mu is not"),
            (("run", "release_noise_std"), 0.9, "mu is not"),
            (("run", "step_size"), 1.01, "reach is not"),
            (("arithmetic", "offset"), 1.0, "reach is not"),
            (("arithmetic", "grid bits"), 2, "grid bits is not"),
            (("arithmetic", "reach"), 1.0 + 1e-6, "reach is not"),
            (("arithmetic", "mu"), 0.999, "mu is not"),
            (("arithmetic", "failure"), 0.5, "failure is not"),
            (("features", "bound"), 1.01, "must be at least"),
            (("objective", "clip"), 1.01, "must be at least"),
        ],
    )
    def test_even_with_a_fresh_digest(self, model, path, factor, reason):
        record = json.loads(model.certificate_)
        value = dict(leaves(record))[path]
        forged = changed(record, path, value * factor if value else factor)
        del forged["digest"]
        with pytest.raises(InvalidCertificate, match=reason):
            verify(json.dumps(forged | {"digest": digest(forged)}))

    @pytest.mark.parametrize(
        "path, value, reason",
        [
            (("format",), 1, "its format"),
            (("guarantee", "certainty"), "estimate", "its certainty"),
            (("guarantee", "source"), "hearsay", "its source"),
            (("guarantee", "adjacency"), "zero-out", "its adjacency"),
            (("guarantee", "bound"), "composition/sampled", "its source is not"),
            (("features", "longer rows"), "kept", "longer rows"),
            (("features", "width"), 0, "features.width"),
            (("features", "width"), 3.5, "features.width"),
            (("features", "intercept"), -1.0, "features.intercept"),
            (("randomness",), "a coin", "its source of randomness"),
            (("arithmetic", "products"), "float32", "products is not 'float64'"),
            (("arithmetic", "rounding"), "nothing is lost", "rounding is not 'charged"),
            (("arithmetic", "rows"), "none", "arithmetic.rows"),
            (("arithmetic", "rows"), "sparse, and centred", "mu is not"),
            (("arithmetic", "assumes", 0), "nothing", "assumes is not"),
            (("arithmetic", "not covered"), "nothing", "not covered is not"),
            (("arithmetic", "mu"), "1e-9", "mu is not"),
            (("arithmetic", "grid bits"), 40.0, "grid bits is not"),
            (("public",), "nothing", "what is public"),
            (("labels",), "guessed", "where its label set is from"),
            (("hypotheses", 0, "needs"), "luck", "its hypotheses"),
        ],
    )
    def test_statements_that_do_not_follow(self, model, path, value, reason):
        forged = changed(json.loads(model.certificate_), path, value)
        del forged["digest"]
        with pytest.raises(InvalidCertificate, match=reason):
            verify(json.dumps(forged | {"digest": digest(forged)}))

    @pytest.mark.parametrize(
        "changes", [{"momentum": 0.9}, {"average": ExponentialAverage(0.9)}], ids=["buffer", "mean"]
    )
    def test_runs_that_no_trainer_carries_out(self, changes):
        """Momentum and averages have no proved arithmetic, and no certificate."""
        objective = instances(next(iter(OBJECTIVES.values())))[-1]
        rows = bounded(X, targets_for(objective, 300, RNG), bound=1.0, intercept=0.1)
        run = default_run(objective, RunSettings(), examples=300, radius=rows.radius)
        run = run.replace(step_size=0.1, noise_std=0.1, steps=30, **changes)
        released = np.zeros((objective.outputs, 4))
        text = issue(account(run), objective, rows, released, delta=1e-5, provenance=SECURE)
        with pytest.raises(InvalidCertificate, match=r"(momentum|average) must be left out"):
            verify(text)
        (name,) = changes
        with pytest.raises(InvalidParameter, match=f"{name} must be left out: proved arithmetic"):
            arithmetic([run], problem_of(objective, rows))
        with pytest.raises(InvalidParameter, match=f"{name} must be left out: the charge for"):
            account(run).computed(Rounding(1e-6, 1e-18))

    def test_sizes_that_are_not_the_models(self, model):
        forged = changed(json.loads(model.certificate_), ("features", "width"), 4)
        del forged["digest"]
        text = json.dumps(forged | {"digest": digest(forged)})
        with pytest.raises(InvalidCertificate, match="reach is not"):
            verify(text, parameters=model.parameters_)

    @pytest.mark.parametrize("text", ["{", "{}", '{"run": 3}'])
    def test_nonsense(self, text):
        with pytest.raises(InvalidCertificate):
            verify(text)


class TestWhatIsTakenForACertificate:
    @pytest.mark.parametrize(
        "wrong", ["hello", "", "no/such.json", "x" * 9_000, "a\0b", Path("no")]
    )
    def test_text_that_is_neither(self, wrong):
        with pytest.raises(InvalidParameter, match="certificate must be the text of a certifica"):
            verify(wrong)

    @pytest.mark.parametrize("wrong", [None, {"run": 1}, b"{}", 3])
    def test_other_things(self, wrong):
        with pytest.raises(InvalidType, match="certificate must be the text of a certificate"):
            verify(wrong)

    def test_a_folder(self, tmp_path, model):
        (tmp_path / "certificate.json").write_text(model.certificate_)
        assert verify(tmp_path).epsilon(1e-4) <= 2.0
        with pytest.raises(InvalidParameter, match="certificate must be the text"):
            verify(tmp_path.parent)

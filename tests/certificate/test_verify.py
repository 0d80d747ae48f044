"""A changed certificate is found out, and so is what cannot be checked."""

import json
from pathlib import Path

import numpy as np
import pytest

import lastiterate as li
from lastiterate.certificate import fields
from lastiterate.certificate import verify as verifier
from lastiterate.certificate.verify import verify
from lastiterate.errors import (
    InvalidCertificate,
    InvalidParameter,
    InvalidType,
    OtherVersion,
    OtherVersionCertificate,
)
from lastiterate.linear_model import PrivateLogisticRegression, PrivateSelection

from .certificates import changed, copied, sealed

X = np.random.default_rng(0).normal(size=(300, 3))


@pytest.fixture(scope="module")
def model():
    model = PrivateLogisticRegression(epsilon=2.0, delta=1e-4, classes=range(3))
    return model.fit(X, np.arange(300) % 3)


@pytest.fixture(scope="module")
def record(model):
    """Not to be changed."""
    return json.loads(model.certificate_)


def leaves(node, path=()):
    """Every number and string in the certificate, with how to get there."""
    if isinstance(node, dict | list):
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for key, value in items:
            yield from leaves(value, (*path, key))
    else:
        yield path, node


def refused(text, reason=None, **more):
    with pytest.raises(InvalidCertificate, match=reason):
        verify(text, **more)


def test_says_what_matters(model, record):
    assert record["randomness"].startswith("secure")
    assert record["guarantee"]["bound"] == "random-order/shuffled"
    assert record["guarantee"]["epsilon"] == model.privacy_.epsilon(1e-4) <= 2.0
    assert record["arithmetic"]["products"] == "float64"
    described = [one for one in record["hypotheses"] if "description" in one["enforced"]]
    of_the_run = ("fixed-order", "constant", "noise in every step", "places", "positions")
    assert all(any(word in one["needs"] for word in of_the_run) for one in described)
    assert len(record["hypotheses"]) >= 6


def test_belongs_to_one_model(model):
    verify(model.certificate_, parameters=model.parameters_)
    refused(model.certificate_, "another model", parameters=model.parameters_ + 1e-9)


class TestForgery:
    def test_every_change_fails(self, record):
        found = list(leaves(record))
        assert len(found) > 40
        for path, value in found:
            new = value * 1.01 + 1 if isinstance(value, int | float) else f"{value}."
            refused(json.dumps(changed(record, path, new)))

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
    def test_even_with_a_fresh_digest(self, record, path, factor, reason):
        value = dict(leaves(record))[path]
        refused(sealed(changed(record, path, value * factor if value else factor)), reason)

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
            (("features", "width"), 4, "reach is not"),
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
    def test_statements_that_do_not_follow(self, record, path, value, reason):
        refused(sealed(changed(record, path, value)), reason)

    @pytest.mark.parametrize("text", ["{", "{}", '{"run": 3}'])
    def test_nonsense(self, text):
        refused(text)


class TestWhatIsTakenForACertificate:
    @pytest.mark.parametrize(
        "wrong", ["hello", "", "no/such.json", "x" * 9_000, "a\0b", Path("no"), None, {"run": 1},
                  b"{}", 3],
    )  # fmt: skip
    def test_other_things(self, wrong):
        kind = InvalidParameter if isinstance(wrong, str | Path) else InvalidType
        with pytest.raises(kind, match="certificate must be the text of a certificate"):
            verify(wrong)

    def test_a_folder(self, tmp_path, model):
        (tmp_path / "certificate.json").write_text(model.certificate_)
        assert verify(tmp_path).epsilon(1e-4) <= 2.0
        with pytest.raises(InvalidParameter, match="certificate must be the text"):
            verify(tmp_path.parent)


class TestOtherVersions:
    @pytest.mark.parametrize("found", [6, 7, 99])
    def test_are_named_with_the_one_to_install(self, tmp_path, model, record, found):
        other = record | {"format": found, "software": "lastiterate 0.1.0"}
        with pytest.raises(
            OtherVersionCertificate, match=r"git checkout v0\.1\.0 && pip install \.$"
        ):
            verify(sealed(other))
        li.save(model, tmp_path)
        (tmp_path / "certificate.json").write_text(sealed(other))
        with pytest.raises(OtherVersion):
            li.load(tmp_path)

    def test_of_development_are_several_commits(self, record):
        other = record | {"format": 7, "software": "lastiterate 0.2.0.dev0"}
        with pytest.raises(OtherVersionCertificate, match="several commits bear that name") as said:
            verify(sealed(other))
        assert str(said.value).endswith("git checkout COMMIT && pip install .")

    def test_that_are_ours_are_forgeries(self, record):
        older = record | {"format": 7}
        refused(sealed(older), f"its format is not {fields.FORMAT}")
        refused(sealed(older | {"format": "7", "software": "lastiterate 0.1.0"}),
                f"its format is not {fields.FORMAT}")  # fmt: skip
        refused(sealed(older | {"software": "lastiterate 1 && rm -rf /"}),
                "what software issued it is unknown")  # fmt: skip


class TestLargeRuns:
    """Nobody waits for what cannot be checked."""

    @pytest.mark.parametrize("steps", [3 * 10**8, 10**12, 2**53, 1e12])
    def test_are_refused_at_once(self, record, steps):
        large = copied(record)
        large["run"]["steps"] = steps
        refused(sealed(large), f"{steps:,.0f} steps, too many to check")
        for name, parts in (("earlier", [large]), ("selection", {"candidates": [large]})):
            with pytest.raises(InvalidCertificate, match="too many to check"):
                verify(json.dumps(record | {name: parts}))

    @pytest.mark.parametrize(
        "change, what",
        [
            ({"steps": 10**400}, "inf steps"),
            ({"examples_per_person": 3_000}, "3,000 examples of a person"),
            ({"examples_per_person": 1e5}, "100,000 examples of a person"),
            ({"examples_per_person": 500, "steps": 10**4}, "5,000,000 steps times examples"),
            ({"batches": {"kind": "BalancedSampled", "examples": 10**12, "batch_size": 1,
                          "epochs": 10**6}}, "1,000,000 epochs in a draw"),
            ({"batches": {"kind": "ShuffledOnce", "examples": 1e9, "batch_size": 1}},
             "1,000,000,000 steps in a draw"),
        ],
    )  # fmt: skip
    def test_large_groups_and_draws_are(self, record, change, what):
        refused(sealed(record | {"run": record["run"] | change}), f"{what}.*, too many to check")

    @pytest.mark.parametrize(
        "settings",
        [
            {"examples_per_person": 1_001},
            {"examples_per_person": 10**6, "epsilon": None, "noise_std": 1.0},
            {"examples_per_person": 900, "epsilon": None, "noise_std": 1e-3, "batch_size": 16},
        ],
    )
    def test_are_not_trained(self, tmp_path, settings):
        ledger = li.Ledger(tmp_path / "l", epsilon=9.0, delta=1e-5, examples_per_person=10**6)
        model = PrivateLogisticRegression(feature_bound=1.0, epochs=20, ledger=ledger, **settings)
        must_be = "smaller, so that its certificate can be verified; found .* too many to check"
        with pytest.raises(InvalidParameter, match=f"examples_per_person must be {must_be}"):
            model.fit(np.tile(X, (7, 1)), np.tile(X[:, 0] > 0, 7))
        assert len(ledger.entries()) == 1

    @pytest.mark.slow
    def test_trainings_selections_and_requests_are_refused_alike(self, monkeypatch):
        key, target = b"a secret of 16 bytes or more", X[:, 0] > 0
        plain = PrivateLogisticRegression(epsilon=1.0, epochs=2, l2=0.1, classes=[False, True])
        trained = plain.fit(X, target, key=key)
        steps, certificate = trained.n_iter_, trained.certificate_
        monkeypatch.setattr(verifier, "MOST_STEPS", steps)
        verify(certificate)
        with pytest.raises(InvalidParameter, match="extra_steps must be smaller"):
            trained.unlearn(X, target, rows=[0], key=key, extra_steps=1)
        monkeypatch.setattr(verifier, "MOST_STEPS", 2 * steps)
        with pytest.raises(InvalidParameter, match="grid must be smaller"):
            PrivateSelection(plain, {"l2": [0.1, 0.2]}, epsilon=1.0).fit(X, target)
        monkeypatch.setattr(verifier, "MOST_STEPS", steps - 1)
        with pytest.raises(InvalidParameter, match="epochs must be smaller"):
            plain.fit(X, target)
        refused(certificate, "too many to check")

    def test_accounting_waits_for_all_cheaper_checks(self, record, monkeypatch):
        monkeypatch.setattr(verifier, "account", lambda *_, **__: pytest.fail("it accounted"))
        refused(json.dumps(record | {"digest": "0"}), "its digest is not that of its text")

    def test_want_of_memory_is_no_memory_error(self, model, monkeypatch):
        def full(*_, **__):
            raise MemoryError

        monkeypatch.setattr(verifier, "account", full)
        refused(model.certificate_, "not enough memory")

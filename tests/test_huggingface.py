"""The layout of the Hugging Face Hub: complete, loaded again, and refused if altered."""

import numpy as np
import pytest
from safetensors.numpy import load_file
from sklearn.pipeline import make_pipeline

import lastiterate as li
import lastiterate.huggingface as hub
from lastiterate.errors import InvalidCertificate, InvalidParameter
from lastiterate.features import QuadraticSketch
from lastiterate.linear_model import PrivateLogisticRegression, PrivateRidge

FAST = {"epochs": 2, "batch_size": 200, "batches": "cyclic"}
X = np.random.default_rng(0).normal(size=(1_000, 4)) / 3
MODELS = {
    "classes": lambda: PrivateLogisticRegression(**FAST).fit(X, X[:, 0] > 0),
    "numbers": lambda: PrivateRidge(target_range=(-1, 1), **FAST).fit(X, X[:, 0]),
    "centred": lambda: PrivateLogisticRegression(center=True, **FAST).fit(X + 1, X[:, 0] > 0),
    "features": lambda: make_pipeline(
        QuadraticSketch(n_components=16), PrivateLogisticRegression(**FAST)
    ).fit(X, X[:, 0] > 0),
}


@pytest.mark.parametrize("kind", MODELS)
def test_is_loaded_again(tmp_path, kind):
    model = MODELS[kind]()
    hub.save(model, tmp_path / "hub", license="mit")
    assert {path.name for path in (tmp_path / "hub").iterdir()} == {
        "model.safetensors", "config.json", "README.md", "certificate.json",
    }  # fmt: skip
    again = hub.load(tmp_path / "hub")
    assert np.array_equal(again.predict(X), model.predict(X))
    tensors = load_file(tmp_path / "hub" / "model.safetensors")
    assert all(one.dtype == np.float64 for one in tensors.values())


def test_the_card(tmp_path):
    yaml = pytest.importorskip("yaml")
    model = MODELS["classes"]()
    hub.save(model, tmp_path, license="apache-2.0", name="Who earns more")
    _, front, body = (tmp_path / "README.md").read_text().split("---\n", 2)
    read = yaml.safe_load(front)
    assert read["license"] == "apache-2.0"
    assert read["library_name"] == "lastiterate"
    assert read["pipeline_tag"] == "tabular-classification"
    assert "# Who earns more" in body
    assert model.privacy_.statement(delta=model.delta or 1e-5, format="model-card") in body
    report = li.verify((tmp_path / "certificate.json").read_text())
    assert report.bound == model.privacy_.bound


class TestAltered:
    @pytest.fixture
    def folder(self, tmp_path):
        hub.save(MODELS["classes"](), tmp_path)
        return tmp_path

    @pytest.mark.parametrize("name", ["model.safetensors", "config.json", "certificate.json"])
    def test_a_file_that_is_gone_or_damaged(self, folder, name):
        (folder / name).write_bytes(b"{}")
        with pytest.raises((InvalidParameter, InvalidCertificate)):
            hub.load(folder)
        (folder / name).unlink()
        with pytest.raises(InvalidParameter, match=f"no {name}"):
            hub.load(folder)

    def test_is_not_overwritten_unasked(self, folder):
        with pytest.raises(InvalidParameter, match="overwrite=True replaces what"):
            hub.save(MODELS["classes"](), folder)
        hub.save(MODELS["numbers"](), folder, overwrite=True)
        assert isinstance(hub.load(folder), PrivateRidge)

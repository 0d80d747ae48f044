"""ONNX files predict as the models that they were made of."""

import json
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from sklearn.pipeline import make_pipeline

import lastiterate as li
import lastiterate.onnx
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.features import PublicBins, QuadraticSketch, RandomFourierFeatures, Scattering2D
from lastiterate.linear_model import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateScaler,
    PrivateSchema,
)

FAST = {"epochs": 2, "batch_size": 200, "batches": "cyclic"}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(1_000, 5)) * np.array([0.1, 1.0, 3.0, 0.5, 0.01])
Y = X[:, 1] > 0.0
# Many lengths, among them rows of zeros and rows that no square of which is a number.
ROWS = RNG.normal(size=(10_000, 5)) * 10.0 ** RNG.uniform(-6, 6, size=(10_000, 1))
ROWS[0], ROWS[1], ROWS[2] = 0.0, 1e200, -1e300


def predicted(model, path, rows, dtype="float64"):
    lastiterate.onnx.export(model, path, dtype=dtype)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(None, {"rows": rows.astype(dtype)}), strict=True))


def same_as(model, found, rows):
    scores = model.decision_function(rows)
    np.testing.assert_allclose(found["scores"], scores, rtol=1e-5, atol=1e-5)
    if scores.ndim == 1:
        clear = np.abs(scores) > 1e-6
    else:
        best = np.sort(scores, axis=1)
        clear = best[:, -1] - best[:, -2] > 1e-6
    assert clear.mean() > 0.9
    assert (found["label"][clear] == model.predict(rows)[clear]).all()


STEPS = {
    "alone": [],
    "scaler": [PrivateScaler(2.0)],
    "ranges": [PrivateScaler(1.5, low=[-3.0] * 5, high=[3.0, 2.0, 1.0, 4.0, 5.0])],
    "bins": [PublicBins(low=-2.0, high=2.0, bins=7)],
    "fourier": [RandomFourierFeatures(n_components=65, gamma=0.3, seed=3)],
    "quadratic": [QuadraticSketch(n_components=33, seed=1, input_bound=2.0)],
    "several": [PrivateScaler(1.0), QuadraticSketch(n_components=16), RandomFourierFeatures(32)],
}


@pytest.mark.parametrize("steps", STEPS)
def test_every_step(tmp_path, steps):
    model = make_pipeline(*STEPS[steps], PrivateLogisticRegression(**FAST)).fit(X, Y)
    # Phases of far rows are no more than rounding in the model itself.
    rows = ROWS if "fourier" not in steps else ROWS * (np.abs(ROWS).max(1, keepdims=True) < 1e3)
    found = predicted(model, str(tmp_path / "m.onnx"), rows)
    same_as(model, found, rows)
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(rows), atol=1e-5)


@pytest.mark.parametrize(
    "labels, kind",
    [
        (np.array(["a", "bc", "d"]), str),
        (np.array([3, 5, 9]), np.integer),
        (np.array([0.5, 1.5, 2.5]), np.float64),
    ],
)
def test_labels_of_any_kind(tmp_path, labels, kind):
    y = labels[np.digitize(X[:, 1], [-0.5, 0.5])]
    model = PrivateLogisticRegression(classes=list(labels), **FAST).fit(X, y)
    found = predicted(model, str(tmp_path / "m.onnx"), ROWS)
    same_as(model, found, ROWS)
    assert isinstance(found["label"][0], kind)
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(ROWS), atol=1e-5)


def test_a_support_vector_machine_has_no_probabilities(tmp_path):
    model = PrivateLinearSVC(**FAST).fit(X, Y)
    found = predicted(model, str(tmp_path / "m.onnx"), ROWS)
    same_as(model, found, ROWS)
    assert set(found) == {"label", "scores"}


@pytest.mark.parametrize("kind", [PrivateRidge, PrivateHuberRegressor])
def test_numbers(tmp_path, kind):
    model = kind(target_range=(-2, 6), **FAST).fit(X, X[:, 1])
    found = predicted(model, str(tmp_path / "m.onnx"), ROWS)["prediction"]
    np.testing.assert_allclose(found, model.predict(ROWS), rtol=1e-5, atol=1e-5)


def test_centred_rows(tmp_path):
    far = X + np.array([5.0, 0.0, 0.0, 0.0, 0.0])
    model = PrivateLogisticRegression(center=True, feature_bound=8.0, epsilon=4.0, **FAST)
    model.fit(far, Y)
    assert model.center_ is not None
    rows = np.concatenate([ROWS[3:], far])
    same_as(model, predicted(model, str(tmp_path / "m.onnx"), rows), rows)


def test_float32_rows(tmp_path):
    model = PrivateLogisticRegression(**FAST).fit(X, Y)
    rows = X.astype(np.float32)
    found = predicted(model, str(tmp_path / "m.onnx"), rows, "float32")
    np.testing.assert_allclose(found["scores"], model.decision_function(rows), atol=1e-5)
    with pytest.raises(InvalidParameter, match="dtype must be"):
        lastiterate.onnx.export(model, tmp_path / "n.onnx", dtype="float16")


def test_the_certificate_goes_along(tmp_path):
    model = PrivateLogisticRegression(**FAST).fit(X, Y)
    path = str(tmp_path / "m.onnx")
    lastiterate.onnx.export(model, path)
    (text,) = (one.value for one in onnx.load(path).metadata_props if one.key == "certificate")
    assert li.verify(text).epsilon(1e-5) <= 1.0
    assert "random_state" not in json.loads(text)


class TestRefused:
    def test_steps_without_a_form(self, tmp_path):
        images = RNG.uniform(size=(200, 64))
        model = make_pipeline(Scattering2D((8, 8), scales=1), PrivateLogisticRegression(**FAST))
        model.fit(images, images[:, 0] > 0.5)
        with pytest.raises(InvalidParameter, match=r"scattering.* not exported: export\(pipeline"):
            lastiterate.onnx.export(model, tmp_path / "m.onnx")
        lastiterate.onnx.export(model[1:], tmp_path / "m.onnx")

    def test_tables(self, tmp_path):
        pytest.importorskip("pandas")
        import pandas as pd

        frame = pd.DataFrame({"age": RNG.uniform(18, 90, 400)})
        schema = PrivateSchema({"age": {"range": [18, 90]}})
        model = make_pipeline(schema, PrivateLogisticRegression(**FAST)).fit(
            frame, frame["age"] > 50
        )
        with pytest.raises(InvalidParameter, match="schema"):
            lastiterate.onnx.export(model, tmp_path / "m.onnx")
        assert not (tmp_path / "m.onnx").exists()

    def test_others(self, tmp_path):
        from sklearn.linear_model import LogisticRegression

        with pytest.raises(InvalidType, match="a fitted private linear model"):
            lastiterate.onnx.export(LogisticRegression(), tmp_path / "m.onnx")
        model = PrivateLogisticRegression(**FAST).fit(X, Y)
        model.coef_ = 2.0 * model.coef_
        with pytest.raises(InvalidParameter, match="as it was fitted"):
            lastiterate.onnx.export(model, tmp_path / "m.onnx")


def test_a_missing_package_is_named():
    code = "import sys; sys.modules['onnx'] = None; import lastiterate.onnx"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "lastiterate.onnx needs onnx: pip install 'lastiterate[onnx]'" in ran.stderr

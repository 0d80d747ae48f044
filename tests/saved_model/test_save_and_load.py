"""A model that is saved and loaded is the same model, and nothing else is taken for it."""

import json
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

import lastiterate as li
from lastiterate.certificate.fields import encoding_digest
from lastiterate.certificate.issue import with_digest
from lastiterate.cli import main
from lastiterate.errors import InvalidCertificate, InvalidParameter, PrivacyWarning
from lastiterate.linear_model import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateScaler,
    PrivateSchema,
    PrivateSelection,
)
from lastiterate.saved_model.model_file import SavedModel, digest, read_model

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3))
SIDES = np.where(X[:, 0] > 0, "yes", "no")
SMALL = {"epsilon": 4.0, "batches": "cyclic", "epochs": 2}
RIDGE = {"target_range": (-1, 3), **SMALL}
KEY = b"0123456789abcdef0123456789abcdef"

MODELS = {
    "text": (PrivateLogisticRegression(classes=["yes", "no"], **SMALL), SIDES),
    "truth": (PrivateLogisticRegression(center=False, counting=0, **SMALL), X[:, 0] > 0),
    "bytes": (PrivateLogisticRegression(classes=[3, 5], **SMALL), np.where(X[:, 0] > 0, 3, 5)),
    "floats": (PrivateLogisticRegression(classes=[0.5, 2.0], **SMALL), 0.5 + 1.5 * (X[:, 0] > 0)),
    "three": (PrivateLogisticRegression(classes=range(3), **SMALL), np.arange(300) % 3),
    "prior": (
        PrivateLogisticRegression(classes=[0, 1], class_prior={0: 0.9, 1: 0.1}, **SMALL),
        (X[:, 0] > 1).astype(int),
    ),
    "priors of three": (
        PrivateLogisticRegression(
            classes=list("abc"),
            class_prior={"a": 0.5, "b": 0.25, "c": 0.25},
            clip="margin",
            **SMALL,
        ),
        np.array(list("abc"))[np.arange(300) % 3],
    ),
    "svc": (PrivateLinearSVC(fit_intercept=False, smoothing=0.5, **SMALL), X[:, 0] > 0),
    "ridge": (PrivateRidge(l2=0.01, **RIDGE), X[:, 0]),
    "rates": (
        PrivateLogisticRegression(
            rate_matching=0.2, classes=[0, 1], class_weight={0: 0.5, 1: 1.0}, **SMALL
        ),
        (X[:, 0] > 0) + 0,
    ),
    "intervals": (PrivateRidge(intervals=True, **RIDGE), X[:, 0]),
    "huber": (PrivateHuberRegressor(target_bound=np.float64(2.5), **SMALL), X[:, 0]),
}  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore:.*noise dominates")


def outputs(model, rows):
    if hasattr(model, "decision_function"):
        return model.decision_function(rows)
    return model.predict(rows)


@pytest.fixture(scope="module")
def fitted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: clone(model).fit(X, y) for name, (model, y) in MODELS.items()}


def scaled(**settings):
    model = PrivateLogisticRegression(feature_bound=1.5, **SMALL)
    return make_pipeline(PrivateScaler(**settings), model).fit(X, X[:, 0] > 0)


class TestEstimators:
    @pytest.mark.parametrize("name", MODELS)
    def test_predict_as_before_and_have_all_that_was_learnt(self, fitted, tmp_path, name):
        model = fitted[name]
        li.save(model, tmp_path / "new" / "out")
        again = li.load(tmp_path / "new" / "out")
        assert type(again) is type(model)
        rows = np.vstack([X, 1e3 * X[:5], 0 * X[:1]])
        assert np.array_equal(outputs(again, rows), outputs(model, rows))
        assert np.array_equal(again.predict(rows), model.predict(rows))
        assert again.predict(rows).dtype == model.predict(rows).dtype
        assert np.array_equal(
            outputs(again, sparse.csr_array(X)), outputs(model, sparse.csr_array(X))
        )
        if hasattr(model, "predict_proba"):
            assert np.array_equal(again.predict_proba(rows), model.predict_proba(rows))
        learnt = {name for name in vars(model) if name.endswith("_")}
        assert learnt == {name for name in vars(again) if name.endswith("_")}
        for one in learnt - {"privacy_", "certificate_"}:
            np.testing.assert_equal(getattr(again, one), getattr(model, one))
        assert again.privacy_.epsilon(1e-5) == model.privacy_.epsilon(1e-5)
        assert again.privacy_.run == model.privacy_.run
        assert str(again.privacy_) == str(model.privacy_)
        for setting, value in again.get_params().items():
            np.testing.assert_equal(value, _listed(model.get_params()[setting]))

    def test_files_hold_no_seed_and_no_ledger(self, tmp_path):
        model = PrivateLogisticRegression(random_state=918273, **SMALL).fit(X, X[:, 0] > 0)
        model.ledger = "book.jsonl"
        li.save(model, tmp_path)
        with pytest.warns(PrivacyWarning, match="the training was reproducible"):
            again = li.load(tmp_path)
        assert "918273" not in (tmp_path / "model.json").read_text()
        assert "book" not in (tmp_path / "model.json").read_text()
        assert again.random_state is None
        assert again.ledger is None

    def test_the_best_of_several(self, tmp_path):
        model = PrivateLogisticRegression(batches="cyclic", batch_size=50)
        chosen = PrivateSelection(model, {"epochs": [1, 2]}, epsilon=4.0).fit(X, X[:, 0] > 0)
        li.save(chosen, tmp_path)
        again = li.load(tmp_path)
        assert np.array_equal(outputs(again, X), outputs(chosen, X))
        assert again.privacy_.epsilon(1e-5) == chosen.privacy_.epsilon(1e-5)

    def test_can_be_unlearned(self, tmp_path):
        model = PrivateLogisticRegression(l2=0.1, clip_norm=0.2, **SMALL)
        model.fit(X, X[:, 0] > 0, key=KEY)
        li.save(model, tmp_path / "one")
        new = li.load(tmp_path / "one").unlearn(X, X[:, 0] > 0, rows=[3], key=KEY, extra_steps=5)
        for one in (new, model.unlearn(X, X[:, 0] > 0, rows=[3], key=KEY, extra_steps=5)):
            li.save(one, tmp_path / "two", overwrite=True)
            again = li.load(tmp_path / "two")
            assert np.array_equal(outputs(again, X), outputs(one, X))
            assert again.n_iter_ == one.n_iter_
            assert again.unlearning_.epsilon(1e-5) == one.unlearning_.epsilon(1e-5)
            assert main(["verify", str(tmp_path / "two")]) == 0

    def test_what_it_was_fitted_before_is_warned_of(self, tmp_path):
        pipeline = make_pipeline(StandardScaler(), PrivateLogisticRegression(**SMALL))
        with pytest.warns(PrivacyWarning):
            pipeline.fit(X, SIDES)
        li.save(pipeline[-1], tmp_path)
        with pytest.warns(PrivacyWarning, match="standardscaler"):
            assert li.load(tmp_path).privacy_.preprocessing == ("standardscaler (StandardScaler)",)


def _listed(value):
    if isinstance(value, tuple | range):
        return list(value)
    return value


SCHEMA = {
    "age": {"range": [0, 100], "missing": 50, "indicator": True},
    "job": {"values": ["a", "b", 3]},
    "id": "drop",
}


def people(count=300):
    age = RNG.uniform(-10, 120, count)
    table = {
        "age": [None if k % 7 == 0 else float(one) for k, one in enumerate(age)],
        "job": RNG.choice(["a", "b", "3", "other"], count).tolist(),
        "id": list(range(count)),
    }
    return table, age > 50


class TestPipelines:
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    @pytest.mark.parametrize("bound", [1.0, None, 3.0])
    def test_of_a_schema(self, tmp_path, bound, dtype):
        table, old = people()
        model = PrivateLogisticRegression(feature_bound=bound or 2.0, **SMALL)
        schema = PrivateSchema(SCHEMA, bound=bound, dtype=dtype, target="old")
        pipeline = Pipeline([("columns", schema), ("last", model)]).fit(table, old)
        li.save(pipeline, tmp_path)
        again = li.load(tmp_path)
        assert list(again.named_steps) == ["columns", "last"]
        assert np.array_equal(outputs(again, table), outputs(pipeline, table))
        names = pipeline[0].get_feature_names_out()
        assert again[0].get_feature_names_out().tolist() == names.tolist()

    @pytest.mark.parametrize(
        "settings",
        [
            {},
            {"bound": 0.7},
            {"bound": 9.0},
            {"low": -2, "high": 2},
            {"low": [-1, -2, -3], "high": 4.0},
        ],
    )
    def test_of_a_scaler(self, tmp_path, settings):
        pipeline = scaled(**settings)
        li.save(pipeline, tmp_path)
        rows = np.vstack([X, 100.0 * X[:9]])
        assert np.array_equal(outputs(li.load(tmp_path), rows), outputs(pipeline, rows))

    def test_of_both_and_of_pipelines_in_pipelines(self, tmp_path):
        table, old = people()
        inner = make_pipeline("passthrough", PrivateScaler(0.5), PrivateLogisticRegression(**SMALL))
        pipeline = make_pipeline(PrivateSchema(SCHEMA, bound=None), inner).fit(table, old)
        li.save(pipeline, tmp_path)
        assert np.array_equal(outputs(li.load(tmp_path), table), outputs(pipeline, table))

    def test_names_of_a_data_frame(self, tmp_path):
        frame = pytest.importorskip("pandas").DataFrame(X, columns=["a", "b", "c"])
        model = PrivateLogisticRegression(feature_bound=1.0, **SMALL).fit(frame, X[:, 0] > 0)
        pipeline = make_pipeline(PrivateScaler(), clone(model)).fit(frame, X[:, 0] > 0)
        for one, folder in ((model, "m"), (pipeline, "p")):
            li.save(one, tmp_path / folder)
            again = li.load(tmp_path / folder)
            assert again.feature_names_in_.tolist() == ["a", "b", "c"]
            assert np.array_equal(outputs(again, frame), outputs(one, frame))


class TestCommands:
    def written(self, path, table):
        names, columns = list(table), zip(*table.values(), strict=True)
        lines = [
            ",".join("" if one is None else repr(one).strip("'") for one in row) for row in columns
        ]
        path.write_text("\n".join([",".join(names), *lines]) + "\n")
        return path

    def predicted(self, capsys, folder, file, *more):
        assert main(["predict", str(folder), str(file), *more]) == 0
        return [line.split(",") for line in capsys.readouterr().out.splitlines()[1:]]

    @pytest.mark.parametrize("kind", ["schema", "float32", "scaler", "narrow scaler", "arrays"])
    def test_take_them(self, tmp_path, capsys, kind):
        table = {str(k): X[:, k].tolist() for k in range(3)}
        if kind in ("schema", "float32"):
            table, old = people()
            dtype = np.float32 if kind == "float32" else np.float64
            model = PrivateLogisticRegression(**SMALL)
            model = make_pipeline(PrivateSchema(SCHEMA, dtype=dtype), model).fit(table, old)
            expected = outputs(model, table)
        elif kind == "arrays":
            model = PrivateLogisticRegression(**SMALL).fit(X, X[:, 0] > 0)
            expected = outputs(model, X)
        else:
            model = scaled(low=-2, high=2, bound=0.4 if kind == "narrow scaler" else 2.0)
            expected = outputs(model, X)
        li.save(model, tmp_path / "out")
        assert main(["verify", str(tmp_path / "out")]) == 0
        assert "of the model in" in capsys.readouterr().out
        file = self.written(tmp_path / "rows.csv", table)
        found = self.predicted(capsys, tmp_path / "out", file, "--scores")
        assert [label for label, _ in found] == [str(one) for one in expected > 0]
        np.testing.assert_allclose(
            [float(score) for _, score in found], expected, rtol=1e-5, atol=1e-6
        )
        saved = read_model(tmp_path / "out" / "model.json")
        if kind != "schema" and kind != "float32":
            np.testing.assert_allclose(saved.outputs(X)[:, 0], expected, rtol=1e-12)

    def test_numbers(self, tmp_path, capsys):
        model = PrivateRidge(**RIDGE).fit(X, X[:, 0])
        li.save(model, tmp_path / "out")
        file = self.written(tmp_path / "rows.csv", {str(k): X[:, k].tolist() for k in range(3)})
        found = self.predicted(capsys, tmp_path / "out", file)
        expected = model.predict(X.astype(np.float32))  # as tables are read
        np.testing.assert_allclose([float(one) for (one,) in found], expected, atol=1e-6)

    @pytest.mark.parametrize("task", ["classification", "regression"])
    def test_what_they_write_is_loaded(self, tmp_path, capsys, task):
        table, old = people()
        numbers = task == "regression"
        table["out"] = X[:, 0].tolist() if numbers else [str(one) for one in old]
        about = {"range": [-3, 3]} if numbers else {"values": ["True", "False"]}
        (tmp_path / "schema.json").write_text(json.dumps(SCHEMA | {"out": about}))
        file = self.written(tmp_path / "rows.csv", table)
        words = ["train", str(file), "--target", "out", "--schema", str(tmp_path / "schema.json")]
        words += ["--task", task, "--epsilon", "4", "--out", str(tmp_path / "made")]
        assert main(words) == 0
        capsys.readouterr()
        found = self.predicted(capsys, tmp_path / "made", file)
        again = li.load(tmp_path / "made")
        assert [one for (one,) in found] == [
            repr(float(one)) if numbers else str(one) for one in again.predict(table)
        ]

    def test_unlearn_points_at_python(self, tmp_path, capsys):
        li.save(PrivateLogisticRegression(**SMALL).fit(X, X[:, 0] > 0), tmp_path)
        file = self.written(tmp_path / "rows.csv", {"0": [1.0], "1": [1.0], "2": [1.0]})
        assert main(["unlearn", str(tmp_path), str(file), "--rows", "1", "--epsilon", "1"]) == 2
        assert "lastiterate.load(folder)" in " ".join(capsys.readouterr().err.split())


class TestRefusals:
    def test_steps_that_are_no_data(self, tmp_path):
        model = PrivateLogisticRegression(**SMALL)
        pipeline = make_pipeline(Normalizer(), PrivateScaler(), model).fit(X, X[:, 0] > 0)
        with pytest.raises(li.InvalidParameter, match=r"save\(pipeline\[-1\].*data: normalizer\."):
            li.save(pipeline, tmp_path)
        assert not list(tmp_path.iterdir())
        li.save(pipeline[-1], tmp_path)
        rows = pipeline[:-1].transform(X)
        assert np.array_equal(outputs(li.load(tmp_path), rows), outputs(pipeline, X))

    def test_other_models(self, tmp_path):
        for one in (LogisticRegression(), None, "model", StandardScaler()):
            with pytest.raises(TypeError, match="a fitted private linear model, or a pipeline"):
                li.save(one, tmp_path)
        for one in (PrivateLogisticRegression(), make_pipeline(PrivateLogisticRegression())):
            with pytest.raises(NotFittedError):
                li.save(one, tmp_path)

    def test_models_that_were_changed(self, tmp_path, fitted):
        changes = {
            "text": {"coef_": 2 * fitted["text"].coef_},
            "prior": {"class_prior": {0: 0.5, 1: 0.5}},
            "ridge": {"target_range": (-1, 2)},
            "rates": {
                name: getattr(fitted["rates"], name) + 1.0 for name in ("rate_shift_", "intercept_")
            },
            "intervals": {"interval_estimate_": fitted["intervals"].interval_estimate_ + 1e-3},
            "svc": {"parameters_": fitted["svc"].parameters_ + 1e-9},
        }
        for name, change in changes.items():
            model = clone(fitted[name])
            model.__dict__.update(vars(fitted[name]) | change)
            with pytest.raises(li.InvalidParameter, match="as it was fitted"):
                li.save(model, tmp_path)

    def test_folders_with_a_model(self, tmp_path, fitted):
        (tmp_path / "notes.txt").write_text("kept")
        li.save(fitted["text"], tmp_path)
        before = (tmp_path / "model.json").read_text()
        with pytest.raises(
            li.InvalidParameter, match=r"without model\.json and cert.*; overwrite=True"
        ):
            li.save(fitted["truth"], tmp_path)
        assert (tmp_path / "model.json").read_text() == before
        li.save(fitted["truth"], tmp_path, overwrite=True)
        assert li.load(tmp_path).classes_.tolist() == [False, True]
        assert (tmp_path / "notes.txt").read_text() == "kept"
        with pytest.raises(li.InvalidParameter, match="folder must be a folder"):
            li.save(fitted["text"], tmp_path / "notes.txt")

    def test_folders_without_one(self, tmp_path, fitted):
        with pytest.raises(li.InvalidParameter, match=r"found no model\.json and no certificate"):
            li.load(tmp_path / "none")
        li.save(fitted["text"], tmp_path)
        (tmp_path / "certificate.json").unlink()
        with pytest.raises(li.InvalidParameter, match=r"found no certificate\.json in"):
            li.load(tmp_path)


class TestTampering:
    @pytest.fixture
    def folder(self, tmp_path, fitted):
        li.save(fitted["prior"], tmp_path)
        return tmp_path

    def changed(self, folder, **change):
        """With a digest of its own, as whoever changes the file may compute it."""
        record = json.loads((folder / "model.json").read_text())
        del record["digest"]
        (folder / "model.json").write_text(SavedModel(record | change).text())

    def test_a_changed_byte(self, folder):
        text = (folder / "model.json").read_text()
        (folder / "model.json").write_text(text.replace('"dtype": "int64"', '"dtype": "int32"'))
        with pytest.raises(li.InvalidParameter, match="altered since"):
            li.load(folder)

    def test_a_shift_that_is_not_the_certified_one(self, fitted, tmp_path):
        li.save(fitted["rates"], tmp_path)
        self.changed(tmp_path, rate_shift=[float(fitted["rates"].rate_shift_[0]) + 1.0])
        with pytest.raises((InvalidCertificate, InvalidParameter)):
            li.load(tmp_path)

    @pytest.mark.parametrize(
        "change",
        [
            {"coef": [[1.0, 2.0, 3.0]]},
            {"intercept": [0.0]},
            {"offset": None},
            {"labels": {"dtype": "int64", "values": [1, 0]}, "classes": ["1", "0"]},
            {"columns": ["a", "b", "c"]},
            {"settings": {}},
            {"feature_bound": 2.0},
            {"steps": [{"step": "scaler", "name": "s", "bound": 0.1, "low": None, "high": None}]},
        ],
        ids=str,
    )
    def test_other_numbers_or_meanings(self, folder, change):
        self.changed(folder, **change)
        with pytest.raises(InvalidCertificate):
            li.load(folder)

    @pytest.mark.parametrize(
        "change",
        [
            {"steps": [{"step": "pickle", "name": "s"}]},
            {"steps": [{"step": "scaler", "name": "s", "bound": float("inf")}]},
            {"labels": {"dtype": "O", "values": [0, 1]}},
            {"labels": {"dtype": "int64", "values": [0, 2]}},
            {"labels": None},
            {"offset": [0.0, 1.0]},
            {"settings": None},
            {"name": 3},
            {"format": "another model 4"},
        ],
        ids=str,
    )
    def test_what_is_no_model(self, folder, change):
        self.changed(folder, **change)
        with pytest.raises(li.InvalidParameter, match=r"a model\.json as"):
            li.load(folder)

    @pytest.mark.parametrize("setting", ["ledger", "random_state", "warm_start", "nonsense"])
    def test_settings_that_are_never_written(self, folder, setting):
        """Even with a certificate that is tied to them: it is the owner's to issue."""
        self.changed(folder, settings={setting: "/tmp/somewhere"})
        encoding = read_model(folder / "model.json").encoding
        certificate = json.loads((folder / "certificate.json").read_text())
        certificate["encoding"] = encoding_digest(encoding)
        (folder / "certificate.json").write_text(with_digest(certificate))
        with pytest.raises(li.InvalidParameter, match="settings must be those of"):
            li.load(folder)

    def test_the_certificate_of_another(self, folder, fitted, tmp_path_factory):
        other = tmp_path_factory.mktemp("other")
        li.save(fitted["bytes"], other)
        (folder / "certificate.json").write_text((other / "certificate.json").read_text())
        with pytest.raises(InvalidCertificate, match="belongs to another model"):
            li.load(folder)

    def test_signed_certificates_are_not_changed(self, fitted, tmp_path):
        model = clone(fitted["text"])
        signed = json.loads(fitted["text"].certificate_) | {"signature": "of somebody"}
        model.__dict__.update(vars(fitted["text"]) | {"certificate_": json.dumps(signed)})
        with pytest.raises(li.InvalidParameter, match="without a signature"):
            li.save(model, tmp_path)


@pytest.mark.parametrize("name", ["parameters", "coef", "intercept", "center"])
def test_numbers_as_text_are_refused(tmp_path, name):
    estimator, labels = MODELS["text"]
    li.save(clone(estimator).fit(X, labels), tmp_path)
    record = json.loads((tmp_path / "model.json").read_text())
    del record["digest"]
    read_model(tmp_path / "model.json")
    assert record[name] is not None
    record[name] = _as_text(record[name])
    (tmp_path / "model.json").write_text(json.dumps(record | {"digest": digest(record)}))
    with pytest.raises(InvalidParameter):
        read_model(tmp_path / "model.json")


def _as_text(value):
    return [_as_text(one) for one in value] if isinstance(value, list) else str(value)

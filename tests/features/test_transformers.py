"""Fixed features before a private model: in pipelines, files, certificates and commands."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import lastiterate as li
from lastiterate.certificate.issue import with_digest
from lastiterate.cli import main
from lastiterate.errors import InvalidCertificate, InvalidParameter, PrivacyWarning
from lastiterate.features import PublicBins, QuadraticSketch, RandomFourierFeatures, Scattering2D
from lastiterate.linear_model import PrivateLogisticRegression, PrivateScaler

KEY = b"a secret of 16 bytes or more"
PIXELS, LABELS = load_digits(return_X_y=True)
PIXELS, LABELS = PIXELS[:400] / 16.0, LABELS[:400]
FEATURES = [
    Scattering2D((8, 8), scales=1),
    RandomFourierFeatures(64, gamma=0.1, seed=3),
    QuadraticSketch(64, seed=2, input_bound=4.0),
    PublicBins(0.0, 1.0, bins=2),
]


def model(**settings):
    return PrivateLogisticRegression(
        epsilon=4.0, classes=range(10), epochs=2, counting=0, **settings
    )


def fitted(*steps, **settings):
    return make_pipeline(*steps, model(**settings)).fit(PIXELS, LABELS)


def maps_of(pipeline):
    return json.loads(pipeline[-1].certificate_).get("feature maps")


@pytest.mark.parametrize("features", FEATURES, ids=lambda one: type(one).__name__)
class TestEveryTransformer:
    def test_is_named_saved_verified_and_loaded(self, features, tmp_path, capsys):
        pipeline = fitted(features)
        expected = [features.feature_map(64).as_record()]
        assert maps_of(pipeline) == expected
        assert pipeline[-1].feature_bound_ == features.norm_bound
        li.verify(pipeline[-1].certificate_, parameters=pipeline[-1].parameters_)
        li.save(pipeline, tmp_path / "model")
        loaded = li.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.predict(PIXELS), pipeline.predict(PIXELS))
        assert loaded[0].feature_map(64) == features.feature_map(64)
        assert main(["verify", str(tmp_path / "model")]) == 0
        assert f"fixed and public: {expected[0]['kind']} (" in capsys.readouterr().out

    def test_another_one_in_the_file_is_refused(self, features, tmp_path):
        pipeline = fitted(features)
        other = RandomFourierFeatures(features.feature_map(64).width, seed=99).fit(PIXELS)
        changed = Pipeline([("other", other), pipeline.steps[-1]])
        with pytest.raises(InvalidParameter, match="as it was fitted"):
            li.save(changed, tmp_path)

    def test_a_changed_certificate_is_refused(self, features):
        record = json.loads(fitted(features)[-1].certificate_)
        (stated,) = record["feature maps"]
        wide = RandomFourierFeatures(features.feature_map(64).width + 1).feature_map(64)
        for wrong in ([], "none", [{**stated, "norm bound": 0.5}], [{**stated, "kind": "magic"}],
                      [stated, stated], [wide.as_record()]):  # fmt: skip
            if wrong == [stated, stated] and features.feature_map(64).width == 64:
                continue  # may follow itself
            with pytest.raises(InvalidCertificate, match="feature maps"):
                li.verify(with_digest({**record, "feature maps": wrong}))


class TestTheBoundFollows:
    def test_from_the_step_before(self):
        assert fitted(PrivateScaler(3.0))[-1].feature_bound_ == 3.0
        assert fitted(PrivateScaler(3.0), RandomFourierFeatures(8))[-1].feature_bound_ == 1.0
        assert fitted(RandomFourierFeatures(8), PrivateScaler(0.5))[-1].feature_bound_ == 0.5
        assert fitted(PrivateScaler(3.0), "passthrough")[-1].feature_bound_ == 3.0

    def test_unless_it_is_set(self):
        assert fitted(PrivateScaler(3.0), feature_bound=2.0)[-1].feature_bound_ == 2.0

    def test_through_nested_pipelines(self):
        inner = make_pipeline(RandomFourierFeatures(8), PrivateScaler(0.5))
        assert fitted(inner)[-1].feature_bound_ == 0.5
        outer = make_pipeline(PrivateScaler(3.0), make_pipeline(RandomFourierFeatures(8), model()))
        last = outer.fit(PIXELS, LABELS)[-1]
        assert last[-1].feature_bound_ == 1.0

    @pytest.mark.filterwarnings("ignore:the steps fitting")
    def test_in_no_other_pipeline(self):
        """A pipeline that is fitted meanwhile, but does not end in the model, says nothing."""

        class Fitting(PrivateScaler):
            def fit(self, X, y=None):
                self.inside_ = model(feature_bound=None).fit(X / 4.0, LABELS)
                return super().fit(X, y)

        pipeline = make_pipeline(PrivateScaler(3.0), Fitting(2.0), model()).fit(PIXELS, LABELS)
        assert pipeline[1].inside_.feature_bound_ == 1.0
        assert pipeline[-1].feature_bound_ == 2.0


class TestMapsInCertificates:
    def test_are_those_behind_which_nothing_else_changes_columns(self):
        chain = [RandomFourierFeatures(16), QuadraticSketch(8)]
        expected = [chain[0].feature_map(64).as_record(), chain[1].feature_map(16).as_record()]
        assert maps_of(fitted(*chain)) == expected
        assert maps_of(fitted(PrivateScaler(), *chain, PrivateScaler(0.9))) == expected
        assert maps_of(fitted(PrivateScaler())) is None

    def test_do_not_hide_steps_that_learn(self):
        pipeline = make_pipeline(StandardScaler(), RandomFourierFeatures(16), model())
        with pytest.warns(PrivacyWarning, match=r"PrivateScaler\(low=.., high=..\) for Standard"):
            pipeline.fit(PIXELS, LABELS)

    def test_are_added_to_a_pipeline_made_afterwards(self, tmp_path):
        features = Scattering2D((8, 8), scales=1).fit(PIXELS)
        mapped = features.transform_to(PIXELS, tmp_path / "rows.f4")
        alone = model().fit(mapped, LABELS)
        assert "feature maps" not in json.loads(alone.certificate_)
        li.save(Pipeline([("features", features), ("model", alone)]), tmp_path / "model")
        record = json.loads((tmp_path / "model" / "certificate.json").read_text())
        assert record["feature maps"] == [features.feature_map(64).as_record()]
        loaded = li.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.predict(PIXELS), alone.predict(mapped))


def test_rows_can_be_unlearned():
    pipeline = make_pipeline(RandomFourierFeatures(16), PrivateScaler(0.7), model(l2=0.1))
    pipeline.fit(PIXELS, LABELS, privatelogisticregression__key=KEY)
    rows = pipeline[:-1].transform(PIXELS)
    new = pipeline[-1].unlearn(rows, LABELS, rows=[3, 5], key=KEY, extra_steps=5)
    assert new.unlearning_.examples == 2
    assert json.loads(new.certificate_)["feature maps"] == maps_of(pipeline)
    li.verify(new.certificate_, parameters=new.parameters_)


@pytest.fixture
def table(tmp_path):
    """The digits as a file, and its schema."""
    names = [f"p{k}" for k in range(64)]
    lines = [",".join([*names, "digit"])]
    lines += [
        ",".join(map(str, [*(16 * row).astype(int), label]))
        for row, label in zip(PIXELS, LABELS, strict=True)
    ]
    (tmp_path / "digits.csv").write_text("\n".join(lines) + "\n")
    schema = {"*": {"range": [0, 16]}, "digit": {"values": list(range(10))}}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    return tmp_path


class TestCommands:
    def trained(self, table, *more):
        command = ["train", str(table / "digits.csv"), "--target", "digit", "--epsilon", "4"]
        return main([*command, "--schema", str(table / "schema.json"), "--epochs", "2",
                     "--out", str(table / "model"), *more])  # fmt: skip

    @pytest.mark.parametrize("mapped", [False, True])
    def test_train_verify_predict_and_load(self, table, capsys, mapped):
        rows = ["--mapped", str(table / "rows.f4")] if mapped else []
        assert self.trained(table, "--features", "scattering:8x8,scales=1", *rows) == 0
        assert not list(table.glob("rows.f4*"))  # as private as the table
        capsys.readouterr()
        assert main(["verify", str(table / "model")]) == 0
        assert "scattering (shape 8x8, channels 1, scales 1" in capsys.readouterr().out
        assert main(["predict", str(table / "model"), str(table / "digits.csv")]) == 0
        printed = capsys.readouterr().out.split()[1:]
        loaded = li.load(table / "model")
        columns = {f"p{k}": np.rint(16 * PIXELS[:, k]) for k in range(64)}
        assert printed == [str(one) for one in loaded.predict(columns)]
        assert np.mean(np.array(printed, dtype=int) == LABELS) > 0.3

    @pytest.mark.slow
    def test_unlearn(self, table):
        (table / "key").write_bytes(KEY)
        key = ["--key", str(table / "key")]
        assert self.trained(table, "--features", "fourier:16", "--l2", "0.1", *key) == 0
        command = ["unlearn", str(table / "model"), str(table / "digits.csv"), "--rows", "3,5"]
        out = ["--epsilon", "3", "--out", str(table / "new"), "--at-any-cost", *key]
        assert main([*command, *out]) == 0
        assert main(["verify", str(table / "new")]) == 0

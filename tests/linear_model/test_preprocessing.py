"""Preprocessing that learnt from the examples is named wherever the guarantee is stated."""

import json
import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import Nystroem, PolynomialCountSketch, RBFSampler
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
    scale,
)
from sklearn.random_projection import GaussianRandomProjection

import lastiterate as li
from lastiterate.certificate import fields as statements
from lastiterate.certificate.issue import with_digest
from lastiterate.cli import main
from lastiterate.errors import InvalidCertificate, InvalidParameter, InvalidType, PrivacyWarning
from lastiterate.linear_model import (
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateScaler,
    PrivateScore,
    PrivateSelection,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 2))
Y = X[:, 0] > 0.0
DIGITS = np.round(np.abs(X) % 2)


class Doubled(TransformerMixin, BaseEstimator):
    """A transformer of the user's own, which does not say that it needs no fitting."""

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        return 2.0 * X


def model(**settings):
    return PrivateLogisticRegression(
        epsilon=4.0, batches="cyclic", epochs=2, counting=0, center=False, **settings
    )


def fitted(*steps, rows=X, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make_pipeline(*steps, model(**settings)).fit(rows, Y)[-1]


def stated(one):
    return json.loads(one.certificate_).get("preprocessing", {})


LEARNING = {
    "scaler": StandardScaler(),
    "components": PCA(2),
    "encoder": OneHotEncoder(),
    "categories that are rare": OneHotEncoder(
        categories=[[0.0, 1.0, 2.0]] * 2, min_frequency=2, handle_unknown="infrequent_if_exist"
    ),
    "means of targets": TargetEncoder(categories=[[0.0, 1.0, 2.0]] * 2),
    "kernel width from the data": RBFSampler(gamma="scale"),
    "rows as landmarks": Nystroem(n_components=2),
    "columns that are empty": SimpleImputer(strategy="constant", fill_value=0.0),
    "knots": SplineTransformer(),
    "in a union": FeatureUnion([("a", Normalizer()), ("b", MinMaxScaler())]),
    "the other columns": ColumnTransformer([("a", "passthrough", [0])], remainder=StandardScaler()),
    "unknown": Doubled(),
    "a function of all rows": FunctionTransformer(scale),
}
FIXED = {
    "nothing": "passthrough",
    "normaliser": Normalizer(),
    "function": FunctionTransformer(np.tanh),
    "random features": RBFSampler(gamma=0.5, n_components=4),
    "powers": PolynomialFeatures(2),
    "sketch": PolynomialCountSketch(n_components=4),
    "projection": GaussianRandomProjection(n_components=2),
    "declared knots": SplineTransformer(knots=np.array([[-3.0, -3.0], [0.0, 0.0], [3.0, 3.0]])),
    "declared categories": OneHotEncoder(categories=[[0.0, 1.0, 2.0]] * 2),
    "declared order": OrdinalEncoder(categories=[[0.0, 1.0, 2.0]] * 2),
    "a constant": SimpleImputer(strategy="constant", fill_value=0.0, keep_empty_features=True),
    "frozen": FrozenEstimator(StandardScaler().fit(np.eye(2))),
    "own": PrivateScaler(),
    "in a union": FeatureUnion([("a", Normalizer()), ("b", PolynomialFeatures())]),
    "columns": ColumnTransformer([("a", Normalizer(), [0])], remainder="passthrough"),
}


@pytest.mark.parametrize("step", LEARNING.values(), ids=LEARNING)
def test_steps_that_learn_are_named(step):
    with pytest.warns(PrivacyWarning, match="before this model learn from the examples"):
        one = make_pipeline(step, model()).fit(DIGITS, Y)[-1]
    assert one.privacy_.preprocessing == tuple(stated(one)["fitted"])
    assert len(one.privacy_.preprocessing) == 1


@pytest.mark.parametrize("step", FIXED.values(), ids=FIXED)
def test_steps_that_learn_nothing_are_not(step):
    one = make_pipeline(step, model()).fit(DIGITS, Y)[-1]
    assert one.privacy_.preprocessing == ()
    assert stated(one) == {}


class TestNames:
    def test_of_every_pipeline_on_the_way(self):
        inner = Pipeline(
            [("powers", PolynomialFeatures()), ("ranges", MinMaxScaler()), ("m", model())]
        )
        columns = ColumnTransformer([("first", StandardScaler(), [0])], remainder="passthrough")
        with pytest.warns(PrivacyWarning):
            outer = Pipeline([("columns", columns), ("rest", inner)]).fit(X, Y)
        assert outer[-1][-1].privacy_.preprocessing == (
            "ranges (MinMaxScaler)",
            "columns__first (StandardScaler)",
        )

    def test_of_pipelines_of_other_packages(self):
        class Own(Pipeline):
            """A pipeline as others derive theirs, with a `fit` in another module."""

            def fit(self, X, y=None):
                rows = self.steps[0][1].fit_transform(X)
                self.steps[-1][1].fit(rows, y)
                return self

        with pytest.warns(PrivacyWarning):
            one = Own([("scale", StandardScaler()), ("m", model())]).fit(X, Y)[-1]
        assert one.privacy_.preprocessing == ("scale (StandardScaler)",)

    def test_of_what_targets_were_scaled_by(self):
        ridge = PrivateRidge(
            epsilon=4.0, batches="cyclic", epochs=2, target_range=(-1, 1), counting=0
        )
        whole = TransformedTargetRegressor(ridge, transformer=StandardScaler())
        with pytest.warns(PrivacyWarning, match=r"targets \(StandardScaler\)"):
            whole.fit(X, X[:, 0])
        assert whole.regressor_.privacy_.preprocessing == ("targets (StandardScaler)",)


class TestDeclared:
    def test_public_steps_are_on_trust(self, tmp_path, capsys):
        one = make_pipeline(Doubled(), model(preprocessing={"doubled": "public"})).fit(X, Y)[-1]
        assert one.privacy_.preprocessing == ()
        assert stated(one)["declared public"] == ["doubled (Doubled)"]
        file = tmp_path / "certificate.json"
        file.write_text(one.certificate_)
        assert main(["verify", str(file)]) == 0
        assert "on trust: doubled (Doubled) learned nothing" in capsys.readouterr().out

    def test_a_container_stands_for_its_parts(self):
        columns = ColumnTransformer([("a", StandardScaler(), [0]), ("b", Doubled(), [1])])
        one = fitted(columns, preprocessing={"columntransformer": "public"})
        assert one.privacy_.preprocessing == ()
        one = fitted(columns, preprocessing={"columntransformer__b": "public"})
        assert one.privacy_.preprocessing == ("columntransformer__a (StandardScaler)",)

    def test_steps_fitted_apart(self):
        rows = StandardScaler().fit_transform(X)
        with pytest.warns(PrivacyWarning, match="the steps scaled apart before"):
            one = model(preprocessing={"scaled apart": "private"}).fit(rows, Y)
        assert one.privacy_.preprocessing == ("scaled apart",)
        assert stated(one)["fitted"] == ["scaled apart"]

    @pytest.mark.parametrize("wrong", ["scaler", {"a": "secret"}, {1: "public"}, ["a"]])
    def test_refusals(self, wrong):
        with pytest.raises(InvalidParameter, match="preprocessing"):
            model(preprocessing=wrong).fit(X, Y)


@pytest.fixture(scope="module")
def one():
    return fitted(StandardScaler())


class TestEverywhere:
    NAME = "standardscaler (StandardScaler)"

    def test_reports(self, one):
        report = one.privacy_
        pages = [str(report), report.statement(), repr(report), report._repr_html_()]
        pages += [report.statement(format=kind) for kind in ("markdown", "model-card")]
        assert all(self.NAME in " ".join(page.split()) for page in pages)
        assert "certified for the training alone" in " ".join(str(report).split())
        assert json.loads(report.to_json())["preprocessing"] == [self.NAME]

    @pytest.mark.slow
    def test_html(self, one):
        pytest.importorskip("matplotlib")
        assert self.NAME in one.privacy_.to_html()

    def test_reports_of_runs_alone_say_nothing(self):
        one = fitted(Normalizer())
        said = str(one.privacy_) + one.privacy_.statement() + repr(one.privacy_)
        assert "ncluded" not in said
        assert "training alone" not in said

    def test_verify_warns(self, one):
        with pytest.warns(PrivacyWarning, match=r"standardscaler \(StandardScaler\)"):
            assert li.verify(one.certificate_).preprocessing == (self.NAME,)

    def test_the_command_names_them_and_fails(self, one, tmp_path, capsys):
        file = tmp_path / "certificate.json"
        file.write_text(one.certificate_)
        assert main(["verify", str(file)]) == 1
        said = capsys.readouterr().out
        assert self.NAME in said
        assert "holds for the training alone: epsilon" in said
        assert main(["verify", str(file), "--allow-fitted"]) == 0

    def test_a_score_beside_it(self, one):
        score = PrivateScore.of(one, StandardScaler().fit_transform(X), Y, epsilon=0.5)
        assert score.joint_report(one.privacy_).preprocessing == (self.NAME,)

    def test_selections(self):
        grid = {"feature_bound": [1.0, 2.0]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            chosen = make_pipeline(
                StandardScaler(), PrivateSelection(model(), grid, epsilon=4.0)
            ).fit(X, Y)[-1]
        assert chosen.privacy_.preprocessing == (self.NAME,)
        assert stated(chosen)["fitted"] == [self.NAME]

    @pytest.mark.filterwarnings("ignore::lastiterate.errors.PrivacyWarning")
    def test_unlearned_models(self):
        scaler = StandardScaler()
        pipeline = make_pipeline(scaler, model(l2=0.1))
        pipeline.fit(X, Y, privatelogisticregression__key=b"0123456789abcdef0123456789abcdef")
        new = pipeline[-1].unlearn(
            scaler.transform(X), Y, rows=[3], key=b"0123456789abcdef0123456789abcdef", extra_steps=5
        )
        assert new.privacy_.preprocessing == (self.NAME,)
        assert li.verify(new.certificate_).preprocessing == (self.NAME,)
        record = json.loads(new.certificate_)
        del record["preprocessing"]
        with pytest.raises(InvalidCertificate, match=r"another training \(preprocessing\)"):
            li.verify(with_digest(record))

    @pytest.mark.parametrize(
        "other",
        [
            {"fitted": [], "declared public": []},
            {"fitted": ["a"]},
            statements.preprocessing(["a"], []) | {"not included": "nothing"},
            statements.preprocessing([1], []),
            statements.preprocessing([], []),
            "none",
        ],
    )
    def test_other_words_in_a_certificate_are_refused(self, one, other):
        record = json.loads(one.certificate_) | {"preprocessing": other}
        with pytest.raises(InvalidCertificate):
            li.verify(with_digest(record))


class TestOtherWordsOfFit:
    def test_weights_above_one_are_refused_in_words(self):
        with pytest.raises(InvalidParameter, match=r"sample_weight must be 400 .* in \(0, 1\]"):
            model().fit(X, Y, sample_weight=np.full(400, 2.0))
        with pytest.raises(InvalidParameter, match="sample_weight must be 400 numbers"):
            make_pipeline(Normalizer(), model()).fit(
                X, Y, privatelogisticregression__sample_weight=np.ones(399)
            )
        with pytest.raises(InvalidType, match="coef_init must be left out"):
            PrivateRidge(target_bound=1.0).fit(X, X[:, 0], coef_init=0)
        with pytest.raises(InvalidType, match="sample_weight"):
            PrivateSelection(model(), {"epochs": [1]}).fit(X, Y, sample_weight=1)

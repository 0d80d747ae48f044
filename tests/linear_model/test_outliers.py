"""What depends on the data is counted with noise, certified, and said; all else is said as well."""

import json
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import VotingClassifier
from sklearn.feature_selection import RFE
from sklearn.model_selection import cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, OneHotEncoder, StandardScaler

from lastiterate.accounting import account
from lastiterate.certificate.fields import digest
from lastiterate.certificate.verify import verify
from lastiterate.errors import InvalidCertificate, InvalidParameter, PrivacyWarning
from lastiterate.linear_model.classifiers import PrivateLogisticRegression
from lastiterate.linear_model.preprocessing import PrivateScaler
from lastiterate.linear_model.published_statistics import (
    OutlierWarning,
    noisy_outlier_counts,
    warn_of_outliers,
)
from lastiterate.linear_model.regressors import PrivateRidge
from lastiterate.other_releases import KINDS, OUTLIERS, Release
from lastiterate.profile.rounded import gdp_but_for_failure
from lastiterate.train.data import bounded
from lastiterate.train.noise import Randomness, SeededBits

RNG = np.random.default_rng(0)
AGE, INCOME = RNG.uniform(18, 90, 4_000), RNG.uniform(10, 200, 4_000)
PEOPLE = np.column_stack([AGE, INCOME])
RICH = INCOME > 100


class TestWarnings:
    def test_raw_columns(self):
        with pytest.warns(
            OutlierWarning, match=r"of the examples are more than ten times.*public ranges"
        ):
            PrivateLogisticRegression(feature_bound=1.0).fit(PEOPLE, RICH)
        scaled = PrivateScaler(2**0.5, low=[18, 0], high=[90, 200]).fit_transform(PEOPLE)
        model = PrivateLogisticRegression(feature_bound=2**0.5).fit(scaled, RICH)
        assert model.score(scaled, RICH) > 0.95

    def test_rows_that_noise_drowns(self):
        with pytest.warns(OutlierWarning, match="shorter than a tenth of the feature bound"):
            PrivateLogisticRegression().fit(PEOPLE / 1e5, RICH)

    def test_targets_beyond_their_bound(self):
        with pytest.warns(OutlierWarning, match="have a target outside the declared range"):
            PrivateRidge(target_bound=1.0).fit(PEOPLE / 200, 1e3 * INCOME)

    def test_labels_that_were_not_declared(self):
        with pytest.warns(OutlierWarning, match="an undeclared label"):
            PrivateLogisticRegression(classes=["a", "b"]).fit(PEOPLE / 200, RICH)

    def test_sparse_and_mapped_rows(self, tmp_path):
        (PEOPLE * 1.0).tofile(tmp_path / "rows")
        mapped = np.memmap(tmp_path / "rows", dtype=float, mode="r", shape=PEOPLE.shape)
        for rows in (sparse.csr_array(PEOPLE), mapped):
            with pytest.warns(OutlierWarning, match="more than ten times"):
                PrivateLogisticRegression(feature_bound=1.0).fit(rows, RICH)

    def test_none_where_too_few_to_tell_or_not_counted(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings(
                "ignore", "rows differ by less than the noise"
            )  # as noise has it
            PrivateLogisticRegression().fit(PEOPLE[:100], RICH[:100])
            model = PrivateLogisticRegression(counting=0, center=False).fit(PEOPLE, RICH)
        assert model.outliers_ == {}
        assert model.privacy_.other_releases == ()
        assert json.loads(model.certificate_)["other_releases"] == []

    def test_noise_alone_sets_none_off(self):
        release = Release.of_mu(OUTLIERS, 0.027, adjacency="replace")
        for examples in (10, 100, 500, 600):
            counts = {"long rows": round(3.5 * release.noise_std)}
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.filterwarnings(
                    "ignore", "rows differ by less than the noise"
                )  # as noise has it
                warn_of_outliers(counts, release, examples)

    def test_delta_that_allows_an_example_to_be_published(self):
        with pytest.warns(PrivacyWarning, match="delta = 0.001 is not below 1/n for n = 4,000"):
            PrivateLogisticRegression(delta=1e-3).fit(PEOPLE / 200, RICH)


MODEL = PrivateLogisticRegression(epsilon=4.0, classes=[0, 1], counting=0)
SEVERAL = {
    "one against the rest": OneVsRestClassifier(MODEL),
    "calibration": CalibratedClassifierCV(MODEL, cv=2),
    "elimination": RFE(MODEL, n_features_to_select=1),
    "voting": VotingClassifier([("a", MODEL), ("b", MODEL)]),
}


@pytest.mark.parametrize("several", SEVERAL.values(), ids=SEVERAL)
def test_whoever_fits_several_times_is_told(several):
    with pytest.warns(PrivacyWarning, match="does not include; a Ledger charges"):
        several.fit(PEOPLE[:300] / 200, RICH[:300].astype(int))


def test_also_where_other_processes_fit():
    with pytest.warns(PrivacyWarning, match="a routine of sklearn.model_selection"):
        cross_val_score(MODEL, PEOPLE[:300] / 200, RICH[:300].astype(int), cv=2, n_jobs=2)


LEARNING = {
    "scaler": StandardScaler(),
    "components": PCA(2),
    "columns": ColumnTransformer([("a", "passthrough", [0]), ("b", StandardScaler(), [1])]),
    "encoder": OneHotEncoder(),
}
DECLARED = {
    "scaler": PrivateScaler(low=0.0, high=1.0),
    "rows": Normalizer(),
    "columns": ColumnTransformer([("a", PrivateScaler(), [0, 1])]),
    "encoder": OneHotEncoder(categories=[[0.0, 1.0]] * 2, handle_unknown="ignore"),
    "nothing": "passthrough",
}


@pytest.mark.parametrize("step", LEARNING.values(), ids=LEARNING)
def test_steps_that_learn_from_the_examples_are_told(step):
    with pytest.warns(PrivacyWarning, match="before this model learn from the examples"):
        make_pipeline(step, MODEL).fit(PEOPLE[:300] / 200, RICH[:300].astype(int))


@pytest.mark.parametrize("step", DECLARED.values(), ids=DECLARED)
def test_steps_of_what_was_declared_are_not(step):
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        make_pipeline(step, MODEL).fit(np.round(PEOPLE[:300] / 200), RICH[:300].astype(int))


class TestCounts:
    def examples(self, rows):
        return bounded(np.array(rows), np.zeros(len(rows)), bound=1.0, intercept=0.0)

    def exact(self, rows, outside):
        silent = Release(OUTLIERS, 3.0**0.5, 1e-9)
        counts = noisy_outlier_counts(
            self.examples(rows), np.array(outside), silent, Randomness(SeededBits(0))
        )
        return np.array(list(counts.values()))

    def test_are_those_of_the_rows(self):
        rows = [[10.1, 0.0], [9.9, 0.0], [0.0, 1e300], [0.09, 0.0], [0.11, 0.0], [0.0, 0.0]]
        assert self.exact(rows, [True, False] * 3).tolist() == [2, 2, 3]

    @pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
    def test_one_example_moves_them_no_farther_than_is_charged(self, adjacency):
        """Every pair of kinds; left out, an example is no outlier."""
        kinds = [([size, 0.0], out) for size in (100.0, 1.0, 0.01) for out in (False, True)]
        moves = []
        for one in kinds:
            for other in kinds if adjacency == "replace" else [([1.0, 0.0], False)]:
                ends = [self.exact([[1.0, 1.0], row], [True, out]) for row, out in (one, other)]
                moves.append(np.linalg.norm(ends[0] - ends[1]))
        assert max(moves) == pytest.approx(KINDS[OUTLIERS].sensitivity(adjacency))

    def test_have_the_noise_that_is_stated(self):
        release = Release.of_mu(OUTLIERS, 0.05, adjacency="replace")
        assert release.mu <= 0.05 * (1 + 1e-12)
        examples, outside = self.examples([[1.0, 0.0]] * 50), np.zeros(50, dtype=bool)
        drawn = np.array(
            [
                list(
                    noisy_outlier_counts(
                        examples, outside, release, Randomness(SeededBits(k))
                    ).values()
                )
                for k in range(400)
            ]
        )
        assert drawn.std() == pytest.approx(release.noise_std, rel=0.1)
        assert abs(drawn.mean()) < 4 * release.noise_std / 1200**0.5


@pytest.fixture(scope="module")
def model():
    return PrivateLogisticRegression(center=False).fit(PEOPLE / 200, RICH)


class TestGuarantee:
    def test_is_of_the_model_and_the_counts(self, model):
        (release,) = [one for one in model.privacy_.other_releases if one.kind == OUTLIERS]
        assert 0.999 < model.privacy_.epsilon(1e-5) <= 1.0
        alone = account(model.privacy_.run)
        assert alone.epsilon(1e-5) < model.privacy_.epsilon(1e-5)
        # No less than what the best bound composes to.
        at_least = alone.all["fixed-order/convex"].compose(model.privacy_.all[
            "fixed-order/convex"])  # fmt: skip
        whole = gdp_but_for_failure(model.privacy_.all["fixed-order/convex"])
        assert gdp_but_for_failure(at_least) > whole > release.mu
        last = gdp_but_for_failure(model.privacy_.by_position()[-1])
        assert last > gdp_but_for_failure(alone.by_position()[-1])

    def test_costs_half_a_hundredth_of_noise(self):
        with_counts, without = (
            PrivateLogisticRegression(counting=share).fit(PEOPLE / 200, RICH).privacy_.run
            for share in (0.1, 0.0)
        )
        assert 1.002 < with_counts.noise_std / without.noise_std < 1.01

    def test_of_given_noise(self):
        settings = {"epsilon": None, "noise_std": 0.01, "release_noise_std": 0.01}
        fitted = PrivateLogisticRegression(**settings).fit(PEOPLE / 200, RICH)
        alone = account(fitted.privacy_.run).epsilon(1e-5)
        assert alone < fitted.privacy_.epsilon(1e-5) < 1.02 * alone

    def test_is_derived_again(self, model):
        report = verify(model.certificate_, parameters=model.parameters_)
        assert report.epsilon(1e-5) == model.privacy_.epsilon(1e-5)
        assert report.other_releases == model.privacy_.other_releases
        assert (
            json.loads(model.certificate_)["other_releases"][0]["published (noisy)"]
            == model.outliers_
        )

    @pytest.mark.parametrize(
        "changes, reason",
        [
            ({"noise_std": 10.0}, "no number with stated noise"),
            ({"sensitivity": 1.0}, "cannot be read.*sensitivity must be at least"),
            ({"kind": "nothing"}, "cannot be read.*kind must be one of"),
            ({"what": "nothing"}, "cannot be read.*what must be"),
            ({"noise_std": float("1e999")}, "Infinity is no number"),
        ],
    )
    def test_cannot_be_forged(self, model, changes, reason):
        record = json.loads(model.certificate_)
        record["other_releases"][0] |= changes
        record["digest"] = digest(record)
        with pytest.raises(InvalidCertificate, match=reason):
            verify(json.dumps(record))

    def test_what_was_published_cannot_be_kept_quiet_about(self, model):
        """The counts gone, the same epsilon still holds: less was claimed to be published."""
        record = json.loads(model.certificate_)
        del record["other_releases"]
        record["digest"] = digest(record)
        with pytest.raises(InvalidCertificate, match="cannot be read"):
            verify(json.dumps(record))

    def test_the_report_tells_of_them(self, model):
        text = " ".join(str(model.privacy_).split())
        assert "noisy counts of very long rows" in text
        assert json.loads(model.privacy_.to_json())["other_releases"][0]["kind"] == OUTLIERS

    @pytest.mark.parametrize("share", [-0.1, 0.91, np.nan, "much"])
    def test_parts_that_are_none(self, share):
        with pytest.raises(InvalidParameter, match="counting must be"):
            PrivateLogisticRegression(counting=share).fit(PEOPLE, RICH)

"""A certificate says nothing that is not known, and names what it leaves to trust."""

import json

import numpy as np
import pytest

from lastiterate.certificate import fields
from lastiterate.certificate.verify import verify
from lastiterate.cli import main
from lastiterate.errors import InvalidCertificate
from lastiterate.linear_model import PrivateLogisticRegression
from tests.slow import slow

from .certificates import QUICK, X, changed, copied, sealed

NOTE = "approved by the FDA"


def refused(record, reason=None):
    with pytest.raises(InvalidCertificate, match=reason):
        verify(sealed(record))


def tables(node, path=()):
    """Every object in a certificate, with how to get there."""
    if isinstance(node, dict):
        yield path
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in items:
        if isinstance(value, dict | list):
            yield from tables(value, (*path, key))


@pytest.mark.parametrize("kind", ["trained", "unlearned", "selected"])
def test_unknown_fields_are_refused_wherever_they_are_and_named(certificates, kind):
    record = certificates[kind]
    verify(sealed(record))
    places = list(tables(record))
    assert len(places) > 15
    for path in places:
        refused(changed(record, (*path, "note"), NOTE))
    for path in ((), ("guarantee",), ("features",), ("arithmetic",)):
        if kind != "unlearned" or path in ((), ("guarantee",)):
            place = r"\.".join([*path, "note"])
            refused(changed(record, (*path, "note"), NOTE), f"not known: {place}")


class TestPublishedNumbers:
    @pytest.mark.parametrize("classes", [2, 3])
    @pytest.mark.filterwarnings("ignore:too few examples for rate matching")
    def test_rates_are_one_for_each_output(self, classes):
        settings = QUICK | {"classes": list(range(classes)), "rate_matching": 0.3}
        model = PrivateLogisticRegression(**settings).fit(X, np.arange(400) % classes)
        record = json.loads(model.certificate_)
        verify(sealed(record))
        (rates,) = (one for one in record["other_releases"] if one["kind"] == "rates")
        published = rates["published (noisy)"]
        for other in ([], published * 2, published * 5_000):
            rates["published (noisy)"] = other
            refused(record, "one shift of an intercept")

    @pytest.mark.parametrize("stripped", [0, 1])
    def test_candidates_have_the_score_that_chose(self, certificates, stripped):
        path = ("selection", "candidates", stripped, "other_releases")
        releases = certificates["selected"]["selection"]["candidates"][stripped]["other_releases"]
        others = [each for each in releases if each["kind"] != "accuracy"]
        refused(changed(certificates["selected"], path, others),
                "not all listed with the same score")  # fmt: skip


class TestFieldsThatMustBeThere:
    @pytest.mark.parametrize(
        "path, value, reason",
        [
            (("model",), None, "to which model it belongs is unknown"),
            (("model",), "the best", "to which model it belongs is unknown"),
            (("features", "bound"), 1e-320, "features.bound must be"),
            (("features", "bound"), 1e-13, "features.bound must be"),
            (("software",), "lastiterate 0.1.0, " + NOTE, "what software issued it"),
            (("head",), "mine", "to which layer it belongs is unknown"),
            *(
                (("other_releases", k, "noise_std of each count"), 3.0,
                 "no number with stated noise")
                for k in range(3)
            ),
            (("other_releases", 1, "published (noisy)"), None, "cannot be read"),
        ],
    )  # fmt: skip
    def test_are_checked(self, certificates, path, value, reason):
        refused(changed(certificates["trained"], path, value), reason)

    def test_so_is_the_bound_around_the_mean(self, certificates):
        record = certificates["trained"]
        kinds = [one["kind"] for one in record["other_releases"]]
        path = ("other_releases", kinds.index("mean"), "published (noisy)", "bound")
        bound = float(record["features"]["bound"])
        for factor in (-1.0, 0.0, 1.001, 1e300):
            refused(changed(record, path, factor * bound), "the bound around the mean")
        verify(sealed(changed(record, path, bound)))

    def test_also_of_settings_that_were_not_chosen(self, certificates):
        path = ("selection", "candidates", 1, "features", "bound")
        refused(changed(certificates["selected"], path, 1e-320), "feature_bound must be")


class TestArithmetic:
    """Whoever forges digests, too, gains nothing by any other value of any field."""

    def others(self, value):
        if isinstance(value, list):
            return [value[:-1], value[::-1], [*value, "luck"], "luck", None]
        if isinstance(value, str):
            said = [fields.CHARGED, fields.CHARGED_WITH_SEED, fields.NOT_CHARGED,
                    fields.TOGETHER, fields.APART]  # fmt: skip
            return [f"{value}.", "", "float32", *said, 1, None]
        less, more = value * 0.999_999, value * 1.000_001 + 1e-6
        return [less, more, -1.0, value / 2 + 1.0, str(value), None]

    @pytest.mark.parametrize(
        "kind, links",
        [("trained", 1), ("not centred", 1), ("sparse", 1), ("selected", 1), ("unlearned", 1),
         slow("unlearned", 3)],
    )  # fmt: skip
    def test_of_no_field_is_another_value_accepted(self, certificates, kind, links):
        """Of a chain, in the last request; the slow job alters the others, too."""
        record = certificates[kind]
        verify(sealed(record))
        places = [("arithmetic",)]
        places += [("earlier", k, "arithmetic") for k in range(len(record.get("earlier", [])))]
        for path in places[:links]:
            stated = record
            for key in path:
                stated = stated[key]
            assert set(stated) == set(fields.ARITHMETIC_FIELDS)
            for name, value in stated.items():
                for other in self.others(value):
                    if other != value:
                        refused(changed(record, (*path, name), other))
        if len(places) > links:  # one field of each of the other links
            for path in places[links:]:
                refused(changed(record, (*path, "mu"), 1e-9))


class TestTheCommand:
    def said(self, record, tmp_path, capsys):
        path = tmp_path / "certificate.json"
        path.write_text(sealed(record))
        assert main(["verify", str(path)]) == 0
        return capsys.readouterr().out

    @pytest.mark.parametrize("kind", ["trained", "unlearned", "selected"])
    def test_says_what_is_on_trust_next_to_the_verdict(self, certificates, kind, tmp_path, capsys):
        verdict, trust, *others = self.said(certificates[kind], tmp_path, capsys).splitlines()
        assert verdict.startswith("holds: ")
        assert trust.startswith("on trust: that this run took place as described")
        (stated,) = (one for one in others if one.startswith("only stated, and not derived"))
        assert "which version trained it" in stated
        assert "the noisy counts of outliers" in stated
        assert ("the score" in stated) == (kind == "selected")
        assert ("which rows went" in stated) == (kind == "unlearned")

    def test_says_that_counts_are_noisy(self, certificates, tmp_path, capsys):
        record = copied(certificates["trained"])
        (undeclared,) = (one for one in record["other_releases"] if one["kind"] == "undeclared")
        undeclared["published (noisy)"]["education"] = -132
        about = f"{undeclared['noise_std']:,.0f}"
        said = self.said(record, tmp_path, capsys)
        assert f"counted (noisy, give or take {about} each): education -132" in said

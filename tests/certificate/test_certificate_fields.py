"""A certificate says nothing that is not known, and names what it leaves to trust."""

import json

import numpy as np
import pytest
from scipy import sparse

from lastiterate.certificate import fields as arithmetic_record
from lastiterate.certificate.fields import digest
from lastiterate.certificate.verify import history_before_requests, verify
from lastiterate.cli import main
from lastiterate.errors import InvalidCertificate
from lastiterate.linear_model.classifiers import PrivateLogisticRegression
from lastiterate.linear_model.private_selection import PrivateSelection

X = np.random.default_rng(0).normal(size=(400, 3)) / 3.0
Y = X[:, 0] > 0.0
KEY = bytes(range(32))
_SAID = [
    arithmetic_record.CHARGED,
    arithmetic_record.CHARGED_WITH_SEED,
    arithmetic_record.NOT_CHARGED,
    arithmetic_record.TOGETHER,
    arithmetic_record.APART,
]
QUICK = {"epsilon": 1.0, "batches": "cyclic", "batch_size": 100, "epochs": 2, "feature_bound": 1.0}


@pytest.fixture(scope="module")
def certificates():
    model = PrivateLogisticRegression(text_columns=(("education", 0, 2),), **QUICK)
    chain = PrivateLogisticRegression(**QUICK).fit(X, Y, key=KEY)
    for row in (1, 2, 3):
        chain = chain.unlearn(X, Y, rows=[row], extra_steps=4, key=KEY)
    chosen = PrivateSelection(PrivateLogisticRegression(**QUICK), {"l2": [0.0, 0.1]}, tries=1.5)
    apart = PrivateLogisticRegression(center=False, **QUICK).fit(X, Y)
    return {
        "not centred": json.loads(apart.certificate_),
        "sparse": json.loads(
            PrivateLogisticRegression(**QUICK).fit(sparse.csr_array(X), Y).certificate_
        ),
        "trained": json.loads(model.fit(X, Y).certificate_),
        "unlearned": json.loads(chain.certificate_),
        "selected": json.loads(chosen.fit(X, Y).certificate_),
    }


def sealed(record):
    """With digests and links as whoever forges a certificate would compute them again."""
    copy = json.loads(json.dumps(record))
    chain = [*copy.get("earlier", []), copy]
    for number, link in enumerate(chain):
        if number:
            link["unlearning"] |= {"follows": chain[number - 1]["digest"], "request": number}
        link["digest"] = digest(link)
    return json.dumps(copy)


def tables(node, path=()):
    """Every object in a certificate, with how to get there."""
    if isinstance(node, dict):
        yield path
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in items:
        if isinstance(value, dict | list):
            yield from tables(value, (*path, key))


def changed(record, path, name, value):
    copy = json.loads(json.dumps(record))
    place = copy
    for key in path:
        place = place[key]
    if value is None:
        del place[name]
    else:
        place[name] = value
    return sealed(copy)


@pytest.mark.parametrize("kind", ["trained", "unlearned", "selected"])
class TestUnknownFields:
    def test_are_refused_wherever_they_are(self, certificates, kind):
        record = certificates[kind]
        verify(sealed(record))
        places = list(tables(record))
        assert len(places) > 15
        for path in places:
            with pytest.raises(InvalidCertificate):
                verify(changed(record, path, "note", "approved by the FDA"))

    def test_are_named(self, certificates, kind):
        for path in ((), ("guarantee",), ("features",), ("arithmetic",)):
            with pytest.raises(InvalidCertificate) as refused:
                verify(changed(certificates[kind], path, "note", "approved by the FDA"))
            if kind != "unlearned" or path in ((), ("guarantee",)):
                assert f"not known: {'.'.join([*path, 'note'])}" in str(refused.value)


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
            with pytest.raises(InvalidCertificate, match="one shift of an intercept"):
                verify(sealed(record))

    @pytest.mark.parametrize("stripped", [0, 1])
    def test_candidates_have_the_score_that_chose(self, certificates, stripped):
        record = json.loads(json.dumps(certificates["selected"]))
        one = record["selection"]["candidates"][stripped]
        releases = one["other_releases"]
        one["other_releases"] = [each for each in releases if each["kind"] != "accuracy"]
        with pytest.raises(InvalidCertificate, match="not all listed with the same score"):
            verify(sealed(record))


class TestFieldsThatMustBeThere:
    @pytest.mark.parametrize(
        "path, name, value, reason",
        [
            ((), "model", None, "to which model it belongs is unknown"),
            ((), "model", "the best", "to which model it belongs is unknown"),
            (("features",), "bound", 1e-320, "features.bound must be"),
            (("features",), "bound", 1e-13, "features.bound must be"),
            ((), "software", "lastiterate 0.1.0, approved by the FDA", "what software issued it"),
            ((), "head", "mine", "to which layer it belongs is unknown"),
            (("other_releases", 0), "noise_std of each count", 3.0, "no number with stated noise"),
            (("other_releases", 1), "noise_std of each count", 3.0, "no number with stated noise"),
            (("other_releases", 2), "noise_std of each count", 3.0, "no number with stated noise"),
            (("other_releases", 1), "published (noisy)", None, "cannot be read"),
        ],
    )
    def test_are_checked(self, certificates, path, name, value, reason):
        with pytest.raises(InvalidCertificate, match=reason):
            verify(changed(certificates["trained"], path, name, value))

    @pytest.mark.parametrize("bound", [-1.0, 0.0, 1.001, 1e300])
    def test_so_is_the_bound_around_the_mean(self, certificates, bound):
        record = certificates["trained"]
        kinds = [one["kind"] for one in record["other_releases"]]
        path = ("other_releases", kinds.index("mean"), "published (noisy)")
        stated = bound * record["features"]["bound"]
        with pytest.raises(InvalidCertificate, match="the bound around the mean"):
            verify(changed(record, path, "bound", stated))
        verify(changed(record, path, "bound", float(record["features"]["bound"])))

    def test_also_of_settings_that_were_not_chosen(self, certificates):
        path = ("selection", "candidates", 1, "features")
        with pytest.raises(InvalidCertificate, match="feature_bound must be"):
            verify(changed(certificates["selected"], path, "bound", 1e-320))


class TestArithmetic:
    """Whoever forges digests, too, gains nothing by any other value of any field."""

    def links(self, record):
        yield ("arithmetic",), record["arithmetic"]
        for number, link in enumerate(record.get("earlier", [])):
            yield ("earlier", number, "arithmetic"), link["arithmetic"]

    def others(self, value):
        if isinstance(value, list):
            return [value[:-1], value[::-1], [*value, "luck"], "luck", None]
        if isinstance(value, str):
            return [f"{value}.", "", "float32", *_SAID, 1, None]
        return [
            value * 0.999_999,
            value * 1.000_001 + 1e-6,
            -1.0,
            value / 2 + 1.0,
            str(value),
            None,
        ]

    @pytest.mark.parametrize("kind", ["trained", "unlearned", "selected", "not centred", "sparse"])
    def test_of_no_field_is_another_value_accepted(self, certificates, kind):
        record = certificates[kind]
        verify(sealed(record))
        for path, stated in self.links(record):
            assert set(stated) == set(arithmetic_record.FIELDS)
            for name, value in stated.items():
                for other in self.others(value):
                    if other == value:
                        continue
                    with pytest.raises(InvalidCertificate):
                        verify(changed(record, path, name, other))


class TestChains:
    def test_a_request_that_is_left_out_is_missed(self, certificates):
        """Without a signature, by the digest that the next request names."""
        record = certificates["unlearned"]
        for gone in (1, 2):
            shorter = json.loads(json.dumps(record))
            del shorter["earlier"][gone]
            with pytest.raises(InvalidCertificate, match="does not follow what comes before it"):
                verify(json.dumps(shorter))
            for number, link in enumerate([*shorter["earlier"], shorter]):
                if number:
                    link["unlearning"]["request"] = number
                link["digest"] = digest(link)
            with pytest.raises(InvalidCertificate, match="does not follow what comes before it"):
                verify(json.dumps(shorter))

    def test_one_that_was_written_anew_is_on_trust_which_is_said(
        self, certificates, tmp_path, capsys
    ):
        shorter = json.loads(json.dumps(certificates["unlearned"]))
        del shorter["earlier"][1]
        requests = history_before_requests(shorter["earlier"][0])
        for link in [*shorter["earlier"][1:], shorter]:
            run, many = link["run"], len(link["unlearning"]["removed"])
            requests = requests.with_request(many, run["steps"], run["release_noise_std"])
            found = requests.arithmetic
            more = {"reach": found.reach, "mu": found.mu, "failure": found.failure}
            link["arithmetic"] |= more
        path = tmp_path / "certificate.json"
        path.write_text(sealed(shorter))
        assert main(["verify", str(path)]) == 0
        assert "that no request was left out of the chain" in capsys.readouterr().out


class TestTheCommand:
    @pytest.mark.parametrize("kind", ["trained", "unlearned", "selected"])
    def test_says_what_is_on_trust_next_to_the_verdict(self, certificates, kind, tmp_path, capsys):
        path = tmp_path / "certificate.json"
        path.write_text(sealed(certificates[kind]))
        assert main(["verify", str(path)]) == 0
        verdict, trust, *others = capsys.readouterr().out.splitlines()
        assert verdict.startswith("holds: ")
        assert trust.startswith("on trust: that this run took place as described")
        assert trust.endswith("nothing else was published of it")
        (stated,) = (one for one in others if one.startswith("only stated, and not derived"))
        assert "which version trained it" in stated
        assert "the noisy counts of outliers" in stated
        assert ("the score" in stated) == (kind == "selected")
        assert ("which rows went" in stated) == (kind == "unlearned")

    def test_says_that_counts_are_noisy(self, certificates, tmp_path, capsys):
        record = certificates["trained"]
        (undeclared,) = (one for one in record["other_releases"] if one["kind"] == "undeclared")
        undeclared["published (noisy)"]["education"] = -132
        path = tmp_path / "certificate.json"
        path.write_text(sealed(record))
        assert main(["verify", str(path)]) == 0
        about = f"{undeclared['noise_std']:,.0f}"
        said = capsys.readouterr().out
        assert f"counted (noisy, give or take {about} each): education -132" in said

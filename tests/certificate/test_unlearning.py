"""Chains of unlearning requests: each follows the one before."""

import json

import pytest

from lastiterate.certificate.fields import digest
from lastiterate.certificate.verify import history_before_requests, verify
from lastiterate.cli import main
from lastiterate.errors import InvalidCertificate

from .certificates import copied, sealed


@pytest.fixture
def shorter(certificates):
    """Without its first request."""
    record = copied(certificates["unlearned"])
    del record["earlier"][1]
    return record


def test_a_request_that_is_left_out_is_missed(shorter):
    """Without a signature, by the digest that the next request names."""
    with pytest.raises(InvalidCertificate, match="does not follow what comes before it"):
        verify(json.dumps(shorter))
    shorter["unlearning"]["request"] = 1
    with pytest.raises(InvalidCertificate, match="does not follow what comes before it"):
        verify(json.dumps(shorter | {"digest": digest(shorter)}))


def test_one_that_was_written_anew_is_on_trust_which_is_said(shorter, tmp_path, capsys):
    requests, run = history_before_requests(shorter["earlier"][0]), shorter["run"]
    many = len(shorter["unlearning"]["removed"])
    found = requests.with_request(many, run["steps"], run["release_noise_std"]).arithmetic
    shorter["arithmetic"] |= {"reach": found.reach, "mu": found.mu, "failure": found.failure}
    path = tmp_path / "certificate.json"
    path.write_text(sealed(shorter))
    assert main(["verify", str(path)]) == 0
    assert "that no request was left out of the chain" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name, other, reason",
    [
        ("epsilon", lambda epsilon: 0.99 * epsilon, "but its steps give"),
        ("examples", lambda examples: examples + 1, "another number of examples"),
        ("bound", lambda bound: "random-order/poisson", "a bound that does not cover it"),
    ],
)
def test_a_promise_follows_from_the_steps(certificates, name, other, reason):
    record = copied(certificates["unlearned"])
    promise = record["unlearning"]["guarantee"]
    promise[name] = other(promise[name])
    with pytest.raises(InvalidCertificate, match=reason):
        verify(sealed(record))

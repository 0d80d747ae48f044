"""Signatures tell a certificate's issuer from whoever can compute a digest."""

import json
import sys

import numpy as np
import pytest

from lastiterate.certificate.fields import digest
from lastiterate.certificate.signature import Signer
from lastiterate.certificate.verify import verify
from lastiterate.cli import main
from lastiterate.errors import InvalidCertificate, InvalidParameter
from lastiterate.linear_model import PrivateLogisticRegression

serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa  # noqa: E402

from .certificates import changed, sealed  # noqa: E402

PEM, SSH = serialization.Encoding.PEM, serialization.Encoding.OpenSSH
PKCS8 = serialization.PrivateFormat.PKCS8
OPEN_SSH = serialization.PrivateFormat.OpenSSH
NONE = serialization.NoEncryption()


def write_pair(folder, key=None, *, ssh=False, encryption=NONE):
    key = key or ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(PEM, OPEN_SSH if ssh else PKCS8, encryption)
    form = serialization.PublicFormat
    public = (
        key.public_key().public_bytes(SSH, form.OpenSSH)
        if ssh
        else key.public_key().public_bytes(PEM, form.SubjectPublicKeyInfo)
    )
    (folder / "key").write_bytes(private)
    (folder / "key.pub").write_bytes(public)
    return folder / "key", folder / "key.pub"


@pytest.fixture(scope="module")
def certificate():
    X = np.random.default_rng(0).normal(size=(200, 3))
    return PrivateLogisticRegression().fit(X, X[:, 0] > 0).certificate_


@pytest.fixture
def keys(tmp_path):
    return write_pair(tmp_path)


@pytest.mark.parametrize("ssh", [False, True])
def test_holds_with_the_key_that_signed(certificate, tmp_path, ssh):
    private, public = write_pair(tmp_path, ssh=ssh)
    signed = Signer(private).signed(certificate)
    assert verify(signed, signed_by=public)
    assert verify(signed)  # whoever does not know the key checks all but that
    assert verify(Signer(private).signed(signed), signed_by=public)


class TestForgery:
    def test_a_digest_computed_again_does_not_help(self, certificate, keys):
        """Whatever is claimed more modestly still verifies without a key, as it must."""
        signed = json.loads(Signer(keys[0]).signed(certificate))
        for path, value in ((("guarantee", "epsilon"), 2.0), (("software",), "lastiterate 9.9")):
            forged = sealed(changed(signed, path, value))
            assert verify(forged)
            with pytest.raises(InvalidCertificate, match="not of that key"):
                verify(forged, signed_by=keys[1])

    def test_every_leaf_is_signed(self, certificate, keys):
        record = json.loads(Signer(keys[0]).signed(certificate))
        for name in set(record) - {"digest", "signature"}:
            forged = record | {name: [record[name]]}
            with pytest.raises(InvalidCertificate, match="not of that key"):
                verify(json.dumps(forged | {"digest": digest(forged)}), signed_by=keys[1])

    def test_none_another_or_nonsense(self, certificate, keys, tmp_path):
        with pytest.raises(InvalidCertificate, match="it is not signed"):
            verify(certificate, signed_by=keys[1])
        signed = Signer(keys[0]).signed(certificate)
        (tmp_path / "other").mkdir()
        other = write_pair(tmp_path / "other")
        with pytest.raises(InvalidCertificate, match="not of that key"):
            verify(signed, signed_by=other[1])
        record = json.loads(signed)
        own = record["signature"]
        for nonsense in (3, "x", {}, own | {"kind": "RSA"}, own | {"value": "zz"}, {"value": 3}):
            with pytest.raises(InvalidCertificate, match="not of that key"):
                verify(json.dumps({**record, "signature": nonsense}), signed_by=keys[1])


def test_keys_of_other_kinds_are_refused_without_a_word_of_them(tmp_path, keys):
    private, public = keys
    match = "Ed25519 private key, without a password"
    for bad in (b"", b"nonsense", public.read_bytes()):
        (tmp_path / "bad").write_bytes(bad)
        with pytest.raises(InvalidParameter, match=match):
            Signer(tmp_path / "bad")
    write_pair(tmp_path, rsa.generate_private_key(public_exponent=65537, key_size=2048))
    with pytest.raises(InvalidParameter, match=match):
        Signer(private)
    locked = serialization.BestAvailableEncryption(b"password")
    write_pair(tmp_path, ed25519.Ed25519PrivateKey.generate(), encryption=locked)
    with pytest.raises(InvalidParameter, match=match) as caught:
        Signer(private)
    assert "PRIVATE KEY" not in str(caught.value)


def test_keys_that_do_not_exist(tmp_path, certificate):
    with pytest.raises(InvalidParameter, match="openssl genpkey -algorithm ed25519 -out key"):
        Signer(tmp_path / "none")
    with pytest.raises(InvalidParameter, match="openssl pkey -in key -pubout"):
        verify(certificate, signed_by=tmp_path / "none")


def test_without_the_extra_it_says_which(tmp_path, certificate, capsys, monkeypatch):
    (tmp_path / "certificate.json").write_text(certificate)
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    words = ["verify", str(tmp_path / "certificate.json")]
    assert main(words) == 0
    assert main([*words, "--signed-by", str(tmp_path / "key.pub")]) == 2
    assert "lastiterate[sign]" in capsys.readouterr().err

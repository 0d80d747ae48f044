"""Witness files and kept heads: a ledger that went back is refused."""

import json
import pickle

import pytest

from lastiterate.cli import main
from lastiterate.errors import InvalidLedger, InvalidParameter
from lastiterate.ledger.journal import Head, Witness
from lastiterate.ledger.ledger import Ledger

COST = (0.01, 0.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.ledger"


@pytest.fixture
def witness(tmp_path):
    return tmp_path / "elsewhere.json"


@pytest.fixture
def ledger(path, witness):
    ledger = Ledger(path, epsilon=2.0, delta=1e-5, witness=witness)
    ledger.add(COST, "a")
    return ledger


class TestWitness:
    def test_an_older_copy_is_refused(self, ledger, path, witness):
        older = path.read_bytes()
        ledger.add(COST, "b")
        path.write_bytes(older)
        with pytest.raises(InvalidLedger, match="ends at entry 1, and had entry 2: an older copy"):
            Ledger(path, witness=witness)
        Ledger(path).verify()  # which cannot know

    def test_also_if_it_went_on_from_there(self, ledger, path, witness):
        older = path.read_bytes()
        ledger.add(COST, "b")
        path.write_bytes(older)
        for about in "xyz":
            Ledger(path).add(COST, about)
        with pytest.raises(InvalidLedger, match="entry 2 is another than it was"):
            Ledger(path, witness=witness)

    def test_while_it_is_open(self, ledger, path, witness):
        opened = Ledger(path, witness=witness)
        fresh = Ledger(path, witness=witness)
        whole = path.read_bytes()
        ledger.add(COST, "b")
        path.write_bytes(whole)
        for one in (opened, fresh):
            with pytest.raises(InvalidLedger, match="older copy"):
                one.add(COST, "c")
        assert path.read_bytes() == whole

    def test_another_ledger_or_none(self, ledger, path, witness, tmp_path):
        other = Ledger(tmp_path / "other.ledger", epsilon=2.0, delta=1e-5)
        path.write_bytes(other.path.read_bytes())
        with pytest.raises(InvalidLedger, match="not the ledger that the kept head is of"):
            Ledger(path, witness=witness)
        path.unlink()
        with pytest.raises(InvalidLedger, match="not the ledger"):
            Ledger(path, epsilon=2.0, delta=1e-5, witness=witness)

    def test_a_witness_that_is_gone_or_damaged(self, ledger, path, witness):
        witness.write_text("{}")
        with pytest.raises(InvalidLedger, match="it is no"):
            Ledger(path, witness=witness)
        witness.unlink()
        with pytest.raises(InvalidLedger, match="is missing; `write_witness` begins one"):
            Ledger(path, witness=witness)
        Ledger(path).write_witness(witness)
        assert len(Ledger(path, witness=witness).entries()) == 2

    def test_one_that_is_behind_is_no_lie(self, ledger, path, witness):
        """A writer that died before it noted its entry, or one that has no witness."""
        Ledger(path).add(COST, "b")
        assert json.loads(witness.read_text())["n"] == 1
        ledger.add(COST, "c")
        assert json.loads(witness.read_text())["n"] == 3

    def test_a_head_with_more_in_it_is_never_replaced(self, ledger, tmp_path):
        ledger.write_witness(kept := tmp_path / "kept.witness")
        kept.write_text(text := json.dumps(json.loads(kept.read_text()) | {"notes": "precious"}))
        with pytest.raises(InvalidParameter, match="never replaced"):
            ledger.write_witness(kept)
        assert kept.read_text() == text

    def test_the_ledger_is_never_replaced_by_its_witness(self, ledger, path):
        with pytest.raises(InvalidParameter, match="another file than the ledger"):
            ledger.write_witness(path.parent / "." / path.name)
        assert len(ledger.entries()) == 2

    def test_copies_have_it_too(self, ledger, witness):
        pickle.loads(pickle.dumps(ledger)).add(COST, "b")
        assert Witness(witness).head() == Head.of(ledger.entries())

    def test_a_witness_that_cannot_be_written_leaves_the_charge(self, path, tmp_path):
        ledger = Ledger(path, epsilon=2.0, delta=1e-5)
        ledger.write_witness(tmp_path / "folder.json")
        (tmp_path / "folder.json").unlink()
        with pytest.raises(InvalidLedger, match="missing"):
            ledger.add(COST)
        assert len(Ledger(path).entries()) == 1


class TestCommands:
    def test_head_and_verify(self, ledger, path, tmp_path, capsys):
        kept = tmp_path / "head.json"
        assert main(["ledger", "head", str(path), "--out", str(kept)]) == 0
        older = path.read_bytes()
        ledger.add(COST, "b")
        assert main(["ledger", "verify", str(path), "--head", str(kept)]) == 0
        assert main(["ledger", "head", str(path), "--out", str(kept)]) == 0
        path.write_bytes(older)
        assert main(["ledger", "verify", str(path), "--head", str(kept)]) == 1
        assert "an older copy" in capsys.readouterr().err

    def test_signed_heads(self, ledger, path, tmp_path, capsys):
        private, public = keys(tmp_path, "ours")
        _, stranger = keys(tmp_path, "theirs")
        kept = tmp_path / "head.json"
        signed = ["ledger", "head", str(path), "--out", str(kept), "--sign", str(private)]
        assert main(signed) == 0
        check = ["ledger", "verify", str(path), "--head", str(kept), "--signed-by"]
        assert main([*check, str(public)]) == 0
        assert main([*check, str(stranger)]) == 1
        record = json.loads(kept.read_text())
        kept.write_text(json.dumps(record | {"n": 0, "hash": record["ledger"]}))
        assert main([*check, str(public)]) == 1
        assert "signature is not of that key" in capsys.readouterr().err
        assert main(["ledger", "verify", str(path), "--head", "ab", "--signed-by", "x"]) == 2

    def test_a_signed_head_is_no_certificate(self, ledger, tmp_path):
        from lastiterate.certificate.signature import LEDGER_HEAD, Signer, wrong_signature

        private, public = keys(tmp_path, "ours")
        text = Head.of(ledger.entries()).as_text()
        record = json.loads(Signer(private).signed(text, purpose=LEDGER_HEAD))
        assert wrong_signature(record, public, purpose=LEDGER_HEAD) is None
        assert wrong_signature(record, public) is not None

    def test_witness(self, tmp_path, capsys):
        path, witness = str(tmp_path / "l"), str(tmp_path / "w")
        opened = ["ledger", "open", path, "--epsilon", "2", "--delta", "1e-5"]
        assert main([*opened, "--witness", witness]) == 0
        older = (tmp_path / "l").read_bytes()
        add = ["ledger", "add", path, "--gaussian", "40", "--witness", witness]
        assert main(add) == 0
        (tmp_path / "l").write_bytes(older)
        for command in (add, ["ledger", "show", path, "--witness", witness]):
            assert main(command) != 0
        assert main(["ledger", "verify", path, "--witness", witness]) == 1
        assert "an older copy" in capsys.readouterr().err


def keys(folder, name):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private, public = folder / name, folder / f"{name}.pub"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return private, public

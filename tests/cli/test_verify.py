"""What `lastiterate verify` checks beside a certificate, and what it says of other versions."""

import json
import os
import re
import shutil
import struct
from dataclasses import replace

import numpy as np
import pytest

import lastiterate as li
from lastiterate import _files
from lastiterate._files import PAGE_START
from lastiterate.certificate import fields
from lastiterate.certificate.issue import tied_to_head
from lastiterate.certificate.verify import verify
from lastiterate.cli import main
from lastiterate.errors import OtherVersion, PrivacyWarning
from lastiterate.ledger.journal import hash_of
from lastiterate.linear_model import PrivateLogisticRegression, PrivateSchema
from lastiterate.other_releases import MEAN
from lastiterate.saved_model.file_writing import read_tensors
from lastiterate.saved_model.model_file import digest as model_digest
from lastiterate.saved_model.model_file import read_model
from lastiterate.saved_model.save import saved_model_of
from lastiterate.saved_model.weight_files import LayerNumbers, SavedHead
from tests.certificate.test_signature import write_pair

from .people import TRAIN

ROWS = np.random.default_rng(0).normal(size=(2_000, 3))
CLEAR = "\x1b[2J\x1b[H"
FORGED = f"job 3\n\n{CLEAR}m: epsilon <= 0.01\nthe certificate holds\x1b[8m\u202e"


@pytest.fixture(scope="module")
def fitted():
    return PrivateLogisticRegression(epsilon=1.0, epochs=2, classes=[False, True]).fit(
        ROWS, ROWS[:, 0] > 0
    )


def tensors(named, texts=None):
    """The bytes of a safetensors file."""
    header, data = {} if texts is None else {"__metadata__": texts}, b""
    for name, array in named.items():
        kind = {"float64": "F64", "float32": "F32"}[str(array.dtype)]
        span = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": span}
        data += array.tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def hub(model, folder):
    """The files that `lastiterate.huggingface.save` writes, without the package that it needs."""
    saved, certificate = saved_model_of(model)
    named = {
        name: np.array(saved.record[name])
        for name in ("parameters", "coef", "intercept", "center")
        if saved.record[name] is not None
    }
    rest = {name: part for name, part in saved.record.items() if name not in named}
    config = {"layout": "lastiterate hub 1", "record": rest, "digest": model_digest(saved.record)}
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(tensors(named))
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "certificate.json").write_text(certificate)
    return named


def head(model, folder):
    """The files that `lastiterate.torch.save` writes."""
    weight, bias = np.float32(model.coef_), np.float32(model.intercept_)
    named = {"weight": weight, "bias": bias, "center": model.center_}
    settings = {"bound": model.feature_bound_, "center_bound": model.center_bound_}
    settings |= {"normalise": False, "name": "fc", "classes": [0, 1]}
    folder.mkdir()
    numbers = LayerNumbers(
        weight, bias, model.feature_bound_, model.center_, model.center_bound_, False
    )
    encoding = SavedHead(numbers, "fc", [0, 1]).encoding()
    record = tied_to_head(model.certificate_, numbers.digest(), encoding)
    (folder / "certificate.json").write_text(record)
    write_head(folder, named, settings)
    return named, settings


def write_head(folder, named, settings):
    content = tensors(named, {"lastiterate": json.dumps(settings)})
    (folder / "head.safetensors").write_bytes(content)


def ran(capsys, *words):
    code = main(["verify", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out + said.err


class TestHubFolders:
    @pytest.fixture
    def named(self, tmp_path, fitted):
        return hub(fitted, tmp_path / "hub")

    def test_as_written(self, capsys, tmp_path, named):
        for words in (["hub"], ["hub/certificate.json"],
                      ["hub/certificate.json", "--model", "hub/model.safetensors"]):  # fmt: skip
            code, said = ran(capsys, *(w if w[0] == "-" else tmp_path / w for w in words))
            assert code == 0, said
            assert "of the model in" in said
            assert "model.safetensors" in said

    def test_altered_weights_or_more_of_them(self, capsys, tmp_path, named):
        file = tmp_path / "hub" / "model.safetensors"
        for name in ("parameters", "coef", "intercept"):
            file.write_bytes(tensors(named | {name: named[name] + 1e-9}))
            code, said = ran(capsys, tmp_path / "hub")
            assert code == 1
            assert "altered since" in said
        file.write_bytes(tensors(named | {"rows": ROWS}))
        assert ran(capsys, tmp_path / "hub")[0] == 1
        file.write_bytes(tensors(named))
        assert ran(capsys, tmp_path / "hub")[0] == 0
        config = json.loads((tmp_path / "hub" / "config.json").read_text())
        (tmp_path / "hub" / "config.json").write_text(json.dumps(config | {"auto_map": {}}))
        assert ran(capsys, tmp_path / "hub")[0] == 1

    def test_weights_and_digest_of_another_model(self, capsys, tmp_path, named):
        other = PrivateLogisticRegression(epsilon=1.0, epochs=2).fit(ROWS, ROWS[:, 0] > 0)
        hub(other, tmp_path / "other")
        for file in ("model.safetensors", "config.json"):
            (tmp_path / "hub" / file).write_bytes((tmp_path / "other" / file).read_bytes())
        code, said = ran(capsys, tmp_path / "hub")
        assert code == 1
        assert "belongs to another model" in said


def test_heads_as_written_and_altered(capsys, tmp_path, fitted):
    named, settings = head(fitted, tmp_path / "head")
    code, said = ran(capsys, tmp_path / "head")
    assert code == 0, said
    assert "of the model in" in said
    assert any(one["kind"] == MEAN for one in json.loads(fitted.certificate_)["other_releases"])
    for change in (
        lambda named, settings: named.update(weight=named["weight"] * np.float32(2.0)),
        lambda named, settings: named.update(bias=named["bias"] + np.float32(1.0)),
        lambda named, settings: named.update(center=named["center"] + 5.0),
        lambda named, settings: named.pop("center"),
        lambda named, settings: settings.update(bound=settings["bound"] * 100.0),
        lambda named, settings: settings.update(center_bound=0.5 * settings["center_bound"]),
        lambda named, settings: named.update(rows=ROWS),
        lambda named, settings: settings.update(normalise=True),
        lambda named, settings: settings.update(classes=[1, 0]),
    ):
        other, told = dict(named), dict(settings)
        change(other, told)
        write_head(tmp_path / "head", other, told)
        assert ran(capsys, tmp_path / "head")[0] == 1


@pytest.fixture
def saved(tmp_path, fitted):
    li.save(fitted, tmp_path / "m")
    return tmp_path / "m"


class TestUncheckedWeights:
    def test_any_file_that_may_hold_them(self, capsys, saved, tmp_path):
        """Never exits with 0: an empty one, and a copy of the model by another name."""
        assert ran(capsys, saved)[0] == 0
        model = (saved / "model.json").read_bytes()
        for content, names in (
            (b"", ["x.safetensors", "pytorch_model.BIN", "a.pt", "onnx/model.onnx", "w.npz",
                   "x.npy"]),
            (model, ["Model.json", "sub/model.json", "sub/deep/w", "w.weights", "w.zip",
                     "params.json", "adapter.tar", ".hidden", "x.bin.1", "schema.json",
                     "config.json", "weights.csv", "weights.txt", "weights.yaml", "w.md",
                     "modeling.py", "w.html", "w.png", "sub/README.txt", "sub/certificate.json",
                     ".DS_Store/w", ".hidden/model.safetensors", ".git/model.safetensors",
                     ".git/refs/w.bin", ".git/W.BIN", ".cache/w",
                     ".cache/huggingface/download/model.safetensors",
                     ".cache/huggingface/model.json",
                     ".cache/huggingface/download/w.incomplete", "sub/.git/config",
                     "huggingface/w.lock", ".ipynb_checkpoints/w.csv"]),
        ):  # fmt: skip
            for some in (names[k : k + 5] for k in range(0, len(names), 5)):  # as many are named
                shutil.copytree(saved, tmp_path / "other")
                for name in some:
                    path = tmp_path / "other" / name
                    path.parent.mkdir(exist_ok=True, parents=True)
                    path.write_bytes(content)
                code, said = ran(capsys, tmp_path / "other")
                assert code == 4
                for name in some:
                    path = tmp_path / "other" / name
                    assert f"not checked: {path}, which was altered or may hold other" in said
                shutil.rmtree(tmp_path / "other")

    def test_what_nobody_loads_as_weights(self, capsys, saved):
        for name in (
            "README.md", "LICENSE", "LICENSE.txt", ".gitattributes", ".gitignore", ".DS_Store",
            "sub/README.md", ".git/HEAD", ".git/objects/3f/0a", ".git/hooks/pre-push.sample",
            ".git/objects/pack/pack-1.pack", ".cache/huggingface/.gitignore",
            ".cache/huggingface/CACHEDIR.TAG",
            ".cache/huggingface/download/model.safetensors.metadata",
            ".cache/huggingface/download/model.safetensors.lock",
        ):  # fmt: skip
            (saved / name).parent.mkdir(parents=True, exist_ok=True)
            (saved / name).write_bytes(b"")
        (saved / ".git" / "refs").mkdir()
        (saved / ".git" / "refs" / "v1.rc").write_text(f"{'0a' * 20}\n")
        (saved / "schema.json").write_text('{"a": {"range": [0, 1]}, "b": "drop"}')
        assert ran(capsys, saved)[0] == 0

    def test_what_we_wrote_and_is_no_model(self, capsys, saved, fitted):
        ledger = li.Ledger(saved / "l.ledger", epsilon=4.0, delta=1e-5)
        for k in range(3):
            ledger.add((0.1, 0.0), f"release {k}")
        ledger.write_witness(saved / "head")
        signed = json.loads((saved / "head").read_text()) | {"signature": {"kind": "Ed25519"}}
        (saved / "signed").write_text(json.dumps(signed, indent=2) + "\n")
        (saved / "report.htm").write_bytes(_files.sealed(f"{PAGE_START}</html>\n".encode()))
        (saved / "key.pub").write_text(
            "-----BEGIN PUBLIC KEY-----\n" + 60 * "A" + "\n-----END PUBLIC KEY-----\n"
        )
        (saved / "older").mkdir()
        (saved / "older" / "certificate.json").write_text(fitted.certificate_)
        card = _files.sealed(b"# A model\nepsilon = 1.0\n")
        (saved / "README.md").write_bytes(card)
        code, said = ran(capsys, saved)
        assert code == 0, said
        (saved / "README.md").write_bytes(card.replace(b"1.0", b"0.1"))
        code, said = ran(capsys, saved)
        assert code == 4
        assert "README.md, which was altered" in said

    def test_what_only_begins_as_a_ledger(self, capsys, saved):
        ledger = li.Ledger(saved / "l", epsilon=4.0, delta=1e-5)
        ledger.add((0.1, 0.0), "release 1")
        whole = ledger.path.read_bytes()
        assert ran(capsys, saved)[0] == 0
        for text in (
            whole + b"PK\x05\x06",  # an archive is read from its end
            whole.replace(b"release 1", b"weights 1"),
            whole[: whole.rfind(b"\n", 0, -1) - 1],
            b"\n" + whole,
        ):
            ledger.path.write_bytes(text)
            assert ran(capsys, saved)[0] == 4

    def test_heads_and_pages_that_hold_more(self, capsys, saved, fitted):
        head = {"format": "lastiterate ledger head 1", "ledger": "a", "n": 0, "hash": "b"}
        certificate = json.loads(fitted.certificate_) | {"weights": [1.0]}
        texts = (json.dumps(head | {"weights": [1.0]}), json.dumps(certificate), PAGE_START)
        texts += (f"{PAGE_START}PK</html>\n", json.dumps({"coef": {"values": [0.5, 1.5]}}))
        for text in texts:
            for name in ("w", "weights.json", "page.html"):
                (saved / name).write_text(text)
                assert ran(capsys, saved)[0] == 4
                (saved / name).unlink()

    def test_links_are_known_by_their_own_names(self, capsys, saved, tmp_path):
        (tmp_path / "w.bin").write_bytes(b"weights")
        (saved / "w.txt").symlink_to(tmp_path / "w.bin")
        code, said = ran(capsys, saved)
        assert code == 4
        assert f"not checked: {saved / 'w.txt'}, which was altered or may hold" in said
        (saved / "w.txt").unlink()
        (tmp_path / "other").mkdir()
        (saved / "sub").symlink_to(tmp_path / "other", target_is_directory=True)
        (saved / "README.md").symlink_to(tmp_path / "nothing")
        code, said = ran(capsys, saved)
        assert code == 4
        assert said.count("not checked: ") == 1
        assert f"not checked: {saved / 'sub'}" in said

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no such files here")
    def test_what_is_no_file_is_not_waited_for(self, capsys, saved):
        os.mkfifo(saved / "w")
        assert ran(capsys, saved)[0] == 4
        (saved / "w").unlink()
        (saved / "model.json").unlink()
        (saved / "model.json").mkdir()
        assert ran(capsys, saved)[0] == 2

    def test_beside_a_certificate_of_another_name(self, capsys, saved):
        (saved / "certificate.json").rename(saved / "mine.json")
        code, said = ran(capsys, saved / "mine.json")
        assert code == 0
        assert f"of the model in {saved / 'model.json'}" in said
        (saved / "inside").mkdir()
        (saved / "inside" / "w.pt").write_bytes(b"")
        assert ran(capsys, saved / "mine.json")[0] == 0
        (saved / "w.pt").write_bytes(b"")
        assert ran(capsys, saved / "mine.json")[0] == 4

    def test_the_first_few_are_named_and_none_can_be_checked(self, capsys, saved):
        for k in range(8):
            (saved / f"{k}.pt").write_bytes(b"")
        for words in ([saved], [saved / "certificate.json"]):
            code, said = ran(capsys, *words)
            assert code == 4
            assert said.count(".pt, which was altered or may hold") == 5
            assert "not checked: 3 more, which were altered or may hold other weights" in said
        code, said = ran(capsys, saved, "--model", saved / "1.pt")
        assert code == 2
        assert "which can be checked" in said

    def test_beside_the_model_that_is_named(self, capsys, saved, fitted, tmp_path):
        head(fitted, tmp_path / "two")
        code, said = ran(
            capsys, tmp_path / "two" / "certificate.json", "--model", saved / "model.json"
        )
        assert code in (1, 4), said


class TestTensorFiles:
    def test_hold_what_they_say(self):
        file = read_tensors(tensors({"a": ROWS, "b": np.float32(ROWS)}, {"x": "y"}))
        np.testing.assert_array_equal(file.tensors["a"], ROWS)
        np.testing.assert_array_equal(file.tensors["b"], np.float32(ROWS))
        assert file.texts == {"x": "y"}

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"\x00" * 8,
            b"\xff" * 20,
            tensors({"a": ROWS})[:-1],
            tensors({"a": ROWS}) + b"\x00",
            tensors({"a": ROWS}).replace(b"F64", b"F65"),
            tensors({"a": ROWS}).replace(b"[0,48000]", b"[8,48008]"),
            tensors({"a": ROWS}).replace(b"[2000,3]", b"[-200,3]"),
            tensors({"a": ROWS}, {"x": "y"}).replace(b'"y"', b" 12"),
            struct.pack("<Q", 2) + b"[]",
        ],
    )
    def test_others_are_refused(self, content):
        with pytest.raises(ValueError, match="header"):
            read_tensors(content)


def sealed(record):
    return json.dumps(record | {"digest": fields.digest(record)})


class TestOtherVersions:
    def test_certificates(self, capsys, saved, fitted):
        record = json.loads(fitted.certificate_) | {"format": 99, "software": "lastiterate 0.1.0"}
        (saved / "certificate.json").write_text(sealed(record))
        code, said = ran(capsys, saved)
        assert code == 3
        assert "does not hold" not in said
        assert "format 99" in said

    def test_models(self, capsys, saved):
        record = json.loads((saved / "model.json").read_text())
        (saved / "model.json").write_text(json.dumps(record | {"format": "lastiterate model 2"}))
        certificate = json.loads((saved / "certificate.json").read_text())
        older = json.dumps(certificate | {"software": "lastiterate 0.1.0"})
        (saved / "certificate.json").write_text(older)
        assert main(["predict", str(saved), "no.csv"]) == 3
        assert "git checkout v0.1.0 && pip install ." in capsys.readouterr().err
        (saved / "certificate.json").unlink()
        with pytest.raises(OtherVersion, match="install the version that wrote it"):
            read_model(saved / "model.json")

    def test_ledgers(self, capsys, tmp_path):
        path = tmp_path / "l"
        li.Ledger(path, epsilon=1.0, delta=1e-5)
        entry = json.loads(path.read_text())
        entry |= {"format": "lastiterate ledger 2", "software": "lastiterate 0.1.0"}
        del entry["hash"]
        path.write_text(json.dumps(entry | {"hash": hash_of(entry)}) + "\n")
        with pytest.raises(OtherVersion, match=r"git checkout v0\.1\.0 && pip install \.$"):
            li.Ledger(path)
        assert main(["ledger", "verify", str(path)]) == 3
        assert "git checkout v0.1.0 && pip install ." in capsys.readouterr().err

    def test_certificates_in_a_ledger(self, capsys, tmp_path, fitted, monkeypatch):
        ledger = li.Ledger(tmp_path / "l", epsilon=4.0, delta=1e-5)
        ledger.add(fitted.certificate_)
        assert main(["ledger", "verify", str(ledger.path)]) == 0
        monkeypatch.setattr(fields, "FORMAT", 9)
        monkeypatch.setattr(li, "__version__", "9.0")
        with pytest.warns(UserWarning, match="entries 1 were issued by other versions"):
            assert ledger.verify().epsilon(1e-5) <= 1.0
        capsys.readouterr()
        assert main(["ledger", "verify", str(ledger.path)]) == 3
        assert re.search(r"not checked: the certificate of entry 1, which lastiterate 0\.",
                         capsys.readouterr().out)  # fmt: skip


class TestTextOfFiles:
    def test_names_of_columns(self, capsys, tmp_path):
        frame = {FORGED: ["a", "b"] * 1_000, "x": ROWS[:, 0]}
        schema = {FORGED: {"values": ["a", "b"]}, "x": {"range": [-3, 3]}}
        encoder = PrivateSchema(schema).fit(frame)
        model = PrivateLogisticRegression(
            epochs=2, text_columns=encoder.encoder_.text_columns, classes=[False, True]
        ).fit(encoder.transform(frame), ROWS[:, 1] > 0)
        (tmp_path / "certificate.json").write_text(model.certificate_)
        code, said = ran(capsys, tmp_path)
        assert code == 0
        assert "job 3\\n\\n\\x1b[2J" in said
        assert not set(said) & {"\x1b", "\u202e"}

    def test_names_of_steps(self, fitted):
        report = fitted.privacy_
        name = f"{FORGED} <img src=x> [a](b) `c`"
        report = replace(report, preprocessing=(name,))
        for text in (
            str(report),
            report.statement(),
            report.statement(format="markdown"),
            report.statement(format="model-card"),
        ):
            assert not set(text) & {"\x1b", "\u202e"}
        card = report.statement(format="model-card")
        assert r"\<img src=x\>" in card
        assert r"\[a\](b)" in card

    def test_messages_of_errors(self, capsys, tmp_path, fitted):
        record = json.loads(fitted.certificate_) | {FORGED: 1}
        (tmp_path / "certificate.json").write_text(sealed(record))
        code, said = ran(capsys, tmp_path)
        assert code == 1
        assert "fields that are not known" in said
        assert not set(said) & {"\x1b", "\u202e"}

    def test_ledgers(self, capsys, tmp_path):
        ledger = li.Ledger(tmp_path / "l", epsilon=4.0, delta=1e-5)
        ledger.add((0.1, 0.0), FORGED)
        assert main(["ledger", "show", str(ledger.path)]) == 0
        said = capsys.readouterr().out
        assert "job 3\\n\\n\\x1b[2J" in said
        assert not set(said) & {"\x1b", "\u202e"}


class TestCommand:
    def test_json_says_what_the_text_says(self, capsys, saved, fitted):
        code, said = ran(capsys, saved, "--json")
        record = json.loads(said)
        assert (code, record["holds"]) == (0, True)
        assert record["guarantee"]["epsilon"] <= 1.0
        assert record["checked"] == [str(saved / "model.json")]
        assert any(note.startswith("on trust") for note in record["notes"])
        other = json.loads(fitted.certificate_)
        other["guarantee"]["epsilon"] = 0.1
        (saved / "certificate.json").write_text(json.dumps(other))
        code, said = ran(capsys, saved, "--json")
        assert code == 1
        assert json.loads(said)["reasons"] == ["its digest is not that of its text"]

    def test_prints_no_less_than_is_certified(self, capsys, tmp_path):
        model = PrivateLogisticRegression(epsilon=1.2345612, epochs=2).fit(ROWS, ROWS[:, 0] > 0)
        (tmp_path / "c.json").write_text(model.certificate_)
        stated = json.loads(model.certificate_)["guarantee"]["epsilon"]
        printed = ran(capsys, tmp_path / "c.json")[1].split("epsilon = ")[1].split()[0]
        assert stated <= float(printed) <= stated + 1e-4

    def test_says_what_was_not_checked(self, answer, folder):
        (folder / "alone").mkdir()
        (folder / "alone" / "its.json").write_bytes(
            (folder / "trained" / "certificate.json").read_bytes()
        )
        lines = answer("verify", "alone/its.json").splitlines()
        assert lines[0].startswith("holds: epsilon = 1.99")
        assert "not checked: which model it belongs to (--model)" in lines
        assert "not signed: anyone can have written it" in lines
        for words in (["trained"], ["alone/its.json", "--model", "trained/model.json"]):
            beside = answer("verify", *words)
            assert "of the model in trained/model.json" in beside
            assert "not checked" not in beside
            assert "<- used" not in beside
        (folder / "trained" / "model.json").unlink()
        assert "not checked: which model" in answer("verify", "trained")

    def test_a_seeded_training_is_refused_unless_allowed(self, capsys, tmp_path):
        model = PrivateLogisticRegression(random_state=0).fit(ROWS, ROWS[:, 0] > 0)
        (tmp_path / "c.json").write_text(model.certificate_)
        for more, expected in (([], 1), (["--allow-seeded"], 0)):
            code, said = ran(capsys, tmp_path / "c.json", *more)
            assert code == expected
            assert said.startswith("not private against someone who knows the seed")
        with pytest.warns(PrivacyWarning, match="not private against someone who knows"):
            verify(model.certificate_)

    def test_a_signed_certificate(self, answer, folder):
        private, public = write_pair(folder)
        answer(*TRAIN, "--sign", private)
        assert "signed by the owner of" in answer("verify", "model", "--signed-by", public)
        assert "not checked: who signed it" in answer("verify", "model")
        file = folder / "model" / "certificate.json"
        record = json.loads(file.read_text())
        record["guarantee"]["epsilon"] = 9.0
        file.write_text(sealed(record))
        assert "holds" in answer("verify", file)
        assert "not of that key" in answer("verify", file, "--signed-by", public, code=1)

    def test_an_altered_model_does_not_hold(self, answer, folder):
        file = folder / "trained" / "model.json"
        text = file.read_text()
        file.write_text(text.replace('"age"', '"ages"'))
        assert "altered since" in answer("verify", "trained", code=1)
        assert "altered since" in answer("predict", "trained", "t.csv", code=2)
        # Even if the model's own digest is forged.
        record = json.loads(text)
        del record["digest"]
        age = record["schema"] | {"age": {"range": [18, 91]}}
        for changes, said in (
            ({"classes": record["classes"][::-1]}, "other columns, ranges, values or classes"),
            ({"target": "poor"}, "other columns, ranges, values or classes"),
            ({"columns": record["columns"][::-1]}, "other columns, ranges, values or classes"),
            ({"schema": age}, "other columns, ranges, values or classes"),
            ({"model": "svc"}, "other columns, ranges, values or classes"),
            ({"feature_bound": 2 * record["feature_bound"]}, "other columns, ranges, values"),
            ({"coef": (np.array(record["coef"]) + 1e-9).tolist()}, "predicts by other numbers"),
            ({"intercept": (np.array(record["intercept"]) + 1e-9).tolist()},
             "predicts by other numbers"),
        ):  # fmt: skip
            forged = record | changes
            forged["labels"] = forged["labels"] | {"values": forged["classes"]}
            file.write_text(json.dumps(forged | {"digest": model_digest(forged)}))
            assert said in answer("verify", "trained", code=1)

    def test_a_certificate_without_names_is_of_no_such_model(self, answer, folder):
        file = folder / "trained" / "certificate.json"
        record = json.loads(file.read_text())
        for encoding, said in (
            ("none: rows were given as numbers, without names", "other columns, ranges"),
            ("anything", "what its model's numbers stand for is unknown"),
        ):
            file.write_text(sealed(record | {"encoding": encoding}))
            assert said in answer("verify", "trained", code=1)

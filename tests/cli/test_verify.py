"""What `lastiterate verify` checks beside a certificate, and what it says of other versions."""

import json
import os
import re
import struct
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

import lastiterate as li
from lastiterate import _files
from lastiterate._files import PAGE_START
from lastiterate.certificate import fields as statements
from lastiterate.certificate.issue import tied_to_head
from lastiterate.certificate.verify import verify
from lastiterate.cli import main
from lastiterate.errors import (
    InvalidCertificate,
    InvalidParameter,
    OtherVersion,
    OtherVersionCertificate,
)
from lastiterate.ledger.journal import hash_of
from lastiterate.linear_model.classifiers import PrivateLogisticRegression
from lastiterate.linear_model.private_schema import PrivateSchema
from lastiterate.linear_model.private_selection import PrivateSelection
from lastiterate.other_releases import MEAN
from lastiterate.saved_model.file_writing import read_tensors
from lastiterate.saved_model.model_file import digest as model_digest
from lastiterate.saved_model.model_file import read_model
from lastiterate.saved_model.save import saved_model_of
from lastiterate.saved_model.weight_files import LayerNumbers, SavedHead

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
    def test_as_written(self, capsys, tmp_path, fitted):
        hub(fitted, tmp_path / "hub")
        for words in (["hub"], ["hub/certificate.json"],
                      ["hub/certificate.json", "--model", "hub/model.safetensors"]):  # fmt: skip
            code, said = ran(capsys, *(w if w[0] == "-" else tmp_path / w for w in words))
            assert code == 0, said
            assert "of the model in" in said
            assert "model.safetensors" in said

    @pytest.mark.parametrize("name", ["parameters", "coef", "intercept"])
    def test_altered_weights(self, capsys, tmp_path, fitted, name):
        named = hub(fitted, tmp_path / "hub")
        changed = named | {name: named[name] + 1e-9}
        (tmp_path / "hub" / "model.safetensors").write_bytes(tensors(changed))
        code, said = ran(capsys, tmp_path / "hub")
        assert code == 1
        assert "altered since" in said

    def test_weights_and_digest_of_another_model(self, capsys, tmp_path, fitted):
        hub(fitted, tmp_path / "hub")
        other = PrivateLogisticRegression(epsilon=1.0, epochs=2).fit(ROWS, ROWS[:, 0] > 0)
        hub(other, tmp_path / "other")
        for file in ("model.safetensors", "config.json"):
            (tmp_path / "hub" / file).write_bytes((tmp_path / "other" / file).read_bytes())
        code, said = ran(capsys, tmp_path / "hub")
        assert code == 1
        assert "belongs to another model" in said

    def test_more_tensors_or_settings(self, capsys, tmp_path, fitted):
        named = hub(fitted, tmp_path / "hub")
        (tmp_path / "hub" / "model.safetensors").write_bytes(tensors(named | {"rows": ROWS}))
        assert ran(capsys, tmp_path / "hub")[0] == 1
        (tmp_path / "hub" / "model.safetensors").write_bytes(tensors(named))
        assert ran(capsys, tmp_path / "hub")[0] == 0
        config = json.loads((tmp_path / "hub" / "config.json").read_text())
        (tmp_path / "hub" / "config.json").write_text(json.dumps(config | {"auto_map": {}}))
        assert ran(capsys, tmp_path / "hub")[0] == 1


class TestHeads:
    def test_as_written(self, capsys, tmp_path, fitted):
        head(fitted, tmp_path / "head")
        code, said = ran(capsys, tmp_path / "head")
        assert code == 0, said
        assert "of the model in" in said

    @pytest.mark.parametrize(
        "change",
        [
            lambda named, settings: named.update(weight=named["weight"] * np.float32(2.0)),
            lambda named, settings: named.update(bias=named["bias"] + np.float32(1.0)),
            lambda named, settings: named.update(center=named["center"] + 5.0),
            lambda named, settings: named.pop("center"),
            lambda named, settings: settings.update(bound=settings["bound"] * 100.0),
            lambda named, settings: settings.update(center_bound=0.5 * settings["center_bound"]),
            lambda named, settings: named.update(rows=ROWS),
            lambda named, settings: settings.update(normalise=True),
            lambda named, settings: settings.update(classes=[1, 0]),
        ],
    )
    def test_altered(self, capsys, tmp_path, fitted, change):
        named, settings = head(fitted, tmp_path / "head")
        assert any(one["kind"] == MEAN for one in json.loads(fitted.certificate_)["other_releases"])
        change(named, settings)
        write_head(tmp_path / "head", named, settings)
        assert ran(capsys, tmp_path / "head")[0] == 1


class TestUncheckedWeights:
    @pytest.mark.parametrize(
        "name", ["x.safetensors", "pytorch_model.BIN", "a.pt", "onnx/model.onnx", "w.npz", "x.npy"]
    )
    def test_never_exit_with_0(self, capsys, tmp_path, fitted, name):
        li.save(fitted, tmp_path)
        assert ran(capsys, tmp_path)[0] == 0
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
        code, said = ran(capsys, tmp_path)
        assert code == 4
        assert f"not checked: {tmp_path / name}, which was altered or may hold other" in said
        assert ran(capsys, tmp_path / "certificate.json")[0] == 4

    @pytest.mark.parametrize(
        "name",
        ["Model.json", "sub/model.json", "sub/deep/w", "w.weights", "w.zip", "params.json",
         "adapter.tar", ".hidden", "x.bin.1", "schema.json", "config.json", "weights.csv",
         "weights.txt", "weights.yaml", "w.md", "modeling.py", "w.html", "w.png", "sub/README.txt",
         "sub/certificate.json", ".DS_Store/w", ".hidden/model.safetensors",
         ".git/model.safetensors", ".git/refs/w.bin", ".git/W.BIN", ".cache/w",
         ".cache/huggingface/download/model.safetensors", ".cache/huggingface/model.json",
         ".cache/huggingface/download/w.incomplete", "sub/.git/config", "huggingface/w.lock",
         ".ipynb_checkpoints/w.csv"],
    )  # fmt: skip
    def test_any_file_that_may_hold_them(self, capsys, tmp_path, fitted, name):
        li.save(fitted, tmp_path)
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_bytes((tmp_path / "model.json").read_bytes())
        code, said = ran(capsys, tmp_path)
        assert code == 4
        assert f"not checked: {tmp_path / name}, which was altered or may hold other" in said

    def test_what_nobody_loads_as_weights(self, capsys, tmp_path, fitted):
        li.save(fitted, tmp_path)
        for name in (
            "README.md", "LICENSE", "LICENSE.txt", ".gitattributes", ".gitignore", ".DS_Store",
            "sub/README.md", ".git/HEAD", ".git/objects/3f/0a", ".git/hooks/pre-push.sample",
            ".git/objects/pack/pack-1.pack", ".cache/huggingface/.gitignore",
            ".cache/huggingface/CACHEDIR.TAG",
            ".cache/huggingface/download/model.safetensors.metadata",
            ".cache/huggingface/download/model.safetensors.lock",
        ):  # fmt: skip
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(b"")
        (tmp_path / ".git" / "refs").mkdir()
        (tmp_path / ".git" / "refs" / "v1.rc").write_text(f"{'0a' * 20}\n")
        (tmp_path / "schema.json").write_text('{"a": {"range": [0, 1]}, "b": "drop"}')
        assert ran(capsys, tmp_path)[0] == 0

    def test_what_we_wrote_and_is_no_model(self, capsys, tmp_path, fitted):
        li.save(fitted, tmp_path)
        ledger = li.Ledger(tmp_path / "l.ledger", epsilon=4.0, delta=1e-5)
        for k in range(3):
            ledger.add((0.1, 0.0), f"release {k}")
        ledger.write_witness(tmp_path / "head")
        signed = json.loads((tmp_path / "head").read_text()) | {"signature": {"kind": "Ed25519"}}
        (tmp_path / "signed").write_text(json.dumps(signed, indent=2) + "\n")
        (tmp_path / "report.htm").write_bytes(_files.sealed(f"{PAGE_START}</html>\n".encode()))
        (tmp_path / "key.pub").write_text(
            "-----BEGIN PUBLIC KEY-----\n" + 60 * "A" + "\n-----END PUBLIC KEY-----\n"
        )
        (tmp_path / "older").mkdir()
        (tmp_path / "older" / "certificate.json").write_text(fitted.certificate_)
        code, said = ran(capsys, tmp_path)
        assert code == 0, said

    @pytest.mark.parametrize(
        "change",
        [
            lambda text: text + b"PK\x05\x06",  # an archive is read from its end
            lambda text: text.replace(b"release 1", b"weights 1"),
            lambda text: text[: text.rfind(b"\n", 0, -1) - 1],
            lambda text: b"\n" + text,
        ],
    )
    def test_what_only_begins_as_a_ledger(self, capsys, tmp_path, fitted, change):
        li.save(fitted, tmp_path)
        ledger = li.Ledger(tmp_path / "l", epsilon=4.0, delta=1e-5)
        ledger.add((0.1, 0.0), "release 1")
        assert ran(capsys, tmp_path)[0] == 0
        ledger.path.write_bytes(change(ledger.path.read_bytes()))
        assert ran(capsys, tmp_path)[0] == 4

    def test_a_card_that_was_altered(self, capsys, tmp_path, fitted):
        li.save(fitted, tmp_path)
        card = _files.sealed(b"# A model\nepsilon = 1.0\n")
        (tmp_path / "README.md").write_bytes(card)
        assert ran(capsys, tmp_path)[0] == 0
        (tmp_path / "README.md").write_bytes(card.replace(b"1.0", b"0.1"))
        code, said = ran(capsys, tmp_path)
        assert code == 4
        assert "README.md, which was altered" in said

    def test_heads_and_pages_that_hold_more(self, capsys, tmp_path, fitted):
        li.save(fitted, tmp_path)
        head = {"format": "lastiterate ledger head 1", "ledger": "a", "n": 0, "hash": "b"}
        certificate = json.loads(fitted.certificate_) | {"weights": [1.0]}
        texts = (json.dumps(head | {"weights": [1.0]}), json.dumps(certificate), PAGE_START)
        texts += (f"{PAGE_START}PK</html>\n", json.dumps({"coef": {"values": [0.5, 1.5]}}))
        for text in texts:
            for name in ("w", "weights.json", "page.html"):
                (tmp_path / name).write_text(text)
                assert ran(capsys, tmp_path)[0] == 4
                (tmp_path / name).unlink()

    def test_links_are_known_by_their_own_names(self, capsys, tmp_path, fitted):
        li.save(fitted, tmp_path / "m")
        (tmp_path / "w.bin").write_bytes(b"weights")
        (tmp_path / "m" / "w.txt").symlink_to(tmp_path / "w.bin")
        code, said = ran(capsys, tmp_path / "m")
        assert code == 4
        assert f"not checked: {tmp_path / 'm' / 'w.txt'}, which was altered or may hold" in said

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no such files here")
    def test_what_is_no_file_is_not_waited_for(self, capsys, tmp_path, fitted):
        li.save(fitted, tmp_path)
        os.mkfifo(tmp_path / "w")
        assert ran(capsys, tmp_path)[0] == 4

    def test_folders_behind_links(self, capsys, tmp_path, fitted):
        li.save(fitted, tmp_path / "m")
        (tmp_path / "other").mkdir()
        (tmp_path / "m" / "sub").symlink_to(tmp_path / "other", target_is_directory=True)
        (tmp_path / "m" / "README.md").symlink_to(tmp_path / "nothing")
        code, said = ran(capsys, tmp_path / "m")
        assert code == 4
        assert said.count("not checked: ") == 1
        assert f"not checked: {tmp_path / 'm' / 'sub'}" in said

    def test_beside_a_certificate_of_another_name(self, capsys, tmp_path, fitted):
        li.save(fitted, tmp_path)
        (tmp_path / "certificate.json").rename(tmp_path / "mine.json")
        code, said = ran(capsys, tmp_path / "mine.json")
        assert code == 0
        assert f"of the model in {tmp_path / 'model.json'}" in said
        (tmp_path / "inside").mkdir()
        (tmp_path / "inside" / "w.pt").write_bytes(b"")
        assert ran(capsys, tmp_path / "mine.json")[0] == 0
        (tmp_path / "w.pt").write_bytes(b"")
        assert ran(capsys, tmp_path / "mine.json")[0] == 4

    def test_a_folder_for_a_model(self, capsys, tmp_path, fitted):
        li.save(fitted, tmp_path)
        (tmp_path / "model.json").unlink()
        (tmp_path / "model.json").mkdir()
        assert ran(capsys, tmp_path)[0] == 2

    def test_the_first_few_are_named(self, capsys, tmp_path, fitted):
        li.save(fitted, tmp_path)
        for k in range(8):
            (tmp_path / f"{k}.pt").write_bytes(b"")
        code, said = ran(capsys, tmp_path)
        assert code == 4
        assert said.count(".pt, which was altered or may hold") == 5
        assert "not checked: 3 more, which were altered or may hold other weights" in said

    def test_beside_the_model_that_is_named(self, capsys, tmp_path, fitted):
        li.save(fitted, tmp_path / "one")
        head(fitted, tmp_path / "two")
        code, said = ran(
            capsys, tmp_path / "two" / "certificate.json", "--model", tmp_path / "one/model.json"
        )
        assert code in (1, 4), said

    def test_cannot_be_named(self, capsys, tmp_path, fitted):
        li.save(fitted, tmp_path)
        (tmp_path / "a.onnx").write_bytes(b"")
        code, said = ran(capsys, tmp_path, "--model", tmp_path / "a.onnx")
        assert code == 2
        assert "which can be checked" in said


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
    return json.dumps(record | {"digest": statements.digest(record)})


IN_A_CLONE = r"git checkout v0\.1\.0 && pip install \.$"


class TestOtherVersions:
    def test_of_development_are_several_commits(self, fitted):
        record = json.loads(fitted.certificate_) | {
            "format": 7,
            "software": "lastiterate 0.2.0.dev0",
        }
        with pytest.raises(
            OtherVersionCertificate, match="several commits bear that name"
        ) as found:
            verify(sealed(record))
        assert str(found.value).endswith("git checkout COMMIT && pip install .")

    @pytest.mark.parametrize("found", [6, 7, 99])
    def test_certificates(self, capsys, tmp_path, fitted, found):
        record = json.loads(fitted.certificate_) | {"format": found}
        record |= {"software": "lastiterate 0.1.0"}
        with pytest.raises(OtherVersionCertificate, match=IN_A_CLONE):
            verify(sealed(record))
        li.save(fitted, tmp_path)
        (tmp_path / "certificate.json").write_text(sealed(record))
        with pytest.raises(OtherVersion):
            li.load(tmp_path)
        code, said = ran(capsys, tmp_path)
        assert code == 3
        assert "does not hold" not in said
        assert f"format {found}" in said

    def test_that_are_ours_are_forgeries(self, fitted):
        record = json.loads(fitted.certificate_) | {"format": 7}
        with pytest.raises(InvalidCertificate, match="its format is not 8"):
            verify(sealed(record))
        with pytest.raises(InvalidCertificate, match="its format is not 8"):
            verify(sealed(record | {"format": "7", "software": "lastiterate 0.1.0"}))
        unnamed = sealed(record | {"software": "lastiterate 1 && rm -rf /"})
        with pytest.raises(InvalidCertificate, match="what software issued it is unknown"):
            verify(unnamed)

    def test_models(self, capsys, tmp_path, fitted):
        li.save(fitted, tmp_path)
        record = json.loads((tmp_path / "model.json").read_text())
        (tmp_path / "model.json").write_text(json.dumps(record | {"format": "lastiterate model 2"}))
        certificate = json.loads((tmp_path / "certificate.json").read_text())
        older = json.dumps(certificate | {"software": "lastiterate 0.1.0"})
        (tmp_path / "certificate.json").write_text(older)
        assert main(["predict", str(tmp_path), "no.csv"]) == 3
        assert "git checkout v0.1.0 && pip install ." in capsys.readouterr().err
        (tmp_path / "certificate.json").unlink()
        with pytest.raises(OtherVersion, match="install the version that wrote it"):
            read_model(tmp_path / "model.json")

    def test_ledgers(self, capsys, tmp_path):
        path = tmp_path / "l"
        li.Ledger(path, epsilon=1.0, delta=1e-5)
        entry = json.loads(path.read_text())
        entry |= {"format": "lastiterate ledger 2", "software": "lastiterate 0.1.0"}
        del entry["hash"]
        path.write_text(json.dumps(entry | {"hash": hash_of(entry)}) + "\n")
        with pytest.raises(OtherVersion, match=IN_A_CLONE):
            li.Ledger(path)
        assert main(["ledger", "verify", str(path)]) == 3
        assert "git checkout v0.1.0 && pip install ." in capsys.readouterr().err

    def test_certificates_in_a_ledger(self, capsys, tmp_path, fitted, monkeypatch):
        ledger = li.Ledger(tmp_path / "l", epsilon=4.0, delta=1e-5)
        ledger.add(fitted.certificate_)
        assert main(["ledger", "verify", str(ledger.path)]) == 0
        monkeypatch.setattr(statements, "FORMAT", 9)
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


class TestLargeRuns:
    @pytest.mark.parametrize("steps", [3 * 10**8, 10**12, 2**53, 1e12])
    def test_are_refused_at_once(self, fitted, steps):
        record = json.loads(fitted.certificate_)
        record["run"]["steps"] = steps
        with pytest.raises(InvalidCertificate, match=f"{steps:,.0f} steps, too many to check"):
            verify(sealed(record))
        small = json.loads(fitted.certificate_)
        for name, parts in (("earlier", [record]), ("selection", {"candidates": [record]})):
            with pytest.raises(InvalidCertificate, match="too many to check"):
                verify(sealed(small | {name: parts}))

    @pytest.mark.parametrize(
        "change, what",
        [
            ({"steps": 10**400}, "inf steps"),
            ({"examples_per_person": 3_000}, "3,000 examples of a person"),
            ({"examples_per_person": 1e5}, "100,000 examples of a person"),
            ({"examples_per_person": 500, "steps": 10**4}, "5,000,000 steps times examples"),
            (
                {"batches": {"kind": "BalancedSampled", "examples": 10**12, "batch_size": 1,
                             "epochs": 10**6}},
                "1,000,000 epochs in a draw",
            ),
            (
                {"batches": {"kind": "ShuffledOnce", "examples": 1e9, "batch_size": 1}},
                "1,000,000,000 steps in a draw",
            ),
        ],
    )  # fmt: skip
    def test_large_groups_and_draws_are_refused_at_once(self, fitted, change, what):
        record = json.loads(fitted.certificate_)
        record["run"] |= change
        with pytest.raises(InvalidCertificate, match=f"{what}.*, too many to check"):
            verify(sealed(record))

    @pytest.mark.parametrize(
        "settings, name",
        [
            ({"examples_per_person": 1_001}, "examples_per_person"),
            ({"examples_per_person": 10**6, "epsilon": None, "noise_std": 1.0},
             "examples_per_person"),
            ({"examples_per_person": 900, "epsilon": None, "noise_std": 1e-3, "batch_size": 16},
             "examples_per_person"),
        ],
    )  # fmt: skip
    def test_are_not_trained(self, tmp_path, settings, name):
        ledger = li.Ledger(tmp_path / "l", epsilon=9.0, delta=1e-5, examples_per_person=10**6)
        model = PrivateLogisticRegression(feature_bound=1.0, epochs=20, ledger=ledger, **settings)
        must_be = "smaller, so that its certificate can be verified; found .* too many to check"
        with pytest.raises(InvalidParameter, match=f"{name} must be {must_be}"):
            model.fit(ROWS, ROWS[:, 0] > 0)
        assert len(ledger.entries()) == 1

    @pytest.mark.slow
    def test_trainings_selections_and_requests_are_refused_alike(self, monkeypatch):
        key, target = b"a secret of 16 bytes or more", ROWS[:, 0] > 0
        plain = PrivateLogisticRegression(epsilon=1.0, epochs=2, l2=0.1, classes=[False, True])
        trained = plain.fit(ROWS, target, key=key)
        steps, certificate = trained.n_iter_, trained.certificate_
        monkeypatch.setattr("lastiterate.certificate.verify.MOST_STEPS", steps)
        verify(certificate)
        with pytest.raises(InvalidParameter, match="extra_steps must be smaller"):
            trained.unlearn(ROWS, target, rows=[0], key=key, extra_steps=1)
        monkeypatch.setattr("lastiterate.certificate.verify.MOST_STEPS", 2 * steps)
        with pytest.raises(InvalidParameter, match="grid must be smaller"):
            PrivateSelection(plain, {"l2": [0.1, 0.2]}, epsilon=1.0).fit(ROWS, target)
        monkeypatch.setattr("lastiterate.certificate.verify.MOST_STEPS", steps - 1)
        with pytest.raises(InvalidParameter, match="epochs must be smaller"):
            plain.fit(ROWS, target)
        with pytest.raises(InvalidCertificate, match="too many to check"):
            verify(certificate)

    def test_accounting_waits_for_all_cheaper_checks(self, fitted, monkeypatch):
        def never(*_, **__):
            raise AssertionError

        monkeypatch.setattr("lastiterate.certificate.verify.account", never)
        record = json.loads(fitted.certificate_) | {"digest": "0"}
        with pytest.raises(InvalidCertificate, match="its digest is not that of its text"):
            verify(json.dumps(record))

    def test_want_of_memory_is_no_memory_error(self, fitted, monkeypatch):
        def full(*_, **__):
            raise MemoryError

        monkeypatch.setattr(import_module("lastiterate.certificate.verify"), "account", full)
        with pytest.raises(InvalidCertificate, match="not enough memory"):
            verify(fitted.certificate_)


class TestJson:
    def test_says_what_the_text_says(self, capsys, tmp_path, fitted):
        li.save(fitted, tmp_path)
        code, said = ran(capsys, tmp_path, "--json")
        record = json.loads(said)
        assert (code, record["holds"]) == (0, True)
        assert record["guarantee"]["epsilon"] <= 1.0
        assert record["checked"] == [str(tmp_path / "model.json")]
        assert any(note.startswith("on trust") for note in record["notes"])
        other = json.loads(fitted.certificate_)
        other["guarantee"]["epsilon"] = 0.1
        (tmp_path / "certificate.json").write_text(json.dumps(other))
        code, said = ran(capsys, tmp_path, "--json")
        assert code == 1
        assert json.loads(said)["reasons"] == ["its digest is not that of its text"]

"""Weights in a folder belong to its certificate, and nothing else is in their file."""

import json
import subprocess
import sys

import numpy as np
import pytest

import lastiterate as li
from lastiterate.certificate.fields import digest as certificate_digest
from lastiterate.errors import InvalidCertificate, InvalidParameter, LastIterateError
from lastiterate.linear_model import PrivateLogisticRegression
from lastiterate.saved_model.file_writing import read_tensors
from lastiterate.saved_model.model_file import AlteredModel, digest
from lastiterate.saved_model.weight_files import check_folder

safetensors = pytest.importorskip("safetensors.numpy")
hub = pytest.importorskip("lastiterate.huggingface")

X = np.random.default_rng(0).normal(size=(1_000, 4)) / 3
FAST = {"epochs": 2, "batch_size": 200, "batches": "cyclic", "random_state": 0}
WEIGHTS = {"head": "head.safetensors", "hub": "model.safetensors"}

pytestmark = pytest.mark.filterwarnings(
    "ignore:the training was reproducible", "ignore:.*noise dominates"
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Files of a model for the Hub and, where torch is installed, of a centred head."""
    folder = tmp_path_factory.mktemp("saved")
    model = PrivateLogisticRegression(center=True, **FAST).fit(X + 1, X[:, 0] > 0)
    hub.save(model, folder / "hub")
    try:
        import torch

        import lastiterate.torch as lt
    except ImportError:
        return folder
    labels = torch.tensor(np.digitize(X[:, 0], [-0.1, 0.1]))
    data = torch.utils.data.TensorDataset(torch.tensor(X + 1, dtype=torch.float32), labels)
    net = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Linear(4, 3))
    loader = torch.utils.data.DataLoader(data, batch_size=500)
    fitted = lt.fit_head(
        net, "1", loader, classes=3, epsilon=4.0, feature_bound=3.0, center=True, **FAST
    )
    assert fitted.head.center is not None
    lt.save(fitted, folder / "head")
    return folder


@pytest.fixture
def files(saved, tmp_path):
    """A function that copies a kind of folder, with some of its files changed."""

    def copied(kind, tensors=None, metadata=None, settings=None, config=None, spaces=""):
        where = tmp_path / f"{kind} {len(list(tmp_path.iterdir()))}"
        if not (saved / kind).exists():
            pytest.skip("needs torch")
        where.mkdir()
        for one in (saved / kind).iterdir():
            (where / one.name).write_bytes(one.read_bytes())
        path = where / WEIGHTS[kind]
        file = read_tensors(path.read_bytes())
        held, about = dict(file.tensors), dict(file.texts)
        if settings is not None:
            about["lastiterate"] = json.dumps(settings(json.loads(about["lastiterate"])))
        if spaces:
            about["lastiterate"] += spaces
        held, about = (tensors or (lambda x: x))(held), about | (metadata or {})
        path.write_bytes(safetensors.save(held, metadata=about or None))
        if config is not None:
            stated = json.loads((where / "config.json").read_text())
            (where / "config.json").write_text(json.dumps(config(stated)))
        return where

    return copied


@pytest.mark.parametrize("kind", WEIGHTS)
def test_belong_to_the_certificate(files, kind):
    where = files(kind)
    assert check_folder(where) == where / WEIGHTS[kind]


@pytest.mark.parametrize("kind", WEIGHTS)
def test_are_read_as_safetensors_reads_them(files, kind):
    path = files(kind) / WEIGHTS[kind]
    found = read_tensors(path.read_bytes()).tensors
    expected = safetensors.load(path.read_bytes())
    assert found.keys() == expected.keys()
    for key, one in expected.items():
        assert found[key].dtype == one.dtype
        np.testing.assert_array_equal(found[key], one)


def test_are_checked_without_torch_safetensors_and_scikit_learn(files):
    where = [str(files(kind)) for kind in WEIGHTS]
    code = (
        "import sys; sys.modules.update(torch=None, safetensors=None, sklearn=None)\n"
        "from lastiterate.saved_model.weight_files import check_folder\n"
        f"print(*[check_folder(one).name for one in {where}])"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.split() == list(WEIGHTS.values())


def added(name, value):
    return lambda held: held | {name: held[name] + np.array(value, dtype=held[name].dtype)}


HEAD_CHANGES = {
    "weight": {"tensors": added("weight", 1e-3)},
    "bias": {"tensors": added("bias", 1e-3)},
    "no bias": {"tensors": lambda held: {k: v for k, v in held.items() if k != "bias"}},
    "center": {"tensors": added("center", 5.0)},
    "bit of the center": {"tensors": added("center", 1e-12)},
    "bound": {"settings": lambda one: one | {"bound": one["bound"] * 100.0}},
    "center_bound": {"settings": lambda one: one | {"center_bound": one["center_bound"] * 2.0}},
    "normalise": {"settings": lambda one: one | {"normalise": True}},
    "classes": {"settings": lambda one: one | {"classes": one["classes"][::-1]}},
    "name": {"settings": lambda one: one | {"name": "0"}},
    "another tensor": {"tensors": lambda held: held | {"rows": np.ones(9)}},
    "another setting": {"settings": lambda one: one | {"rows": [1.0]}},
    "more metadata": {"metadata": {"rows": "1"}},
    "spaces": {"spaces": " "},
    "float64 weights": {"tensors": lambda held: held | {"weight": held["weight"].astype("f8")}},
}


@pytest.mark.parametrize("change", HEAD_CHANGES)
def test_heads_that_were_altered(files, change):
    where = files("head", **HEAD_CHANGES[change])
    import torch

    import lastiterate.torch as lt

    with pytest.raises((InvalidCertificate, InvalidParameter)):
        check_folder(where)
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(4, 3))
    with pytest.raises((InvalidCertificate, InvalidParameter)):
        lt.load(net, where)
    assert type(net[0]) is type(net[1]) is torch.nn.Linear


def test_a_head_and_a_forged_digest(files):
    """What the certificate states of the training must still be what the layer does."""
    from lastiterate.saved_model.weight_files import SavedHead

    for change in ("center", "bound", "center_bound"):
        where = files("head", **HEAD_CHANGES[change])
        record = json.loads((where / "certificate.json").read_text())
        record["head"] = SavedHead.read(where).numbers.digest()
        record["digest"] = certificate_digest(record)
        (where / "certificate.json").write_text(json.dumps(record))
        li.verify(where)
        with pytest.raises(InvalidCertificate, match=r"not that of the layer|not the centre"):
            check_folder(where)


def redone(config, **changes):
    """With the digest of the changed record."""
    record = config["record"] | changes
    return config | {"record": record}


HUB_CHANGES = {
    "coef": {"tensors": added("coef", 1e-3)},
    "another tensor": {"tensors": lambda held: held | {"rows": X}},
    "another key": {"config": lambda one: one | {"auto_map": {"AutoModel": "code.Model"}}},
    "another key of the record": {"config": lambda one: redone(one, rows=[1.0])},
    "a tensor twice": {"config": lambda one: redone(one, coef=[[1.0]])},
    "metadata": {"metadata": {"rows": "1"}},
}


@pytest.mark.parametrize("change", HUB_CHANGES)
@pytest.mark.parametrize("forged", [False, True])
def test_models_for_the_hub_that_were_altered(files, change, forged):
    where = files("hub", **HUB_CHANGES[change])
    if forged:
        config = json.loads((where / "config.json").read_text())
        tensors = read_tensors((where / "model.safetensors").read_bytes()).tensors
        record = config["record"] | {key: one.tolist() for key, one in tensors.items()}
        (where / "config.json").write_text(json.dumps(config | {"digest": digest(record)}))
    for read in (check_folder, hub.load):
        with pytest.raises((InvalidCertificate, InvalidParameter)):
            read(where)


def test_of_another_certificate(files):
    for kind, other in (("head", "hub"), ("hub", "head")):
        where = files(kind)
        (where / "certificate.json").write_bytes((files(other) / "certificate.json").read_bytes())
        with pytest.raises(InvalidCertificate, match="it belongs to"):
            check_folder(where)
        (where / "certificate.json").write_text("{}")
        with pytest.raises(InvalidCertificate):
            check_folder(where)


def test_folders_of_something_else(files, tmp_path):
    assert check_folder(tmp_path / "none") is None
    where = files("hub")
    (where / "more.safetensors").write_bytes(b"")
    with pytest.raises(InvalidParameter, match="no other safetensors"):
        check_folder(where)
    for content in (b"", b"{}", b"\2\0\0\0\0\0\0\0{}", b"\xff" * 40):
        other = files("hub")
        (other / "model.safetensors").write_bytes(content)
        with pytest.raises(LastIterateError, match=r"huggingface\.save wrote"):
            check_folder(other)


def test_a_head_without_metadata(files):
    where = files("head")
    tensors = read_tensors((where / "head.safetensors").read_bytes()).tensors
    (where / "head.safetensors").write_bytes(safetensors.save(dict(tensors)))
    with pytest.raises(InvalidParameter, match=r"a folder that lastiterate\.torch\.save wrote"):
        check_folder(where)


def longer_header(file, spaces):
    """The file with its header's length stated as it is now."""
    end = file.index(b"}}") + 2
    return (
        (end - 8 + len(spaces)).to_bytes(8, "little")
        + file[8:end]
        + spaces
        + file[end:].lstrip(b" ")
    )


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file[:-1],
        lambda file: file + b"\0",
        lambda file: file.replace(b'"F64"', b'"I64"', 1),
        lambda file: file.replace(b'"shape":[1,4]', b'"shape":[1,5]', 1),
        lambda file: file.replace(b'"shape":[1,4]', b'"shape":[4,1]', 1),
        lambda file: b"\xff" * 8 + file[8:],
        lambda file: longer_header(file, b" " * 8),
        lambda file: longer_header(file.replace(b'":{"', b'": {"', 1), b""),
        lambda file: longer_header(file.replace(b'{"dtype"', b'{"rows":1,"dtype"', 1), b""),
    ],
)
def test_damaged_files(files, damage):
    where = files("hub")
    content = (where / "model.safetensors").read_bytes()
    assert damage(content) != content
    (where / "model.safetensors").write_bytes(damage(content))
    with pytest.raises((InvalidParameter, AlteredModel, InvalidCertificate)):
        check_folder(where)

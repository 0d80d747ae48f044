"""Weights beside a certificate: which of them are those that it was issued for.

`model.json` is a model by itself, `model.safetensors` with the `config.json` beside it, and
`head.safetensors` a layer.  Other files of weights cannot be compared with a certificate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from lastiterate.errors import InvalidParameter, OtherVersion
from lastiterate.other_releases import MEAN, PUBLISHED
from lastiterate.run.serialise import unambiguous_json
from lastiterate.saved_model.file_writing import MODEL
from lastiterate.saved_model.model_file import (
    AlteredModel,
    SavedModel,
    digest,
    is_complete,
    issuer_beside,
    read_model,
)
from lastiterate.saved_model.safetensors_file import TensorFile, read_tensors
from lastiterate.tables.json_file import read_object
from lastiterate.train.centring import Centre, as_published

HUB_WEIGHTS, HEAD_WEIGHTS, CONFIG = "model.safetensors", "head.safetensors", "config.json"
HUB_LAYOUT = "lastiterate hub 1"
_HUB_TENSORS = ("parameters", "coef", "intercept", "center")
_CHECKED = (MODEL, HUB_WEIGHTS, HEAD_WEIGHTS)
_ENDINGS = {
    ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".onnx", ".npz", ".npy", ".h5", ".hdf5",
    ".keras", ".gguf", ".msgpack", ".pkl", ".pickle", ".joblib", ".pb", ".tflite",
}  # fmt: skip


@dataclass(frozen=True)
class SavedHead:
    """A layer in a file."""

    file: TensorFile
    settings: Mapping[str, Any]

    def differs_from(self, described: Mapping[str, Any]) -> Iterator[str]:
        """Reasons why it is not the layer that a certificate describes."""
        tensors = self.file.tensors
        text = sha256()
        for name in ("weight", "bias"):
            if name in tensors:
                array = np.ascontiguousarray(tensors[name], dtype="<f4")
                text.update(repr(array.shape).encode() + array.tobytes())
        if described.get("head") != text.hexdigest():
            yield "it belongs to a layer of other weights"
        if self.settings["bound"] != described["features"]["bound"]:
            yield "it belongs to a layer with another bound on rows"
        centre, bound = tensors.get("center"), self.settings["center_bound"]
        stated = [one[PUBLISHED] for one in described["other_releases"] if one["kind"] == MEAN]
        found = [] if centre is None else [as_published(Centre(centre.astype(np.float64), bound))]
        if found != stated:
            yield "it belongs to a layer with another centre of rows"


def read_weights(path: Path) -> SavedModel | SavedHead:
    """The model or layer in a file, by its name; raises if it was altered."""
    if path.name == HEAD_WEIGHTS:
        return _read_head(path)
    if path.suffix == ".safetensors":
        return _read_hub(path)
    if path.suffix in _ENDINGS:
        must_be = f"{MODEL}, {HUB_WEIGHTS} or {HEAD_WEIGHTS}, which can be checked"
        raise InvalidParameter("model", str(path), must_be=must_be)
    return read_model(path)


def weights_beside(folder: Path) -> tuple[list[Path], list[Path]]:
    """The files of weights in a folder and those inside: that can be checked, and all others."""
    checked = [folder / name for name in _CHECKED if (folder / name).is_file()]
    every = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _ENDINGS)
    return checked, [path for path in every if path not in checked]


def _read_hub(path: Path) -> SavedModel:
    must_be = f"{HUB_WEIGHTS} as lastiterate.huggingface.save wrote it, {CONFIG} beside it"
    config_path = path.with_name(CONFIG)
    if not config_path.is_file():
        raise InvalidParameter("model", must_be=must_be, found=f"{path} without {CONFIG}")
    config = read_object(config_path, name="model", must_be=must_be)
    layout = config.get("layout")
    if layout != HUB_LAYOUT and re.fullmatch(r"lastiterate hub \d+", str(layout)):
        raise OtherVersion.of(str(path), repr(layout), repr(HUB_LAYOUT), issuer_beside(path))
    try:
        tensors = read_tensors(path.read_bytes()).tensors
        if set(config) != {"layout", "record", "digest"} or layout != HUB_LAYOUT:
            raise ValueError(HUB_LAYOUT)
        if not set(tensors) <= set(_HUB_TENSORS):
            raise ValueError(HUB_WEIGHTS)
        record = config["record"] | {name: one.tolist() for name, one in tensors.items()}
        same = config["digest"] == digest(record)
    except (ValueError, LookupError, TypeError):
        raise AlteredModel("model", str(path), must_be=must_be) from None
    if not same:
        found = f"{path}, altered since: its digest is not that of its content"
        raise AlteredModel("model", must_be=must_be, found=found)
    if not is_complete(record):
        raise AlteredModel("model", str(path), must_be=must_be)
    return SavedModel(record)


def _read_head(path: Path) -> SavedHead:
    must_be = f"{HEAD_WEIGHTS} as lastiterate.torch.save wrote it"
    try:
        file = read_tensors(path.read_bytes())
        settings = unambiguous_json(file.texts["lastiterate"])
        known = {"bound", "center_bound"} <= set(settings)
        if not known or not {"weight"} <= set(file.tensors) <= {"weight", "bias", "center"}:
            raise ValueError(must_be)
    except (ValueError, LookupError, TypeError):
        raise AlteredModel("model", str(path), must_be=must_be) from None
    return SavedHead(file, settings)

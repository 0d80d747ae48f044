"""Folders whose weights are safetensors: of a torch head, and for the Hugging Face Hub.

Neither torch nor safetensors is needed to read them, so that `lastiterate verify` can check that
weights belong to a certificate.  Whatever such a file holds decides predictions, and belongs to a
digest of the certificate; anything else in it is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lastiterate import _check
from lastiterate._files import IsOurs, is_page, is_record, is_sealed, was_sealed, with_an_end
from lastiterate.certificate.fields import NAMES as FIELDS
from lastiterate.certificate.fields import encoding_digest, model_digest, plain_text
from lastiterate.certificate.verify import READ_ERRORS, read
from lastiterate.errors import InvalidCertificate, InvalidParameter, OtherVersion
from lastiterate.ledger.journal import is_head, is_journal
from lastiterate.other_releases import MEAN, PUBLISHED
from lastiterate.run.serialise import unambiguous_json
from lastiterate.saved_model.file_writing import CERTIFICATE, MODEL, read_tensors
from lastiterate.saved_model.model_file import (
    AlteredModel,
    SavedModel,
    digest,
    is_complete,
    issuer_beside,
    read_model,
)
from lastiterate.tables.encoder import is_schema
from lastiterate.train.centring import Centre, as_published

HEAD, HUB, CONFIG = "head.safetensors", "model.safetensors", "config.json"
HUB_FORMAT = "lastiterate hub 1"
HUB_TENSORS = ("parameters", "coef", "intercept", "center")
_SETTINGS = ("bound", "center_bound", "normalise", "name", "classes")
_FROM_HUB = "a folder that lastiterate.huggingface.save wrote"
_FROM_TORCH = "a folder that lastiterate.torch.save wrote"
_WEIGHT_FILES = (MODEL, HUB, HEAD)

# What may lie beside a certificate without a check: files of these names, and those that their
# content shows to be ours.  Anything else may be weights, whatever its name ends in.
_HARMLESS_NAMES = {
    "README.md", "LICENSE", "LICENSE.md", "LICENSE.txt", "NOTICE", ".git", ".gitattributes",
    ".gitignore", ".gitkeep", ".gitmodules", ".DS_Store", "Thumbs.db", "desktop.ini",
}  # fmt: skip

# Of git and of downloads from the Hub, in which no loader looks; with the endings of their files.
_METADATA_FOLDERS = ((".git",), (".cache", "huggingface"))

_METADATA_ENDINGS = {
    "", ".metadata", ".lock", ".TAG", ".sample", ".pack", ".idx", ".rev", ".bitmap", ".graph",
    ".keep", ".mtimes", ".promisor", ".pid", ".log",
}  # fmt: skip

_REFERENCE = re.compile(rb"ref: |[0-9a-f]{40}")

_PUBLIC_KEY = re.compile(
    rb"(-----BEGIN PUBLIC KEY-----\n[A-Za-z0-9+/=\n]{,90}-----END PUBLIC KEY-----|"
    rb"ssh-ed25519 [A-Za-z0-9+/=]{,90}( [^\n]{,90})?)\n?"
)


_MOST_BYTES = 10**8  # bytes of a file that is read to recognise it


def weights_beside(certificate: Path) -> tuple[list[Path], list[Path]]:
    """Files of weights beside a certificate that can be checked, and all others that may be some.

    The others are looked for in folders inside, too, unless the certificate has a name of its own
    and so may lie among anything.  Folders behind links are listed, and not entered.
    """
    folder = certificate.parent
    checked = [folder / name for name in _WEIGHT_FILES if os.path.lexists(folder / name)]
    for path in checked:
        if not path.is_file():
            raise InvalidParameter("model", must_be="a file", found=f"{path}, which is none")
    known = {certificate, *checked}
    if folder / HUB in checked:
        known.add(folder / CONFIG)
    others = []
    for where, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = [one for one in folders if certificate.name == CERTIFICATE]
        links = [one for one in folders if (Path(where) / one).is_symlink()]
        others += [Path(where) / one for one in (*names, *links)]
    return checked, sorted(
        one for one in others if one not in known and _may_be_weights(one, folder)
    )


def _raise(error: OSError) -> None:
    raise error


def _may_be_weights(path: Path, folder: Path) -> bool:
    if path.is_dir():
        return True
    parts = path.relative_to(folder).parts
    inside = next((one for one in _METADATA_FOLDERS if parts[: len(one)] == one), None)
    if inside is not None and len(parts) > len(inside):
        return path.suffix not in _METADATA_ENDINGS and not (
            parts[1] in ("refs", "logs") and _content_is(_REFERENCE.match, path)
        )
    ending = path.suffix.lower()
    known: IsOurs = is_page if ending in (".html", ".htm") else _is_ours
    if "schema" in path.stem.lower() and ending == ".json":  # any JSON of numbers may look so
        known = is_schema
    if path.name in _HARMLESS_NAMES:
        return _content_is(was_sealed, path) and not _content_is(is_sealed, path)
    return not _content_is(known, path)


def _content_is(known: Callable[[bytes], object], path: Path) -> bool:
    """Whether this is true of a file's content; not of what cannot be read, or is very large."""
    try:
        if not (path.is_file() and path.stat().st_size <= _MOST_BYTES):
            return False
        return bool(known(path.read_bytes()))
    except OSError:
        return False


_is_certificate = is_record(
    lambda record: {"format", "guarantee", "run", "digest"} <= set(record) <= FIELDS
)


def _is_ours(content: bytes) -> bool:
    """Whether it is a file of this package, or a public key, and no model."""
    if content[:1] == b"{":
        return any(known(content) for known in (is_head, is_journal, _is_certificate))
    return _PUBLIC_KEY.fullmatch(content) is not None


def read_weights(path: Path) -> SavedModel | SavedHead:
    """The model or head in a file, by its name; raises if it was altered, or holds more."""
    if path.name == HEAD:
        return SavedHead.read(path.parent)
    if path.name == HUB:
        return hub_model(path.parent)
    if path.suffix.lower() != ".json":
        must_be = f"{MODEL}, {HUB} or {HEAD}, which can be checked"
        raise InvalidParameter("model", str(path), must_be=must_be)
    return read_model(path)


def check_folder(folder: str | Path) -> Path | None:
    """The file of weights in a folder, which belong to its certificate; None without safetensors.

    The certificate itself is to be derived by `verify`.

    Parameters
    ----------
    folder : str or Path
        A folder with certificate.json.

    Returns
    -------
    Path or None
        The file that was checked.

    Raises
    ------
    InvalidCertificate
        If the certificate belongs to other weights, or to weights that are used otherwise.
    AlteredModel
        If weights are not those of the configuration beside them.
    InvalidParameter
        If a safetensors file is none that this package wrote, or holds more.

    Examples
    --------
    >>> check_folder("no such folder")
    """
    where = Path(folder)
    names = sorted(path.name for path in where.glob("*.safetensors"))
    if not names:
        return None
    if names not in ([HEAD], [HUB]):
        must_be = f"a folder with {HEAD} or {HUB}, and no other safetensors"
        raise InvalidParameter("folder", must_be=must_be, found=", ".join(names))
    described = read(where / CERTIFICATE)
    try:
        if names == [HEAD]:
            reasons = SavedHead.read(where).reasons(described)
        else:
            reasons = _wrong_model(hub_model(where), described)
    except InvalidParameter:
        raise
    except READ_ERRORS as error:
        raise InvalidCertificate([f"it cannot be read ({error!r})"]) from error
    if reasons:
        raise InvalidCertificate(reasons)
    return where / names[0]


def _wrong_model(saved: SavedModel, described: Mapping[str, Any]) -> list[str]:
    if described.get("model") != model_digest(saved.parameters):
        return ["it belongs to another model"]
    if described.get("encoding") != encoding_digest(saved.encoding):
        return ["it belongs to a model of other columns, ranges, values or classes"]
    same = saved.matches_certificate(described)
    return [] if same else ["the model predicts by other numbers than it describes"]


def hub_model(folder: Path) -> SavedModel:
    """The model in a folder for the Hub; raises if it was altered, or the files hold more."""
    try:
        file = read_tensors(with_an_end(folder / HUB).read_bytes())
        tensors, metadata = file.tensors, file.texts
        config = unambiguous_json(with_an_end(folder / CONFIG).read_text(encoding="utf-8"))
        layout = config["layout"]
        if layout != HUB_FORMAT and re.fullmatch(r"lastiterate hub \d+", layout):
            issuer = issuer_beside(folder / HUB)
            raise OtherVersion.of(str(folder), repr(layout), repr(HUB_FORMAT), issuer)
        rest, stated = config["record"], config["digest"]
        _check.choice("layout", layout, among=(HUB_FORMAT,))
        record = rest | {key: one.tolist() for key, one in tensors.items()}
        unknown = [*(config.keys() - {"layout", "record", "digest"}), *metadata]
        unknown += [*(tensors.keys() - set(HUB_TENSORS)), *(tensors.keys() & rest.keys())]
        text = digest(record)
    except (PermissionError, OtherVersion):
        raise
    except (*READ_ERRORS, OSError, RecursionError):
        raise AlteredModel("folder", str(folder), must_be=_FROM_HUB) from None
    if unknown:
        raise _holds_more(unknown, folder, _FROM_HUB)
    if stated != text:
        found = f"{folder}, whose files were altered since: its digest is not that of its content"
        raise AlteredModel("folder", must_be=_FROM_HUB, found=found)
    if not is_complete(record):
        raise AlteredModel("folder", str(folder), must_be=_FROM_HUB)
    return SavedModel(record)


@dataclass(frozen=True)
class LayerNumbers:
    """The numbers by which a head makes outputs of rows."""

    weight: NDArray[Any]
    bias: NDArray[Any] | None
    bound: float
    center: NDArray[Any] | None
    center_bound: float | None
    normalise: bool

    def is_complete(self) -> bool:
        """Whether shapes and types are those of a layer in a file."""
        outputs, width = self.weight.shape
        bounds = (self.bound,) if self.center_bound is None else (self.bound, self.center_bound)
        return (
            self.weight.dtype == np.float32
            and (self.bias is None or _has_entries(self.bias, np.float32, outputs))
            and (self.center is None or _has_entries(self.center, np.float64, width))
            and (self.center is None) == (self.center_bound is None)
            and all(type(one) is float and 0.0 < one < math.inf for one in bounds)
            and type(self.normalise) is bool
        )

    def digest(self) -> str:
        """SHA-256 of all numbers, weights and the centre as float32."""
        arrays = [
            None if one is None else np.ascontiguousarray(one, dtype="<f4")
            for one in (self.weight, self.bias, self.center)
        ]
        named = {
            "shapes": [None if one is None else list(one.shape) for one in arrays],
            "bound": self.bound,
            "center bound": self.center_bound,
            "normalise": self.normalise,
        }
        text = hashlib.sha256(plain_text(named).encode())
        for one in arrays:
            text.update(b"" if one is None else one.tobytes())
        return text.hexdigest()

    def reasons(self, described: Mapping[str, Any]) -> list[str]:
        """Reasons why a certificate belongs to another layer."""
        reasons = []
        if described.get("head") != self.digest():
            reasons.append("it belongs to a layer of other weights, bounds or centre")
        if self.bound != described["features"]["bound"]:
            reasons.append("its bound on rows is not that of the layer")
        stated = [one[PUBLISHED] for one in described["other_releases"] if one["kind"] == MEAN]
        # Tensors in a model may have been rounded since; the digest above has them as float32.
        if (self.center is None) != (not stated) or (
            self.center is not None
            and self.center.dtype == np.float64
            and self.center_bound is not None
            and as_published(Centre(self.center, self.center_bound)) != stated[0]
        ):
            reasons.append("the mean that it states is not the centre of the layer")
        return reasons


def _has_entries(array: NDArray[Any], kind: type, entries: int) -> bool:
    return array.dtype == kind and array.shape == (entries,)


@dataclass(frozen=True)
class SavedHead:
    """A head as `lastiterate.torch.save` wrote it."""

    numbers: LayerNumbers
    name: str
    classes: list[Any]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The head in a folder; raises if the file holds anything else."""
        try:
            file = read_tensors(with_an_end(folder / HEAD).read_bytes())
            tensors, settings = file.tensors, unambiguous_json(file.texts["lastiterate"])
            unknown = [*(file.texts.keys() - {"lastiterate"}), *(settings.keys() - set(_SETTINGS))]
            unknown += [*(tensors.keys() - {"weight", "bias", "center"})]
            unknown += ["spaces"] * (json.dumps(settings) != file.texts["lastiterate"])
            bound, limit, normalise, name, classes = (settings[key] for key in _SETTINGS)
            bias, center = tensors.get("bias"), tensors.get("center")
            numbers = LayerNumbers(tensors["weight"], bias, bound, center, limit, normalise)
            ready = numbers.is_complete() and isinstance(name, str) and isinstance(classes, list)
        except PermissionError:
            raise
        except (*READ_ERRORS, OSError, RecursionError):
            raise AlteredModel("folder", str(folder), must_be=_FROM_TORCH) from None
        if not ready:
            raise AlteredModel("folder", str(folder), must_be=_FROM_TORCH)
        if unknown:
            raise _holds_more(unknown, folder, _FROM_TORCH)
        return cls(numbers, name, classes)

    def metadata(self) -> dict[str, str]:
        """The metadata of the file: everything in it that is no tensor."""
        of = self.numbers
        values = (of.bound, of.center_bound, of.normalise, self.name, self.classes)
        return {"lastiterate": json.dumps(dict(zip(_SETTINGS, values, strict=True)))}

    def encoding(self) -> dict[str, Any]:
        """Which layer of the model it is, and what its outputs stand for."""
        return {"layer": self.name, "classes": self.classes}

    def reasons(self, described: Mapping[str, Any]) -> list[str]:
        """Reasons why a certificate belongs to another head."""
        reasons = self.numbers.reasons(described)
        if described.get("encoding") != encoding_digest(self.encoding()):
            reasons.append("it belongs to a layer of another name or other classes")
        return reasons


def _holds_more(unknown: list[str], folder: Path, must_be: str) -> AlteredModel:
    found = f"{folder}, which holds more: {', '.join(sorted(map(repr, unknown)))}"
    return AlteredModel("folder", must_be=must_be, found=found)

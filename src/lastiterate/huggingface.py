"""Fitted models in the layout of the Hugging Face Hub; needs the extra `huggingface`.

    import lastiterate.huggingface as hub

    hub.save(model, "income-model")      # weights, configuration, card and certificate
    model = hub.load("income-model")     # the certificate is derived again

Nothing is uploaded; the folder is what `huggingface_hub` uploads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lastiterate.errors import MissingExtra

try:
    from safetensors.numpy import save as as_tensors
except ImportError as error:
    raise MissingExtra.of(error, "lastiterate.huggingface", extra="huggingface") from None

from lastiterate._display import as_markdown
from lastiterate._files import sealed, with_an_end
from lastiterate.certificate.verify import read, verified_certificate
from lastiterate.saved_model.file_writing import CERTIFICATE, write_together
from lastiterate.saved_model.load import folder_with, loaded
from lastiterate.saved_model.model_file import SavedModel, digest
from lastiterate.saved_model.save import REMEDY, empty_folder, saved_model_of
from lastiterate.saved_model.weight_files import CONFIG, HUB, HUB_FORMAT, HUB_TENSORS, hub_model

__all__ = ["load", "save"]
CARD = "README.md"
_FILES = (HUB, CONFIG, CARD, CERTIFICATE)
_MUST_BE = "a folder that lastiterate.huggingface.save wrote"


def save(
    model: Any,
    folder: str | Path,
    *,
    license: str | None = None,
    name: str = "A private model",
    overwrite: bool = False,
) -> None:
    """None, after a fitted private model was written as a folder for the Hugging Face Hub.

    The folder holds `model.safetensors`, `config.json`, `certificate.json`, and `README.md`: a
    model card with the privacy statement.

    Parameters
    ----------
    model : estimator or Pipeline
        As for `lastiterate.save`.
    folder : str or Path
        The folder for the files; it is created if it does not exist.
    license : str, optional
        The identifier of a licence, for the card.
    name : str
        The title of the card.
    overwrite : bool
        Whether to replace files that lastiterate wrote; no others are ever replaced.

    Raises
    ------
    InvalidParameter, InvalidType
        As `lastiterate.save`.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import lastiterate.huggingface as hub
    >>> from lastiterate.linear_model import PrivateLogisticRegression
    >>> X = np.random.default_rng(0).normal(size=(2_000, 3))
    >>> model = PrivateLogisticRegression(epsilon=1.0).fit(X, X[:, 0] > 0.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     hub.save(model, folder, license="apache-2.0")
    ...     again = hub.load(folder)
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    saved, certificate = saved_model_of(model)
    where = empty_folder(folder, _FILES, overwrite=overwrite)
    tensors = {
        key: np.array(saved.record[key], dtype=np.float64)
        for key in HUB_TENSORS
        if saved.record[key] is not None
    }
    rest = {key: value for key, value in saved.record.items() if key not in tensors}
    config = {"layout": HUB_FORMAT, "record": rest, "digest": digest(saved.record)}
    write_together(
        "folder",
        where,
        {
            HUB: as_tensors(tensors),
            CONFIG: json.dumps(config, indent=1) + "\n",
            CERTIFICATE: certificate,
            CARD: sealed(_card(saved, certificate, name, license).encode()),
        },
        allowed=overwrite,
        remedy=REMEDY,
    )


def load(folder: str | Path, *, signed_by: str | Path | None = None) -> Any:
    """A fitted model, or pipeline, that predicts as the one that was saved.

    The certificate is derived again, and must be that of these parameters, columns and labels.

    Parameters
    ----------
    folder : str or Path
        The folder that `save` wrote.
    signed_by : str or Path, optional
        A file with a public key (Ed25519), to check that its owner signed the certificate.

    Returns
    -------
    estimator or Pipeline
        The fitted model, or a pipeline that ends in it.

    Raises
    ------
    InvalidCertificate
        If the certificate does not hold, or belongs to another model.
    InvalidParameter
        If the folder holds no such model, or its files were altered or hold more.

    Examples
    --------
    >>> import lastiterate.huggingface as hub
    >>> hub.load("no such folder")
    Traceback (most recent call last):
    ...
    lastiterate.errors.InvalidParameter: folder must be a folder that ...
    """
    where = folder_with(folder, (HUB, CONFIG, CERTIFICATE), _MUST_BE)
    certificate = with_an_end(where / CERTIFICATE).read_text(encoding="utf-8")
    return loaded(hub_model(where), certificate, signed_by)


def _card(saved: SavedModel, certificate: str, name: str, license: str | None) -> str:
    """A model card: front matter, what the model is, and the privacy statement."""
    task = "tabular-regression" if saved.classes is None else "tabular-classification"
    front: dict[str, Any] = {} if license is None else {"license": license}
    front |= {
        "library_name": "lastiterate",
        "pipeline_tag": task,
        "tags": ["differential-privacy", "tabular", saved.record["model"]],
    }
    report = verified_certificate(certificate).report
    guarantee: Mapping[str, Any] = read(certificate)["guarantee"]
    lines = [
        f"# {name}",
        "",
        f"A private {saved.record['model']} model of {len(saved.record['columns'])} columns. "
        f"It predicts {as_markdown(json.dumps(saved.target, ensure_ascii=False))}.",
        "",
        "```python",
        "import lastiterate.huggingface",
        "",
        'model = lastiterate.huggingface.load("this folder")  # derives the certificate again',
        "```",
        "",
        report.statement(delta=guarantee["delta"], format="model-card"),
        "",
        "`certificate.json` holds all numbers that this statement rests on.",
    ]
    matter = "".join(f"{key}: {_yaml(value)}\n" for key, value in front.items())
    return f"---\n{matter}---\n\n" + "\n".join(lines) + "\n"


def _yaml(value: Any) -> str:
    """A text or a list of texts as JSON, with the escapes that YAML knows."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)

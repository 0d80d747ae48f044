"""A private head as files: its weights, and the certificate that belongs to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from lastiterate.accounting import PrivacyReport
from lastiterate.certificate.verify import read
from lastiterate.certificate.verify import verify as verify_certificate
from lastiterate.errors import InvalidCertificate
from lastiterate.saved_model.file_writing import refuse_replacing_in
from lastiterate.torch.bounded_linear import (
    BoundedLinear,
    head_digest,
    linear_layer,
    replace_layer,
)

if TYPE_CHECKING:
    from lastiterate.torch.linear_head import FittedHead

WEIGHTS, CERTIFICATE = "head.safetensors", "certificate.json"


def save(fitted: FittedHead, folder: str | Path) -> None:
    """Write `head.safetensors` and `certificate.json`.

    Parameters
    ----------
    fitted : FittedHead
        The result of `fit_head`.
    folder : str or Path
        Where the files go; it is created if it does not exist.  Files of these names are replaced
        if they are a head's, and refused if they are anything else.

    Examples
    --------
    >>> import os, tempfile, torch
    >>> import lastiterate.torch as lt
    >>> rows = torch.randn(1_000, 4)
    >>> pairs = torch.utils.data.TensorDataset(rows, (rows[:, 0] > 0).long())
    >>> loader = torch.utils.data.DataLoader(pairs, batch_size=500)
    >>> model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Linear(4, 2))
    >>> fitted = lt.fit_head(model, "1", loader, epsilon=1.0, classes=2, feature_bound=3.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lt.save(fitted, folder)
    ...     sorted(os.listdir(folder))
    ['certificate.json', 'head.safetensors']
    """
    head, where = fitted.head, Path(folder)
    refuse_replacing_in("folder", where, (WEIGHTS, CERTIFICATE), allowed=True)
    where.mkdir(parents=True, exist_ok=True)
    tensors = {key: value.cpu().contiguous() for key, value in head.state_dict().items()}
    if head.center is not None:
        tensors["center"] = head.center.cpu()
    settings = {
        "bound": head.bound,
        "center_bound": head.center_bound,
        "normalise": head.normalise,
        "name": fitted.name,
        "classes": fitted.classes_.tolist(),
    }
    save_file(tensors, where / WEIGHTS, metadata={"lastiterate": json.dumps(settings)})
    (where / CERTIFICATE).write_text(fitted.certificate_, encoding="utf-8")


def load(model: nn.Module, folder: str | Path, *, name: str | None = None) -> PrivacyReport:
    """Put a saved head into the model, and return the report that its certificate proves.

    Parameters
    ----------
    model : torch.nn.Module
        The model; its layer is replaced.
    folder : str or Path
        The folder that `save` wrote.
    name : str, optional
        The name of the layer; by default the one that was trained.

    Returns
    -------
    PrivacyReport
        The report, derived again from the certificate.

    Raises
    ------
    InvalidCertificate
        If the certificate does not hold or belongs to other weights.

    Examples
    --------
    >>> import tempfile, torch
    >>> import lastiterate.torch as lt
    >>> rows = torch.randn(1_000, 4)
    >>> pairs = torch.utils.data.TensorDataset(rows, (rows[:, 0] > 0).long())
    >>> loader = torch.utils.data.DataLoader(pairs, batch_size=500)
    >>> model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Linear(4, 2))
    >>> fitted = lt.fit_head(model, "1", loader, epsilon=1.0, classes=2, feature_bound=3.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lt.save(fitted, folder)
    ...     lt.load(model, folder).epsilon(1e-5) <= 1.0
    True
    """
    with safe_open(str(Path(folder) / WEIGHTS), framework="pt") as file:
        settings = json.loads(file.metadata()["lastiterate"])
        tensors: dict[str, Any] = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - no dict
    outputs, width = tensors["weight"].shape
    head = BoundedLinear(
        width,
        outputs,
        bias="bias" in tensors,
        bound=settings["bound"],
        center=tensors.pop("center", None),
        center_bound=settings["center_bound"],
        normalise=settings["normalise"],
    )
    head.load_state_dict(tensors)
    report = _verified(head, Path(folder) / CERTIFICATE)
    layer = settings["name"] if name is None else name
    old = linear_layer(model, layer)
    replace_layer(model, layer, head.to(old.weight.device).requires_grad_(False).eval())
    return report


def verify(model: nn.Module, name: str, certificate: str | Path) -> PrivacyReport:
    """The report that the certificate proves for the layer `name`.

    Everything in the certificate is derived again, and the layer's weights, as float32, must be
    those that it was issued for.

    Parameters
    ----------
    model : torch.nn.Module
        The model.
    name : str
        The name of the layer.
    certificate : str or Path
        The certificate, as text or as a file.

    Returns
    -------
    PrivacyReport
        The report.

    Raises
    ------
    InvalidCertificate
        If the certificate does not hold or belongs to other weights.

    Examples
    --------
    >>> import torch
    >>> import lastiterate.torch as lt
    >>> rows = torch.randn(1_000, 4)
    >>> pairs = torch.utils.data.TensorDataset(rows, (rows[:, 0] > 0).long())
    >>> loader = torch.utils.data.DataLoader(pairs, batch_size=500)
    >>> model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Linear(4, 2))
    >>> fitted = lt.fit_head(model, "1", loader, epsilon=1.0, classes=2, feature_bound=3.0)
    >>> lt.verify(model, "1", fitted.certificate_).epsilon(1e-5) <= 1.0
    True
    """
    return _verified(linear_layer(model, name), certificate)


def _verified(head: nn.Linear, certificate: str | Path) -> PrivacyReport:
    report = verify_certificate(certificate)
    if read(certificate).get("head") != head_digest(head):
        raise InvalidCertificate(["it belongs to a layer of other weights"])
    return report

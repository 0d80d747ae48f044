"""A private head as files: its weights, and the certificate that belongs to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.numpy import save as as_tensors
from torch import nn

from lastiterate._files import with_an_end
from lastiterate.accounting import PrivacyReport
from lastiterate.certificate.verify import READ_ERRORS, read
from lastiterate.certificate.verify import verify as verify_certificate
from lastiterate.errors import InvalidCertificate, InvalidParameter
from lastiterate.features.known_maps import FEATURE_MAPS, map_of
from lastiterate.saved_model.file_writing import CERTIFICATE, refuse_replacing_in, write_together
from lastiterate.saved_model.weight_files import HEAD, SavedHead
from lastiterate.torch.bounded_linear import (
    BoundedLinear,
    layer_numbers,
    linear_layer,
    replace_layer,
)
from lastiterate.torch.feature_layer import FeatureLayer

if TYPE_CHECKING:
    from lastiterate.torch.linear_head import FittedHead


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
    refuse_replacing_in("folder", Path(folder), (HEAD, CERTIFICATE), allowed=True)
    saved = fitted.as_saved()
    if reasons := saved.reasons(read(fitted.certificate_)):
        must_be = "as it was trained: save a head before the model is cast or trained further"
        raise InvalidParameter("fitted", must_be=must_be, found=f"another layer: {reasons[0]}")
    arrays = {
        "weight": saved.numbers.weight,
        "bias": saved.numbers.bias,
        "center": saved.numbers.center,
    }
    tensors = {key: one for key, one in arrays.items() if one is not None}
    weights = as_tensors(tensors, metadata=saved.metadata())
    texts = {HEAD: weights, CERTIFICATE: fitted.certificate_}
    write_together("folder", Path(folder), texts, allowed=True)


def load(model: nn.Module, folder: str | Path, *, name: str | None = None) -> PrivacyReport:
    """Put a saved head into the model, and return the report that its certificate proves.

    Everything in the file is part of a digest of the certificate: weights, bounds, centre, classes
    and the name of the layer.  A `FeatureLayer` that the certificate names must be in the model.

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
        If the certificate does not hold or belongs to another layer.
    InvalidParameter
        If the folder holds no saved head, or its file holds more.

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
    saved = SavedHead.read(Path(folder))
    certificate = with_an_end(Path(folder) / CERTIFICATE).read_text(encoding="utf-8")
    report = _verified(model, certificate, saved.reasons)
    numbers, layer = saved.numbers, saved.name if name is None else name
    outputs, width = numbers.weight.shape
    head = BoundedLinear(
        width,
        outputs,
        bias=numbers.bias is not None,
        bound=numbers.bound,
        center=None if numbers.center is None else torch.from_numpy(numbers.center),
        center_bound=numbers.center_bound,
        normalise=numbers.normalise,
    )
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(numbers.weight))
        if numbers.bias is not None:
            head.bias.copy_(torch.from_numpy(numbers.bias))
    old = linear_layer(model, layer)
    if old.in_features != width:
        must_be = f"that of a layer with {width} inputs, as the head has"
        raise InvalidParameter("name", layer, must_be=must_be, found=f"{old.in_features} inputs")
    replace_layer(model, layer, head.to(old.weight.device).requires_grad_(False).eval())
    return report


def verify(model: nn.Module, name: str, certificate: str | Path) -> PrivacyReport:
    """The report that the certificate proves for the layer `name`.

    Everything in the certificate is derived again, and the layer must be the one that it was issued
    for: its weights as float32, its bounds and its centre; and so must a `FeatureLayer` that it
    names.  The layer does not know its classes: their order is checked by `load`.

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
        If the certificate does not hold or belongs to another layer.

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
    layer = linear_layer(model, name)
    hooks = layer._forward_hooks or layer._forward_pre_hooks
    if type(layer) is not BoundedLinear or "forward" in vars(layer) or hooks:
        why = (
            "it belongs to a BoundedLinear without hooks, and the layer does not bound rows as in "
        )
        raise InvalidCertificate([f"{why}training"])
    return _verified(model, certificate, layer_numbers(layer).reasons)


def _verified(
    model: nn.Module, certificate: str | Path, wrong: Callable[[Mapping[str, Any]], list[str]]
) -> PrivacyReport:
    report = verify_certificate(certificate)
    described = read(certificate)
    try:
        reasons = wrong(described)
    except READ_ERRORS as error:  # a certificate of another kind of model
        raise InvalidCertificate([f"it is not that of a head ({error!r})"]) from error
    for stated in described.get(FEATURE_MAPS, ()):
        columns = map_of(stated).input_width
        layers = [one for one in model.modules() if isinstance(one, FeatureLayer)]
        if not any(one.transformer.feature_map(columns).as_record() == stated for one in layers):
            reasons = [*reasons, "it is of features that no FeatureLayer of the model computes"]
    if reasons:
        raise InvalidCertificate(reasons)
    return report

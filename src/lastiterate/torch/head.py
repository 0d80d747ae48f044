"""A private linear head: a layer of a frozen model, trained by the certified trainer; its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save as as_tensors
from torch import nn
from torch.utils.data import DataLoader

from lastiterate import _check
from lastiterate._files import with_an_end
from lastiterate.accounting import PrivacyReport
from lastiterate.certificate.issue import tied_to_head
from lastiterate.certificate.verify import READ_ERRORS, read
from lastiterate.certificate.verify import verify as verify_certificate
from lastiterate.errors import InvalidCertificate, InvalidParameter, InvalidType
from lastiterate.features.known_maps import FEATURE_MAPS, map_of
from lastiterate.saved_model.file_writing import CERTIFICATE, refuse_replacing_in, write_together
from lastiterate.saved_model.weight_files import HEAD, SavedHead
from lastiterate.torch.features import IN_MEMORY, extract_features
from lastiterate.torch.layers import (
    FEATURES,
    NAMED_BOUNDS,
    BoundedLinear,
    BoundingLayer,
    FeatureLayer,
    layer_numbers,
    linear_layer,
    replace_layer,
)

_UNSUPPORTED = {
    "label_smoothing": "the loss takes no smoothed labels",
    "weight": "class weights scale what an example can reveal",
    "sample_weight": "a weight scales what an example can reveal",
}


@dataclass(frozen=True, eq=False)
class FittedHead:
    """The result of `fit_head`: the trained layer, now in the model, and its certificate.

    Parameters
    ----------
    name : str
        The name of the layer in the model.
    head : BoundedLinear
        The trained layer.
    estimator : PrivateLogisticRegression
        The fitted estimator.
    certificate_ : str
        The certificate, tied to the weights of the layer.

    Examples
    --------
    >>> import torch
    >>> import lastiterate.torch as lt
    >>> rows = torch.randn(1_000, 4)
    >>> pairs = torch.utils.data.TensorDataset(rows, (rows[:, 0] > 0).long())
    >>> loader = torch.utils.data.DataLoader(pairs, batch_size=500)
    >>> model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Linear(4, 2))
    >>> fitted = lt.fit_head(model, "1", loader, epsilon=1.0, classes=2, feature_bound=3.0)
    >>> fitted.name, fitted.classes_.tolist(), fitted.privacy_.epsilon(1e-5) <= 1.0
    ('1', [0, 1], True)
    """

    name: str
    head: BoundedLinear
    estimator: Any
    certificate_: str

    @property
    def privacy_(self) -> PrivacyReport:
        """The privacy report on exactly the training that ran."""
        report: PrivacyReport = self.estimator.privacy_
        return report

    @property
    def classes_(self) -> NDArray[Any]:
        """The label of each output, in order."""
        classes: NDArray[Any] = self.estimator.classes_
        return classes

    def as_saved(self) -> SavedHead:
        """The layer as its file has it.

        Returns
        -------
        SavedHead
            Its numbers, its name and its classes.

        Examples
        --------
        >>> import torch
        >>> import lastiterate.torch as lt
        >>> rows = torch.randn(1_000, 4)
        >>> pairs = torch.utils.data.TensorDataset(rows, (rows[:, 0] > 0).long())
        >>> loader = torch.utils.data.DataLoader(pairs, batch_size=500)
        >>> model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Linear(4, 2))
        >>> fitted = lt.fit_head(model, "1", loader, epsilon=1.0, classes=2, feature_bound=3.0)
        >>> fitted.as_saved().encoding()
        {'layer': '1', 'classes': [0, 1]}
        """
        # A model that was cast has rounded its centre too.
        numbers = replace(layer_numbers(self.head), center=self.estimator.center_)
        return SavedHead(numbers, self.name, self.classes_.tolist())


def fit_head(
    model: nn.Module,
    name: str,
    loader: DataLoader[Any],
    *,
    epsilon: float | None = 1.0,
    delta: float = 1e-5,
    classes: Any,
    feature_bound: float | str | None = None,
    labels: str = "labels",
    device: Any = None,
    memory: int = IN_MEMORY,
    path: str | Path | None = None,
    progress: bool = False,
    one_by_one: bool = False,
    **settings: Any,
) -> FittedHead:
    """Train the linear layer `name` of a frozen model privately, and put it into the model.

    Parameters
    ----------
    model, name, loader, labels, device, memory, path, progress, one_by_one
        As for `features`.  The backbone must not have been trained on the same data.
    epsilon, delta : float
        The target.
    classes : sequence or int
        The labels, in the order of the outputs; they are published.  A number stands for the
        labels from 0 to below it.
    feature_bound : float or {"layernorm", "tanh", "features", "normalise"}, optional
        The norm that longer rows are scaled down to, which must not come from the data; or the
        layer right before the head that bounds them; or "normalise", to give every row length 1.
        May be left out if the model has a `FeatureLayer`, and is "features" then.
    **settings
        Settings of `lastiterate.linear_model.PrivateLogisticRegression`: `batches`, `l2`, ..

    Returns
    -------
    FittedHead
        The trained layer, with `privacy_` and `certificate_`.

    Raises
    ------
    InvalidParameter, InvalidType
        If a setting, the loader or the labels cannot be used.

    Examples
    --------
    >>> import tempfile, torch
    >>> import lastiterate.torch as lt
    >>> rows = torch.randn(2_000, 4)
    >>> pairs = torch.utils.data.TensorDataset(rows, (rows[:, 0] > 0).long())
    >>> loader = torch.utils.data.DataLoader(pairs, batch_size=500)
    >>> model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Linear(4, 2))
    >>> fitted = lt.fit_head(model, "1", loader, epsilon=1.0, classes=2, feature_bound=3.0)
    >>> fitted.privacy_.epsilon(1e-5) <= 1.0
    True
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lt.save(fitted, folder)
    ...     report = lt.load(model, folder)
    ...     same = lt.verify(model, "1", f"{folder}/certificate.json")
    >>> report.epsilon(1e-5) == same.epsilon(1e-5) <= 1.0
    True
    """
    from lastiterate.linear_model.classifiers import PrivateLogisticRegression

    for word in settings.keys() & _UNSUPPORTED.keys():
        raise InvalidType(word, settings[word], must_be=f"left out: {_UNSUPPORTED[word]}")
    old = linear_layer(model, name)
    known = _labels(classes)
    _refuse_other_outputs(old, len(known))
    _refuse_other_code(name, old)
    settings.setdefault("fit_intercept", old.bias is not None)
    if settings["fit_intercept"] and old.bias is None:
        must_be = "False: the layer has no bias"
        raise InvalidParameter("fit_intercept", True, must_be=must_be)
    if feature_bound is None:
        if not any(isinstance(one, FeatureLayer) for one in model.modules()):
            must_be = f"given, as a number or one of {list(NAMED_BOUNDS)}, as no FeatureLayer is"
            raise InvalidParameter("feature_bound", None, must_be=f"{must_be} in the model")
        feature_bound = FEATURES
    normalise = feature_bound == "normalise"
    bounding_layer = None
    if isinstance(feature_bound, str):
        _check.choice("feature_bound", feature_bound, among=NAMED_BOUNDS)
        bounding_layer = None if normalise else BoundingLayer(model, feature_bound)
    try:
        rows, targets = extract_features(
            model,
            name,
            loader,
            labels=labels,
            device=device,
            memory=memory,
            path=path,
            normalise=normalise,
            progress=progress,
            one_by_one=one_by_one,
            bounding_layer=bounding_layer,
            to_replace=True,
        )
    finally:
        if bounding_layer is not None:
            bounding_layer.close()
    bound = _bound(feature_bound, bounding_layer, old.in_features)
    try:
        estimator = PrivateLogisticRegression(
            epsilon=epsilon, delta=delta, classes=known, feature_bound=bound, **settings
        ).fit(rows, targets)
    finally:
        if path is None and isinstance(rows, np.memmap):
            file = Path(str(rows.filename))
            del rows  # some systems delete no file that is open
            file.unlink()
    head = as_layer(estimator, like=old, normalise=normalise)
    replace_layer(model, name, head)
    maps = [] if bounding_layer is None else bounding_layer.feature_maps()
    fitted = FittedHead(name, head, estimator, "")
    saved = fitted.as_saved()
    certificate = tied_to_head(
        estimator.certificate_, saved.numbers.digest(), saved.encoding(), maps
    )
    return replace(fitted, certificate_=certificate)


def _labels(classes: Any) -> list[Any]:
    """The labels, in order."""
    if isinstance(classes, (int, np.integer)):
        return list(range(_check.count("classes", classes, at_least=2)))
    must_be = "a sequence of at least two labels, or how many there are"
    try:
        return sorted(classes)
    except TypeError:
        raise InvalidType("classes", classes, must_be=must_be) from None


def as_layer(estimator: Any, *, like: nn.Linear, normalise: bool = False) -> BoundedLinear:
    """The parameters of an estimator as a layer with the outputs of `like`."""
    coef, intercept = np.atleast_2d(estimator.coef_), np.atleast_1d(estimator.intercept_)
    if len(coef) == 1 and like.out_features == 2:
        # One logit is the difference of two.
        coef, intercept = np.vstack([-coef, coef]) / 2.0, np.append(-intercept, intercept) / 2.0
    center = estimator.center_
    layer = BoundedLinear(
        like.in_features,
        like.out_features,
        bias=like.bias is not None,
        bound=estimator.feature_bound_,
        center=None if center is None else torch.from_numpy(np.asarray(center)),
        center_bound=estimator.center_bound_,
        normalise=normalise,
    )
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(coef))
        if layer.bias is not None:
            layer.bias.copy_(torch.from_numpy(intercept))
    layer.to(like.weight.device).requires_grad_(False).eval()
    return layer


def _bound(stated: float | str, bounding_layer: BoundingLayer | None, width: int) -> float:
    if not isinstance(stated, str):
        return _check.number("feature_bound", stated, above=0.0)
    return 1.0 if bounding_layer is None else bounding_layer.bound(width)


def _refuse_other_code(name: str, head: nn.Linear) -> None:
    """Refuse a layer that does more than a linear one, which the private one would not do."""
    plain = type(head).forward in (nn.Linear.forward, BoundedLinear.forward)
    hooks = [*head._forward_hooks.values(), *head._forward_pre_hooks.values()]
    others = [one for one in hooks if not _is_watch(one)]
    if not plain or "forward" in vars(head) or others:
        must_be = (
            "the name of a torch.nn.Linear without hooks and with no forward of its own, which "
        )
        must_be += "the private layer in its place would not have"
        raise InvalidParameter("name", name, must_be=must_be)


def _is_watch(hook: Any) -> bool:
    """Whether it is a hook of ours, which changes nothing: one that an accountant left."""
    return type(getattr(hook, "__self__", None)).__module__.startswith("lastiterate.")


def _refuse_other_outputs(head: nn.Linear, classes: int) -> None:
    fitting = {classes} | ({1} if classes == 2 else set())
    if head.out_features not in fitting:
        must_be = f"as many as the outputs of the layer, {head.out_features}"
        raise InvalidParameter("classes", must_be=must_be, found=f"{classes}")


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
    report = _verify_model(model, certificate, saved.reasons)
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
    return _verify_model(model, certificate, layer_numbers(layer).reasons)


def _verify_model(
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

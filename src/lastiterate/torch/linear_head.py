"""A private linear head: features of a frozen model, the certified trainer, and back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import DataLoader

from lastiterate import _check
from lastiterate.accounting import PrivacyReport
from lastiterate.certificate.issue import tied_to_head
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.torch.bounded_linear import (
    WORDS,
    BoundedLinear,
    FedBy,
    head_digest,
    linear_named,
    put_in_place,
)
from lastiterate.torch.features import IN_MEMORY, taken

_NOT_TAKEN = {
    "label_smoothing": "the trainer's loss is of the labels as they are",
    "weight": "class weights scale what an example can reveal",
    "sample_weight": "a weight scales what an example can reveal",
}


@dataclass(frozen=True, eq=False)
class FittedHead:
    """The result of `fit_head`: the trained layer, now in the model, and its certificate."""

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


def fit_head(
    model: nn.Module,
    name: str,
    loader: DataLoader[Any],
    *,
    epsilon: float | None = 1.0,
    delta: float = 1e-5,
    classes: Any,
    feature_bound: float | str,
    labels: str = "labels",
    device: Any = None,
    memory: int = IN_MEMORY,
    path: str | Path | None = None,
    progress: bool = False,
    **settings: Any,
) -> FittedHead:
    """Train the linear layer `name` of a frozen model privately, and put it into the model.

    Parameters
    ----------
    model, name, loader, labels, device, memory, path, progress
        As of `features`.  The backbone must not have been trained on the same data.
    epsilon, delta : float
        The target.
    classes : sequence or int
        The labels, sorted as outputs are to be; they are published.  A number stands for the
        labels from 0 to below it.
    feature_bound : float or {"layernorm", "tanh", "normalise"}
        The norm that longer rows are scaled down to, which must not come from the data; or the
        layer right before the head that bounds them; or "normalise", to give every row length 1.
    **settings
        Of `lastiterate.linear_model.PrivateLogisticRegression`: `batches`, `l2`, `epochs`, ..
    """
    from lastiterate.linear_model import PrivateLogisticRegression  # needs scikit-learn

    for word in settings.keys() & _NOT_TAKEN.keys():
        raise InvalidType(word, settings[word], must_be=f"left out: {_NOT_TAKEN[word]}")
    old = linear_named(model, name)
    known = _labels(classes)
    _refuse_other_outputs(old, len(known))
    settings.setdefault("fit_intercept", old.bias is not None)
    if settings["fit_intercept"] and old.bias is None:
        must_be = "False: the layer has no bias"
        raise InvalidParameter("fit_intercept", True, must_be=must_be)
    normalise = feature_bound == "normalise"
    fed_by = None
    if isinstance(feature_bound, str):
        _check.choice("feature_bound", feature_bound, among=WORDS)
        fed_by = None if normalise else FedBy(model, feature_bound)
    try:
        rows, targets = taken(
            model,
            name,
            loader,
            labels=labels,
            device=device,
            memory=memory,
            path=path,
            normalise=normalise,
            progress=progress,
            fed_by=fed_by,
        )
    finally:
        if fed_by is not None:
            fed_by.close()
    bound = _bound(feature_bound, fed_by, old.in_features)
    estimator = PrivateLogisticRegression(
        epsilon=epsilon, delta=delta, classes=known, feature_bound=bound, **settings
    ).fit(rows, targets)
    head = as_layer(estimator, like=old, normalise=normalise)
    put_in_place(model, name, head)
    return FittedHead(
        name, head, estimator, tied_to_head(estimator.certificate_, head_digest(head))
    )


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
    """The model that an estimator learnt, as a layer with as many outputs."""
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


def _bound(stated: float | str, fed_by: FedBy | None, width: int) -> float:
    if not isinstance(stated, str):
        return _check.number("feature_bound", stated, above=0.0)
    return 1.0 if fed_by is None else fed_by.bound(width)


def _refuse_other_outputs(head: nn.Linear, classes: int) -> None:
    fitting = {classes} | ({1} if classes == 2 else set())
    if head.out_features not in fitting:
        must_be = f"as many as the outputs of the layer, {head.out_features}"
        raise InvalidParameter("classes", must_be=must_be, found=f"{classes}")

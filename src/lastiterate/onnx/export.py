"""Export of a fitted model, with the steps before it, as an ONNX file."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto

from lastiterate import _check
from lastiterate._files import refuse_replacing, write_whole
from lastiterate.onnx.graph import Graph
from lastiterate.onnx.step_nodes import step_nodes
from lastiterate.saved_model.model_file import SavedModel, labels_in
from lastiterate.saved_model.save_model import saved_model_of

_KINDS = {"float64": TensorProto.DOUBLE, "float32": TensorProto.FLOAT}
_SEAL = "sha256 of the rest"
_LABELS = {"b": TensorProto.BOOL, "i": TensorProto.INT64, "u": TensorProto.INT64}
_LABELS |= {"f": TensorProto.DOUBLE, "U": TensorProto.STRING, "O": TensorProto.STRING}


def export(model: Any, path: str | Path, *, dtype: str = "float64") -> None:
    """None, after a fitted private model was written as an ONNX file.

    The input is `rows`.  Outputs are `label`, `scores` and, for a logistic regression,
    `probabilities`; or `prediction`.  Rows are scaled, mapped to features and brought within their
    bounds as in training, all in double precision.  The certificate goes along as the property
    "certificate" of the file.

    Parameters
    ----------
    model : estimator or Pipeline
        A fitted private model, alone or as the last step of a pipeline after PrivateScalers,
        PublicBins, RandomFourierFeatures and QuadraticSketches.  A pipeline with a PrivateSchema
        or Scattering2D is refused: export the steps behind it, for rows as it gives them.
    path : str or Path
        The file; one that is there is replaced if it is such a model, unedited, and refused if
        it is not.
    dtype : {"float64", "float32"}
        The type of the input.

    Raises
    ------
    InvalidParameter, InvalidType
        If the model is not fitted, was changed since, or has steps that are not exported.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import lastiterate.onnx
    >>> from lastiterate.linear_model import PrivateLogisticRegression
    >>> X = np.random.default_rng(0).normal(size=(2_000, 3))
    >>> model = PrivateLogisticRegression(epsilon=1.0).fit(X, X[:, 0] > 0.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lastiterate.onnx.export(model, f"{folder}/model.onnx")
    """
    kind = _KINDS[_check.choice("dtype", dtype, among=tuple(_KINDS))]
    refuse_replacing("path", path, is_exported)
    saved, certificate = saved_model_of(model)
    graph = Graph()
    rows = "rows"
    if dtype == "float32":
        rows = graph.node("Cast", rows, to=TensorProto.DOUBLE)
    for step in saved.steps:
        rows = step_nodes(graph, step, rows)
    _publish(graph, saved, _outputs(graph, saved, rows))
    exported = graph.model(kind, saved.encoder.width, {"certificate": certificate})
    exported.metadata_props.add(key=_SEAL, value=_digest(exported))
    write_whole("path", Path(path), exported.SerializeToString(), is_exported)


def is_exported(content: bytes) -> bool:
    """Whether this is a model of ours that nobody has edited: its last property is its digest."""
    model = ModelProto()
    try:
        model.ParseFromString(content)
        seal = model.metadata_props.pop()
    except (DecodeError, IndexError):
        return False
    return bool(seal.key == _SEAL and seal.value == _digest(model))


def _digest(model: Any) -> str:
    return sha256(model.SerializeToString(deterministic=True)).hexdigest()


def _outputs(graph: Graph, saved: SavedModel, rows: str) -> str:
    """The linear outputs, one column each; rows are bounded as in training."""
    coef = np.atleast_2d(np.array(saved.record["coef"]))
    intercept = np.array(saved.record["intercept"])
    rows = graph.within(rows, saved.record["feature_bound"])
    if saved.centre is not None:
        rows = graph.node("Sub", rows, graph.constant(saved.centre.mean))
        rows = graph.within(rows, saved.centre.bound)
        intercept = intercept + saved.centre.outputs(coef)
    products = graph.node("MatMul", rows, graph.constant(coef.T))
    return graph.node("Add", products, graph.constant(intercept))


def _publish(graph: Graph, saved: SavedModel, outputs: str) -> None:
    labels = labels_in(saved.record)
    if labels is None:
        flat = graph.node("Reshape", outputs, graph.constant([-1]))
        graph.output("prediction", flat, TensorProto.DOUBLE)
        return
    two = len(labels) == 2
    scores = graph.node("Reshape", outputs, graph.constant([-1])) if two else outputs
    if two:
        above = graph.node("Greater", scores, graph.constant(0.0))
        which = graph.node("Cast", above, to=TensorProto.INT64)
    else:
        which = graph.node("ArgMax", scores, axis=1, keepdims=0)
    label = graph.node("Gather", graph.constant(labels), which)
    graph.output("label", label, _LABELS[labels.dtype.kind])
    graph.output("scores", scores, TensorProto.DOUBLE, *([] if two else [len(labels)]))
    if saved.record["model"] != "logistic":
        return
    if two:
        second = graph.node("Sigmoid", outputs)
        first = graph.node("Sub", graph.constant(1.0), second)
        shares = graph.node("Concat", first, second, axis=1)
    else:
        shares = graph.node("Softmax", scores, axis=1)
    graph.output("probabilities", shares, TensorProto.DOUBLE, len(labels))

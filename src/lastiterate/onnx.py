"""Fitted models as ONNX files, which predict without this library."""

from __future__ import annotations

import math
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from lastiterate import _check
from lastiterate._files import refuse_replacing, write_whole
from lastiterate.errors import InvalidParameter, MissingExtra
from lastiterate.features.known_maps import map_of
from lastiterate.features.maps import (
    LARGEST_ENTRY,
    LARGEST_SCALED_ENTRY,
    BinsMap,
    FeatureMap,
    FourierMap,
    QuadraticMap,
    cells_and_signs,
    directions,
    share_of_norm,
)
from lastiterate.saved_model.model_file import FeatureStep, SavedModel, ScalerStep, Step, labels_in
from lastiterate.saved_model.save import saved_model_of

try:
    from google.protobuf.message import DecodeError
    from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
except ImportError as error:
    raise MissingExtra.of(error, "lastiterate.onnx", extra="onnx") from error

__all__ = ["export"]

# Operators of this version take axes as inputs and double precision throughout.
_OPERATORS, _FORMAT = 20, 9
_SEAL = "sha256 of the rest"
_KINDS = {"float64": TensorProto.DOUBLE, "float32": TensorProto.FLOAT}
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
    rows = graph.scale_to_norm(rows, saved.record["feature_bound"])
    if saved.centre is not None:
        rows = graph.node("Sub", rows, graph.constant(saved.centre.mean))
        rows = graph.scale_to_norm(rows, saved.centre.bound)
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


class Graph:
    """Operators of ONNX in double precision; a value is named by the text that a method returns."""

    def __init__(self) -> None:
        self._nodes: list[NodeProto] = []
        self._constants: list[TensorProto] = []
        self._outputs: list[Any] = []

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """The name of the result of an operator."""
        name = f"{operator}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def constant(self, value: Any) -> str:
        """The name of a constant: numbers in double precision, counts, truth values or text."""
        array = np.asarray(value)
        if array.dtype.kind == "f":
            array = array.astype(np.float64)
        elif array.dtype.kind in "iu":
            array = array.astype(np.int64)
        elif array.dtype.kind in "UO":
            array = array.astype(object)
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def lengths(self, rows: str) -> str:
        """The Euclidean norms of rows, as a column; large entries do not overflow."""
        axis = self.constant([1])
        largest = self.node("ReduceMax", self.node("Abs", rows), axis, keepdims=1)
        scale = self.node("Max", largest, self.constant(1.0))
        parts = self.node("Div", rows, scale)
        return self.node("Mul", scale, self.node("ReduceL2", parts, axis, keepdims=1))

    def scale_to_norm(self, rows: str, bound: float) -> str:
        """The rows, those that are longer than the bound scaled down to it."""
        limit = self.constant(float(bound))
        factors = self.node("Div", limit, self.node("Max", self.lengths(rows), limit))
        return self.node("Mul", rows, factors)

    def output(self, name: str, value: str, kind: int, *shape: Any) -> None:
        """Publish a value under a name."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, kind, ["examples", *shape]))

    def model(self, kind: int, columns: int, texts: dict[str, str]) -> Any:
        """The ONNX model of rows with this many columns; it has `texts` as metadata."""
        rows = helper.make_tensor_value_info("rows", kind, ["examples", columns])
        graph = helper.make_graph(
            self._nodes, "lastiterate", [rows], self._outputs, initializer=self._constants
        )
        model = helper.make_model(
            graph,
            producer_name="lastiterate",
            opset_imports=[helper.make_opsetid("", _OPERATORS)],
            ir_version=_FORMAT,
        )
        helper.set_model_props(model, texts)
        return model


# Steps before a model as nodes of a graph: scaled rows and fixed features.


def step_nodes(graph: Graph, step: Step, rows: str) -> str:
    """The rows after a step; `InvalidParameter` if ONNX has no form of it here."""
    if isinstance(step, ScalerStep):
        return _scale_rows(graph, step, rows)
    if isinstance(step, FeatureStep):
        mapped = map_of(step.map)
        nodes = _MAPS.get(type(mapped))
        if nodes is not None:
            # As the library gives them, which a linear model may magnify.
            single = graph.node("Cast", nodes(graph, mapped, rows), to=TensorProto.FLOAT)
            return graph.node("Cast", single, to=TensorProto.DOUBLE)
    name = getattr(step, "map", {}).get("kind", "schema")
    must_be = (
        f"without the step {step.name} ({name}), which is not exported: export(pipeline[k:], ..) "
        "writes the steps behind it, for rows as it gives them"
    )
    raise InvalidParameter("model", must_be=must_be, found="a pipeline with it")


def _scale_rows(graph: Graph, step: ScalerStep, rows: str) -> str:
    if step.low is not None and step.high is not None:
        low, high = np.array(step.low), np.array(step.high)
        rows = graph.node(
            "Div", graph.node("Sub", rows, graph.constant(low)), graph.constant(high - low)
        )
        doubled = graph.node("Mul", rows, graph.constant(2.0))
        one = graph.constant(1.0)
        rows = graph.node("Clip", graph.node("Sub", doubled, one), graph.constant(-1.0), one)
    return graph.scale_to_norm(rows, step.bound)


def _without_huge_entries(graph: Graph, rows: str, largest: float) -> str:
    """A row with a larger entry is scaled down to this one."""
    limit = graph.constant(largest)
    found = graph.node("ReduceMax", graph.node("Abs", rows), graph.constant([1]), keepdims=1)
    factors = graph.node("Div", limit, graph.node("Max", found, limit))
    return graph.node("Mul", rows, factors)


def _fourier(graph: Graph, mapped: FourierMap, rows: str) -> str:
    half = (mapped.components + 1) // 2
    rows = _without_huge_entries(graph, rows, LARGEST_ENTRY)
    # One table: onnxruntime rounds a factor of a product of matrices to single precision.
    factor = math.sqrt(2.0 * mapped.gamma)
    random = factor * directions(mapped.columns, half, mapped.seed)
    phases = graph.node("MatMul", rows, graph.constant(random))
    ends = [graph.constant([one]) for one in (0, mapped.components - half, 1)]
    sines = graph.node("Sin", graph.node("Slice", phases, *ends))
    features = graph.node("Concat", graph.node("Cos", phases), sines, axis=1)
    return graph.node("Mul", features, graph.constant(share_of_norm(half)))


def _quadratic(graph: Graph, mapped: QuadraticMap, rows: str) -> str:
    """Sketches, multiplied as Fourier transforms, which have a real and an imaginary part."""
    count = mapped.components
    scaled = _without_huge_entries(graph, rows, LARGEST_SCALED_ENTRY)
    scaled = graph.node("Div", scaled, graph.constant(mapped.input_bound))
    scaled = graph.scale_to_norm(scaled, 1.0)
    parts = []
    for cells, signs in cells_and_signs(mapped.columns + 1, count, mapped.seed):
        table = np.zeros((mapped.columns + 1, count))
        table[np.arange(mapped.columns + 1), cells] = signs
        # The last column of every row is 1.
        counted = graph.node("MatMul", scaled, graph.constant(table[:-1]))
        counted = graph.node("Add", counted, graph.constant(table[-1]))
        column = graph.node("Unsqueeze", counted, graph.constant([2]))
        axis = graph.constant(np.int64(1))
        found = graph.node("DFT", column, "", axis)
        parts.append([graph.node("Gather", found, graph.constant(k), axis=2) for k in (0, 1)])
    (a, b), (c, d) = parts
    real = graph.node("Sub", graph.node("Mul", a, c), graph.node("Mul", b, d))
    imaginary = graph.node("Add", graph.node("Mul", a, d), graph.node("Mul", b, c))
    last = graph.constant([2])
    both = [graph.node("Unsqueeze", one, last) for one in (real, imaginary)]
    spectrum = graph.node("Concat", *both, axis=2)
    back = graph.node("DFT", spectrum, "", graph.constant(np.int64(1)), inverse=1)
    sketch = graph.node("Gather", back, graph.constant(0), axis=2)
    sketch = graph.node("Mul", sketch, graph.constant(0.5))  # the square of 1/sqrt(2)
    return graph.node("Mul", graph.scale_to_norm(sketch, 1.0), graph.constant(share_of_norm(1)))


def _bins(graph: Graph, mapped: BinsMap, rows: str) -> str:
    column = graph.node("Unsqueeze", rows, graph.constant([2]))
    reached = graph.node("GreaterOrEqual", column, graph.constant(np.array(mapped.cuts)))
    counts = graph.node("Cast", reached, to=TensorProto.INT64)
    which = graph.node("ReduceSum", counts, graph.constant([2]), keepdims=0)
    share = float(np.float32(share_of_norm(mapped.input_width)))
    depth, values = graph.constant(mapped.bins), graph.constant([0, 1])
    bins = graph.node("OneHot", which, depth, values, axis=2)
    bins = graph.node("Cast", bins, to=TensorProto.DOUBLE)
    bins = graph.node("Mul", bins, graph.constant(share))
    return graph.node("Reshape", bins, graph.constant([-1, mapped.width]))


_MAPS: dict[type[FeatureMap], Callable[..., str]] = {
    FourierMap: _fourier,
    QuadraticMap: _quadratic,
    BinsMap: _bins,
}

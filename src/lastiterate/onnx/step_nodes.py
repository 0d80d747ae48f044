"""Steps before a model as nodes of a graph: scaled rows and fixed features."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from lastiterate.errors import InvalidParameter
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
from lastiterate.onnx.graph import Graph
from lastiterate.saved_model.pipeline_steps import FeatureStep, ScalerStep, Step


def step_nodes(graph: Graph, step: Step, rows: str) -> str:
    """The rows after a step; `InvalidParameter` if ONNX has no form of it here."""
    if isinstance(step, ScalerStep):
        return _scaled(graph, step, rows)
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


def _scaled(graph: Graph, step: ScalerStep, rows: str) -> str:
    if step.low is not None and step.high is not None:
        low, high = np.array(step.low), np.array(step.high)
        rows = graph.node(
            "Div", graph.node("Sub", rows, graph.constant(low)), graph.constant(high - low)
        )
        doubled = graph.node("Mul", rows, graph.constant(2.0))
        one = graph.constant(1.0)
        rows = graph.node("Clip", graph.node("Sub", doubled, one), graph.constant(-1.0), one)
    return graph.within(rows, step.bound)


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
    scaled = graph.within(scaled, 1.0)
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
    return graph.node("Mul", graph.within(sketch, 1.0), graph.constant(share_of_norm(1)))


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

"""A graph of ONNX operators that is written node by node, in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

# Operators of this version take axes as inputs and double precision throughout.
_OPERATORS, _FORMAT = 20, 9


class Graph:
    """Nodes, constants and outputs; every value is named by the text that a method returns."""

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

    def within(self, rows: str, bound: float) -> str:
        """The rows, those that are longer than the bound scaled down to it."""
        limit = self.constant(float(bound))
        factors = self.node("Div", limit, self.node("Max", self.lengths(rows), limit))
        return self.node("Mul", rows, factors)

    def output(self, name: str, value: str, kind: int, *shape: Any) -> None:
        """Publish a value under a name."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, kind, ["examples", *shape]))

    def model(self, kind: int, columns: int, texts: dict[str, str]) -> Any:
        """The whole as a model of rows with so many columns; `texts` go with it."""
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

"""Write small ONNX graphs: nodes named by a prefix, constants in every encoding a model may use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ELEMENT = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "float64": TensorProto.DOUBLE,
    "int64": TensorProto.INT64,
}


@dataclass
class Writer:
    """Collects the nodes and initializers of one graph; `encode` says how a constant is written."""

    prefix: str = ""
    dtype: str = "float32"
    encode: str = "initializer []"
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[TensorProto] = field(default_factory=list)

    def name(self, hint: str) -> str:
        """Give a name that this graph does not have."""
        return f"{self.prefix}.{hint}{len(self.nodes) + len(self.initializers)}"

    def node(self, op: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node with one output and give the output's name; the node is `OUTPUT_node`."""
        output = output or self.name(op.lower())
        node = helper.make_node(op, inputs, [output], name=f"{output}_node", **attributes)
        self.nodes.append(node)
        return output

    def stored(self, value: float, shape: Sequence[int] = (), dtype: str = "") -> str:
        """Add an initializer that holds one value everywhere and give its name."""
        array = np.full(tuple(shape), value, dtype or self.dtype)
        self.initializers.append(numpy_helper.from_array(array, self.name("c")))
        return self.initializers[-1].name

    def const(self, value: float) -> str:
        """Add a constant in the encoding of this writer and give its name."""
        return ENCODINGS[self.encode](self, value)


Encoding = Callable[[Writer, float], str]


def initializer(*shape: int) -> Encoding:
    """Encode as initializer of `shape`."""
    return lambda w, value: w.stored(value, shape)


def constant_node(*shape: int) -> Encoding:
    """Encode as Constant node with a tensor of `shape`."""

    def encode(w: Writer, value: float) -> str:
        array = np.full(shape, value, w.dtype)
        return w.node("Constant", value=numpy_helper.from_array(array))

    return encode


def cast_from(dtype: str) -> Encoding:
    """Encode as Cast of an initializer of another dtype."""
    return lambda w, value: w.node("Cast", w.stored(value, dtype=dtype), to=ELEMENT[w.dtype])


ENCODINGS: dict[str, Encoding] = {
    "initializer []": initializer(),
    "initializer [1]": initializer(1),
    "initializer [1,1,1]": initializer(1, 1, 1),
    "Constant value []": constant_node(),
    "Constant value [1]": constant_node(1),
    "Constant value_float": lambda w, value: w.node("Constant", value_float=value),
    "Constant value_floats": lambda w, value: w.node("Constant", value_floats=[value]),
    "Identity of initializer": lambda w, value: w.node("Identity", w.stored(value)),
    "Identity of Constant": lambda w, value: w.node("Identity", constant_node()(w, value)),
    "Cast from float64": cast_from("float64"),
    "CastLike": lambda w, value: w.node(
        "CastLike", w.stored(value, dtype="float64"), w.stored(0.0)
    ),
    "Sqrt": lambda w, value: w.node("Sqrt", w.stored(value * value)),
    "Reciprocal": lambda w, value: w.node("Reciprocal", w.stored(1 / value)),
    "Neg": lambda w, value: w.node("Neg", w.stored(-value)),
    "Add": lambda w, value: w.node("Add", w.stored(value - 0.25), w.stored(0.25)),
    "Sub": lambda w, value: w.node("Sub", w.stored(value + 0.5), w.stored(0.5)),
    "Mul": lambda w, value: w.node("Mul", w.stored(value / 2), w.stored(2.0)),
    "Div": lambda w, value: w.node("Div", w.stored(value * 4), w.stored(4.0)),
    "Pow": lambda w, value: w.node("Pow", w.stored(value**0.5), w.stored(2.0)),
    "Cast of Constant through Identity": lambda w, value: w.node(
        "Identity",
        w.node(
            "Cast",
            w.node("Constant", value=numpy_helper.from_array(np.array(value, np.float64))),
            to=ELEMENT[w.dtype],
        ),
    ),
}


def tensor(
    name: str, dims: Sequence[str | int | None], dtype: str = "float32"
) -> onnx.ValueInfoProto:
    """Describe a graph input or output."""
    return helper.make_tensor_value_info(name, ELEMENT[dtype], list(dims))


def graph_of(
    writer: Writer,
    name: str,
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
) -> onnx.GraphProto:
    """Make a graph of what was written."""
    return helper.make_graph(writer.nodes, name, inputs, outputs, writer.initializers)


def model_of(
    graph: onnx.GraphProto,
    *,
    opset: int = 18,
    ir_version: int = 8,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """Make a model of a graph and check that it is valid."""
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(domain, 1) for domain in domains]
    model = helper.make_model(
        graph, opset_imports=imports, ir_version=ir_version, functions=functions
    )
    onnx.checker.check_model(model)
    return model

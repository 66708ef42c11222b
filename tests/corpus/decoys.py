"""What looks like GELU and is not, and what is GELU although something of it is used elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import numpy_helper

from tests.corpus.gelu import DIMS, ROOT, Part
from tests.corpus.written import Writer, graph_of, model_of, tensor


def gelu_like(
    w: Writer,
    x: str = "x",
    *,
    root: float = ROOT,
    one: float = 1.0,
    half: float = 0.5,
    inner: str = "",
    outer: str = "",
    last: str = "",
    function: str = "Erf",
    divide: str = "Div",
    plus: str = "Add",
) -> str:
    """Write GELU with any part of it changed: a constant, an operand or an op."""
    value = w.node(function, w.node(divide, inner or x, w.const(root)))
    product = w.node("Mul", outer or x, w.node(plus, value, w.const(one)))
    return w.node("Mul", product, last or w.const(half))


DECOYS: dict[str, Part] = {
    "1.5 for sqrt(2)": lambda w, x: gelu_like(w, x, root=1.5),
    "1.41 for sqrt(2)": lambda w, x: gelu_like(w, x, root=1.41),
    "0.4 for 0.5": lambda w, x: gelu_like(w, x, half=0.4),
    "2 for 1": lambda w, x: gelu_like(w, x, one=2.0),
    "another variable inside erf": lambda w, x: gelu_like(w, x, inner="other"),
    "another variable as factor": lambda w, x: gelu_like(w, x, outer="other"),
    "a variable for 0.5": lambda w, x: gelu_like(w, x, last="other"),
    "Tanh for Erf": lambda w, x: gelu_like(w, x, function="Tanh"),
    "x * sqrt(2) for x / sqrt(2)": lambda w, x: gelu_like(w, x, divide="Mul"),
    "erf - 1 for erf + 1": lambda w, x: gelu_like(w, x, plus="Sub"),
    "half missing": lambda w, x: w.node(
        "Mul", x, w.node("Add", w.node("Erf", w.node("Div", x, w.const(ROOT))), w.const(1.0))
    ),
    "erf turned round": lambda w, x: w.node(
        "Mul", w.node("Mul", x, w.const(0.5)), w.node("Sub", w.const(1.0), erf_of(w, x))
    ),
    "sqrt(2) over x": lambda w, x: w.node(
        "Mul",
        w.node("Mul", x, w.const(0.5)),
        w.node("Add", w.node("Erf", w.node("Div", w.const(ROOT), x)), w.const(1.0)),
    ),
    "constant of many values": lambda w, x: gelu_like(w, x, last=slope(w)),
}
"""Parts that no GELU rule may match; they read `x` and `other`."""


def erf_of(w: Writer, x: str) -> str:
    """Write erf(x / sqrt(2))."""
    return w.node("Erf", w.node("Div", x, w.const(ROOT)))


def slope(w: Writer) -> str:
    """Add a constant whose values differ, 0.5 the first of them."""
    array = np.linspace(0.5, 1.5, DIMS[2], dtype=w.dtype)
    w.initializers.append(numpy_helper.from_array(array, w.name("slope")))
    return w.initializers[-1].name


def decoys(names: list[str]) -> onnx.ModelProto:
    """Write the named decoys side by side, each to its own output."""
    everything, outputs = Writer(), []
    for index, name in enumerate(names):
        one = Writer(prefix=f"decoy{index}")
        one.node("Identity", DECOYS[name](one, "x"), output=f"y{index}")
        everything.nodes += one.nodes
        everything.initializers += one.initializers
        outputs.append(tensor(f"y{index}", DIMS))
    inputs = [tensor("x", DIMS), tensor("other", DIMS)]
    return model_of(graph_of(everything, "decoys", inputs, outputs))


def plain(
    *,
    opset: int = 18,
    ir_version: int = 8,
    also_inputs: tuple[int, ...] = (),
    also_outputs: tuple[str, ...] = (),
    more: Callable[[Writer], None] | None = None,
    dims: tuple[str | int, ...] = DIMS,
    encode: str = "initializer []",
) -> onnx.ModelProto:
    """Write one GELU; `also_inputs` are constants that a caller may override, by their index.

    `also_outputs` are op types whose results become graph outputs; `more` adds further nodes, whose
    last result becomes one.
    """
    w = Writer(prefix="gelu", encode=encode)
    w.node("Identity", gelu_like(w), output="y")
    outputs = [tensor("y", dims)]
    outputs += [tensor(node.output[0], dims) for node in w.nodes if node.op_type in also_outputs]
    if more:
        more(w)
        outputs.append(tensor(w.nodes[-1].output[0], dims))
    inputs = [tensor("x", dims)]
    inputs += [tensor(w.initializers[index].name, ()) for index in also_inputs]
    return model_of(graph_of(w, "plain", inputs, outputs), opset=opset, ir_version=ir_version)


def inner_value_used(op: str) -> onnx.ModelProto:
    """Write one GELU whose inner result of `op` another node reads."""

    def read(w: Writer) -> None:
        (inner,) = (node.output[0] for node in w.nodes if node.op_type == op)
        w.node("Tanh", inner)

    return plain(more=read)


def in_a_longer_product() -> onnx.ModelProto:
    """Write GELU times 0.25: GELU is a factor of the product, and a value of the graph."""
    w = Writer(prefix="longer")
    w.node("Mul", w.const(0.25), gelu_like(w), output="y")
    return model_of(graph_of(w, "longer", [tensor("x", DIMS)], [tensor("y", DIMS)]))


def two_that_share_erf() -> onnx.ModelProto:
    """Write two GELUs of one x around one Erf; both are sites, and the Erf goes with them."""
    w = Writer(prefix="shared")
    sums = [w.node("Add", erf, w.const(1.0)) for erf in [erf_of(w, "x")] * 2]
    for index, total in enumerate(sums):
        product = w.node("Mul", "x", total)
        w.node("Mul", product, w.const(0.5), output=f"y{index}")
    outputs = [tensor("y0", DIMS), tensor("y1", DIMS)]
    return model_of(graph_of(w, "shared", [tensor("x", DIMS)], outputs))


def duplicate_names() -> onnx.ModelProto:
    """Write two GELUs whose nodes all have the same name, or none."""
    first, second = Writer(prefix="a"), Writer(prefix="b")
    first.node("Identity", gelu_like(first, "x"), output="y0")
    second.node("Identity", gelu_like(second, "x"), output="y1")
    for node in first.nodes:
        node.name = "same"
    for node in second.nodes:
        node.name = ""
    first.nodes += second.nodes
    first.initializers += second.initializers
    outputs = [tensor("y0", DIMS), tensor("y1", DIMS)]
    return model_of(graph_of(first, "names", [tensor("x", DIMS)], outputs))

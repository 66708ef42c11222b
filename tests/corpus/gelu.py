"""GELU by the error function in every form that a model may write it in, and what only looks so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import onnx
from onnx import helper

from tests.corpus.written import ENCODINGS, Writer, graph_of, model_of, tensor

ROOT = 2**0.5
DIMS = ("batch", 4, 8)
Part = Callable[[Writer, str], str]


def mul(w: Writer, left: str, right: str, turned: bool) -> str:
    """Multiply in the given or the other order."""
    return w.node("Mul", right, left) if turned else w.node("Mul", left, right)


ARGUMENTS: dict[str, Part] = {
    "x/sqrt2": lambda w, x: w.node("Div", x, w.const(ROOT)),
    "x*rsqrt2": lambda w, x: w.node("Mul", x, w.const(1 / ROOT)),
    "rsqrt2*x": lambda w, x: w.node("Mul", w.const(1 / ROOT), x),
}

SUMS: dict[str, Part] = {
    "erf+1": lambda w, e: w.node("Add", e, w.const(1.0)),
    "1+erf": lambda w, e: w.node("Add", w.const(1.0), e),
    "erf-(-1)": lambda w, e: w.node("Sub", e, w.const(-1.0)),
    "Sum(erf,1)": lambda w, e: w.node("Sum", e, w.const(1.0)),
}


def halved(w: Writer, value: str, how: str) -> str:
    """Take half of a value: times 0.5 on either side, or divided by 2."""
    if how == "/2":
        return w.node("Div", value, w.const(2.0))
    return mul(w, value, w.const(0.5), how == "0.5*")


Product = Callable[[Writer, str, str], str]

PLACES_OF_HALF: dict[str, Callable[[Writer, str, str, bool, str], str]] = {
    "last": lambda w, x, s, turned, how: halved(w, mul(w, x, s, turned), how),
    "first": lambda w, x, s, turned, how: mul(w, halved(w, x, how), s, turned),
    "inside": lambda w, x, s, turned, how: mul(w, x, halved(w, s, how), turned),
}


def products() -> Iterator[tuple[str, Product]]:
    """Give every order of the three factors, the half at every place."""
    for (place, written), turned, how in product(
        PLACES_OF_HALF.items(), (False, True), ("*0.5", "0.5*", "/2")
    ):
        yield f"half {place} {how} turned={turned}", partial_product(written, turned, how)


def partial_product(
    written: Callable[[Writer, str, str, bool, str], str], turned: bool, how: str
) -> Product:
    """Fix the order and the way of halving."""
    return lambda w, x, s: written(w, x, s, turned, how)


def spread(w: Writer, x: str, argument: str) -> str:
    """Write x * (0.5 + 0.5 * erf(...)): the half is inside the sum, twice."""
    scaled = w.node("Mul", w.const(0.5), w.node("Erf", argument))
    return w.node("Mul", x, w.node("Add", w.const(0.5), scaled))


def spread_turned(w: Writer, x: str, argument: str) -> str:
    """Write the same with every operand on the other side."""
    scaled = w.node("Mul", w.node("Erf", argument), w.const(0.5))
    return w.node("Mul", w.node("Add", scaled, w.const(0.5)), x)


def negated(w: Writer, x: str, argument: str) -> str:
    """Write -(x * -0.5 * (1 + erf(...))): the signs cancel."""
    inner = w.node("Add", w.node("Erf", argument), w.const(1.0))
    return w.node("Neg", w.node("Mul", w.node("Mul", x, w.const(-0.5)), inner))


def whole(before: Part, after: Part, last: Product) -> Part:
    """Put the argument of erf, the sum and the product together."""
    return lambda w, x: last(w, x, after(w, w.node("Erf", before(w, x))))


def with_argument(write: Callable[[Writer, str, str], str], before: Part) -> Part:
    """Fix how the argument of erf is written."""
    return lambda w, x: write(w, x, before(w, x))


def forms() -> dict[str, Part]:
    """Give every form: a function of a writer and x to the name of the result."""
    found: dict[str, Part] = {}
    for (argument, before), (plus, after), (order, last) in product(
        ARGUMENTS.items(), SUMS.items(), products()
    ):
        found[f"{argument}; {plus}; {order}"] = whole(before, after, last)
    for argument, before in ARGUMENTS.items():
        found[f"{argument}; 0.5+0.5*erf"] = with_argument(spread, before)
        found[f"{argument}; 0.5*erf+0.5"] = with_argument(spread_turned, before)
        found[f"{argument}; signs cancel"] = with_argument(negated, before)
    return found


EXPORTED: dict[str, Part] = {
    "dynamo": lambda w, x: mul(
        w,
        x,
        mul(w, w.const(0.5), SUMS["erf+1"](w, w.node("Erf", ARGUMENTS["x/sqrt2"](w, x))), False),
        False,
    ),
    "torchscript": lambda w, x: mul(
        w,
        mul(w, x, SUMS["erf+1"](w, w.node("Erf", ARGUMENTS["x/sqrt2"](w, x))), False),
        w.const(0.5),
        False,
    ),
}
"""The two forms that PyTorch's exporters write, for the axes that are not about the form."""


def side_by_side(
    parts: dict[str, Part],
    *,
    dtype: str = "float32",
    encode: str = "initializer []",
    opset: int = 18,
    ir_version: int = 8,
) -> onnx.ModelProto:
    """Write each form on the same input, each to an output `y0`, `y1`, … in order."""
    everything = Writer(dtype=dtype)
    outputs = []
    for index, part in enumerate(parts.values()):
        one = Writer(prefix=f"form{index}", dtype=dtype, encode=encode)
        one.node("Identity", part(one, "x"), output=f"y{index}")
        everything.nodes += one.nodes
        everything.initializers += one.initializers
        outputs.append(tensor(f"y{index}", DIMS, dtype))
    graph = graph_of(everything, "forms", [tensor("x", DIMS, dtype)], outputs)
    return model_of(graph, opset=opset, ir_version=ir_version)


def encodings() -> Iterator[str]:
    """Give the name of every encoding of a constant."""
    yield from ENCODINGS


def body_of(w: Writer, name: str, result: str) -> onnx.GraphProto:
    """Make a branch that returns `result`."""
    return graph_of(w, name, [], [tensor(result, DIMS)])


def in_branches(outer_constants: bool) -> onnx.ModelProto:
    """Put one exporter's form in each branch of an If, constants inside or outside of it."""
    main = Writer(prefix="main")
    bodies = {}
    for branch, part in zip(("then_branch", "else_branch"), EXPORTED.values(), strict=True):
        w = Writer(prefix=branch)
        if outer_constants:
            w.const = main.const  # type: ignore[method-assign]
        bodies[branch] = body_of(w, branch, part(w, "x"))
    main.node("If", "flag", output="y", **bodies)
    flag = helper.make_tensor_value_info("flag", onnx.TensorProto.BOOL, [])
    graph = graph_of(main, "main", [tensor("x", DIMS), flag], [tensor("y", DIMS)])
    return model_of(graph)


def in_nested_branches() -> onnx.ModelProto:
    """Put a form two Ifs deep, with its x and constants from the main graph."""
    main = Writer(prefix="main")
    deep, middle = Writer(prefix="deep"), Writer(prefix="middle")
    deep.const = main.const  # type: ignore[method-assign]
    inner = body_of(deep, "deep", EXPORTED["dynamo"](deep, "x"))
    plain = Writer(prefix="plain")
    other = body_of(plain, "plain", plain.node("Tanh", "x"))
    chosen = middle.node("If", "flag", then_branch=inner, else_branch=other)
    outside = Writer(prefix="outside")
    copy = body_of(outside, "outside", outside.node("Identity", "x"))
    main.node(
        "If", "flag", output="y", then_branch=body_of(middle, "middle", chosen), else_branch=copy
    )
    flag = helper.make_tensor_value_info("flag", onnx.TensorProto.BOOL, [])
    graph = graph_of(main, "main", [tensor("x", DIMS), flag], [tensor("y", DIMS)])
    return model_of(graph)


def in_loop() -> onnx.ModelProto:
    """Put a form in a Loop's body, on its carried state, with one constant from outside."""
    main, body = Writer(prefix="main"), Writer(prefix="body")
    outer = main.stored(0.5)
    erf = body.node("Erf", body.node("Div", "state", body.const(ROOT)))
    total = body.node("Mul", body.node("Add", erf, body.const(1.0)), "state")
    body.node("Mul", total, outer, output="state_out")
    body.node("Identity", "go", output="go_out")
    boolean = onnx.TensorProto.BOOL
    inner = graph_of(
        body,
        "body",
        [
            helper.make_tensor_value_info("round", onnx.TensorProto.INT64, []),
            helper.make_tensor_value_info("go", boolean, []),
            tensor("state", DIMS),
        ],
        [helper.make_tensor_value_info("go_out", boolean, []), tensor("state_out", DIMS)],
    )
    rounds = main.stored(3, dtype="int64")
    main.node("Loop", rounds, "", "x", output="y", body=inner)
    return model_of(graph_of(main, "main", [tensor("x", DIMS)], [tensor("y", DIMS)]))


def in_function() -> onnx.ModelProto:
    """Put a form in a model-local function that is called twice, with ranks 3 and 2."""
    w = Writer(prefix="inner", encode="Constant value []")
    result = EXPORTED["torchscript"](w, "x")
    function = helper.make_function(
        "local", "Act", ["x"], [result], w.nodes, [helper.make_opsetid("", 18)]
    )
    main = Writer(prefix="main")
    for x, y in (("x", "y"), ("flat", "y_flat")):
        main.nodes.append(helper.make_node("Act", [x], [y], name=f"call_{x}", domain="local"))
    flat = ("batch", 8)
    inputs = [tensor("x", DIMS), tensor("flat", flat)]
    graph = graph_of(main, "main", inputs, [tensor("y", DIMS), tensor("y_flat", flat)])
    return model_of(graph, functions=[function], domains=["local"])


PLACES: dict[str, tuple[Callable[[], onnx.ModelProto], int]] = {
    "If, constants inside": (lambda: in_branches(outer_constants=False), 2),
    "If, constants outside": (lambda: in_branches(outer_constants=True), 2),
    "If in If": (in_nested_branches, 1),
    "Loop": (in_loop, 1),
    "function": (in_function, 1),
}
"""Models with GELU elsewhere than in the main graph, and their number of sites."""

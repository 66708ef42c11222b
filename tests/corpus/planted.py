"""Random graphs with known patterns planted in them, and some that are wrong by one detail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import onnx
from hypothesis import strategies as st
from onnx import helper

from tests.corpus.gelu import ROOT, forms
from tests.corpus.written import Writer, graph_of, model_of, tensor

DIMS = ("batch", 4)
RULES = """
[[op]]
name = "acme::gelu"
body = "0.5 * x * (1 + erf(x / sqrt(2)))"

[[op]]
name = "acme::silu"
body = "x * sigmoid(x)"

[[op]]
name = "acme::hardswish"
body = "x * clamp(x + 3, 0, 6) / 6"

[[rule]]
name    = "gelu"
replace = "0.5 * x * (1 + erf(x / sqrt(2)))"
with    = "acme::gelu(x)"
expect  = ">=0"

[[rule]]
name    = "silu"
replace = "x * sigmoid(x)"
with    = "acme::silu(x)"
expect  = ">=0"

[[rule]]
name    = "hardswish"
replace = "x * clamp(x + 3, 0, 6) / 6"
with    = "acme::hardswish(x)"
expect  = ">=0"
"""
FORMS = list(forms().values())


def clip(w: Writer, x: str, low: float, high: float) -> str:
    """Write Clip with its bounds as inputs."""
    return w.node("Clip", x, w.const(low), w.const(high))


def hardswish(w: Writer, x: str, form: int, y: str = "", top: float = 6.0) -> str:
    """Write hard-swish with its division at one of three places; `y` replaces the inner x."""
    relu6 = clip(w, w.node("Add", y or x, w.const(3.0)), 0.0, top)
    if form % 3 == 0:
        return w.node("Div", w.node("Mul", x, relu6), w.const(6.0))
    if form % 3 == 1:
        return w.node("Mul", w.node("Div", relu6, w.const(6.0)), x)
    return w.node("Mul", w.node("Mul", w.const(1 / 6), x), relu6)


def silu(w: Writer, x: str, form: int, y: str = "") -> str:
    """Write SiLU in either order; `y` replaces the x of the sigmoid."""
    gate = w.node("Sigmoid", y or x)
    return w.node("Mul", gate, x) if form % 2 else w.node("Mul", x, gate)


def wrong_gelu(w: Writer, x: str, form: int, y: str) -> str:
    """Write what is not GELU: another constant, another sign, or another variable inside."""
    root, plus = (1.5 if form % 3 == 0 else ROOT), ("Sub" if form % 3 == 1 else "Add")
    erf = w.node("Erf", w.node("Div", y if form % 3 == 2 else x, w.const(root)))
    return w.node("Mul", w.node("Mul", x, w.node(plus, erf, w.const(1.0))), w.const(0.5))


RIGHT: dict[str, Callable[[Writer, str, int], str]] = {
    "gelu": lambda w, x, form: FORMS[form % len(FORMS)](w, x),
    "silu": silu,
    "hardswish": hardswish,
}
WRONG: tuple[Callable[[Writer, str, int, str], str], ...] = (
    wrong_gelu,
    lambda w, x, form, y: silu(w, x, form, y),
    lambda w, x, form, y: hardswish(w, x, form, y),
    lambda w, x, form, y: hardswish(w, x, form, top=5.0),
)


@dataclass(frozen=True)
class Planted:
    """One pattern: its rule, the value it reads, the value it gives, and its nodes' outputs."""

    rule: str
    x: str
    result: str
    inner: frozenset[str]


@dataclass
class Case:
    """A model, what was planted in it, and the background: every value no pattern made."""

    model: onnx.ModelProto
    planted: list[Planted]
    background: list[bytes]
    place: str
    read_inside: set[str] = field(default_factory=set)


@dataclass
class Growing:
    """A graph while it is drawn: its writer, values to read, and inner values of patterns."""

    w: Writer
    pool: list[str]
    inner: list[str] = field(default_factory=list)
    planted: list[Planted] = field(default_factory=list)
    background: list[str] = field(default_factory=list)
    read_inside: set[str] = field(default_factory=set)


def grow(draw: st.DrawFn, g: Growing) -> None:
    """Add a pattern, a wrong pattern, or background, reading any earlier value."""
    kind = draw(st.integers(0, 7))
    x, form = draw(st.sampled_from(g.pool)), draw(st.integers(0, 10_000))
    before = len(g.w.nodes)
    if kind <= 2:
        rule = draw(st.sampled_from(sorted(RIGHT)))
        result = RIGHT[rule](g.w, x, form)
        inner = {node.output[0] for node in g.w.nodes[before:]} - {result}
        g.planted.append(Planted(rule, x, result, frozenset(inner)))
        g.inner += sorted(value for value in inner if "constant" not in value)
        g.pool.append(result)
        return
    if kind == 3:
        others = [value for value in g.pool if value != x]
        made = draw(st.sampled_from(WRONG))(g.w, x, form, draw(st.sampled_from(others)))
    elif kind == 4 and g.inner:
        value = draw(st.sampled_from(g.inner))
        g.read_inside.add(value)
        made = g.w.node("Tanh", value)
    elif kind == 5:
        made = g.w.node("Mul", x, g.w.node("Tanh", draw(st.sampled_from(g.pool))))
    elif kind == 6:
        made = g.w.node(draw(st.sampled_from(["Relu", "Neg", "Tanh"])), x)
    else:
        made = g.w.node(draw(st.sampled_from(["Add", "Sub"])), x, draw(st.sampled_from(g.pool)))
    g.background += [node.output[0] for node in g.w.nodes[before:]]
    g.pool.append(made)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a graph of up to fourteen parts, in the main graph, a branch or a function."""
    place: str = draw(st.sampled_from(["main", "branch", "function"]))
    encodings = ["Constant value []", "Constant value_float", "Constant value [1]"]
    if place != "function":
        encodings += ["initializer []", "initializer [1]", "Identity of initializer"]
    g = Growing(Writer("v", encode=draw(st.sampled_from(encodings))), ["a", "b"])
    for _ in range(draw(st.integers(1, 14))):
        grow(draw, g)
    read = {value for node in g.w.nodes for value in node.input}
    results = [value for value in g.pool[2:] if value not in read]
    if g.inner and draw(st.integers(0, 1)):
        results.append(draw(st.sampled_from(g.inner)))
        g.read_inside.add(results[-1])
    model = placed(place, g.w, results)
    kept = set(g.background)
    background = [
        node.SerializeToString(deterministic=True) for node in g.w.nodes if node.output[0] in kept
    ]
    return Case(model, g.planted, background, place, g.read_inside)


def placed(place: str, w: Writer, results: list[str]) -> onnx.ModelProto:
    """Put what was written where `place` says, its results as the model's outputs."""
    inputs, outputs = [tensor("a", DIMS), tensor("b", DIMS)], [tensor(r, DIMS) for r in results]
    if place == "main":
        return model_of(graph_of(w, "main", inputs, outputs))
    ends = [tensor(f"out.{r}", DIMS) for r in results]
    names = [value.name for value in ends]
    if place == "function":
        imports = [helper.make_opsetid("", 18)]
        function = helper.make_function("local", "F", ["a", "b"], results, w.nodes, imports)
        call = helper.make_node("F", ["a", "b"], names, "call", domain="local")
        graph = helper.make_graph([call], "main", inputs, ends)
        return model_of(graph, functions=[function], domains=["local"])
    flag = helper.make_tensor_value_info("flag", onnx.TensorProto.BOOL, [])
    other = Writer("other")
    copies = [other.node("Identity", "a") for _ in results]
    choose = helper.make_node(
        "If",
        ["flag"],
        names,
        "choose",
        then_branch=graph_of(w, "then", [], outputs),
        else_branch=graph_of(other, "else", [], [tensor(copy, DIMS) for copy in copies]),
    )
    return model_of(helper.make_graph([choose], "main", [*inputs, flag], ends))


def region_of(model: onnx.ModelProto, place: str) -> list[onnx.NodeProto]:
    """List the nodes of the region where the patterns were planted."""
    if place == "main":
        return list(model.graph.node)
    if place == "function":
        (function,) = (f for f in model.functions if f.domain == "local")
        return list(function.node)
    branches = {a.name: a.g for a in model.graph.node[0].attribute}
    return list(branches["then_branch"].node)

"""What a second tester found in the rule language, and random equations in random written forms."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from oprep.converters.cuts import OPENED, cuts
from oprep.converters.frontends.onnx_graph import OnnxGraph
from oprep.converters.state import State
from tests.converters.test_language import TWO, count, model, rule, same
from tests.corpus.converting import converted
from tests.corpus.running import Arrays, run_all

ONE = "(float[4] x) => (float[4] z)"
WITH_BOTH = "(Tensor x, Tensor y) -> Tensor"


def scalar(op: str, value: float) -> onnx.ModelProto:
    """Write `relu(x) OP value`, the value as an initializer: it may be inf."""
    proto = model(f"{ONE} <float c = {{1.0}}> {{ r = Relu(x) z = {op}(r, c) }}")
    made = numpy_helper.from_array(np.array(value, np.float32), "c")
    proto.graph.initializer[0].CopyFrom(made)
    return proto


def affine(slope: float, offset: float) -> onnx.ModelProto:
    """Write `relu(x) * slope + offset`."""
    return model(
        f"{ONE} <float a = {{{slope}}}, float b = {{{offset}}}>"
        "{ r = Relu(x) m = Mul(r, a) z = Add(m, b) }"
    )


# --- false matches ----------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-1e4, 0.0, 3e38, float("inf")])
def test_minus_infinity_is_no_other_number(value: float) -> None:
    proto = model("(bool[4] m, float[4] x) => (float[4] z) <float c = {1.0}> { z = Where(m, c, x)}")
    made = numpy_helper.from_array(np.array(value, np.float32), "c")
    proto.graph.initializer[0].CopyFrom(made)
    schema = "(Tensor m, Tensor x) -> Tensor"
    assert count(proto, rule("where(m, -inf, x)", "acme::f(m, x)", schema=schema)) == 0


@pytest.mark.parametrize(
    ("op", "value", "pattern"),
    [
        ("Add", 7.0, "relu(x) + inf"),
        ("Add", float("-inf"), "relu(x) + inf"),
        ("Max", 7.0, "maximum(relu(x), -inf)"),
    ],
)
def test_infinity_in_arithmetic_is_no_other_number(op: str, value: float, pattern: str) -> None:
    assert count(scalar(op, value), rule(pattern)) == 0


@pytest.mark.parametrize("pattern", ["leaky_relu(x, inf)", "LeakyRelu(x, alpha=inf)"])
def test_infinity_is_no_other_attribute(pattern: str) -> None:
    proto = model(f"{ONE} {{ z = LeakyRelu<alpha = 0.3>(x) }}")
    assert count(proto, rule(pattern, body="x")) == 0


@pytest.mark.parametrize(
    ("pattern", "value"),
    [("relu(x) + 1.702 + 1000", 1001.9), ("relu(x) + 1.000 + 1000000", 1000400.0)],
)
def test_the_last_digit_of_a_small_literal_does_not_widen_a_large_one(
    pattern: str, value: float
) -> None:
    assert count(scalar("Add", value), rule(pattern)) == 0


@pytest.mark.parametrize(
    ("slope", "offset", "pattern"),
    [
        (1.702, 3.0005, "1.702 * relu(x) + 3"),
        (3.0005, 1.702, "3 * relu(x) + 1.702"),
        (0.20004, 0.1667, "0.2 * relu(x) + 0.1667"),
    ],
)
def test_an_exact_literal_stays_exact_beside_a_rounded_one(
    slope: float, offset: float, pattern: str
) -> None:
    assert count(affine(slope, offset), rule(pattern)) == 0


@pytest.mark.parametrize(
    ("nodes", "pattern", "value"),
    [
        ("a = Abs(x) m = Mul(a, k) z = Add(m, y)", "abs(x) * 9007199254740993 + y", 2**53),
        ("a = Max(x, k) z = Add(a, y)", "maximum(x, -9223372036854775807) + y", -(2**63) + 2),
    ],
)
def test_large_integers_are_compared_as_integers(nodes: str, pattern: str, value: int) -> None:
    head = f"(int64[4] x, int64[4] y) => (int64[4] z) <int64 k = {{{value}}}>"
    text = rule(pattern, "acme::f(x, y)", schema=WITH_BOTH)
    assert count(model(f"{head} {{ {nodes} }}"), text) == 0


# --- what ends in a traceback or an artifact that does not load -----------------------------------


@pytest.mark.parametrize(
    ("nodes", "pattern", "into"),
    [
        ("r = Relu(x) m = Mul(r, o) z = Add(m, k)", "relu(x) + c", "acme::f(x, c)"),
        ("r = Relu(x) z = Mul(r, o)", "relu(x) / c", "acme::f(x, c)"),
        (
            "r = Relu(x) a = Mul(x, o) b = Mul(r, o) s = Add(a, b) e = Exp(x) z = Div(e, s)",
            "exp(x) / (x + relu(x))",
            "acme::f(x)",
        ),
    ],
    ids=["offset", "coefficient", "denominator"],
)
def test_a_factor_of_zero_in_the_graph_is_no_traceback(nodes: str, pattern: str, into: str) -> None:
    proto = model(f"{ONE} <float o = {{0.0}}, float k = {{5.0}}> {{ {nodes} }}")
    count(proto, rule(pattern, into))


@pytest.mark.parametrize(
    ("nodes", "pattern"),
    [
        ("r = Relu(x) a = Mul(r, t) z = Mul(a, t)", "relu(x) * 2"),
        (
            "r = Relu(x) a = Mul(r, h) b = Mul(x, h) s = Add(a, b) z = Mul(s, s)",
            "(relu(x) + x) ** 2 * 2",
        ),
        ("r = Relu(x) z = Mul(r, t)", "relu(x) * inf"),
    ],
    ids=["underflow", "overflow", "inf"],
)
def test_constants_whose_product_leaves_the_doubles_are_no_traceback(
    nodes: str, pattern: str
) -> None:
    head = "(double[4] x) => (double[4] z) <double t = {1e-200}, double h = {1e200}>"
    count(model(f"{head} {{ {nodes} }}"), rule(pattern))


def test_the_body_of_an_integer_division_loads() -> None:
    proto = model(
        "(int64[4] x, int64[4] y) => (int64[4] z) <int64 t = {2}>"
        "{ a = Abs(x) d = Div(a, t) z = Add(d, y) }"
    )
    pattern = "div(abs(x), 2, rounding_mode='trunc') + y"
    feeds: Arrays = {"x": np.array([5, -3, 0, 8]), "y": np.array([1, 2, 3, 4])}
    assert same(proto, rule(pattern, "acme::f(x, y)"), feeds).matches == 1


# --- false misses -----------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["x // y", "floor_divide(x, y)"])
@pytest.mark.parametrize(
    ("dtype", "nodes"),
    [
        ("float", "d = Div(x, y) z = Floor(d)"),
        ("int64", "m = Mod(x, y) s = Sub(x, m) z = Div(s, y)"),
    ],
)
def test_a_floor_division_is_found_in_both_spellings(dtype: str, nodes: str, pattern: str) -> None:
    proto = model(f"({dtype}[4] x, {dtype}[4] y) => ({dtype}[4] z) {{ {nodes} }}")
    assert count(proto, rule(pattern, "acme::f(x, y)")) == 1


@pytest.mark.parametrize("pattern", ["x % y", "remainder(x, y)"])
def test_a_remainder_of_floats_is_found_in_both_spellings(pattern: str) -> None:
    proto = model(
        "(float[4] x, float[4] y) => (float[4] z)"
        "{ d = Div(x, y) f = Floor(d) m = Mul(y, f) z = Sub(x, m) }"
    )
    assert count(proto, rule(pattern, "acme::f(x, y)")) == 1


# --- what could take too long -----------------------------------------------------------------


def test_doubling_again_and_again_is_read_in_few_ways() -> None:
    nodes = " ".join(f"v{i + 1} = Add(v{i}, v{i})" for i in range(15))
    proto = model(f"(float[4] v0) => (float[4] v15) {{ {nodes} }}")
    state = State(OnnxGraph(proto).views[0], 0)
    assert len(list(cuts(state, "v15", "sum"))) <= 2 * OPENED
    assert count(proto, rule("x + x + x")) == 0


def test_two_outputs_are_looked_for_among_a_bounded_number_of_readers() -> None:
    names = range(200)
    nodes = " ".join([*(f"s{i} = Sin(r)" for i in names), *(f"c{i} = Cos(r)" for i in names)])
    proto = model(f"(float[4] x) => (float[4] s0, float[4] c0) {{ r = Relu(x) {nodes} }}")
    both = "return sin(x), cos(relu(x))"
    assert count(proto, rule(both, "p, q = acme::f(x); return p, q", both, TWO)) <= 200


# --- random equations in random written forms -----------------------------------------------------

CALLS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "relu": "Relu", "sin": "Sin"}
NUMBERS = ("0.5", "2", "3", "0.1667", "1.702", "1.4142", "0.044715", "0.2", "4", "-1.5", "10")
DTYPES = {
    TensorProto.FLOAT: (np.float32, 2e-3),
    TensorProto.DOUBLE: (np.float64, 5e-4),
    TensorProto.FLOAT16: (np.float16, 5e-2),
}
NAMES = ("x", "y", "w")


def drawn(draw: random.Random, names: tuple[str, ...], depth: int) -> Any:
    """Draw an expression: a name, a call, a product `(number, factors)` or a sum of terms."""
    kind = draw.choice(["call", "product", "product", "sum"]) if depth else "name"
    if kind == "name":
        return (kind, draw.choice(names))
    if kind == "call":
        return (kind, draw.choice(list(CALLS)), drawn(draw, names, depth - 1))
    parts: dict[str, tuple[Any, int]] = {}
    for _ in range(draw.randint(2, 3)):
        inner = drawn(draw, names, draw.choice([0, depth - 1, depth - 1]))
        if inner[0] in ("product", "sum"):
            inner = ("call", draw.choice(["tanh", "sigmoid"]), inner)
        elif inner[0] == "name" and any(item[0] == "name" for item, _ in parts.values()):
            inner = ("call", "sin", inner)
        parts.setdefault(repr(inner), (inner, draw.choice([1, 1, -1])))
    items = list(parts.values())
    items[0] = (items[0][0], 1)
    number = draw.choice(NUMBERS) if len(items) == 1 else draw.choice([None, draw.choice(NUMBERS)])
    return (kind, number, tuple(items))


def said(tree: Any) -> str:
    """Write a tree as the rule says it."""
    if tree[0] == "name":
        return str(tree[1])
    if tree[0] == "call":
        return f"{tree[1]}({said(tree[2])})"
    plus, minus = ("*", "/") if tree[0] == "product" else ("+", "-")
    parts = [f"({tree[1]})"] if tree[1] else []
    parts += [f"{plus if sign > 0 else minus} {said(part)}" for part, sign in tree[2]]
    return f"({' '.join(parts).removeprefix(plus).strip()})"


@dataclass
class Written:
    """Writes a tree as nodes, in one of the many forms that mean the same."""

    draw: random.Random
    dtype: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def constant(self, value: float) -> str:
        shape = self.draw.choice([(), (1,), (1, 1)])
        way = self.draw.choice(["initializer", "node", "Identity", "Neg", "Cast"])
        given = np.full(shape, -value if way == "Neg" else value, DTYPES[self.dtype][0])
        name = f"c{len(self.constants)}"
        made = numpy_helper.from_array(given, name)
        if way == "node":
            return self.node("Constant", value=made)
        self.constants.append(made)
        if way == "initializer":
            return name
        return self.node(way, name, **({"to": self.dtype} if way == "Cast" else {}))

    def value(self, tree: Any) -> str:
        if tree[0] == "name":
            return str(tree[1])
        if tree[0] == "call":
            return self.node(CALLS[tree[1]], self.value(tree[2]))
        scale = self.draw.choice([1.0, 1.0, 2.0, 0.5]) if tree[0] == "sum" else 1.0
        items = []
        for part, sign in tree[2]:
            made = self.value(part)
            items.append((self.node("Mul", made, self.constant(scale)) if scale != 1 else made,
                          sign))  # fmt: skip
        if tree[1]:
            value = float(tree[1]) * scale
            flipped = 1 / value if tree[0] == "product" else -value
            items.append(self.draw.choice([(self.constant(value), 1),
                                           (self.constant(flipped), -1)]))  # fmt: skip
        made = self.joined(items, tree[0] == "product")
        return made if scale == 1 else self.node("Div", made, self.constant(scale))

    def joined(self, items: list[tuple[str, int]], product: bool) -> str:
        plus, minus = ("Mul", "Div") if product else ("Add", "Sub")
        while len(items) > 1:
            self.draw.shuffle(items)
            (left, a), (right, b) = items.pop(), items.pop()
            if a == b:
                op = "Sum" if not product and self.draw.random() < 0.2 else plus
                items.append((self.node(op, left, right), a))
            elif a > b:
                items.append((self.node(minus, left, right), 1))
            else:
                items.append((self.node(minus, left, right), -1))
        value, sign = items[0]
        return value if sign > 0 else self.node("Reciprocal" if product else "Neg", value)


def test_a_random_equation_is_found_in_a_random_form_and_gives_the_same_numbers() -> None:
    jobs: list[tuple[onnx.ModelProto, Arrays]] = []
    labels: list[tuple[str, int]] = []
    seed = missed = 0
    while len(labels) < 200:
        seed += 1
        draw = random.Random(seed)
        tree = drawn(draw, NAMES[: draw.randint(1, 3)], draw.choice([1, 2, 2, 3]))
        used = [name for name in NAMES if f"('name', '{name}')" in repr(tree)]
        dtype = draw.choice(list(DTYPES))
        writer = Written(draw, dtype)
        result = writer.value(tree)
        graph = helper.make_graph(
            writer.nodes,
            "g",
            [helper.make_tensor_value_info(name, dtype, [2, 3]) for name in used],
            [helper.make_tensor_value_info(result, dtype, ["a", "b"])],
            writer.constants,
        )
        opsets = [helper.make_opsetid("", draw.choice([13, 18]))]
        proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        text = said(tree)
        schema = f"({', '.join(f'Tensor {name}' for name in used)}) -> Tensor"
        report, made = converted(
            proto, text=rule(text, f"acme::f({', '.join(used)})", schema=schema)
        )
        if not report.matches:
            missed += 1
            print(f"seed {seed}: {text} is not found")
        numbers = np.random.default_rng(seed)
        kind, _ = DTYPES[dtype]
        feeds: Arrays = {name: numbers.standard_normal((2, 3)).astype(kind) for name in used}
        jobs += [(proto, feeds), (made, feeds)]
        labels.append((f"seed {seed}: {text}", dtype))
    assert not missed
    outputs = run_all(jobs)
    for (label, dtype), before, after in zip(labels, outputs[::2], outputs[1::2], strict=True):
        width = DTYPES[dtype][1]
        assert before[0].dtype == after[0].dtype, label
        wanted, got = before[0].astype(np.float64), after[0].astype(np.float64)
        np.testing.assert_allclose(got, wanted, rtol=width, atol=width, err_msg=label)

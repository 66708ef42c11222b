"""Recognising a repeated motif gives what the search gives, on models that vary a little."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from oprep.converters import match as matching
from oprep.converters.frontends.onnx_conversion import Conversion
from oprep.converters.frontends.onnx_model import from_proto
from oprep.opsets.load import load_opset

RULES = """
format = 1
[[op]]
name = "acme::f"
body = "relu(x)"
[[op]]
name = "acme::g"
schema = "(Tensor x, Tensor y) -> Tensor"
body = "x + y"
[[rule]]
name = "gelu"
replace = "0.5 * x * (1 + erf(x / sqrt(2)))"
with = "acme::f(x)"
expect = ">=0"
[[rule]]
name = "silu"
replace = "x * sigmoid(x)"
with = "acme::f(x)"
expect = ">=0"
[[rule]]
name = "gate"
replace = "x * tanh(y) + 1"
with = "acme::g(x, y)"
expect = ">=0"
"""
KINDS = ("gelu", "gelu shared", "gelu scaled", "other constant", "other variable", "of itself",
         "silu", "silu of constant", "gate", "gate of one value", "gate of inner")  # fmt: skip


def unit(kind: str, n: int, x: str, y: str) -> Iterator[onnx.NodeProto]:
    """Write one unit; its result is `o{n}`."""

    def node(op: str, inputs: list[str], to: str) -> onnx.NodeProto:
        return helper.make_node(op, inputs, [f"{to}{n}"], name=f"{to}{n}")

    if kind.startswith("gelu") or kind in ("other constant", "other variable", "of itself"):
        inner = {"other variable": y}.get(kind, x)
        yield node("Div", [inner, "c15" if kind == "other constant" else "root"], "d")
        yield node("Erf", [f"d{n}"], "e")
        yield node("Add", [f"e{n}", "one"], "a")
        outer = f"a{n}" if kind == "of itself" else x
        yield node("Mul", [outer, f"a{n}"], "m")
        last = "o" if kind != "gelu scaled" else "h"
        yield node("Mul", [f"m{n}", "half"], last)
        if kind == "gelu scaled":
            yield node("Mul", [f"h{n}", "c15"], "o")
        if kind == "gelu shared":
            yield node("Neg", [f"e{n}"], "k")
    elif kind.startswith("silu"):
        value = "half" if kind == "silu of constant" else x
        yield node("Sigmoid", [value], "s")
        yield node("Mul", [value, f"s{n}"], "o")
    else:
        left = {"gate of one value": y, "gate of inner": f"t{n}"}.get(kind, x)
        yield node("Tanh", [y], "t")
        yield node("Mul", [left, f"t{n}"], "m")
        yield node("Add", [f"m{n}", "one"], "o")


def build(kinds: list[str], seed: int, *, chained: bool = True) -> onnx.ModelProto:
    draw = random.Random(seed)
    nodes: list[onnx.NodeProto] = []
    values = ["x", "y"]
    for n, kind in enumerate(kinds):
        nodes += unit(kind, n, draw.choice(values[-4:]), draw.choice(values[-4:]))
        values += [f"o{n}"] if chained else []
    constants = {"root": 2**0.5, "one": 1.0, "half": 0.5, "c15": 1.5}
    stored = [helper.make_tensor(k, TensorProto.FLOAT, [], [v]) for k, v in constants.items()]
    values = values if chained else [*values, f"o{len(kinds) - 1}"]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in values]
    graph = helper.make_graph(nodes, "g", ends[:2], ends[-1:], stored)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def found(model: onnx.ModelProto) -> list[tuple[Any, ...]]:
    conversion = Conversion(from_proto(model), [load_opset(RULES, "r")])
    return [
        (match.rule.name, match.nodes, match.roots, sorted(match.bound.items()))
        for match in conversion.plan().matches
    ]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(KINDS), min_size=4, max_size=24), st.integers(0, 1 << 20))
def test_what_is_recognised_is_what_would_be_found(kinds: list[str], seed: int) -> None:
    model = build(kinds, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "remember", lambda templates, made: None)
        searched = found(model)
    assert found(model) == searched


def test_repeated_motifs_are_recognised_and_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[int] = []
    original = matching.at

    def counted(*words: Any) -> Any:
        searches.append(words[3])
        return original(*words)

    monkeypatch.setattr(matching, "at", counted)
    assert len(found(build(["gelu"] * 50, 1, chained=False))) == 50
    assert len(searches) < 10

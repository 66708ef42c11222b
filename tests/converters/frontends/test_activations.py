"""The shipped activations: bodies against torch, and every written form against its body."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from proofs.emitting import calling, namer, types_of
from proofs.running import close, run_all

from oprep.converters.frontends.onnx_body import body_function, is_generic
from oprep.converters.frontends.onnx_emit import emit
from oprep.converters.frontends.onnx_schema import newest_opset
from oprep.opsets.errors import OprepError
from oprep.opsets.expression import variables
from oprep.opsets.load import load_opset
from oprep.opsets.rule import REQUIRED, CustomOp, Opset
from oprep.opsets.syntax import Equation

X = np.concatenate([np.linspace(-8, 8, 33), [-1e4, 2e4, 0.0]])
VERSIONS = [(7, 3), (9, 4), (11, 5), (13, 7), (15, 8), (18, 8), (20, 9), (newest_opset(), 10)]
PLAIN = {"a": 0.2, "b": 0.4, "s": 0.3}


@pytest.fixture(scope="module")
def activations() -> Opset:
    text = resources.files("oprep.opsets").joinpath("builtin/activations.toml").read_text()
    return load_opset(text, "activations", shipped=True)


def torch_functions() -> dict[str, Callable[[Any], Any]]:
    from torch.nn import functional

    return {
        "oprep::gelu": functional.gelu,
        "oprep::gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "oprep::silu": functional.silu,
        "oprep::hardswish": functional.hardswish,
        "oprep::hardsigmoid": functional.hardsigmoid,
        "oprep::relu": functional.relu,
        "oprep::leaky_relu": functional.leaky_relu,
    }


def function_of(op: CustomOp, opset: int, dtype: int) -> onnx.FunctionProto:
    if is_generic(op, opset=opset):
        return body_function(op, opset=opset)
    return body_function(op, opset=opset, dtype=dtype, attributes={})


def test_the_opset_has_the_activations_that_its_name_promises(activations: Opset) -> None:
    assert {op.name for op in activations.ops} == set(torch_functions())
    assert all(op.onnx.domain == "oprep" for op in activations.ops)
    assert all(rule.expect.operator == ">=" for rule in activations.rules)
    assert all(rule.expect.count == 0 for rule in activations.rules)


def test_each_body_is_the_torch_function_at_every_opset_that_can_say_it(
    activations: Opset,
) -> None:
    import torch

    jobs, wanted = [], []
    for op in activations.ops:
        for opset, ir_version in VERSIONS:
            for dtype in (np.float32, np.float16, np.float64):
                x = X.astype(dtype)
                try:
                    function = function_of(op, opset, types_of({"x": x})["x"])
                except OprepError:
                    assert opset < 9, (op.name, opset)
                    continue
                model = calling([function], {"x": x}, opset, ir_version)
                onnx.checker.check_model(model)
                jobs.append((model.SerializeToString(), {"x": x}))
                expected = torch_functions()[str(op.name)](torch.from_numpy(x.copy())).numpy()
                wanted.append((op.name, opset, expected))
    seen = set()
    for ran, (name, opset, expected) in zip(run_all(jobs), wanted, strict=True):
        if expected.dtype == np.float64 and ran.by == "reference":
            continue
        assert ran.by == "onnxruntime", (name, opset, ran.outputs)
        assert not close(ran.outputs[0], expected), (name, opset, str(expected.dtype))
        seen.add((name, str(expected.dtype), opset))
    for op in activations.ops:
        assert {(op.name, kind, 9) for kind in ("float32", "float16")} <= seen


def test_no_body_loses_nan_or_the_sign_of_a_large_value(activations: Opset) -> None:
    x = np.array([np.nan, 3e4, -3e4], np.float16)
    jobs = [
        (calling([function_of(op, 18, 10)], {"x": x}, 18, 8).SerializeToString(), {"x": x})
        for op in activations.ops
    ]
    for op, ran in zip(activations.ops, run_all(jobs), strict=True):
        assert np.isnan(ran.outputs[0][0]), op.name
        assert np.isfinite(ran.outputs[0][1:]).all(), op.name


def test_every_form_of_a_rule_computes_what_it_is_replaced_by(activations: Opset) -> None:
    forms, jobs = [], []
    x = X[:33].astype(np.float32)
    for rule in activations.rules:
        assert isinstance(rule.replacement, Equation)
        for pattern in rule.patterns:
            assert isinstance(pattern, Equation)
            for opset in (9, 14, 18, 22):
                forms.append(f"{rule.name}: {pattern.text} in opset {opset}")
                jobs.append((both_sides(activations, pattern, rule.replacement, opset), {"x": x}))
    for form, ran in zip(forms, run_all(jobs), strict=True):
        assert ran.by == "onnxruntime", (form, ran.outputs)
        assert not close(ran.outputs[1], ran.outputs[0]), form


def test_a_form_of_another_rule_would_be_seen_to_differ(activations: Opset) -> None:
    rules = {rule.name: rule for rule in activations.rules}
    pattern, other = rules["gelu"].patterns[0], rules["gelu-tanh"].replacement
    assert isinstance(pattern, Equation)
    assert isinstance(other, Equation)
    x = X[:33].astype(np.float32)
    (ran,) = run_all([(both_sides(activations, pattern, other, 18), {"x": x})])
    assert close(ran.outputs[1], ran.outputs[0])


def both_sides(opset: Opset, pattern: Equation, replacement: Equation, version: int) -> bytes:
    """Make a model that computes a pattern and, beside it, what the rule puts in its place."""
    fresh = namer()
    plain = {name: value for name, value in PLAIN.items() if name in variables(pattern)}
    written = [
        emit(
            equation,
            {"x": "x"},
            opset=version,
            fresh=fresh,
            dtype=1,
            attributes=plain,
            ops=opset.ops,
            results=[name],
        )
        for equation, name in ((pattern, "before"), (replacement, "after"))
    ]
    (node,) = written[1].nodes
    (op,) = [op for op in opset.ops if op.onnx.type == node.op_type]
    values = {item.name: item.default for item in op.parameters if item.default is not REQUIRED}
    values |= {item.name: helper.get_attribute_value(item) for item in node.attribute}
    body = body_function(op, opset=version, dtype=1, attributes=values)
    inputs = [helper.make_tensor_value_info("x", 1, [33])]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("before", "after")]
    nodes = [*written[0].nodes, node]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    imports = [helper.make_opsetid("", version), helper.make_opsetid("oprep", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8, functions=[body])
    return bytes(model.SerializeToString())

"""Bodies as model-local functions: the checker takes them and ONNX Runtime runs them alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import FunctionProto, TensorProto, helper, numpy_helper
from proofs.emitting import calling, custom_op, custom_ops, types_of
from proofs.running import close, run_all

from oprep.converters.frontends.onnx_body import body_function, equal_bodies, is_generic
from oprep.converters.frontends.onnx_schema import newest_opset
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.rule import CustomOp

X = np.array([[-3.0, -1.0, 0.0, 0.5], [2.0, 7.0, -0.25, 1.0]])
VERSIONS = [(9, 3), (11, 5), (12, 6), (13, 7), (15, 8), (18, 8), (21, 10), (newest_opset(), 10)]
FLOATS = (np.float32, np.float16, np.float64)
Reference = Callable[..., NDArray[Any]]
BODIES: list[tuple[str, str, dict[str, Any], Reference]] = [
    ("x * sigmoid(x)", "", {}, lambda x: x / (1 + np.exp(-x))),
    ("x", "", {}, lambda x: x),
    ("x / sqrt(2) + 0.1", "", {}, lambda x: x / 2**0.5 + 0.1),
    ("where(x < 0, slope * x, x)", "float slope=0.01", {}, lambda x: np.where(x < 0, 0.01 * x, x)),
    ("where(x < 0, slope * x, x)", "float slope", {"slope": 0.3},
     lambda x: np.where(x < 0, 0.3 * x, x)),
    ("x * (2 / k) + k", "int k=3", {"k": 4}, lambda x: x * 0.5 + 4),
    ("x - mean(x, axes, keepdim=True)", "int[] axes", {"axes": [0]}, lambda x: x - x.mean(0)),
    ("where(flip, -x, x)", "bool flip=False", {"flip": 1}, lambda x: -x),
    ("x + sqrt(a + 1)", "float a=3.0", {}, lambda x: x + 2),
    ("v, i = topk(x, k); v", "int k=1", {"k": 2}, lambda x: -np.sort(-x, -1)[:, :2]),
]  # fmt: skip


def op_of(body: str, more: str = "") -> CustomOp:
    return custom_op(body, f"(Tensor x{', ' if more else ''}{more}) -> Tensor")


def function_for(
    op: CustomOp, feeds: dict[str, NDArray[Any]], opset: int, given: dict[str, Any]
) -> FunctionProto:
    """Make the function as a conversion does: generic where it can be, else written in."""
    if is_generic(op, opset=opset):
        return body_function(op, opset=opset)
    return body_function(op, opset=opset, dtype=types_of(feeds), attributes=given)


def test_a_body_runs_in_onnx_runtime_from_opset_9_and_ir_3_to_the_newest() -> None:
    jobs, wanted = [], []
    for body, more, given, reference in BODIES:
        op = op_of(body, more)
        for opset, ir_version in VERSIONS:
            for dtype in FLOATS:
                feeds = {"x": X.astype(dtype)}
                function = function_for(op, feeds, opset, given)
                model = calling([function], feeds, opset, ir_version, given)
                onnx.checker.check_model(model)
                jobs.append((model.SerializeToString(), feeds))
                wanted.append((body, opset, np.asarray(reference(X)).astype(dtype)))
    for ran, (body, opset, expected) in zip(run_all(jobs), wanted, strict=True):
        assert ran.by == "onnxruntime", (body, opset, ran.outputs)
        assert not close(ran.outputs[0], expected), (body, opset, str(expected.dtype))


def test_one_generic_function_serves_integers_too() -> None:
    op = op_of("2 * x + k", "int k=1")
    jobs = []
    for dtype in (np.int64, np.int32, np.float32):
        feeds = {"x": np.trunc(X).astype(dtype)}
        jobs.append(
            (calling([body_function(op, opset=18)], feeds, 18, 8).SerializeToString(), feeds)
        )
    for ran, (_, feeds) in zip(run_all(jobs), jobs, strict=True):
        assert ran.by == "onnxruntime", ran.outputs
        assert not close(ran.outputs[0], 2 * feeds["x"] + 1)


def test_a_generic_function_has_no_dtype_and_no_value_in_it() -> None:
    op = op_of("x * a + k", "float a, int k=2")
    function = body_function(op, opset=15)
    assert (function.domain, function.name) == ("com.acme", "F")
    assert list(function.input) == ["x"]
    assert list(function.attribute) == ["a"]
    assert [(item.name, item.i) for item in function.attribute_proto] == [("k", 2)]
    assert [(item.domain, item.version) for item in function.opset_import] == [("", 15)]
    assert "CastLike" in [node.op_type for node in function.node]


def test_below_opset_15_values_are_written_in() -> None:
    op = op_of("x * a", "float a")
    function = body_function(op, opset=13, dtype=TensorProto.FLOAT16, attributes={"a": 0.5})
    assert not function.attribute
    constant = numpy_helper.to_array(function.node[0].attribute[0].t)
    assert constant.dtype == np.float16
    assert constant == 0.5
    with pytest.raises(OprepError, match="refers to attributes") as caught:
        body_function(op, opset=14, dtype=1)
    assert caught.value.exit_code is ExitCode.EXPECTATION
    assert caught.value.notes == ("that needs opset 15, the model has 14",)


def test_a_body_that_depends_on_an_attribute_is_generic_only_where_its_op_takes_it() -> None:
    op = op_of("gelu(x, approximate=how)", "str how='none'")
    assert not is_generic(op, opset=14)
    assert not is_generic(op, opset=18)
    assert is_generic(op, opset=20)
    function = body_function(op, opset=18, dtype=1, attributes={"how": "tanh"})
    assert "Tanh" in [node.op_type for node in function.node]


def test_two_functions_of_one_name_are_told_apart_by_overload() -> None:
    op = op_of("x * a", "float a")
    feeds = {"x": X.astype(np.float32)}
    made = [
        body_function(op, opset=13, dtype=1, attributes={"a": value}, overload=f"v{i}")
        for i, value in enumerate((2.0, 5.0))
    ]
    for one, factor in zip((made, made[::-1]), (2.0, 5.0), strict=True):
        model = calling(one, feeds, 13, 7)
        onnx.checker.check_model(model)
        (ran,) = run_all([(model.SerializeToString(), feeds)])
        assert not close(ran.outputs[0], (X * factor).astype(np.float32))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_variadic_body_is_written_for_a_number_of_inputs(count: int) -> None:
    op = custom_op("cat(*xs, dim=1) * 2", "(Tensor[] xs) -> Tensor")
    function = body_function(op, opset=18, variadic=count)
    assert list(function.input) == [f"xs_{i}" for i in range(count)]
    feeds = {f"in{i}": (X + i).astype(np.float32) for i in range(count)}
    (ran,) = run_all([(calling([function], feeds, 18, 8).SerializeToString(), feeds)])
    expected = 2 * np.concatenate([X + i for i in range(count)], 1)
    assert not close(ran.outputs[0], expected.astype(np.float32))


def test_an_optional_input_may_be_absent_at_the_call() -> None:
    op = custom_op("clamp(x, low, high)", "(Tensor x, Tensor? low, Tensor? high) -> Tensor")
    function = body_function(op, opset=18)
    feeds = {"x": X.astype(np.float32), "high": np.array(1.0, np.float32)}
    model = calling([function], feeds, 18, 8)
    model.graph.node[0].input[:] = ["x", "", "high"]
    (ran,) = run_all([(model.SerializeToString(), feeds)])
    assert not close(ran.outputs[0], np.minimum(X, 1).astype(np.float32))


def test_several_results_are_several_outputs() -> None:
    op = custom_op("v, i = topk(x, 2); return v, i", "(Tensor x) -> (Tensor, Tensor)")
    function = body_function(op, opset=18)
    assert len(function.output) == 2
    feeds = {"x": X.astype(np.float32)}
    model = calling([function], feeds, 18, 8, outputs=2)
    model.graph.output[1].type.tensor_type.elem_type = TensorProto.INT64
    (ran,) = run_all([(model.SerializeToString(), feeds)])
    assert ran.outputs[1].tolist() == np.argsort(-X, -1)[:, :2].tolist()


def test_a_body_may_call_another_custom_op() -> None:
    signature = "(Tensor x) -> Tensor"
    ops = custom_ops(("f", signature, "x * 3"), ("g", signature, "acme::f(x) + 1"))
    inner, outer = [body_function(op, opset=18, ops=ops) for op in ops]
    imports = {item.domain: item.version for item in outer.opset_import}
    assert imports == {"": 18, "com.acme": 1}
    feeds = {"x": X.astype(np.float32)}
    model = calling([outer, inner], feeds, 18, 8)
    onnx.checker.check_model(model)
    (ran,) = run_all([(model.SerializeToString(), feeds)])
    assert not close(ran.outputs[0], (3 * X + 1).astype(np.float32))


def test_a_body_that_leads_back_to_its_own_op_is_refused() -> None:
    signature = "(Tensor x) -> Tensor"
    ops = custom_ops(("f", signature, "relu(acme::g(x))"), ("g", signature, "acme::f(x) + 1"))
    with pytest.raises(OprepError, match="calls itself") as caught:
        body_function(ops[0], opset=18, ops=ops)
    assert caught.value.exit_code is ExitCode.RULES


def test_a_body_that_the_opset_cannot_say_names_the_op_and_the_opset_that_has_it() -> None:
    with pytest.raises(OprepError) as caught:
        body_function(op_of("x * (1 + erf(x))"), opset=8, dtype=1, attributes={})
    assert caught.value.message == "`erf` needs opset 9, the model has 8"
    assert caught.value.exit_code is ExitCode.EXPECTATION
    assert caught.value.where.startswith("rules.toml:")


# --- equality ---------------------------------------------------------------------------------


def renamed(function: FunctionProto, suffix: str = "_other") -> FunctionProto:
    made = FunctionProto()
    made.CopyFrom(function)
    for node in made.node:
        node.input[:] = [f"{name}{suffix}" if name else "" for name in node.input]
        node.output[:] = [f"{name}{suffix}" for name in node.output]
        node.name = "named"
    made.input[:] = [f"{name}{suffix}" for name in made.input]
    made.output[:] = [f"{name}{suffix}" for name in made.output]
    return made


def test_bodies_are_equal_whatever_their_inner_names_and_order() -> None:
    function = body_function(op_of("relu(x) + tanh(x) * 0.5"), opset=18)
    other = renamed(function)
    assert equal_bodies(function, other)
    constants = [node for node in other.node if node.op_type in ("Constant", "Relu")]
    rest = [node for node in other.node if node.op_type not in ("Constant", "Relu")]
    other.node.clear()  # type: ignore[attr-defined]
    other.node.extend([*constants, *rest])
    assert equal_bodies(function, other)


def test_a_constant_is_equal_in_every_encoding() -> None:
    function = body_function(op_of("x * 0.5"), opset=13, dtype=1, attributes={})
    other = renamed(function)
    encoded = helper.make_tensor("named", TensorProto.FLOAT, [], [0.5])
    assert not encoded.raw_data
    other.node[0].attribute[0].t.CopyFrom(encoded)
    assert equal_bodies(function, other)


@pytest.mark.parametrize(
    "body", ["relu(x) * 0.25", "relu(x) - 0.5", "0.5 - relu(x)", "tanh(x) * 0.5", "x * 0.5"]
)
def test_another_constant_op_or_wiring_is_another_body(body: str) -> None:
    one = body_function(op_of("relu(x) * 0.5"), opset=18)
    assert not equal_bodies(one, body_function(op_of(body), opset=18))


def test_another_default_or_opset_is_another_body() -> None:
    one = body_function(op_of("x * a", "float a=1.0"), opset=18)
    assert not equal_bodies(one, body_function(op_of("x * a", "float a=2.0"), opset=18))
    assert not equal_bodies(one, body_function(op_of("x * a", "float a"), opset=18))
    assert not equal_bodies(one, body_function(op_of("x * a", "float a=1.0"), opset=20))

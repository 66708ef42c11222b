"""Equations as ONNX nodes: what variables and keywords become, what an opset cannot say."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from proofs.emitting import custom_op, write

from oprep.converters.frontends.onnx_emit import Emitted
from oprep.converters.frontends.onnx_schema import newest_opset
from oprep.converters.frontends.onnx_values import AttributeRef
from oprep.converters.graph import ABSENT, Attribute, Many
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.expression import UNKNOWN

OPSETS = (7, 8, 9, 11, 12, 13, 14, 15, 17, 18, 20, 22, newest_opset())
X = np.array([[-3.0, -1.0, 0.0], [0.5, 2.0, 7.0]])


def ops(emitted: Emitted) -> list[str]:
    return [node.op_type for node in emitted.nodes]


def constants(emitted: Emitted) -> list[NDArray[Any]]:
    values = [node.attribute[0].t for node in emitted.nodes if node.op_type == "Constant"]
    return [numpy_helper.to_array(value) for value in values]


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}


def message(text: str, *args: Any, **options: Any) -> OprepError:
    with pytest.raises(OprepError) as caught:
        write(text, *args, **options)
    return caught.value


# --- variables --------------------------------------------------------------------------------


def test_results_get_the_names_that_the_caller_wants() -> None:
    emitted = write("a = x + x; return a * x, a", results=["left", "right"], dtype=1)
    assert emitted.outputs == ["left", "right"]
    assert [list(node.output) for node in emitted.nodes] == [["right"], ["left"]]
    assert list(emitted.nodes[1].input) == ["right", "x"]


def test_a_variable_or_a_value_twice_as_result_is_copied() -> None:
    emitted = write("a = relu(x); return x, a, a", results=["one", "two", "three"])
    assert emitted.outputs == ["one", "two", "three"]
    assert ops(emitted) == ["Relu", "Identity", "Identity"]


def test_nodes_stand_behind_what_they_read() -> None:
    emitted = write("where(x > 0, silu(x), softplus(x, threshold=2) * 0.1)", dtype=1)
    known = {"x"}
    for node in emitted.nodes:
        assert set(node.input) <= known
        known |= set(node.output)


def test_rest_is_all_its_tensors_and_may_be_followed_by_a_keyword() -> None:
    many = Many(("a", "b", "c"))
    (node,) = write("cat(*xs, dim=1)", {"xs": many}).nodes
    assert list(node.input) == ["a", "b", "c"]
    assert attributes(node) == {"axis": 1}
    (node,) = write("cat([x, y], 1)", ("x", "y")).nodes
    assert list(node.input) == ["x", "y"]


def test_an_absent_input_is_an_empty_slot_and_none_at_the_end() -> None:
    (node,) = write("Clip(x, low?, high?)", {"x": "x", "low": ABSENT, "high": "h"}).nodes
    assert list(node.input) == ["x", "", "h"]
    (node,) = write("Clip(x, low?, high?)", {"x": "x", "low": "l", "high": ""}).nodes
    assert list(node.input) == ["x", "l"]


def test_a_bound_attribute_is_a_number_in_arithmetic_and_a_value_in_a_keyword() -> None:
    values = {"x": "x", "a": Attribute(0.25)}
    assert constants(write("x * (2 * a)", values, dtype=1)) == [np.float32(0.5)]
    (node,) = write("leaky_relu(x, negative_slope=a)", values).nodes
    assert attributes(node) == {"alpha": 0.25}


def test_a_constant_variable_is_read_by_value_only_where_an_attribute_is_wanted() -> None:
    def value(expression: Any) -> Any:
        return 3 if getattr(expression, "name", "") == "c" else UNKNOWN

    options = {"evaluate_keyword": value, "dtype": {"x": 1}}
    (node,) = write("softmax(x, dim=c)", ("x", "c"), 13, **options).nodes
    assert attributes(node) == {"axis": 3}
    (node,) = write("clamp(x, min=c)", ("x", "c"), 13, **options).nodes
    assert list(node.input) == ["x", "c"]
    error = message("softmax(x, dim=x)", ("x", "c"), opset=13, **options)
    assert error.message == "`axis` of `Softmax` is an attribute, a tensor is given"


# --- calls ------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", OPSETS)
def test_clip_keeps_its_bounds_where_the_opset_wants_them(opset: int) -> None:
    for text in ("clamp(x, 0, 6)", "Clip(x, min=0, max=6)"):
        emitted = write(text, opset=opset, dtype=1)
        node = emitted.nodes[-1]
        if opset < 11:
            assert attributes(node) == {"min": 0.0, "max": 6.0}
        else:
            assert len(node.input) == 3
            assert constants(emitted) == [np.float32(0), np.float32(6)]


@pytest.mark.parametrize(
    ("text", "opset", "inputs", "wanted"),
    [
        ("TopK(x, K=[3])", 9, 1, {"k": 3}),
        ("TopK(x, K=[3])", 11, 2, {}),
        ("Pad(x, pads=[0, 1], constant_value=2.0)", 10, 1, {"pads": [0, 1], "value": 2.0}),
        ("Pad(x, pads=[0, 1], constant_value=2.0)", 13, 3, {}),
        ("ReduceMean(x, axes=-1)", 17, 1, {"axes": [-1]}),
        ("ReduceMean(x, axes=-1)", 18, 2, {}),
        ("ReduceSum(x, axes=[0], keepdims=False)", 13, 2, {"keepdims": 0}),
        ("Gelu(x)", 20, 1, {}),
        ("Cast(x, to='float16')", 13, 1, {"to": TensorProto.FLOAT16}),
        ("Softmax(x, axis=-1)", 13, 1, {"axis": -1}),
    ],
)
def test_a_keyword_of_a_named_op_is_what_it_is_in_this_opset(
    text: str, opset: int, inputs: int, wanted: dict[str, Any]
) -> None:
    node = write(text, opset=opset, dtype=1).nodes[-1]
    assert len(node.input) == inputs
    assert attributes(node) == wanted


def test_an_axis_that_became_an_input_is_a_list_there() -> None:
    (value,) = constants(write("ReduceMean(x, axes=-1)", opset=18, dtype=1))
    assert value.tolist() == [-1]
    (value,) = constants(write("mean(x, -1)", opset=18, dtype=1))
    assert value.tolist() == [-1]


def test_old_input_names_are_found_under_the_newest() -> None:
    text = "BatchNormalization(x, s, b, input_mean=m, input_var=v)"
    (node,) = write(text, ("x", "s", "b", "m", "v"), 9, dtype=1).nodes
    assert list(node.input) == ["x", "s", "b", "m", "v"]


def test_an_op_of_another_domain_has_inputs_by_position_and_attributes_by_keyword() -> None:
    text = "com.microsoft::FusedMatMul(x, y, alpha=0.5, transA=1, names=['a', 'b'])"
    emitted = write(text, ("x", "y"))
    assert emitted.imports == {"com.microsoft"}
    assert list(emitted.nodes[0].input) == ["x", "y"]
    found = {"alpha": 0.5, "transA": 1, "names": [b"a", b"b"]}
    assert attributes(emitted.nodes[0]) == found


def test_a_custom_op_is_called_by_either_name_with_its_parameters_in_order() -> None:
    op = custom_op("x * k + b", "(Tensor x, Tensor b, float k, int n=1) -> Tensor")
    for text in ("acme::f(x, b, 0.5)", "com.acme::F(x, b, k=0.5)", "acme::f(x, k=0.5, b=b)"):
        emitted = write(text, ("x", "b"), ops=(op,))
        (node,) = emitted.nodes
        assert (node.domain, node.op_type) == ("com.acme", "F")
        assert list(node.input) == ["x", "b"]
        assert attributes(node) == {"k": 0.5}
    (node,) = write("acme::f(x, b, k=2)", ("x", "b"), ops=(op,)).nodes
    assert node.attribute[0].type == onnx.AttributeProto.FLOAT


def test_several_outputs_are_named_by_the_statement() -> None:
    emitted = write("v, i = topk(x, 2); return i, v", results=["index", "value"], dtype=1)
    assert list(emitted.nodes[-1].output) == ["value", "index"]
    emitted = write("a, b, c = split(x, [1, 1, 1], dim=-1); b", dtype=1)
    assert len(emitted.nodes[-1].output) == 3


def test_an_attribute_of_a_function_is_referred_to_or_made_a_tensor() -> None:
    given = {"a": AttributeRef("a", "float")}
    (node,) = write("leaky_relu(x, a)", attributes=given).nodes
    assert node.attribute[0].ref_attr_name == "a"
    emitted = write("x * (2 * a + 1)", attributes=given)
    assert ops(emitted)[-2:] == ["CastLike", "Mul"]
    assert emitted.nodes[0].attribute[0].name in ("value", "value_float")


# --- what cannot be said ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "opset", "fact"),
    [
        ("erf(x)", 8, "`erf` needs opset 9, the model has 8"),
        ("gelu(x)", 7, "`gelu` needs opset 9, the model has 7"),
        ("Gelu(x)", 19, "`Gelu` needs opset 20, the model has 19"),
        ("where(x > 0, x, 0)", 8, "`where` needs opset 9, the model has 8"),
        ("softmax(x, 0)", 12, "`softmax` needs opset 13, the model has 12"),
        ("Reshape(x, [2], allowzero=1)", 13, "`allowzero` of `Reshape` needs opset 14, the model"),
        ("x >= 0", 8, "`ge` needs opset 9, the model has 8"),
    ],
)
def test_what_an_opset_lacks_is_named_with_the_opset_that_has_it(
    text: str, opset: int, fact: str
) -> None:
    error = message(text, opset=opset, dtype=1)
    assert error.exit_code is ExitCode.EXPECTATION
    assert error.message.startswith(fact)


def test_a_dtype_that_an_op_takes_only_later_is_named_with_its_opset() -> None:
    error = message("maximum(x, y)", ("x", "y"), opset=8, dtype=TensorProto.INT64)
    assert error.message == "`Max` on int64 needs opset 12, the model has 8"
    error = message("exp(x)", dtype=TensorProto.INT64)
    assert error.message == "`Exp` takes no int64 as `input`"


def test_a_form_that_does_not_hold_says_why() -> None:
    error = message("sum(x)", dtype=TensorProto.INT32)
    assert error.notes == ("its op means another thing on int32 than the function",)
    error = message("prelu(x, w)", ("x", "w"), dtype=1)
    assert error.exit_code is ExitCode.EXPECTATION
    assert "rank(input)" in error.notes[0]
    assert write("prelu(x, w)", ("x", "w"), dtype=1, shape_of=lambda name: [2, 3]).nodes


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("nothing(x)", "`nothing` is no function"),
        ("NoSuchOp(x)", "`NoSuchOp` is no op of ONNX"),
        ("aten::relu(x)", "`aten::relu` is an op of PyTorch"),
        ("relu(x, x)", "`relu` takes 1 arguments, 2 are given"),
        ("softmax(x)", "`softmax` lacks its argument `dim`"),
        ("softmax(x, 1, axis=1)", "`softmax` has no parameter `axis`"),
        ("softmax(x, 1, dim=1)", "`softmax` gets `dim` twice"),
        ("Relu(x, alpha=1)", "`Relu` has no parameter `alpha`"),
        ("Relu()", "`Relu` takes at least 1 inputs"),
        ("Relu(x, x)", "`Relu` takes at most 1 inputs, 2 are given"),
        ("Concat(x, x)", "`Concat` lacks its attribute `axis`"),
        ("relu(y)", "`y` has no value here"),
        ("a, b = relu(x); a", "`relu` gives 1 results, 2 are named"),
        ("topk(x, 2)", "`topk` gives 2 results, 1 are named"),
        ("leaky_relu(x, negative_slope='a')", "attribute `alpha` cannot be 'a'"),
    ],
)
def test_a_wrong_call_is_a_message(text: str, fact: str) -> None:
    assert message(text, dtype=1).message == fact

"""Equations as ONNX nodes: what becomes of numbers, and what a runtime makes of it all."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from proofs.emitting import model_of, write
from proofs.running import close, run_all

from oprep.converters.frontends.onnx_emit import Emitted
from oprep.converters.frontends.onnx_schema import newest_opset
from oprep.opsets.errors import ExitCode, OprepError

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


@pytest.mark.parametrize(
    ("dtype", "kind"), [(1, "float32"), (10, "float16"), (11, "float64"), (16, "bfloat16")]
)
def test_a_number_takes_the_dtype_beside_it_and_is_rounded_once(dtype: int, kind: str) -> None:
    (value,) = constants(write("x / sqrt(2)", dtype=dtype))
    assert str(value.dtype) == kind
    assert value.shape == ()
    assert value == np.array(2.0**0.5).astype(value.dtype)


def test_bfloat16_is_rounded_from_the_number_as_written_not_from_float32() -> None:
    # float32 would first round this to a tie between two bfloat16 numbers
    (value,) = constants(write("x * 1.0039062500009095", dtype=TensorProto.BFLOAT16))
    assert float(value) == 1.0078125


def test_numbers_alone_are_one_number() -> None:
    emitted = write("sqrt(2 / pi) * x", dtype=1)
    assert ops(emitted) == ["Constant", "Mul"]
    assert constants(emitted)[0] == np.float32((2 / np.pi) ** 0.5)


def test_a_number_that_occurs_twice_is_one_constant() -> None:
    assert ops(write("(x + 3) * 3", dtype=1)) == ["Constant", "Add", "Mul"]


def test_a_number_of_unknown_dtype_is_cast_like_its_neighbour_from_opset_15() -> None:
    emitted = write("x * 0.1", opset=15)
    assert ops(emitted) == ["Constant", "CastLike", "Mul"]
    assert list(emitted.nodes[1].input)[1] == "x"
    assert constants(emitted)[0].dtype == np.float64, "0.1 in float32 would be rounded twice"
    assert constants(write("x * 0.5", opset=15))[0].dtype == np.float32


def test_below_opset_15_a_number_of_unknown_dtype_is_refused() -> None:
    error = message("x * 0.1", opset=14)
    assert error.exit_code is ExitCode.EXPECTATION
    assert error.message == "the dtype beside the number 0.1 is unknown"
    assert error.notes == ("CastLike needs opset 15, the model has 14",)


def test_a_number_follows_the_dtype_through_casts_and_comparisons() -> None:
    emitted = write("where(cast(x, 'float64') > 1, 2 * cast(x, 'float64'), 3)", dtype=1)
    assert {str(value.dtype) for value in constants(emitted)} == {"float64"}


def test_a_fraction_beside_an_integer_tensor_is_refused() -> None:
    error = message("x * 0.5", dtype=TensorProto.INT64)
    assert error.exit_code is ExitCode.EXPECTATION
    assert error.message == "the number 0.5 stands beside a tensor of int64"
    (value,) = constants(write("x * 2", dtype=TensorProto.INT64))
    assert value.dtype == np.int64


@pytest.mark.parametrize(
    ("number", "dtype", "kind"),
    [("1e39", 1, "float32"), ("7e4", 10, "float16"), ("300", 2, "uint8")],
)
def test_a_number_that_the_dtype_cannot_hold_is_refused(number: str, dtype: int, kind: str) -> None:
    error = message(f"x * {number}", dtype=dtype)
    assert f"does not fit into {kind}" in error.message


def test_infinity_is_a_number_of_every_floating_dtype() -> None:
    (value,) = constants(write("maximum(x, -inf)", dtype=10))
    assert value == -np.inf


def numpy_gelu(x: NDArray[Any]) -> NDArray[Any]:
    from math import erf

    return 0.5 * x * (1 + np.vectorize(erf)(x / 2**0.5))


EQUATIONS: list[tuple[str, Callable[[NDArray[Any]], Any], int]] = [
    ("0.5 * x * (1 + erf(x / sqrt(2)))", numpy_gelu, 9),
    ("gelu(x)", numpy_gelu, 9),
    ("-x ** 2 + 1", lambda x: -(x**2) + 1, 7),
    ("(x - 1) / 4 - 2 * x", lambda x: (x - 1) / 4 - 2 * x, 7),
    ("x * clamp(x + 3, 0, 6) / 6", lambda x: x * np.clip(x + 3, 0, 6) / 6, 7),
    ("where(x > 0, x, 0.1 * x)", lambda x: np.where(x > 0, x, 0.1 * x), 9),
    ("x - mean(x, -1, keepdim=True)", lambda x: x - x.mean(-1, keepdims=True), 7),
    ("sum(x * x, [0, 1])", lambda x: (x * x).sum(), 7),
    ("x % 2", lambda x: x % 2, 7),
    ("x // 2", lambda x: x // 2, 7),
    ("permute(x, [1, 0]) @ x", lambda x: x.T @ x, 7),
    ("v, i = topk(x, 2); v * 2", lambda x: -np.sort(-x, -1)[:, :2] * 2, 7),
    ("x", lambda x: x, 7),
]


@pytest.mark.parametrize("known", [True, False])
def test_equations_mean_the_same_at_every_opset_and_dtype(known: bool) -> None:
    jobs, wanted = [], []
    for text, reference, first in EQUATIONS:
        for opset in OPSETS:
            for dtype in (np.float32, np.float16, np.float64):
                if opset >= (first if known else 15):
                    feeds = {"x": X.astype(dtype)}
                    model = model_of(text, feeds, opset, known=known)
                    jobs.append((model.SerializeToString(), feeds))
                    wanted.append((text, opset, np.asarray(reference(X)).astype(dtype)))
    for ran, (text, opset, expected) in zip(run_all(jobs), wanted, strict=True):
        assert ran.by != "failed", (text, opset, ran.outputs)
        assert not close(ran.outputs[0], expected), (text, opset)


def arithmetic(draw: random.Random, depth: int) -> str:
    """Write a random expression over `x` and `y` that no dtype overflows."""
    if depth == 0 or draw.random() < 0.15:
        return draw.choice(["x", "y", "x", "y", "0.5", "2", "3", "sqrt(2)", "1 / 3", "-1.5"])
    one = arithmetic(draw, depth - 1)
    kind = draw.choice(["+", "-", "*", "/", "call", "neg", "pair"])
    if kind == "call":
        return f"{draw.choice(['tanh', 'sigmoid', 'relu', 'sin'])}({one} + x)"
    if kind == "neg":
        return f"-({one})"
    if kind == "pair":
        return f"{draw.choice(['maximum', 'minimum'])}({one} + y, 0.25)"
    other = "4" if kind == "/" else arithmetic(draw, depth - 1)
    return f"({one}) {kind} ({other})"


NUMPY = {
    "sqrt": np.sqrt, "tanh": np.tanh, "sin": np.sin, "maximum": np.maximum, "minimum": np.minimum,
    "relu": lambda x: np.maximum(x, 0), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip


def test_random_arithmetic_means_what_numpy_computes_and_a_changed_sign_is_seen() -> None:
    draw = random.Random(3)
    feeds = {"x": np.linspace(-2, 2, 6), "y": np.array([0.3, -1.1, 2.0, 0.7, -0.4, 1.6])}
    jobs, wanted, planted = [], [], []
    while len(jobs) < 300:
        text = f"{arithmetic(draw, 4)} + 0 * x"
        opset = draw.choice(range(8, newest_opset() + 1))
        model = model_of(text, feeds, opset, known=opset < 15 or draw.random() < 0.5)
        expected = eval(text, {}, {**NUMPY, **feeds})
        jobs.append((model.SerializeToString(), feeds))
        wanted.append((text, expected))
        planted.append(expected + 1e-3)
    ran = run_all(jobs)
    for one, (text, expected) in zip(ran, wanted, strict=True):
        assert one.by != "failed", (text, one.outputs)
        assert not close(one.outputs[0], expected), text
    assert all(close(one.outputs[0], wrong) for one, wrong in zip(ran, planted, strict=True))

"""With which inputs and settings each function of the vocabulary is tried.

A name stands for a tensor: `x` and `y` have both signs, `apart` has no ties, `row` broadcasts,
`positive` and `unit` are in a function's domain. Only they take the dtype under test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Sample:
    """One call: tensors by name (a tuple of names is a list of tensors), and plain keywords."""

    tensors: tuple[str | tuple[str, ...], ...]
    keywords: dict[str, Any] = field(default_factory=dict)


def call(*tensors: str | tuple[str, ...], **keywords: Any) -> Sample:
    return Sample(tensors, keywords)


_draw = np.random.default_rng(7)
VALUES: dict[str, NDArray[Any]] = {
    "x": np.array([[-7.0, -3.5, -1.0, -0.25], [0.0, 0.5, 1.0, 2.5], [3.0, 5.0, 6.5, 25.0]]),
    "y": np.array([[2.0, -2.0, -1.0, 3.0], [1.0, 0.5, -4.0, 2.5], [-3.0, 5.0, 1.0, 0.5]]),
    "nan": np.array([[2.0, np.nan, -1.0, 3.0], [1.0, 0.5, np.nan, 2.5], [-3.0, 5.0, 6.5, 25.0]]),
    "none": np.zeros((0, 3)),
    "row": np.array([3.0, -2.0, 1.5, 4.0]),
    "one": np.array([0.25]),
    "positive": np.array([[0.1, 0.5, 1.0], [2.0, 9.0, 30.0]]),
    "small": np.array([0.5, 1.0, 2.0]),
    "unit": np.array([-0.9, -0.5, 0.0, 0.3, 0.8]),
    "apart": np.array([[3.0, -1.0, 2.0, 7.0], [0.0, 5.0, -6.0, 1.0], [9.0, 8.0, -4.0, 4.0]]),
    "ends": np.array([np.inf, -np.inf, np.nan, 0.0, 1.0]),
    "cube": _draw.permutation(24).reshape(2, 3, 4) - 11.5,
    "thin": np.array([[[1.0], [2.0]], [[3.0], [-4.0]]])[:, :, :, None],
    "tall": _draw.permutation(16).reshape(2, 4, 2) - 7.5,
    "image": _draw.permutation(24).reshape(2, 3, 2, 2) - 11.5,
}
FIXED: dict[str, NDArray[Any]] = {
    "mask": np.array([[True, False, True, True], [False, False, True, False], [True] * 4]),
    "other_mask": np.array([[True, True, False, True], [False, True, True, False], [False] * 4]),
    "index": np.array([2, 0, 2], np.int64),
    "indices": np.array([[2, 0], [1, 1], [0, 2]], np.int64),
}
ONE = [call("x")]
PAIR = [call("x", "y"), call("x", "row")]
REDUCED = [
    call("cube"),
    call("cube", dim=[1]),
    call("cube", dim=[-1], keepdim=True),
    call("cube", dim=[0, 2]),
]
SOFTMAX = [call("cube", dim=-1), call("cube", dim=2), call("cube", dim=1), call("cube", dim=0)]
LOGIC = [call("mask", "other_mask")]
COMPARED = [*PAIR, call("x", "nan")]
SAMPLES: dict[str, list[Sample]] = {
    "add": [*PAIR, call("x", "y", alpha=2.5)],
    "sub": [*PAIR, call("x", "y", alpha=2.5)],
    "mul": PAIR,
    "div": [*PAIR, *(call("x", "y", rounding_mode=mode) for mode in ("trunc", "floor"))],
    "floor_divide": PAIR,
    "remainder": PAIR,
    "fmod": PAIR,
    "pow": [call("positive", "small")],
    "neg": ONE, "abs": ONE, "sign": ONE, "square": ONE,
    "sqrt": [call("positive")], "rsqrt": [call("positive")], "reciprocal": [call("y")],
    "maximum": PAIR, "minimum": PAIR,
    "matmul": [call("x", "row"), call("cube", "tall")],
    "exp": ONE, "expm1": ONE, "log": [call("positive")], "log1p": [call("positive")],
    "erf": ONE, "sin": ONE, "cos": ONE, "tan": [call("unit")],
    "asin": [call("unit")], "acos": [call("unit")], "atan": ONE, "sinh": [call("y")],
    "cosh": [call("y")], "floor": ONE, "ceil": ONE, "round": ONE,
    "isnan": [call("ends")], "isinf": [call("ends")],
    "relu": ONE, "relu6": ONE, "silu": ONE, "mish": ONE, "hardsigmoid": ONE, "hardswish": ONE,
    "sigmoid": ONE, "tanh": ONE, "logsigmoid": ONE, "softsign": ONE, "selu": ONE,
    "hardtanh": [call("x"), call("x", min_val=-2.0, max_val=3.0)],
    "clamp": [call("x", min=-1, max=2), call("x", min=0), call("x", max=3)],
    "leaky_relu": [call("x"), call("x", negative_slope=0.3)],
    "prelu": [call("x", "one"), call("x", "row"), call("image", "one")],
    "elu": [call("x"), call("x", alpha=0.5)],
    "celu": [call("x"), call("x", alpha=2.0)],
    "gelu": [call("x"), call("x", approximate="tanh")],
    "softplus": [call("x"), call("x", threshold=2.0), call("x", beta=0.5, threshold=3.0)],
    "softmax": SOFTMAX, "log_softmax": SOFTMAX,
    "dropout": [call("x", training=False), call("x", p=0.0), call("x", p=0.3, training=False)],
    **dict.fromkeys(("gt", "lt", "eq", "ne", "ge", "le"), COMPARED),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), LOGIC),
    "logical_not": [call("mask")],
    "where": [call("mask", "x", "y"), call("mask", "x", "row")],
    **dict.fromkeys(("sum", "mean", "amax", "amin"), REDUCED),
    "logsumexp": REDUCED[1:],
    "prod": [call("y"), call("y", dim=1), call("y", dim=-1, keepdim=True)],
    "argmax": [call("apart", dim=1), call("apart", dim=-2, keepdim=True)],
    "argmin": [call("apart", dim=1), call("apart", dim=-2, keepdim=True)],
    "cumsum": [call("cube", dim=1), call("cube", dim=-1)],
    "topk": [
        call("apart", k=2),
        call("apart", k=1, dim=0),
        call("apart", k=3, largest=False),
    ],
    "cast": [call("x", dtype=to) for to in ("float64", "float16", "int32", "bool")],
    "clone": ONE,
    "reshape": [
        call("x", shape=[2, 6]),
        call("x", shape=[4, -1]),
        call("none", shape=[3, 0]),
    ],
    "flatten": [call("cube"), call("cube", start_dim=1)],
    "permute": [call("cube", dims=[2, 0, 1])],
    "t": [call("x")],
    "unsqueeze": [call("x", dim=0), call("x", dim=2), call("x", dim=-2)],
    "squeeze": [call("thin"), call("thin", dim=[3]), call("thin", dim=[-1, 2])],
    "expand": [call("row", size=[3, 4]), call("thin", size=[2, 2, 3, 5])],
    "cat": [call(("x", "y")), call(("x", "y", "apart"), dim=1), call(("x",), dim=-1)],
    "split": [
        call("x", split_size_or_sections=[1, 2]),
        call("cube", split_size_or_sections=[1, 3], dim=2),
    ],
    "gather": [call("x", "indices", dim=1)],
    "index_select": [call("x", "index", dim=1), call("x", "index", dim=0)],
    "embedding": [call("indices", "x"), call("index", "x")],
}  # fmt: skip

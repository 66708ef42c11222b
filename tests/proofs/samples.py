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
    parts: int = 1

    def __str__(self) -> str:
        tensors = [f"[{', '.join(t)}]" if isinstance(t, tuple) else t for t in self.tensors]
        return ", ".join([*tensors, *(f"{key}={value!r}" for key, value in self.keywords.items())])


def call(*tensors: str | tuple[str, ...], parts: int = 1, **keywords: Any) -> Sample:
    return Sample(tensors, keywords, parts)


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
VALUES |= {
    "above_one": np.array([1.0, 1.5, 3.0, 20.0]),
    "table": np.array([[1.0, -2.0, 0.5], [3.0, 4.0, -1.5], [2.0, 0.25, 6.0]]),
    "tall_2": _draw.permutation(12).reshape(4, 3) - 5.5,
    "tall_3": _draw.permutation(8).reshape(2, 4) - 3.5,
    "pair": np.array([0.5, -2.0]),
    "block": _draw.permutation(12).reshape(2, 3, 2) - 5.5,
    "deep": _draw.permutation(16).reshape(2, 4, 2) - 7.5,
    "square_matrix": np.array([[2.0, 1.0, -1.0], [0.5, 3.0, 2.0], [1.0, -2.0, 4.0]]),
    "matrices": np.array([[[2.0, 1.0], [0.5, 3.0]], [[1.0, -1.0], [4.0, 2.0]]]),
    "scalar": np.array(1.5),
    "kernel_1": _draw.permutation(12).reshape(2, 3, 2) - 5.5,
    "kernel_2": _draw.permutation(24).reshape(2, 3, 2, 2) - 11.5,
    "kernel_grouped": _draw.permutation(12).reshape(3, 1, 2, 2) - 5.5,
    "kernel_3": _draw.permutation(16).reshape(1, 2, 2, 2, 2) - 7.5,
    "back_1": _draw.permutation(12).reshape(3, 2, 2) - 5.5,
    "back_2": _draw.permutation(24).reshape(3, 2, 2, 2) - 11.5,
    "back_grouped": _draw.permutation(12).reshape(3, 1, 2, 2) - 5.5,
    "back_3": _draw.permutation(16).reshape(2, 1, 2, 2, 2) - 7.5,
    "volume": _draw.permutation(54).reshape(1, 2, 3, 3, 3) / 4 - 6.5,
    "long": _draw.permutation(16).reshape(1, 2, 8) - 7.5,
    "wide": _draw.permutation(90).reshape(1, 3, 6, 5) / 4 - 11.0,
    "fields": _draw.permutation(48).reshape(2, 4, 2, 3) / 4 - 6.0,
    "thick": np.ones((2, 2, 3, 5)),
    "patch": np.array([[1.0, -2.0], [0.5, 4.0], [-1.5, 3.0]]),
    "cube_2": _draw.permutation(24).reshape(2, 3, 4) / 4 - 2.5,
    "tril_like": np.array([[1.0, 0.0, 2.0], [0.0, 0.0, -1.0]]),
    "blocks": _draw.permutation(48).reshape(1, 8, 2, 3) / 4 - 6.0,
    "grid": _draw.permutation(48).reshape(1, 4, 6, 2) / 16.0 - 1.375,
    "affine": np.array([[[1.0, 0.25, -0.5], [0.5, -1.0, 0.25]]]),
    "query": _draw.permutation(48).reshape(2, 2, 3, 4) / 16.0 - 1.5,
    "key": _draw.permutation(80).reshape(2, 2, 5, 4) / 32.0 - 1.25,
    "values": _draw.permutation(80).reshape(2, 2, 5, 4) / 16.0 - 2.5,
    "attention": _draw.permutation(15).reshape(3, 5) / 4.0 - 2.0,
    "channels": np.array([0.5, -1.0, 2.0]),
    "channels_2": np.array([1.5, 0.25, -2.0]),
    "channels_3": np.array([-0.5, 3.0, 1.0]),
    "spread": np.array([0.25, 4.0, 1.0]),
    "positive_4": np.array([0.25, 4.0, 1.0, 2.0]),
    "row_2": np.array([-0.5, 3.0, 1.0, 2.5]),
    "part": _draw.permutation(12).reshape(3, 4) / 4 - 1.5,
}
FIXED: dict[str, NDArray[Any]] = {
    "mask_3": _draw.permutation(24).reshape(2, 3, 4) % 3 == 0,
    "counts": np.array([0, 1, 5, 255, 128], np.uint8),
    "shifts": np.array([3, 1, 6, 129, 127], np.uint8),
    "bytes": np.array([0, 1, 5, 255, 128], np.uint8),
    "few": np.array([3, 1, 2, 1, 4], np.uint8),
    "signs": np.array([[-3, 0, 7], [1 << 40, -1, 2]]),
    "shifts_64": np.array([5, -9, 12]),
    "mask": np.array([[True, False, True, True], [False, False, True, False], [True] * 4]),
    "other_mask": np.array([[True, True, False, True], [False, True, True, False], [False] * 4]),
    "index": np.array([2, 0, 2], np.int64),
    "index_row": np.array([[2, 0]], np.int64),
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
BITS = [*LOGIC, call("counts", "shifts"), call("signs", "shifts_64")]
SHIFTS = [call("bytes", "few")]
QUANTIFIED = [
    call("mask"),
    call("mask", dim=[1]),
    call("mask", dim=[-2], keepdim=True),
    call("mask", dim=[0, 1]),
]
SPREAD = [
    call("cube", correction=0),
    call("cube", dim=[1], correction=0),
    call("cube", dim=[-1, 0], correction=0, keepdim=True),
    call("cube"),
    call("cube", dim=[2], keepdim=True),
    call("cube", dim=[0, 2], correction=2),
]
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
    "conv1d": [
        call("cube", "kernel_1"), call("cube", "kernel_1", "pair", stride=2, padding=1),
        call("cube", "kernel_1", padding="same"), call("cube", "kernel_1", padding="valid"),
        call("cube", "kernel_1", dilation=2),
    ],
    "conv2d": [
        call("image", "kernel_2"), call("image", "kernel_2", "pair"),
        call("image", "kernel_2", "pair", stride=[2, 1], padding=[1, 0], dilation=[1, 1]),
        call("image", "kernel_2", padding=1, stride=2, dilation=2),
        call("image", "kernel_2", padding="same"), call("image", "kernel_2", padding="valid"),
        call("image", "kernel_grouped", groups=3),
    ],
    "conv3d": [
        call("volume", "kernel_3"), call("volume", "kernel_3", stride=[1, 2, 1], padding=1),
        call("volume", "kernel_3", padding="same"), call("volume", "kernel_3", padding="valid"),
    ],
    "conv_transpose1d": [
        call("cube", "back_1"), call("cube", "back_1", stride=2, padding=1, output_padding=1),
    ],
    "conv_transpose2d": [
        call("image", "back_2"), call("image", "back_2", "pair", stride=[2, 3], dilation=2),
        call("image", "back_2", "pair", stride=2, padding=1, output_padding=[1, 0]),
        call("image", "back_grouped", groups=3),
    ],
    "conv_transpose3d": [call("volume", "back_3"), call("volume", "back_3", stride=2, padding=1)],
    "max_pool1d": [
        call("long", kernel_size=2), call("long", kernel_size=3, stride=1, padding=1),
        call("long", kernel_size=2, dilation=2), call("long", kernel_size=3, ceil_mode=True),
    ],
    "max_pool2d": [
        call("wide", kernel_size=2), call("wide", kernel_size=[3, 2], stride=[1, 2]),
        call("wide", kernel_size=3, padding=1, dilation=2, stride=1),
        call("wide", kernel_size=2, stride=3, ceil_mode=True),
        call("wide", kernel_size=3, stride=2, padding=1, ceil_mode=True),
    ],
    "max_pool3d": [call("volume", kernel_size=2), call("volume", kernel_size=2, padding=1)],
    "avg_pool1d": [
        call("long", kernel_size=2), call("long", kernel_size=3, stride=2, padding=1),
        call("long", kernel_size=3, stride=2, padding=1, count_include_pad=False),
        call("long", kernel_size=3, ceil_mode=True),
    ],
    "avg_pool2d": [
        call("wide", kernel_size=2),
        call("wide", kernel_size=[3, 2], stride=[1, 2], padding=[1, 0]),
        call("wide", kernel_size=3, stride=2, padding=1, count_include_pad=False),
        call("wide", kernel_size=2, stride=3, ceil_mode=True),
        call("wide", kernel_size=3, stride=2, padding=1, ceil_mode=True),
        call("wide", kernel_size=3, stride=2, padding=1, ceil_mode=True, count_include_pad=False),
    ],
    "avg_pool3d": [
        call("volume", kernel_size=2), call("volume", kernel_size=2, padding=1, stride=1),
        call("volume", kernel_size=2, padding=1, count_include_pad=False),
    ],
    "adaptive_avg_pool1d": [call("cube", output_size=1)],
    "adaptive_avg_pool2d": [call("wide", output_size=1), call("wide", output_size=[1, 1])],
    "adaptive_avg_pool3d": [call("volume", output_size=1)],
    "adaptive_max_pool1d": [call("cube", output_size=1)],
    "adaptive_max_pool2d": [call("wide", output_size=1), call("wide", output_size=[1, 1])],
    "adaptive_max_pool3d": [call("volume", output_size=1)],
    "lp_pool1d": [
        call("long", norm_type=2.0, kernel_size=2),
        call("long", norm_type=4.0, kernel_size=3, stride=1),
    ],
    "lp_pool2d": [
        call("wide", norm_type=2.0, kernel_size=2),
        call("wide", norm_type=2.0, kernel_size=[3, 2], stride=1),
    ],
    "batch_norm": [
        call("image", "channels", "spread", "channels_2", "channels_3"),
        call("image", "channels", "spread", "channels_2", "channels_3", eps=0.5),
        call("x", "row", "positive_4", "row_2", "row"),
    ],
    "instance_norm": [
        call("wide", weight="channels", bias="channels_2"),
        call("wide", weight="channels", bias="channels_2", eps=0.5), call("wide"),
        call("long"), call("wide", eps=0.25),
    ],
    "layer_norm": [
        call("x", "row", normalized_shape=[4]), call("x", "row", "row_2", normalized_shape=[4]),
        call("cube", "part", normalized_shape=[3, 4]), call("cube", normalized_shape=[4]),
        call("cube", normalized_shape=[3, 4], eps=0.5),
        call("cube", "row", "row_2", normalized_shape=[4], eps=0.25),
    ],
    "rms_norm": [
        call("x", "row", normalized_shape=[4]), call("cube", "row", normalized_shape=[4], eps=1e-5),
        call("cube", "part", normalized_shape=[3, 4], eps=0.5), call("cube", normalized_shape=[4]),
        call("cube", normalized_shape=[3, 4], eps=0.25),
    ],
    "group_norm": [
        call("fields", num_groups=2), call("fields", "row", "row_2", num_groups=2),
        call("fields", "row", "row_2", num_groups=4, eps=0.5),
        call("fields", num_groups=4, eps=0.25),
        call("x", "row", "row_2", num_groups=2),
    ],
    "normalize": [
        call("cube"), call("cube", dim=-1), call("cube", p=1.0), call("cube", p=1.0, dim=0),
        call("cube", eps=50.0),
    ],
    "local_response_norm": [
        call("fields", size=3), call("fields", size=1, alpha=0.5, beta=0.5, k=2.0),
        call("fields", size=5, alpha=0.25),
    ],
    "asinh": ONE, "acosh": [call("above_one")], "atanh": [call("unit")],
    "exp2": [call("y")], "log2": [call("positive")], "log10": [call("positive")],
    "erfc": [call("y")], "trunc": ONE, "frac": ONE, "isfinite": [call("ends")],
    "hypot": PAIR,
    "addcmul": [call("x", "y", "apart"), call("x", "y", "row", value=0.5)],
    "addcdiv": [call("x", "apart", "y"), call("x", "row", "y", value=-2.5)],
    "lerp": [call("x", "y", "apart"), call("x", "row", weight=0.25)],
    "addmm": [
        call("table", "x", "tall_2"), call("small", "x", "tall_2"),
        call("table", "x", "tall_2", beta=0.5), call("table", "x", "tall_2", alpha=3.0),
        call("table", "x", "tall_2", alpha=-2.0, beta=0.25),
    ],
    "baddbmm": [call("block", "cube", "deep"), call("block", "cube", "deep", beta=0.5, alpha=2.0)],
    "linear": [
        call("x", "tall_3"), call("x", "tall_3", "pair"), call("cube", "tall_3"),
        call("cube", "tall_3", "pair"),
    ],
    "einsum": [
        call(("x", "tall_2"), equation="ij,jk->ik"), call(("cube",), equation="abc->cb"),
        call(("cube", "cube"), equation="abc,abd->acd"),
    ],
    "det": [call("square_matrix"), call("matrices")],
    "threshold": [call("x", threshold=1.0, value=0.0), call("x", threshold=-2.0, value=7.0)],
    "hardshrink": [call("x"), call("x", lambd=2.0)],
    "softshrink": [call("x"), call("x", lambd=2.0)],
    "tanhshrink": ONE,
    "glu": [call("x"), call("image", dim=0), call("cube", dim=-1)],
    "softmin": SOFTMAX[:1] + SOFTMAX[2:3],
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), BITS),
    "bitwise_not": [call("mask"), call("counts"), call("signs")],
    "bitwise_left_shift": SHIFTS, "bitwise_right_shift": SHIFTS,
    "masked_fill": [call("x", "mask", value=2.5), call("cube", "mask_3", "scalar")],
    "all": QUANTIFIED, "any": QUANTIFIED, "var": SPREAD, "std": SPREAD,
    "vector_norm": [
        call("cube"), call("cube", dim=[1]), call("cube", dim=[-1, 0], keepdim=True),
        call("cube", ord=1.0, dim=[2]), call("cube", ord=1, keepdim=True),
    ],
    "sort": [call("apart"), call("apart", dim=0), call("apart", dim=-2, descending=True)],
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
    "expand_as": [call("row", "x"), call("thin", "thick")],
    "cat": [call(("x", "y")), call(("x", "y", "apart"), dim=1), call(("x",), dim=-1)],
    "split": [
        call("x", split_size_or_sections=[1, 2], parts=2),
        call("cube", split_size_or_sections=[1, 3], dim=2, parts=2),
    ],
    "transpose": [
        call("x", dim0=0, dim1=1), call("cube", dim0=2, dim1=0), call("cube", dim0=-1, dim1=1),
        call("thin", dim0=1, dim1=2),
    ],
    "slice": [
        call("cube", dim=1, start=1), call("cube", dim=-1, start=1, end=3), call("cube", end=1),
        call("cube", dim=2, start=-3, end=-1), call("cube", dim=2, start=1, step=2),
        call("cube", dim=1, start=0, end=9), call("cube", dim=2, start=3, end=1),
    ],
    "select": [
        call("cube", dim=1, index=2), call("cube", dim=0, index=0), call("cube", dim=-1, index=-1),
    ],
    "scatter": [call("x", "indices", "patch", dim=0), call("x", "indices", "patch", dim=1)],
    "scatter_add": [call("x", "indices", "patch", dim=0), call("x", "indices", "patch", dim=-1)],
    "scatter_reduce": [
        call("x", "indices", "patch", dim=1, reduce=how) for how in ("sum", "prod", "amax", "amin")
    ],
    "stack": [call(("x", "y")), call(("x", "y", "apart"), dim=1), call(("x", "y"), dim=-1)],
    "chunk": [
        call("cube", chunks=2, parts=2), call("cube", chunks=3, dim=1, parts=3),
        call("cube", chunks=2, dim=-1, parts=2),
    ],
    "repeat": [call("x", repeats=[2, 1]), call("cube", repeats=[1, 2, 3])],
    "tile": [call("x", dims=[2, 1]), call("cube", dims=[1, 2, 3])],
    "pad": [
        call("cube", pad=[1, 2]), call("cube", pad=[1, 0, 0, 2], value=2.5),
        call("cube", pad=[0, 0, 1, 1]), call("cube", pad=[-1, 1]),
        call("cube", pad=[1, 2], mode="reflect"), call("cube", pad=[1, 2], mode="replicate"),
        call("cube", pad=[1, 2], mode="circular"),
    ],
    "roll": [call("cube", shifts=[1], dims=[1]), call("cube", shifts=[-1], dims=[2])],
    "flip": [call("cube", dims=[1]), call("cube", dims=[0, -1]), call("x", dims=[0, 1])],
    "tril": [call("x"), call("cube", diagonal=1), call("x", diagonal=-1)],
    "triu": [call("x"), call("cube", diagonal=1), call("x", diagonal=-1)],
    "one_hot": [call("index", num_classes=3), call("indices", num_classes=5)],
    "nonzero": [call("tril_like")],
    "pixel_shuffle": [call("blocks", upscale_factor=2)],
    "cosine_similarity": [
        call("x", "y"), call("cube", "cube_2", dim=-1), call("x", "y", eps=30.0),
    ],
    "interpolate": [
        call("wide", scale_factor=2.0), call("wide", size=[9, 10]), call("wide", size=[3, 2]),
        call("long", size=[5]), call("volume", scale_factor=2.0),
        call("wide", scale_factor=2.0, mode="bilinear"),
        call("wide", size=[4, 3], mode="bilinear"), call("wide", size=[1, 1], mode="bilinear"),
        call("wide", size=[9, 7], mode="bilinear", align_corners=True),
        call("wide", scale_factor=2.0, mode="bilinear", align_corners=True),
        call("wide", scale_factor=2.0, mode="bicubic"),
        call("wide", size=[4, 8], mode="bicubic", align_corners=True),
        call("wide", size=[4, 8], mode="bicubic"),
        call("wide", scale_factor=1.5, mode="bicubic", align_corners=True),
        call("long", size=[5], mode="linear"), call("long", scale_factor=1.5, mode="linear"),
        call("long", size=[5], mode="linear", align_corners=True),
        call("long", scale_factor=1.5, mode="linear", align_corners=True),
        call("volume", size=[4, 2, 5], mode="trilinear"),
        call("volume", scale_factor=2.0, mode="trilinear"),
        call("volume", size=[4, 2, 5], mode="trilinear", align_corners=True),
        call("volume", scale_factor=2.0, mode="trilinear", align_corners=True),
    ],
    "grid_sample": [
        call("wide", "grid"), call("wide", "grid", align_corners=True),
        call("wide", "grid", mode="nearest"), call("wide", "grid", padding_mode="border"),
        call("wide", "grid", padding_mode="reflection", align_corners=True),
        call("wide", "grid", mode="bicubic"),
    ],
    "affine_grid": [
        call("affine", size=[1, 2, 3, 4]), call("affine", size=[1, 2, 3, 4], align_corners=True),
    ],
    "scaled_dot_product_attention": [
        call("query", "key", "values"), call("query", "key", "values", "attention"),
        call("query", "key", "values", scale=0.25), call("query", "key", "values", is_causal=True),
    ],
    "gather": [call("x", "indices", dim=1)],
    "index_select": [call("x", "index", dim=1), call("x", "index", dim=0)],
    "embedding": [call("indices", "x"), call("index", "x")],
}  # fmt: skip
REFUSED: dict[str, list[Sample]] = {
    "adaptive_avg_pool2d": [call("wide", output_size=[2, 2]), call("wide", output_size=[1, 2])],
    "adaptive_max_pool2d": [call("wide", output_size=2)],
    "batch_norm": [call("image", "channels", "spread", training=True)],
    "conv2d": [call("image", "kernel_2", padding="same", dilation=2)],
    "chunk": [call("cube", chunks=2, dim=1, parts=2)],
    "expand": [call("row", size=[3, -1])],
    "local_response_norm": [call("fields", size=2)],
    "lp_pool1d": [call("long", norm_type=3.0, kernel_size=2)],
    "lp_pool2d": [call("wide", norm_type=2.0, kernel_size=2, stride=3, ceil_mode=True)],
    "one_hot": [call("index")],
    "repeat": [call("x", repeats=[2, 1, 1])],
    "roll": [call("cube", shifts=[5], dims=[1]), call("cube", shifts=[1, 1], dims=[0, 1])],
    "scatter": [call("x", "index_row", "patch", dim=0)],
    "tile": [call("x", dims=[2])],
}
"""Calls that torch takes and no ONNX op of the table says: none may be written."""

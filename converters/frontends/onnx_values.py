"""What stands for a value while an equation is written as ONNX nodes, and constants of it.

A number in an equation has no dtype; it takes that of the value beside it, and is rounded to it
exactly once, from float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oprep.converters.frontends.onnx_types import dtype_name, dtype_number
from oprep.opsets.errors import ExitCode, OprepError

if TYPE_CHECKING:
    from onnx import AttributeProto, TensorProto

BOOL, FLOAT, DOUBLE, INT64 = 9, 1, 11, 7
"""Numbers of dtypes in `TensorProto`, which are fixed for good."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the graph, its dtype as `TensorProto` numbers it, None where unknown.

    `loose` marks a number that is only known when the graph runs (an attribute of a function): it
    has to be cast to the dtype of what stands beside it.
    """

    name: str
    dtype: int | None = None
    loose: bool = False


@dataclass(frozen=True, slots=True)
class AttributeRef:
    """An attribute of the function being written; `kind` is that of an op's parameter."""

    name: str
    kind: str


ATTRIBUTE_KINDS = {
    "float": "FLOAT", "int": "INT", "bool": "INT", "str": "STRING",
    "floats": "FLOATS", "ints": "INTS", "bools": "INTS", "strs": "STRINGS",
}  # fmt: skip
"""Kinds of an op's parameters, and what ONNX calls them."""


_IN_TYPES = {"float32": "float", "float64": "double", "str": "string"}


def type_string(number: int) -> str:
    """Give a dtype as schemas write it: `tensor(double)`."""
    name = dtype_name(number) or "undefined"
    return f"tensor({_IN_TYPES.get(name, name)})"


def dtype_of_type(text: str) -> int | None:
    """Read `tensor(int64)`; None for what is no tensor."""
    name = text.removeprefix("tensor(").removesuffix(")")
    return dtype_number(next((ours for ours, theirs in _IN_TYPES.items() if theirs == name), name))


def tensor(value: Any, dtype: int, name: str = "") -> TensorProto:
    """Make a tensor of a number or a list, rounded once to `dtype`; refuse what does not fit."""
    import numpy as np
    from onnx import helper, numpy_helper

    kind = helper.tensor_dtype_to_np_dtype(dtype)
    items = value if isinstance(value, list) else [value]
    for item in items:
        _check_fits(item, dtype)
    with np.errstate(over="ignore"):
        array = np.array(items, dtype=None if items else kind).astype(kind)
    for item, rounded in zip(items, array, strict=True):
        if isinstance(item, float) and math.isfinite(item) and not math.isfinite(float(rounded)):
            raise _no_room(item, dtype)
    return numpy_helper.from_array(array if isinstance(value, list) else array.reshape(()), name)


def loose_dtype(value: Any) -> int:
    """Choose a dtype that holds a number exactly until it is cast to that of its neighbour."""
    import numpy as np

    items = value if isinstance(value, list) else [value]
    if all(isinstance(item, int) for item in items):
        return INT64
    with np.errstate(over="ignore"):
        exact = all(math.isnan(item) or float(np.float32(item)) == item for item in items)
    return FLOAT if exact else DOUBLE


def attribute(name: str, kind: str, value: Any) -> AttributeProto:
    """Make an attribute of a kind (`FLOAT`, `INTS`, …) from a plain value or a reference."""
    from onnx import AttributeProto, helper

    if isinstance(value, AttributeRef):
        made = AttributeProto(name=name, ref_attr_name=value.name)
        made.type = AttributeProto.AttributeType.Value(ATTRIBUTE_KINDS[value.kind])
        return made
    number = AttributeProto.AttributeType.Value(kind)
    return helper.make_attribute(name, _as_kind(name, kind, value), attr_type=number)


def _as_kind(name: str, kind: str, value: Any) -> Any:
    if kind.endswith("S"):
        items = value if isinstance(value, list) else [value]
        return [_as_kind(name, kind[:-1], item) for item in items]
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if kind == "INT" and isinstance(value, str) and (number := dtype_number(value)):
        return number
    if kind == "INT" and isinstance(value, int | float) and value == int(value):
        return int(value)
    if kind == "FLOAT" and isinstance(value, int | float):
        return float(value)
    if kind in ("TENSOR", "GRAPH") or (kind == "STRING" and isinstance(value, str)):
        return value
    raise OprepError(
        f"attribute `{name}` cannot be {value!r}",
        notes=(f"it takes {_KIND_WORDS.get(kind, kind.lower())}",),
        help=f"write another value for `{name}`",
        exit_code=ExitCode.RULES,
    )


_KIND_WORDS = {"INT": "an integer", "FLOAT": "a number", "STRING": "a string"}


def _check_fits(item: Any, dtype: int) -> None:
    import numpy as np
    from onnx import helper

    kind = helper.tensor_dtype_to_np_dtype(dtype)
    if kind.kind not in "iu" or isinstance(item, str):
        return
    if isinstance(item, float) and (not math.isfinite(item) or item != int(item)):
        raise OprepError(
            f"the number {item!r} stands beside a tensor of {dtype_name(dtype)}",
            notes=("a fraction has no value in an integer dtype",),
            help="cast the tensor first: `cast(x, 'float32')`",
            exit_code=ExitCode.EXPECTATION,
        )
    limits = np.iinfo(kind)
    if not limits.min <= item <= limits.max:
        raise _no_room(item, dtype)


def _no_room(item: float, dtype: int) -> OprepError:
    return OprepError(
        f"the number {item!r} does not fit into {dtype_name(dtype)}",
        help="write a number that the dtype of the tensor beside it can hold",
        exit_code=ExitCode.EXPECTATION,
    )

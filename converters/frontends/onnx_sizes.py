"""How many bytes a tensor needs, and whether a TensorProto has them: exact integers only."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import SparseTensorProto, TensorProto

STRING = 8
BITS = {
    1: 32,
    2: 8,
    3: 8,
    4: 16,
    5: 16,
    6: 32,
    7: 64,
    9: 8,
    10: 16,
    11: 64,
    12: 32,
    13: 64,
    14: 64,
    15: 128,
    16: 16,
    17: 8,
    18: 8,
    19: 8,
    20: 8,
    21: 4,
    22: 4,
    23: 4,
    24: 8,
    25: 2,
    26: 2,
    27: 6,
    28: 6,
}
"""Bits per element by TensorProto.DataType, as onnx.proto declares them."""
INT32_PACKED = frozenset({21, 22, 23, 25, 26})
FLOAT_DATA = {1: 1, 14: 2}
DOUBLE_DATA = {11: 1, 15: 2}
INT64_DATA = {7: 1}
UINT64_DATA = {12: 1, 13: 1}


def needed_bytes(data_type: int, dims: tuple[int, ...]) -> int:
    """Give the bytes of raw data that a tensor has; sub-byte elements are packed."""
    return (prod(dims) * BITS[data_type] + 7) // 8


def tensor_fault(tensor: TensorProto) -> str:
    """Say why the bytes in a TensorProto do not back its dims; empty when they do.

    A tensor whose data lies in another file is judged by its gate, not here.
    """
    dims, data_type = tuple(tensor.dims), tensor.data_type
    if data_type != STRING and data_type not in BITS:
        return f"its data type {data_type} is not known"
    if any(dim < 0 for dim in dims):
        return f"its dims {list(dims)} are negative"
    if tensor.data_location == 1:
        return ""
    count = prod(dims)
    if data_type == STRING:
        return _mismatch("strings", len(tensor.string_data), count)
    if tensor.HasField("raw_data"):
        return _mismatch("bytes", len(tensor.raw_data), needed_bytes(data_type, dims))
    return _mismatch("numbers", *_typed(tensor, data_type, count))


def _typed(tensor: TensorProto, data_type: int, count: int) -> tuple[int, int]:
    """Give how many numbers the typed field of this data type holds, and how many it needs."""
    if data_type in FLOAT_DATA:
        return len(tensor.float_data), count * FLOAT_DATA[data_type]
    if data_type in DOUBLE_DATA:
        return len(tensor.double_data), count * DOUBLE_DATA[data_type]
    if data_type in INT64_DATA:
        return len(tensor.int64_data), count
    if data_type in UINT64_DATA:
        return len(tensor.uint64_data), count
    packed = 8 // BITS[data_type] if data_type in INT32_PACKED else 1
    return len(tensor.int32_data), -(-count // packed)


def _mismatch(what: str, found: int, needed: int) -> str:
    return "" if found == needed else f"it holds {found} {what} and needs {needed}"


def sparse_fault(tensor: SparseTensorProto) -> str:
    """Say why a sparse tensor is not whole; empty when it is."""
    if any(dim < 0 for dim in tensor.dims):
        return f"its dims {list(tensor.dims)} are negative"
    fault = tensor_fault(tensor.values)
    if not fault:
        fault = tensor_fault(tensor.indices)
    return fault

"""What the table of weights says of a tensor, against the bytes that are there for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oprep.converters.pt2.entries import Entry, refused
from oprep.converters.pt2.schema import WIDTHS
from oprep.converters.reading import Readable

STRIDED = 7


def check_payload(source: Readable, entry: Entry, name: str, meta: Mapping[str, Any]) -> None:
    """Refuse (exit 3) a tensor whose last element lies beyond the bytes of its entry.

    A tensor of symbolic size is refused too. An entry without bytes stands for zeros, which torch
    makes at loading: so many elements are refused that nothing in the file bears out.
    """
    tensor = meta["tensor_meta"] if meta.get("tensor_meta") is not None else None
    if tensor is None:
        raise refused(source, f"the tensor `{name}` has neither dtype nor size")
    sizes, strides = _numbers(tensor["sizes"]), _numbers(tensor["strides"])
    (offset,) = _numbers([tensor["storage_offset"]])
    if None in sizes or None in strides or offset is None or len(sizes) != len(strides):
        raise refused(source, f"the tensor `{name}` has no plain size")
    width = WIDTHS[tensor["dtype"]]
    if min([offset, *sizes, *strides], default=0) < 0 or tensor["layout"] != STRIDED:
        raise refused(source, f"the tensor `{name}` has a size or layout that is not known here")
    empty = 0 in sizes
    last = offset + sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))
    needed = 0 if empty else (last + 1) * width
    if needed > entry.size or entry.size % width:
        raise refused(
            source,
            f"the tensor `{name}` needs {needed} bytes, entry `{entry.name}` has {entry.size}",
        )


def _numbers(sizes: list[Mapping[str, Any]]) -> list[Any]:
    return [size.get("as_int") for size in sizes]

"""What a graph declares of a value, against what the new op's fake implementation gives."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true


def difference(declared: Any, found: Any) -> tuple[str, str] | None:
    """Give both sides, as messages print them, where two values differ; None where they agree.

    Compared are dtype, shape, device, layout and the strides that can be seen: those of axes of
    one element, and of tensors without elements, cannot.
    """
    if not isinstance(declared, torch.Tensor) or not isinstance(found, torch.Tensor):
        same = type(declared) is type(found)
        return None if same else (type(declared).__name__, type(found).__name__)
    one, other = describe(declared), describe(found)
    if declared.dtype != found.dtype or declared.dim() != found.dim():
        return one, other
    if not _same_sizes(declared.shape, found.shape):
        return one, other
    if declared.device != found.device or declared.layout != found.layout:
        where = f"{declared.device}, {declared.layout}", f"{found.device}, {found.layout}"
        return f"{one} on {where[0]}", f"{other} on {where[1]}"
    if declared.layout is torch.strided and not _same_strides(declared, found):
        return f"{one} with {_strides(declared)}", f"{other} with {_strides(found)}"
    return None


def describe(value: torch.Tensor) -> str:
    """Write dtype and shape as reports have them: `float32[s77, 4]`."""
    sizes = ", ".join(str(size) for size in value.shape)
    return f"{str(value.dtype).removeprefix('torch.')}[{sizes}]"


def _strides(value: torch.Tensor) -> str:
    return f"strides [{', '.join(str(item) for item in value.stride())}]"


def _same_sizes(one: Any, other: Any) -> bool:
    return all(_same(a, b) for a, b in zip(one, other, strict=True))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    if free_unbacked_symbols(other) and free_unbacked_symbols(one):
        return True  # each run of a data-dependent op has a symbol of its own
    return statically_known_true(one == other)


def _same_strides(one: torch.Tensor, other: torch.Tensor) -> bool:
    sizes = one.shape
    if any(isinstance(size, int) and size == 0 for size in sizes):
        return True
    return all(
        _same(a, b)
        for a, b, size in zip(one.stride(), other.stride(), sizes, strict=True)
        if not (isinstance(size, int) and size == 1)
    )

"""Inputs and outputs of a program as plain data, so that another process gets the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from oprep.converters.programs.tensors import to_array, to_tensor


def to_plain(leaf: Any) -> dict[str, Any]:
    """Write a flat input or output as plain data: a tensor's elements and its strides."""
    if isinstance(leaf, Tensor):
        dense = leaf.detach()
        dense = dense.to_dense() if dense.layout is not torch.strided else dense
        return {"array": to_array(dense), "strides": list(dense.stride())}
    known = leaf is None or isinstance(leaf, bool | int | float | str)
    return {"plain": leaf if known else str(leaf)}


def from_plain(data: Mapping[str, Any]) -> Any:
    """Read a flat input; a tensor lies in memory as it did, repeated elements too."""
    if "array" not in data:
        return data["plain"]
    dense, strides = to_tensor(data["array"]), tuple(data["strides"])
    narrow, shape = dense, dense.shape
    for dim, step in enumerate(strides):
        if not step and shape[dim] > 1:
            narrow = narrow.narrow(dim, 0, 1)
    if strides != dense.stride():
        blank = torch.empty_strided(narrow.shape, strides, dtype=dense.dtype)
        narrow = blank.copy_(narrow)
    return narrow.expand(shape)

"""Tensors and numpy arrays of the same dtype, bfloat16 and its like included."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

PLAIN = frozenset(
    (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16,
     torch.uint32, torch.uint64, torch.float16, torch.float32, torch.float64, torch.complex64,
     torch.complex128)
)  # fmt: skip
"""What torch hands to numpy by itself."""

OF_ITEMSIZE = {1: torch.uint8, 2: torch.int16}


def dtype_name(dtype: torch.dtype) -> str:
    """Give the dtype as reports name it, `float32`."""
    return str(dtype).removeprefix("torch.")


def to_array(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Copy a tensor into an array; dtypes that numpy lacks are those of `ml_dtypes`."""
    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if dense.dtype in PLAIN:
        return np.array(dense.numpy())
    import ml_dtypes  # slow to import, and seldom needed

    scalar = np.dtype(getattr(ml_dtypes, dtype_name(dense.dtype)))
    return np.array(dense.view(OF_ITEMSIZE[dense.itemsize]).numpy()).view(scalar)


def to_tensor(array: np.ndarray[Any, Any]) -> Tensor:
    """Copy an array into a tensor of the same dtype; TypeError where torch has no such dtype."""
    dtype = getattr(torch, array.dtype.name, None)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"torch has no dtype `{array.dtype}`")
    whole = np.ascontiguousarray(array).reshape(array.shape)
    native = np.array(whole, whole.dtype.newbyteorder("="))
    if dtype in PLAIN:
        return torch.from_numpy(native)
    bits = {1: np.uint8, 2: np.int16}[native.dtype.itemsize]
    return torch.from_numpy(native.view(bits)).view(dtype)

"""Numbers of an equation as torch takes them: beside a tensor, or as a tensor of its dtype."""

from __future__ import annotations

from typing import Any

import torch

from oprep.converters.graph import ABSENT
from oprep.converters.programs.builders import Builder


def beside(value: Any, like: Any) -> Any:
    """Bring a number to the kind of the tensor beside it; ABSENT where that would cut a fraction.

    Lists are brought number by number; what is no number stays as it is.
    """
    if isinstance(value, list):
        items = [beside(item, like) for item in value]
        return ABSENT if ABSENT in items else items
    if type(value) is not float or like is None:
        return value
    if like.dtype.is_floating_point or like.dtype.is_complex:
        return value
    return int(value) if value.is_integer() else ABSENT


def constant(builder: Builder, value: Any, like: torch.Tensor) -> Any:
    """Make a number a tensor of no dimension, a list one of rank one, of the dtype of `like`."""
    dtype = torch.bool if isinstance(value, bool) else like.dtype
    made = {"dtype": dtype, "device": like.device}
    if not isinstance(value, list):
        return builder.call(torch.ops.aten.scalar_tensor.default, (value,), made)
    if len({repr(item) for item in value}) <= 1:
        filled = value[0] if value else 0
        return builder.call(torch.ops.aten.full.default, ([len(value)], filled), made)
    items = [builder.call(torch.ops.aten.scalar_tensor.default, (item,), made) for item in value]
    return builder.call(torch.ops.aten.stack.default, (items,), {})

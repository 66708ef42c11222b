"""What an op's inputs become under autocast, as its contract says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from oprep.opsets.rp.arguments import flatten
from oprep.opsets.rp.op import Op


def cast(op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Convert the floating inputs that autocast cares for; float64 and integers stay."""
    policy = op.contract.autocast
    if policy == "keep":
        return args
    layout, flat = flatten(args)
    able = [tensor for tensor in flat if _is_able(tensor)]
    if not able:
        return args
    target = _target(policy, able)
    flat = [tensor.to(target) if _is_able(tensor) else tensor for tensor in flat]
    return layout.fill(flat)


def _is_able(tensor: Tensor) -> bool:
    floating = tensor.is_floating_point() and tensor.dtype is not torch.float64
    return floating and torch.is_autocast_enabled(tensor.device.type)


def _target(policy: str, tensors: Sequence[Tensor]) -> torch.dtype:
    if policy == "float32":
        return torch.float32
    if policy == "lower":
        return torch.get_autocast_dtype(tensors[0].device.type)
    widest = tensors[0].dtype
    for tensor in tensors[1:]:
        widest = torch.promote_types(widest, tensor.dtype)
    return widest

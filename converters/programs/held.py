"""What a caller holds stays as it is: a copy of a module to capture, and the random state."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy


def private_copy(module: nn.Module) -> nn.Module:
    """Copy a module; its parameters are shared, buffers and all that `forward` changes are not.

    Parameters are the bulk and no forward pass changes them. Storages are shared with them too,
    so that a buffer that is a view of a parameter stays one. What Python cannot copy (locks,
    tensors with a history) is shared as it is.
    """
    storages: dict[int, Any] = {}
    memo: dict[Any, Any] = {"torch": storages}
    for parameter in module.parameters():
        if is_lazy(parameter):
            continue
        memo[id(parameter)] = parameter
        if parameter.layout is torch.strided:
            storage = parameter.untyped_storage()
            storages[storage._cdata] = storage
    try:
        return copy.deepcopy(module, memo)
    except Exception:  # an attribute says what it likes about being copied
        return _copied_by_hand(module, {})


def _copied_by_hand(module: nn.Module, made: dict[nn.Module, nn.Module]) -> nn.Module:
    if module in made:
        return made[module]
    new = made[module] = module.__class__.__new__(module.__class__)
    for name, value in vars(module).items():
        new.__dict__[name] = copy.copy(value) if isinstance(value, dict | list | set) else value
    new._modules = {
        name: None if child is None else _copied_by_hand(child, made)
        for name, child in module._modules.items()
    }
    new._buffers = {
        name: None if buffer is None else buffer.detach().clone()
        for name, buffer in module._buffers.items()
    }
    return new


@contextmanager
def same_random_state(seed: int | None = None) -> Iterator[None]:
    """Give back every random state afterwards; `seed` sets torch's own meanwhile."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        if seed is not None:
            torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(of_python)
            np.random.set_state(of_numpy)

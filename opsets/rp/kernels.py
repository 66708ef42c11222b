"""The kernels of a registered op, one per dispatch key; each looks up the class when called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor
from torch._C import _AutoDispatchBelowAutograd, _len_torch_dispatch_stack

from oprep.opsets.rp import sharding
from oprep.opsets.rp.arguments import filled, flatten
from oprep.opsets.rp.autocast import cast
from oprep.opsets.rp.batching import transformed
from oprep.opsets.rp.derive import is_differentiable
from oprep.opsets.rp.messages import misused
from oprep.opsets.rp.op import Op
from oprep.opsets.rp.recorder import apart, read
from oprep.opsets.rp.replay import note, replay

Kernel = Callable[..., Any]

AUTOCAST_KEYS = ("AutocastCPU", "AutocastCUDA", "AutocastXPU", "AutocastMPS", "AutocastPrivateUse1")

_BELOW = torch._C._after_autograd_keyset
_PARALLEL = "torch.distributed.tensor"
_MODULES = sys.modules


def plain(op: Op) -> Kernel:
    """Make the kernel of every device: forward, without anything saved."""
    arguments, outputs, given = op.arguments, op.outputs, op.given
    needs = (False,) * len(op.parameters)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        args = arguments(args, kwargs)
        if op.fresh:
            result, _ = op.first(lambda: op.now.run(args, needs), args)
        else:
            result, _ = op.now.run(args, needs)
        return given(outputs(args, result))

    return kernel


def fake(op: Op) -> Kernel:
    """Make the fake implementation: forward on tensors without data, or what `fake` says."""
    needs = (False,) * len(op.parameters)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        args = op.arguments(args, kwargs)
        result, _ = op.now.run_fake(args, needs)
        return op.given(op.outputs(args, result))

    return kernel


def hidden(op: Op, *, real: bool) -> Kernel:
    """Make the kernel of the hidden op: forward's outputs and the extra tensors that it saved."""

    def kernel(*args: Any, **kwargs: Any) -> list[Tensor]:
        args = op.arguments(args, kwargs)
        layout, flat = flatten(args)
        needs = layout.needs([is_differentiable(tensor) for tensor in flat])
        now = op.now
        result, ctx = (now.run if real else now.run_fake)(args, needs)
        outputs = op.outputs(args, result)
        notes, extras = read(ctx, flat, outputs)
        note(op, notes)
        return [*outputs, *apart(extras, (*flat, *outputs))]

    return kernel


def autograd(op: Op) -> Kernel:
    """Make the kernel that decides whether a gradient is needed, and how it is kept."""
    overload = op.overload
    redispatch = overload.redispatch
    single = tuple(i for i, p in enumerate(op.parameters) if p.tensor and not p.several)
    lists = tuple(i for i, p in enumerate(op.parameters) if p.tensor and p.several)
    mutated = tuple(i for i, p in enumerate(op.parameters) if p.mutated)

    def wanted(args: tuple[Any, ...]) -> bool:
        count = len(args)
        for index in single:
            if index < count and args[index] is not None and args[index].requires_grad:
                return True
        return any(
            part is not None and part.requires_grad
            for index in lists
            if index < count
            for part in args[index] or ()
        )

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if _PARALLEL in _MODULES:
            sharding.teach_waiting()
        every = filled(op.parameters, args, kwargs) if kwargs else args
        if not (torch.is_grad_enabled() and wanted(every)) and forward_ad._current_level < 0:
            with _AutoDispatchBelowAutograd():
                result = redispatch(keyset & _BELOW, *args, **kwargs)
            if mutated:
                _changed(args, mutated)
            return result
        if mutated:
            raise _in_place(op)
        args = op.arguments(args, kwargs)
        if _len_torch_dispatch_stack() and op.hidden is not None:
            return replay(op, args, hidden=True, keep=False)
        return op.first(lambda: op.eager(args), args) if op.fresh else op.eager(args)

    return kernel


def _changed(args: tuple[Any, ...], mutated: tuple[int, ...]) -> None:
    """Tell autograd that tensors were changed, whatever forward did it with."""
    for index in mutated:
        value = args[index] if index < len(args) else None
        tensors = value if isinstance(value, list | tuple) else (value,)
        for tensor in tensors:
            if tensor is not None and not tensor.is_inference():
                torch.autograd.graph.increment_version(tensor)


def _in_place(op: Op) -> Exception:
    names = ", ".join(f"`{name}`" for name in op.contract.mutates)
    return misused(
        f"`{op.name}` changes {names} in place and keeps no gradient",
        notes=("an input requires a gradient and grad mode is on",),
        help="call it under `torch.no_grad()`",
    )


def functorch(op: Op) -> Kernel:
    """Make the kernel that comes before the transforms of `torch.func`."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        args = op.arguments(args, kwargs)
        if torch._C._is_any_autocast_enabled():
            args = cast(op, args)
            with torch._C._DisableAutocast():
                return transformed(op, args)
        return transformed(op, args)

    return kernel


def autocast(op: Op) -> Kernel:
    """Make the kernel that autocast calls first: convert inputs as declared, then leave it."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        positional, named = op.split(cast(op, op.arguments(args, kwargs)))
        with torch._C._DisableAutocast():
            return op.overload(*positional, **named)

    return kernel

"""What eager mode calls when a gradient is needed: the class itself, with its promises kept.

A class's own `apply` is the cheapest way. Its backward is wrapped once, when it is registered, so
that a second derivative that nobody declared raises: with a saved intermediate it would be zero
without a word (measured).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from oprep.opsets.rp.derive import as_tuple, cut, differentiable, is_differentiable
from oprep.opsets.rp.function import Class, backward_of
from oprep.opsets.rp.op import Implementation, Op
from oprep.opsets.rp.replay import (
    counted,
    refuse_twice,
    replay,
    without_gradient,
)

Eager = Callable[[tuple[Any, ...]], Any]


def eager_call(op: Op) -> Eager:
    """Give the function that computes an op in eager mode with a gradient."""
    now = op.now
    if now.derived:
        return _inline(op, now)
    if now.double_backward or any(p.tensor and p.several for p in op.parameters):
        keep = now.double_backward
        return lambda args: replay(op, args, hidden=False, keep=keep)
    return _apply(op, _guarded(op, now.cls))


def _apply(op: Op, cls: Class) -> Eager:
    apply: Any = cls.apply
    if op.returns == "one":

        def one(args: tuple[Any, ...]) -> Any:
            result = apply(*args)
            if type(result) is not Tensor or any(result is value for value in args):
                result = op.outputs((), result)[0]
            return result

        return one
    return lambda args: op.given(op.outputs((), apply(*args)))


def _inline(op: Op, now: Implementation) -> Eager:
    """Run forward under autograd: the gradient is that of its operations."""

    def call(args: tuple[Any, ...]) -> Any:
        result, _ = now.run(args, [True] * len(args))
        outputs = op.outputs(args, result)
        able = differentiable(outputs)
        if able and not any(output.requires_grad for output in able):
            raise cut(now)
        return op.given(outputs)

    return call


def _guarded(op: Op, cls: Class) -> Class:
    written = backward_of(cls)

    def backward(ctx: Any, *grads: Any) -> Any:
        if not torch.is_grad_enabled():
            return counted(op, as_tuple(written(ctx, *grads)))
        with torch.no_grad():
            result = counted(op, as_tuple(written(ctx, *grads)))
        return _refuse(op, result, (*ctx.saved_tensors, *grads))

    def refuse(ctx: Any, *grads: Any) -> Any:
        raise without_gradient(op)

    body = {
        "__module__": cls.__module__,
        "backward": staticmethod(backward if op.now.differentiable else refuse),
        "vjp": staticmethod(Function.vjp),
        "boxed_grads_call": False,
    }
    if op.returns != "one":
        body["forward"] = staticmethod(_in_tuple(cls.forward))
    meta: Any = type(cls)
    made: Class = meta(cls.__name__, (cls,), body)
    return made


def _in_tuple(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Give results as a tuple: autograd does not look into a list."""

    def call(*args: Any) -> Any:
        result = forward(*args)
        return tuple(result) if isinstance(result, list) else result

    return call


def _refuse(op: Op, grads: Sequence[Any], sources: Sequence[Any]) -> tuple[Any, ...]:
    """Let a derivative of these gradients raise, if they depend on anything but constants."""
    if not any(source is not None for source in sources):
        return tuple(grads)
    loose = [
        grad.detach().requires_grad_() if grad is not None and is_differentiable(grad) else grad
        for grad in grads
    ]
    return refuse_twice(op.name, loose, [s for s in sources if isinstance(s, Tensor)])

"""Two classes in a row as one: the results of the first are the first arguments of the second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from oprep.opsets.rp.derive import as_tuple, explicit
from oprep.opsets.rp.function import Class, backward_of
from oprep.opsets.rp.op import Implementation, Op, implement
from oprep.opsets.rp.recorder import Recorder


def chained(op: Op, first: Implementation, then: Implementation) -> Implementation:
    """Give the implementation that runs `first` and feeds `then`."""
    if first.derived and then.derived:
        cls: Class = _forward_only(first, then)
    else:
        first, then = explicit(first), explicit(then)
        cls = _with_backward(first, then)
    fake = None
    if first.fake is not None or then.fake is not None:
        fake = _run_of(first, then, fake=True)
    made = implement(cls, op.contract, len(op.parameters), fake)
    able = first.differentiable and then.differentiable
    return Implementation(
        made.cls, made.fake, fake is not None, made.derived, able, double_backward=False
    )


@dataclass(frozen=True)
class _Left:
    """What one of the two left for backward, but its tensors."""

    saved: int
    names: tuple[str, ...]
    plain: dict[str, Any]

    @property
    def count(self) -> int:
        return self.saved + len(self.names)

    def restored(self, tensors: Sequence[Any], needs: Sequence[Any]) -> Recorder:
        ctx = Recorder(needs)
        ctx.__dict__.update(self.plain)
        ctx.__dict__.update(zip(self.names, tensors[self.saved :], strict=True))
        ctx.saved_tensors = tuple(tensors[: self.saved])
        return ctx


def _left(ctx: Recorder) -> tuple[_Left, list[Any]]:
    tensors = {name: v for name, v in ctx.__dict__.items() if isinstance(v, Tensor)}
    plain = {name: v for name, v in ctx.__dict__.items() if name not in tensors}
    left = _Left(len(ctx.saved_tensors), tuple(tensors), plain)
    return left, [*ctx.saved_tensors, *tensors.values()]


def _forward_only(first: Implementation, then: Implementation) -> Class:
    class Chain(Function):
        """Both forwards; autograd differentiates them."""

        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            needs = [True] * len(args)
            between = as_tuple(first.run(args, needs)[0])
            return then.run((*between, *args[len(between) :]), needs)[0]

    return Chain


def _run_of(first: Implementation, then: Implementation, *, fake: bool) -> Any:
    """Give the function that runs both and leaves on ctx what both left."""

    def forward(ctx: Any, *args: Any) -> Any:
        needs = [True] * len(args)
        result, one = (first.run_fake if fake else first.run)(args, needs)
        between = as_tuple(result)
        second = (*between, *args[len(between) :])
        result, two = (then.run_fake if fake else then.run)(second, needs)
        ctx.first, tensors = _left(one)
        ctx.then, more = _left(two)
        ctx.between = [(part.shape, part.dtype, part.device) for part in between]
        ctx.save_for_backward(*tensors, *more)
        ctx.mark_non_differentiable(*two._undifferentiable)
        ctx.set_materialize_grads(two._materialize)
        return result

    return forward


def _with_backward(first: Implementation, then: Implementation) -> Class:
    run_both = _run_of(first, then, fake=False)
    pull_first, pull_then = _pull(first), _pull(then)

    class Chain(Function):
        """Both forwards, and both backwards in the other order."""

        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            return run_both(ctx, *args)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            needs, count = ctx.needs_input_grad, len(ctx.between)
            at = ctx.first.count
            two = ctx.then.restored(ctx.saved_tensors[at:], (*[True] * count, *needs[count:]))
            after = pull_then(two, *grads)
            if all(grad is None for grad in after[:count]):
                return (*[None] * count, *after[count:])
            one = ctx.first.restored(ctx.saved_tensors[:at], needs)
            before = pull_first(one, *map(_zeros, after[:count], ctx.between))
            direct = (*[None] * count, *after[count:])
            return tuple(map(_sum, before, direct))

    return Chain


def _pull(now: Implementation) -> Any:
    backward = backward_of(now.cls)
    return lambda ctx, *grads: as_tuple(backward(ctx, *grads))


def _zeros(grad: Any, like: tuple[Any, Any, Any]) -> Any:
    if grad is not None:
        return grad
    shape, dtype, device = like
    return torch.zeros(shape, dtype=dtype, device=device)


def _sum(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, list | tuple):
        return [_sum(a, b) for a, b in zip(one, other, strict=True)]
    return one + other

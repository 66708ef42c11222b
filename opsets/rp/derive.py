"""The gradient of a class without `backward`: that of its forward, run again where it must be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from oprep.opsets.rp.arguments import Layout, flatten
from oprep.opsets.rp.messages import broken, qualified
from oprep.opsets.rp.op import Implementation


def is_differentiable(tensor: Tensor) -> bool:
    """Tell whether tensors of this dtype have gradients."""
    return tensor.is_floating_point() or tensor.is_complex()


def differentiable(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Give the outputs that can have gradients."""
    return [output for output in outputs if is_differentiable(output)]


def as_tuple(value: Any) -> tuple[Any, ...]:
    """Give one value or several as a tuple."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def gradient(
    now: Implementation,
    layout: Layout,
    inputs: Sequence[Any],
    needs: Sequence[bool],
    grads: Sequence[Any],
) -> tuple[Any, ...]:
    """Differentiate forward itself, run again on the saved flat inputs; one value per input."""
    chosen = [index for index, need in enumerate(needs) if need]

    def forward(*values: Tensor) -> tuple[Tensor, ...]:
        flat = list(inputs)
        for index, value in zip(chosen, values, strict=True):
            flat[index] = value
        result, _ = now.run(layout.fill(flat), layout.needs(needs))
        outputs = differentiable(as_tuple(result))
        if outputs and not any(output.requires_grad for output in outputs):
            raise cut(now)
        return tuple(outputs)

    _, pull, *_ = torch.func.vjp(forward, *(inputs[index] for index in chosen))
    wanted = tuple(grad for grad in grads if grad is not None and is_differentiable(grad))
    result: list[Any] = [None] * len(inputs)
    for index, grad in zip(chosen, pull(wanted), strict=True):
        result[index] = grad
    return tuple(result)


def cut(now: Implementation) -> Exception:
    """Give the error of a forward without backward through which no gradient flows."""
    return broken(
        "forward cuts the gradient, and there is no `backward`",
        where=qualified(now.cls),
        help="write a `backward`, or declare `differentiable=False`",
    )


def explicit(now: Implementation) -> Implementation:
    """Give an implementation a backward of its own where its gradient is that of forward."""
    if not now.derived:
        return now

    def save(ctx: Any, args: tuple[Any, ...]) -> None:
        ctx.layout, flat = flatten(args)
        ctx.save_for_backward(*flat)

    def fake(ctx: Any, *args: Any) -> Any:
        save(ctx, args)
        return now.run_fake(args, [False] * len(args))[0]

    class Derived(Function):
        """The class's forward, and the gradient of that."""

        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            save(ctx, args)
            return now.run(args, [False] * len(args))[0]

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            layout, flat = ctx.layout, ctx.saved_tensors
            needs = layout.flat(ctx.needs_input_grad, len(flat))
            return layout.fill(gradient(now, layout, flat, needs, grads), other=None)

    return Implementation(Derived, fake if now.fake else None, True, False, True, False)

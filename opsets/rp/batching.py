"""An op under the transforms of `torch.func`: its own vmap, a loop, or what torch generates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from oprep.opsets.rp.arguments import Layout, flatten
from oprep.opsets.rp.function import own_method
from oprep.opsets.rp.op import Op
from oprep.opsets.rp.replay import replay, without_gradient


def transformed(op: Op, args: tuple[Any, ...]) -> Any:
    """Compute an op while a transform is active."""
    own = own_method(op.now.cls, "vmap")
    if (own is not None or op.contract.vmap == "loop") and _is_vmap():
        layout, flat = flatten(args)
        function: Any = _Batched
        return op.given(function.apply(op, own, layout, *flat))
    if op.now.derived or op.contract.mutates:
        result, _ = op.now.run(args, (True,) * len(args))
        return op.given(op.counted(result))
    return replay(op, args, hidden=False, keep=True)


def _is_vmap() -> bool:
    functorch = torch._C._functorch
    top = functorch.peek_interpreter_stack()
    return top is not None and top.key() == functorch.TransformType.Vmap


class _Batched(Function):
    """Leave the innermost vmap: by the class's own rule, or one call per element."""

    @staticmethod
    def forward(op: Op, own: Any, layout: Layout, *flat: Tensor) -> tuple[Tensor, ...]:
        """Compute the op where no vmap is left."""
        result, _ = op.now.run(layout.fill(flat), layout.needs([False] * len(flat)))
        return op.counted(result)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep the op for the message."""
        ctx.op = inputs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Refuse: the innermost transform was a vmap, so no gradient can pass here."""
        raise without_gradient(ctx.op)

    @staticmethod
    def vmap(
        info: Any, in_dims: Sequence[Any], op: Op, own: Any, layout: Layout, *flat: Tensor
    ) -> Any:
        """Give the results and where their batch dim lies."""
        dims = in_dims[3:]
        if own is not None:
            result, out_dims = own(info, layout.fill(dims), *layout.fill(flat))
            outputs = op.counted(result)
            every = out_dims if isinstance(out_dims, tuple) else (out_dims,) * len(outputs)
            return outputs, every
        rows = []
        for index in range(info.batch_size):
            one = [
                tensor if dim is None else tensor.select(dim, index)
                for tensor, dim in zip(flat, dims, strict=True)
            ]
            positional, named = op.split(layout.fill(one))
            rows.append(op.counted(op.overload(*positional, **named)))
        stacked = tuple(torch.stack(parts) for parts in zip(*rows, strict=True))
        return stacked, (0,) * len(stacked)

"""One `autograd.Function` for every op, where autograd's own `apply` of the class will not do.

That is while a graph is traced (forward is the hidden op, so that the graph holds one node, and
backward is the class's code on tensors that were carried) and under functorch's transforms
(forward is the class's code; the new style is the only one that they take).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from oprep.opsets.rp.arguments import Layout, flatten
from oprep.opsets.rp.derive import as_tuple, gradient
from oprep.opsets.rp.function import backward_of
from oprep.opsets.rp.messages import broken, qualified
from oprep.opsets.rp.op import Implementation, Op
from oprep.opsets.rp.recorder import Notes, Recorder, read


class _Listening(threading.local):
    """The calls of hidden ops that are being traced, the innermost last."""

    def __init__(self) -> None:
        self.calls: list[Call] = []


_LISTENING = _Listening()


def note(op: Op, notes: Notes) -> None:
    """Tell the call that is being traced what its forward left; called by the hidden kernel."""
    for call in reversed(_LISTENING.calls):
        if call.op is op:
            call.notes = notes
            return


@dataclass(eq=False)
class Call:
    """One call of an op on its way through `_Replay`, and what its forward noted."""

    op: Op
    now: Implementation
    layout: Layout
    count: int
    hidden: bool
    keep: bool
    """Save all inputs, also those that forward did not."""
    notes: Notes | None = None
    kept: tuple[tuple[str, int], ...] = ()

    def forward(self, flat: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Give outputs and extras."""
        args = self.layout.fill(flat)
        if self.hidden:
            assert self.op.hidden is not None
            positional, named = self.op.split(args)
            _LISTENING.calls.append(self)
            try:
                parts = tuple(self.op.hidden(*positional, **named))
            finally:
                _LISTENING.calls.pop()
            assert self.notes is not None, f"the hidden op of {self.op.name} did not run"
            return parts
        result, ctx = self.now.run(args, self.layout.needs([True] * self.count))
        outputs = self.op.counted(result)
        self.notes, extras = read(ctx, flat, outputs)
        return (*outputs, *extras)

    def places(self) -> tuple[tuple[str, int], ...]:
        """Say which tensors backward needs."""
        assert self.notes is not None
        places = self.notes.places()
        wanted = {(place.kind, place.index) for place in places if place.kind != "nowhere"}
        if self.keep:
            wanted |= {("input", index) for index in range(self.count)}
        return tuple(sorted(wanted))

    def backward(self, saved: Sequence[Tensor], needs: Sequence[bool], grads: Any) -> Any:
        """Give the gradient of each flat input."""
        op, notes = self.op, self.notes
        assert notes is not None
        if not self.now.differentiable:
            raise without_gradient(op)
        found = dict(zip(self.kept, saved, strict=True))
        inputs = [found.get(("input", index)) for index in range(self.count)]
        if self.now.derived:
            return gradient(self.now, self.layout, inputs, needs, grads)
        if self.now.double_backward and torch.is_grad_enabled() and self._has_extras():
            args = self.layout.fill(inputs)
            _, ctx = self.now.run(args, self.layout.needs(needs))
            ctx.needs_input_grad = self.layout.needs(needs)
            return self._per_input(ctx, grads)
        ctx = self._restored(found, inputs, needs)
        if self.now.double_backward or not torch.is_grad_enabled():
            return self._per_input(ctx, grads)
        with torch.no_grad():
            result = self._per_input(ctx, grads)
        return refuse_twice(op.name, result, [t for t in (*saved, *grads) if t is not None])

    def _has_extras(self) -> bool:
        return any(kind == "extra" for kind, _ in self.kept)

    def _restored(
        self, found: dict[tuple[str, int], Tensor], inputs: Sequence[Any], needs: Sequence[bool]
    ) -> Recorder:
        assert self.notes is not None
        extras = {index: value for (kind, index), value in found.items() if kind == "extra"}
        outputs = {index: value for (kind, index), value in found.items() if kind == "output"}
        return self.notes.restore(
            inputs, _sparse(outputs), _sparse(extras), self.layout.needs(needs)
        )

    def _per_input(self, ctx: Recorder, grads: Any) -> tuple[Any, ...]:
        result = as_tuple(backward_of(self.now.cls)(ctx, *grads))
        return self.layout.flat(counted(self.op, result), self.count)


def _sparse(values: dict[int, Tensor]) -> list[Any]:
    return [values.get(index) for index in range(max(values, default=-1) + 1)]


def counted(op: Op, grads: tuple[Any, ...]) -> tuple[Any, ...]:
    """Check that backward gave one gradient per argument; further ones must be None."""
    count = len(op.parameters)
    if len(grads) < count or any(grad is not None for grad in grads[count:]):
        raise broken(
            f"`backward` of `{op.name}` gives {len(grads)} gradients for {count} arguments",
            where=qualified(op.now.cls),
            help="return one gradient per argument of `forward`, None where there is none",
        )
    return grads[:count]


def without_gradient(op: Op) -> Exception:
    """Give the error of asking a forward-only op for its gradient."""
    return broken(
        f"`{op.name}` has no gradient",
        where=qualified(op.now.cls),
        notes=("it is declared `differentiable=False`",),
        help="detach its inputs, or write a `backward`",
    )


def twice(name: str) -> Exception:
    """Give the error of asking for the gradient of a gradient that was not declared."""
    return broken(
        f"the gradient of `{name}` cannot be differentiated again",
        notes=("its backward was written for one derivative",),
        help="declare `double_backward=True`",
    )


class _Once(Function):
    """Pass gradients through; raise when somebody differentiates them."""

    generate_vmap_rule = True

    @staticmethod
    def forward(name: str, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Give the first tensors on, depending on all of them."""
        return tuple(tensor.view_as(tensor) for tensor in tensors[:count])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep the name for the message."""
        ctx.name = inputs[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Say that this was not declared."""
        raise twice(ctx.name)


def refuse_twice(name: str, grads: Sequence[Any], sources: Sequence[Tensor]) -> tuple[Any, ...]:
    """Let a derivative of these gradients raise; they depend on `sources` from now on."""
    present = [grad for grad in grads if grad is not None]
    once: Any = _Once
    guarded = iter(once.apply(name, len(present), *present, *sources))
    return tuple(None if grad is None else next(guarded) for grad in grads)


class _Replay(Function):
    """Run a `Call` under autograd and functorch."""

    generate_vmap_rule = True

    @staticmethod
    def forward(call: Call, *flat: Tensor) -> tuple[Tensor, ...]:
        """Give the outputs and the extra saved tensors."""
        return call.forward(flat)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Save what backward needs, each tensor once."""
        call, *flat = inputs
        notes = call.notes
        outputs, extras = output[: notes.outputs], output[notes.outputs :]
        homes = {"input": flat, "output": outputs, "extra": extras}
        call.kept = call.places()
        ctx.call = call
        ctx.outputs = notes.outputs
        ctx.set_materialize_grads(notes.materialize)
        ctx.mark_non_differentiable(*(outputs[i] for i in notes.undifferentiable), *extras)
        ctx.save_for_backward(*(homes[kind][index] for kind, index in call.kept))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Give the class's own gradients."""
        call: Call = ctx.call
        wanted = grads[: ctx.outputs]
        return (None, *call.backward(ctx.saved_tensors, ctx.needs_input_grad[1:], wanted))


def replay(op: Op, args: tuple[Any, ...], *, hidden: bool, keep: bool) -> Any:
    """Call an op through `_Replay`; give what the dispatcher wants."""
    layout, flat = flatten(args)
    call = Call(op, op.now, layout, len(flat), hidden, keep or op.now.derived)
    function: Any = _Replay
    parts = function.apply(call, *flat)
    assert call.notes is not None
    return op.given(parts[: call.notes.outputs])

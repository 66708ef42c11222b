"""Running a class's forward by itself: a ctx that only takes notes, and what the notes say.

The tensors that forward saves are its inputs, its outputs, or extra ones. Only the extra ones need
to travel beside the outputs; the others are named by their place, so that nothing is carried
twice and nothing aliases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from oprep.opsets.rp.function import Class, has_setup


class Recorder:
    """Stand in for the ctx of an `autograd.Function` and note what is done to it."""

    __slots__ = (
        "__dict__",
        "_materialize",
        "_saved",
        "_undifferentiable",
        "needs_input_grad",
        "saved_tensors",
    )

    def __init__(self, needs: Sequence[Any]) -> None:
        """Begin with the answer that `needs_input_grad` shall give."""
        self.needs_input_grad = tuple(needs)
        self.saved_tensors: tuple[Any, ...] = ()
        self._undifferentiable: tuple[Any, ...] = ()
        self._materialize = True

    def save_for_backward(self, *tensors: Any) -> None:
        """Note the tensors that backward will ask for."""
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Take what a jvp would ask for; nothing here calls one."""

    def mark_dirty(self, *tensors: Any) -> None:
        """Take which inputs forward changes; the schema says so already."""

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Note the outputs that have no gradient."""
        self._undifferentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Note whether backward wants zeros in place of absent gradients."""
        self._materialize = value


@dataclass(frozen=True)
class Place:
    """Say where a saved value lies: in the inputs, the outputs, the extras, or `nowhere`."""

    kind: str
    index: int = 0


@dataclass(frozen=True)
class Notes:
    """Say what forward left for backward, with every tensor named by its place."""

    saved: tuple[Place, ...]
    held: tuple[tuple[str, TreeSpec, tuple[Any, ...]], ...] = ()
    """Attributes of ctx that are tensors or hold some: how they are built, places among leaves."""
    plain: dict[str, Any] = field(default_factory=dict)
    undifferentiable: tuple[int, ...] = ()
    materialize: bool = True
    outputs: int = 1

    def places(self) -> list[Place]:
        """Give the places of everything that backward may ask for."""
        leaves = [leaf for _, _, leaves in self.held for leaf in leaves]
        return [place for place in (*self.saved, *leaves) if isinstance(place, Place)]

    def restore(
        self, inputs: Sequence[Any], outputs: Sequence[Any], extras: Sequence[Any], needs: Any
    ) -> Recorder:
        """Give a ctx as forward left it, made of these tensors."""
        homes = {"input": inputs, "output": outputs, "extra": extras}

        def at(place: Any) -> Any:
            if not isinstance(place, Place):
                return place
            return None if place.kind == "nowhere" else homes[place.kind][place.index]

        ctx = Recorder(needs)
        ctx.__dict__.update(self.plain)
        for name, spec, leaves in self.held:
            ctx.__dict__[name] = tree_unflatten([at(leaf) for leaf in leaves], spec)
        ctx.saved_tensors = tuple(at(place) for place in self.saved)
        return ctx


def run(cls: Class, args: Sequence[Any], needs: Sequence[Any]) -> tuple[Any, Recorder]:
    """Call a class's forward with a noting ctx; give its result and the ctx."""
    ctx = Recorder(needs)
    if has_setup(cls):
        result = cls.forward(*args)
        cls.setup_context(ctx, tuple(args), result)
    else:
        result = cls.forward(ctx, *args)
    return result, ctx


def read(
    ctx: Recorder, inputs: Sequence[Any], outputs: Sequence[Any]
) -> tuple[Notes, list[Tensor]]:
    """Give the notes of a ctx and the extra tensors, in the order of their places."""
    extras: list[Tensor] = []

    def place(value: Any) -> Place:
        if value is None:
            return Place("nowhere")
        for kind, home in (("input", inputs), ("output", outputs), ("extra", extras)):
            for index, other in enumerate(home):
                if other is value:
                    return Place(kind, index)
        extras.append(value)
        return Place("extra", len(extras) - 1)

    saved = tuple(place(value) for value in ctx.saved_tensors)
    held, plain = [], {}
    for name, value in ctx.__dict__.items():
        leaves, spec = tree_flatten(value)
        if any(isinstance(leaf, Tensor) for leaf in leaves):
            found = (place(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves)
            held.append((name, spec, tuple(found)))
        else:
            plain[name] = value
    marked = tuple(
        index
        for index, output in enumerate(outputs)
        if any(output is other for other in ctx._undifferentiable)
    )
    return Notes(saved, tuple(held), plain, marked, ctx._materialize, len(outputs)), extras


def share(one: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors lie in the same memory."""
    alias: bool = torch._C._is_alias_of(one, other)  # type: ignore[attr-defined]
    return alias


def apart(extras: Sequence[Tensor], others: Sequence[Any]) -> list[Tensor]:
    """Copy the extras that share memory with other tensors: an op may not return an alias."""
    seen: list[Tensor] = [other for other in others if isinstance(other, Tensor)]
    result: list[Tensor] = []
    for extra in extras:
        if any(share(extra, other) for other in seen):
            extra = extra.clone()
        seen.append(extra)
        result.append(extra)
    return result

"""An op's arguments as its class sees them, and the tensors among them as autograd sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Parameter:
    """Say the name, kind and default of an argument of the schema."""

    name: str
    tensor: bool
    several: bool
    optional: bool
    mutated: bool
    keyword: bool
    required: bool
    default: Any


def parameters_of(schema: torch.FunctionSchema) -> tuple[Parameter, ...]:
    """Read the arguments of a schema."""
    found = []
    for argument in schema.arguments:
        written = str(argument.real_type)
        alias = argument.alias_info
        found.append(
            Parameter(
                argument.name,
                "Tensor" in written,
                "List" in written or "[]" in written,
                isinstance(argument.type, torch.OptionalType),
                alias is not None and alias.is_write,
                argument.kwarg_only,
                not argument.has_default_value(),
                argument.default_value if argument.has_default_value() else None,
            )
        )
    return tuple(found)


def filled(
    parameters: Sequence[Parameter], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """Give one value per parameter: the dispatcher cuts off trailing values equal to the default.

    Keyword-only ones come by name and are put in their place.
    """
    if len(args) == len(parameters):
        return args
    rest = parameters[len(args) :]
    return (*args, *(kwargs.get(item.name, item.default) for item in rest))


_SAME: Any = object()


class Slot(int):
    """The index of a tensor in the flat list, where the tensor stood."""


@dataclass(frozen=True)
class Layout:
    """Say how flat tensors lie in the arguments."""

    items: tuple[Any, ...]

    def fill(self, flat: Sequence[Any], other: Any = _SAME) -> tuple[Any, ...]:
        """Put flat values where the tensors stood; `other` in place of everything else."""

        def at(item: Any) -> Any:
            if isinstance(item, Slot):
                return flat[item]
            return item if other is _SAME else other

        return tuple(
            [at(part) for part in item] if isinstance(item, list) else at(item)
            for item in self.items
        )

    def needs(self, flat: Sequence[bool]) -> tuple[Any, ...]:
        """Give `needs_input_grad` per argument, a tuple of answers for a list of tensors."""
        return tuple(
            tuple(isinstance(part, Slot) and flat[part] for part in item)
            if isinstance(item, list)
            else isinstance(item, Slot) and flat[item]
            for item in self.items
        )

    def flat(self, grads: Sequence[Any], count: int) -> tuple[Any, ...]:
        """Give the gradient of each flat tensor out of one value per argument."""
        result: list[Any] = [None] * count
        for item, grad in zip(self.items, grads, strict=False):
            if isinstance(item, Slot):
                result[item] = grad
            elif isinstance(item, list) and grad is not None:
                for part, inner in zip(item, grad, strict=True):
                    if isinstance(part, Slot):
                        result[part] = inner
        return tuple(result)


def flatten(args: Sequence[Any]) -> tuple[Layout, list[Tensor]]:
    """Take the tensors out of the arguments."""
    flat: list[Tensor] = []

    def slot(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        flat.append(value)
        return Slot(len(flat) - 1)

    items: list[Any] = []
    for value in args:
        if isinstance(value, list | tuple) and any(isinstance(part, Tensor) for part in value):
            items.append([slot(part) for part in value])
        else:
            items.append(slot(value))
    return Layout(tuple(items)), flat

"""What torch's schemas say: which overloads an op has, and what each of their arguments takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

from oprep.opsets.rule import REQUIRED
from oprep.opsets.vocabulary import vocabulary

KINDS = {
    "Tensor": "tensor", "number": "number", "float": "float", "SymFloat": "float", "int": "int",
    "SymInt": "int", "bool": "bool", "SymBool": "bool", "str": "str", "ScalarType": "dtype",
    "Device": "device", "Layout": "layout", "MemoryFormat": "memory_format",
}  # fmt: skip
"""The types of torch's schemas, by the kinds of argument that a rule can write."""

RENAMED = {
    ("embedding", "input"): "indices",
    ("dropout", "training"): "train",
}
"""What an overload calls a parameter of the vocabulary, where neither name nor position tells."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One argument of an overload; `default` is `REQUIRED` where it has none."""

    name: str
    kind: str
    listed: bool
    optional: bool
    keyword_only: bool
    default: Any

    def __str__(self) -> str:
        """Give the argument as a schema has it: `float eps=1e-05`."""
        text = {"tensor": "Tensor", "number": "Scalar", "dtype": "ScalarType"}.get(
            self.kind, self.kind
        )
        text += "[]" * self.listed + "?" * self.optional
        written = f'"{self.default}"' if isinstance(self.default, str) else repr(self.default)
        return f"{text} {self.name}" + ("" if self.default is REQUIRED else f"={written}")


@cache
def slots_of(overload: OpOverload) -> tuple[Slot, ...]:
    """Give the arguments of an overload in order."""
    return tuple(_slot(argument) for argument in overload._schema.arguments)


def _slot(argument: Any) -> Slot:
    written = str(argument.real_type)
    optional = written.startswith("Optional[")
    written = written.removeprefix("Optional[").removesuffix("]") if optional else written
    listed = written.startswith("List[")
    base = written.removeprefix("List[").removesuffix("]")
    if base.startswith("Optional["):
        base = base.removeprefix("Optional[").removesuffix("]")
    default = argument.default_value if argument.has_default_value() else REQUIRED
    kind = KINDS.get(base, base)
    return Slot(argument.name, kind, listed, optional, argument.kwarg_only, default)


def results_of(overload: OpOverload) -> int:
    """Count the results of an overload; 0 where it gives a list."""
    returns = overload._schema.returns
    if len(returns) == 1 and str(returns[0].type).startswith("List["):
        return 0
    return len(returns)


def packet(domain: str, name: str) -> OpOverloadPacket | None:
    """Give a registered op; None where nothing has registered that name."""
    try:
        found = getattr(getattr(torch.ops, domain), name)
    except (AttributeError, RuntimeError):
        return None
    return found if isinstance(found, OpOverloadPacket) else None


def overload_names(op: OpOverloadPacket) -> list[str]:
    """Give the names of an op's overloads."""
    return list(op.overloads())  # type: ignore[no-untyped-call]


def named(domain: str, name: str) -> tuple[OpOverload, ...]:
    """Give the overload that `max.dim` names, or all that `max` stands for.

    Overloads that change an argument are given where there are no others.
    """
    base, _, wanted = name.partition(".")
    found = packet(domain, base)
    if found is None:
        return ()
    known = overload_names(found)
    overloads = [getattr(found, item) for item in known if not wanted or item == wanted]
    functional = [item for item in overloads if not item._schema.is_mutable]
    return tuple(functional or overloads)


@cache
def overloads_of(function: str) -> tuple[OpOverload, ...]:
    """Give the overloads that a function of the vocabulary stands for, the preferred one first."""
    found: list[OpOverload] = []
    for entry in vocabulary()[function].aten:
        base, _, overload = entry.partition(".")
        op = packet("aten", base)
        if op is not None and (overload or "default") in overload_names(op):
            found.append(getattr(op, overload or "default"))
    return tuple(found)


@cache
def places_of(name: str, overload: OpOverload) -> dict[str, str | None]:
    """Map a function's parameters to the arguments of an overload; None where it lacks one."""
    function = vocabulary()[name]
    slots = slots_of(overload)
    names = [slot.name for slot in slots]
    places: dict[str, str | None] = {}
    for position, parameter in enumerate(function.parameters):
        name = RENAMED.get((function.name, parameter.name), parameter.name)
        if name == "input" and name not in names:
            name = "self"
        if name not in names and position < len(slots) and not slots[position].keyword_only:
            taken = {item.name for item in function.parameters}
            name = names[position] if names[position] not in taken else name
        places[parameter.name] = name if name in names else None
    return places

"""Fit the operands of a call into an overload: what stays, what is converted, what cannot be.

A number stays a number where the overload takes one. Where it takes a tensor, the number becomes
a constant, or stays one where torch itself passes numbers so (`add.Tensor(x, 2)`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload

from oprep.converters.graph import ABSENT
from oprep.converters.programs.overloads import Slot, places_of, slots_of
from oprep.opsets.rule import REQUIRED
from oprep.opsets.vocabulary import Function

WRAPPED = frozenset(
    f"aten::{name}" for name in (
        "add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "div.Tensor_mode",
        "floor_divide", "bitwise_and.Tensor", "bitwise_or.Tensor",
    )
)  # fmt: skip
"""Overloads to which torch passes a number as it is, at the place of their second tensor."""

NUMBER = (bool, int, float)
_LAYOUTS = {"strided": torch.strided}
_FORMATS = {
    "contiguous_format": torch.contiguous_format,
    "preserve_format": torch.preserve_format,
    "channels_last": torch.channels_last,
    "channels_last_3d": torch.channels_last_3d,
}


class Misfit(Exception):
    """Operands that an overload does not take; the text says which and why."""


@dataclass(frozen=True, slots=True)
class New:
    """A number, or a list of them, that is to become a constant tensor."""

    value: Any


@dataclass(frozen=True, slots=True)
class Fitted:
    """A call that an overload takes; `cost` counts what had to be converted."""

    overload: OpOverload
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    cost: int


@dataclass(frozen=True, slots=True)
class Fitter:
    """Knows what operands are: `is_tensor`, and `plain`, the number behind a constant tensor."""

    is_tensor: Callable[[Any], bool]
    is_symbol: Callable[[Any], bool]
    plain: Callable[[Any], Any]

    def function(
        self, function: Function, overload: OpOverload, bound: Mapping[str, Any]
    ) -> Fitted:
        """Fit the parameters of a vocabulary function."""
        places = places_of(function.name, overload)
        given: dict[str, Any] = dict(function.fixed)
        for parameter in function.parameters:
            place = places[parameter.name]
            value = bound[parameter.name]
            if place is not None:
                given[place] = value
            elif not _is_default(value, parameter.default):
                raise Misfit(f"it has no `{parameter.name}`")
        names = {slot.name for slot in slots_of(overload)}
        return self.fit(overload, {key: item for key, item in given.items() if key in names})

    def call(
        self, overload: OpOverload, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Fitted:
        """Fit arguments by position and by name, as Python does; a last list takes the rest."""
        slots = [slot for slot in slots_of(overload)]
        given: dict[str, Any] = {}
        waiting = list(arguments)
        for slot in slots:
            if not waiting:
                break
            if slot.kind == "tensor" and slot.listed and not isinstance(waiting[0], tuple | list):
                given[slot.name], waiting = tuple(waiting), []
            else:
                given[slot.name] = waiting.pop(0)
        if waiting:
            raise Misfit(f"it takes {_counted(len(slots))}, {len(arguments)} are given")
        for key, value in keywords.items():
            if key in given:
                raise Misfit(f"`{key}` is given twice")
            if key not in {slot.name for slot in slots}:
                raise Misfit(f"it has no parameter `{key}`")
            given[key] = value
        return self.fit(overload, given)

    def fit(self, overload: OpOverload, given: Mapping[str, Any]) -> Fitted:
        """Fit values by the names of the overload's arguments."""
        slots = slots_of(overload)
        values: dict[str, Any] = {}
        cost = 0
        for slot in slots:
            value = given.get(slot.name, ABSENT)
            if value is ABSENT or (value is None and not slot.optional):
                if slot.default is REQUIRED and not slot.optional:
                    raise Misfit(f"`{slot.name}` is missing")
                if slot.default is REQUIRED:
                    values[slot.name] = None
                continue
            values[slot.name], extra = self.value(slot, value)
            cost += extra
        return _arranged(overload, slots, values, cost)

    def value(self, slot: Slot, value: Any) -> tuple[Any, int]:
        """Bring one operand to what a slot takes; give it and what that costs."""
        if value is None:
            return None, 0
        if slot.kind == "tensor":
            return self.tensors(slot, value) if slot.listed else self.tensor(slot, value)
        if self.is_tensor(value):
            value = self.known(slot, value)
        if slot.listed:
            items = list(value) if isinstance(value, tuple | list) else [value]
            return [self.scalar(slot, item) for item in items], 0
        if isinstance(value, tuple | list):
            if len(value) != 1:
                raise Misfit(f"`{slot.name}` is {list(value)!r}, the op wants {slot.kind}")
            value = value[0]
        return self.scalar(slot, value), 0

    def tensor(self, slot: Slot, value: Any) -> tuple[Any, int]:
        """Take a tensor, or what becomes one."""
        if self.is_tensor(value):
            return value, 0
        if isinstance(value, NUMBER) or self.is_symbol(value):
            return New(value), 1
        if isinstance(value, tuple | list) and all(isinstance(item, NUMBER) for item in value):
            return New(list(value)), 1
        raise Misfit(f"`{slot.name}` is {shown(value)}, the op wants a tensor")

    def tensors(self, slot: Slot, value: Any) -> tuple[Any, int]:
        """Take a list of tensors."""
        if not isinstance(value, tuple | list):
            raise Misfit(f"`{slot.name}` is one value, the op wants a list of tensors")
        found = [(None, 0) if item is None else self.tensor(slot, item) for item in value]
        return [item for item, _ in found], sum(cost for _, cost in found)

    def known(self, slot: Slot, value: Any) -> Any:
        """Give the constant behind a tensor where a plain value is wanted."""
        found = self.plain(value)
        if self.is_tensor(found):
            raise Misfit(f"`{slot.name}` is no constant here, the op wants {slot.kind}")
        return found

    def scalar(self, slot: Slot, value: Any) -> Any:
        """Take one plain value of the slot's kind."""
        if self.is_tensor(value):
            value = self.known(slot, value)
        if self.is_symbol(value) and slot.kind in ("number", "int", "float"):
            return value
        made = _PLAIN.get(slot.kind, _other)(value)
        if made is ABSENT:
            raise Misfit(f"`{slot.name}` is {shown(value)}, the op wants {slot.kind}")
        return made


def _number(value: Any) -> Any:
    return value if isinstance(value, int | float | complex) else ABSENT


def _float(value: Any) -> Any:
    return float(value) if isinstance(value, int | float) else ABSENT


def _int(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return int(value) if isinstance(value, int) else ABSENT


def _bool(value: Any) -> Any:
    return bool(value) if isinstance(value, int) and value in (0, 1) else ABSENT


def _str(value: Any) -> Any:
    return value if isinstance(value, str) else ABSENT


def _dtype(value: Any) -> Any:
    found = getattr(torch, value, None) if isinstance(value, str) else value
    return found if isinstance(found, torch.dtype) else ABSENT


def _device(value: Any) -> Any:
    if isinstance(value, torch.device):
        return value
    try:
        return torch.device(value) if isinstance(value, str) else ABSENT
    except RuntimeError:
        return ABSENT


def _layout(value: Any) -> Any:
    return value if isinstance(value, torch.layout) else _LAYOUTS.get(str(value), ABSENT)


def _format(value: Any) -> Any:
    known = isinstance(value, torch.memory_format)
    return value if known else _FORMATS.get(str(value), ABSENT)


def _other(value: Any) -> Any:
    return value


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "number": _number, "float": _float, "int": _int, "bool": _bool, "str": _str,
    "dtype": _dtype, "device": _device, "layout": _layout, "memory_format": _format,
}  # fmt: skip


def shown(value: Any) -> str:
    """Write a plain operand as messages do."""
    if value is None or value is ABSENT:
        return "nothing"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _counted(count: int) -> str:
    return "1 argument" if count == 1 else f"{count} arguments"


def _is_default(value: Any, default: object) -> bool:
    plain = None if value is ABSENT else value
    if isinstance(plain, bool) or isinstance(default, bool) or plain is None or default is None:
        return plain is default or all(item is None or item is False for item in (plain, default))
    return bool(plain == default)


def _arranged(
    overload: OpOverload, slots: Sequence[Slot], values: Mapping[str, Any], cost: int
) -> Fitted:
    """Write a call as a captured graph has it: positions first, trailing defaults left out."""
    positional = [slot for slot in slots if not slot.keyword_only]
    while positional and _leaves_out(positional[-1], values):
        positional.pop()
    arguments = tuple(values.get(slot.name, slot.default) for slot in positional)
    keywords = {
        slot.name: values[slot.name]
        for slot in slots
        if slot.keyword_only and not _leaves_out(slot, values)
    }
    return Fitted(overload, arguments, keywords, cost)


def _leaves_out(slot: Slot, values: Mapping[str, Any]) -> bool:
    if slot.name not in values:
        return True
    value = values[slot.name]
    same_type = type(value) is type(slot.default)
    return slot.default is not REQUIRED and same_type and bool(value == slot.default)

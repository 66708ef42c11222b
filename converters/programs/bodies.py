"""The body of a custom op as a function of tensors: read once, then replayed as a list of calls.

What a body calls depends on which of its arguments are tensors, on their dtypes and devices, and on
the plain ones; so the calls are noted for each such kind of arguments, and made without reading
the equation again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from oprep.converters.graph import ABSENT
from oprep.converters.programs.builders import EagerBuilder
from oprep.converters.programs.layout import key_of
from oprep.converters.programs.meaning import say
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.rule import REQUIRED, CustomOp, Parameter
from oprep.opsets.syntax import Equation

TYPES = {
    "tensor": "Tensor", "optional": "Tensor?", "tensors": "Tensor[]", "float": "float",
    "int": "int", "bool": "bool", "str": "str", "floats": "float[]", "ints": "int[]",
    "bools": "bool[]", "strs": "str[]",
}  # fmt: skip
KEPT = 64
"""So many kinds of arguments are remembered for each op."""


def schema_of(op: CustomOp) -> str:
    """Write the torch schema of a custom op, without its name."""
    parameters = ", ".join(map(_parameter, op.parameters))
    result = "Tensor" if op.outputs == 1 else f"({', '.join(['Tensor'] * op.outputs)})"
    return f"({parameters}) -> {result}"


def _parameter(parameter: Parameter) -> str:
    text = f"{TYPES[parameter.kind]} {parameter.name}"
    if parameter.default is REQUIRED:
        return text
    default = parameter.default
    written = f'"{default}"' if isinstance(default, str) else repr(default)
    return f"{text}={written}"


@dataclass(slots=True)
class Body:
    """Computes a body; called with one value for each parameter of the op, in order."""

    equation: Equation
    parameters: tuple[Parameter, ...]
    where: str = ""
    tapes: dict[Any, Tape] = field(default_factory=dict)

    def __call__(self, *arguments: Any) -> Any:
        """Give the result, or a tuple of results; none of them is an argument itself."""
        key = tuple(self._kind(value) for value in arguments)
        tape = self.tapes.get(key)
        if tape is not None:
            return tape.play(arguments)
        noting = _Noting(arguments, self.where)
        scope = {
            parameter.name: _operand(parameter, value)
            for parameter, value in zip(self.parameters, arguments, strict=True)
        }
        results = say(self.equation, scope, noting, where=self.where)
        given = {id(item) for item in _flat(arguments)}
        made: list[Any] = []
        for result in results:
            known = {id(item) for item in made} | given
            if id(result) in known:
                result = noting.call(torch.ops.aten.clone.default, (result,), {})
            made.append(result)
        if len(self.tapes) < KEPT:
            self.tapes[key] = noting.tape(made)
        return made[0] if len(made) == 1 else tuple(made)

    def _kind(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.dtype, value.device
        if isinstance(value, list | tuple):
            return tuple(self._kind(item) for item in value)
        return type(value), value


def body_of(op: CustomOp) -> Body:
    """Give the function that an op's body is."""
    assert op.body is not None
    return Body(op.body, op.parameters, str(op.source))


def _operand(parameter: Parameter, value: Any) -> Any:
    if value is None:
        return ABSENT if parameter.kind == "optional" else None
    if isinstance(value, list | tuple):
        return tuple(value) if parameter.kind == "tensors" else list(value)
    return value


def _flat(values: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        found += _flat(value) if isinstance(value, list | tuple) else [value]
    return found


@dataclass(frozen=True, slots=True)
class _Slot:
    """The place of a tensor among the arguments and results of a tape."""

    index: int


@dataclass(frozen=True, slots=True)
class Tape:
    """Calls in order; tensors are places in the list of all that were given or made so far."""

    calls: tuple[tuple[OpOverload, tuple[Any, ...], dict[str, Any]], ...]
    results: tuple[int, ...]

    def play(self, arguments: Sequence[Any]) -> Any:
        """Make the calls anew."""
        held = _flat(arguments)

        def fill(item: Any) -> Any:
            if type(item) is _Slot:
                return held[item.index]
            return [fill(one) for one in item] if type(item) is list else item

        for overload, args, kwargs in self.calls:
            made = overload(*map(fill, args), **{key: fill(item) for key, item in kwargs.items()})
            if isinstance(made, list | tuple):
                held += made
            else:
                held.append(made)
        if len(self.results) == 1:
            return held[self.results[0]]
        return tuple(held[index] for index in self.results)


def _is_off(arguments: Sequence[Any]) -> bool:
    """Tell whether a random op was told not to draw: `dropout(x, p, False)`."""
    return any(item is False for item in arguments)


class _Noting:
    """A builder that calls at once and notes every call."""

    def __init__(self, arguments: Sequence[Any], where: str) -> None:
        self.where = where
        self.eager = EagerBuilder()
        self.held = _flat(arguments)
        self.places = {id(item): i for i, item in enumerate(self.held) if isinstance(item, Tensor)}
        self.calls: list[tuple[OpOverload, tuple[Any, ...], dict[str, Any]]] = []

    def call(
        self, overload: OpOverload, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Any:
        if torch.Tag.nondeterministic_seeded in overload.tags and not _is_off(arguments):
            raise OprepError(
                f"the body draws random numbers with `{key_of(overload)}`",
                self.where,
                ("its gradient runs the body again, which would draw other numbers",),
                "write it as a class with a `backward`, and name that in `python`",
                ExitCode.VERIFICATION,
            )
        noted = tuple(self.note(item) for item in arguments)
        self.calls.append((overload, noted, {key: self.note(v) for key, v in keywords.items()}))
        made = self.eager.call(overload, arguments, keywords)
        for item in made if isinstance(made, tuple) else (made,):
            self.places[id(item)] = len(self.held)
            self.held.append(item)
        return made

    def value(self, operand: Any) -> Any:
        return operand

    def note(self, item: Any) -> Any:
        if isinstance(item, Tensor):
            return _Slot(self.places[id(item)])
        return [self.note(one) for one in item] if isinstance(item, list | tuple) else item

    def tape(self, results: Sequence[Tensor]) -> Tape:
        return Tape(tuple(self.calls), tuple(self.places[id(item)] for item in results))

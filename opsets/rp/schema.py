"""The torch schema of an op: given as text, or read off the annotations of `forward`."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Any

import torch

from oprep.opsets.rp.function import Class, has_setup
from oprep.opsets.rp.messages import misused, qualified

TYPES: dict[Any, str] = {
    torch.Tensor: "Tensor",
    torch.nn.Parameter: "Tensor",
    bool: "bool",
    int: "SymInt",
    float: "float",
    str: "str",
    complex: "complex",
    torch.dtype: "ScalarType",
    torch.device: "Device",
    torch.layout: "Layout",
    torch.memory_format: "MemoryFormat",
    torch.types.Number: "Scalar",
    int | float: "Scalar",
}
LISTS = (list, tuple, Sequence)


def infer(cls: Class, mutates: Sequence[str]) -> str:
    """Write the schema of a class's forward; a bare parameter is a tensor, a bare result one.

    A parameter without annotation whose default is a number, bool or str has that type.
    """
    parameters, hints = _signature(cls)
    unknown = sorted(set(mutates) - {p.name for p in parameters})
    if unknown:
        raise misused(
            f"`mutates` names `{unknown[0]}`, which `forward` of `{qualified(cls)}` does not take",
            help="name parameters of `forward`",
        )
    written = []
    changed = [parameter.name for parameter in parameters if parameter.name in mutates]
    for parameter in parameters:
        mark = changed.index(parameter.name) if parameter.name in changed else None
        written.append(_parameter(cls, parameter, hints, mark))
    return f"({', '.join(written)}) -> {_result(cls, hints, mutates)}"


def _signature(cls: Class) -> tuple[list[inspect.Parameter], dict[str, Any]]:
    function = cls.forward
    try:
        hints = typing.get_type_hints(function, _names(function))
    except Exception as error:
        raise misused(
            f"the annotations of `forward` of `{qualified(cls)}` cannot be read",
            notes=(str(error),),
            help='give the schema: `schema="(Tensor x) -> Tensor"`',
        ) from error
    parameters = list(inspect.signature(function).parameters.values())
    if not has_setup(cls):
        parameters = parameters[1:]
    for parameter in parameters:
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
            raise misused(
                f"`forward` of `{qualified(cls)}` takes `{parameter}`",
                notes=("autograd calls it with a fixed number of positional values",),
                help='give the schema: `schema="(Tensor x) -> Tensor"`',
            )
    return parameters, hints


def _names(function: Any) -> dict[str, Any]:
    """Give the names that annotations may use, also where the class lies in a function."""
    closure = inspect.getclosurevars(function).nonlocals
    return {"torch": torch, "Tensor": torch.Tensor, **closure, **function.__globals__}


def _parameter(
    cls: Class, parameter: inspect.Parameter, hints: dict[str, Any], mark: int | None
) -> str:
    name, default = parameter.name, parameter.default
    given = default is not parameter.empty
    if name in hints:
        type_ = _type(hints[name])
    elif not given:
        type_ = "Tensor"
    else:
        type_ = "Tensor?" if default is None else _type(type(default))
    if type_ is None:
        raise misused(
            f"parameter `{name}` of `forward` has no type that an op can take",
            where=qualified(cls),
            notes=(f"it is annotated `{hints.get(name, type(default).__name__)}`",),
            help='give the schema: `schema="(Tensor x) -> Tensor"`',
        )
    if mark is not None:
        letter = "abcdefghijklmnopqrstuvwxyz"[mark]
        type_ = type_.replace("Tensor", f"Tensor({letter}!)", 1)
    return f"{type_} {name}{'=' + literal(default) if given else ''}"


def literal(value: object) -> str:
    """Write a default as torch schemas do."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return str(value).removeprefix("torch.")
    return repr(value)


def _type(hint: Any) -> str | None:
    """Give the schema type of an annotation, None where there is none."""
    if hint in TYPES:
        return TYPES[hint]
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, UnionType) and NoneType in inner:
        rest = [item for item in inner if item is not NoneType]
        whole = TYPES.get(_union(rest)) or (_type(rest[0]) if len(rest) == 1 else None)
        return None if whole is None else whole + "?"
    if origin in LISTS or hint in (list, tuple):
        item = _type(inner[0]) if inner else "Tensor"
        return None if item is None else item + "[]"
    return None


def _union(items: list[Any]) -> Any:
    return typing.Union[tuple(items)] if len(items) > 1 else items[0]  # noqa: UP007


def _result(cls: Class, hints: dict[str, Any], mutates: Sequence[str]) -> str:
    if "return" not in hints:
        return "()" if mutates else "Tensor"
    hint = hints["return"]
    if hint in (None, NoneType):
        return "()"
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and Ellipsis not in inner:
        return "(" + ", ".join("Tensor" for _ in inner) + ")"
    written = _type(hint)
    if written not in ("Tensor", "Tensor[]"):
        raise misused(
            f"`forward` of `{qualified(cls)}` gives `{hint}`",
            notes=("an op gives one tensor, several, or a list of them",),
            help="annotate the result as `Tensor`, `tuple[Tensor, Tensor]` or `list[Tensor]`",
        )
    return written

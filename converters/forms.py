"""What one node has to be to stand for a call, as plain values, and how values are compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from oprep.converters.graph import Constant
from oprep.converters.normal import Wanted
from oprep.converters.state import show
from oprep.opsets.syntax import Expression

WIDER = frozenset({
    "Unsqueeze", "OneHot", "ConcatFromSequence", "aten::unsqueeze", "aten::stack",
})  # fmt: skip
"""Ops whose axis counts in the rank of the result."""


AXES = frozenset({"axis", "axes", "dim", "dims"})


ATTRIBUTES = "**attributes"
"""The variable that holds all attributes of an op that nobody declared."""


FLOAT32_ULP = 2.4e-7


@dataclass(frozen=True, slots=True)
class Default:
    """A parameter that the pattern leaves out: it must be absent or have this value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Required:
    """An attribute that must have this value whatever the pattern says."""

    value: Any


Want: TypeAlias = Expression | Default | Required


@dataclass(frozen=True, slots=True)
class AttributeWant:
    """What an attribute called `name` has to be; `default` is that of the op's schema.

    `reads` gives the parameter's value where no attribute is just that, `means` the one way of
    writing it in which it is compared and bound.
    """

    name: str
    want: Want
    default: Any
    parameter: str = ""
    reads: Expression | None = None
    means: Expression | None = None


@dataclass(frozen=True, slots=True)
class InputWant:
    """What stands at an input; `plain` says that it is a number or list, not a tensor.

    `absent` is what an optional input means that is not there, `dtype` that of the constant
    ("": any).
    """

    want: Want
    plain: bool = False
    parameter: str = ""
    absent: Any = None
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class NodeForm:
    """One node that can stand for a call.

    `op` is the key in `Region.ops`. With `rest` the remaining inputs are variadic. `closed` lists
    attributes that may be present, others are a miss (None: any); `captured` binds all of them to
    `ATTRIBUTES`. `when` is over the parameters;
    `settled` are those that no input or attribute holds; `changed` says what is different in this
    opset where it does not hold. `dtypes` are those of the first input on which the form means
    the same (empty: all).
    `formals` are the op's attributes with their defaults, `places` the names of its inputs, for
    parameters that are computed; `said` what the pattern says of parameters in plain values.
    `computed` are attributes and inputs that follow from the parameters. With `alone` the node
    has one output.
    """

    op: str
    inputs: tuple[InputWant, ...]
    attributes: tuple[AttributeWant, ...]
    rest: Expression | None = None
    commutative: bool = False
    floats: bool = False
    closed: frozenset[str] | None = None
    captured: bool = False
    outputs: int = 1
    output: int = 0
    when: Expression | None = None
    changed: str = ""
    settled: tuple[tuple[str, Any], ...] = ()
    dtypes: frozenset[str] = frozenset()
    formals: Mapping[str, Any] = field(default_factory=dict)
    places: tuple[str, ...] = ()
    said: Mapping[str, Any] = field(default_factory=dict)
    computed: tuple[tuple[str, Expression], ...] = ()
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Guarded:
    """An equation that stands for a call where its parameters have the values in `presets`.

    `presets` binds variables to these values (None: absent); `inner` must match, and the first of
    the tensors in `names` must have one of `dtypes` (empty: any).
    """

    inner: Expression
    presets: tuple[tuple[str, Any], ...] = ()
    names: tuple[str, ...] = ()
    dtypes: frozenset[str] = frozenset()


def equal_plain(want: Any, got: Any, axis_rank: int | None = None) -> bool:
    """Compare a literal of a rule with a plain value of a graph, by value and not by type.

    A number may stand for a list of one; `1` and `True` are equal; with a known rank `-1` and the
    last axis are; floats are compared within 2 ulp of float32 or half a written digit.
    """
    if isinstance(want, Wanted):
        if isinstance(got, list | tuple):
            return len(got) == 1 and equal_plain(want, got[0], axis_rank)
        if not isinstance(got, int | float):
            return False
        if axis_rank is not None and isinstance(want.value, int) and isinstance(got, int):
            wanted = want.value
            return bool(wanted % axis_rank == got % axis_rank if axis_rank else wanted == got)
        if want.value == got:
            return True
        exact = isinstance(got, int) and isinstance(want.value, int)
        limit = 0.0 if exact else (want.width + FLOAT32_ULP) * abs(want.value)
        return bool(math.isfinite(want.value) and abs(want.value - got) <= limit)
    if isinstance(want, list):
        parts = list(got) if isinstance(got, list | tuple) else [got]
        return len(want) == len(parts) and all(
            equal_plain(a, b, axis_rank) for a, b in zip(want, parts, strict=True)
        )
    if isinstance(got, list | tuple) and not isinstance(want, list | tuple):
        return len(got) == 1 and equal_plain(want, got[0], axis_rank)
    if want is None or got is None:
        return want is got
    if isinstance(want, bool | str):
        return bool(want == got)
    if isinstance(want, int | float):
        return equal_plain(Wanted(want, 0.0, show(want)), got, axis_rank)
    if isinstance(want, tuple):
        return equal_plain(list(want), got, axis_rank)
    return bool(want == got)


def plain_of(constant: Constant) -> Any:
    """Give a constant as a number (no dims) or a list."""
    return constant.items[0] if not constant.shape else list(constant.items)

"""The syntax tree of the equation language: what a pattern, a replacement, a body or a `when` says.

`at` is the position in the text, for the caret of a message; it takes no part in equality.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Number:
    """A number as written; `text` keeps its digits, which decide how exactly it must match."""

    value: int | float
    text: str = field(compare=False)
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Literal:
    """A string, `True`, `False` or `None`."""

    value: str | bool | None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list `[a, b]` (also a tuple `(a, b)` behind `in`)."""

    items: tuple[Expression, ...]
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Name:
    """A variable; `_` matches anything. `pi`, `e` and `inf` are parsed as `Number`."""

    name: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Maybe:
    """`x?`: an input that may be absent."""

    name: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Rest:
    """`*rest`: all remaining (variadic) inputs."""

    name: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """`function(…)`; `domain::function(…)` names one op, dots and overload included, exactly."""

    function: str
    arguments: tuple[Expression, ...] = ()
    keywords: tuple[tuple[str, Expression], ...] = ()
    domain: str | None = None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x` or `not x`."""

    operator: str
    operand: Expression
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Binary:
    """`+ - * / // % ** @ < <= > >= == != and or in`, `not in`; left and right operand."""

    operator: str
    left: Expression
    right: Expression
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Choose:
    """`yes if condition else no`."""

    condition: Expression
    yes: Expression
    no: Expression
    at: int = field(default=0, compare=False)


Expression: TypeAlias = (
    Number | Literal | ListOf | Name | Maybe | Rest | Call | Unary | Binary | Choose
)


@dataclass(frozen=True, slots=True)
class Statement:
    """`a, b = expression`; a target `_` is an output that is not named."""

    targets: tuple[str, ...]
    value: Expression
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Equation:
    """Statements and the expressions that are the outputs, in order."""

    statements: tuple[Statement, ...]
    results: tuple[Expression, ...]
    text: str = field(default="", compare=False)

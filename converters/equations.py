"""Functions of the vocabulary that are equations over other ops: the call's arguments put in.

What can be told of a condition before any graph is seen is told by the literals of the pattern;
a variable at a parameter that the condition fixes is bound to that value.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from oprep.converters.expand import Output
from oprep.converters.forms import Guarded
from oprep.converters.normal import Wanted, literal, literal_of, substitute
from oprep.converters.parameters import unwrapped
from oprep.opsets.arithmetic import Unknown
from oprep.opsets.computing import FUNCTIONS, compute, holds
from oprep.opsets.expression import UNKNOWN, variables, walk
from oprep.opsets.rule import REQUIRED
from oprep.opsets.syntax import (
    Binary,
    Call,
    Equation,
    Expression,
    ListOf,
    Literal,
    Maybe,
    Name,
    Number,
    Statement,
    Unary,
)
from oprep.opsets.vocabulary import DTYPE_CLASSES, Function, OnnxForm, vocabulary

ASKED = frozenset({"rank", "shape", "dim", "dtype"})
"""What an equation asks about a tensor while it is written; no pattern can know it."""

_numbers = itertools.count(1_000)
"""Statements of a pattern count from 0, those of the vocabulary from here."""


class Unsaid(Exception):
    """Something in an equation that is only known where the graph is."""


def equations(
    form: OnnxForm, function: Function, given: Mapping[str, Any]
) -> Iterator[Expression | Guarded]:
    """Give what a call is in one equation: nothing where its condition does not hold.

    An optional tensor that may be absent makes two of it.
    """
    kinds = {item.name: item.kind for item in function.parameters}
    maybe = [name for name, want in given.items() if kinds[name] == "optional" and _is_maybe(want)]
    for present in itertools.product((True, False), repeat=len(maybe)):
        wants, absent = dict(given), []
        for name, there in zip(maybe, present, strict=True):
            variable = wants.pop(name).name
            if there:
                wants[name] = Name(variable)
            else:
                absent.append((variable, None))
        made = _equation(form, function, wants, absent)
        if made is not None:
            yield made


def _is_maybe(want: Any) -> bool:
    return isinstance(want, Maybe)


def _equation(
    form: OnnxForm, function: Function, given: Mapping[str, Any], absent: list[tuple[str, None]]
) -> Expression | Guarded | None:
    assert form.equation is not None
    if any(isinstance(want, tuple) for want in given.values()) or len(form.equation.results) != 1:
        return None
    said = _said(form, function, given)
    if form.when is not None and not holds(form.when, said):
        return None
    inner: dict[str, Any] = {}
    try:
        for statement in form.equation.statements:
            value = substitute(fold(statement.value, said), {**said.expressions, **inner})
            if len(statement.targets) == 1:
                inner[statement.targets[0]] = value
                continue
            assert isinstance(value, Call)
            number = next(_numbers)
            for index, target in enumerate(statement.targets):
                inner[target] = Output(value, number, index)
        result = fold(form.equation.results[0], said)
    except Unsaid:
        return None
    whole = substitute(result, {**said.expressions, **inner})
    return _guarded(form, whole, (*said.presets, *absent), given)


def _guarded(
    form: OnnxForm,
    whole: Expression,
    presets: tuple[tuple[str, Any], ...],
    given: Mapping[str, Any],
) -> Expression | Guarded:
    dtypes = frozenset(
        dtype for group in form.dtypes for dtype in DTYPE_CLASSES.get(group, (group,))
    )
    if dtypes.issuperset(DTYPE_CLASSES["float"]) and isinstance(whole, Binary | Unary):
        dtypes = frozenset()  # sums and products ask for a floating type themselves
    names = tuple(item.name for item in given.values() if isinstance(item, Name))
    if presets or (dtypes and names):
        return Guarded(whole, presets, names, dtypes if names else frozenset())
    return whole


@dataclass(slots=True)
class Said:
    """What a pattern says of the parameters: expressions, plain values, variables that are bound.

    As an environment of conditions it answers by literals and defaults; graphs are unknown.
    """

    expressions: dict[str, Expression] = field(default_factory=dict)
    plain: dict[str, object] = field(default_factory=dict)
    presets: list[tuple[str, object]] = field(default_factory=list)
    tensors: frozenset[str] = frozenset()

    def name(self, name: str) -> object:
        """Give a literal or a default; a variable is unknown."""
        return self.plain.get(name, UNKNOWN)

    def call(self, function: str, arguments: tuple[object, ...]) -> object:
        """Tell whether a tensor is given; nothing else is known."""
        return arguments[0] in self.tensors if function == "present" else UNKNOWN


def _said(form: OnnxForm, function: Function, given: Mapping[str, Any]) -> Said:
    """Sort a call's arguments; a plain parameter that the equation lacks is settled."""
    assert form.equation is not None
    inside = set(variables(form.equation))
    pinned = pins(form.when)
    said = Said(tensors=frozenset(
        name for name, want in given.items() if isinstance(want, Name | Call | Binary | Unary)
    ))  # fmt: skip
    for item in function.parameters:
        name, default, want = item.name, item.default, given.get(item.name)
        if want is None:
            if default is not REQUIRED:
                said.expressions[name] = literal_of(default) or Literal(None)
                said.plain[name] = default
        elif (plain := literal(want)) is not ...:
            said.expressions[name] = want
            said.plain[name] = plain.value if isinstance(plain, Wanted) else unwrapped(plain)
        elif name in pinned or (name not in inside and default is not REQUIRED):
            value = pinned.get(name, default)
            said.expressions[name] = literal_of(value) or Literal(None)
            said.plain[name] = value
            bound = isinstance(want, Name | Maybe) and want.name != "_"
            if bound and (value is not None or name in pinned):
                said.presets.append((want.name, value))
        else:
            said.expressions[name] = want
    _settle(function, said)
    return said


def _settle(function: Function, said: Said) -> None:
    """Write the parameters that are literals in the one way of writing them."""
    settled = {
        name: value
        for name, expression in function.means.items()
        if name in said.plain and not isinstance(value := compute(expression, said), Unknown)
    }
    for name, value in settled.items():
        written = literal_of(value)
        if written is not None:
            said.plain[name], said.expressions[name] = value, written


def pins(condition: Expression | None) -> dict[str, Any]:
    """Give the parameters that a condition fixes: those it compares with a literal by `==`."""
    match condition:
        case Binary(operator="and", left=left, right=right):
            return {**pins(left), **pins(right)}
        case Binary(operator="==", left=Name(name), right=Literal() | Number() as value):
            return {name: value.value}
    return {}


def fold(expression: Expression, environment: Any) -> Expression:
    """Put values in place of what is computed; raise `Unsaid` where one is not known."""
    if not any(_is_computed(part) for part in walk(expression)):
        return expression
    value = compute(expression, environment)
    written = None if isinstance(value, Unknown) else literal_of(value)
    if written is not None:
        return written
    match expression:
        case Call() if _is_computed(expression):
            raise Unsaid
        case Call(function, arguments, keywords, domain, at):
            return Call(
                function,
                tuple(fold(item, environment) for item in arguments),
                tuple((key, fold(item, environment)) for key, item in keywords),
                domain,
                at,
            )
        case Binary(operator, left, right, at):
            return Binary(operator, fold(left, environment), fold(right, environment), at)
        case Unary(operator, operand, at):
            return Unary(operator, fold(operand, environment), at)
        case ListOf(items, at):
            return ListOf(tuple(fold(item, environment) for item in items), at)
    raise Unsaid


def folded(equation: Equation, environment: Any) -> Equation:
    """Put values in place of what an equation computes; raise `Unsaid` where one is not known."""
    statements = tuple(
        Statement(item.targets, fold(item.value, environment), item.at)
        for item in equation.statements
    )
    return Equation(statements, tuple(fold(item, environment) for item in equation.results))


def shortened(equation: Equation, numbers: Mapping[str, Any]) -> Equation:
    """Leave out factors and divisors that are 1: nobody writes `1 * x`."""
    ones = {
        name for name, value in numbers.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and value == 1
    }  # fmt: skip
    if not ones:
        return equation
    statements = tuple(
        Statement(item.targets, _short(item.value, ones), item.at) for item in equation.statements
    )
    return Equation(statements, tuple(_short(item, ones) for item in equation.results))


def _short(expression: Expression, ones: set[str]) -> Expression:
    match expression:
        case Binary("*", Name(name), right) if name in ones:
            return _short(right, ones)
        case Binary("*" | "/", left, Name(name)) if name in ones:
            return _short(left, ones)
        case Binary(operator, left, right, at):
            return Binary(operator, _short(left, ones), _short(right, ones), at)
        case Call(function, arguments, keywords, domain, at):
            return Call(
                function, tuple(_short(item, ones) for item in arguments), keywords, domain, at
            )
    return expression


def _is_computed(part: Expression) -> bool:
    if not isinstance(part, Call) or part.domain is not None:
        return False
    known = part.function in FUNCTIONS and part.function not in vocabulary()
    return known or part.function in ASKED

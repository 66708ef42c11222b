"""Write a syntax tree as text that reads back as the same tree, in as few brackets as it takes."""

from __future__ import annotations

import re

from oprep.opsets.grammar import CAPITALISED, COMPARE, LEVELS, NEGATE, NOT, OR
from oprep.opsets.syntax import (
    Binary,
    Call,
    Choose,
    Equation,
    Expression,
    ListOf,
    Literal,
    Maybe,
    Name,
    Number,
    Rest,
    Unary,
)
from oprep.opsets.tokens import quote

_DOTTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
_CHOOSE, _ATOM = 1, 10


def format_expression(expression: Expression) -> str:
    """Write an expression on one line; numbers keep the digits they were written with."""
    return _format(expression, _CHOOSE)


def format_equation(equation: Equation) -> str:
    """Write an equation on one line, statements separated by `; `."""
    lines = [
        f"{', '.join(statement.targets)} = {format_expression(statement.value)}"
        for statement in equation.statements
    ]
    named = equation.statements[-1].targets if equation.statements else ()
    implied = tuple(Name(name) for name in named if name != "_")
    if equation.results != implied:
        results = ", ".join(format_expression(result) for result in equation.results)
        lines.append(f"return {results}" if len(equation.results) > 1 else results)
    return "; ".join(lines)


def _format(expression: Expression, loosest: int) -> str:
    """Write an expression, in brackets where it binds looser than its place allows."""
    text, level = _parts(expression)
    return f"({text})" if level < loosest else text


def _parts(expression: Expression) -> tuple[str, int]:
    match expression:
        case Number(value=value, text=text):
            text = text or repr(value)
            return text, NEGATE if text.startswith("-") else _ATOM
        case Literal(value=value):
            return (quote(value) if isinstance(value, str) else str(value)), _ATOM
        case ListOf(items=items):
            return f"[{', '.join(_format(item, _CHOOSE) for item in items)}]", _ATOM
        case Name(name=name):
            return name, _ATOM
        case Maybe(name=name):
            return f"{name}?", _ATOM
        case Rest(name=name):
            return f"*{name}", _ATOM
        case Call():
            return _call(expression), _ATOM
        case Unary(operator="not", operand=operand):
            return f"not {_format(operand, NOT)}", NOT
        case Unary(operand=operand):
            return f"-{_format(operand, NEGATE)}", NEGATE
        case Binary(operator=operator, left=left, right=right):
            return _binary(operator, left, right), LEVELS[operator]
        case Choose(condition=condition, yes=yes, no=no):
            text = f"{_format(yes, OR)} if {_format(condition, OR)}"
            return f"{text} else {_format(no, _CHOOSE)}", _CHOOSE


def _binary(operator: str, left: Expression, right: Expression) -> str:
    level = LEVELS[operator]
    if operator == "**":
        return f"{_format(left, _ATOM)} ** {_format(right, NEGATE)}"
    tighter = level + 1 if level == COMPARE else level
    return f"{_format(left, tighter)} {operator} {_format(right, level + 1)}"


def _call(call: Call) -> str:
    arguments = [_format(argument, _CHOOSE) for argument in call.arguments]
    arguments += [f"{key}={_format(value, _CHOOSE)}" for key, value in call.keywords]
    return f"{op_name(call.domain, call.function)}({', '.join(arguments)})"


def op_name(domain: str | None, function: str) -> str:
    """Write the name of a called op: `erf`, `Gelu`, `com.acme::Gelu`, quoted where it has to be."""
    if domain is None or (not domain and CAPITALISED.fullmatch(function)):
        return function
    domain = domain or "ai.onnx"
    if _DOTTED.fullmatch(domain) and _DOTTED.fullmatch(function):
        return f"{domain}::{function}"
    return quote(f"{domain}::{function}")

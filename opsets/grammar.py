"""Read one expression of the equation language: recursive descent, with Python's precedence."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from oprep.opsets.cursor import LOGIC, Cursor
from oprep.opsets.syntax import (
    Binary,
    Call,
    Choose,
    Expression,
    ListOf,
    Literal,
    Maybe,
    Name,
    Number,
    Rest,
    Unary,
)
from oprep.opsets.tokens import MAX_NESTING, Token

CONSTANTS = {"pi": math.pi, "e": math.e, "inf": math.inf}
LITERALS = {"True": True, "False": False, "None": None}
RESERVED = frozenset({*CONSTANTS, *LITERALS, *LOGIC, "return"})
WORDS = ("or", "and", "in")
OR, AND, NOT, COMPARE, ADD, MULTIPLY, NEGATE, POWER = range(2, 10)
LEVELS = {
    "or": OR, "and": AND, "in": COMPARE, "not in": COMPARE, "<": COMPARE, "<=": COMPARE,
    ">": COMPARE, ">=": COMPARE, "==": COMPARE, "!=": COMPARE, "+": ADD, "-": ADD,
    "*": MULTIPLY, "/": MULTIPLY, "//": MULTIPLY, "%": MULTIPLY, "@": MULTIPLY, "**": POWER,
}  # fmt: skip
"""How tightly a binary operator binds, as in Python."""

CAPITALISED = re.compile(r"[A-Z][A-Za-z0-9_]*")
_LARGEST = 2**64 - 1


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An operator that waits for its right operand; `negative` and `not` stand before theirs."""

    level: int
    operator: str
    at: int


class ExpressionParser(Cursor):
    """Reads expressions, in conditions with all operators, else without `and`, `if`, …."""

    def expression(self) -> Expression:
        """Read an expression, as loose as the place allows."""
        self.depth += 1
        if self.depth > MAX_NESTING + 1:
            message = f"more than {MAX_NESTING} levels of nesting"
            raise self.error(message, None, "split it into statements")
        result = self._operators()
        if self.logic and self.at_word("if"):
            self.take()
            condition = self._operators()
            if not self.at_word("else"):
                raise self.unexpected("`else`", "add `else` and the other value")
            self.take()
            result = Choose(condition, result, self.expression(), result.at)
        self.depth -= 1
        return result

    def _operators(self) -> Expression:
        """Read operands and operators, looser ones waiting for tighter ones.

        One loop instead of a function per level: the stack then holds 64 levels of brackets.
        """
        operands: list[Expression] = []
        waiting: list[_Waiting] = []
        while True:
            self._prefixes(waiting)
            operands.append(self._atom())
            at = self.token.at
            operator = self._operator()
            level = LEVELS[operator] if operator else 0
            while waiting and (waiting[-1].level > level or waiting[-1].level == level < POWER):
                if waiting[-1].level == level == COMPARE:
                    message = "comparisons cannot be chained"
                    help = "join two of them with `and`" if self.logic else "compare two values"
                    raise self.error(message, at, help)
                _apply(waiting.pop(), operands)
            if not operator:
                return operands[0]
            waiting.append(_Waiting(level, operator, at))

    def _prefixes(self, waiting: list[_Waiting]) -> None:
        while True:
            if self.at_operator("-"):
                waiting.append(_Waiting(NEGATE, "negative", self.take().at))
            elif self.logic and self.at_word("not") and not (waiting and waiting[-1].level > NOT):
                waiting.append(_Waiting(NOT, "not", self.take().at))
            else:
                return

    def _operator(self) -> str:
        """Take the operator between two operands, if one comes next."""
        token = self.token
        if self.logic and self.at_word("not") and self.before("name", "in"):
            self.take()
            return f"not {self.take().text}"
        kind = "name" if token.text in WORDS and self.logic else "operator"
        if token.kind == kind and token.text in LEVELS:
            return self.take().text
        return ""

    def _atom(self) -> Expression:
        if self.token.kind == "number":
            return self._number()
        if self.token.kind == "string":
            return self._string()
        if self.at_operator("("):
            return self._parenthesis()
        if self.at_operator("["):
            at = self.take().at
            return ListOf(self._items("]"), at)
        if self.token.kind == "name":
            return self._named()
        if self.at_operator("+"):
            raise self.error("a leading `+` has no meaning", None, "remove it")
        if self.at_operator("*"):
            raise self.error("`*` stands before nothing that it multiplies", None, "remove it")
        raise self.unexpected("a value", "write a number, a variable or a call")

    def _number(self) -> Number:
        token = self.take()
        if token.text.isdecimal():
            # Python refuses to convert more than 4300 digits
            if len(token.text) > 40 or int(token.text) > _LARGEST:
                message = "the integer does not fit into 64 bits"
                raise self.error(message, token.at, "write it as a float: `1e20`")
            return Number(int(token.text), token.text, token.at)
        value = float(token.text)
        if math.isinf(value):
            raise self.error("the number is larger than any float", token.at, "write `inf`")
        return Number(value, token.text, token.at)

    def _string(self) -> Expression:
        token = self.take()
        if not self.at_operator("("):
            return Literal(token.text, token.at)
        domain, colons, function = token.text.partition("::")
        if not colons or not function:
            message = f"the quoted name `{token.text}` does not say domain and op"
            raise self.error(message, token.at, "write `'domain::Op'(x)`")
        return self._call(token.at, function, domain)

    def _parenthesis(self) -> Expression:
        at = self.take().at
        if self.at_operator(")"):
            self.take()
            return ListOf((), at)
        first = self.expression()
        if self.at_operator(","):
            self.take()
            return ListOf((first, *self._items(")")), at)
        self._close(")")
        return first

    def _items(self, closing: str) -> tuple[Expression, ...]:
        items: list[Expression] = []
        while not self.at_operator(closing):
            items.append(self.expression())
            if not self.at_operator(","):
                break
            self.take()
        self._close(closing)
        return tuple(items)

    def _close(self, closing: str) -> None:
        if not self.at_operator(closing):
            raise self.unexpected(f"`,` or `{closing}`", "add an operator or a comma")
        self.take()

    def _named(self) -> Expression:
        token = self.take()
        name = token.text
        if self.at_operator("::"):
            self.take()
            if self.token.kind != "name":
                raise self.unexpected("the name of an op", f"write `{name}::Op(x)`")
            function = self.take().text
            if not self.at_operator("("):
                raise self.unexpected("`(`", f"write `{name}::{function}(x)`")
            return self._call(token.at, function, name)
        if self.at_operator("("):
            return self._function(token)
        if name in CONSTANTS:
            return Number(CONSTANTS[name], name, token.at)
        if name in LITERALS:
            return Literal(LITERALS[name], token.at)
        if name in RESERVED:
            self.index -= 1
            help = "put `not` in brackets" if name == "not" else "rename it, it is a reserved word"
            raise self.unexpected("a value", help)
        if "." in name:
            message = f"`{name}` has dots: a variable has none"
            raise self.error(message, token.at, "write an op as `domain::Op(x)`")
        return Name(name, token.at)

    def _function(self, token: Token) -> Call:
        name = token.text
        if name in RESERVED:
            raise self.error(f"`{name}` is no function", token.at, "add an operator behind it")
        if "." in name:
            message = f"`{name}` lacks a domain"
            raise self.error(message, token.at, f"write `aten::{name}(x)` or `domain::Op(x)`")
        return self._call(token.at, name, "" if CAPITALISED.fullmatch(name) else None)

    def _call(self, at: int, function: str, domain: str | None) -> Call:
        self.take()
        arguments: list[Expression] = []
        keywords: dict[str, Expression] = {}
        while not self.at_operator(")"):
            if self.token.kind == "name" and self.before("operator", "="):
                key = self._key(keywords)
                keywords[key] = self._value()
            elif keywords:
                message = "a positional argument cannot follow a keyword"
                raise self.error(message, None, "move it to the front")
            else:
                arguments.append(self._argument())
            if not self.at_operator(","):
                break
            self.take()
        self._close(")")
        domain = "" if domain == "ai.onnx" else domain
        return Call(function, tuple(arguments), tuple(keywords.items()), domain, at)

    def _key(self, keywords: dict[str, Expression]) -> str:
        token = self.take()
        if token.text in keywords:
            raise self.error(f"`{token.text}` is given twice", token.at, "remove one of them")
        if "." in token.text:
            raise self.error("a keyword has no dots", token.at, "write the parameter's name")
        self.take()
        return token.text

    def _value(self) -> Expression:
        """Read what follows `key=`, where conditions are allowed."""
        outer, self.logic = self.logic, True
        value = self._maybe()
        self.logic = outer
        return value

    def _argument(self) -> Expression:
        if self.at_operator("*"):
            at = self.take().at
            if self.token.kind != "name" or self.token.text in RESERVED | {"_"}:
                raise self.unexpected("a name", "write `*rest`")
            if "." in self.token.text:
                raise self.error("a variable has no dots", None, "write `*rest`")
            return Rest(self.take().text, at)
        return self._maybe()

    def _maybe(self) -> Expression:
        """Read `x?` or any other expression."""
        token = self.token
        if token.kind != "name" or not self.before("operator", "?"):
            return self.expression()
        if token.text in RESERVED | {"_"} or "." in token.text:
            raise self.error(f"`{token.text}` cannot be a variable", None, "rename it")
        self.take()
        self.take()
        return Maybe(token.text, token.at)


def _apply(operator: _Waiting, operands: list[Expression]) -> None:
    """Replace the operator's last one or two operands with the result."""
    right = operands.pop()
    if operator.operator == "not":
        operands.append(Unary("not", right, operator.at))
    elif operator.operator == "negative":
        operands.append(_negated(right, operator.at))
    else:
        left = operands.pop()
        operands.append(Binary(operator.operator, left, right, left.at))


def _negated(operand: Expression, at: int) -> Expression:
    """Make `-1` a number, so that it is a literal wherever one is asked for."""
    if not isinstance(operand, Number):
        return Unary("-", operand, at)
    text = operand.text[1:] if operand.text.startswith("-") else f"-{operand.text}"
    return replace(operand, value=-operand.value, text=text, at=at)

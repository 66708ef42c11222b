"""Work out what a condition says about a match, in three-valued logic, and say why it failed.

What is unknown stays unknown through arithmetic and comparison; `unknown and False` is False and
`unknown or True` is True. A mistake of types is unknown, too, with the reason kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from oprep.opsets.arithmetic import BUILT_IN, Unknown, calculate, compare, show
from oprep.opsets.printer import format_expression
from oprep.opsets.syntax import (
    Binary,
    Call,
    Choose,
    Expression,
    ListOf,
    Literal,
    Name,
    Number,
    Unary,
)

UNKNOWN = Unknown()
"""The value of everything that is not known; test for it with `is`, it has no truth value."""

GRAPH_FUNCTIONS = {
    "dtype": 1, "rank": 1, "shape": 1, "dim": 2, "is_const": 1, "value": 1, "present": 1,
    "users": 1, "requires_grad": 1, "is_tensor": 1,
}  # fmt: skip
"""What a condition can ask about a bound name, and how many arguments it takes."""

_OPPOSITES = {
    "==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">", "in": "not in",
    "not in": "in",
}  # fmt: skip
_WANTED = {"==": "", "in": "one of ", "not in": "none of "}


class Environment(Protocol):
    """What a match knows. Values are numbers, strings, lists, bools, None, or `UNKNOWN`.

    An `Unknown("reason")` may be given instead of `UNKNOWN`: the reason is shown to the user.
    """

    def name(self, name: str) -> object:
        """Give the value of a bound attribute or constant."""
        ...

    def call(self, function: str, arguments: tuple[object, ...]) -> object:
        """Answer one of `GRAPH_FUNCTIONS`; the first argument is the name of what is asked about.

        Further arguments are values: `dim(x, 0)` is `call("dim", ("x", 0))`.
        """
        ...


def evaluate(expression: Expression, environment: Environment) -> object:
    """Give the value of an expression, or `UNKNOWN`; never raise for what the user wrote."""
    value = _Evaluation(environment).value(expression)
    return UNKNOWN if isinstance(value, Unknown) else value


def evaluate_with(
    expression: Expression,
    environment: Environment,
    functions: Mapping[str, Callable[[str, Sequence[object]], object]],
) -> object:
    """Give the value of an expression that may call other functions, or an `Unknown`."""
    return _Evaluation(environment, functions).value(expression)


def explain(
    expression: Expression,
    environment: Environment,
    functions: Mapping[str, Callable[[str, Sequence[object]], object]] = BUILT_IN,
) -> str:
    """Say which part of a condition failed first, with both values; "" where it holds.

    A part that is false comes before one that is unknown: it decides.
    """
    evaluation = _Evaluation(environment, functions)
    return "" if evaluation.truth(expression) is True else evaluation.failure(expression)


@dataclass(frozen=True, slots=True)
class _Evaluation:
    environment: Environment
    functions: Mapping[str, Callable[[str, Sequence[object]], object]] = field(
        default_factory=lambda: BUILT_IN
    )
    """What may be called beside `GRAPH_FUNCTIONS`."""

    def value(self, expression: Expression) -> object:
        match expression:
            case Number(value=value) | Literal(value=value):
                return value
            case ListOf(items=items):
                return [self.value(item) for item in items]
            case Name(name=name):
                return _named(self.environment.name(name), name)
            case Call():
                return self.call(expression)
            case Unary(operator="not", operand=operand):
                return _negated(self.truth(operand))
            case Unary(operand=operand):
                return calculate("-", 0, self.value(operand), format_expression(expression))
            case Binary(operator="and" | "or"):
                return self.logic(expression)
            case Binary(operator=operator, left=left, right=right):
                does = compare if operator in _OPPOSITES else calculate
                text = format_expression(expression)
                return does(operator, self.value(left), self.value(right), text)
            case Choose(condition=condition, yes=yes, no=no):
                holds = self.truth(condition)
                return holds if isinstance(holds, Unknown) else self.value(yes if holds else no)
        return Unknown(f"`{format_expression(expression)}` is no value")

    def truth(self, expression: Expression) -> bool | Unknown:
        value = self.value(expression)
        if isinstance(value, Unknown):
            return value
        # ONNX keeps a bool attribute as 0 or 1
        if isinstance(value, bool | int) and value in (0, 1):
            return bool(value)
        return Unknown(
            f"`{format_expression(expression)}` is {show(value)}, neither true nor false"
        )

    def logic(self, expression: Binary) -> bool | Unknown:
        decides = expression.operator == "or"
        left = self.truth(expression.left)
        if left is decides:
            return decides
        right = self.truth(expression.right)
        return right if right is decides or not isinstance(left, Unknown) else left

    def call(self, call: Call) -> object:
        text = format_expression(call)
        if call.function in self.functions and not call.keywords and call.domain is None:
            arguments = [self.value(argument) for argument in call.arguments]
            return self.functions[call.function](text, arguments)
        count = GRAPH_FUNCTIONS.get(call.function)
        if count is None or len(call.arguments) != count or call.keywords or call.domain:
            return Unknown(f"`{text}` is nothing that a condition can ask")
        first, *others = call.arguments
        if not isinstance(first, Name):
            return Unknown(f"`{text}` asks about no bound name")
        values = [self.value(argument) for argument in others]
        for value in values:
            if isinstance(value, Unknown):
                return value
        return _named(self.environment.call(call.function, (first.name, *values)), text)

    def failure(self, expression: Expression) -> str:
        """Say why a condition that is not True is not."""
        match expression:
            case Binary(operator="and", left=left, right=right):
                first = self.truth(left)
                right_decides = isinstance(first, Unknown) and self.truth(right) is False
                return self.failure(right if first is True or right_decides else left)
            case Binary(operator="or", left=left, right=right):
                return f"{self.failure(left)}, and {self.failure(right)}"
            case Unary(operator="not", operand=operand):
                return self.opposite(operand)
            case Binary(operator=operator, left=left, right=right) if operator in _OPPOSITES:
                return self.comparison(expression, left, right)
            case Choose(condition=condition, yes=yes, no=no):
                holds = self.truth(condition)
                if isinstance(holds, bool):
                    return self.failure(yes if holds else no)
        return self.plain(expression, "True")

    def opposite(self, operand: Expression) -> str:
        """Say why `not operand` is not True, without a `not` where one can be avoided."""
        match operand:
            case Binary(operator=operator, left=left, right=right) if operator in _OPPOSITES:
                return self.failure(Binary(_OPPOSITES[operator], left, right))
            case Binary(operator=operator, left=left, right=right) if operator in ("and", "or"):
                other = "or" if operator == "and" else "and"
                return self.failure(Binary(other, Unary("not", left), Unary("not", right)))
            case Unary(operator="not", operand=inner):
                return self.failure(inner)
        return self.plain(operand, "False")

    def plain(self, expression: Expression, wanted: str) -> str:
        value = self.truth(expression)
        if isinstance(value, Unknown):
            return value.reason
        return f"`{format_expression(expression)}` is {show(value)}, the rule wants {wanted}"

    def comparison(self, expression: Binary, left: Expression, right: Expression) -> str:
        result = self.truth(expression)
        if isinstance(result, Unknown):
            return result.reason
        if _literal(left) and not _literal(right):
            mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(expression.operator)
            if mirrored or expression.operator in ("==", "!="):
                operator = mirrored or expression.operator
                return self.comparison(Binary(operator, right, left), right, left)
        here, there = format_expression(left), format_expression(right)
        have, want = show(self.value(left)), show(self.value(right))
        if not _literal(right):
            whole = format_expression(expression)
            return f"`{here}` is {have} and `{there}` is {want}, the rule wants `{whole}`"
        operator = expression.operator
        if operator in ("in", "not in"):
            want = want.removeprefix("[").removesuffix("]") or "nothing"
        wish = (
            "another value"
            if operator == "!="
            else f"{_WANTED.get(operator, f'{operator} ')}{want}"
        )
        return f"`{here}` is {have}, the rule wants {wish}"


def _literal(expression: Expression) -> bool:
    if isinstance(expression, ListOf):
        return all(_literal(item) for item in expression.items)
    return isinstance(expression, Number | Literal)


def _named(value: object, text: str) -> object:
    """Add what was asked to an answer that is not known."""
    if isinstance(value, list | tuple):
        return _whole(value, text)
    if not isinstance(value, Unknown):
        return value
    return Unknown(f"`{text}` is unknown" + (f": {value.reason}" if value.reason else ""))


def _whole(value: list[object] | tuple[object, ...], text: str) -> list[object]:
    """Give a list's unknown items a reason that shows the list."""
    unknown = Unknown(f"`{text}` is {show(value)}, which is not all known")
    return [unknown if isinstance(item, Unknown) else item for item in value]


def _negated(value: bool | Unknown) -> bool | Unknown:
    return value if isinstance(value, Unknown) else not value

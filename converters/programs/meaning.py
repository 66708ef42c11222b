"""What an equation is in torch: each expression an operand, each call one overload's.

The walk gives every expression an operand: what the builder made, or a plain number, which takes
the dtype of the tensor beside it. The right overload of a function is the one that takes its
operands with the least conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload

from oprep.converters.equations import Unsaid, folded, shortened
from oprep.converters.graph import ABSENT
from oprep.converters.normal import BINARY, COMPARED, number_of, substitute
from oprep.converters.programs.builders import Builder
from oprep.converters.programs.calling import Caller
from oprep.converters.programs.fitting import NUMBER, Fitted, New
from oprep.converters.programs.layout import key_of
from oprep.converters.programs.overloads import named, overloads_of
from oprep.opsets.arithmetic import Unknown
from oprep.opsets.computing import compute, holds
from oprep.opsets.expression import UNKNOWN, evaluate, format_expression
from oprep.opsets.rule import CustomOp
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
    Rest,
    Unary,
)
from oprep.opsets.vocabulary import Function, vocabulary

TENSORS = ("tensor", "optional", "tensors")
FLIPPED = {
    "add": "add", "mul": "mul", "eq": "eq", "ne": "ne", "maximum": "maximum",
    "minimum": "minimum", "gt": "lt", "lt": "gt", "ge": "le", "le": "ge",
}  # fmt: skip
"""Functions of two values, and what each is with its operands the other way round."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a keyword can ask about operands: plain values, dtypes, ranks and static sizes."""

    scope: Mapping[str, Any]
    builder: Builder

    def name(self, name: str) -> object:
        """Give a plain value; a tensor has none yet."""
        value = self.scope.get(name, UNKNOWN)
        if value is ABSENT:
            return None
        plain = value is None or isinstance(value, str | list | bool | int | float)
        return value if plain else UNKNOWN

    def call(self, function: str, arguments: tuple[object, ...]) -> object:
        """Answer `dtype(x)`, `rank(x)`, `shape(x)`, `dim(x, i)`, `present(x)`, `is_tensor(x)`."""
        value = self.scope.get(str(arguments[0]), UNKNOWN)
        if function == "present":
            return value is not ABSENT and value is not None
        if isinstance(value, bool | int | float):
            return {"rank": 0, "shape": [], "is_const": True, "value": value}.get(function, UNKNOWN)
        known = None if value is UNKNOWN else self.builder.value(value)
        if function == "is_tensor":
            return isinstance(known, torch.Tensor)
        if not isinstance(known, torch.Tensor):
            return UNKNOWN
        if function == "dtype":
            return str(known.dtype).removeprefix("torch.")
        if function == "rank":
            return known.dim()
        sizes = [size if isinstance(size, int) else UNKNOWN for size in known.shape]
        if function == "dim" and isinstance(arguments[1], int):
            inside = -len(sizes) <= arguments[1] < len(sizes)
            return sizes[arguments[1]] if inside else UNKNOWN
        return sizes if function == "shape" else UNKNOWN


def say(
    equation: Equation,
    scope: Mapping[str, Any],
    builder: Builder,
    *,
    ask: Callable[[Expression], Any] | None = None,
    where: str = "",
    ops: Mapping[str, CustomOp] | None = None,
) -> tuple[Any, ...]:
    """Make the calls of an equation; give its results.

    `scope` gives each variable an operand of the builder, a number, a string, a list, a tuple of
    operands for `*rest`, or `ABSENT`. `ask` gives the value of an expression that only the graph
    knows (a variable that is a constant there), else UNKNOWN. `ops` are custom ops by all names
    that they can be called by.
    Raise OprepError (exit RULES or EXPECTATION) for what cannot be said.
    """
    caller = Caller(builder, ask or (lambda expression: UNKNOWN), where)
    return Walk(caller, ops or {}).equation(equation, scope)


@dataclass(slots=True)
class Walk:
    """Gives each expression its operand; a scope maps variables to operands."""

    caller: Caller
    ops: Mapping[str, CustomOp]

    def equation(self, equation: Equation, scope: Mapping[str, Any]) -> tuple[Any, ...]:
        """Give the results of an equation; one call as the whole gives all of its results."""
        inner = dict(scope)
        for statement in equation.statements:
            if len(statement.targets) == 1:
                inner[statement.targets[0]] = self.expression(statement.value, inner)
                continue
            assert isinstance(statement.value, Call)
            given = self.call(statement.value, inner)
            if len(given) != len(statement.targets):
                call = format_expression(statement.value)
                message = f"`{call}` gives {len(given)} results, {len(statement.targets)} are named"
                raise self.caller.error(message, "name all of them")
            inner |= dict(zip(statement.targets, given, strict=True))
        only = equation.results[0]
        if len(equation.results) == 1 and isinstance(only, Call) and number_of(only) is None:
            return self.call(only, inner)
        return tuple(self.expression(result, inner) for result in equation.results)

    def expression(self, expression: Expression, scope: Mapping[str, Any]) -> Any:
        """Give an expression its operand."""
        number = number_of(substitute(expression, _numbers(scope)))
        if number is not None:
            return number.value
        match expression:
            case Name(name) | Maybe(name) | Rest(name):
                if name not in scope:
                    raise self.caller.error(f"`{name}` has no value here", "bind it in the pattern")
                return scope[name]
            case Literal(value=value):
                return value
            case ListOf(items=items):
                return [self.expression(item, scope) for item in items]
            case Unary(operator="-", operand=operand):
                return self.function("neg", [self.expression(operand, scope)], {}, scope)[0]
            case Binary(operator=operator, left=left, right=right) if operator in _OPERATORS:
                operands = [self.expression(left, scope), self.expression(right, scope)]
                return self.function(_OPERATORS[operator], operands, {}, scope)[0]
            case Call():
                return self.call(expression, scope)[0]
        text = format_expression(expression)
        raise self.caller.error(f"`{text}` is no value of a graph", "write it in a keyword")

    def call(self, call: Call, scope: Mapping[str, Any]) -> tuple[Any, ...]:
        """Make one call; give its results."""
        arguments, keywords = self.operands(call, scope)
        if call.domain is None:
            return self.function(call.function, arguments, keywords, scope)
        overloads = self.overloads(call)
        fitted = self.caller.choose(
            key_of(overloads[0]) if len(overloads) == 1 else f"{call.domain}::{call.function}",
            overloads,
            lambda overload: self.caller.fitter(scope).call(overload, arguments, keywords),
        )
        return self.caller.make(fitted)

    def operands(self, call: Call, scope: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Give the operands of a call, by position and by keyword."""
        arguments: list[Any] = []
        for argument in call.arguments:
            value = self.expression(argument, scope)
            several = isinstance(argument, Rest) and isinstance(value, tuple | list)
            arguments += value if several else [value]
        return arguments, {key: self.keyword(item, scope) for key, item in call.keywords}

    def overloads(self, call: Call) -> tuple[OpOverload, ...]:
        """Give the overloads that a call of a named op can mean."""
        if call.domain == "":
            message = f"`{call.function}` is an op of ONNX, the model is a PyTorch program"
            raise self.caller.error(message, "write a function in lower case, or `aten::op`")
        name = f"{call.domain}::{call.function}"
        declared = self.ops.get(name)
        if declared is not None and declared.name is None:
            message = f"`{name}` has no `name`, so PyTorch programs cannot call it"
            raise self.caller.error(message, "give the op a `name`")
        space, _, short = (declared.name or name if declared else name).partition("::")
        found = named(space, short)
        if not found:
            message = f"`{name}` is no op that is registered here"
            help = "declare it as an `[[op]]` with a `body` or `python`, or correct the name"
            raise self.caller.error(message, help)
        if any(overload._schema.is_mutable for overload in found):
            message = f"`{key_of(found[0])}` changes an argument in place"
            raise self.caller.error(message, "write the op that returns a new tensor")
        return found

    def keyword(self, expression: Expression, scope: Mapping[str, Any]) -> Any:
        """Give a keyword's value: a variable as it is, else from what is known, else an operand."""
        if isinstance(expression, Name | Maybe) and expression.name in scope:
            return scope[expression.name]
        value = evaluate(expression, Known(scope, self.caller.builder))
        value = self.caller.ask(expression) if value is UNKNOWN else value
        return self.expression(expression, scope) if value is UNKNOWN else value

    def function(
        self,
        name: str,
        arguments: Sequence[Any],
        keywords: Mapping[str, Any],
        scope: Mapping[str, Any],
    ) -> tuple[Any, ...]:
        """Make a vocabulary call in the overload that takes its operands as they are."""
        if name not in vocabulary():
            raise self.caller.error(f"`{name}` is no function", "name the op as `domain::op`")
        flipped = self.flipped(name, arguments, keywords, scope)
        if flipped is not None:
            return flipped
        function = vocabulary()[name]
        bound = self.caller.bind(function, arguments, keywords)
        known = Known(bound, self.caller.builder)
        meant = {key: compute(item, known) for key, item in function.means.items()}
        bound |= {key: item for key, item in meant.items() if not isinstance(item, Unknown)}
        written = self.written(function, bound)
        if written is not None:
            return self.equation(written, bound)
        fitter = self.caller.fitter(scope)
        fitted = self.caller.choose(
            name, overloads_of(name), lambda item: fitter.function(function, item, bound)
        )
        results = self.caller.make(fitted, numbers=True)
        return results[: function.outputs] if function.outputs else results

    def written(self, function: Function, bound: Mapping[str, Any]) -> Equation | None:
        """Give the equation that says a function with these operands, if torch has no op for it."""
        known = Known(bound, self.caller.builder)
        for form in function.torch:
            assert form.equation is not None
            conditions = [item for item in (form.when, form.writes_when) if item is not None]
            if not form.emit or not all(holds(item, known) for item in conditions):
                continue
            try:
                return shortened(folded(form.equation, known), bound)
            except Unsaid:
                continue
        return None

    def flipped(
        self,
        name: str,
        arguments: Sequence[Any],
        keywords: Mapping[str, Any],
        scope: Mapping[str, Any],
    ) -> tuple[Any, ...] | None:
        """Say a number before a tensor as torch does: `1 - x` by rsub, `1 / x` by reciprocal."""
        if keywords or len(arguments) != 2 or not isinstance(arguments[0], NUMBER):
            return None
        number, operand = arguments
        if not self.caller.is_tensor(operand):
            return None
        if name in FLIPPED:
            return self.function(FLIPPED[name], [operand, number], {}, scope)
        aten = torch.ops.aten
        if name == "sub":
            return self.caller.make(
                Fitted(aten.rsub.Scalar, (operand, number), {}, 0), numbers=True
            )
        if name == "div":
            inverse = self.caller.make(Fitted(aten.reciprocal.default, (operand,), {}, 0))
            if number == 1:
                return inverse
            return self.caller.make(Fitted(aten.mul.Tensor, (inverse[0], New(number)), {}, 0))
        return None


_OPERATORS = {**COMPARED, **BINARY}


def _numbers(scope: Mapping[str, Any]) -> dict[str, Expression]:
    """Give the variables that are numbers as literals, so that constants can be folded."""
    return {
        name: Number(value, repr(value))
        for name, value in scope.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }

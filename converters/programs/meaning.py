"""What an equation is in torch: each expression an operand, each call one overload's.

The walk gives every expression an operand: what the builder made, or a plain number, which takes
the dtype of the tensor beside it. The right overload of a function is the one that takes its
operands with the least conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload

from oprep.converters.graph import ABSENT
from oprep.converters.normal import BINARY, COMPARED, number_of, substitute
from oprep.converters.programs.builders import Builder
from oprep.converters.programs.fitting import NUMBER, WRAPPED, Fitted, Fitter, Misfit, New
from oprep.converters.programs.layout import key_of
from oprep.converters.programs.literals import beside, constant
from oprep.converters.programs.overloads import named, overloads_of, results_of
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.expression import UNKNOWN, evaluate, format_expression, parse_equation
from oprep.opsets.rule import REQUIRED, CustomOp, Source
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

WRITTEN_OUT = {"softsign": "input / (abs(input) + 1)"}
"""Functions that torch has no op for, as equations."""


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
    made = Walk(builder, ask or (lambda expression: UNKNOWN), where, ops or {})
    return made.equation(equation, scope)


@dataclass(slots=True)
class Walk:
    """Gives each expression its operand; a scope maps variables to operands."""

    builder: Builder
    ask: Callable[[Expression], Any]
    where: str
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
                raise self.error(message, "name all of them")
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
                    raise self.error(f"`{name}` has no value here", "bind it in the pattern")
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
        raise self.error(f"`{text}` is no value of a graph", "write it in a keyword")

    def call(self, call: Call, scope: Mapping[str, Any]) -> tuple[Any, ...]:
        """Make one call; give its results."""
        arguments, keywords = self.operands(call, scope)
        if call.domain is None:
            return self.function(call.function, arguments, keywords, scope)
        overloads = self.overloads(call)
        fitted = self.choose(
            key_of(overloads[0]) if len(overloads) == 1 else f"{call.domain}::{call.function}",
            overloads,
            lambda overload: self.fitter(scope).call(overload, arguments, keywords),
        )
        return self.make(fitted)

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
            raise self.error(message, "write a function in lower case, or `aten::op`")
        name = f"{call.domain}::{call.function}"
        declared = self.ops.get(name)
        if declared is not None and declared.name is None:
            message = f"`{name}` has no `name`, so PyTorch programs cannot call it"
            raise self.error(message, "give the op a `name`")
        space, _, short = (declared.name or name if declared else name).partition("::")
        found = named(space, short)
        if not found:
            message = f"`{name}` is no op that is registered here"
            help = "declare it as an `[[op]]` with a `body` or `python`, or correct the name"
            raise self.error(message, help)
        if any(overload._schema.is_mutable for overload in found):
            message = f"`{key_of(found[0])}` changes an argument in place"
            raise self.error(message, "write the op that returns a new tensor")
        return found

    def keyword(self, expression: Expression, scope: Mapping[str, Any]) -> Any:
        """Give a keyword's value: a variable as it is, else from what is known, else an operand."""
        if isinstance(expression, Name | Maybe) and expression.name in scope:
            return scope[expression.name]
        value = evaluate(expression, Known(scope, self.builder))
        value = self.ask(expression) if value is UNKNOWN else value
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
            raise self.error(f"`{name}` is no function", "name the op as `domain::op`")
        flipped = self.flipped(name, arguments, keywords, scope)
        if flipped is not None:
            return flipped
        function = vocabulary()[name]
        bound = self.bind(function, arguments, keywords)
        if name in WRITTEN_OUT:
            return self.equation(_written_out(name), bound)
        fitter = self.fitter(scope)
        fitted = self.choose(
            name, overloads_of(name), lambda item: fitter.function(function, item, bound)
        )
        return self.make(fitted, numbers=True)

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
        if not self.is_tensor(operand):
            return None
        if name in FLIPPED:
            return self.function(FLIPPED[name], [operand, number], {}, scope)
        aten = torch.ops.aten
        if name == "sub":
            return self.make(Fitted(aten.rsub.Scalar, (operand, number), {}, 0), numbers=True)
        if name == "div":
            inverse = self.make(Fitted(aten.reciprocal.default, (operand,), {}, 0))
            if number == 1:
                return inverse
            return self.make(Fitted(aten.mul.Tensor, (inverse[0], New(number)), {}, 0))
        return None

    def bind(
        self, function: Function, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Give each parameter of a function its operand or its default."""
        formal = function.parameters
        bound: dict[str, Any] = {}
        waiting = list(arguments)
        for parameter in formal:
            if not waiting:
                break
            if parameter.kind == "tensors" and not isinstance(waiting[0], tuple | list):
                bound[parameter.name], waiting = tuple(waiting), []
            else:
                bound[parameter.name] = waiting.pop(0)
        if waiting:
            message = f"`{function.name}` takes {len(formal)} arguments, {len(arguments)} are given"
            raise self.error(message, "remove the rest")
        bound |= keywords
        for parameter in formal:
            if bound.get(parameter.name, ABSENT) is ABSENT:
                if parameter.default is REQUIRED:
                    message = f"`{function.name}` lacks `{parameter.name}`"
                    raise self.error(message, f"write `{parameter.name}=…`")
                bound[parameter.name] = parameter.default
        return bound

    def choose(
        self, name: str, overloads: Sequence[OpOverload], fit: Callable[[OpOverload], Fitted]
    ) -> Fitted:
        """Choose the overload that takes its operands with the least conversion."""
        fitting: list[Fitted] = []
        reasons: list[str] = []
        for overload in overloads:
            try:
                fitting.append(fit(overload))
            except Misfit as misfit:
                reasons.append(f"`{key_of(overload)}`: {misfit}")
        if fitting:
            return min(fitting, key=lambda item: item.cost * (key_of(item.overload) not in WRAPPED))
        message = f"`{name}` has no overload in torch that takes what is given"
        notes = tuple(reasons[:3])
        help = "correct the call"
        raise OprepError(message, self.where, notes, help, ExitCode.EXPECTATION)

    def fitter(self, scope: Mapping[str, Any]) -> Fitter:
        """Give what knows the operands of this scope."""
        names = {id(value): name for name, value in scope.items() if self.is_tensor(value)}

        def plain(value: Any) -> Any:
            name = names.get(id(value))
            found = UNKNOWN if name is None else self.ask(Name(name))
            return value if found is UNKNOWN else found

        return Fitter(self.is_tensor, self.is_symbol, plain)

    def make(self, fitted: Fitted, *, numbers: bool = False) -> tuple[Any, ...]:
        """Make a call, and the constants that it needs before it."""
        tensors = [item for item in _flat(fitted.arguments) if self.is_tensor(item)]
        tensors += [item for item in _flat(fitted.keywords.values()) if self.is_tensor(item)]
        known = [self.builder.value(item) for item in tensors]
        # a condition says nothing about the dtype of what is chosen by it
        like = next((item for item in known if item.dtype != torch.bool), None)
        like = known[0] if like is None and known else like
        stays = bool(tensors) and key_of(fitted.overload) in WRAPPED

        def settled(item: Any) -> Any:
            if isinstance(item, tuple | list):
                return [settled(one) for one in item]
            if isinstance(item, New):
                if self.is_symbol(item.value) or (stays and isinstance(item.value, NUMBER)):
                    return self.beside(item.value, like)
                if like is None:
                    message = f"nothing says which dtype {item.value!r} has"
                    raise self.error(message, "write it beside a tensor, or cast it")
                return constant(self.builder, self.beside(item.value, like), like)
            return item

        arguments = [settled(item) for item in fitted.arguments]
        if numbers and like is not None:
            arguments = [
                self.beside(item, like) if type(item) is float else item for item in arguments
            ]
        keywords = {key: settled(item) for key, item in fitted.keywords.items()}
        result = self.builder.call(fitted.overload, arguments, keywords)
        if results_of(fitted.overload) == 1:
            return (result,)
        return tuple(result)

    def beside(self, value: Any, like: Any) -> Any:
        """Bring a number to the dtype of the tensor beside it; a fraction must not be cut."""
        found = beside(value, like)
        if found is ABSENT:
            dtype = str(like.dtype).removeprefix("torch.")
            message = f"the fraction {value!r} stands beside a tensor of {dtype}"
            raise self.error(message, "cast the tensor first")
        return found

    def is_tensor(self, operand: Any) -> bool:
        """Tell whether an operand stands for a tensor."""
        if operand is None or isinstance(operand, str | bool | int | float | list | tuple):
            return False
        return isinstance(self.builder.value(operand), torch.Tensor)

    def is_symbol(self, operand: Any) -> bool:
        """Tell whether an operand is a size that is only known at run time."""
        if operand is None or isinstance(operand, str | bool | int | float | list | tuple):
            return False
        return isinstance(self.builder.value(operand), torch.SymInt | torch.SymFloat)

    def error(self, message: str, help: str) -> OprepError:
        """Make an error at the place of the rule."""
        return OprepError(message, self.where, (), help, ExitCode.RULES)


_OPERATORS = {**COMPARED, **BINARY}


@cache
def _written_out(name: str) -> Equation:
    return parse_equation(WRITTEN_OUT[name], Source("", 1))


def _flat(items: Any) -> list[Any]:
    found: list[Any] = []
    for item in items:
        found += _flat(item) if isinstance(item, tuple | list) else [item]
    return found


def _numbers(scope: Mapping[str, Any]) -> dict[str, Expression]:
    """Give the variables that are numbers as literals, so that constants can be folded."""
    return {
        name: Number(value, repr(value))
        for name, value in scope.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }

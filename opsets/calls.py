"""Check the calls of an equation or a condition against what is known of the functions named."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from oprep.opsets.arithmetic import BUILT_IN
from oprep.opsets.evaluate import GRAPH_FUNCTIONS
from oprep.opsets.fields import near
from oprep.opsets.literals import check_literals
from oprep.opsets.parser import children, names, walk
from oprep.opsets.printer import op_name
from oprep.opsets.rule import REQUIRED, BareOp, CustomOp, Parameter
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
from oprep.opsets.tokens import Text

if TYPE_CHECKING:
    from oprep.opsets.vocabulary import Function

_LOGIC = ("and", "or", "in", "not in")


@dataclass(frozen=True, slots=True)
class Callee:
    """What is known of a called op; `outputs` is 0 where it has as many as are named."""

    parameters: tuple[Parameter, ...]
    outputs: int


@dataclass(frozen=True, slots=True)
class Known:
    """The vocabulary, and the ops that the same file declares, by the name they are called by."""

    functions: Mapping[str, Function]
    ops: Mapping[str, CustomOp]

    def callee(self, call: Call) -> Callee | None:
        """Give what is known of a call; None for an op that is declared elsewhere."""
        if call.domain is None:
            function = self.functions.get(call.function)
            return Callee(function.parameters, function.outputs) if function else None
        op = self.ops.get(op_name(call.domain, call.function))
        if op is None or not op.has_signature:
            return None
        return Callee(op.parameters, op.outputs)


def check_equation(
    text: Text, equation: Equation, known: Known, what: str, used: Collection[str] = ()
) -> None:
    """Check every call and statement of an equation.

    `what` is `replace`, `with` or `body`; in `with` a keyword is an expression of conditions.
    `used` are names that something beside the equation reads.
    Raise OprepError (exit RULES) with a caret at the first mistake.
    """
    for root in _roots(equation):
        check_literals(text, root)
    read = {name for root in _roots(equation) for name in names(root)}.union(used)
    for statement in equation.statements:
        if read.isdisjoint(statement.targets):
            message = f"nothing uses `{', '.join(statement.targets)}`"
            raise text.error(message, statement.at, "remove the statement, or return it")
        if isinstance(statement.value, Call):
            callee = known.callee(statement.value)
            if callee and 0 < callee.outputs < len(statement.targets):
                message = f"`{_title(statement.value)}` has {counted(callee.outputs, 'result')}"
                help = f"name at most {callee.outputs}"
                raise text.error(f"{message}, not {len(statement.targets)}", statement.at, help)
    for result in equation.results:
        if isinstance(result, Number | Literal | ListOf) and what != "replace":
            message = "a literal alone has no shape, so it cannot be a result"
            raise text.error(message, result.at, "compute it from a variable")
    for root in _roots(equation):
        for part, in_keyword in _parts(root):
            if in_keyword and what == "with":
                _check_asked(text, part, "name its value in a statement before")
            else:
                _check_part(text, part, known, what)


def check_condition(text: Text, condition: Expression) -> None:
    """Check that a condition asks only what can be asked, of names."""
    check_literals(text, condition)
    for part in walk(condition):
        _check_asked(text, part)


def _roots(equation: Equation) -> Iterator[Expression]:
    for statement in equation.statements:
        yield statement.value
    yield from equation.results


def _parts(root: Expression) -> Iterator[tuple[Expression, bool]]:
    """Give every part in order of text, and whether it stands in a keyword's value."""
    waiting = [(root, False)]
    while waiting:
        part, inside = waiting.pop()
        yield part, inside
        keywords = part.keywords if isinstance(part, Call) else ()
        values = [(value, True) for _, value in keywords]
        others = children(part)[: len(children(part)) - len(values)]
        waiting += reversed([(other, inside) for other in others] + values)


def _check_part(text: Text, part: Expression, known: Known, what: str) -> None:
    match part:
        case Binary(operator=operator) if operator in _LOGIC:
            raise _no_logic(text, operator, part.at, what)
        case Unary(operator="not"):
            raise _no_logic(text, "not", part.at, what)
        case Choose():
            raise _no_logic(text, "if", part.at, what)
        case Name(name="_") if what != "replace":
            message = f"`_` stands for anything, which `{what}` cannot make"
            raise text.error(message, part.at, "name a value")
        case Call():
            _check_call(text, part, known, what)


def _no_logic(text: Text, word: str, at: int, what: str) -> Exception:
    place = "conditions stand in `when`" if what == "replace" else "write `where(c, a, b)`"
    return text.error(f"`{word}` cannot stand in `{what}`", at, place)


def _check_call(text: Text, call: Call, known: Known, what: str) -> None:
    callee = known.callee(call)
    title = _title(call)
    if callee is None:
        if call.domain is None:
            message = f"`{title}` is no function of the vocabulary"
            meant = near(call.function, [*known.functions])
            help = f"write {meant}, or `domain::Op(…)` for one op"
            raise text.error(message, call.at, help)
        if what != "replace":
            _check_declared(text, call, known)
        return
    given = _positional(text, call, callee.parameters)
    formal = {parameter.name for parameter in callee.parameters}
    for key, value in call.keywords:
        at = max(text.text.rfind(key, call.at, value.at), call.at)
        if key not in formal:
            close = get_close_matches(key, formal, n=1)
            takes = ", ".join(f"`{name}`" for name in sorted(formal)) or "none"
            help = f"write `{close[0]}`" if close else f"remove it: `{title}` takes {takes}"
            raise text.error(f"`{title}` has no parameter `{key}`", at, help)
        if key in given:
            message = f"`{key}` of `{title}` is given twice"
            raise text.error(message, at, "remove one of them")
        given.add(key)
    if any(isinstance(argument, Rest) for argument in call.arguments):
        return
    for parameter in callee.parameters:
        if parameter.default is REQUIRED and parameter.name not in given:
            message = f"`{title}` lacks `{parameter.name}`, which has no default"
            raise text.error(message, call.at, f"write `{parameter.name}=…`")


def _positional(text: Text, call: Call, parameters: tuple[Parameter, ...]) -> set[str]:
    """Give the parameters that positional arguments fill; many fill one that is `Tensor[]`."""
    given: set[str] = set()
    index = 0
    for argument in call.arguments:
        if index >= len(parameters):
            message = f"`{_title(call)}` takes {counted(len(parameters), 'argument')}"
            raise text.error(message, argument.at, "remove what is too much")
        parameter = parameters[index]
        if isinstance(argument, Rest) and parameter.kind != "tensors":
            message = f"`*{argument.name}` meets `{parameter.name}`, which is one value"
            raise text.error(message, argument.at, f"write `{argument.name}`")
        given.add(parameter.name)
        index += parameter.kind != "tensors"
    return given


def _check_declared(text: Text, call: Call, known: Known) -> None:
    """Refuse the ONNX name of an op that the file calls otherwise."""
    written = op_name(call.domain, call.function)
    for name, op in known.ops.items():
        if name != written and str(op.onnx) == f"{call.domain}::{call.function}":
            message = f"`{written}` is the ONNX name of `{name}`"
            raise text.error(message, call.at, f"write `{name}`")


def _check_asked(text: Text, part: Expression, help: str = "") -> None:
    """Check one part of a condition or of a keyword in `with`."""
    if isinstance(part, Binary) and part.operator == "@":
        raise text.error("`@` cannot stand in a condition", part.at, "name its value before")
    if not isinstance(part, Call):
        return
    title = _title(part)
    asked = {**GRAPH_FUNCTIONS, **dict.fromkeys(BUILT_IN, 0)}
    if part.domain is not None or part.function not in asked:
        message = f"a condition cannot ask `{title}`"
        raise text.error(message, part.at, help or f"write {near(part.function, [*asked])}")
    if part.keywords:
        message = f"`{title}` takes no keywords in a condition"
        raise text.error(message, part.keywords[0][1].at, "write the value alone")
    wanted = GRAPH_FUNCTIONS.get(part.function)
    if wanted is None:
        return
    if len(part.arguments) != wanted:
        message = f"`{title}` takes {counted(wanted, 'argument')}, not {len(part.arguments)}"
        raise text.error(message, part.at, f"write `{title}({'x, 0' if wanted == 2 else 'x'})`")
    if not isinstance(part.arguments[0], Name):
        message = f"`{title}` asks about a name"
        raise text.error(message, part.arguments[0].at, "give the value a name in `replace`")


def count_results(replacement: Equation | BareOp, known: Known) -> int | None:
    """Count what `with` gives; None where that is only known to whoever declared the op.

    One call as the whole of `with` gives all of the op's results.
    """
    if isinstance(replacement, BareOp):
        op = known.ops.get(op_name(replacement.domain, replacement.name))
        return op.outputs if op and op.has_signature else None
    only = replacement.results[0]
    if len(replacement.results) == 1 and isinstance(only, Call):
        callee = known.callee(only)
        return (callee.outputs or None) if callee else None
    return len(replacement.results)


def matches_anything(equation: Equation) -> Expression | None:
    """Give the first result that is no operation, but a variable or a literal."""
    values = {
        name: statement.value for statement in equation.statements for name in statement.targets
    }
    for result in equation.results:
        value = result
        while isinstance(value, Name) and value.name in values:
            value = values.pop(value.name)
        if isinstance(value, Name | Maybe | Rest | Number | Literal | ListOf):
            return result
    return None


def _title(call: Call) -> str:
    return op_name(call.domain, call.function)


def counted(number: int, word: str) -> str:
    """Write `1 result`, `2 results`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"

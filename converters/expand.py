"""Patterns written out: statements in place of their names, functions in place of their forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from oprep.converters.forms import Guarded, NodeForm
from oprep.converters.normal import COMPARED, substitute
from oprep.opsets.rule import Rule
from oprep.opsets.syntax import (
    Binary,
    Call,
    Equation,
    Expression,
    ListOf,
    Name,
    Unary,
)

FUNCTIONS = {**COMPARED, "//": "floor_divide", "%": "remainder"}
RANDOM = frozenset({
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli",
    "Multinomial", "Dropout", "dropout", "bernoulli", "rand_like", "randn_like",
})  # fmt: skip


class Dialect(Protocol):
    """What a front-end says of the ops behind the names in a pattern."""

    def forms(self, call: Call, rule: Rule) -> list[NodeForm | Expression | Guarded]:
        """Give the ways in which this graph's framework and opset can say a call."""

    def why(self, call: Call) -> str:
        """Say why a call has no form here."""

    arithmetic: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Output:
    """Output `index` of the call that statement `statement` makes; one node for all its outputs."""

    call: Call
    statement: int
    index: int


@dataclass(frozen=True, slots=True)
class Bound:
    """A named value: what matches `inner` is bound to `name`."""

    name: str
    inner: Any


def inlined(equation: Equation, wanted: set[str]) -> Iterator[Any]:
    """Put statements in place of their names; a name that is asked for becomes `Bound`."""
    returned = {item.name for item in equation.results if isinstance(item, Name)}
    wanted = wanted | {
        statement.targets[0] for statement in equation.statements if _random(statement.value)
    }
    values: dict[str, Any] = {}
    for number, statement in enumerate(equation.statements):
        value = substitute(statement.value, values)
        if len(statement.targets) == 1:
            name = statement.targets[0]
            keep = name in returned or name in wanted
            values[name] = Bound(name, value) if keep and not isinstance(value, Name) else value
            continue
        if not isinstance(value, Call):
            continue
        for index, name in enumerate(statement.targets):
            values[name] = Bound(name, Output(value, number, index))
    for result in equation.results:
        yield spelled(substitute(result, values))


def spelled(item: Any) -> Any:
    """Write comparisons, `//`, `%` and `@` as the functions they are: those have written forms."""
    match item:
        case Binary(operator, left, right, at) if operator in FUNCTIONS:
            return Call(FUNCTIONS[operator], (spelled(left), spelled(right)), (), None, at)
        case Binary(operator, left, right, at):
            return Binary(operator, spelled(left), spelled(right), at)
        case Unary(operator, operand, at):
            return Unary(operator, spelled(operand), at)
        case ListOf(items, at):
            return ListOf(tuple(spelled(part) for part in items), at)
        case Call():
            return _spelled_call(item)
        case Bound(name, inner):
            return Bound(name, spelled(inner))
        case Output(call, statement, index):
            return Output(_spelled_call(call), statement, index)
    return item


def _spelled_call(call: Call) -> Call:
    return Call(call.function, tuple(spelled(part) for part in call.arguments),
                tuple((key, spelled(value)) for key, value in call.keywords),
                call.domain, call.at)  # fmt: skip


def _random(value: Expression) -> bool:
    """Tell whether a statement draws random numbers: its name is one value, never two draws."""
    return any(call.function in RANDOM for call in _calls(value))


def expand(roots: list[Any], dialect: Dialect, rule: Rule) -> Iterator[list[Any]]:
    """Yield the roots with each call that has equation forms replaced by each of them."""
    for root in roots:
        found = _first_equation(root, dialect, rule)
        if found is None:
            continue
        call, forms = found
        for form in forms:
            changed = [_replace(item, call, form) for item in roots]
            yield from expand(changed, dialect, rule)
        return
    yield roots


class Said:
    """A call whose node forms are settled, so that expanding it again ends."""

    __slots__ = ("call", "forms")

    def __init__(self, call: Call, forms: tuple[NodeForm, ...]) -> None:
        """Settle on node forms for a call."""
        self.call, self.forms = call, forms

    def __eq__(self, other: object) -> bool:
        """Compare call and forms."""
        return isinstance(other, Said) and (self.call, self.forms) == (other.call, other.forms)

    def __hash__(self) -> int:
        """Hash the call."""
        return hash(self.call)


def _first_equation(item: Any, dialect: Dialect, rule: Rule) -> tuple[Call, list[Any]] | None:
    for call in _calls(item):
        forms = dialect.forms(call, rule)
        equations = [form for form in forms if not isinstance(form, NodeForm)]
        if equations:
            nodes = tuple(form for form in forms if isinstance(form, NodeForm))
            return call, [*equations, *([Said(call, nodes)] if nodes else [])]
    return None


def _calls(item: Any) -> Iterator[Call]:
    match item:
        case Call() as call:
            yield call
            for part in (*call.arguments, *(value for _, value in call.keywords)):
                yield from _calls(part)
        case Binary(_, left, right):
            yield from _calls(left)
            yield from _calls(right)
        case Unary(_, operand):
            yield from _calls(operand)
        case ListOf(items):
            for part in items:
                yield from _calls(part)
        case Bound(_, inner) | Guarded(inner):
            yield from _calls(inner)
        case Output(call):
            for part in (*call.arguments, *(value for _, value in call.keywords)):
                yield from _calls(part)
        case Said():
            for part in (*item.call.arguments, *(value for _, value in item.call.keywords)):
                yield from _calls(part)


def _replace(item: Any, call: Call, by: Any) -> Any:
    if item == call and isinstance(item, Call):
        return by
    match item:
        case Call(function, arguments, keywords, domain, at):
            return Call(function, tuple(_replace(part, call, by) for part in arguments),
                        tuple((key, _replace(value, call, by)) for key, value in keywords),
                        domain, at)  # fmt: skip
        case Binary(operator, left, right, at):
            return Binary(operator, _replace(left, call, by), _replace(right, call, by), at)
        case Unary(operator, operand, at):
            return Unary(operator, _replace(operand, call, by), at)
        case ListOf(items, at):
            return ListOf(tuple(_replace(part, call, by) for part in items), at)
        case Bound(name, inner):
            return Bound(name, _replace(inner, call, by))
        case Guarded(inner, presets, names, dtypes):
            return Guarded(_replace(inner, call, by), presets, names, dtypes)
        case Said():
            return Said(_arguments_replaced(item.call, call, by), item.forms)
        case Output(inner, statement, index):
            return Output(_arguments_replaced(inner, call, by), statement, index)
    return item


def _arguments_replaced(inner: Call, call: Call, by: Any) -> Call:
    return Call(inner.function, tuple(_replace(part, call, by) for part in inner.arguments),
                tuple((key, _replace(value, call, by)) for key, value in inner.keywords),
                inner.domain, inner.at)  # fmt: skip

"""What a rule puts in place of a match, in torch: settled while planning, made later.

The same equation is made as fx nodes for the artifact and eagerly for the proof at a site.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from oprep.converters.conditions import Bindings
from oprep.converters.forms import ATTRIBUTES
from oprep.converters.graph import ABSENT, Absent, Attribute, Many, Plain, Several
from oprep.converters.match import Match
from oprep.converters.normal import number_of
from oprep.converters.programs.bare import Refused, written_call
from oprep.converters.programs.builders import Builder, EagerBuilder
from oprep.converters.programs.calling import Caller
from oprep.converters.programs.fitting import Misfit, shown
from oprep.converters.programs.layout import key_of
from oprep.converters.programs.meaning import Known, Walk
from oprep.converters.programs.overloads import slots_of
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.expression import (
    UNKNOWN,
    evaluate,
    explain,
    format_expression,
    variables,
    walk,
)
from oprep.opsets.rule import BareOp, CustomOp, Rule
from oprep.opsets.syntax import Call, Equation, Expression, ListOf, Literal, Maybe, Name, Rest

Lookup = Callable[[Any], Any]
"""Gives the operand behind a value of the graph."""


class Replacement:
    """The right side of one rule."""

    def __init__(self, rule: Rule, ops: Mapping[str, CustomOp]) -> None:
        """Read what a rule puts in; `ops` are the custom ops of the rule files by torch name."""
        self.rule, self.ops = rule, ops
        self.where = str(rule.place("with"))
        self.label = _label(rule)
        self.used = tuple(dict.fromkeys(self._custom_ops()))

    def _custom_ops(self) -> list[CustomOp]:
        target = self.rule.replacement
        names = (
            [f"{target.domain}::{target.name}"]
            if isinstance(target, BareOp)
            else [f"{call.domain}::{call.function}" for call in calls_of(target)]
        )
        return [self.ops[name] for name in names if name in self.ops]

    def prepare(self, match: Match) -> str:
        """Settle the equation of one match; give the reason why it cannot stand there."""
        target = self.rule.replacement
        try:
            if isinstance(target, BareOp):
                equation = Equation((), (written_call(self.rule, target, match, self.label),))
            else:
                equation = target
                self._all_passed(match)
                self._all_bound(equation, match)
            for call in calls_of(equation):
                self._can_be_made(call, equation, match)
        except Refused as refused:
            return str(refused)
        match.prepared = equation
        return ""

    def emit(self, match: Match, builder: Builder, lookup: Lookup) -> tuple[Any, ...]:
        """Make the calls of a prepared match; give its results, each made anew.

        A result that is only passed on is cloned, so that it has a name and memory of its own.
        """
        scope = self._scope(match, lookup)
        walk_ = Walk(Caller(builder, self._ask(match), self.where), self.ops)
        results = walk_.equation(match.prepared, scope)
        if len(results) != len(match.roots):
            raise OprepError(
                f"rule `{self.rule.name}` gives {len(results)} results for "
                f"{len(match.roots)} outputs of its pattern",
                self.where,
                help="give as many results in `with` as `replace` returns",
                exit_code=ExitCode.RULES,
            )
        given = {id(item) for value in scope.values() for item in _operands(value)}
        made: list[Any] = []
        for result in results:
            if not walk_.caller.is_tensor(result):
                message = f"rule `{self.rule.name}` gives {shown(result)}, which is no tensor"
                raise OprepError(message, self.where, (), "compute it from a variable",
                                 ExitCode.RULES)  # fmt: skip
            if id(result) in given:
                result = builder.call(torch.ops.aten.clone.default, (result,), {})
            given.add(id(result))
            made.append(result)
        return tuple(made)

    def evaluate(self, match: Match, values: Mapping[Any, Any]) -> tuple[Any, ...]:
        """Compute the results of a prepared match from the tensors behind the graph's values."""
        return self.emit(match, EagerBuilder(), lambda value: values[value])

    def _scope(self, match: Match, lookup: Lookup) -> dict[str, Any]:
        return {name: operand(value, lookup) for name, value in match.bound.items()}

    def _ask(self, match: Match) -> Callable[[Expression], Any]:
        environment = Bindings(match.view, match.bound)
        return lambda expression: evaluate(expression, environment)

    def _all_passed(self, match: Match) -> None:
        captured = match.bound.get(ATTRIBUTES)
        if captured is not None and captured.value:
            names = ", ".join(f"`{name}`" for name in captured.value)
            text = f"the op has {names}, which `with` does not pass on; write the bare op there"
            raise Refused(text)

    def _all_bound(self, equation: Equation, match: Match) -> None:
        """Refuse a name that the call of a module does not have; equations are checked before."""
        for name in variables(equation):
            if name not in match.bound:
                known = ", ".join(f"`{item}`" for item in match.bound)
                raise Refused(f"`{name}` is nothing that the module reads; it reads {known}")

    def _can_be_made(self, call: Call, equation: Equation, match: Match) -> None:
        """Refuse a call of an op that is not there, that takes something else, or is unknown."""
        if call.domain == "":
            text = f"`{call.function}` is an op of ONNX, the model is a PyTorch program"
            raise Refused(f"{text}; write a function in lower case, or `aten::op`")
        meta = match.view.meta  # type: ignore[attr-defined]
        scope = {
            name: value for name, value in self._scope(match, lambda value: _Handle(value)).items()
        }
        walk_ = Walk(Caller(_Probe(meta), self._ask(match), self.where), self.ops)
        for key, expression in call.keywords:
            self._keyword_known(call, key, expression, scope, walk_)
        whole = not equation.statements and equation.results == (call,)
        if call.domain is None:
            return
        try:
            overloads = walk_.overloads(call)
        except OprepError as error:
            raise Refused(f"{error.message}; {error.help}") from error
        if not whole or not all(map(_needs_no_call, call.arguments)):
            return
        arguments, keywords = walk_.operands(call, scope)
        fitter = walk_.caller.fitter(scope)
        reasons: list[str] = []
        for overload in overloads:
            try:
                fitter.call(overload, arguments, keywords)
                return
            except Misfit as misfit:
                reasons.append(str(misfit))
        takes = ", ".join(str(slot) for slot in slots_of(overloads[0]))
        passes = ", ".join(
            [_passed(item) for item in arguments]
            + [f"{key}={_passed(item)}" for key, item in keywords.items()]
        )
        what = "the custom op" if key_of(overloads[0]) in self.ops else f"`{key_of(overloads[0])}`"
        raise Refused(f"{what} takes ({takes}), the site passes ({passes}): {reasons[0]}")

    def _keyword_known(
        self, call: Call, key: str, expression: Expression, scope: Mapping[str, Any], walk_: Walk
    ) -> None:
        """Refuse a keyword whose expression reads what is not known before the model runs."""
        if isinstance(expression, Name | Maybe | Rest):
            return
        names = {item.name for item in walk(expression) if isinstance(item, Name | Maybe)}
        if not names or not names <= scope.keys():
            return
        if evaluate(expression, Known(scope, walk_.caller.builder)) is not UNKNOWN:
            return
        if walk_.caller.ask(expression) is UNKNOWN:
            why = explain(expression, Known(scope, walk_.caller.builder))
            text = why or f"`{format_expression(expression)}`"
            raise Refused(f"`{key}` of `{call.function}` is unknown here: {text}")


class _Handle:
    """Stands for a value of the graph while a match is only judged."""

    __slots__ = ("graph_value",)

    def __init__(self, graph_value: Any) -> None:
        self.graph_value = graph_value


class _Probe:
    """A builder that makes nothing: it only knows what the values of a graph are."""

    def __init__(self, meta: Callable[[Any], Any]) -> None:
        self.meta = meta

    def call(self, *unused: Any) -> Any:
        raise AssertionError("a match that is judged makes no calls")

    def value(self, operand: Any) -> Any:
        return self.meta(operand.graph_value) if isinstance(operand, _Handle) else operand


def operand(value: Any, lookup: Lookup) -> Any:
    """Give what stands for a bound value: numbers and plain attributes as they are."""
    if isinstance(value, Absent) or value == "":
        return ABSENT
    if isinstance(value, Attribute):
        return _plain(value.value, lookup)
    if isinstance(value, Many):
        return tuple(operand(item, lookup) for item in value.values)
    if isinstance(value, Several):
        return [operand(item, lookup) for item in value.items]
    return value.number if isinstance(value, Plain) else lookup(value)


def _plain(value: Any, lookup: Lookup) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item, lookup) for item in value]
    return lookup(value) if hasattr(value, "node") else value


def _needs_no_call(expression: Expression) -> bool:
    """Tell whether an argument is a name or a literal, so that nothing is computed for it."""
    if isinstance(expression, ListOf):
        return all(map(_needs_no_call, expression.items))
    return isinstance(expression, Name | Maybe | Rest | Literal) or (
        number_of(expression) is not None
    )


def _operands(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [item for one in value for item in _operands(one)]
    return [value]


def _passed(value: Any) -> str:
    if isinstance(value, _Handle):
        return "Tensor"
    if isinstance(value, tuple | list) and any(isinstance(item, _Handle) for item in value):
        return "Tensor[]"
    return shown(value)


def calls_of(equation: Equation) -> list[Call]:
    """Give every call in an equation, those in keywords left out."""
    parts = [*(statement.value for statement in equation.statements), *equation.results]
    found: list[Call] = []
    for part in parts:
        inside = {
            id(item)
            for call in walk(part) if isinstance(call, Call)
            for _, value in call.keywords
            for item in walk(value)
        }  # fmt: skip
        found += [item for item in walk(part) if isinstance(item, Call) and id(item) not in inside]
    return found


def _label(rule: Rule) -> str:
    """Name what a rule puts in, as reports print it."""
    target = rule.replacement
    if isinstance(target, BareOp):
        known = target.domain in ("", "vocabulary")
        return target.name if known else f"{target.domain}::{target.name}"
    names = [
        call.function if not call.domain else f"{call.domain}::{call.function}"
        for call in calls_of(target)
    ]
    unique = list(dict.fromkeys(names))
    return ", ".join(unique[:3]) if unique else format_expression(target.results[0])

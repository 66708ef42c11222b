"""Tell where a rule's replacement is, by its body, the very computation that it replaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oprep.converters.normal import Cancels, normalise, substitute
from oprep.opsets.expression import variables
from oprep.opsets.rule import BareOp, CustomOp, Opset, Rule
from oprep.opsets.syntax import Call, Equation, Expression, Maybe, Name, Rest


def same_computation(rule: Rule, ops: Mapping[str, CustomOp]) -> bool:
    """Compare the normal forms of the body, arguments put in, and of the first pattern.

    Then a site that shows no difference proves the rewiring, and no more than that.
    """
    pattern = rule.patterns[0]
    if not isinstance(pattern, Equation):
        return False
    call = _call(rule, pattern)
    op = ops.get(f"{call.domain}::{call.function}") if call is not None else None
    if call is None or op is None or op.body is None:
        return False
    given: dict[str, Expression] = dict(
        zip((item.name for item in op.parameters), call.arguments, strict=False)
    )
    given |= dict(call.keywords)
    try:
        return _whole(pattern, {}) == _whole(op.body, given)
    except Cancels:
        return False


def _call(rule: Rule, pattern: Equation) -> Call | None:
    target = rule.replacement
    if isinstance(target, BareOp):
        return Call(
            target.name, tuple(Name(name) for name in variables(pattern)), (), target.domain
        )
    whole = target.results[0] if len(target.results) == 1 and not target.statements else None
    if not isinstance(whole, Call) or not whole.domain:
        return None
    return whole if all(isinstance(a, Name | Maybe | Rest) for a in whole.arguments) else None


def _whole(equation: Equation, given: Mapping[str, Expression]) -> list[Any] | None:
    """Give the results with every statement put in place of its name, in normal form."""
    values = dict(given)
    for statement in equation.statements:
        if len(statement.targets) != 1:
            return None
        values[statement.targets[0]] = substitute(statement.value, values)
    return [normalise(substitute(result, values)) for result in equation.results]


def notes_on_meaning(opsets: Sequence[Opset], matched: set[str]) -> list[str]:
    """Say for which rules that matched the body and the pattern are one computation."""
    ops: dict[str, CustomOp] = {}
    for opset in opsets:
        for op in opset.ops:
            ops[str(op.onnx)] = op
            if op.name:
                ops[op.name] = op
    same = [
        rule.name
        for opset in opsets
        for rule in opset.rules
        if rule.name in matched and same_computation(rule, ops)
    ]
    if not same:
        return []
    names = ", ".join(f"`{name}`" for name in same)
    return [
        f"body and pattern are the same computation in {names}, so its sites can only show rounding"
    ]

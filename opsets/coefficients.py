"""Find variables that a match could not tell apart: two constants in one product or one sum.

A product is compared as a coefficient and factors, a sum as an offset and terms. A variable that
no factor is left for is the coefficient; a second one would have nothing left to be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from oprep.opsets.calls import Known
from oprep.opsets.parser import children, walk
from oprep.opsets.syntax import Binary, Call, Choose, Equation, Expression, Maybe, Name, Rest, Unary

_TENSORS = ("tensor", "optional", "tensors")
_PRODUCT, _SUM = ("*", "/"), ("+", "-")


def constants_of_condition(condition: Expression) -> set[str]:
    """Give the names that must be constants for a condition to hold, as far as it says so."""
    match condition:
        case Binary(operator="and", left=left, right=right):
            return constants_of_condition(left) | constants_of_condition(right)
        case Call(function="is_const", arguments=(Name(name=name),)):
            return {name}
    parts = list(walk(condition))
    if any(isinstance(p, Choose) or (isinstance(p, Binary) and p.operator == "or") for p in parts):
        return set()
    return set(_valued(parts))


def constants_of_keywords(replacement: Equation, known: Known) -> set[str]:
    """Give the names that `with` passes by keyword, where the parameter is not a tensor."""
    roots = [*(statement.value for statement in replacement.statements), *replacement.results]
    found: set[str] = set()
    for call in (part for root in roots for part in walk(root) if isinstance(part, Call)):
        callee = known.callee(call)
        kinds = {formal.name: formal.kind for formal in callee.parameters} if callee else {}
        for key, value in call.keywords:
            if kinds.get(key, "") not in _TENSORS:
                found |= {value.name} if isinstance(value, Name) else set(_valued([*walk(value)]))
    return found


def _valued(parts: list[Expression]) -> Iterator[str]:
    for part in parts:
        match part:
            case Call(function="value", arguments=(Name(name=name),)):
                yield name


def clash(equation: Equation, constants: set[str]) -> tuple[Name, Name, str] | None:
    """Give two names of which a match could not say which is the constant, and of what.

    In a product, names that occur nowhere else may all be left without a factor, but for one where
    the product has no other factor: that two can be left is a clash. In a sum only names that must
    be constants clash, for a sum of many tensors is common.
    """
    roots = [*(statement.value for statement in equation.statements), *equation.results]
    everything = [part for root in roots for part in walk(root)]
    uses = Counter(part.name for part in everything if isinstance(part, Name))
    for root in roots:
        for operators, leaves in _groups(root):
            values = [leaf for leaf in leaves if not _constant(leaf)]
            lone = [leaf for leaf in values if isinstance(leaf, Name) and uses[leaf.name] == 1]
            fixed = [leaf for leaf in lone if leaf.name in constants]
            spare = 1 if len(lone) == len(values) else 0
            if len(fixed) > 1:
                return fixed[0], fixed[1], "product" if operators == _PRODUCT else "sum"
            if operators == _PRODUCT and len(lone) - spare > 1:
                return lone[-2], lone[-1], "product"
    return None


def _constant(part: Expression) -> bool:
    """Tell whether a factor or term has no variable in it, `_` included."""
    return not any(isinstance(inner, Name | Maybe | Rest) for inner in walk(part))


def _groups(root: Expression) -> Iterator[tuple[tuple[str, ...], list[Expression]]]:
    """Give each whole product and sum with its factors or terms."""
    waiting = [root]
    while waiting:
        part = waiting.pop()
        operators = next((ops for ops in (_PRODUCT, _SUM) if _is(part, ops)), ())
        if not operators:
            waiting += children(part)
            continue
        leaves: list[Expression] = []
        inside = [part]
        while inside:
            one = inside.pop()
            if _is(one, operators) or (isinstance(one, Unary) and one.operator == "-"):
                inside += reversed(children(one))
            else:
                leaves.append(one)
        waiting += leaves
        yield operators, leaves


def _is(part: Expression, operators: tuple[str, ...]) -> bool:
    return isinstance(part, Binary) and part.operator in operators

"""Random syntax trees of the equation language, as the parser could have made them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

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
    Statement,
    Unary,
)

NAMES = ("x", "y", "eps", "_x", "k2", "notes", "order")
SUMS = ("+", "-", "*", "/", "//", "%", "@", "**")
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


def number(value: float) -> Number:
    return Number(value, repr(value))


numbers = st.one_of(
    st.integers(-(2**63), 2**63).map(number),
    st.floats(allow_nan=False, allow_infinity=False).map(number),
)
strings = st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(
    lambda text: "\r" not in text
)
literals = st.one_of(st.sampled_from([True, False, None]), strings).map(Literal)
names = st.sampled_from(NAMES).map(Name)
ops = st.one_of(
    st.sampled_from([(None, "erf"), (None, "layer_norm"), ("", "Gelu"), ("", "lower")]),
    st.sampled_from([("aten", "max.dim"), ("com.acme", "Gelu"), ("pkg.torch.2.3.0", "F")]),
    st.tuples(st.just("odd 'domain\\"), strings.filter(bool)),
)


def _calls(values: st.SearchStrategy[Expression], keyword: st.SearchStrategy[Expression]) -> Any:
    maybe = st.sampled_from(NAMES).map(Maybe)
    rest = st.sampled_from(NAMES).map(Rest)
    keys = st.sampled_from(["dim", "k", "if", "e"])
    return st.builds(
        lambda op, arguments, keywords: Call(op[1], tuple(arguments), tuple(keywords), op[0]),
        ops,
        st.lists(st.one_of(values, maybe, rest), max_size=3),
        st.lists(st.tuples(keys, st.one_of(keyword, maybe)), max_size=2, unique_by=lambda k: k[0]),
    )


def _negative(operand: Expression) -> Expression:
    """Make `-operand` as the parser would: the minus of a number is part of it."""
    return number(-operand.value) if isinstance(operand, Number) else Unary("-", operand)


def _values(parts: st.SearchStrategy[Expression], conditional: bool) -> Any:
    binary = st.builds(Binary, st.sampled_from(SUMS + COMPARISONS), parts, parts)
    kinds = [
        binary,
        parts.map(_negative),
        st.lists(parts, max_size=3).map(lambda items: ListOf(tuple(items))),
        _calls(parts, parts),
    ]
    if conditional:
        logic = st.sampled_from(["and", "or", "in", "not in"])
        kinds += [
            st.builds(Binary, logic, parts, parts),
            parts.map(lambda operand: Unary("not", operand)),
            st.builds(Choose, parts, parts, parts),
        ]
    return st.one_of(kinds)


leaves = st.one_of(numbers, literals, names)
conditions: st.SearchStrategy[Expression] = st.recursive(
    leaves, lambda parts: _values(parts, True), max_leaves=12
)
plain: st.SearchStrategy[Expression] = st.recursive(
    leaves, lambda parts: _values(parts, False), max_leaves=12
)


@st.composite
def equations(draw: st.DrawFn) -> Equation:
    """Draw statements whose targets are fresh names, then one to three results."""
    count = draw(st.integers(0, 3))
    statements = []
    for index in range(count):
        several = draw(st.booleans())
        value = draw(_calls(plain, conditions) if several else plain)
        targets = (f"t{index}", "_", f"u{index}") if several else (f"t{index}",)
        statements.append(Statement(targets, value))
    results = draw(st.lists(plain, min_size=1, max_size=3))
    return Equation(tuple(statements), tuple(results))

"""Matchers of single values: a node by its op, a variable, a number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from oprep.converters.cuts import close
from oprep.converters.forms import equal_plain, plain_of
from oprep.converters.graph import PRODUCT, Attribute
from oprep.converters.normal import (
    Wanted,
    digits_width,
    literal,
)
from oprep.converters.state import Matcher, ScaledMatcher, State, Then, show, shown_ops
from oprep.opsets.syntax import (
    ListOf,
    Literal,
    Number,
)


def node_of(by_op: Mapping[str, list[Any]], output: int, key: int) -> Matcher:
    """Match a value that one of these ops makes, as its output number `output`.

    Calls of one `key` (from 0 on) are one node: a statement with several targets.
    """
    ops = ", ".join(shown_ops(by_op))

    def match(state: State, value: Any, then: Then) -> bool:
        node = state.producer.get(value)
        runs = by_op.get(state.ops[node]) if node is not None else None
        if node is None or runs is None:
            return state.why is not None and state.why.note(
                state, _other(state, value, node, ops), 0.1
            )
        outputs = state.outputs[node]
        if output >= len(outputs) or outputs[output] != value:
            return state.why is not None and state.why.note(
                state, f"`{state.view.value_name(value)}` is another output of its node", 0.2
            )
        known = state.calls.get(key, -1) if key >= 0 else -1
        if known >= 0:
            return known == node and then()
        state.step()
        state.nodes.append(node)
        if key >= 0:
            state.calls[key] = node
        for run in runs:
            if run(state, node, then):
                return True
        state.nodes.pop()
        if key >= 0:
            del state.calls[key]
        return False

    return match


def _other(state: State, value: Any, node: int | None, ops: str) -> str:
    name = state.view.value_name(value)
    if node is not None:
        return f"`{name}` comes from `{state.ops[node]}`, the rule wants {ops}"
    constant = state.view.constant(value)
    if constant is not None and constant.scalar is not None:
        return f"`{name}` is the constant {show(constant.scalar)}, the rule wants {ops}"
    return f"`{name}` comes from no node of this graph, the rule wants {ops}"


def anything(state: State, value: Any, then: Then) -> bool:
    """Match any value: `_`."""
    return then()


def variable(index: int) -> Matcher:
    """Bind a variable, or compare with what it is bound to."""

    def match(state: State, value: Any, then: Then) -> bool:
        slots = state.slots
        old = slots[index]
        if old is None:
            slots[index] = value
            if then():
                return True
            slots[index] = None
            return False
        if old == value or _equal_constants(state, old, value):
            return then()
        return state.why is not None and state.why.note(state, _differs(state, old, value), 0.6)

    return match


def _equal_constants(state: State, old: Any, value: Any) -> bool:
    constant = state.view.constant(value)
    if constant is None:
        return False
    if isinstance(old, Attribute):
        return bool(constant.scalar is not None and repr(constant.scalar) == repr(old.value))
    other = state.view.constant(old) if isinstance(old, str) else None
    return other is not None and (other.dtype, other.shape, repr(other.items)) == (
        constant.dtype, constant.shape, repr(constant.items)
    )  # fmt: skip


def _differs(state: State, old: Any, value: Any) -> str:
    got = state.view.value_name(value)
    if isinstance(old, Attribute):
        return f"`{got}` is not {show(old.value)}"
    return f"`{got}` differs from `{state.view.value_name(old)}`, the rule wants one value"


def variable_or_stripped(slot: int, stripped: ScaledMatcher) -> ScaledMatcher:
    """Bind a term as it stands, else what is left of it without its constant factor."""
    whole = variable(slot)

    def match(state: State, value: Any, then: Callable[[float, float], bool]) -> bool:
        if whole(state, value, lambda: then(1.0, 0.0)):
            return True
        node = state.producer.get(value)
        if node is None or state.arithmetic.get(state.ops[node]) != PRODUCT:
            return False
        return stripped(state, value, then)

    return match


def number_matcher(term: Number | Literal | ListOf) -> Matcher:
    """Match a constant of a written value."""
    wanted = (
        Wanted(term.value, digits_width(term), term.text)
        if isinstance(term, Number)
        else literal(term)
    )
    text = wanted.text if isinstance(wanted, Wanted) else show(wanted)

    def match(state: State, value: Any, then: Then) -> bool:
        constant = state.view.constant(value)
        name = state.view.value_name(value) if state.why is not None else ""
        if constant is None:
            return state.why is not None and state.why.note(
                state, f"{state.view.not_constant(value)}, the rule wants {text}", 0.3
            )
        got = constant.scalar if isinstance(wanted, Wanted) else plain_of(constant)
        if isinstance(wanted, Wanted) and isinstance(wanted.value, int) and isinstance(got, int):
            equal = wanted.value == got
        elif isinstance(wanted, Wanted):
            equal = isinstance(got, int | float) and close(
                float(got), float(wanted.value), wanted.width + constant.width
            )
        else:
            equal = equal_plain(wanted, got)
        if equal:
            node = state.nodes[-1] if state.nodes else -1
            state.constants.append((constant, value, node))
            if then():
                return True
            state.constants.pop()
            return False
        return state.why is not None and state.why.note(
            state, f"constant {show(got)} (`{name}`) where {text} is wanted", 0.5
        )

    return match

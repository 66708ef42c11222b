"""The conditions of a rule over a finished match: `when`, `scope`, types, and safety."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from oprep.converters.graph import WEAK, Absent, Attribute, Many, Plain, View
from oprep.converters.state import State
from oprep.opsets.expression import UNKNOWN, evaluate, explain
from oprep.opsets.rule import Rule


class Bindings:
    """What `when` and the keywords of `with` can ask about a match; one typing at a time."""

    def __init__(self, view: View, bound: Mapping[str, Any], typing: int = 0) -> None:
        """Ask about a match in one region; `typing` counts the calls of a function."""
        self.view, self.bound, self.typing = view, bound, typing

    def name(self, name: str) -> object:
        """Give a bound attribute as it is and a bound constant by its value."""
        value = self.bound.get(name)
        if isinstance(value, Attribute):
            return value.value
        if isinstance(value, Absent):
            return None
        if value is None or isinstance(value, Many):
            return UNKNOWN
        return self._constant(value)

    def call(self, function: str, arguments: tuple[object, ...]) -> object:
        """Answer one question about a bound name."""
        value = self.bound.get(str(arguments[0]))
        if function == "present":
            return value is not None and not isinstance(value, Absent)
        if function == "is_tensor":
            return value is not None and not isinstance(value, Attribute | Absent | Plain)
        if function == "is_const":
            return isinstance(value, Attribute) or self._is_constant(value)
        if function == "value":
            return value.value if isinstance(value, Attribute) else self._constant(value)
        if value is None or isinstance(value, Attribute | Absent | Many):
            return UNKNOWN
        if function == "dtype":
            return self._typed(self.view.dtypes(value))
        if function == "users":
            region = self.view.region
            return len(region.users.get(value, ())) + (value in region.results)
        shape = self._typed(self.view.shapes(value))
        if shape is UNKNOWN or not isinstance(shape, tuple):
            return UNKNOWN
        if function == "rank":
            return len(shape)
        if function == "shape":
            return [UNKNOWN if item is None else item for item in shape]
        if function == "dim" and isinstance(arguments[1], int):
            index = arguments[1]
            inside = -len(shape) <= index < len(shape)
            item = shape[index] if inside else None
            return UNKNOWN if item is None else item
        return UNKNOWN

    def _typed(self, per_call: Sequence[Any]) -> object:
        item = per_call[self.typing] if self.typing < len(per_call) else per_call[0]
        return UNKNOWN if item is None else item

    def _constant(self, value: Any) -> object:
        constant = self.view.constant(value)
        if constant is None:
            return UNKNOWN
        items = self.view.written(constant)
        return items[0] if len(items) == 1 else items

    def _is_constant(self, value: Any) -> bool:
        return not isinstance(value, Absent | Many) and self.view.is_constant(value)


def typings(view: View, bound: Mapping[str, Any]) -> int:
    """Count the typings that a condition has to hold for: one per call of a function."""
    if view.region.function is None:
        return 1
    values = [v for v in bound.values() if not isinstance(v, Attribute | Absent | Many)]
    return max((len(view.dtypes(value)) for value in values), default=1)


def holds(rule: Rule, view: View, bound: Mapping[str, Any]) -> bool:
    """Tell whether `when` holds, for every call where the match lies in a function."""
    if rule.when is None:
        return True
    return all(
        evaluate(rule.when, Bindings(view, bound, typing)) is True
        for typing in range(typings(view, bound))
    )


def why_not(rule: Rule, view: View, bound: Mapping[str, Any]) -> str:
    """Say which part of `when` failed, with both values."""
    assert rule.when is not None
    for typing in range(typings(view, bound)):
        text = explain(rule.when, Bindings(view, bound, typing))
        if text:
            return text
    return "`when` does not hold"


def in_scope(scope: Sequence[str], path: str) -> bool:
    """Tell whether a module path is in the globs and in none of those with `!`."""
    if not scope:
        return True
    included = [glob for glob in scope if not glob.startswith("!")]
    excluded = [glob[1:] for glob in scope if glob.startswith("!")]
    if any(fnmatchcase(path, glob) for glob in excluded):
        return False
    return not included or any(fnmatchcase(path, glob) for glob in included)


def floating(state: State) -> str:
    """Say which sum or product may not be read without regard to its form; empty where all may.

    Every tree of arithmetic needs a floating type: that of a constant in it, of an op that gives
    nothing else, or the dtype of what it makes. `state.integers` is set where it has another.
    """
    for tree in state.trees:
        if state.view.promotes:
            for node in tree.nodes:
                reason = _floating_value(state, state.outputs[node][0])
                if reason:
                    return reason
            continue
        constant = next((item for item in tree.constants if item[0].dtype != WEAK), None)
        weak = constant is None and bool(tree.constants)
        if constant is not None:
            if constant[0].floating:
                continue
            state.integers = True
            return f"`{state.view.value_name(constant[1])}` is a constant of {constant[0].dtype}"
        if not weak and any(state.view.gives_floats(leaf) for leaf in tree.leaves):
            continue
        for node in tree.nodes if weak else tree.nodes[:1]:
            reason = _floating_value(state, state.outputs[node][0])
            if reason:
                return reason
    return ""


def _floating_value(state: State, value: Any) -> str:
    for kind in state.view.dtypes(value):
        if kind is None:
            return "the dtype is unknown, sums and products need a floating one"
        if not kind.startswith(("float", "bfloat")):
            state.integers = True
            return f"the dtype is {kind}, sums and products need a floating one"
    return ""


BROADCASTING = frozenset({
    "Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Mean", "Sum", "Where", "PRelu",
    "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor", "BitShift",
    "BitwiseAnd", "BitwiseOr", "BitwiseXor",
    *(f"aten::{name}" for name in (
        "add.Tensor", "add_.Tensor", "sub.Tensor", "sub_.Tensor", "mul.Tensor", "mul_.Tensor",
        "div.Tensor", "div_.Tensor", "pow.Tensor_Tensor", "rsub.Tensor", "maximum", "minimum",
        "where.self", "eq.Tensor", "ne.Tensor", "gt.Tensor", "ge.Tensor", "lt.Tensor",
        "le.Tensor", "remainder.Tensor", "floor_divide", "atan2", "logical_and", "logical_or",
    )),
})  # fmt: skip


def rank_kept(state: State, nodes: Sequence[int]) -> str:
    """Say which constant with dims of one may raise the rank; empty where none does."""
    for constant, value, _ in state.constants:
        if constant.shape:
            reason = raises_rank(state.view, nodes, value, constant.shape)
            if reason:
                return reason
    return ""


def raises_rank(view: View, nodes: Sequence[int], value: Any, shape: tuple[int, ...]) -> str:
    """Say where a constant of one element gives a result more dims than its neighbours have."""
    region = view.region
    name = view.value_name(value)
    for node in nodes:
        if region.ops[node] not in BROADCASTING or value not in region.inputs[node]:
            continue
        others = [item for item in region.inputs[node] if item and item != value]
        ranks = [
            None if other_shape is None else len(other_shape)
            for other in others
            if view.constant(other) is None
            for other_shape in view.shapes(other)
        ]
        known = [rank for rank in ranks if rank is not None]
        if not ranks or max(known, default=-1) >= len(shape):
            continue
        if len(known) < len(ranks):
            return (
                f"rank of `{view.value_name(others[0])}` is unknown, and constant `{name}` "
                f"has shape {list(shape)}"
            )
        return f"constant `{name}` of shape {list(shape)} raises the rank from {max(known)}"
    return ""


def unnamed_output(state: State, nodes: Sequence[int], roots: Sequence[Any]) -> str:
    """Say which output that the equation does not name is in use; empty where none is."""
    region = state.view.region
    named: set[Any] | None = None
    for node in nodes:
        outputs = region.outputs[node]
        if len(outputs) < 2:
            continue
        if named is None:
            named = set(roots)
            for inner in nodes:
                named.update(region.inputs[inner])
        for position, value in enumerate(outputs):
            if not value or value in named:
                continue
            users = region.users.get(value)
            if users or value in region.results:
                reader = state.view.node_name(users[0]) if users else "the graph's outputs"
                return (
                    f"output {position} (`{state.view.value_name(value)}`) of `{region.ops[node]}`"
                    f" is used by `{reader}`, the rule does not name it"
                )
    return ""


def random_kept(state: State, nodes: Sequence[int], roots: Sequence[Any]) -> str:
    """Say which random inner node would have to stay; empty where none would."""
    if not state.view.draws:
        return ""
    region = state.view.region
    inside = set(nodes)
    for node in nodes:
        if not state.view.random(node):
            continue
        for value in region.outputs[node]:
            outside = [user for user in region.users.get(value, ()) if user not in inside]
            if value not in roots and (outside or value in region.results):
                name = state.view.node_name(node)
                return (f"`{name}` draws random numbers or changes a value in place, and is used"
                        " elsewhere")  # fmt: skip
    return ""


def cycle(state: State, nodes: Sequence[int], roots: Sequence[Any], reads: frozenset[Any]) -> str:
    """Say which input of a match with several outputs depends on one of them; empty if none."""
    region = state.view.region
    if len(roots) < 2:
        return ""
    inside = set(nodes)
    last = max((region.producer[value] for value in reads if value in region.producer), default=-1)
    reached: set[int] = set()
    work = [user for root in roots for user in region.users.get(root, ()) if user not in inside]
    while work:
        node = work.pop()
        if node in reached or node > last:
            continue
        reached.add(node)
        for value in region.outputs[node]:
            if value in reads:
                return (
                    f"`{state.view.value_name(value)}` is an input of the match and depends on"
                    f" its output"
                )
            work.extend(user for user in region.users.get(value, ()) if user not in inside)
    return ""

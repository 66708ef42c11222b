"""Where the new nodes of a match go, and which old nodes have to move behind them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oprep.converters.graph import ABSENT, Absent, Attribute, Many, Plain, Several
from oprep.converters.match import Match
from oprep.opsets.expression import variables
from oprep.opsets.syntax import Equation


def place(match: Match) -> tuple[int, tuple[int, ...]]:
    """Give the node before which the replacement goes, and the nodes to move behind it.

    With one root that is its producer. With several, everything that the replacement reads must
    stand before it and every reader of a root behind it; what stands between moves.
    """
    region = match.view.region
    makers = [region.producer[value] for value in match.roots]
    if len(makers) == 1:
        return makers[0], ()
    inside = set(match.nodes)
    least = max((region.producer.get(value, -1) for value in needed(match)), default=-1)
    readers = [
        user for value in match.roots for user in region.users.get(value, ()) if user not in inside
    ]
    first = min([*readers, max(makers)])
    if least < first:
        return first, ()
    last = max(makers)
    return last, tuple(_readers(match, set(readers), inside, last))


def needed(match: Match) -> frozenset[Any]:
    """Give the values that a replacement reads; names that only the pattern gives are none."""
    if not isinstance(match.prepared, Equation):
        return match.reads
    found: list[Any] = []
    for name in variables(match.prepared):
        value = match.bound.get(name, ABSENT)
        if isinstance(value, Many):
            found += value.values
        elif isinstance(value, Several):
            found += value.items
        elif not isinstance(value, Attribute | Absent):
            found.append(value)
    return frozenset(item for item in found if item and not isinstance(item, Plain))


def _readers(match: Match, start: set[int], inside: set[int], last: int) -> Iterable[int]:
    """Give the nodes before `last` that read a root, directly or not, in order."""
    region = match.view.region
    moved: set[int] = set()
    for node in range(min(start), last):
        if node in inside:
            continue
        reads = {region.producer.get(value, -1) for value in _inputs(region.inputs[node])}
        if node in start or reads & moved:
            moved.add(node)
    return sorted(moved)


def _inputs(row: Any) -> list[Any]:
    found: list[Any] = []
    for value in row:
        found += list(getattr(value, "items", None) or ()) if _listed(value) else [value]
    return found


def _listed(value: Any) -> bool:
    return isinstance(getattr(value, "items", None), tuple)


def blocked(match: Match) -> str:
    """Say why a replacement has no place in the order of the nodes; else nothing."""
    own = [value for value in match.roots if value in needed(match)]
    if own:
        return f"`with` reads `{match.view.value_name(own[0])}`, which it replaces"
    _, moved = place(match)
    if not moved:
        return ""
    view = match.view
    for node in range(moved[0], max(view.region.producer[value] for value in match.roots)):
        if view.random(node):
            return (
                f"`{view.node_name(moved[0])}` reads a result before the last input is made, and"
                f" cannot move behind `{view.node_name(node)}`, which has an effect or is random"
            )
    return ""

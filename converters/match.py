"""Rules x graph -> matches: each alternative is looked for from its rarest op, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from oprep.converters.climb import CLIMBED, climb
from oprep.converters.compile import Anchor, Compiled
from oprep.converters.conditions import (
    cycle,
    floating,
    holds,
    in_scope,
    random_kept,
    rank_kept,
    unnamed_output,
    why_not,
)
from oprep.converters.graph import Absent, Attribute, Many, Plain, Several, Value, View
from oprep.converters.state import STEPS, Reasons, State, TooManySteps, shown_ops
from oprep.converters.templates import Template, recognise, remember, template_of
from oprep.opsets.rule import Rule

NEAR = 256
"""A further output is looked for among so many nodes around what is bound, and a level more."""
NO_READING = "no way to read at most 8 nodes of arithmetic around it fits the rule"


@dataclass(slots=True)
class Match:
    """One place where a rule applies.

    `nodes` are the matched nodes in order, `roots` the values that `with` has to give, `bound`
    the variables: a value, an `Attribute`, `ABSENT` or `Many`. `kept` is filled by the plan.
    """

    rule: Rule
    order: int
    alternative: int
    view: View
    nodes: tuple[int, ...]
    roots: tuple[Value, ...]
    bound: dict[str, Any]
    exact: bool = False
    kept: tuple[int, ...] = field(default=())
    prepared: Any = None
    root: int = -1
    reads: frozenset[Value] = frozenset()

    def __post_init__(self) -> None:
        """Look up once what is asked for again and again.

        `root` is the node that makes the first output, `reads` what the replacement may read.
        """
        self.root = self.view.region.producer[self.roots[0]]
        found: set[Value] = set()
        for value in self.bound.values():
            if isinstance(value, Many):
                found.update(value.values)
            elif isinstance(value, Several):
                found.update(value.items)
            elif not isinstance(value, Attribute | Absent):
                found.add(value)
        self.reads = frozenset(item for item in found if item and not isinstance(item, Plain))

    @property
    def site(self) -> str:
        """Name the place as every message does: by the node of the first output."""
        return self.view.node_name(self.root)


def find(
    view: View, alternatives: Sequence[Compiled], prepare: Callable[[Match], str] | None = None
) -> list[Match]:
    """Find every match of every alternative in one region; overlaps are not yet resolved.

    `prepare` settles the replacement of a match, or says why that is impossible: then other
    orders of operands are tried, as for any condition.
    """
    matches: list[Match] = []
    done: dict[tuple[int, int], Match] = {}
    state = State(view, 0)
    state.prepare = prepare
    by_op = view.region.by_op
    for compiled in alternatives:
        if compiled.missing or not compiled.roots:
            continue
        anchor = rarest(compiled, view)
        if anchor is None:
            continue
        templates: list[Template] = []
        for op in anchor.ops:
            for node in by_op.get(op, ()):
                again = _again(state, compiled, templates, node, done) if templates else None
                if again is not None:
                    matches.append(again)
                    continue
                found = at(state, compiled, anchor, node, done)
                matches += found
                if len(found) == 1:
                    remember(templates, template_of(state, compiled, node, found[0]))
    return matches


def _again(
    state: State,
    compiled: Compiled,
    templates: Sequence[Template],
    node: int,
    done: dict[tuple[int, int], Match],
) -> Match | None:
    """Match a place that has the very shape of one that was matched before."""
    for template in templates:
        same = recognise(state.view, template, node)
        if same is None or (compiled.order, same[0]) in done:
            continue
        root, nodes, bound = same
        roots = (state.outputs[root][0],)
        match = Match(
            compiled.rule, compiled.order, compiled.alternative, state.view, nodes, roots, bound
        )
        if state.prepare is None or not state.prepare(match):
            done[compiled.order, root] = match
            return match
    return None


def rarest(compiled: Compiled, view: View) -> Anchor | None:
    """Choose the anchor whose ops are fewest in this region; None where one is missing."""
    best, least = None, -1
    by_op = view.region.by_op
    for anchor in compiled.anchors:
        count = sum(len(by_op.get(op, ())) for op in anchor.ops)
        if not count:
            return None
        if best is None or count < least:
            best, least = anchor, count
    return best or _arithmetic_anchor(compiled, view)


def _arithmetic_anchor(compiled: Compiled, view: View) -> Anchor | None:
    """Anchor a pattern without any call at the arithmetic ops that can be its root."""
    kinds, by_op = compiled.roots[0].kinds, view.region.by_op
    ops = [op for op, kind in view.arithmetic.items() if kind in kinds and op in by_op]
    return Anchor(frozenset(ops), ()) if ops else None


def at(
    state: State, compiled: Compiled, anchor: Anchor, node: int, done: dict[tuple[int, int], Match]
) -> list[Match]:
    """Try one alternative from one anchor node, the outermost root first.

    A root that matches without the anchor belongs to another anchor: its turn will come. A root
    inside of a match is not tried: that match would win. One anchor can have several matches
    where its result is shared.
    """
    matches: list[Match] = []
    inside: set[int] = set()
    for root in reversed(list(climb(state.view, compiled, anchor, node))):
        if root in inside:
            continue
        key = (compiled.order, root)
        found = done.get(key)
        if found is None:
            found = attempt(state, compiled, root)
            if found is None or node not in found.nodes:
                continue
            done[key] = found
            matches.append(found)
        if node in found.nodes:
            inside.update(found.nodes)
    return matches


def attempt(state: State, compiled: Compiled, root: int) -> Match | None:
    """Try one alternative at one root node; the exact form where the type is an integer one."""
    found = _attempt(state, compiled, root)
    if found is None and compiled.exact is not None and state.integers:
        found = _attempt(state, compiled.exact, root)
    return found


def _attempt(state: State, compiled: Compiled, root: int) -> Match | None:
    found: list[Match] = []
    state.reset(len(compiled.names))
    roots = compiled.roots

    def accept(values: tuple[Any, ...]) -> bool:
        match = _accepted(state, compiled, values)
        if match is None:
            return False
        found.append(match)
        return True

    def others(values: tuple[Any, ...]) -> bool:
        if len(values) == len(roots):
            return accept(values)
        following = roots[len(values)]
        return any(
            following.matcher(state, value, lambda value=value: others((*values, value)))  # type: ignore[misc]
            for value in _candidates(state, compiled, len(values))
            if value not in values
        )

    try:
        for value in state.outputs[root]:
            if value and roots[0].matcher(state, value, lambda value=value: others((value,))):  # type: ignore[misc]
                return found[0]
    except TooManySteps:
        if state.why is not None:
            state.why.note(state, f"the search took more than {STEPS} steps", 9.0)
    return None


def _candidates(state: State, compiled: Compiled, position: int) -> Iterator[Any]:
    """Give the values that can be a further output: near what is bound, in graph order."""
    root = compiled.roots[position]
    region = state.view.region
    near: set[int] = set(state.nodes)
    work = [value for value in state.slots if isinstance(value, str)]
    work += [value for node in state.nodes for value in region.outputs[node]]
    for _ in range(CLIMBED):
        users = {user for value in work for user in region.users.get(value, ())} - near
        near |= users
        work = [value for user in users for value in region.outputs[user]]
        if len(near) > NEAR:
            break
    for node in sorted(near):
        if region.ops[node] in root.ops or state.arithmetic.get(region.ops[node]) in root.kinds:
            yield from (value for value in region.outputs[node] if value)


def _accepted(state: State, compiled: Compiled, roots: tuple[Any, ...]) -> Match | None:
    rule, view = compiled.rule, state.view
    nodes = tuple(sorted(set(state.nodes)))
    reason = "" if compiled.exact_form else floating(state)
    reason = reason or rank_kept(state, nodes)
    slots = state.slots
    bound = {name: slots[index] for name, index in compiled.names.items()
             if slots[index] is not None}  # fmt: skip
    match = Match(rule, compiled.order, compiled.alternative, view, nodes, roots, bound)
    reason = reason or unnamed_output(state, nodes, roots)
    if not reason and len(roots) > 1:
        reason = cycle(state, nodes, roots, match.reads)
    reason = reason or random_kept(state, nodes, roots)
    reason = reason or view.hazard(nodes, roots, match.reads)
    if not reason and rule.scope:
        path = view.scope_of(match.root)
        if not in_scope(rule.scope, path):
            reason = f"`{path}` is outside the scope {', '.join(f'`{g}`' for g in rule.scope)}"
    if not reason and rule.when is not None and not holds(rule, view, bound):
        reason = why_not(rule, view, bound)
    if not reason and state.prepare is not None:
        reason = state.prepare(match)
    if reason:
        if state.why is not None:
            state.why.note(state, reason, 5.0)
        return None
    return match


def explain_at(state: State, compiled: Compiled, anchor: Anchor, node: int) -> Reasons:
    """Give the reason why an alternative does not match around one anchor node."""
    state.why = Reasons()
    try:
        roots = list(climb(state.view, compiled, anchor, node))
        for root in roots:
            if attempt(state, compiled, root) is not None:
                state.why.best = -2.0
                break
        if not roots:
            state.why.note(state, _no_root(state.view, anchor, node), 0.0)
        elif not state.why.text and state.why.best > -2:
            state.why.note(state, NO_READING, 0.0)
        return state.why
    finally:
        state.why = None


def _no_root(view: View, anchor: Anchor, node: int) -> str:
    region = view.region
    kind, data = anchor.levels[0]
    wanted = f"a {data[0]}" if kind == "arith" else " or ".join(shown_ops(data))
    readers = [user for value in region.outputs[node] for user in region.users.get(value, ())]
    if not readers:
        return f"its result is an output of the graph, the rule wants it in {wanted}"
    others = ", ".join(f"`{view.node_name(user)}` ({region.ops[user]})" for user in readers[:3])
    return f"its result is read by {others}, the rule wants it in {wanted}"

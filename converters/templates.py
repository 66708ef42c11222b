"""Motifs that a model repeats: what was matched once is recognised again by its exact shape.

A template is the matched part of one site, node by node: ops, wiring, the very constants. A place
of the same shape would be matched with the same result, so the search is left out there. Anything
that is not the same in every point goes through the search as always.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oprep.converters.graph import Constant, View

if TYPE_CHECKING:
    from oprep.converters.compile import Compiled
    from oprep.converters.match import Match
    from oprep.converters.state import State

KEPT_TEMPLATES = 4
PLAIN = frozenset({"Erf", "Tanh", "Sigmoid", "Exp", "Softplus"})
"""Ops without attributes that templates may hold, beside arithmetic."""

NODE, VARIABLE, CONSTANT = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Template:
    """One matched part. `steps` lead from the anchor (place `start`) to the root, by place.

    `parts` list each place from the root down: its op and its inputs, each (kind, place, name or
    value, constant). `variables` are the names in the order of first use.
    """

    start: int
    steps: tuple[int, ...]
    ops: tuple[str, ...]
    parts: tuple[tuple[int, tuple[tuple[int, int, Any, Constant | None], ...]], ...]
    variables: tuple[str, ...]
    kinds: frozenset[str]


def template_of(state: State, compiled: Compiled, anchor: int, match: Match) -> Template | None:
    """Make a template of a match that was just found; None where its shape alone is no proof."""
    view = state.view
    region = view.region
    rule = match.rule
    if rule.when is not None or rule.scope or len(match.roots) != 1 or match.exact:
        return None
    if not all(isinstance(value, str) for value in match.bound.values()):
        return None
    if not all(_evident(view, tree) for tree in state.trees):
        return None
    place = {node: number for number, node in enumerate(match.nodes)}
    steps: list[int] = []
    node = anchor
    while node != match.root:
        readers = region.users.get(region.outputs[node][0], ())
        if len(readers) != 1 or readers[0] not in place:
            return None
        node = readers[0]
        steps.append(place[node])
    parts: list[tuple[int, tuple[tuple[int, int, Any, Constant | None], ...]]] = []
    names = {value: name for name, value in match.bound.items()}
    if len(names) != len(match.bound):
        return None
    for node in reversed(match.nodes):
        op = region.ops[node]
        if (op not in PLAIN and op not in view.arithmetic) or len(region.outputs[node]) != 1:
            return None
        inputs: list[tuple[int, int, Any, Constant | None]] = []
        for value in region.inputs[node]:
            maker = region.producer.get(value, -1)
            constant = view.constant(value)
            if maker in place:
                inputs.append((NODE, place[maker], value, None))
            elif value in names:
                if constant is not None:
                    return None
                inputs.append((VARIABLE, -1, names[value], None))
            elif constant is not None and not constant.shape:
                inputs.append((CONSTANT, -1, value, constant))
            else:
                return None
        parts.append((place[node], tuple(inputs)))
    ops = tuple(region.ops[node] for node in match.nodes)
    return Template(place[anchor], tuple(steps), ops, tuple(parts), tuple(match.bound),
                    compiled.roots[0].kinds)  # fmt: skip


def _evident(view: View, tree: Any) -> bool:
    return bool(tree.constants) or any(view.gives_floats(leaf) for leaf in tree.leaves)


def recognise(
    view: View, template: Template, anchor: int
) -> tuple[int, tuple[int, ...], dict[str, Any]] | None:
    """Give root, nodes and bound variables where the surroundings of an anchor fit exactly."""
    region = view.region
    ops, users, outputs, producer = region.ops, region.users, region.outputs, region.producer
    wanted = template.ops
    found = [-1] * len(wanted)
    found[template.start] = node = anchor
    for place in template.steps:
        readers = users.get(outputs[node][0], ())
        if len(readers) != 1:
            return None
        node = readers[0]
        if ops[node] != wanted[place]:
            return None
        found[place] = node
    arithmetic = view.arithmetic
    for reader in users.get(outputs[node][0], ()):
        if arithmetic.get(ops[reader]) in template.kinds:
            return None  # a larger match could lie around it
    bound: dict[str, Any] = {}
    constants = view.constant_values
    for place, inputs in template.parts:
        got = region.inputs[found[place]]
        if len(got) != len(inputs):
            return None
        for value, (kind, other, name, constant) in zip(got, inputs, strict=True):
            if kind == NODE:
                maker = producer.get(value, -1)
                known = found[other]
                if known < 0:
                    if maker < 0 or ops[maker] != wanted[other] or len(outputs[maker]) != 1:
                        return None
                    found[other] = maker
                elif known != maker:
                    return None
            elif kind == VARIABLE:
                if bound.setdefault(name, value) != value:
                    return None
                if constants is None or value in constants:
                    return None
            elif value != name and view.constant(value) != constant:
                return None
    nodes = set(found)
    if len(nodes) != len(found) or len(set(bound.values())) != len(template.variables):
        return None
    if any(producer.get(value, -1) in nodes for value in bound.values()):
        return None
    return node, tuple(sorted(nodes)), bound


def remember(templates: list[Template], made: Template | None) -> None:
    """Keep the newest few templates."""
    if made is not None and made not in templates:
        templates.insert(0, made)
        del templates[KEPT_TEMPLATES:]

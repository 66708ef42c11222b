"""Where a match lies in a captured graph: its nodes, what enters them, and what they are."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from oprep.converters.graph import Plain, Several, Value
from oprep.converters.match import Match


class Place:
    """A match as the interpreter meets it: its nodes, what they read from outside, their results.

    `outer` are the nodes whose values enter, `first` the node that runs first, `local` says
    whether every node works element by element, `draws` whether one may draw random numbers.
    """

    def __init__(self, index: int, match: Match) -> None:
        """Look up the nodes of a match in its graph."""
        self.index, self.match = index, match
        view: Any = match.view
        self.nodes: list[Node] = [view.fx[i] for i in sorted(match.nodes)]
        self.graph = self.nodes[0].graph
        self._named = {node.name: node for node in self.graph.nodes}
        self.inner = set(self.nodes)
        for node in self.nodes:
            self.inner |= {user for user in node.users if user.target is operator.getitem}
        self.outer: dict[Node, None] = {}
        for node in self.nodes:
            self.outer |= {item: None for item in node.all_input_nodes if item not in self.inner}
        self.read = {value: self.source(value) for value in _tensors(match.reads)}
        self.makers = {root.node for root in match.roots}
        self.local = all(is_pointwise(node) for node in self.nodes)
        self.draws = any(draws(node) for node in self.nodes)

    @property
    def first(self) -> Node:
        """The node that runs first."""
        return self.nodes[0]

    def source(self, value: Value) -> Node:
        """Give the node whose result a value is: the one that picks it, where there are several."""
        found = self._named.get(str(value))
        made: Node = value.node if found is None else found
        return made

    def bindings(self, outer: Mapping[Node, Any]) -> dict[Value, Any]:
        """Give what the replacement reads, as graph values, from what entered the site."""
        return {value: _bound(value, self, outer) for value in self.match.reads}

    def replay(self, outer: Mapping[Node, Any]) -> tuple[Any, ...]:
        """Run the nodes of the original once more on other values; give the results of the site."""
        env = dict(outer)
        for node in self._ordered():
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), env.__getitem__)
            env[node] = node.target(*args, **kwargs)  # type: ignore[operator]
        return tuple(picked(env[root.node], root) for root in self.match.roots)

    def _ordered(self) -> Iterator[Node]:
        return (node for node in self.graph.nodes if node in self.inner)


def _tensors(values: Sequence[Value] | frozenset[Value]) -> Iterator[Value]:
    for value in values:
        if isinstance(value, Several):
            yield from _tensors(value.items)
        elif value and not isinstance(value, Plain):
            yield value


def _bound(value: Value, place: Place, outer: Mapping[Node, Any]) -> Any:
    if isinstance(value, Plain):
        return value.number
    if isinstance(value, Several):
        return [_bound(item, place, outer) for item in value.items]
    if not value:
        return None
    source = place.read.get(value) or place.source(value)
    return picked(outer[source], value) if source is value.node else outer[source]


def picked(made: Any, value: Any) -> Any:
    """Give the result of a node that a value stands for."""
    return made[value.index] if isinstance(made, tuple | list) else made


EXTRA_POINTWISE = frozenset(
    ("aten::to", "aten::_to_copy", "aten::detach", "aten::hardswish", "aten::prelu",
     "aten::alias", "aten::dropout", "aten::type_as")
)  # fmt: skip
"""Ops that work element by element and do not carry torch's tag for it."""


def is_pointwise(node: Node) -> bool:
    """Tell whether a node works element by element: torch tags such ops."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    name = target._schema.name
    name = name.removesuffix("_") if target._schema.is_mutable else name
    return torch.Tag.pointwise in target.tags or name in EXTRA_POINTWISE


def draws(node: Node) -> bool:
    """Tell whether a node may draw random numbers; dropout out of training does not."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    names = [argument.name for argument in target._schema.arguments]
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    return not any(given.get(key) is False for key in ("train", "training"))

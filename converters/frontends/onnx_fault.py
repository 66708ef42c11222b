"""Finds the words for what the walk of onnx_lint.py came upon: slow, and only after a fault."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from oprep.opsets.errors import ExitCode, OprepError

if TYPE_CHECKING:
    from onnx import NodeProto

MAX_SHOWN = 5


def refused(fact: str, where: str, note: str = "", action: str = "") -> OprepError:
    """Make the error of a model that is not well formed."""
    notes = (note,) if note else ()
    return OprepError(fact, where=where, notes=notes, help=action, exit_code=ExitCode.MODEL)


@dataclass(frozen=True)
class Place:
    """A graph in a model: the main graph, a function, or one nested in a node's attribute."""

    function: str = ""
    node_label: str = ""
    attribute: str = ""
    depth: int = 0

    def inside(self, node: NodeProto, attribute: str) -> Place:
        """Give the place of a graph that a node here holds."""
        label = self.node(node)
        return replace(self, node_label=label, attribute=attribute, depth=self.depth + 1)

    def described(self) -> str:
        """Name the graph."""
        inner = f"`{self.attribute}` of {self.node_label}" if self.depth else ""
        outer = f"function `{self.function}`" if self.function else ""
        if inner and outer:
            return f"{inner} in {outer}"
        return inner or outer or "the main graph"

    def node(self, node: NodeProto) -> str:
        """Name a node: by its name, or by what it makes."""
        made = next((name for name in node.output if name), "")
        label = f"node `{node.name}`" if node.name else f"the node that makes `{made}`"
        kind = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        return f"{label} ({kind})"


def unmade(
    name: str, node: NodeProto, nodes: Iterable[NodeProto], place: Place, where: str
) -> OprepError:
    """Say why a value is not there when a node reads it: never made, made later, or a cycle."""
    all_nodes = list(nodes)
    makers = {made: index for index, item in enumerate(all_nodes) for made in item.output if made}
    reader = place.node(node)
    if name not in makers:
        fact = f"value `{name}` is made nowhere in {place.described()} or around it"
        return refused(fact, where, f"{reader} reads it")
    cycle = _cycle(all_nodes, makers)
    if cycle:
        shown = [place.node(all_nodes[index]) for index in cycle[:MAX_SHOWN]]
        more = f" and {len(cycle) - MAX_SHOWN} more" if len(cycle) > MAX_SHOWN else ""
        note = f"{' -> '.join(shown)}{more}"
        return refused(f"the nodes of {place.described()} form a cycle", where, note)
    return refused(
        f"the nodes of {place.described()} are not in order: `{name}` is read before it is made",
        where,
        f"{reader} reads it, {place.node(all_nodes[makers[name]])} makes it later",
        "sort the nodes topologically, as the ONNX format asks for",
    )


def _cycle(nodes: list[NodeProto], makers: dict[str, int]) -> list[int]:
    """Give the nodes of one cycle, in the order of the data; empty when there is none."""
    reads = [{makers[name] for name in _reads(node) if name in makers} for node in nodes]
    state = [0] * len(nodes)
    for start in range(len(nodes)):
        if state[start]:
            continue
        path, rest = [start], [iter(sorted(reads[start]))]
        state[start] = 1
        while path:
            nearest = next(rest[-1], None)
            if nearest is None:
                state[path.pop()] = 2
                rest.pop()
            elif state[nearest] == 1:
                return path[path.index(nearest) :][::-1]
            elif not state[nearest]:
                state[nearest] = 1
                path.append(nearest)
                rest.append(iter(sorted(reads[nearest])))
    return []


def _reads(node: NodeProto) -> Iterable[str]:
    """Give what a node reads, what its nested graphs take from around them included."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
            for inner in graph.node:
                yield from _reads(inner)

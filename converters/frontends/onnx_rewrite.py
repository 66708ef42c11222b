"""Carry a plan out on a copy of an ONNX model: linear, and nothing unmatched is touched.

The root node of a match becomes the new node in place, so order, name and metadata stay; what
goes is sorted to the end and cut off in one slice; what is added is sorted to where it belongs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oprep.converters.frontends.onnx_constants import FOLDED
from oprep.converters.frontends.onnx_graph import OnnxGraph, OnnxView
from oprep.converters.frontends.onnx_lint import lint
from oprep.converters.frontends.onnx_parse import parse
from oprep.converters.match import Match
from oprep.converters.overlaps import settle

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Write = Callable[[Match, Sequence[str], Callable[[str], str], "NodeProto"], "list[NodeProto]"]
"""Write a replacement over a node, its last one; give the nodes that go before it."""


class Names:
    """Make tensor names that nothing in a model has; the same for the same model and plan."""

    def __init__(self, graph: OnnxGraph) -> None:
        """Collect the names when the first one is asked for."""
        self.graph = graph
        self.taken: set[str] | None = None
        self.counts: dict[str, int] = {}

    def fresh(self, hint: str) -> str:
        """Give an unused name that begins with a hint."""
        if self.taken is None:
            self.taken = set(self._all())
        number = self.counts.get(hint, 0)
        while (name := f"{hint}_{number}" if number else hint) in self.taken:
            number += 1
        self.counts[hint] = number + 1
        self.taken.add(name)
        return name

    def _all(self) -> Iterable[str]:
        for view in self.graph.views:
            yield from view.region.producer
            yield from view.region.users
            graph: Any = view.graph
            if view.region.kind == "graph":
                yield from (item.name for item in graph.input)
                yield from (item.name for item in graph.initializer)
        model = self.graph.model
        for function in model.functions:
            yield from function.input
            for node in function.node:
                yield from node.output


@dataclass(frozen=True, slots=True)
class Gone:
    """What leaves one region: nodes by index, and initializers by name."""

    nodes: frozenset[int]
    initializers: frozenset[str]


def leaving(
    graph: OnnxGraph, matches: Sequence[Match], settled: Mapping[int, set[int]] | None = None
) -> dict[int, Gone]:
    """Decide, per view (by position), which nodes and initializers only the matches needed.

    Constants and initializers that only replaced nodes read go; what was unused before stays.
    `settled` is what `settle` gave for these matches, where the plan has it.
    """
    places = {id(view): number for number, view in enumerate(graph.views)}
    nodes: dict[int, set[int]] = {}
    removed: dict[tuple[int, str], int] = {}
    needed: set[tuple[int, str]] = set()
    by_view: dict[int, list[Match]] = {}
    for match in matches:
        by_view.setdefault(places[id(match.view)], []).append(match)
    work: list[tuple[OnnxView, str]] = []
    for number, own in by_view.items():
        view = graph.views[number]
        nodes[number] = set(settled[number]) if settled is not None else settle(own, view)
        values, inputs = view.constant_values, view.region.inputs
        possible = view.constants.possible if values is None else values.__contains__
        for match in own:
            for value in match.reads:
                if possible(value):
                    needed.add((places[id(_home(view, value))], value))
        for node in nodes[number]:
            for value in inputs[node]:
                if possible(value):
                    work.append((view, value))
    initializers: dict[int, set[str]] = {}
    while work:
        view, value = work.pop()
        home = _home(view, value)
        number = places[id(home)]
        key = (number, value)
        removed[key] = removed.get(key, 0) + 1
        region = home.region
        if key in needed or value in region.results:
            continue
        if removed[key] < len(region.users.get(value, ())):
            continue
        maker = region.producer.get(value)
        if maker is None:
            if value in home.constants.initializers:
                initializers.setdefault(number, set()).add(value)
            continue
        if region.ops[maker] in FOLDED:
            gone = nodes.setdefault(number, set())
            if maker not in gone:
                gone.add(maker)
                work.extend((home, item) for item in region.inputs[maker] if item)
    return {
        number: Gone(frozenset(nodes.get(number, ())), frozenset(initializers.get(number, ())))
        for number in {*nodes, *initializers}
    }


def _home(view: OnnxView, value: str) -> OnnxView:
    """Give the view in which a value is made."""
    scope = view
    while scope.parent is not None:
        graph: Any = scope.graph
        if value in scope.region.producer or value in scope.constants.initializers:
            return scope
        if any(item.name == value for item in graph.input):
            return scope
        scope = scope.parent
    return scope


def rewrite(
    graph: OnnxGraph,
    matches: Sequence[Match],
    write: Write,
    settled: Mapping[int, set[int]] | None = None,
) -> ModelProto:
    """Give a changed copy of the model; functions, imports and metadata are the caller's."""
    from onnx import ModelProto

    model = ModelProto()
    model.CopyFrom(graph.model)
    names = Names(graph)
    gone = leaving(graph, matches, settled)
    by_view: dict[int, list[Match]] = {}
    for match in matches:
        by_view.setdefault(id(match.view), []).append(match)
    targets = {
        number: graph_at(model, graph.views[number].region.path)
        for number in sorted({*gone, *(i for i, v in enumerate(graph.views) if id(v) in by_view)})
    }
    for number, target in targets.items():
        view = graph.views[number]
        own = by_view.get(id(view), [])
        leave = gone.get(number, Gone(frozenset(), frozenset()))
        _rewrite_region(view, target, own, leave, write, names)
    return model


def load_graph(data: bytes, name: str = "model") -> OnnxGraph:
    """Parse, lint and index a model given as bytes."""
    model = parse(data, name)
    lint(model, name)
    return OnnxGraph(model)


def rebuild(graph: OnnxGraph) -> bytes:
    """Write a model through the same steps as a rewrite, with nothing to replace."""
    model = rewrite(graph, [], lambda match, results, fresh, into: [])
    for view in graph.views:
        target = graph_at(model, view.region.path)
        _reorder(target.node, len(view.nodes), set(), [])
        _sort_topologically(target.node)
    data: bytes = model.SerializeToString()
    return data


def graph_at(model: ModelProto, path: tuple[Any, ...]) -> Any:
    """Follow a region path from a model to a GraphProto or FunctionProto."""
    target: Any = model.graph
    steps = path
    if path and path[0][0] == "function":
        _, domain, name, overload = path[0]
        target = next(
            item for item in model.functions
            if (item.domain, item.name, item.overload) == (domain, name, overload)
        )  # fmt: skip
        steps = path[1:]
    for step in steps:
        attribute = next(item for item in target.node[step[0]].attribute if item.name == step[1])
        target = attribute.g if len(step) == 2 else attribute.graphs[step[2]]
    return target


def _rewrite_region(
    view: OnnxView, target: Any, matches: Sequence[Match], gone: Gone, write: Write, names: Names
) -> None:
    nodes = list(target.node)
    dead = set(gone.nodes)
    added: list[tuple[int, NodeProto]] = []
    several = False
    for match in matches:
        root = match.root
        if len(match.roots) > 1:
            several = True
            root = max(view.region.producer[value] for value in match.roots)
        before = write(match, match.roots, names.fresh, nodes[root])
        if before:
            added.extend((root, node) for node in before)
        dead.discard(root)
    if dead or added:
        _reorder(target.node, len(nodes), dead, added)
    if several:
        _sort_topologically(target.node)
    if view.region.kind == "graph":
        _clean(view, target, dead, gone.initializers)


def _reorder(
    nodes: Any, count: int, dead: set[int], added: Sequence[tuple[int, NodeProto]]
) -> None:
    keys: list[float] = [float(i) for i in range(count)]
    end = float(count)
    for i in dead:
        keys[i] = end
    if added:
        step = 0.5 / (len(added) + 1)
        for number, (root, node) in enumerate(added):
            nodes.append(node)
            keys.append(root - 0.5 + step * number)
    following = iter(keys)
    nodes.sort(key=lambda _: next(following))
    if dead:
        del nodes[len(nodes) - len(dead) :]


def _sort_topologically(nodes: Any) -> None:
    """Sort stably, so that what has several outputs stands before all its readers."""
    items = list(nodes)
    producer = {value: i for i, node in enumerate(items) for value in node.output if value}
    waiting: list[int] = []
    readers: dict[int, list[int]] = {}
    for i, node in enumerate(items):
        makers = {producer[value] for value in _reads(node) if value in producer} - {i}
        waiting.append(len(makers))
        for maker in makers:
            readers.setdefault(maker, []).append(i)
    ready = [i for i, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    place: dict[int, int] = {}
    while ready:
        i = heapq.heappop(ready)
        place[i] = len(place)
        for reader in readers.get(i, ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, reader)
    order = iter([place[i] for i in range(len(items))])
    nodes.sort(key=lambda _: next(order))


def _reads(node: NodeProto) -> Iterable[str]:
    """Give what a node reads, the outer values of its graphs included."""
    from oprep.converters.frontends.onnx_graph import graphs_of

    yield from node.input
    for _, _, graph in graphs_of(node):
        for inner in graph.node:
            yield from _reads(inner)
        yield from (item.name for item in graph.output)


def _clean(view: OnnxView, target: Any, dead: set[int], initializers: frozenset[str]) -> None:
    """Drop what belonged to removed nodes: initializers, value_info, quantization annotations."""
    if initializers:
        _keep(target.initializer, [item.name not in initializers for item in target.initializer])
        if view.owner.model.ir_version < 4 and view.parent is None:
            _keep(target.input, [item.name not in initializers for item in target.input])
    if not len(target.value_info) and not len(target.quantization_annotation):
        return
    lost = {value for node in dead for value in view.region.outputs[node] if value}
    lost = lost.difference(*(node.output[:] for node in target.node)) | initializers
    if lost and len(target.value_info):
        _keep(target.value_info, [item.name not in lost for item in target.value_info])
    if lost and len(target.quantization_annotation):
        _keep(
            target.quantization_annotation,
            [item.tensor_name not in lost for item in target.quantization_annotation],
        )


def _keep(items: Any, keep: list[bool]) -> None:
    """Delete from a repeated field in one slice, without copying a message."""
    count = sum(keep)
    if count == len(keep):
        return
    order = iter([not item for item in keep])
    items.sort(key=lambda _: next(order))
    del items[count:]

"""A copy of a model to build a twin in: its graphs by path, and new nodes with fresh names.

New nodes go to the end of their graph (it stays sorted), so that paths stay valid meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from oprep.converters.scan_loop import constant, scan_as_loop
from oprep.converters.twin import RegionPath, TwinPlan

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


class CannotLift(Exception):
    """A value cannot be carried out of where it lives; the text says why."""


class TwinCopy:
    """The model of a twin while it is being built. `front` nodes are put first at the end."""

    def __init__(self, model: ModelProto, plan: TwinPlan) -> None:
        """Copy `model` and add the bodies and imports of the plan."""
        from onnx import ModelProto

        self.plan = plan
        self.model = ModelProto()
        self.model.CopyFrom(model)
        self.front: dict[RegionPath, list[NodeProto]] = defaultdict(list)
        self._graphs: dict[RegionPath, Any] = {(): self.model.graph}
        self._owners: dict[RegionPath, NodeProto] = {}
        self._calls: dict[tuple[str, ...], list[RegionPath]] | None = None
        self._defined: dict[RegionPath, set[str]] = {}
        self._count = 0
        self._used = set(_names(self.model))
        self._functions = {
            (item.domain, item.name, item.overload): item for item in self.model.functions
        }
        self._add_bodies()

    def _add_bodies(self) -> None:
        for function in self.plan.functions:
            key = (function.domain, function.name, function.overload)
            if key not in self._functions:
                self.model.functions.add().CopyFrom(function)
        self.import_into(self.model.opset_import)

    def import_into(self, imports: Any) -> None:
        """Add the imports that the replacements need to those of a model or function."""
        known = {item.domain for item in imports}
        for domain, version in self.plan.imports:
            if domain not in known:
                imports.add(domain=domain, version=version)

    def calls_of(self, step: Any) -> list[RegionPath]:
        """Give the calls of a function as paths that end in the index of the calling node."""
        if self._calls is None:
            self._calls = defaultdict(list)
            bodies = {("function", *key): item for key, item in self._functions.items()}
            for path, graph in [((), self.model.graph), *(((k,), g) for k, g in bodies.items())]:
                for at, node in _walk(path, graph.node):
                    key = (node.domain, node.op_type, node.overload)
                    if key in self._functions:
                        self._calls[key].append(at)
        return self._calls.get(tuple(step[1:]), [])

    def graph(self, path: RegionPath) -> Any:
        """Find a graph or function in the copy; a scan's body is that of the loop beside it."""
        if path not in self._graphs:
            self._graphs[path] = self._find(path)
        return self._graphs[path]

    def _find(self, path: RegionPath) -> Any:
        step = path[-1]
        if step[0] == "function":
            return self._functions[tuple(step[1:])]
        owner = self.graph(path[:-1]).node[step[0]]
        attribute = next(item for item in owner.attribute if item.name == step[1])
        graph = attribute.graphs[step[2]] if len(step) > 2 else attribute.g
        if owner.op_type == "Scan":
            self._defined[path] = set(_defined(graph))
            owner, graph = self._loop_beside(path, owner, graph)
        self._owners[path] = owner
        return graph

    def owner(self, path: RegionPath) -> NodeProto:
        """Give the node that owns the region at `path`, or the node at that index."""
        if len(path[-1]) > 1:
            self.graph(path)
            return self._owners[path]
        node: NodeProto = self.graph(path[:-1]).node[path[-1][0]]
        return node

    def _loop_beside(self, path: RegionPath, scan: NodeProto, body: Any) -> tuple[Any, Any]:
        """Put a loop beside a scan that does the same; give it and its body."""
        outer = path[:-1]
        if self._opset(outer) < 9:
            raise CannotLift("values inside the scan of opset 8 cannot be watched")
        before, loop, first = scan_as_loop(scan, body, self.fresh)
        self.front[path].extend(first)
        around = self.graph(outer)
        around.node.extend([*before, loop])
        loop = around.node[-1]
        return loop, next(item for item in loop.attribute if item.name == "body").g

    def _opset(self, path: RegionPath) -> int:
        of_function = bool(path) and path[0][0] == "function"
        owner = self.graph(path[:1]) if of_function else self.model
        return next((i.version for i in owner.opset_import if i.domain in ("", "ai.onnx")), 1)

    def home(self, region: RegionPath, name: str) -> RegionPath:
        """Find the innermost graph around `region` that makes the value."""
        for length in range(len(region), -1, -1):
            path = region[:length]
            if path not in self._defined:
                self._defined[path] = set(_defined(self.graph(path)))
            if name in self._defined[path]:
                return path
            if path and path[-1][0] == "function":
                break
        raise CannotLift(f"the value `{name}` is not found")

    def fresh(self) -> str:
        """Give a name that the model does not have."""
        self._count += 1
        name = f"oprep_twin_{self._count}"
        return self.fresh() if name in self._used else name

    def node(self, graph: Any, op: str, inputs: list[str], **attributes: Any) -> str:
        """Append a node of the standard domain with one output."""
        from onnx import helper

        graph.node.append(helper.make_node(op, inputs, [self.fresh()], **attributes))
        return str(graph.node[-1].output[0])

    def value(self, graph: Any, dims: list[int], kind: int, values: list[Any]) -> str:
        """Append a constant."""
        graph.node.append(constant(self.fresh(), dims, kind, values))
        return str(graph.node[-1].output[0])

    def finish(self) -> ModelProto:
        """Give the twin; nothing can be added afterwards."""
        for path, nodes in self.front.items():
            graph = self.graph(path)
            for node in reversed(nodes):
                graph.node.insert(0, node)
        return self.model


def _walk(path: RegionPath, nodes: Any) -> Iterator[tuple[RegionPath, NodeProto]]:
    """Give every node below `path`, each with the path of its graph and its index."""
    for index, node in enumerate(nodes):
        yield (*path, (index,)), node
        for attribute in node.attribute:
            if attribute.g.node:
                yield from _walk((*path, (index, attribute.name)), attribute.g.node)
            for number, graph in enumerate(attribute.graphs):
                yield from _walk((*path, (index, attribute.name, number)), graph.node)


def _names(model: ModelProto) -> Iterator[str]:
    """Give every name of a value that new names could collide with."""
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        for _, node in _walk((), nodes):
            yield from node.output
            yield from node.input
    for item in (*model.graph.input, *model.graph.initializer):
        yield item.name


def _defined(graph: Any) -> Iterator[str]:
    for item in graph.input:
        yield item if isinstance(item, str) else item.name
    for item in getattr(graph, "initializer", ()):
        yield item.name
    for node in graph.node:
        yield from node.output

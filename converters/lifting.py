"""How a value is carried from where it lives to an output of the model, step by step outwards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any

from oprep.converters.scan_loop import constant, scan_as_loop
from oprep.converters.twin import Column, RegionPath, SiteColumns, TwinPlan, TwinSite
from oprep.converters.twin_types import TwinTypes

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

RECORDED = 1 << 22
"""Elements that an accumulator takes; later iterations of a long loop are not recorded."""

BIG = 1 << 12
FLOAT, INT64, DOUBLE = 1, 7, 11
BRANCHES = {"then_branch": "else_branch", "else_branch": "then_branch"}


class CannotLift(Exception):
    """A value cannot be carried out of where it lives; the text says why."""


class Lifting:
    """A copy of a model into which sites and the ways out for their values are built.

    New nodes go to the end of their graph (it stays sorted), so that paths stay valid meanwhile.
    """

    def __init__(self, model: ModelProto, plan: TwinPlan) -> None:
        """Copy `model` and add the bodies and imports of the plan."""
        from onnx import ModelProto

        self.plan = plan
        self.types = TwinTypes(model, plan)
        self.model = ModelProto()
        self.model.CopyFrom(model)
        self._graphs: dict[RegionPath, Any] = {(): self.model.graph}
        self._owners: dict[RegionPath, NodeProto] = {}
        self._front: dict[RegionPath, list[NodeProto]] = defaultdict(list)
        self._columns: dict[tuple[RegionPath, str], Column] = {}
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
        self._import_into(self.model.opset_import)

    def _import_into(self, imports: Any) -> None:
        known = {item.domain for item in imports}
        for domain, version in self.plan.imports:
            if domain not in known:
                imports.add(domain=domain, version=version)

    def site(self, site: TwinSite) -> SiteColumns:
        """Put one site's replacement beside it and carry out its values."""
        graph = self._graph(site.region)
        if site.region and site.region[0][0] == "function":
            self._import_into(self._graph(site.region[:1]).opset_import)
        graph.node.extend(site.nodes)
        pairs = [pair for pair in site.pairs if all(pair)]
        known = [self.types.of(site.region, name) for name in (*pairs[0][:1], *site.reads)]
        likely = next((kind for kind in known if kind), FLOAT)
        lifted = []
        for original, candidate in pairs:
            kind = self.types.of(site.region, original) or likely
            other = self.types.of(site.region, candidate) or kind
            one = self._lift(site.region, original, kind)
            lifted.append((one, self._lift(site.region, candidate, other)))
        reads = dict.fromkeys(name for name in site.reads if name)
        return SiteColumns(
            tuple(lifted),
            tuple(self._lift_read(site.region, name, likely) for name in reads),
            self._reached(site.region) if site.region else None,
        )

    def finish(self) -> ModelProto:
        """Give the twin; nothing can be added afterwards."""
        for path, nodes in self._front.items():
            graph = self._graph(path)
            for node in reversed(nodes):
                graph.node.insert(0, node)
        return self.model

    def _reached(self, region: RegionPath) -> Column:
        """Carry out a flag that is set whenever the region runs."""
        name = ""
        if (region, name) not in self._columns:
            flag = self._value(self._graph(region), [1], INT64, [1])
            self._columns[region, name] = self._lift(region, flag, INT64)
        return self._columns[region, name]

    def _lift_read(self, region: RegionPath, name: str, likely: int) -> Column:
        """Carry out a value whose size alone counts: of big constants only the largest."""
        home = self._home(region, name)
        graph = self._graph(home)
        kind = self.types.of(home, name) or likely
        tensors = getattr(graph, "initializer", ())
        tensor = next((item for item in tensors if item.name == name), None)
        if tensor is None or tensor.data_type not in (FLOAT, DOUBLE) or prod(tensor.dims) < BIG:
            return self._lift(home, name, kind)
        if (home, name) not in self._columns:
            sizes = self._node(graph, "Abs", [name])
            largest = self._node(graph, "ReduceMax", [sizes], keepdims=0)
            self._columns[home, name] = self._lift(home, largest, kind)
        return self._columns[home, name]

    def _lift(self, region: RegionPath, name: str, kind: int) -> Column:
        """Carry a value that is visible in `region` out to a model output."""
        key = (region, name)
        if key not in self._columns:
            self._columns[key] = self._carry(region, name, kind)
        return self._columns[key]

    def _carry(self, region: RegionPath, name: str, kind: int) -> Column:
        if not region:
            return ("plain", self._model_output(name))
        outer, step = region[:-1], region[-1]
        if step[0] == "function":
            return self._carry_out_of_function(step, name, kind)
        graph = self._graph(region)
        owner = self._owner(region)
        if owner.op_type == "If" and step[1] in BRANCHES:
            other = self._graph((*outer, (step[0], BRANCHES[step[1]])))
            return self._lift(outer, self._out_of_branch(owner, graph, other, name, kind), kind)
        if owner.op_type == "Loop":
            values, shapes = self._out_of_loop(outer, owner, graph, name, kind)
            return ("grown", self._lift(outer, values, kind), self._lift(outer, shapes, INT64))
        raise CannotLift(f"values inside `{owner.op_type}` cannot be watched")

    def _model_output(self, name: str) -> str:
        graph = self.model.graph
        if any(item.name == name for item in graph.output):
            return name
        made = self._node(graph, "Identity", [name])
        graph.output.add(name=made)
        return made

    def _out_of_branch(self, owner: NodeProto, graph: Any, other: Any, name: str, kind: int) -> str:
        graph.output.add(name=self._node(graph, "Identity", [name]))
        other.output.add(name=self._value(other, [0], kind, []))
        owner.output.append(self._fresh())
        return str(owner.output[-1])

    def _out_of_loop(
        self, outer: RegionPath, owner: NodeProto, body: Any, name: str, kind: int
    ) -> tuple[str, str]:
        """Add two loop-carried values that grow with each iteration until they are long enough."""
        from onnx import ValueInfoProto

        owner.input.extend([""] * (2 - len(owner.input)))
        while len(owner.output) < len(body.output) - 1:
            owner.output.append(self._fresh())
        values, shapes = self._fresh(), self._fresh()
        flat = self._node(body, "Reshape", [name, self._value(body, [1], INT64, [-1])])
        shape = self._node(body, "Shape", [name])
        rank = self._node(body, "Shape", [shape])
        size = self._node(body, "Cast", [self._node(body, "Size", [values])], to=FLOAT)
        room = self._node(body, "Less", [size, self._value(body, [], FLOAT, [float(RECORDED)])])
        grown = self._grow(body, room, {values: [values, flat], shapes: [shapes, rank, shape]})
        made = []
        for carried, after, element in zip((values, shapes), grown, (kind, INT64), strict=True):
            position = len(owner.input) - 2
            self._front[outer].append(constant(self._fresh(), [0], element, []))
            owner.input.append(self._front[outer][-1].output[0])
            body.input.add(name=carried).type.tensor_type.elem_type = element
            body.output.insert(position + 1, ValueInfoProto(name=after))
            owner.output.insert(position, self._fresh())
            made.append(str(owner.output[position]))
        return made[0], made[1]

    def _grow(self, body: Any, room: str, parts: dict[str, list[str]]) -> list[str]:
        """Append to the accumulators while there is room."""
        from onnx import GraphProto, helper

        branches = []
        for branch in BRANCHES:
            graph = GraphProto(name=branch)
            for carried, joined in parts.items():
                if branch == "then_branch":
                    made = self._node(graph, "Concat", joined, axis=0)
                else:
                    made = self._node(graph, "Identity", [carried])
                graph.output.add(name=made)
            branches.append(graph)
        names = [self._fresh() for _ in parts]
        attributes = dict(zip(BRANCHES, branches, strict=True))
        body.node.append(helper.make_node("If", [room], names, **attributes))
        return names

    def _carry_out_of_function(self, step: Any, name: str, kind: int) -> Column:
        function = self._graph((step,))
        calls = self._calls_of(step)
        declared = len(function.output)
        function.output.append(self._node(function, "Identity", [name]))
        columns = []
        for path in calls:
            node = self._owner(path)
            node.output.extend(self._fresh() for _ in range(declared - len(node.output)))
            node.output.append(self._fresh())
            columns.append(self._lift(path[:-1], node.output[-1], kind))
        return ("many", tuple(columns))

    def _calls_of(self, step: Any) -> list[RegionPath]:
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

    def _graph(self, path: RegionPath) -> Any:
        """Find a graph or function in the copy; a scan's body is that of the loop beside it."""
        if path not in self._graphs:
            self._graphs[path] = self._find(path)
        return self._graphs[path]

    def _find(self, path: RegionPath) -> Any:
        step = path[-1]
        if step[0] == "function":
            return self._functions[tuple(step[1:])]
        owner = self._graph(path[:-1]).node[step[0]]
        attribute = next(item for item in owner.attribute if item.name == step[1])
        graph = attribute.graphs[step[2]] if len(step) > 2 else attribute.g
        if owner.op_type == "Scan":
            self._defined[path] = set(_defined(graph))
            owner, graph = self._loop_beside(path, owner, graph)
        self._owners[path] = owner
        return graph

    def _owner(self, path: RegionPath) -> NodeProto:
        """Give the node that owns the region at `path`, or the node at that index."""
        if len(path[-1]) > 1:
            self._graph(path)
            return self._owners[path]
        node: NodeProto = self._graph(path[:-1]).node[path[-1][0]]
        return node

    def _loop_beside(self, path: RegionPath, scan: NodeProto, body: Any) -> tuple[Any, Any]:
        """Put a loop beside a scan that does the same; give it and its body."""
        outer = path[:-1]
        if self._opset(outer) < 9:
            raise CannotLift("values inside the scan of opset 8 cannot be watched")
        before, loop, first = scan_as_loop(scan, body, self._fresh)
        self._front[path].extend(first)
        around = self._graph(outer)
        around.node.extend([*before, loop])
        loop = around.node[-1]
        return loop, next(item for item in loop.attribute if item.name == "body").g

    def _opset(self, path: RegionPath) -> int:
        of_function = bool(path) and path[0][0] == "function"
        owner = self._graph(path[:1]) if of_function else self.model
        return next((i.version for i in owner.opset_import if i.domain in ("", "ai.onnx")), 1)

    def _home(self, region: RegionPath, name: str) -> RegionPath:
        """Find the innermost graph around `region` that makes the value."""
        for length in range(len(region), -1, -1):
            path = region[:length]
            if path not in self._defined:
                self._defined[path] = set(_defined(self._graph(path)))
            if name in self._defined[path]:
                return path
            if path and path[-1][0] == "function":
                break
        raise CannotLift(f"the value `{name}` is not found")

    def _fresh(self) -> str:
        self._count += 1
        name = f"oprep_twin_{self._count}"
        return self._fresh() if name in self._used else name

    def _node(self, graph: Any, op: str, inputs: list[str], **attributes: Any) -> str:
        """Append a node of the standard domain with one output."""
        from onnx import helper

        graph.node.append(helper.make_node(op, inputs, [self._fresh()], **attributes))
        return str(graph.node[-1].output[0])

    def _value(self, graph: Any, dims: list[int], kind: int, values: list[Any]) -> str:
        """Append a constant."""
        graph.node.append(constant(self._fresh(), dims, kind, values))
        return str(graph.node[-1].output[0])


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

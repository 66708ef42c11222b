"""How a value is carried from where it lives to an output of the model, step by step outwards."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from oprep.converters.scan_loop import constant
from oprep.converters.twin import Column, RegionPath, SiteColumns, TwinPlan, TwinSite
from oprep.converters.twin_copy import CannotLift, TwinCopy
from oprep.converters.twin_types import TwinTypes

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

RECORDED = 1 << 22
"""Elements that an accumulator takes; later iterations of a long loop are not recorded."""

BIG = 1 << 12
FLOAT, INT64, DOUBLE = 1, 7, 11
BRANCHES = {"then_branch": "else_branch", "else_branch": "then_branch"}


class Lifting:
    """Sites and the ways out for their values, built into a copy of a model."""

    def __init__(self, model: ModelProto, plan: TwinPlan, types: TwinTypes) -> None:
        """Copy `model`, which stays as it is."""
        self.types = types
        self.copy = TwinCopy(model, plan)
        self._columns: dict[tuple[RegionPath, str], Column] = {}
        self._outputs = {item.name for item in self.copy.model.graph.output}
        self._tensors: dict[RegionPath, dict[str, Any]] = {}

    def site(self, site: TwinSite) -> SiteColumns:
        """Put one site's replacement beside it and carry out its values."""
        graph = self.copy.graph(site.region)
        if site.region and site.region[0][0] == "function":
            self.copy.import_into(self.copy.graph(site.region[:1]).opset_import)
        graph.node.extend(site.nodes)
        pairs = [pair for pair in site.pairs if all(pair)]
        likely = self._likely(site.region, (pairs[0][0], *site.reads))
        lifted = []
        for original, candidate in pairs:
            kind = self._kind(site.region, original, likely)
            other = self._kind(site.region, candidate, kind)
            one = self._lift(site.region, original, kind)
            lifted.append((one, self._lift(site.region, candidate, other)))
        reads = dict.fromkeys(name for name in site.reads if name)
        return SiteColumns(
            tuple(lifted),
            tuple(self._lift_read(site.region, name, likely) for name in reads),
            self._reached(site.region) if site.region else None,
        )

    def _kind(self, region: RegionPath, name: str, otherwise: int) -> int:
        """Give the element type of a value; what leaves the main graph needs none."""
        return (self.types.of(region, name) or otherwise) if region else otherwise

    def _likely(self, region: RegionPath, names: tuple[str, ...]) -> int:
        """Guess the type of values that have none: a wrong guess is refused by the runtime."""
        known = (self._kind(region, name, 0) for name in names)
        return next((kind for kind in known if kind), FLOAT)

    def _reached(self, region: RegionPath) -> Column:
        """Carry out a flag that is set whenever the region runs."""
        name = ""
        if (region, name) not in self._columns:
            flag = self.copy.value(self.copy.graph(region), [1], INT64, [1])
            self._columns[region, name] = self._lift(region, flag, INT64)
        return self._columns[region, name]

    def _lift_read(self, region: RegionPath, name: str, likely: int) -> Column:
        """Carry out a value whose size alone counts: of big constants only the largest."""
        home = self.copy.home(region, name)
        graph = self.copy.graph(home)
        kind = self._kind(home, name, likely)
        if home not in self._tensors:
            tensors = getattr(graph, "initializer", ())
            self._tensors[home] = {item.name: item for item in tensors}
        tensor = self._tensors[home].get(name)
        if tensor is None or tensor.data_type not in (FLOAT, DOUBLE) or prod(tensor.dims) < BIG:
            return self._lift(home, name, kind)
        if (home, name) not in self._columns:
            sizes = self.copy.node(graph, "Abs", [name])
            largest = self.copy.node(graph, "ReduceMax", [sizes], keepdims=0)
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
        graph = self.copy.graph(region)
        owner = self.copy.owner(region)
        if owner.op_type == "If" and step[1] in BRANCHES:
            other = self.copy.graph((*outer, (step[0], BRANCHES[step[1]])))
            return self._lift(outer, self._out_of_branch(owner, graph, other, name, kind), kind)
        if owner.op_type == "Loop":
            values, shapes = self._out_of_loop(outer, owner, graph, name, kind)
            return ("grown", self._lift(outer, values, kind), self._lift(outer, shapes, INT64))
        raise CannotLift(f"values inside `{owner.op_type}` cannot be watched")

    def _model_output(self, name: str) -> str:
        if name in self._outputs:
            return name
        graph = self.copy.model.graph
        made = self.copy.node(graph, "Identity", [name])
        graph.output.add(name=made)
        return made

    def _out_of_branch(self, owner: NodeProto, graph: Any, other: Any, name: str, kind: int) -> str:
        graph.output.add(name=self.copy.node(graph, "Identity", [name]))
        other.output.add(name=self.copy.value(other, [0], kind, []))
        owner.output.append(self.copy.fresh())
        return str(owner.output[-1])

    def _out_of_loop(
        self, outer: RegionPath, owner: NodeProto, body: Any, name: str, kind: int
    ) -> tuple[str, str]:
        """Add two loop-carried values that grow with each iteration until they are long enough."""
        from onnx import ValueInfoProto

        owner.input.extend([""] * (2 - len(owner.input)))
        while len(owner.output) < len(body.output) - 1:
            owner.output.append(self.copy.fresh())
        values, shapes = self.copy.fresh(), self.copy.fresh()
        flat = self.copy.node(body, "Reshape", [name, self.copy.value(body, [1], INT64, [-1])])
        shape = self.copy.node(body, "Shape", [name])
        rank = self.copy.node(body, "Shape", [shape])
        size = self.copy.node(body, "Cast", [self.copy.node(body, "Size", [values])], to=FLOAT)
        room = self.copy.node(
            body, "Less", [size, self.copy.value(body, [], FLOAT, [float(RECORDED)])]
        )
        grown = self._grow(body, room, {values: [values, flat], shapes: [shapes, rank, shape]})
        made = []
        for carried, after, element in zip((values, shapes), grown, (kind, INT64), strict=True):
            position = len(owner.input) - 2
            self.copy.front[outer].append(constant(self.copy.fresh(), [0], element, []))
            owner.input.append(self.copy.front[outer][-1].output[0])
            body.input.add(name=carried).type.tensor_type.elem_type = element
            body.output.insert(position + 1, ValueInfoProto(name=after))
            owner.output.insert(position, self.copy.fresh())
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
                    made = self.copy.node(graph, "Concat", joined, axis=0)
                else:
                    made = self.copy.node(graph, "Identity", [carried])
                graph.output.add(name=made)
            branches.append(graph)
        names = [self.copy.fresh() for _ in parts]
        attributes = dict(zip(BRANCHES, branches, strict=True))
        body.node.append(helper.make_node("If", [room], names, **attributes))
        return names

    def _carry_out_of_function(self, step: Any, name: str, kind: int) -> Column:
        function = self.copy.graph((step,))
        calls = self.copy.calls_of(step)
        declared = len(function.output)
        function.output.append(self.copy.node(function, "Identity", [name]))
        columns = []
        for path in calls:
            node = self.copy.owner(path)
            node.output.extend(self.copy.fresh() for _ in range(declared - len(node.output)))
            node.output.append(self.copy.fresh())
            columns.append(self._lift(path[:-1], node.output[-1], kind))
        return ("many", tuple(columns))

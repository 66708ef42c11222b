"""An ONNX model as the matcher sees it: the protobuf with an index of our own beside it.

Regions are the main graph, the graphs in attributes (If, Loop, Scan, custom ops) and model-local
functions. Nothing here changes the model; rewriting works on a copy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from oprep.converters.frontends.onnx_constants import Constants, shortest
from oprep.converters.frontends.onnx_schema import schema
from oprep.converters.frontends.onnx_types import Types
from oprep.converters.graph import PRODUCT, SUM, Constant, Opened, Region

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

    from oprep.converters.frontends.onnx_lint import Rows

ARITHMETIC = {
    "Mul": PRODUCT,
    "Div": PRODUCT,
    "Neg": PRODUCT,
    "Pow": PRODUCT,
    "Sqrt": PRODUCT,
    "Reciprocal": PRODUCT,
    "Add": SUM,
    "Sub": SUM,
    "Sum": SUM,
}
SIMPLE = {"Mul": 1, "Div": -1, "Add": 1, "Sub": -1}
EXPONENTS = (-3, -2, -1, -0.5, 0.5, 1, 2, 3, 4)
MOST_TERMS = 16
"""A Sum of more inputs is no sum that a pattern could spell, and is never opened."""
WITH_GRAPHS = frozenset({"If", "Loop", "Scan", "SequenceMap"})
RANDOM = frozenset({
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli",
    "Multinomial",
})  # fmt: skip
GRAPH, GRAPHS = 5, 10


@dataclass(frozen=True, slots=True)
class Reference:
    """An attribute of a function body that takes the value its caller gives."""

    name: str
    kind: int

    def __str__(self) -> str:
        """Name it as messages do."""
        return f"the function's attribute `{self.name}`"


class OnnxView:
    """One region of an ONNX model, with what the matcher asks about it."""

    arithmetic: Mapping[str, str] = ARITHMETIC
    simple: Mapping[str, int] = SIMPLE
    promotes = False

    def __init__(
        self,
        region: Region,
        graph: GraphProto | FunctionProto,
        nodes: list[NodeProto],
        opset: int,
        imports: Mapping[str, int],
        owner: OnnxGraph,
        parent: OnnxView | None,
    ) -> None:
        """Look at one graph; `nodes` are its nodes, `parent` the view around it."""
        self.region = region
        self.graph = graph
        self.nodes = nodes
        self.opset = opset
        self.imports = imports
        self.owner = owner
        self.parent = parent
        self.constants = Constants(self)
        self.constant: Callable[[Any], Constant | None] = self.constants.get

    def is_constant(self, value: Any) -> bool:
        """Tell whether a value is a constant of any size."""
        return self.constants.is_constant(value)

    def written(self, constant: Constant) -> list[Any]:
        """Give the elements of a constant as they were written: 0.1, not 0.10000000149."""
        if not constant.floating:
            return list(constant.items)
        return [shortest(item, constant.dtype) for item in constant.items]

    def not_constant(self, value: Any) -> str:
        """Say why a value is no constant, for a message."""
        scope: OnnxView | None = self
        while scope is not None:
            if scope.constants.overrides(value):
                return (
                    f"`{value}` is an initializer that is also an input, a caller can override it"
                )
            scope = scope.parent
        return f"`{value}` is no constant"

    def open(self, node: int) -> Opened | None:
        """Read a node as part of a product or a sum; None where it is not one."""
        op, got = self.region.ops[node], self.region.inputs[node]
        if op in SIMPLE and len(got) == 2:
            return Opened(ARITHMETIC[op], ((got[0], 1), (got[1], SIMPLE[op])))
        if op == "Neg":
            return Opened(PRODUCT, ((got[0], 1),), -1.0)
        if op == "Sqrt":
            return Opened(PRODUCT, ((got[0], 0.5),))
        if op == "Reciprocal":
            return Opened(PRODUCT, ((got[0], -1),))
        if op == "Sum" and len(got) <= MOST_TERMS:
            return Opened(SUM, tuple((value, 1) for value in got))
        if op == "Pow" and len(got) == 2 and (exponent := self.constant(got[1])) is not None:
            if exponent.scalar in EXPONENTS:
                return Opened(PRODUCT, ((got[0], exponent.scalar),))
        return None

    def attribute(self, node: int, name: str) -> Any:
        """Give an attribute as plain data; None where it is absent."""
        for attribute in self.nodes[node].attribute:
            if attribute.name == name:
                return plain_attribute(attribute)
        return None

    def attributes(self, node: int) -> Sequence[str]:
        """List the attributes that a node carries."""
        return [attribute.name for attribute in self.nodes[node].attribute]

    def dtypes(self, value: Any) -> tuple[str | None, ...]:
        """Give the dtype, one per call of a function; None where unknown."""
        return self.owner.types.dtypes(self, value)

    def shapes(self, value: Any) -> tuple[tuple[int | str | None, ...] | None, ...]:
        """Give the shape, one per call of a function; None where even the rank is unknown."""
        return self.owner.types.shapes(self, value)

    def gives_floats(self, value: Any) -> bool:
        """Tell whether the op that makes a value gives nothing but floating types."""
        node = self.region.producer.get(value)
        return node is not None and self.owner.gives_floats(self.region.ops[node], self.opset)

    @cached_property
    def draws(self) -> bool:
        """Tell whether any node of the region may draw random numbers."""
        return not (RANDOM | {"Dropout"}).isdisjoint(self.region.by_op)

    def random(self, node: int) -> bool:
        """Tell whether a node draws random numbers."""
        op = self.region.ops[node]
        if op == "Dropout":
            got = self.region.inputs[node]
            mode = self.constant(got[2]) if len(got) > 2 and got[2] else None
            return len(got) > 2 and bool(got[2]) and (mode is None or bool(mode.scalar))
        return op in RANDOM

    def hazard(self, nodes: Sequence[int], roots: Sequence[Any], reads: frozenset[Any]) -> str:
        """Give nothing: ONNX changes no value in place."""
        return ""

    @cached_property
    def constant_values(self) -> set[Any] | None:
        """All values made of constants alone; None where outer regions have to be asked, too."""
        return self.constants.own() if self.parent is None else None

    @cached_property
    def repeated(self) -> frozenset[str]:
        """Node names that more than one node of this region has."""
        seen: set[str] = set()
        twice: set[str] = set()
        for node in self.nodes:
            name = node.name
            (twice if name in seen else seen).add(name)
        return frozenset(twice)

    def node_name(self, node: int) -> str:
        """Name a node: its own name where it is one, else op and position; its region before it."""
        return self.names[node]

    @cached_property
    def names(self) -> list[str]:
        """The names of all nodes, as messages print them."""
        prefix = f"{self.region.label}: " if self.region.label else ""
        own = [node.name for node in self.nodes]
        once = len(set(own)) == len(own) and "" not in own
        if once:
            return [prefix + name for name in own] if prefix else own
        repeated = self.repeated
        return [
            prefix + (f"{self.nodes[i].op_type}#{i}" if not name else
                      f"{name}#{i}" if name in repeated else name)
            for i, name in enumerate(own)
        ]  # fmt: skip

    def scope_of(self, node: int) -> str:
        """Give the module path an exporter recorded, else the node's name, dots for slashes."""
        proto = self.nodes[node]
        for entry in proto.metadata_props:
            if entry.key == "pkg.torch.onnx.name_scopes":
                path = _module_path(entry.value)
                if path:
                    return path
        return (proto.name or f"{proto.op_type}#{node}").strip("/").replace("/", ".")

    def value_name(self, value: Any) -> str:
        """Give a tensor's name."""
        return str(value)


class OnnxGraph:
    """A model and its views, main graph first, then nested graphs and functions in file order."""

    def __init__(
        self,
        model: ModelProto,
        *,
        external: Callable[[TensorProto], bytes | None] | None = None,
        leave: frozenset[tuple[str, str]] = frozenset(),
        rows: Rows | None = None,
    ) -> None:
        """Index a linted model; functions named in `leave` (domain, name) are no regions.

        `rows` are what each node of the main graph reads and makes, where the lint has them.
        """
        self.model = model
        self.external = external
        self._rows = rows
        self.types = Types(self)
        self._floats: dict[tuple[str, int], bool] = {}
        imports = {entry.domain: entry.version for entry in model.opset_import}
        self.views: list[OnnxView] = []
        self._add(model.graph, "", (), None, imports)
        for function in model.functions:
            if (function.domain, function.name) in leave:
                continue
            own = {entry.domain: entry.version for entry in function.opset_import}
            step = ("function", function.domain, function.name, function.overload)
            self._add(function, f"function {function.domain}::{function.name}", (step,), None, own)

    def gives_floats(self, op: str, opset: int) -> bool:
        """Tell whether an op of the standard domain gives nothing but floating types."""
        key = (op, opset)
        if key not in self._floats:
            found = schema("", op, opset) if "::" not in op else None
            self._floats[key] = found is not None and found.float_only
        return self._floats[key]

    @property
    def opset(self) -> int:
        """Give the model's version of the standard domain."""
        return self.views[0].opset

    def _add(
        self,
        graph: GraphProto | FunctionProto,
        label: str,
        path: tuple[Any, ...],
        parent: OnnxView | None,
        imports: Mapping[str, int],
    ) -> OnnxView:
        kind = "function" if len(path) == 1 and path[0][0] == "function" else "graph"
        region = Region(label, path, kind, parent.region if parent else None)
        nodes = list(graph.node)
        opset = imports.get("", imports.get("ai.onnx", 1))
        view = OnnxView(region, graph, nodes, opset, imports, self, parent)
        self.views.append(view)
        if kind == "function":
            region.results = frozenset(graph.output)
        else:
            region.results = frozenset(item.name for item in graph.output)
        self._index(view)
        return view

    def _index(self, view: OnnxView) -> None:
        region = view.region
        ops, inputs, outputs = region.ops, region.inputs, region.outputs
        producer, users, by_op = region.producer, region.users, region.by_op
        rows = self._rows if not region.path else None
        if rows is not None:
            region.inputs, region.outputs = rows
        for i, node in enumerate(view.nodes):
            op = node.op_type
            domain = node.domain
            if domain and domain != "ai.onnx":
                op = f"{domain}::{op}"
            # a slice is a list: a third cheaper than iterating the field
            if rows is None:
                got, made = node.input[:], node.output[:]
                inputs.append(got)
                outputs.append(made)
            else:
                got, made = rows[0][i], rows[1][i]
            ops.append(op)
            for value in got:
                if value in users:
                    users[value].append(i)
                else:
                    users[value] = [i]
            for value in made:
                producer[value] = i
            if op in by_op:
                by_op[op].append(i)
            else:
                by_op[op] = [i]
            if op in WITH_GRAPHS or domain:
                self._nested(view, i, node)
        users.pop("", None)
        producer.pop("", None)

    def _nested(self, view: OnnxView, index: int, node: NodeProto) -> None:
        for name, position, graph in graphs_of(node):
            step = (index, name) if position is None else (index, name, position)
            where = node.name or f"{node.op_type}#{index}"
            where = where.removeprefix("/") if view.region.label else where
            prefix = f"{view.region.label}/" if view.region.label else ""
            label = f"{prefix}{where}.{name}" + ("" if position is None else f"[{position}]")
            inner = self._add(graph, label, (*view.region.path, step), view, view.imports)
            own = set(inner.region.producer) | {item.name for item in graph.input}
            own |= {item.name for item in graph.initializer}
            for value, readers in inner.region.users.items():
                if value not in own:
                    view.region.users.setdefault(value, []).extend([index] * len(readers))
            for value in inner.region.results:
                if value not in own:
                    view.region.users.setdefault(value, []).append(index)


def graphs_of(node: NodeProto) -> Iterator[tuple[str, int | None, GraphProto]]:
    """Yield the graphs in a node's attributes: name, position in a list (or None), graph."""
    for attribute in node.attribute:
        kind = attribute.type
        if kind == GRAPH:
            yield attribute.name, None, attribute.g
        elif kind == GRAPHS:
            for position, graph in enumerate(attribute.graphs):
                yield attribute.name, position, graph


def plain_attribute(attribute: AttributeProto) -> Any:
    """Give an attribute's value as numbers, strings and lists; protobufs as they are."""
    from onnx.helper import get_attribute_value

    if attribute.ref_attr_name:
        return Reference(attribute.ref_attr_name, attribute.type)
    kind = attribute.type
    if kind == 1:
        return shortest(attribute.f, "float32")
    if kind == 2:
        return attribute.i
    if kind == 3:
        return attribute.s.decode("utf-8", "replace")
    value = get_attribute_value(attribute)
    if kind == 8:
        return [item.decode("utf-8", "replace") for item in value]
    if kind == 6:
        return [shortest(item, "float32") for item in value]
    return list(value) if kind == 7 else value


QUOTED = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\"""")


def _module_path(recorded: str) -> str:
    """Read the list of scopes that torch's exporter writes; the last one is the op itself."""
    scopes = [one or other for one, other in QUOTED.findall(recorded)]
    return scopes[-2] if len(scopes) > 1 else ""

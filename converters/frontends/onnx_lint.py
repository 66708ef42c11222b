"""Is a model well formed? One walk over the protobuf before rewriting, and one after.

Where onnx's checker and ONNX Runtime both accept a form it passes, where both refuse it is refused;
beyond both, opset numbers, sizes, depth and the growth of function calls are checked. Everything
that a message needs and the walk does not is looked up in onnx_fault.py, after the fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from oprep.converters.frontends.onnx_fault import Place, refused, unmade
from oprep.converters.frontends.onnx_imports import lint_imports, lint_ir_version
from oprep.converters.frontends.onnx_sizes import sparse_fault, tensor_fault
from oprep.converters.memory import uncollected

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto

MAX_DEPTH = 64
MAX_EXPANDED = 50_000_000
TENSOR, GRAPH, TENSORS, GRAPHS, SPARSE, SPARSES = 4, 5, 9, 10, 11, 12
NESTED = frozenset({TENSOR, GRAPH, TENSORS, GRAPHS, SPARSE, SPARSES})

FunctionKey = tuple[str, str, str]


class _Calls(NamedTuple):
    """What a body calls: how often each function, and its own number of nodes."""

    counts: dict[FunctionKey, int]
    nodes: int


Rows = tuple[list[Sequence[str]], list[Sequence[str]]]
"""What each node of the main graph reads, and what it makes, for whoever indexes it next."""

Bodies = dict[FunctionKey | None, _Calls]
"""What each function calls, and under None the main graph with all that is nested in it."""


@dataclass
class _Walk:
    """What is known while one main graph or function is walked.

    `known` holds the names visible here; those of a nested graph leave it with the graph.
    """

    where: str
    functions: frozenset[FunctionKey]
    known: set[str] = field(default_factory=set)
    domains: set[str] = field(default_factory=set)
    calls: dict[FunctionKey, int] = field(default_factory=dict)
    nodes: int = 0
    rows: Rows | None = None


def lint(model: ModelProto, where: str, rows: Rows | None = None) -> None:
    """Refuse (exit 3) a model that is not well formed; the message names node and tensor.

    Reading names out of protobuf is most of the cost: `rows` is filled with those of the main
    graph, so that nobody has to read them again.
    """
    lint_ir_version(model, where)
    keys = [(item.domain, item.name, item.overload) for item in model.functions]
    walk = _Walk(where, frozenset(keys), rows=rows)
    with uncollected():
        _lint_graph(walk, model.graph, Place())
    lint_imports(model, walk.domains, walk.functions, where)
    bodies: Bodies = {None: _Calls(walk.calls, walk.nodes)}
    for key, function in zip(keys, model.functions, strict=True):
        if key in bodies:
            raise refused(f"function `{_shown(key)}` is there twice", where)
        bodies[key] = _lint_function(function, key, walk.functions, where)
    _lint_calls(bodies, where)


def _lint_graph(walk: _Walk, graph: GraphProto, place: Place) -> None:
    if place.depth > MAX_DEPTH:
        raise refused(f"graphs are nested deeper than {MAX_DEPTH}", walk.where, place.described())
    given = _given(walk, graph, place)
    added = [name for name in given if name not in walk.known]
    walk.known.update(added)
    made = _lint_nodes(walk, graph.node, place)
    own = set(made) if place.depth else walk.known
    for output in graph.output:
        name = output.name
        if name not in own and name not in given:
            raise refused(
                f"output `{name}` of {place.described()} is made by no node of it", walk.where
            )
    if place.depth:
        walk.known.difference_update(added)
        walk.known.difference_update(own)


def _given(walk: _Walk, graph: GraphProto, place: Place) -> set[str]:
    """Give the names that a graph has without a node: its inputs and initializers."""
    inputs = [item.name for item in graph.input]
    names = set(inputs)
    if len(names) != len(inputs) or "" in names:
        raise refused(_twice(inputs, "input", place), walk.where)
    initializers = [tensor.name for tensor in graph.initializer]
    initializers += [tensor.values.name for tensor in graph.sparse_initializer]
    if len(set(initializers)) != len(initializers) or "" in initializers:
        raise refused(_twice(initializers, "initializer", place), walk.where)
    for tensor in graph.initializer:
        _refuse_fault(tensor_fault(tensor), f"initializer `{tensor.name}`", walk, place)
    for sparse in graph.sparse_initializer:
        _refuse_fault(sparse_fault(sparse), f"initializer `{sparse.values.name}`", walk, place)
    names.update(initializers)
    _refuse_bytes(names, walk, place)
    return names


def _twice(names: list[str], what: str, place: Place) -> str:
    name = next(name for name in names if not name or names.count(name) > 1)
    if not name:
        return f"an {what} of {place.described()} has no name"
    return f"{what} `{name}` of {place.described()} is there twice"


def _lint_nodes(walk: _Walk, nodes: Sequence[NodeProto], place: Place) -> list[str]:
    """Walk nodes in order; give the names that they made, which stay in `known`."""
    known, local = walk.known, walk.functions
    made: list[str] = []
    labels: set[tuple[str, str]] = set()
    kept = walk.rows if walk.rows is not None and not place.depth else ([], [])
    read, gave = kept[0].append, kept[1].append
    for node in nodes:
        inputs, outputs = node.input[:], node.output[:]  # a slice is a list: half the cost
        read(inputs)
        gave(outputs)
        for name in inputs:
            if name not in known and name:
                raise unmade(name, node, nodes, place, walk.where)
        label = node.domain, node.op_type
        labels.add(label)
        if isinstance(node.name, bytes):
            _refuse_bytes((node.name,), walk, place)
        if local:
            _note_call(walk, *label, node)
        if node.attribute:
            _lint_attributes(walk, node.attribute, node, place)
        for name in outputs:
            if name in known:
                raise _made_twice(name, node, place, walk.where)
            if name:
                known.add(name)
                made.append(name)
    if any(not op_type for _, op_type in labels):
        nameless = next(node for node in nodes if not node.op_type)
        raise refused(f"{place.node(nameless)} has no op type", walk.where)
    walk.nodes += len(nodes)
    walk.domains.update(domain for domain, _ in labels)
    _refuse_bytes(chain(made, *labels), walk, place)
    return made


def _note_call(walk: _Walk, domain: str, op_type: str, node: NodeProto) -> None:
    key = (domain, op_type, node.overload)
    if key in walk.functions:
        walk.calls[key] = walk.calls.get(key, 0) + 1


def _made_twice(name: str, node: NodeProto, place: Place, where: str) -> Exception:
    return refused(
        f"value `{name}` is made twice",
        where,
        f"{place.node(node)} makes it, and it is known there already",
    )


def _refuse_bytes(names: Iterable[object], walk: _Walk, place: Place) -> None:
    """Refuse names that are no UTF-8: protobuf gives those as bytes."""
    for name in names:
        if isinstance(name, bytes):
            raise refused(f"the name {name!r} in {place.described()} is not UTF-8", walk.where)


def _refuse_fault(fault: str, what: str, walk: _Walk, place: Place) -> None:
    if fault:
        raise refused(f"{what} of {place.described()} is not whole", walk.where, fault)


def _lint_attributes(
    walk: _Walk, attributes: Iterable[AttributeProto], node: NodeProto, place: Place
) -> None:
    seen = []
    for attribute in attributes:
        seen.append(attribute.name)
        if attribute.type in NESTED:
            _lint_nested(walk, attribute, node, place)
    if len(set(seen)) != len(seen):
        name = next(name for name in seen if seen.count(name) > 1)
        raise refused(f"attribute `{name}` of {place.node(node)} is there twice", walk.where)


def _lint_nested(walk: _Walk, attribute: AttributeProto, node: NodeProto, place: Place) -> None:
    for graph in _graphs(attribute):
        _lint_graph(walk, graph, place.inside(node, attribute.name))
    what = f"attribute `{attribute.name}` of {place.node(node)}"
    for fault in _tensor_faults(attribute):
        _refuse_fault(fault, f"{what}, a tensor", walk, place)


def _graphs(attribute: AttributeProto) -> Iterator[GraphProto]:
    if attribute.type == GRAPH and not attribute.ref_attr_name:
        yield attribute.g
    elif attribute.type == GRAPHS:
        yield from attribute.graphs


def _tensor_faults(attribute: AttributeProto) -> Iterator[str]:
    if attribute.ref_attr_name:
        return
    if attribute.type == TENSOR:
        yield tensor_fault(attribute.t)
    elif attribute.type == SPARSE:
        yield sparse_fault(attribute.sparse_tensor)
    yield from (tensor_fault(tensor) for tensor in attribute.tensors)
    yield from (sparse_fault(tensor) for tensor in attribute.sparse_tensors)


def _lint_function(
    function: FunctionProto, key: FunctionKey, keys: frozenset[FunctionKey], where: str
) -> _Calls:
    place = Place(function=_shown(key))
    inputs = list(function.input)
    if len(set(inputs)) != len(inputs) or "" in inputs:
        raise refused(_twice(inputs, "input", place), where)
    walk = _Walk(where, keys, known=set(inputs))
    _refuse_bytes((*inputs, *key), walk, place)
    _lint_nodes(walk, function.node, place)
    for name in function.output:
        if name not in walk.known:
            raise refused(f"output `{name}` of {place.described()} is made by no node", where)
    for attribute in function.attribute_proto:
        what = f"attribute `{attribute.name}`"
        for fault in _tensor_faults(attribute):
            _refuse_fault(fault, what, walk, place)
    lint_imports(function, walk.domains, keys, where, place)
    return _Calls(walk.calls, walk.nodes)


def _shown(key: FunctionKey) -> str:
    domain, name, overload = key
    return f"{domain}::{name}" + (f":{overload}" if overload else "")


def _lint_calls(bodies: Bodies, where: str) -> None:
    """Refuse functions that call themselves, or that would expand without measure."""
    sizes: dict[FunctionKey | None, int] = {}
    depths: dict[FunctionKey | None, int] = {}
    for key in _callees_first(bodies, where):
        counts, nodes = bodies[key]
        sizes[key] = nodes + sum(sizes[name] * count for name, count in counts.items())
        depths[key] = 1 + max((depths[name] for name in counts), default=0)
    if depths[None] > MAX_DEPTH + 1:
        note = f"{depths[None] - 1} levels; {MAX_DEPTH} are allowed"
        raise refused("functions call each other too deeply", where, note)
    if sizes[None] > MAX_EXPANDED:
        note = f"{sizes[None]} nodes; {MAX_EXPANDED} are allowed"
        raise refused("the function calls would expand without measure", where, note)


def _callees_first(bodies: Bodies, where: str) -> Iterator[FunctionKey | None]:
    """Give every body after all that it calls; refuse one that calls itself."""
    done: set[FunctionKey | None] = set()
    for root in bodies:
        path: dict[FunctionKey | None, Iterator[FunctionKey]] = {}
        if root not in done:
            path[root] = iter(bodies[root].counts)
        while path:
            key = next(reversed(path))
            called = next(path[key], None)
            if called is None:
                del path[key]
                done.add(key)
                yield key
            elif called in path:
                names = [*path, called][list(path).index(called) :]
                cycle = " -> ".join(f"`{_shown(name)}`" for name in names if name)
                raise refused(f"function `{_shown(called)}` calls itself", where, cycle)
            elif called not in done:
                path[called] = iter(bodies[called].counts)

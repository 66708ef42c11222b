"""What a graph says about the values of its inputs: tables they index, constants they meet.

An integer that ends as the index of a table of N rows lies in 0 … N-1; one that is compared with
16000 should also be 16000. Inputs are followed through casts, reshapes, branches and functions.
A wrong hint does no harm: the original refuses the value, and the refusal is listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

SAME_VALUES = {
    "Cast", "CastLike", "Expand", "Flatten", "Gather", "GatherElements", "Identity", "Reshape",
    "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
}  # fmt: skip
TABLES = {"Gather": {1: 0}, "GatherElements": {1: 0}, "EmbedLayerNormalization": {0: 2, 1: 4}}
COMPARISONS = {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}
FEW, MANY = 16, 1 << 16


@dataclass(frozen=True)
class Hint:
    """`rows` is the size of the smallest table that the input indexes.

    `equal` are constants it is compared with for equality, `ordered` for order; `span` is the
    range of a long constant that it is compared with, as a written-out one-hot does.
    """

    rows: int | None = None
    span: tuple[float, float] | None = None
    equal: tuple[float, ...] = ()
    ordered: tuple[float, ...] = ()


@dataclass(frozen=True)
class _Scope:
    """A graph or function with all graphs nested in it: users and makers of each name."""

    users: dict[str, list[tuple[NodeProto, int]]]
    makers: dict[str, NodeProto]
    tensors: dict[str, TensorProto]
    dims: dict[str, tuple[int, ...]]
    function: Any = None
    calls: list[tuple[_Scope, NodeProto]] = field(default_factory=list)


def hints(model: ModelProto) -> dict[str, Hint]:
    """Follow every graph input to the tables and constants that it meets."""
    main = _scope(model.graph.node, [model.graph])
    functions = {
        (item.domain, item.name, item.overload): _scope(item.node, [], item)
        for item in model.functions
    }
    return {item.name: _follow(item.name, main, functions) for item in model.graph.input}


def _scope(nodes: Iterable[NodeProto], graphs: list[Any], function: Any = None) -> _Scope:
    scope = _Scope({}, {}, {}, {}, function)
    for graph in graphs:
        _note_graph(scope, graph)
    for node in _nested(nodes, scope):
        for position, name in enumerate(node.input):
            scope.users.setdefault(name, []).append((node, position))
        for name in node.output:
            scope.makers[name] = node
    return scope


def _note_graph(scope: _Scope, graph: Any) -> None:
    for tensor in graph.initializer:
        scope.tensors[tensor.name] = tensor
        scope.dims[tensor.name] = tuple(tensor.dims)
    for item in (*graph.value_info, *graph.input):
        shape = item.type.tensor_type.shape.dim
        scope.dims.setdefault(item.name, tuple(dim.dim_value for dim in shape))


def _nested(nodes: Iterable[NodeProto], scope: _Scope) -> Iterator[NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                if graph.node:
                    _note_graph(scope, graph)
                    yield from _nested(graph.node, scope)


def _follow(name: str, main: _Scope, functions: dict[Any, _Scope]) -> Hint:
    rows: list[int] = []
    equal: dict[float, None] = {}
    ordered: dict[float, None] = {}
    span: list[float] = []
    todo, seen = [(main, name)], {(id(main), name)}
    while todo:
        scope, value = todo.pop()
        onward = list(_returned(scope, value))
        for node, position in scope.users.get(value, ()):
            table = TABLES.get(node.op_type, {}).get(position)
            if table is not None:
                rows += _rows(scope, node, table)
            if node.op_type in COMPARISONS:
                values = _constant(scope, node.input[1 - position])
                found = equal if node.op_type == "Equal" else ordered
                found.update(dict.fromkeys(values if len(values) <= FEW else ()))
                span += values if len(values) > FEW else ()
            onward += _onward(scope, node, position, functions)
        todo += [step for step in onward if (id(step[0]), step[1]) not in seen]
        seen.update((id(step[0]), step[1]) for step in onward)
    ends = (min(span), max(span)) if span else None
    return Hint(min(rows, default=None), ends, tuple(equal), tuple(ordered))


def _onward(
    scope: _Scope, node: NodeProto, position: int, functions: dict[Any, _Scope]
) -> Iterator[tuple[_Scope, str]]:
    """Give the names under which the same values go on."""
    inner = functions.get((node.domain, node.op_type, node.overload))
    if inner is not None:
        inner.calls.append((scope, node))
        if position < len(inner.function.input):
            yield inner, inner.function.input[position]
    elif node.op_type == "Concat" or (node.op_type in SAME_VALUES and position == 0):
        for name in node.output:
            yield scope, name


def _returned(scope: _Scope, value: str) -> Iterator[tuple[_Scope, str]]:
    """Give the names that a function's output has where the function was entered."""
    outputs = list(scope.function.output) if scope.function is not None else []
    for caller, node in scope.calls if value in outputs else ():
        if outputs.index(value) < len(node.output):
            yield caller, node.output[outputs.index(value)]


def _rows(scope: _Scope, node: NodeProto, table: int) -> list[int]:
    axis = next((item.i for item in node.attribute if item.name == "axis"), 0)
    found = _dims(scope, node.input[table]) if table < len(node.input) else []
    return [dims[axis] for dims in found if -len(dims) <= axis < len(dims) and dims[axis] > 0]


def _dims(scope: _Scope, name: str) -> list[tuple[int, ...]]:
    """Give the dims of a value, for an input of a function those at each call followed so far."""
    formal = list(scope.function.input) if scope.function is not None else []
    if name not in formal:
        return [scope.dims.get(name, ())]
    given = [(caller, node.input[formal.index(name) :][:1]) for caller, node in scope.calls]
    return [dims for caller, names in given for name in names for dims in _dims(caller, name)]


def _constant(scope: _Scope, name: str, depth: int = 4) -> list[float]:
    """Give the values of a small numeric constant, through casts and reshapes."""
    from onnx import TensorProto, numpy_helper

    tensor = scope.tensors.get(name)
    maker = scope.makers.get(name)
    if tensor is None and maker is not None and maker.op_type in SAME_VALUES and depth:
        return _constant(scope, maker.input[0], depth - 1)
    if tensor is None and maker is not None and maker.op_type == "Constant":
        given = maker.attribute[0] if maker.attribute else None
        if given is None or not given.HasField("t"):
            return [] if given is None else _plain(given)
        tensor = given.t
    if tensor is None or tensor.data_location == TensorProto.EXTERNAL:
        return []
    count = 1
    for dim in tensor.dims:
        count *= dim
    if count > MANY or tensor.data_type in (TensorProto.STRING, TensorProto.BOOL):
        return []
    values = numpy_helper.to_array(tensor).reshape(-1)
    return [] if values.dtype.kind == "c" else [float(value) for value in values]


def _plain(given: Any) -> list[float]:
    """Give the value of `value_float`, `value_int` and their lists."""
    if given.name in ("value_floats", "value_ints"):
        return [float(value) for value in (*given.floats, *given.ints)][:MANY]
    if given.name == "value_int":
        return [float(given.i)]
    return [float(given.f)] if given.name == "value_float" else []

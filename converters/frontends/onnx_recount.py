"""Count again after a rewrite: what no match touched is there, byte for byte, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from oprep.converters.frontends.onnx_graph import OnnxView, graphs_of
from oprep.converters.frontends.onnx_rewrite import leaving
from oprep.converters.match import Match
from oprep.converters.report import CheckResult, Verdict

if TYPE_CHECKING:
    from onnx import ModelProto

    from oprep.converters.frontends.onnx_conversion import Conversion


def recount(
    conversion: Conversion, candidate: ModelProto, matches: Sequence[Match]
) -> tuple[CheckResult, ...]:
    """Compare the two models' parts as multisets: before less the matches, after less the new."""
    graph = conversion.graph
    gone = leaving(graph, matches)
    before = Counter(parts(conversion.model.proto))
    after = Counter(parts(candidate))
    allowed: Counter[tuple[str, bytes]] = Counter()
    for number, leave in gone.items():
        allowed.update(_leaving_parts(graph.views[number], leave))
    lost = before - after - allowed
    # a node that holds graphs changes with what is inside it, and is compared by its parts
    lost = Counter({part: count for part, count in lost.items() if part[0] != "holder"})
    added = after - before
    new_nodes = sum(1 for kind, _ in added.elements() if kind == "node")
    if lost:
        kind, data = next(iter(lost))
        detail = f"{sum(lost.values())} parts that no match touched are gone, first a {kind}"
        detail += f" of {len(data)} bytes"
        return (CheckResult("sites_replaced", "graph", Verdict.FAIL, detail=detail),)
    roots = len(matches)
    if new_nodes < _least_new(matches, graph):
        detail = f"{roots} sites were planned, {new_nodes} new nodes are there"
        return (CheckResult("sites_replaced", "graph", Verdict.FAIL, detail=detail),)
    detail = f"{roots} sites, everything else byte for byte as it was"
    return (CheckResult("sites_replaced", "graph", Verdict.PASS, detail=detail),)


def _least_new(matches: Sequence[Match], graph: Any) -> int:
    """Sites in the main graph must each show as a changed node there."""
    return sum(1 for match in matches if match.view is graph.views[0])


def _leaving_parts(view: OnnxView, leave: Any) -> Iterator[tuple[str, bytes]]:
    graph: Any = view.graph
    outputs: set[str] = set(leave.initializers)
    for index in leave.nodes:
        node = view.nodes[index]
        outputs.update(node.output)
        yield "node", node.SerializeToString(deterministic=True)
    if view.region.kind != "graph":
        return
    for name in ("initializer", "value_info", "input"):
        for item in getattr(graph, name):
            if item.name in outputs:
                yield name, item.SerializeToString(deterministic=True)
    for item in graph.quantization_annotation:
        if item.tensor_name in outputs:
            yield "quantization_annotation", item.SerializeToString(deterministic=True)


def parts(model: ModelProto) -> Iterator[tuple[str, bytes]]:
    """Yield every part of a model with its kind; a node with graphs as its parts."""
    for field, value in model.ListFields():
        if field.name == "graph":
            yield from _graph_parts(value)
        elif field.name == "functions":
            for function in value:
                yield from _function_parts(function)
        elif isinstance(value, int | str | bytes):
            yield field.name, repr(value).encode()
        else:
            items = value if not hasattr(value, "SerializeToString") else [value]
            for item in items:
                yield field.name, item.SerializeToString(deterministic=True)


def _graph_parts(graph: Any) -> Iterator[tuple[str, bytes]]:
    for field, value in graph.ListFields():
        if field.name == "node":
            for node in value:
                yield from _node_parts(node)
        elif isinstance(value, int | str | bytes):
            yield f"graph {field.name}", repr(value).encode()
        else:
            for item in value:
                yield field.name, item.SerializeToString(deterministic=True)


def _node_parts(node: Any) -> Iterator[tuple[str, bytes]]:
    data = node.SerializeToString(deterministic=True)
    nested = list(graphs_of(node)) if node.attribute else []
    if not nested:
        yield "node", data
        return
    yield "holder", data
    bare = type(node)()
    bare.CopyFrom(node)
    for attribute in bare.attribute:
        attribute.ClearField("g")
        attribute.ClearField("graphs")
    yield "node with graphs", bare.SerializeToString(deterministic=True)
    for _, _, graph in nested:
        yield from _graph_parts(graph)


def _function_parts(function: Any) -> Iterator[tuple[str, bytes]]:
    bare = type(function)()
    bare.CopyFrom(function)
    bare.ClearField("node")
    bare.ClearField("opset_import")
    yield "function", bare.SerializeToString(deterministic=True)
    for node in function.node:
        yield from _node_parts(node)
    for entry in function.opset_import:
        yield "function import", entry.SerializeToString(deterministic=True)

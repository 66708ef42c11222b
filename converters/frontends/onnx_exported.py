"""An ONNX model that an exporter wrote, with custom ops as nodes: given the bodies of its ops.

The nodes are there already; what they need is what a conversion of an ONNX model gives them: the
model-local functions, and the imports of their domains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oprep.converters.frontends.onnx_bodies import TENSORS, Bodies, import_domains
from oprep.converters.frontends.onnx_graph import OnnxGraph, OnnxView
from oprep.converters.graph import Many
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.rule import CustomOp

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


@dataclass(frozen=True)
class Call:
    """A node of a custom op, as the bodies look at it."""

    view: OnnxView
    bound: Mapping[str, Any]
    roots: tuple[str, ...]


def index(model: ModelProto, ops: Sequence[CustomOp]) -> OnnxGraph:
    """Index a model; the functions of the ops are no regions of it."""
    return OnnxGraph(model, leave=frozenset((op.onnx.domain, op.onnx.type) for op in ops))


def custom_calls(
    graph: OnnxGraph, ops: Sequence[CustomOp]
) -> Iterator[tuple[OnnxView, int, CustomOp]]:
    """Give every node of one of the ops, in nested graphs and foreign functions, too."""
    named = {str(op.onnx): op for op in ops}
    for view in graph.views:
        for name, op in named.items():
            yield from ((view, node, op) for node in view.region.by_op.get(name, ()))


def count_custom(model: ModelProto, ops: Sequence[CustomOp]) -> dict[str, int]:
    """Count the nodes of each op, by its ONNX name; an op without any has 0."""
    found = Counter(str(op.onnx) for _, _, op in custom_calls(index(model, ops), ops))
    return {str(op.onnx): found[str(op.onnx)] for op in ops}


def without_form(ops: Sequence[CustomOp]) -> list[CustomOp]:
    """Give the ops that an ONNX runtime cannot run: they have no body and no ONNX library."""
    return [op for op in ops if op.body is None and not (op.kernel or op.ort_library)]


def require_forms(ops: Sequence[CustomOp], accepted: bool = False) -> list[str]:
    """Refuse (exit 6) ops without a form for ONNX; where that is accepted give notes on them."""
    missing = without_form(ops)
    if missing and not accepted:
        op = missing[0]
        raise OprepError(
            f"`{op.onnx}` has no form that an ONNX runtime could run",
            str(op.source),
            ("it has neither `body` nor `ort_library` nor `kernel`",
             *(f"the same holds for `{item.onnx}`" for item in missing[1:3])),
            "give the op a `body`, or write a `.pt2`",
            ExitCode.EXPECTATION,
        )  # fmt: skip
    return [f"`{op.onnx}` runs only where a runtime has an op of that name" for op in missing]


def add_bodies(model: ModelProto, ops: Sequence[CustomOp]) -> list[str]:
    """Give a model the functions and imports that its custom nodes need; name the functions.

    Changes `model`. Exit 6 where the model's opset cannot say a body, or a domain is imported in
    another version.
    """
    by_name = {str(op.onnx): op for op in ops} | {op.name: op for op in ops if op.name}
    graph = index(model, ops)
    bodies = Bodies(graph, by_name)
    used: dict[tuple[str, int], CustomOp] = {}
    for view, number, op in custom_calls(graph, ops):
        used[op.onnx.domain, op.onnx.version] = op
        node = view.nodes[number]
        call = Call(view, _bound(op, node), tuple(node.output))
        reason = bodies.missing(call, (op,))
        if reason:
            raise OprepError(
                f"the body of `{op.onnx}` cannot be written",
                view.node_name(number),
                (reason,),
                exit_code=ExitCode.EXPECTATION,
            )
        bodies.attend(call, (node,))
    names = bodies.add_to(model)
    for function in bodies.made.values():
        op = bodies.by_id[function.domain, function.name]
        used[op.onnx.domain, op.onnx.version] = op
    for (domain, version), op in sorted(used.items()):
        import_domains(model, {domain: (version, str(op.source))})
    return names


def _bound(op: CustomOp, node: NodeProto) -> dict[str, Any]:
    """Give the tensors of a node by the op's parameters."""
    tensors = [item for item in op.parameters if item.kind in TENSORS]
    found: dict[str, Any] = {}
    for position, item in enumerate(tensors):
        if item.kind == "tensors":
            found[item.name] = Many(tuple(node.input[position:]))
        elif position < len(node.input) and node.input[position]:
            found[item.name] = node.input[position]
    return found

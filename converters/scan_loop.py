"""A scan written as a loop: the same body, states carried on, one slice of each input per step.

A scan's own outputs need equal shapes in every step and its states may not grow; a loop's may.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

INT64, BOOL = 7, 9


def constant(name: str, dims: list[int], kind: int, values: list[Any]) -> NodeProto:
    """Make a Constant node with one output `name`."""
    from onnx import helper

    tensor = helper.make_tensor("", kind, dims, values)
    return helper.make_node("Constant", [], [name], value=tensor)


def scan_as_loop(
    scan: NodeProto, body: GraphProto, fresh: Callable[[], str]
) -> tuple[list[NodeProto], NodeProto, list[NodeProto]]:
    """Give the nodes before the loop, the loop, and the nodes to be put first in its body.

    The loop's body has the nodes of the scan's at the same indexes; what the scan stacks is left
    out. Of opset 9 or newer.
    """
    from onnx import GraphProto, helper

    count = next(item.i for item in scan.attribute if item.name == "num_scan_inputs")
    states = len(scan.input) - count
    axes = _ints(scan, "scan_input_axes", count)
    backwards = _ints(scan, "scan_input_directions", count)
    step, go, gone, trips, dims, last, axis, one = (fresh() for _ in range(8))
    before = [
        helper.make_node("Shape", [scan.input[states]], [dims]),
        constant(axis, [], INT64, [axes[0]]),
        helper.make_node("Gather", [dims, axis], [trips]),
        constant(one, [], INT64, [1]),
        helper.make_node("Sub", [trips, one], [last]),
    ]
    loop = GraphProto(name=body.name or "body")
    for name, kind in ((step, INT64), (go, BOOL)):
        loop.input.append(helper.make_tensor_value_info(name, kind, []))
    loop.input.extend(body.input[:states])
    loop.initializer.extend(body.initializer)
    loop.node.extend(body.node)
    loop.node.append(helper.make_node("Identity", [go], [gone]))
    loop.output.add(name=gone)
    loop.output.extend(body.output[:states])
    index = fresh()
    first = [helper.make_node("Sub", [last, step], [index])]
    for number in range(count):
        place = index if backwards[number] else step
        slice_of = [scan.input[states + number], place]
        name = body.input[states + number].name
        first.append(helper.make_node("Gather", slice_of, [name], axis=axes[number]))
    inputs = [trips, "", *scan.input[:states]]
    outputs = [fresh() for _ in range(states)]
    return before, helper.make_node("Loop", inputs, outputs, body=loop), first


def _ints(scan: NodeProto, name: str, count: int) -> list[int]:
    found = next((list(item.ints) for item in scan.attribute if item.name == name), [])
    return found or [0] * count

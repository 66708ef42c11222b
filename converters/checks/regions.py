"""Say in words where a graph lies: which branch of which node, and what decides it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oprep.converters.twin import RegionPath

if TYPE_CHECKING:
    from onnx import ModelProto


def describe(model: ModelProto, region: RegionPath) -> str:
    """Name the graph at `region`, from the inside out."""
    graph: Any = model.graph
    found = []
    for step in region:
        if step[0] == "function":
            graph = next(f for f in model.functions if (f.domain, f.name, f.overload) == step[1:])
            found.append(f"function `{graph.domain}::{graph.name}`")
            continue
        node = graph.node[step[0]]
        name = node.name or node.output[0]
        condition = f" (condition `{node.input[0]}`)" if node.op_type == "If" else ""
        found.append(f"`{step[1]}` of {node.op_type} `{name}`{condition}")
        attribute = next(item for item in node.attribute if item.name == step[1])
        graph = attribute.graphs[step[2]] if len(step) > 2 else attribute.g
    return " in ".join(reversed(found)) or "the main graph"

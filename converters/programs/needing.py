"""Which values of a program a gradient goes to when it is trained, by following its graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

BARRIERS = frozenset(("aten::detach", "aten::detach_"))


def needing(exported: ExportedProgram) -> set[Node]:
    """Give the nodes of all graphs whose values a gradient goes to.

    It comes to parameters that ask for one; where a program has no parameters, to floating inputs.
    """
    specs = exported.graph_signature.input_specs
    kinds = [spec.kind.name for spec in specs]
    nodes = [node for node in exported.graph.nodes if node.op == "placeholder"]
    found: set[Node] = set()
    for node, spec in zip(nodes, specs, strict=True):
        kind = spec.kind.name
        if kind == "PARAMETER" and exported.state_dict[str(spec.target)].requires_grad:
            found.add(node)
        elif kind == "USER_INPUT" and "PARAMETER" not in kinds and _floats(node):
            found.add(node)
    _follow(exported.graph_module, found)
    return found


class _Nameless:
    """Stands for the schema of what has none."""

    name = ""


def _floats(node: Node) -> bool:
    made = node.meta.get("val")
    values = made if isinstance(made, tuple | list) else [made]
    return any(
        isinstance(item, Tensor) and (item.is_floating_point() or item.is_complex())
        for item in values
    )


def _follow(graph: GraphModule, found: set[Node]) -> None:
    for node in graph.graph.nodes:
        if node.op != "call_function":
            continue
        if not any(item in found for item in node.all_input_nodes):
            continue
        target: Any = node.target
        if isinstance(target, torch._ops.HigherOrderOperator):
            if target._name == "wrap_with_set_grad_enabled" and node.args[0] is False:
                continue
            _enter(graph, node, found)
            found.add(node)
        elif getattr(getattr(target, "_schema", None), "name", "") not in BARRIERS and _floats(
            node
        ):
            found.add(node)


def _enter(graph: GraphModule, node: Node, found: set[Node]) -> None:
    """Let a gradient go to all floating inputs of the graphs that a node calls."""
    for item in node.all_input_nodes:
        inner = getattr(graph, str(item.target), None) if item.op == "get_attr" else None
        if isinstance(inner, GraphModule):
            starts = [one for one in inner.graph.nodes if one.op == "placeholder"]
            found |= {one for one in starts if _floats(one)}
            _follow(inner, found)

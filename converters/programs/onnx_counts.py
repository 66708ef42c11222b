"""Custom ops counted in a program and in the ONNX model made of it: nothing may get lost.

The exporter merges equal calls on equal values, leaves out what nobody reads, and writes the
condition of a loop twice (before the loop and in it). So a program's calls are counted the same way
before they are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from oprep.converters.op_counts import Counted
from oprep.converters.programs.onnx_translation import op_name
from oprep.opsets.rule import CustomOp

RANDOM = torch.Tag.nondeterministic_seeded


def counted(
    exported: ExportedProgram, ops: Sequence[CustomOp], model: Mapping[str, int]
) -> tuple[Counted, ...]:
    """Compare a decomposed program with the counts of its model."""
    named = {op.name: op for op in ops if op.name is not None}
    plain, merged = Counter[str](), Counter[str]()
    for module, times in _written_modules(exported.graph_module):
        for node, first in _numbered(module):
            op = named.get(op_name(node))
            if op is not None:
                plain[str(op.onnx)] += 1
                merged[str(op.onnx)] += times if first else 0
    return tuple(
        Counted(name, plain[name], merged[name], model.get(name, 0))
        for name in sorted(str(op.onnx) for op in named.values())
    )


def _written_modules(root: GraphModule) -> Iterator[tuple[GraphModule, int]]:
    """Give each graph with the number of times that the exporter writes it."""
    yield root, 1
    waiting = [(root, 1)]
    while waiting:
        module, times = waiting.pop()
        for node in module.graph.nodes:
            for position, name in _graphs_read(node):
                loop = node.target is torch.ops.higher_order.while_loop and position == 0
                inner = getattr(module, name)
                yield inner, times * (2 if loop else 1)
                waiting.append((inner, times * (2 if loop else 1)))


def _graphs_read(node: Node) -> Iterator[tuple[int, str]]:
    if node.op != "call_function":
        return
    for position, argument in enumerate(node.args):
        if isinstance(argument, Node) and argument.op == "get_attr":
            name = str(argument.target)
            if isinstance(getattr(node.graph.owning_module, name, None), GraphModule):
                yield position, name


def _numbered(module: GraphModule) -> Iterator[tuple[Node, bool]]:
    """Give each node, and whether it is read and the first that computes its value."""
    numbers: dict[Any, int] = {}
    value: dict[Node, int] = {}
    used = _read(module)
    for node in module.graph.nodes:
        key: Any = (node.op, node.target, _key(node.args, value), _key(node.kwargs, value))
        random = isinstance(node.target, OpOverload) and RANDOM in node.target.tags
        if node.op in ("placeholder", "output") or random:
            key = node
        first = key not in numbers and node in used
        value[node] = numbers.setdefault(key, len(numbers))
        yield node, first


def _key(argument: Any, value: Mapping[Node, int]) -> Any:
    if isinstance(argument, Node):
        return "value", value[argument]
    if isinstance(argument, list | tuple):
        return tuple(_key(item, value) for item in argument)
    if isinstance(argument, Mapping):
        return tuple((name, _key(item, value)) for name, item in sorted(argument.items()))
    return type(argument).__name__, repr(argument)


def _read(module: GraphModule) -> set[Node]:
    """Give the nodes that an output of the graph depends on."""
    found: set[Node] = set()
    waiting = [node for node in module.graph.nodes if node.op == "output"]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found

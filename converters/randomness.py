"""Tell whether a model draws random numbers: then each of its runs needs a session of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

RANDOM = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}
TRAINING_MODE = 2
"""The input of Dropout without which it draws nothing."""


def draws(model: ModelProto) -> bool:
    """Look for random ops in the main graph, in bodies and branches, and in functions."""
    graphs = (model.graph.node, *(function.node for function in model.functions))
    return any(_draws(node) for nodes in graphs for node in _nested(nodes))


def _draws(node: NodeProto) -> bool:
    if node.op_type == "Dropout":
        return bool("".join(node.input[TRAINING_MODE:]))
    return node.op_type in RANDOM


def _nested(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nested(graph.node)

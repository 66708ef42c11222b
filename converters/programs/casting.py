"""The autocast that each graph of a program runs under: its ops mean something else without it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch.fx import GraphModule, Node

REGION = torch.ops.higher_order.wrap_with_autocast
"""Called with device, dtype, whether it is on, whether it caches, and the graph."""

Casts = tuple[tuple[Any, ...], ...]
"""What is entered around a graph, the outermost first."""


def casts_of(module: GraphModule) -> Mapping[int, Casts]:
    """Give what is entered around each graph of a program, by the `id` of the graph."""
    found: dict[int, Casts] = {}
    _walk(module, (), found)
    return found


def _walk(module: GraphModule, around: Casts, found: dict[int, Casts]) -> None:
    found[id(module.graph)] = around
    inside: dict[str, Casts] = {}
    for node in module.graph.nodes:
        if node.target is REGION and len(node.args) > 4 and isinstance(node.args[4], Node):
            inside[str(node.args[4].target)] = (*around, tuple(node.args[:4]))
    for name, child in module.named_children():
        if isinstance(child, GraphModule):
            _walk(child, inside.get(name, around), found)


def entered(casts: Casts) -> AbstractContextManager[Any]:
    """Enter the autocast regions around a graph."""
    stack = ExitStack()
    for device, dtype, enabled, cached in casts:
        stack.enter_context(torch.autocast(device, dtype, enabled, cached))
    return stack

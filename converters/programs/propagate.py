"""Run a whole program on fake tensors and compare every value with what the graph declares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves, tree_map

from oprep.converters.programs.builders import sizes_of_one_are_like_others
from oprep.converters.programs.casting import Casts, casts_of, entered
from oprep.converters.programs.copying import fake_mode
from oprep.converters.programs.declared import difference

TORCH = ("aten", "prims")
"""Whose ops give the same for all sizes, whatever they ask of them."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One node whose op gives something else than the graph declares."""

    node: str
    op: str
    declared: str
    found: str


def propagate_all(exported: ExportedProgram) -> list[Difference]:
    """Compare what each op of a program gives with what is declared; give every difference.

    Each op is fed with the declared values of what it reads, so that one wrong op is one
    difference. Nothing runs on data, and nothing of the program changes.
    """
    found: list[Difference] = []
    mode = fake_mode(exported.graph_module)
    casts = casts_of(exported.graph_module)
    for label, module in _graphs(exported.graph_module, ""):
        for node in module.graph.nodes:
            if isinstance(node.target, torch._ops.OpOverload) and "val" in node.meta:
                found += _differences(label, node, mode, casts[id(module.graph)])
    return found


def _graphs(module: GraphModule, label: str) -> Iterator[tuple[str, GraphModule]]:
    yield label, module
    for name, child in module.named_children():
        if isinstance(child, GraphModule):
            yield from _graphs(child, f"{label}{name}: ")


def _differences(label: str, node: Node, mode: Any, casts: Casts) -> Iterator[Difference]:
    overload: Any = node.target
    name = f"{label}{node.name}"
    args, kwargs = tree_map(lambda item: _value(node, item), (node.args, node.kwargs))
    around = entered(casts)
    try:
        with mode or nullcontext(), torch.no_grad(), _general_sizes(mode, overload), around:
            result = overload(*args, **kwargs)
    except Exception as error:  # whatever the fake implementation raises is the finding
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        yield Difference(name, str(overload), "a value", text)
        return
    declared, made = tree_leaves(node.meta["val"]), tree_leaves(result)
    if len(declared) != len(made):
        counts = f"{len(declared)} results", f"{len(made)} results"
        yield Difference(name, str(overload), *counts)
        return
    for one, other in zip(declared, made, strict=True):
        differs = difference(one, other)
        if differs is not None:
            yield Difference(name, str(overload), *differs)


@contextmanager
def _general_sizes(mode: Any, overload: Any) -> Iterator[None]:
    """Refuse what holds for some sizes of a free dim only; an op of torch may look at its hint.

    `contiguous` asks of strides what torch cannot tell in general where a dim may be 1; what it
    gives is the same.
    """
    env = getattr(mode, "shape_env", None)
    if env is None:
        yield
        return
    own = overload.namespace in TORCH
    guarded = env.suppress_guards() if own else env.error_on_new_guards()
    with env.ignore_fresh_unbacked_symbols(), guarded, sizes_of_one_are_like_others(mode):
        yield


def _value(node: Node, item: Any) -> Any:
    if not isinstance(item, Node):
        return item
    if "val" in item.meta or item.op != "get_attr":
        return item.meta.get("val")
    held: Any = node.graph.owning_module
    for part in str(item.target).split("."):
        held = getattr(held, part)
    return held

"""A captured program as the matcher sees it: its fx graphs with an index beside them.

Regions are the main graph and every graph that it calls: branches of cond, bodies of while and map,
parts under no_grad or autocast. Nothing here changes the program.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from oprep.converters.graph import Plain, Region, Several
from oprep.converters.programs.constants import width_beside
from oprep.converters.programs.layout import LIST, PLAIN, Layout, key_of, layout_of, named_arguments
from oprep.converters.programs.view import TorchView

CHECKS = frozenset({"aten::_assert_tensor_metadata", "aten::_assert_async.msg",
                    "aten::sym_constrain_range", "aten::sym_constrain_range_for_size",
                    "aten::_assert_scalar"})  # fmt: skip
"""Ops that check a value and give nothing: they are no users of it."""


class TorchValue(str):
    """A value by name. `node` is what makes it; `index` is its position among several results.

    The name is that of an fx node: of the one that picks it (`getitem`) where there are several.
    A result that nobody picks is called `node:index`.
    """

    node: Node
    index: int  # type: ignore[assignment]

    def __new__(cls, name: str, node: Node, index: int = 0) -> TorchValue:
        """Name a result of a node."""
        made = super().__new__(cls, name)
        made.node, made.index = node, index
        return made


class TorchGraph:
    """A program and its views, the main graph first."""

    def __init__(self, exported: ExportedProgram) -> None:
        """Index a program in training IR."""
        self.exported = exported
        self.views: list[TorchView] = []
        self._add(exported.graph_module, "", (), None)

    def _add(
        self,
        module: GraphModule,
        label: str,
        path: tuple[Any, ...],
        parent: TorchView | None,
        scope: str = "",
    ) -> TorchView:
        region = Region(label, path, "graph", parent.region if parent else None)
        index = _Index(region, module)
        view = TorchView(region, module, index.nodes, index.layouts, index.values, self, parent,
                         scope)  # fmt: skip
        self.views.append(view)
        for i, fx in enumerate(index.nodes):
            for name in submodules(fx):
                inner = module.get_submodule(name)
                assert isinstance(inner, GraphModule)
                inside = f"{label}/{name}" if label else name
                view.inner.setdefault(i, []).append(
                    self._add(inner, inside, (*path, ("module", name)), view, view.scope_of(i))
                )
        return view

    @cached_property
    def bound(self) -> dict[str, tuple[str, str]]:
        """What is behind each input of the main graph: kind and name in the state dict."""
        found: dict[str, tuple[str, str]] = {}
        for spec in self.exported.graph_signature.input_specs:
            found[getattr(spec.arg, "name", "")] = (spec.kind.name, spec.target or "")
        return found

    def tensor(self, name: str) -> torch.Tensor | None:
        """Give the tensor behind an input of the main graph that a caller cannot set."""
        kind, target = self.bound.get(name, ("", ""))
        return self.named(target) if kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR") else None

    def named(self, target: str) -> torch.Tensor | None:
        """Give a tensor of the program by its name in the state dict or among the constants."""
        held = self.exported.state_dict.get(target)
        held = self.exported.constants.get(target) if held is None else held
        return held if isinstance(held, torch.Tensor) else None


def submodules(fx: Node) -> Iterator[str]:
    """Give the names of the graphs that a node calls, each once."""
    seen: dict[str, None] = {}
    if isinstance(fx.target, torch._ops.HigherOrderOperator):
        for argument in fx.all_input_nodes:
            if argument.op == "get_attr":
                owner = argument.graph.owning_module
                held = getattr(owner, str(argument.target), None)
                if isinstance(held, GraphModule):
                    seen[str(argument.target)] = None
    yield from seen


class _Index:
    """The lists of a region, filled from an fx graph."""

    def __init__(self, region: Region, module: GraphModule) -> None:
        self.region = region
        self.nodes: list[Node] = []
        self.now: dict[str, str] = {}
        self.layouts: list[Layout | None] = []
        self.values: dict[Node, str] = {}
        self.results: dict[Node, list[str]] = {}
        for fx in module.graph.nodes:
            if fx.op in ("placeholder", "get_attr"):
                self.values[fx] = TorchValue(fx.name, fx)
            elif fx.op == "call_function":
                self.call(fx)
            elif fx.op == "output":
                region.results = frozenset(self.values[item] for item in fx.all_input_nodes)

    def call(self, fx: Node) -> None:
        if fx.target is operator.getitem and isinstance(fx.args[0], Node):
            several = self.results.get(fx.args[0])
            if several is not None and isinstance(fx.args[1], int):
                self.values[fx] = several[fx.args[1]]
                return
        layout = layout_of(fx.target) if isinstance(fx.target, torch._ops.OpOverload) else None
        op = layout.key if layout is not None else foreign(fx)
        region, i = self.region, len(self.nodes)
        inputs = self.inputs(fx, layout)
        outputs = self.outputs(fx)
        self.nodes.append(fx)
        self.layouts.append(layout)
        region.ops.append(op)
        region.inputs.append(inputs)
        region.outputs.append(outputs)
        region.by_op.setdefault(op, []).append(i)
        for value in outputs:
            region.producer[value] = i
        if op not in CHECKS:
            for item in all_uses(fx):
                value = self.values[item]
                region.users.setdefault(self.now.get(value, value), []).append(i)
        if layout is not None:
            self.overwrite(fx, layout, outputs)

    def overwrite(self, fx: Node, layout: Layout, outputs: list[str]) -> None:
        """From a call in place on, who reads its target reads its result."""
        given = named_arguments(layout, fx)
        targets = [given.get(item.name) for item in layout.formals if item.writes]
        for target, result in zip(targets, outputs, strict=False):
            if isinstance(target, Node):
                value = self.values[target]
                self.now[value] = self.now[self.now.get(value, value)] = result

    def outputs(self, fx: Node) -> list[str]:
        """Name the results of a node: several are called as those who pick them."""
        made = fx.meta.get("val")
        if not isinstance(made, tuple | list):
            value = TorchValue(fx.name, fx)
            self.values[fx] = value
            return [value] if made is not None else []
        picked: dict[int, str] = {}
        for user in fx.users:
            if user.target is operator.getitem and isinstance(user.args[1], int):
                picked.setdefault(user.args[1], user.name)
        names: list[str] = [
            TorchValue(picked.get(i, f"{fx.name}:{i}"), fx, i) for i in range(len(made))
        ]
        self.results[fx] = names
        self.values[fx] = TorchValue(fx.name, fx)
        return names

    def inputs(self, fx: Node, layout: Layout | None) -> list[str]:
        """Give the tensors of a call in the order of its layout; absent ones are empty."""
        if layout is None:
            return [self.value(item, None) for item in fx.all_input_nodes]
        given = named_arguments(layout, fx)
        row: list[str] = []
        made = fx.meta.get("val")
        for formal in layout.row:
            argument = given.get(formal.name)
            if formal.kind == LIST:
                items = [self.value(item, made) for item in argument or ()]
                row += items if formal.name == layout.spread else [Several(items)]
            else:
                row.append(self.value(argument, made))
        while row and row[-1] == "":
            row.pop()
        return row

    def value(self, argument: Any, made: Any) -> str:
        if argument is None:
            return ""
        if not isinstance(argument, Node):
            return Plain(argument, width_beside(argument, made))
        value = self.values[argument]
        return self.now.get(value, value)


def all_uses(fx: Node) -> list[Node]:
    """Give the nodes that a call reads, once per read."""
    found: list[Node] = []

    def note(item: Node) -> Node:
        found.append(item)
        return item

    torch.fx.map_arg((fx.args, fx.kwargs), note)
    return found


def foreign(fx: Node) -> str:
    """Name what is called where it is no overload: a higher-order op or a plain function."""
    if isinstance(fx.target, torch._ops.HigherOrderOperator):
        return f"higher_order::{fx.target._name}"
    module = getattr(fx.target, "__module__", "") or ""
    return f"{module.lstrip('_')}::{getattr(fx.target, '__name__', fx.target)}"


__all__ = ["PLAIN", "TorchGraph", "TorchValue", "TorchView", "foreign", "key_of", "submodules"]

"""Which of its own tensors a program may write into; all others need no copy before a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node


def may_be_written(exported: ExportedProgram) -> frozenset[str]:
    """Name the tensors of the state dict and the constants that a run may change.

    All buffers and constants may be (batch norm updates its statistics without saying so); a
    parameter where an op in place reaches it through views, or a graph that is called might.
    """
    specs = exported.graph_signature.input_specs
    kinds = {str(spec.target): spec.kind.name for spec in specs if spec.target is not None}
    names = {*exported.state_dict, *exported.constants}
    parameters = {name for name in names if kinds.get(name) == "PARAMETER"}
    placeholders = [node for node in exported.graph.nodes if node.op == "placeholder"]
    held = {node: str(spec.target) for node, spec in zip(placeholders, specs, strict=True)}
    for module in exported.graph_module.modules():
        if not isinstance(module, GraphModule):
            continue
        for node in module.graph.nodes:
            for start in _written(node):
                if start.op == "placeholder" and start not in held:
                    return frozenset(names)
                parameters.discard(held.get(start, ""))
    shared = {name for name in parameters if _alone(exported, name, parameters)}
    return frozenset(names - shared)


def _written(node: Node) -> Iterator[Node]:
    """Give where the tensors begin that a node writes into, through views of them."""
    schema = getattr(node.target, "_schema", None)
    if not isinstance(schema, torch.FunctionSchema) or not schema.is_mutable:
        return
    formals = [item for item in schema.arguments]
    given: dict[str, Any] = dict(zip((f.name for f in formals), node.args, strict=False))
    given |= node.kwargs
    for formal in formals:
        argument = given.get(formal.name)
        if formal.alias_info is not None and formal.alias_info.is_write:
            for item in argument if isinstance(argument, list | tuple) else [argument]:
                if isinstance(item, Node):
                    yield from _beginnings(item)


def _beginnings(node: Node) -> Iterator[Node]:
    """Follow a value back to whatever it may be a view of: any tensor that its makers read."""
    work, seen = [node], {node}
    while work:
        item = work.pop()
        if item.op != "call_function":
            yield item
            continue
        for before in item.all_input_nodes if _may_be_view(item) else ():
            if before not in seen:
                seen.add(before)
                work.append(before)


def _may_be_view(node: Node) -> bool:
    """Tell whether a result may share memory: the schema says so, or there is none."""
    schema = getattr(node.target, "_schema", None)
    if not isinstance(schema, torch.FunctionSchema):
        return True
    says = any(item.alias_info is not None for item in (*schema.returns, *schema.arguments))
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(
        node.target.name(),  # type: ignore[union-attr]
        "CompositeImplicitAutograd",
    )
    return says or composite


def _alone(exported: ExportedProgram, name: str, parameters: set[str]) -> bool:
    """Tell whether no tensor that may be written to lies in the memory of a parameter."""
    own = exported.state_dict[name].untyped_storage().data_ptr()
    held = {**exported.state_dict, **exported.constants}
    return not any(
        isinstance(other, torch.Tensor)
        and key not in parameters
        and other.untyped_storage().data_ptr() == own
        for key, other in held.items()
    )

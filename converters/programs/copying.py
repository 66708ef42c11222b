"""A copy of a program whose graphs can be changed; weights, constants and examples are shared."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch._export.verifier import SpecViolationError
from torch._guards import detect_fake_mode
from torch._subclasses import FakeTensorMode
from torch.export import ExportedProgram, ExportGraphSignature, ModuleCallEntry
from torch.fx import Graph, GraphModule, Node

from oprep.opsets.errors import ExitCode, OprepError


class Copied:
    """The graphs of a program, copied; `graphs` has them by the path of their region."""

    def __init__(self, exported: ExportedProgram) -> None:
        """Copy every graph of a program, those of branches and bodies too."""
        self.exported = exported
        self.graphs: dict[tuple[Any, ...], Graph] = {}
        self._modules: dict[int, GraphModule] = {}
        self._graph, self._nested = self._copy(exported.graph_module, ())
        self.mode = fake_mode(exported.graph_module)

    def _copy(
        self, module: GraphModule, path: tuple[Any, ...]
    ) -> tuple[Graph, dict[str, GraphModule]]:
        graph = copy_graph(module.graph)
        self.graphs[path] = graph
        nested: dict[str, GraphModule] = {}
        for name, child in module._modules.items():
            if isinstance(child, GraphModule):
                inside = (*path, ("module", name))
                known = self._modules.get(id(child))
                if known is None:
                    inner, deeper = self._copy(child, inside)
                    known = assemble(child, inner, deeper)
                    self._modules[id(child)] = known
                self.graphs[inside] = known.graph
                nested[name] = known
        return graph, nested

    def finish(self) -> ExportedProgram:
        """Give the changed program, valid and complete; raise OprepError where it is not."""
        exported, module = self.exported, self.exported.graph_module
        for inner in self._modules.values():
            inner.graph.lint()
            inner.recompile()
        self._graph.lint()
        root = holder(module, self._nested)
        try:
            made = ExportedProgram(
                root=root,
                graph=self._graph,
                graph_signature=copy_signature(exported.graph_signature),
                state_dict=copy.copy(exported.state_dict),
                range_constraints=copy.copy(exported.range_constraints),
                module_call_graph=[copy_call(entry) for entry in exported.module_call_graph],
                example_inputs=exported.example_inputs,
                constants=copy.copy(exported.constants),
                verifiers=exported.verifiers,
            )
        except SpecViolationError as error:
            raise OprepError(
                "the rewritten program is not valid",
                notes=(str(error).split("\n")[0],),
                exit_code=ExitCode.INTERNAL,
            ) from error
        made.graph_module.meta.update(module.meta)
        return made


def copy_signature(signature: ExportGraphSignature) -> ExportGraphSignature:
    """Copy a signature as far as anything may write to it."""
    return ExportGraphSignature(
        [replace(spec, arg=copy.copy(spec.arg)) for spec in signature.input_specs],
        [replace(spec, arg=copy.copy(spec.arg)) for spec in signature.output_specs],
    )


def copy_call(entry: ModuleCallEntry) -> ModuleCallEntry:
    """Copy the record of a module's call; the structure of its arguments is never written to."""
    if entry.signature is None:
        return replace(entry)
    inputs = [copy.copy(item) for item in entry.signature.inputs]
    outputs = [copy.copy(item) for item in entry.signature.outputs]
    return replace(entry, signature=replace(entry.signature, inputs=inputs, outputs=outputs))


def copy_graph(graph: Graph) -> Graph:
    """Copy an fx graph; nodes keep their names, which a plain copy may change."""
    made: Graph = copy.deepcopy(graph)
    for old, new in zip(graph.nodes, made.nodes, strict=True):
        rename(new, old.name)
    return made


def rename(node: Node, name: str) -> None:
    """Give a node exactly this name, whatever the graph would have made of it."""
    node.name = name
    node.graph._graph_namespace._rename_object(node, name)


def holder(module: GraphModule, nested: Mapping[str, GraphModule]) -> torch.nn.Module:
    """Give a module with the attributes of another one, and other graphs within."""
    made = torch.nn.Module()
    made.training = module.training
    made._parameters.update(module._parameters)
    made._buffers.update(module._buffers)
    made._non_persistent_buffers_set.update(module._non_persistent_buffers_set)
    made._modules.update({**module._modules, **nested})
    for node in module.graph.nodes:
        name = str(node.target).partition(".")[0]
        if node.op == "get_attr" and not hasattr(made, name):
            setattr(made, name, getattr(module, name))
    return made


def assemble(module: GraphModule, graph: Graph, nested: Mapping[str, GraphModule]) -> GraphModule:
    """Make a module of a copied graph, with the attributes of the module it was copied from."""
    made = GraphModule(holder(module, nested), graph, type(module).__name__)
    made.meta.update(module.meta)
    return made


def fake_mode(module: GraphModule) -> FakeTensorMode | None:
    """Give the mode in which a program's values were captured."""
    values = [node.meta["val"] for node in module.graph.nodes if "val" in node.meta]
    return detect_fake_mode(values)

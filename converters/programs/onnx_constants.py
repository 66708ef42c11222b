"""Constant outputs of a program: the exporter fails on numbers and strings, and takes None."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, OutputKind, OutputSpec
from torch.fx import Node

from oprep.converters.programs.copying import copy_graph, holder


def without_constants(exported: ExportedProgram) -> ExportedProgram:
    """Give the program with None for each constant output; the program itself where it has none.

    Only the main graph is copied; all else is shared.
    """
    signature = exported.graph_signature
    if not any(_is_constant(spec) for spec in signature.output_specs):
        return exported
    graph = copy_graph(exported.graph)
    (output,) = graph.find_nodes(op="output")
    given: Any = output.args[0]
    output.args = (tuple(item if isinstance(item, Node) else None for item in given),)
    specs = [_without_value(spec) if _is_constant(spec) else spec
             for spec in signature.output_specs]  # fmt: skip
    return ExportedProgram(
        root=holder(exported.graph_module, {}),
        graph=graph,
        graph_signature=replace(signature, output_specs=specs),
        state_dict=exported.state_dict,
        range_constraints=exported.range_constraints,
        module_call_graph=exported.module_call_graph,
        example_inputs=exported.example_inputs,
        constants=exported.constants,
        verifiers=exported.verifiers,
    )


def _is_constant(spec: OutputSpec) -> bool:
    return (
        spec.kind == OutputKind.USER_OUTPUT
        and isinstance(spec.arg, ConstantArgument)
        and spec.arg.value is not None
    )


def _without_value(spec: OutputSpec) -> OutputSpec:
    return replace(spec, arg=ConstantArgument(spec.arg.name, None))

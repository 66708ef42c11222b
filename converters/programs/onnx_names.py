"""Names of a program in its ONNX model: the outputs' and, where somebody said them, the dims'."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir
from onnx_ir.passes.common import NameFixPass
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
)
from torch.onnx import ONNXProgram


def tensor_inputs(exported: ExportedProgram) -> list[InputSpec]:
    """Give the inputs that a model has: those of the caller, without fixed arguments."""
    return [spec for spec in exported.graph_signature.input_specs
            if spec.kind == InputKind.USER_INPUT
            and not isinstance(spec.arg, ConstantArgument)]  # fmt: skip


def tensor_outputs(exported: ExportedProgram) -> list[OutputSpec]:
    """Give the outputs that a model has: those of the caller, without constants."""
    return [spec for spec in exported.graph_signature.output_specs
            if spec.kind == OutputKind.USER_OUTPUT
            and not isinstance(spec.arg, ConstantArgument)]  # fmt: skip


def name_outputs(model: ir.Model, exported: ExportedProgram, decomposed: ExportedProgram) -> None:
    """Name outputs as the program's signature does; the exporter's steps may have renamed them.

    A name that is there twice, or is an input's, gets a number.
    """
    taken = {str(value.name) for value in model.graph.inputs}
    wanted = [spec.arg.name for spec in tensor_outputs(exported)]
    assert len(wanted) == len(tensor_outputs(decomposed)) == len(model.graph.outputs)
    for value, name in zip(model.graph.outputs, wanted, strict=True):
        fresh, count = name, 0
        while fresh in taken:
            count += 1
            fresh = f"{name}_{count}"
        taken.add(fresh)
        value.name = fresh
    NameFixPass()(model)


def name_dims(written: ONNXProgram, dims: Mapping[tuple[str, int], str]) -> None:
    """Give symbols the names that the user gave the dims in which they stand."""
    names: dict[str | ir.SymbolicDim, str] = {}
    for value in written.model.graph.inputs:
        for axis, dim in enumerate(value.shape or ()):
            name = dims.get((str(value.name), axis))
            if name is not None and isinstance(dim, ir.SymbolicDim) and dim.value is not None:
                names.setdefault(dim.value, name)
    if names:
        written.rename_axes(names)

"""Names of a program in its ONNX model: of inputs, outputs and, where somebody said them, dims."""

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


def output_positions(exported: ExportedProgram) -> tuple[int, ...]:
    """Give where the model's outputs stand among the flat outputs of the program."""
    specs = [spec for spec in exported.graph_signature.output_specs
             if spec.kind == OutputKind.USER_OUTPUT]  # fmt: skip
    return tuple(
        position
        for position, spec in enumerate(specs)
        if not isinstance(spec.arg, ConstantArgument)
    )


def name_ends(model: ir.Model, exported: ExportedProgram) -> None:
    """Name inputs and outputs as the program's signature does; the exporter's steps rename some.

    An output whose name is there already (an input, one value given twice) gets a number.
    """
    taken: set[str] = set()
    for ends, names in (
        (model.graph.inputs, [spec.arg.name for spec in tensor_inputs(exported)]),
        (model.graph.outputs, [spec.arg.name for spec in tensor_outputs(exported)]),
    ):
        for value, name in zip(ends, names, strict=True):
            value.name = _fresh(name, taken)
    NameFixPass()(model)


def _fresh(name: str, taken: set[str]) -> str:
    fresh, count = name, 0
    while fresh in taken:
        count += 1
        fresh = f"{name}_{count}"
    taken.add(fresh)
    return fresh


def name_dims(written: ONNXProgram, dims: Mapping[tuple[str, int], str]) -> None:
    """Give symbols the names that the user gave the dims in which they stand.

    An axis may be counted from the end.
    """
    names: dict[str | ir.SymbolicDim, str] = {}
    for value in written.model.graph.inputs:
        shape = value.shape or ()
        for axis, dim in enumerate(shape):
            name = dims.get((str(value.name), axis), dims.get((str(value.name), axis - len(shape))))
            if name is not None and isinstance(dim, ir.SymbolicDim) and dim.value is not None:
                names.setdefault(dim.value, name)
    if names:
        written.rename_axes(names)

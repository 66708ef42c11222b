"""A program, rewritten or not, as an ONNX model: through torch's own exporter.

Custom ops stay one node each, with their bodies as model-local functions; names of inputs, outputs
and dims are the program's. What ONNX cannot hold (state, fixed arguments) is said in notes. Weights
above `INSIDE` bytes go to a data file in the caller's private folder.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch
from torch.export import ExportedProgram

from oprep.converters.frontends.onnx_exported import add_bodies, count_custom, require_forms
from oprep.converters.op_counts import Counted
from oprep.converters.programs.onnx_constants import without_constants
from oprep.converters.programs.onnx_counts import counted
from oprep.converters.programs.onnx_names import name_dims, name_ends, output_positions
from oprep.converters.programs.onnx_notes import export_notes
from oprep.converters.programs.onnx_translation import called_ops, translations
from oprep.converters.programs.onnx_trouble import explained
from oprep.converters.writing import strip
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.rule import CustomOp

if TYPE_CHECKING:
    from onnx import ModelProto

INSIDE = 256 << 20
"""Weights up to so many bytes stay in the model file."""
NEWEST = 18
"""The exporter writes this opset and newer ones; older ones are converted to afterwards."""
SMALL = 1024
"""Tensors up to so many bytes stay in the model in any case: rules and readers look at them."""
DATA = "model.onnx.data"


@dataclass(frozen=True)
class OnnxExport:
    """What came out: `data` is the file beside which the model's external data lies, if any.

    `functions` are the bodies, `counts` how often each op is called in the program and in the
    model, `outputs` the positions of the model's outputs among the program's flat ones.
    """

    proto: ModelProto
    functions: tuple[str, ...]
    counts: tuple[Counted, ...]
    outputs: tuple[int, ...]
    notes: tuple[str, ...]
    data: Path | None = None


def export_onnx(
    exported: ExportedProgram,
    ops: Sequence[CustomOp] = (),
    *,
    folder: Path | None = None,
    dims: Mapping[tuple[str, int], str] | None = None,
    opset: int | None = None,
    accept_missing: bool = False,
    keep_traces: bool = False,
    inside: int = INSIDE,
    name: str = "program",
) -> OnnxExport:
    """Write a program as an ONNX model; the program stays as it is.

    `ops` are the custom ops that it may call. `dims` names dims: (input, axis) to a name. `folder`
    takes the weights that are more than `inside` bytes. `opset` is a version of the standard
    domain, by default the exporter's. Exit 6: an op without a form for ONNX (unless
    `accept_missing`), a body or a program that this opset cannot say.
    """
    used = list(dict.fromkeys(op for _, _, op in called_ops(exported, ops)))
    notes = require_forms(used, accept_missing)
    written = _translated(without_constants(exported), ops, opset, name)
    assert written.exported_program is not None
    decomposed = written.exported_program
    share_weights(written.model)
    name_ends(written.model, exported)
    name_dims(written, dims or {})
    proto, data = _serialised(written.model, folder, inside)
    _require_opset(proto, opset, name)
    if not keep_traces:
        strip(proto)
    functions = add_bodies(proto, [op for op in ops if op.body is not None])
    counts = counted(decomposed, used, count_custom(proto, used))
    return OnnxExport(
        proto,
        tuple(functions),
        counts,
        output_positions(exported),
        (*notes, *export_notes(exported, decomposed)),
        data,
    )


def _translated(
    exported: ExportedProgram, ops: Sequence[CustomOp], opset: int | None, name: str
) -> torch.onnx.ONNXProgram:
    # without gradients: with them the exporter computes other strides for attention with a mask
    # that is made of parameters than the capture did, and refuses the views behind it
    with _quiet(), torch.no_grad():
        try:
            written = torch.onnx.export(
                exported,
                (),
                dynamo=True,
                verbose=False,
                opset_version=opset,
                custom_translation_table=translations(exported, ops),
            )
        except Exception as error:
            raise explained(error, name) from error
    assert written is not None
    return written


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what the exporter logs and warns of its own parts away from the user."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def share_weights(model: ir.Model) -> None:
    """Let initializers that are one tensor of the program be one again: the exporter doubles them.

    A tied weight has an input of its own at each place where it is used.
    """
    first: dict[Any, ir.Value] = {}
    for value in list(model.graph.initializers.values()):
        raw = getattr(value.const_value, "raw", None)
        if not isinstance(raw, torch.Tensor) or not raw.numel():
            continue
        key = (raw.data_ptr(), raw.dtype, tuple(raw.shape), raw.stride())
        kept = first.setdefault(key, value)
        if kept is not value and not value.is_graph_output():
            ir.convenience.replace_all_uses_with(value, kept)
            del model.graph.initializers[str(value.name)]


def _serialised(
    model: ir.Model, folder: Path | None, inside: int
) -> tuple[ModelProto, Path | None]:
    """Give the model, its weights inside or in a file of the folder."""
    size = sum(value.const_value.nbytes for value in model.graph.initializers.values()
               if value.const_value is not None)  # fmt: skip
    if size <= inside:
        return ir.serde.serialize_model(model), None
    if folder is None:
        raise OprepError(
            f"the weights have {size} bytes, and there is no folder for them",
            notes=(f"up to {inside} bytes stay in the model",),
            help="give an output file",
            exit_code=ExitCode.LIMIT,
        )
    ir.external_data.unload_from_model(model, folder, DATA, size_threshold_bytes=SMALL)
    return ir.serde.serialize_model(model), folder / DATA


def _require_opset(proto: ModelProto, opset: int | None, name: str) -> None:
    """Refuse a model that the exporter could not bring to the opset asked for."""
    own = {entry.domain: entry.version for entry in proto.opset_import}.get("", 0)
    if opset is not None and own != opset:
        raise OprepError(
            f"`{name}` cannot be written in opset {opset}",
            notes=(f"the exporter writes opset {NEWEST} and newer, and could not go back further"
                   f" than {own}",),
            help=f"ask for opset {own}",
            exit_code=ExitCode.EXPECTATION,
        )  # fmt: skip

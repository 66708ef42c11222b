"""A program's graph as the JSON of its archive, without a weight, constant or pickle beside it."""

from __future__ import annotations

import io
import warnings

import torch
from torch._export.serde.serialize import SerializeError, serialize
from torch.export import ExportedProgram

from oprep.opsets.errors import ExitCode, OprepError


def model_json(exported: ExportedProgram, *, traces: bool = True) -> bytes:
    """Give the entry `models/model.json` of a program, for an archive that has its weights.

    The names of weights and constants are those of the program that the archive was made of.
    Without `traces` the source lines of the nodes are left out.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            artifact = serialize(
                exported if traces else without_traces(exported),
                serialize_state_dict=False,
                serialize_constants=False,
                serialize_example_inputs=False,
            )
        except SerializeError as error:
            raise _unsaid(error) from error
    return artifact.exported_program


def _unsaid(error: SerializeError) -> OprepError:
    return OprepError(
        "the rewritten program cannot be written",
        notes=(str(error).strip().split("\n")[0],),
        help="leave out the rule whose op an archive cannot hold",
        exit_code=ExitCode.OUTPUT,
    )


def without_traces(exported: ExportedProgram) -> ExportedProgram:
    """Give a copy of a program whose nodes do not say on which line of which file they arose."""
    from oprep.converters.programs.copying import Copied

    copied = Copied(exported)
    for graph in copied.graphs.values():
        for node in graph.nodes:
            node.meta.pop("stack_trace", None)
    return copied.finish()


def saved(exported: ExportedProgram, file: str = "") -> bytes:
    """Write a program as torch does, to a file of its own or, without one, into memory.

    Raise OprepError (exit OUTPUT) for a program that no archive can hold.
    """
    held = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.export.save(exported, file or held)
    except SerializeError as error:
        raise _unsaid(error) from error
    return held.getvalue()

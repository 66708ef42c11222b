"""Capture a model as a program in training IR, whatever it is: file, factory or object.

`auto` captures through torch.export; a module that it refuses is traced where nothing that
depends on data is frozen by that. Only `trace` freezes, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn
from torch.export import ExportedProgram

from oprep.converters.dynamic_dims import OPTION, DynamicDim
from oprep.converters.program_inputs import Given
from oprep.converters.program_source import Source
from oprep.converters.programs import tracing
from oprep.converters.programs.archive import loaded
from oprep.converters.programs.example_sets import example_sets
from oprep.converters.programs.exporting import refused
from oprep.converters.programs.factory import build
from oprep.converters.programs.given_calls import bound_to_program
from oprep.converters.programs.held import same_random_state
from oprep.converters.programs.module_capture import (
    Subject,
    Wanted,
    call_of,
    capture_module,
    export_as_wanted,
    finished,
    separate,
)
from oprep.converters.programs.pickles import script, unpickled
from oprep.converters.programs.program import Example, Program
from oprep.converters.programs.torchscript import reloaded, script_module, script_signature
from oprep.opsets.errors import ExitCode, OprepError

MODES = ("auto", "export", "trace")
"""`auto` is export, then a harmless trace; `trace` is what the user takes upon himself."""


def capture(
    source: Source | nn.Module | ExportedProgram,
    *,
    mode: str = "auto",
    dynamic: Sequence[DynamicDim] = (),
    given: Sequence[Given | Example] = (),
) -> Program:
    """Give the program that a source stands for; an object that the caller holds stays as it is.

    Given sets become the program's examples, else those of the archive or factory are. Raise
    OprepError (exit 3) for what cannot be loaded or captured.
    """
    wanted = Wanted(mode, tuple(dynamic), tuple(given))
    with same_random_state():
        if isinstance(source, ExportedProgram):
            return _archive(source, "ExportedProgram", "object", wanted)
        if isinstance(source, nn.Module):
            return _module(source, type(source).__name__, "object", (), wanted)
        if source.kind == "pt2":
            return _archive(loaded(source.name, source.content), source.name, "pt2", wanted)
        if source.kind == "torchscript":
            return _script(script(source), source.name, "torchscript", wanted)
        if source.kind == "pickle":
            return _module(unpickled(source), source.name, "pickle", (), wanted)
        built = build(source)
        if isinstance(built.model, ExportedProgram):
            return _archive(built.model, source.name, "factory", wanted, built.notes)
        made = _module(built.model, source.name, "factory", built.examples, wanted)
        return replace(made, notes=(*built.notes, *made.notes))


def _archive(
    exported: ExportedProgram,
    name: str,
    format: str,
    wanted: Wanted,
    notes: tuple[str, ...] = (),
) -> Program:
    """Take a program as it is; given sets replace its own example."""
    _refuse_options(name, wanted, "it was exported already", "export it again with other dims")
    own = exported.example_inputs
    found = () if own is None else (Example("example", tuple(own[0]), dict(own[1])),)
    program = Program(exported, name, format, "archive", found, notes)
    return replace(program, examples=bound_to_program(program, wanted.given) or found)


def _module(
    model: nn.Module, name: str, format: str, own: tuple[Example, ...], wanted: Wanted
) -> Program:
    if isinstance(model, torch.jit.ScriptModule):
        return _script(model, name, format, wanted)
    return capture_module(model, name, format, own, wanted)


def _script(model: torch.jit.ScriptModule, name: str, format: str, wanted: Wanted) -> Program:
    """Convert TorchScript, then export the result with its names and free dims."""
    if wanted.mode == "trace":
        _refuse_mode(name, "it was traced or scripted already")
    signature = script_signature(model)
    example = separate(call_of(None, signature, name, format, (), wanted), model)
    module = script_module(reloaded(model) if format == "object" else model, example, name)
    subject = Subject(module, name, example)
    try:
        exported = export_as_wanted(subject, wanted, strict=False, copied=lambda it: it)
    except OprepError:
        raise
    except Exception as error:  # torch's errors have no common type
        raise refused(name, error, "") from error
    original = Subject(model, name, example)
    program = finished(original, exported, (format, "export"), (), wanted, ())
    others = [item for item in example_sets(replace(program, examples=()), (), 1) if item.whole]
    tracing.compare(model, program.exported, tracing.Trace(module, ()), others, name)
    return program


def _refuse_options(name: str, wanted: Wanted, why: str, help: str) -> None:
    if wanted.dynamic:
        raise OprepError(
            f"the dims of `{name}` are fixed",
            where=OPTION,
            notes=(f"`{wanted.dynamic[0]}` was asked for; {why}",),
            help=help,
            exit_code=ExitCode.USAGE,
        )
    if wanted.mode == "trace":
        _refuse_mode(name, why)


def _refuse_mode(name: str, why: str) -> None:
    raise OprepError(
        f"`{name}` cannot be traced",
        where="--capture",
        notes=(why,),
        help="leave `--capture` out",
        exit_code=ExitCode.USAGE,
    )

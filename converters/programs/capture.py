"""Capture a model as a program in training IR, whatever it is: file, factory or object."""

from __future__ import annotations

import io
from collections.abc import Sequence

import torch
from torch import nn
from torch.export import ExportedProgram

from oprep.converters.dynamic_dims import DynamicDim
from oprep.converters.program_source import Source
from oprep.converters.programs.exporting import export, quiet, refused
from oprep.converters.programs.factory import build
from oprep.converters.programs.held import private_copy, same_random_state
from oprep.converters.programs.input_names import in_order
from oprep.converters.programs.program import Example, Program
from oprep.converters.programs.user_code import told
from oprep.opsets.errors import ExitCode, OprepError

MODES = ("auto", "export", "trace")
HOW_TO_GIVE = "write `example_inputs()` beside the factory, or pass `--inputs`"


def capture(
    source: Source | nn.Module | ExportedProgram,
    *,
    mode: str = "auto",
    dynamic: Sequence[DynamicDim] = (),
    given: Sequence[Example] = (),
) -> Program:
    """Give the program that a source stands for; an object that the caller holds stays as it is."""
    with same_random_state():
        if isinstance(source, ExportedProgram):
            return _archive(source, type(source).__name__, "object", given)
        if isinstance(source, nn.Module):
            copied = private_copy(source)
            return _module(copied, type(source).__name__, "object", tuple(given))
        if source.kind == "pt2":
            return _archive(_loaded(source), source.name, "pt2", given)
        built = build(source)
        if isinstance(built.model, ExportedProgram):
            return _archive(built.model, source.name, "factory", given, built.notes)
        examples = (*given, *built.examples)
        return _module(built.model, source.name, "factory", examples, built.notes)


def _loaded(source: Source) -> ExportedProgram:
    try:
        with quiet():
            return torch.export.load(io.BytesIO(source.data))
    except Exception as error:  # the archive decides what is raised
        raise OprepError(
            f"`{source.name}` cannot be loaded",
            where=source.name,
            notes=(told(error),),
            exit_code=ExitCode.MODEL,
        ) from error


def _archive(
    exported: ExportedProgram,
    name: str,
    format: str,
    given: Sequence[Example],
    notes: tuple[str, ...] = (),
) -> Program:
    own = exported.example_inputs
    found = () if own is None else (Example("example", tuple(own[0]), dict(own[1])),)
    return Program(exported, name, format, "archive", (*given, *found), notes)


def _module(
    model: nn.Module,
    name: str,
    format: str,
    examples: tuple[Example, ...],
    notes: tuple[str, ...] = (),
) -> Program:
    if not examples:
        raise OprepError(
            f"nothing tells which inputs `{name}` takes",
            where=name,
            help=HOW_TO_GIVE,
            exit_code=ExitCode.MODEL,
        )
    first = examples[0]
    ordered = in_order(model, first.args, first.kwargs, first.name)
    example = Example(first.name, first.args, ordered)
    try:
        exported = export(model, example)
    except Exception as error:
        raise refused(name, error, "pass `--capture trace`") from error
    return Program(exported, name, format, "export", (example, *examples[1:]), notes)

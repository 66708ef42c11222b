"""Objects out of files that the user trusts: pickled modules and TorchScript. Code in them runs."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

from oprep.converters.program_source import Source
from oprep.converters.programs.exporting import quiet
from oprep.converters.programs.user_code import place, told
from oprep.opsets.errors import ExitCode, OprepError


def unpickled(source: Source) -> nn.Module:
    """Load a pickled module; its classes are looked for beside the file too."""
    folder = str(source.folder)
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        with quiet():
            found = torch.load(source.stream(), map_location="cpu", weights_only=False)
    except Exception as error:  # the pickle decides what is raised
        raise _not_unpickled(source, error) from error
    if not isinstance(found, nn.Module):
        raise OprepError(
            f"`{source.name}` holds a `{type(found).__name__}`, not a model",
            where=source.name,
            help="name what builds the model: `oprep convert model.py:build --weights "
            f"{source.name}`",
            exit_code=ExitCode.MODEL,
        )
    return found


def _not_unpickled(source: Source, error: Exception) -> OprepError:
    missing = isinstance(error, ModuleNotFoundError | AttributeError)
    note = "the class is looked for where the file lies and among what is installed"
    return OprepError(
        f"`{source.name}` cannot be loaded",
        where=place(error) or source.name,
        notes=(told(error), *((note,) if missing else ())),
        help="save `module.state_dict()` and name the code, as `model.py:build --weights FILE`",
        exit_code=ExitCode.MODEL,
    )


def script(source: Source) -> torch.jit.ScriptModule:
    """Load a TorchScript archive."""
    try:
        with quiet():
            load: Any = torch.jit.load
            found: torch.jit.ScriptModule = load(source.stream(), map_location="cpu")
    except Exception as error:  # the archive decides what is raised
        raise OprepError(
            f"`{source.name}` cannot be loaded as TorchScript",
            where=source.name,
            notes=(_unknown_op(error) or told(error),),
            exit_code=ExitCode.MODEL,
        ) from error
    return found


def _unknown_op(error: Exception) -> str:
    text = str(error).partition("Unknown builtin op: ")[2]
    return f"nothing here knows the op `{text.split()[0].rstrip('.')}`" if text else ""

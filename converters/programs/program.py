"""A captured program, as every step on the PyTorch side takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch.export import ExportedProgram


@dataclass(frozen=True)
class Example:
    """One set of inputs as the program's call takes them; tensors may lie in nested containers.

    `whole` says whether they may feed the whole program (large values feed sites alone), `usual`
    whether their values have the size that a model is used with.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    whole: bool = True
    usual: bool = True


@dataclass(frozen=True)
class Program:
    """A program in training IR and how it came to be.

    `format` is that of the file (`pt2`, `torchscript`, `pickle`, `factory`, `object`), `capture`
    how it was captured (`archive`, `export`, `trace`). `examples` are inputs that it takes: those
    of the archive, of the factory or of the user. `notes` go into the report. `dims` gives by
    symbol (`s77`) the names that the user gave to dims. Nobody changes `exported`, and nobody runs
    `exported.module()` without resetting the state it shares.
    """

    exported: ExportedProgram
    name: str
    format: str
    capture: str
    examples: tuple[Example, ...] = ()
    notes: tuple[str, ...] = ()
    dims: Mapping[str, str] = field(default_factory=dict)

"""Which side a model belongs to, ONNX or PyTorch: told by its first bytes, or by its type."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from oprep.converters.files import holding
from oprep.converters.program_source import HOW_TO_NAME, is_factory
from oprep.opsets.errors import ExitCode, OprepError

ZIP = (b"PK\x03\x04", b"PK\x05\x06")
PICKLE, PROTOCOLS = 0x80, range(2, 6)


def is_program(model: Any) -> bool:
    """Tell whether a model is a PyTorch program: an archive, a pickle, a factory or an object."""
    if not isinstance(model, str | Path):
        torch = sys.modules.get("torch")
        if torch is None:
            return False
        from torch.export import ExportedProgram

        return isinstance(model, torch.nn.Module | ExportedProgram)
    if is_factory(model):
        return True
    path = Path(model)
    _require_no_code(path)
    with holding(path) as file:
        head = file.read_at(0, min(4, file.size))
    return head in ZIP or (len(head) > 1 and head[0] == PICKLE and head[1] in PROTOCOLS)


def _require_no_code(path: Path) -> None:
    """Refuse (exit 2) a Python file without the name of what builds the model in it."""
    if path.suffix == ".py" and path.is_file():
        raise OprepError(
            f"`{path.name}` is Python code, not a model",
            str(path),
            help=HOW_TO_NAME,
            exit_code=ExitCode.USAGE,
        )

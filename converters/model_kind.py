"""Which side a model belongs to, ONNX or PyTorch: told by its first bytes, or by its type."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from oprep.converters.files import holding
from oprep.converters.program_source import is_factory

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
    with holding(path) as file:
        head = file.read_at(0, min(4, file.size))
    return head in ZIP or (len(head) > 1 and head[0] == PICKLE and head[1] in PROTOCOLS)

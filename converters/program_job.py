"""What a conversion of a PyTorch model was asked for, as one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oprep.converters.settings import Settings

SUFFIXES = (".pt2", ".onnx")
"""How the name of an artifact ends, which says its format."""


@dataclass(frozen=True)
class ProgramJob:
    """The arguments of `convert` for a PyTorch model, checked one by one already."""

    model: Any
    rules: tuple[Any, ...]
    opset: tuple[str, ...]
    output: Path | None
    inputs: tuple[Path | Mapping[str, Any], ...]
    settings: Settings
    verify: bool
    dry_run: bool
    plan: Path | None
    plan_out: Path | None
    max_bytes: int | None
    in_place: bool
    keep_traces: bool
    save_inputs: Path | None
    no_code: bool
    weights: Path | None
    trust_model: bool
    capture: str
    dynamic: tuple[str, ...]
    grad: bool | None
    say: Callable[[str], None]

    @property
    def explain(self) -> bool:
        """Tell whether near misses of all rules are wanted."""
        return self.dry_run or self.plan_out is not None

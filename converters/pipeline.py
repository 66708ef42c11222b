"""Load, capture, match, replace, verify, write: the whole of what oprep does, on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oprep.converters.report import OpTable, Report


def convert(
    model: Any,
    *,
    rules: Sequence[Any] = (),
    opset: Sequence[str] = (),
    output: str | Path | None = None,
    inputs: Sequence[str | Path] = (),
    seed: int = 0,
    timeout: float = 120.0,
    verify: bool = True,
    dry_run: bool = False,
    plan: str | Path | None = None,
    plan_out: str | Path | None = None,
    accept: Sequence[str] = (),
    max_rtol: float | None = None,
    max_atol: float | None = None,
    max_bytes: int | None = None,
    external_data_root: str | Path | None = None,
    in_place: bool = False,
    strip_traces: bool = False,
    save_inputs: str | Path | None = None,
    timings: bool = False,
    progress: Any = None,
) -> Report:
    """Replace ops in a model as the rules say, prove the result and write it."""
    raise NotImplementedError


def verify(
    original: Any,
    converted: Any,
    *,
    inputs: Sequence[str | Path] = (),
    seed: int = 0,
    timeout: float = 120.0,
    accept: Sequence[str] = (),
    max_rtol: float | None = None,
    max_atol: float | None = None,
    max_bytes: int | None = None,
    external_data_root: str | Path | None = None,
    save_inputs: str | Path | None = None,
    provenance: bool = False,
    timings: bool = False,
    progress: Any = None,
) -> Report:
    """Compare a converted model with its original, at the sites of its sidecar and end to end."""
    raise NotImplementedError


def list_ops(
    model: Any = None,
    *,
    rules: Sequence[Any] = (),
    opset: Sequence[str] = (),
    max_bytes: int | None = None,
    external_data_root: str | Path | None = None,
) -> OpTable:
    """List the ops of a model, or without a model the shipped opsets and their ops."""
    raise NotImplementedError

"""What a command hands to the one place that runs it: a call, and how its result is wanted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from oprep.converters.report import OpTable, Report

Progress: TypeAlias = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """Say how to show a result: one JSON document or text, more or less of it, report files."""

    json: bool = False
    reports: tuple[Path, ...] = ()
    quiet: bool = False
    verbose: bool = False
    debug: bool = False


@dataclass(frozen=True)
class Job:
    """A call of the pipeline with everything but the progress listener filled in."""

    call: Callable[[Progress | None], Report | OpTable]
    wanted: Wanted

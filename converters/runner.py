"""The only starter of child processes: whatever runs a model, a kernel or a compiler runs there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class Limits:
    """Seconds of wall time per call and bytes of address space of the child (None: no limit)."""

    seconds: float = 120.0
    memory: int | None = None


@dataclass(frozen=True)
class Ended:
    """How one call ended.

    `outcome` is `ok`, `error` (the task raised: `error` has type and message), `crashed`
    (signal or exit without a result), `timed out` or `memory`. `value` is JSON-like data
    with numpy arrays inside. `began` is the last thing the task said it began.
    """

    outcome: str
    value: Any = None
    error: str = ""
    began: str = ""
    signal: str = ""
    stdout: str = ""
    stderr: str = ""
    sandboxed: bool = False


class Child:
    """A fresh interpreter that runs tasks one after another until it dies; then a new one.

    A task is named `package.module:function`; it is called as `function(payload, say)` where
    `payload` is JSON-like data (numpy arrays and bytes allowed) and `say(text)` records
    what is about to begin. Own session, limits, allowlisted environment, private working and
    temp folder, Landlock where the kernel has it (reads only `readable` beside the system's),
    results over a separate descriptor with a nonce, never pickle; stdout and stderr captured.
    """

    def __init__(self, *, readable: tuple[Path, ...] = (), limits: Limits | None = None) -> None:
        raise NotImplementedError

    def call(self, task: str, payload: Mapping[str, Any], limits: Limits | None = None) -> Ended:
        """Run one task; start the interpreter if there is none alive."""
        raise NotImplementedError

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill the whole process group and remove the private folder."""


_ = field

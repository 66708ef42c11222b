"""A program that is open in a child, from the parent's side: opened again when the child died."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from oprep.converters.runner import Ended, Limits
from oprep.converters.runs import Trouble, trouble_of
from oprep.opsets.errors import OprepError

TASKS = "oprep.converters.programs.proving"

OPEN_SECONDS = 600.0
"""Least limit for opening a program: a capture takes longer than a run."""


@dataclass(frozen=True)
class Opening:
    """How a child gets a program: `task(payload, say)`, named `package.module:function`.

    It gives a `Subject`, a `Program` or an `ExportedProgram`, with its ops registered.
    """

    task: str
    payload: Mapping[str, Any] = field(default_factory=dict)


class Caller(Protocol):
    """What runs tasks: a `Child`, or this very process."""

    def call(self, task: str, payload: Mapping[str, Any], limits: Limits | None = None) -> Ended:
        """Run one task."""

    def close(self) -> None:
        """End it."""


class InProcess:
    """Runs tasks here, for a program that a caller holds as an object."""

    def call(self, task: str, payload: Mapping[str, Any], limits: Limits | None = None) -> Ended:
        """Run one task; an exception is a result. There is no limit."""
        began: list[str] = []
        module, _, name = task.partition(":")
        try:
            value = getattr(importlib.import_module(module), name)(payload, began.append)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            if isinstance(error, OprepError):
                said = error.line()
            return Ended("error", error=said, began=began[-1] if began else "", sandboxed=True)
        return Ended("ok", value=value, sandboxed=True)

    def close(self) -> None:
        """Let go of the program."""
        self.call(f"{TASKS}:close_programs", {})


class Side:
    """One program in one process; `what` is it called in messages, `told` what it said of itself.

    `began` is what the last call without a result had begun.
    """

    def __init__(
        self,
        start: Callable[[], Caller],
        opening: Opening,
        what: str,
        seconds: float,
        memory: int | None = None,
    ) -> None:
        """Note how to open it; nothing starts yet."""
        self._start, self._opening, self.what = start, opening, what
        self._limits = Limits(seconds=seconds, memory=memory)
        self._opening_limits = Limits(seconds=max(seconds, OPEN_SECONDS), memory=memory)
        self._caller: Caller | None = None
        self._open = self._lent = False
        self.told: dict[str, Any] = {}
        self.began = ""
        self.sandboxed = True
        self.after_open: list[tuple[str, Mapping[str, Any]]] = []

    def open(self) -> Trouble | None:
        """Open the program, and do again what belongs to it."""
        if self._open:
            return None
        payload = {"key": self.what, "what": self.what, **vars(self._opening)}
        opened = self._call("open_program", payload)
        if isinstance(opened, Trouble):
            return opened
        self.told, self._open = opened, True
        for task, more in self.after_open:
            found = self._call(task, {"key": self.what, **more})
            if isinstance(found, Trouble):
                return found
        return None

    def ask(self, task: str, payload: Mapping[str, Any]) -> dict[str, Any] | Trouble:
        """Run a task on the program."""
        trouble = self.open()
        if trouble is not None:
            return trouble
        return self._call(task, {"key": self.what, "what": self.what, **payload})

    def remember(self, task: str, payload: Mapping[str, Any]) -> dict[str, Any] | Trouble:
        """Run a task whose effect is wanted again after the child had to be replaced."""
        found = self.ask(task, payload)
        if not isinstance(found, Trouble):
            self.after_open.append((task, payload))
        return found

    def struck(self, payload: Mapping[str, Any]) -> str:
        """Run once more, step by step, to name the op at which a run crashes or hangs."""
        self.began = ""
        again = self.ask("run_steps", payload)
        at = self.began.removeprefix("running ")
        return f", at {at}" if isinstance(again, Trouble) and at.startswith("`") else ""

    def close(self) -> None:
        """End the process; one that ran before goes on, without the program."""
        if self._caller is not None and not self._lent:
            self._caller.close()
        elif self._caller is not None and self._open:
            self._call("close_programs", {})
        self._caller, self._open = None, False

    def _call(self, task: str, payload: Mapping[str, Any]) -> dict[str, Any] | Trouble:
        if self._caller is None:
            self._caller = self._start()
            self._lent = bool(getattr(self._caller, "running", False))
        limits = self._opening_limits if task == "open_program" else self._limits
        ended = self._caller.call(f"{TASKS}:{task}", payload, limits)
        self.sandboxed = self.sandboxed and (ended.sandboxed or ended.outcome == "crashed")
        if ended.outcome == "ok":
            return dict(ended.value)
        self.began = ended.began
        if ended.outcome != "error":
            self._open = False
        return trouble_of(ended)

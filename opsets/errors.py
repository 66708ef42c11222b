"""The one error type that reaches a user, and the exit code of every way to end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """Say how a command ended; the numbers are part of the public interface."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    MODEL = 3
    VERIFICATION = 4
    RULES = 5
    EXPECTATION = 6
    UNTRUSTED = 7
    OUTPUT = 8
    LIMIT = 9
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


@dataclass(eq=False)
class OprepError(Exception):
    """Carry a fact, its place, at most three notes and one action to the user.

    `message` is a lower-case sentence without a full stop; `where` is a file, a `file:line`, or a
    file and a place in it; each of `notes` is a cause with both numbers; `help` is one action.
    `report` is the report of the run so far where one exists, so that it can still be written.
    """

    message: str
    where: str = ""
    notes: tuple[str, ...] = ()
    help: str = ""
    exit_code: ExitCode = ExitCode.INTERNAL
    report: object | None = None

    def line(self) -> str:
        """Give fact and causes in one line, to stand inside another message."""
        return "; ".join((self.message, *self.notes))

    def __str__(self) -> str:
        """Give the message form of the command line, without colour or escaping."""
        lines = [f"error: {self.message}"]
        lines += [f"  --> {self.where}"] if self.where else []
        lines += [f"  = note: {note}" for note in self.notes]
        lines += [f"  = help: {self.help}"] if self.help else []
        return "\n".join(lines)

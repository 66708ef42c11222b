"""The errors of registered ops, with the exit code that each kind of them has."""

from __future__ import annotations

import sys

from oprep.opsets.errors import ExitCode, OprepError

FILE = "__oprep_file__"
"""The attribute in which a module of a rule file's code keeps the name of its file."""


def misused(
    message: str, *, where: str = "", notes: tuple[str, ...] = (), help: str = ""
) -> OprepError:
    """Give the error of a call that asks for something impossible."""
    return OprepError(message, where, notes, help, ExitCode.USAGE)


def broken(
    message: str, *, where: str = "", notes: tuple[str, ...] = (), help: str = ""
) -> OprepError:
    """Give the error of an op that does not keep its contract."""
    return OprepError(message, where, notes, help, ExitCode.VERIFICATION)


def qualified(cls: type) -> str:
    """Name a class as messages do: module and class, or the rule's file and class."""
    file = getattr(sys.modules.get(cls.__module__), FILE, "")
    return f"{file}:{cls.__qualname__}" if file else f"{cls.__module__}.{cls.__qualname__}"

"""The errors of registered ops, with the exit code that each kind of them has."""

from __future__ import annotations

from oprep.opsets.errors import ExitCode, OprepError


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
    """Name a class as messages do: module and class, without a path."""
    return f"{cls.__module__}.{cls.__qualname__}"

"""What a caller may pass where one or several values, or a path, are meant."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from oprep.converters.program_calls import is_call
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.rule import Opset


def several(value: Any, name: str) -> tuple[Any, ...]:
    """Give the values of a list; a single path, name, `Opset` or mapping is a list of one."""
    if value is None:
        return ()
    if isinstance(value, str | os.PathLike | Mapping | Opset):
        return (value,)
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise _wrong(value, name, "a list", "give one, or a list of them")
    return tuple(value)


def input_sets(
    value: Any, name: str, *, calls: bool = False
) -> tuple[Path | Mapping[str, Any], ...]:
    """Give the paths of input sets, and mappings of arrays as they are; with `calls` also calls."""
    return tuple(
        item if isinstance(item, Mapping) or (calls and is_call(item)) else path_of(item, name)
        for item in several(value, name)
    )


def path_of(value: Any, name: str) -> Path:
    """Give a path; what is none is refused."""
    if not isinstance(value, str | os.PathLike) or isinstance(os.fspath(value), bytes):
        raise _wrong(value, name, "a path", "give a string or a `Path`")
    if not os.fspath(value).strip() or "\0" in os.fspath(value):
        raise _wrong(value, name, "a path", "name a file")
    return Path(value)


def a_path(value: Any, name: str) -> Path | None:
    """Give a path, None where none was given."""
    return None if value is None else path_of(value, name)


def a_size(value: Any, name: str) -> int | None:
    """Give a number of bytes, None where none was given."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value <= 0):
        raise _wrong(value, name, "a number of bytes", "give a number such as 2_000_000_000")
    return value


def a_folder(value: Any, name: str) -> Path | None:
    """Give the path of a folder that is there, None where none was given."""
    found = a_path(value, name)
    if found is not None and not found.is_dir():
        raise OprepError(
            f"`{found}` is no folder",
            help=f"let `{name}` name one",
            exit_code=ExitCode.USAGE,
        )
    return found


def require_rules(rules: Sequence[Any], opsets: Sequence[Any]) -> None:
    """Refuse a conversion that was given nothing to go by."""
    if not rules and not opsets:
        raise OprepError(
            "the conversion was given no rules",
            help="name a rule file in `rules` or a shipped opset in `opset`",
            exit_code=ExitCode.USAGE,
        )


def _wrong(value: Any, name: str, wanted: str, help: str) -> OprepError:
    return OprepError(
        f"`{name}` is {value!r:.60}, {wanted} is wanted",
        name,
        help=help,
        exit_code=ExitCode.USAGE,
    )

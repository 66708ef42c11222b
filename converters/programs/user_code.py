"""Code of the user's own is called here: where it goes wrong, one message says where and why."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import torch

import oprep.converters
import oprep.opsets
from oprep.opsets.errors import ExitCode, OprepError

MAX_TEXT = 300


def _foreign_folders() -> tuple[str, ...]:
    packages = [*oprep.converters.__path__, *oprep.opsets.__path__, *torch.__path__]
    standard = str(Path(traceback.__file__).parent)
    return tuple(f"{folder}/" for folder in (*packages, standard, sys.prefix))


NOT_THE_USERS = _foreign_folders()


def place(error: BaseException) -> str:
    """Give `file.py:12`, the last line of the user's own code that an error went through."""
    found = ""
    for frame in _frames(error.__traceback__):
        if not frame.filename.startswith((*NOT_THE_USERS, "<")):
            found = f"{Path(frame.filename).name}:{frame.lineno}"
    if isinstance(error, SyntaxError) and error.filename:
        found = f"{Path(error.filename).name}:{error.lineno}"
    return found


def _frames(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    return list(traceback.extract_tb(trace))


def message(error: BaseException) -> str:
    """Give the first line of what an error says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:MAX_TEXT] if lines else ""


def told(error: BaseException) -> str:
    """Give type and first line of what an error says."""
    text, name = message(error), type(error).__name__
    return f"{name}: {text}"[:MAX_TEXT] if text else name


@contextmanager
def calling(what: str, where: str, help: str = "") -> Iterator[None]:
    """Map whatever the user's code raises to `WHAT raises`, at the line where it happened."""
    try:
        yield
    except OprepError:
        raise
    except (Exception, SystemExit) as error:
        raise OprepError(
            f"{what} raises `{type(error).__name__}`",
            where=place(error) or where,
            notes=(message(error),) if message(error) else (),
            help=help,
            exit_code=ExitCode.MODEL,
        ) from error

"""torch.export, with its long errors brought down to the reason and the line of the user's code."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from oprep.converters.programs.program import Example
from oprep.converters.programs.user_code import place
from oprep.opsets.errors import ExitCode, OprepError

USER_LINE = re.compile(r'File "([^"<]+)", line (\d+), in \w+')
NOISE = re.compile(
    r"^(The error above|For more information|Set TORCH|Developer debug|The following call|"
    r"Traceback|from user code|File |Caused by|During handling|To fix)",
)
MAX_REASON = 160


def export(
    model: nn.Module, example: Example, dynamic_shapes: Any = None, *, strict: bool = False
) -> ExportedProgram:
    """Export in training IR; raises what torch raises."""
    with quiet(), torch.inference_mode(False), torch.enable_grad():
        return torch.export.export(
            model,
            example.args,
            dict(example.kwargs),
            dynamic_shapes=dynamic_shapes,
            strict=strict,
        )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep torch's warnings and logs, which repeat its errors, off the user's terminal."""
    before = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            with contextlib.redirect_stderr(io.StringIO()):  # where torch prints whole graphs
                yield
        finally:
            logging.disable(before)


def reason(error: BaseException) -> str:
    """Give the first telling lines of one of torch's errors, as one line."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines()]
    kept = [line for line in lines if line and not NOISE.match(line)]
    joined = " ".join(kept[:1]) or type(error).__name__
    joined = re.sub(r"\s*\(unhinted:.*$", "", joined)
    joined = re.sub(r"\s*For more information.*$", "", joined)
    if len(joined) > MAX_REASON:
        joined = joined.partition(". ")[0]
    shown = joined if len(joined) <= MAX_REASON else joined[: MAX_REASON - 1] + "…"
    named = isinstance(error, RuntimeError | AssertionError)
    return shown if named else f"{type(error).__name__}: {shown}"


def user_line(error: BaseException) -> str:
    """Give the line of the user's code that torch names or that the error went through."""
    found = place(error)
    if found:
        return found
    stack = getattr(error, "real_stack", None)
    for frame in reversed(list(stack or ())):
        return f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
    named = [m for m in USER_LINE.finditer(str(error)) if "/torch/" not in m[1]]
    return f"{named[-1][1].rpartition('/')[2]}:{named[-1][2]}" if named else ""


def refused(name: str, error: BaseException, help: str, notes: tuple[str, ...] = ()) -> OprepError:
    """Say that `name` cannot be captured, why, and what to do."""
    return OprepError(
        f"`{name}` cannot be captured by torch.export",
        where=user_line(error) or name,
        notes=(reason(error), *notes),
        help=help,
        exit_code=ExitCode.MODEL,
    )

"""Python files that rule files name, run from the very bytes that were hashed."""

from __future__ import annotations

import hashlib
import sys
from importlib.abc import SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import PurePosixPath
from types import ModuleType

from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.rp.messages import FILE


class _Bytes(SourceLoader):
    """Loads a module from bytes at hand; nothing is read from the file system."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name, self.data = name, data

    def get_filename(self, fullname: str) -> str:
        return self.name

    def get_data(self, path: str | bytes) -> bytes:
        return self.data


def run_code(name: str, data: bytes, where: str) -> ModuleType:
    """Run a Python file once per process; the same bytes give the same module.

    Raise OprepError (exit RULES) where it does not run.
    """
    digest = hashlib.sha256(data).hexdigest()
    stem = "".join(c if c.isalnum() else "_" for c in PurePosixPath(name).stem)
    module_name = f"oprep_code_{stem}_{digest[:12]}"
    known = sys.modules.get(module_name)
    if known is not None:
        return known
    loader = _Bytes(name, data)
    spec = ModuleSpec(module_name, loader, origin=name)
    spec.has_location = True
    module = module_from_spec(spec)
    setattr(module, FILE, name)
    sys.modules[module_name] = module
    try:
        loader.exec_module(module)
    except OprepError:
        del sys.modules[module_name]
        raise
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        line = _line(error, name)
        raise OprepError(
            f"`{name}` does not run",
            f"{name}:{line}" if line else where,
            (f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",),
            "an op file stands alone: put what it imports into it, or install that"
            if isinstance(error, ImportError)
            else "correct the file",
            ExitCode.RULES,
        ) from error
    return module


def _line(error: BaseException, name: str) -> int:
    """Find the last line of the file that was running."""
    if isinstance(error, SyntaxError) and error.filename == name:
        return error.lineno or 0
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == name:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line

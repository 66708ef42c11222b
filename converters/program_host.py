"""Where a PyTorch conversion runs: in a child for a file, in this process for an object."""

from __future__ import annotations

import atexit
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from oprep.converters import handed
from oprep.converters.answers import REFUSED, answer, from_plain
from oprep.converters.code_files import CodeFile
from oprep.converters.files import OpenFile
from oprep.converters.folders import PrivateFolder, put
from oprep.converters.program_sides import Caller, InProcess
from oprep.converters.program_source import Source
from oprep.converters.runner import Child, Limits
from oprep.opsets.rule import Opset

TASKS = "oprep.converters.programs.tasks"
IMPORTS = (TASKS, "oprep.converters.programs.proving", "torch.export.pt2_archive",
           "torch.export._trace")  # fmt: skip
"""What every child needs; importing it takes longer than all the work on a small model."""


class Host(Protocol):
    """Runs tasks of `programs.tasks` on one model."""

    key: str

    def call(self, task: str, *, seconds: float | None = None, **payload: Any) -> Any:
        """Run one task, with a time of its own if it needs that; raise what it refused."""
        ...

    def place(self, code: Sequence[CodeFile]) -> str:
        """Put libraries where they can be loaded from; give the folder, empty where none is."""
        ...

    def file(self, name: str) -> Path | None:
        """Name a file that a task may write; None where tasks give bytes back."""
        ...

    def give(self, file: OpenFile) -> Any:
        """Let tasks read a file that is held open here; give what names it in a payload."""
        ...

    def starter(self) -> Callable[[], Caller]:
        """Give what starts the process of the original."""
        ...

    def converted(self, made: Any) -> Any:
        """Give the converted program as an object for the caller."""
        ...


class ChildHost:
    """A child that holds the program of a file."""

    def __init__(self, source: Source, stack: ExitStack, seconds: float) -> None:
        """Prepare a child that may read what the model's code may import."""
        self.key = secrets.token_hex(8)
        self.name = source.name
        self.child = stack.enter_context(
            Child(readable=source.readable, limits=Limits(seconds), import_from=())
        )
        for file in source.files:
            self.child.hand(file)
        self.child.start(IMPORTS)

    def call(self, task: str, *, seconds: float | None = None, **payload: Any) -> Any:
        """Run one task in the child."""
        limits = None if seconds is None else Limits(max(seconds, self.child.limits.seconds))
        ended = self.child.call(_named(task), {"key": self.key, **payload}, limits)
        return answer(ended, self.name)

    def place(self, code: Sequence[CodeFile]) -> str:
        """Put the code into the child's private folder, one folder for each opset."""
        for item in code:
            self.child.put(f"{item.opset}/{item.name}", item.data)
        return str(self.child.folder)

    def file(self, name: str) -> Path | None:
        """Name a file in the child's private folder."""
        return self.child.folder / name

    def give(self, file: OpenFile) -> Any:
        """Hand the descriptor over; the file is named by its identity."""
        self.child.hand(file)
        return handed.plain(file)

    def starter(self) -> Callable[[], Caller]:
        """Let the child that holds the original go on."""
        return lambda: self.child

    def converted(self, made: Any) -> Any:
        """Give the bytes: no program of a file is loaded into this process."""
        return made.data()


class OwnHost:
    """This process: it already holds the program."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Tell what begins through `say`."""
        self.key = secrets.token_hex(8)
        self.say = say

    def call(self, task: str, *, seconds: float | None = None, **payload: Any) -> Any:
        """Run one task here, without a limit."""
        module, _, name = _named(task).partition(":")
        value = getattr(import_module(module), name)({"key": self.key, **payload}, self.say)
        if isinstance(value, Mapping) and REFUSED in value:
            raise from_plain(value[REFUSED])
        return value

    def place(self, code: Sequence[CodeFile]) -> str:
        """Put the code into a private folder that lives as long as this process."""
        if not code:
            return ""
        folder = _own_folder()
        for item in code:
            put(folder.path, f"{item.opset}/{item.name}", item.data)
        return str(folder.path)

    def file(self, name: str) -> Path | None:
        """Let tasks give bytes back."""
        return None

    def give(self, file: OpenFile) -> Any:
        """Give the file itself."""
        return file

    def starter(self) -> Callable[[], Caller]:
        """Run the original here, from copies of its state."""
        return InProcess

    def converted(self, made: Any) -> Any:
        """Give the converted program itself."""
        return import_module(TASKS).session({"key": self.key}).result()


def _named(task: str) -> str:
    """Give module and function of a task: one of `tasks`, or `module:function` of its package."""
    return f"{TASKS.rpartition('.')[0]}.{task}" if ":" in task else f"{TASKS}:{task}"


class Spare:
    """A fresh process for the artifact, which starts while the original is captured."""

    def __init__(self, stack: ExitStack) -> None:
        """Start it; it is gone when the stack is left."""
        self._child: Child | None = stack.enter_context(Child())
        self._child.start(IMPORTS)

    def reading(self, file: OpenFile) -> Callable[[], Caller]:
        """Give what starts a process that may read a file: this one first, then others."""

        def start() -> Caller:
            child, self._child = self._child or Child(), None
            child.hand(file)
            return child

        return start


@cache
def _own_folder() -> PrivateFolder:
    folder = PrivateFolder()
    atexit.register(folder.remove)
    return folder


def opsets_for_child(opsets: Sequence[Opset]) -> list[dict[str, Any]]:
    """Give opsets as they travel: by their text."""
    return [
        {"text": item.text, "name": item.name, "shipped": item.shipped, "file": item.file}
        for item in opsets
    ]


def code_for_child(code: Sequence[CodeFile]) -> list[dict[str, Any]]:
    """Give code files as they travel."""
    return [{"opset": item.opset, "name": item.name, "data": item.data} for item in code]

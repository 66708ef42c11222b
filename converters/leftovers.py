"""Data files of earlier runs: listed before anything changes, removed when no model names them.

`.NAME.oprep-old` holds the list while a commit is under way, so that the next run can finish what a
killed one began. A name on a list proves nothing: only files called by a hash go, and only when no
model or sidecar in the folder still names them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from oprep.converters.formats import sniff
from oprep.converters.staging import fsync_folder, hidden_name, stage

DATA_NAME = re.compile(r"[0-9a-f]{32}\.data")
OUR_OWN = re.compile(r"\..+\.oprep-(old|.*\.tmp)", re.DOTALL)
"""Lists and staged files: they name data, but nobody loads them."""
MAX_LIST = 1 << 20
MAX_SIDECAR = 1 << 26
MAX_SEARCHED = 1 << 31
MAX_FILES = 10_000
SEARCH_BLOCK = 1 << 20
MODEL_FORMATS = frozenset({"onnx", "json", "text"})


def sidecar_name(name: str) -> str:
    """Give the name of the sidecar of an artifact."""
    return f"{name}.oprep.json"


class Leftovers:
    """The data files that an output had before, and after a killed run also those half placed."""

    def __init__(self, folder: Path, name: str) -> None:
        """Read the list of a killed run and the old sidecar."""
        self._folder, self._owner = folder, name
        self._list = folder / hidden_name(name, "old")
        self._sidecar = folder / sidecar_name(name)
        self._names = {*self._listed(), *self._vouched_for()}
        self._old_sidecar = folder / hidden_name(name, "sidecar.tmp")

    def note(self, new: Iterable[str]) -> None:
        """Write the list, new names included, before the first change."""
        names = sorted({*self._names, *new})
        self._names = set(names)
        if names:
            text = "".join(f"{name}\n" for name in names).encode()
            staged = stage(self._folder, self._owner, [text], size=None, mode=None)
            try:
                staged.rename(self._list.name)
            finally:
                staged.discard()
            fsync_folder(self._folder)

    def hide_sidecar(self) -> None:
        """Let no sidecar vouch for a model that it does not belong to, not even for a moment."""
        if os.path.lexists(self._sidecar):
            os.replace(self._sidecar, self._old_sidecar)
            fsync_folder(self._folder)

    def undo(self) -> None:
        """After a commit that failed before the model's turn: the old sidecar is right again."""
        with contextlib.suppress(OSError):
            os.replace(self._old_sidecar, self._sidecar)
        with contextlib.suppress(OSError):
            self.remove()

    def remove(self, used: Iterable[str] = ()) -> None:
        """Remove what no model in the folder names, then the list and the old sidecar.

        `used` are names that the new model has. Where a file could not be searched now, the list
        stays for the next run.
        """
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._old_sidecar)
        searched = True
        for name in sorted(self._names.difference(used)):
            named = self._still_named(name.encode())
            searched = searched and named is not None
            if named is False:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._folder / name)
        if searched:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._list)
                fsync_folder(self._folder)

    def _listed(self) -> list[str]:
        text = _small(self._list, MAX_LIST).decode("utf-8", "replace")
        return [line for line in text.split("\n") if DATA_NAME.fullmatch(line)]

    def _vouched_for(self) -> list[str]:
        try:
            subjects = json.loads(_small(self._sidecar, MAX_SIDECAR))["subject"]
            names = [str(subject["name"]) for subject in subjects]
        except (ValueError, KeyError, TypeError, RecursionError):
            return []
        return [name for name in names if DATA_NAME.fullmatch(name)]

    def _still_named(self, name: bytes) -> bool | None:
        """Search the folder's files for a name; None where one could not be searched."""
        with os.scandir(self._folder) as entries:
            paths = [entry.path for entry in itertools.islice(entries, MAX_FILES + 1)]
        try:
            return len(paths) > MAX_FILES or any(
                _mentions(path, name) for path in paths if _may_be_model(os.path.basename(path))
            )
        except (OSError, ValueError):
            return None


def _may_be_model(name: str) -> bool:
    return not (OUR_OWN.fullmatch(name) or DATA_NAME.fullmatch(name))


def _small(path: Path, limit: int) -> bytes:
    """Read a regular file if there is one of at most `limit` bytes; nothing otherwise."""
    if not os.path.isfile(path) or os.path.islink(path):
        return b""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode) or state.st_size > limit:
            return b""
        return os.read(descriptor, limit)
    finally:
        os.close(descriptor)


def _mentions(path: str, name: bytes) -> bool:
    """Tell whether a regular file holds these bytes, if it can be a model or a sidecar at all."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode) or state.st_size > MAX_SEARCHED:
            return False
        block, tail = os.read(descriptor, SEARCH_BLOCK), b""
        if sniff(block) not in MODEL_FORMATS:
            return False
        while block:
            if name in tail + block:
                return True
            tail = block[-len(name) :]
            block = os.read(descriptor, SEARCH_BLOCK)
        return False
    finally:
        os.close(descriptor)

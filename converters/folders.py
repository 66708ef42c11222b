"""Private folders for children: mode 0700, gone after use, and swept when a dead run left one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

PREFIX = "oprep-private-"
SETTLING_SECONDS = 60.0


class PrivateFolder:
    """A folder of our own, locked by the kernel for as long as this process lives."""

    def __init__(self) -> None:
        """Make and lock it, after removing those of runs that were killed."""
        _sweep(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def put(folder: Path, name: str, data: bytes) -> Path:
    """Write a file into a private folder; give its path."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _sweep(parent: Path) -> None:
    """Remove private folders that nobody holds; young ones may be about to be locked."""
    for entry in parent.glob(PREFIX + "*"):
        with contextlib.suppress(OSError):
            _remove_if_left(entry)


def _remove_if_left(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        state = os.fstat(descriptor)
        if state.st_uid != os.getuid() or time.time() - state.st_mtime < SETTLING_SECONDS:
            return
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)

"""Files that a parent holds open, handed to its child: what passed the gate is what is read there.

Descriptors travel over a socket of their own, so that a child may get one at any time. It finds a
file by the identity that the gate saw; one that was written to since then is found by nobody.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oprep.converters.reading import Content, Identity, OpenFile, Readable, changed

MARK = b"\0"


class Giver:
    """The parent's end of the socket; the other end is inherited by the child."""

    def __init__(self) -> None:
        """Make both ends."""
        self._own, self._other = socket.socketpair()

    @property
    def descriptor(self) -> int:
        """Give the end that the child inherits."""
        return self._other.fileno()

    def started(self) -> None:
        """Let go of the child's end, which the child has now."""
        self._other.close()

    def give(self, file: OpenFile) -> None:
        """Hand over a descriptor; a child that is dead takes none."""
        with contextlib.suppress(OSError):
            socket.send_fds(self._own, [MARK], [file.descriptor])

    def close(self) -> None:
        """Close both ends."""
        self._own.close()
        self._other.close()


class _Taker:
    """The child's end: what came over the socket stays open as long as the child lives."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._held: dict[Identity, int] = {}

    def listen(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)

    def find(self, wanted: Identity) -> int | None:
        self._take()
        descriptor = self._held.get(wanted)
        if descriptor is None or Identity.of(os.fstat(descriptor)) != wanted:
            return None
        return descriptor

    def _take(self) -> None:
        while self._socket is not None:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
            except BlockingIOError:
                return
            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
                self._held[Identity.of(os.fstat(descriptor))] = descriptor
            if not data:
                self._socket = None


_taker = _Taker()


def listen(descriptor: int) -> None:
    """Take descriptors from the parent from now on; for a child alone."""
    _taker.listen(descriptor)


def plain(source: Readable) -> dict[str, Any]:
    """Describe a file as data for a child: by its bytes, or by its identity if it is held open."""
    if isinstance(source, OpenFile):
        identity = source.identity
        state = [identity.device, identity.inode, identity.size, identity.modified]
        return {"path": str(source.path), "identity": state}
    if isinstance(source, Content):
        return {"path": str(source.path), "data": source.data}
    raise TypeError(f"neither bytes nor an open file: {source!r}")


def received(given: Mapping[str, Any] | Readable) -> Readable:
    """Give the file that `plain` described; refuse (exit 3) one that was changed meanwhile.

    A task that runs in its caller's process gets the file itself.
    """
    if not isinstance(given, Mapping):
        return given
    path = Path(given["path"])
    if "data" in given:
        return Content(path, given["data"], "")
    wanted = Identity(*given["identity"])
    descriptor = _taker.find(wanted)
    if descriptor is None:
        raise changed(path)
    return OpenFile(path, descriptor, wanted)

"""How files are opened and read: one descriptor, regular files only, sizes first, hashed once."""

from __future__ import annotations

import difflib
import errno
import hashlib
import io
import itertools
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from oprep.opsets.errors import ExitCode, OprepError

MAX_WHOLE = 1 << 32
BLOCK = 1 << 18
LISTED = 10_000
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
}


class Readable(Protocol):
    """A file of known size that can be read in parts: bytes in memory, or an open descriptor."""

    @property
    def path(self) -> Path:
        """Tell what the file is called."""

    @property
    def size(self) -> int:
        """Tell how many bytes there are."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Give exactly that many bytes from an offset; fewer are an error (exit 3)."""


@dataclass(frozen=True)
class Content:
    """The bytes of one regular file, read once through one descriptor, and their sha256."""

    path: Path
    data: bytes
    sha256: str

    @property
    def size(self) -> int:
        """Tell how many bytes there are."""
        return len(self.data)

    def read_at(self, offset: int, length: int) -> bytes:
        """Give a copy of part of the bytes."""
        data = self.data[offset : offset + length]
        if len(data) != length:
            raise _short(self.path, offset, length, len(data), ExitCode.MODEL)
        return data


@dataclass(frozen=True)
class Identity:
    """What tells that a path still leads to the file that was looked at, unchanged."""

    device: int
    inode: int
    size: int
    modified: int

    @staticmethod
    def of(state: os.stat_result) -> Identity:
        """Take it from what `stat` or `fstat` gave."""
        return Identity(state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns)


@dataclass(frozen=True)
class OpenFile:
    """A regular file held open by one descriptor, so that what was checked is what is read."""

    path: Path
    descriptor: int
    identity: Identity

    @property
    def size(self) -> int:
        """Tell how many bytes there are."""
        return self.identity.size

    def read_at(self, offset: int, length: int) -> bytes:
        """Read part of the file; refused (exit 3) where it is shorter now."""
        parts, left = [], length
        while left:
            data = os.pread(self.descriptor, left, offset + length - left)
            if not data:
                raise _short(self.path, offset, length, length - left, ExitCode.MODEL)
            parts.append(data)
            left -= len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill a buffer from an offset on, without a copy in between; refused like `read_at`."""
        left = buffer
        while left:
            count = os.preadv(self.descriptor, [left], offset + len(buffer) - len(left))
            if not count:
                got = len(buffer) - len(left)
                raise _short(self.path, offset, len(buffer), got, ExitCode.MODEL)
            left = left[count:]

    def sha256(self) -> str:
        """Hash the whole file, in blocks."""
        digest = hashlib.sha256()
        for block in blocks_of(self):
            digest.update(block)
        return digest.hexdigest()

    def unchanged(self) -> None:
        """Refuse (exit 3) a file that was written to since it was opened."""
        if Identity.of(os.fstat(self.descriptor)) != self.identity:
            raise changed(self.path)


def blocks_of(source: Readable) -> Iterator[bytes]:
    """Give a whole file in blocks; refused (exit 3) if it was written to meanwhile."""
    for at in range(0, source.size, BLOCK):
        yield source.read_at(at, min(BLOCK, source.size - at))
    if isinstance(source, OpenFile):
        source.unchanged()


@contextmanager
def holding(path: Path, *, max_bytes: int | None = None) -> Iterator[OpenFile]:
    """Hold a regular file open for reading in parts; a size over `max_bytes` is exit 9."""
    with opened(path, ExitCode.MODEL) as descriptor:
        identity = Identity.of(os.fstat(descriptor))
        if max_bytes is not None and identity.size > max_bytes:
            raise _too_large(path, identity.size, max_bytes)
        yield OpenFile(path, descriptor, identity)


class _Raw(io.RawIOBase):
    """Part of a file as a stream."""

    def __init__(self, source: Readable, start: int, length: int) -> None:
        super().__init__()
        self._source, self._at, self._end = source, start, start + length
        self._start = start

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        count = min(len(buffer), self._end - self._at)
        if isinstance(self._source, OpenFile):
            self._source.read_into(self._at, memoryview(buffer)[:count])
        else:
            buffer[:count] = self._source.read_at(self._at, count) if count else b""
        self._at += count
        return count

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (self._start, self._at, self._end)[whence]
        self._at = min(max(base + offset, self._start), self._end)
        return self._at - self._start

    def tell(self) -> int:
        return self._at - self._start


def as_stream(source: Readable, start: int, length: int) -> io.BufferedReader:
    """Give part of a file as a stream with a place in it, for parsers that read from one."""
    return io.BufferedReader(_Raw(source, start, length), 1 << 16)


@dataclass(frozen=True)
class ExternalFile:
    """A data file beside a model that passed the gate of promise P7; every range in it is checked.

    `path` is canonical; `identity` is what the descriptor that was checked belongs to.
    """

    location: str
    path: Path
    size: int
    identity: Identity

    def chunks(self) -> Iterator[bytes]:
        """Give the whole content in blocks; refused if it is not the file that was checked."""
        return stream(self.path, 0, self.size, expected=self.identity)


def read(
    path: Path, *, max_bytes: int | None = None, exit_code: ExitCode = ExitCode.MODEL
) -> Content:
    """Read a regular file whole (O_NONBLOCK, fstat, size limit); anything else is refused.

    A file over `max_bytes` (4 GiB without it) is exit 9; other refusals end with `exit_code`.
    """
    limit = MAX_WHOLE if max_bytes is None else max_bytes
    with opened(path, exit_code) as descriptor:
        state = os.fstat(descriptor)
        if state.st_size > limit:
            raise _too_large(path, state.st_size, limit)
        try:
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(state.st_size + 1)
        except MemoryError as error:
            raise OprepError(
                f"`{path.name}` does not fit into memory",
                where=str(path),
                notes=(f"it has {state.st_size} bytes",),
                exit_code=ExitCode.LIMIT,
            ) from error
        if len(data) != state.st_size or Identity.of(os.fstat(descriptor)) != Identity.of(state):
            raise changed(path, exit_code)
    return Content(path, data, hashlib.sha256(data).hexdigest())


def stream(
    path: Path,
    offset: int,
    length: int,
    block: int = BLOCK,
    *,
    expected: Identity | None = None,
    exit_code: ExitCode = ExitCode.MODEL,
) -> Iterator[bytes]:
    """Read part of a file in blocks, never whole; it must not change meanwhile.

    `expected` is the identity of the file that passed a gate: another one at that path is refused.
    """
    with opened(path, exit_code, follow=expected is None) as descriptor:
        before = Identity.of(os.fstat(descriptor))
        if expected is not None and before != expected:
            raise changed(path, exit_code)
        os.lseek(descriptor, offset, os.SEEK_SET)
        left = length
        while left:
            data = os.read(descriptor, min(block, left))
            if not data:
                raise _short(path, offset, length, length - left, exit_code)
            left -= len(data)
            yield data
        if Identity.of(os.fstat(descriptor)) != before:
            raise changed(path, exit_code)


def _too_large(path: Path, size: int, limit: int) -> OprepError:
    return OprepError(
        f"`{path.name}` is larger than may be read",
        where=str(path),
        notes=(f"it has {size} bytes; {limit} are allowed",),
        help=f"pass `--max-bytes {size}` if that is meant",
        exit_code=ExitCode.LIMIT,
    )


def _short(path: Path, offset: int, length: int, got: int, exit_code: ExitCode) -> OprepError:
    return OprepError(
        f"`{path.name}` is shorter than expected",
        where=str(path),
        notes=(f"{length} bytes from {offset} on were wanted, {length - got} are missing",),
        exit_code=exit_code,
    )


def changed(path: Path, exit_code: ExitCode = ExitCode.MODEL) -> OprepError:
    """Make the refusal of a file that something writes to while it is read."""
    return OprepError(
        f"`{path.name}` changed while it was being read",
        where=str(path),
        help="run again when nothing writes to it",
        exit_code=exit_code,
    )


@contextmanager
def opened(path: Path, exit_code: ExitCode, *, follow: bool = True) -> Iterator[int]:
    """Open a regular file for reading without ever waiting; close it afterwards."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        descriptor = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    except (OSError, ValueError) as error:
        raise _not_opened(path, error, exit_code) from error
    try:
        refuse_irregular(path, os.fstat(descriptor), exit_code)
        yield descriptor
    except OSError as error:
        raise OprepError(
            f"`{path.name}` cannot be read",
            where=str(path),
            notes=(error.strerror or str(error),),
            exit_code=exit_code,
        ) from error
    finally:
        os.close(descriptor)


def refuse_irregular(path: Path, state: os.stat_result, exit_code: ExitCode) -> None:
    """Refuse what is no regular file, by what it is."""
    if not stat.S_ISREG(state.st_mode):
        raise _irregular(path, KINDS.get(stat.S_IFMT(state.st_mode), "special"), exit_code)


def _irregular(path: Path, kind: str, exit_code: ExitCode) -> OprepError:
    return OprepError(
        f"`{path.name or path}` is {kind}, not a regular file",
        where=str(path),
        help="name the file in it" if kind == "a folder" else "",
        exit_code=exit_code,
    )


def _not_opened(path: Path, error: OSError | ValueError, exit_code: ExitCode) -> OprepError:
    if isinstance(error, FileNotFoundError):
        return _missing(path, exit_code)
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.ENXIO:
        return _irregular(path, KINDS[stat.S_IFSOCK], exit_code)
    if number == errno.ELOOP and path.is_symlink():
        return _irregular(path, KINDS[stat.S_IFLNK], exit_code)
    note = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return OprepError(
        f"`{path.name or path}` cannot be opened",
        where=str(path),
        notes=(note,),
        exit_code=exit_code,
    )


def _missing(path: Path, exit_code: ExitCode) -> OprepError:
    """Say that a file is not there, and what there is instead."""
    folder = path.parent
    if path.is_symlink():
        target = os.readlink(path)
        return OprepError(
            f"`{path.name}` is a symbolic link to a file that does not exist",
            where=str(path),
            notes=(f"it leads to `{target}`",),
            exit_code=exit_code,
        )
    if not folder.is_dir():
        return OprepError(f"there is no folder `{folder}`", where=str(path), exit_code=exit_code)
    near = near_names(path)
    return OprepError(
        f"there is no file `{path.name}`",
        where=str(path),
        help="did you mean " + " or ".join(f"`{name}`" for name in near) if near else "",
        exit_code=exit_code,
    )


def near_names(path: Path) -> list[str]:
    """Give up to three names in the same folder that a typing error may have meant."""
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in itertools.islice(entries, LISTED)]
    except OSError:
        return []
    lower = {name.lower(): name for name in sorted(names, reverse=True)}
    close = difflib.get_close_matches(path.name.lower(), lower, n=3, cutoff=0.7)
    same_stem = [name for name in lower if Path(name).stem == path.stem.lower()]
    return [lower[name] for name in dict.fromkeys([*close, *sorted(same_stem)])][:3]


def identify(path: Path, exit_code: ExitCode = ExitCode.MODEL) -> tuple[os.stat_result, str | None]:
    """Open a canonical path without following a link at its end; give what was opened.

    The second value is the path that the kernel knows the descriptor by, where it tells.
    """
    with opened(path, exit_code, follow=False) as descriptor:
        try:
            real = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            real = None
        return os.fstat(descriptor), real

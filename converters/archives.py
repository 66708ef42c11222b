"""The gate for zip archives: what is inside is checked before anything is unpacked."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import PurePosixPath

from oprep.converters.reading import Content
from oprep.opsets.errors import ExitCode, OprepError

MAX_RATIO = 100
RATIO_FREE = 1 << 20
MAX_UNPACKED = 1 << 33
ENCRYPTED = 1
BROKEN = (zipfile.BadZipFile, ValueError, NotImplementedError, OSError, EOFError, RuntimeError)


def members(content: Content, max_bytes: int | None = None) -> Iterator[tuple[str, bytes]]:
    """Give name and bytes of each member of an archive that passes, its CRC checked.

    Refused (exit 3): absolute or `..` names, duplicates, encryption, overlaps, bytes before the
    archive, more than 100:1; over `max_bytes` unpacked (8 GiB without it) is exit 9.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content.data)) as archive:
            infos = archive.infolist()
            _gate(content, infos, MAX_UNPACKED if max_bytes is None else max_bytes)
            for info in infos:
                if not info.is_dir():
                    yield info.filename, archive.read(info)
    except BROKEN as error:
        raise _refused(content, "the archive is damaged", str(error)) from error


def _gate(content: Content, infos: list[zipfile.ZipInfo], limit: int) -> None:
    seen: set[str] = set()
    end, total = 0, 0
    for info in sorted(infos, key=lambda info: info.header_offset):
        name = info.filename
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
            raise _refused(content, f"entry `{name}` leads out of the archive")
        if name in seen:
            raise _refused(content, f"entry `{name}` is there twice")
        if info.flag_bits & ENCRYPTED:
            raise _refused(content, f"entry `{name}` is encrypted")
        if info.header_offset < end or (not seen and info.header_offset != 0):
            raise _refused(content, f"entry `{name}` overlaps or hides other bytes")
        ratio_allows = max(RATIO_FREE, MAX_RATIO * info.compress_size)
        if info.file_size > ratio_allows:
            sizes = f"{info.compress_size} bytes would become {info.file_size}"
            raise _refused(content, f"entry `{name}` unpacks to more than {MAX_RATIO}:1", sizes)
        seen.add(name)
        end = info.header_offset + info.compress_size
        total += info.file_size
    if end > len(content.data):
        raise _refused(content, "the archive is cut short")
    if total > limit:
        raise OprepError(
            f"`{content.path.name}` unpacks to more than is allowed",
            where=str(content.path),
            notes=(f"it holds {total} bytes; {limit} are allowed",),
            exit_code=ExitCode.LIMIT,
        )


def _refused(content: Content, fact: str, note: str = "") -> OprepError:
    return OprepError(
        f"`{content.path.name}` is refused: {fact}",
        where=str(content.path),
        notes=(note,) if note else (),
        exit_code=ExitCode.MODEL,
    )

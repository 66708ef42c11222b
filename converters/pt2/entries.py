"""The entries of an archive: read in blocks, unpacked, their size and CRC checked."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from oprep.converters.reading import BLOCK, Readable
from oprep.opsets.errors import ExitCode, OprepError

STORED, DEFLATED = 0, 8


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of an archive: `name` holds no root folder; its data lie at `start`.

    `end` is where the next entry begins: behind the data and their descriptor.
    """

    name: str
    method: int
    crc: int
    packed: int
    size: int
    header: int
    start: int
    end: int


def refused(source: Readable, fact: str, *notes: str, entry: str = "") -> OprepError:
    """Make the refusal (exit 3) of an archive that is broken; it never speaks of trust."""
    return OprepError(
        f"`{source.path.name}` is refused: {fact}",
        where=f"{source.path}, entry `{entry}`" if entry else str(source.path),
        notes=notes,
        exit_code=ExitCode.MODEL,
    )


def blocks(source: Readable, entry: Entry) -> Iterator[bytes]:
    """Give an entry's content in blocks, its size and CRC checked at the end (exit 3)."""
    crc = size = 0
    for block in _unpacked(source, entry):
        crc = zlib.crc32(block, crc)
        size += len(block)
        yield block
    if size != entry.size or crc != entry.crc:
        raise refused(source, f"entry `{entry.name}` is damaged", "its checksum is another one")


def content(source: Readable, entry: Entry, limit: int) -> bytes:
    """Give an entry's whole content; exit 9 where it is larger than `limit` bytes."""
    if entry.size > limit:
        raise OprepError(
            f"entry `{entry.name}` of `{source.path.name}` is larger than may be read",
            where=str(source.path),
            notes=(f"it has {entry.size} bytes; {limit} are allowed",),
            exit_code=ExitCode.LIMIT,
        )
    return b"".join(blocks(source, entry))


def _unpacked(source: Readable, entry: Entry) -> Iterator[bytes]:
    raw = _raw(source, entry.start, entry.packed)
    if entry.method == STORED:
        yield from raw
        return
    engine, left = zlib.decompressobj(-15), entry.size
    try:
        for block in raw:
            data = block
            while data:
                out = engine.decompress(data, BLOCK)
                left -= len(out)
                if left < 0:
                    raise refused(source, f"entry `{entry.name}` unpacks to more than it says")
                if out:
                    yield out
                data = engine.unconsumed_tail
        tail = engine.flush()
    except zlib.error as error:
        raise refused(source, f"entry `{entry.name}` is damaged", str(error)) from error
    if tail:
        yield tail
    if not engine.eof or engine.unused_data:
        raise refused(source, f"entry `{entry.name}` is damaged", "its data end elsewhere")


def _raw(source: Readable, at: int, length: int) -> Iterator[bytes]:
    while length:
        block = source.read_at(at, min(BLOCK, length))
        at, length = at + len(block), length - len(block)
        yield block

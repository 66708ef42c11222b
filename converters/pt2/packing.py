"""Write archives of exported programs: equal content gives equal bytes, and weights are streamed.

`torch.export.save` names the root folder after the file and lays memory addresses and paths of
sources into the program. Here the root is fixed, entries are sorted and dated alike, data begin at
multiples of 64, and the serialization id, the last entry, is made from the headers before it, which
hold the names, sizes and checksums of all entries.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from oprep.converters.pt2.entries import Entry, blocks
from oprep.converters.pt2.gate import EXTRA, MODEL_JSON, Pt2, program_of
from oprep.converters.pt2.ops import graphs
from oprep.converters.pt2.zipped import (
    CENTRAL,
    END,
    END64,
    FULL16,
    FULL32,
    LOCAL,
    LOCATOR,
    UTF8,
    ZIP64,
)

ROOT = "archive"
IDENTITY = ".data/serialization_id"
DIGITS = 40
ALIGNED = 64
PADDING = 0x4246
VERSION, VERSION64 = 20, 45
ADDRESSES = ("from_node",)
TRACES = ("stack_trace",)


@dataclass(frozen=True)
class Packed:
    """An archive to be written: its size in bytes is known before `chunks` gives them."""

    size: int
    chunks: Callable[[], Iterator[bytes]]


@dataclass(frozen=True)
class Part:
    """One entry to be written: its bytes come in blocks, from memory or from another archive."""

    name: str
    size: int
    crc: int
    blocks: Callable[[], Iterable[bytes]]


def repack(
    pt2: Pt2,
    replaced: Mapping[str, bytes] | None = None,
    extra: Mapping[str, bytes] | None = None,
    *,
    keep_traces: bool = False,
) -> Packed:
    """Lay out an archive anew: `replaced` entries by name, `extra` files beside the program.

    The program's JSON goes without memory addresses, and without stack traces unless they are
    kept. Everything else is streamed from the source, which has to stay open, its CRCs checked.
    """
    given = dict(replaced or {})
    data = given.pop(MODEL_JSON, None)
    program = pt2.program if data is None else program_of(pt2.source, data)
    given[MODEL_JSON] = program_bytes(program, keep_traces=keep_traces)
    given |= {f"{EXTRA}{name}": content for name, content in (extra or {}).items()}
    parts = [_held(name, content) for name, content in given.items()]
    parts += [_streamed(pt2, entry) for entry in pt2.entries if entry.name not in given]
    return packed(parts)


def program_bytes(program: Mapping[str, Any], *, keep_traces: bool) -> bytes:
    """Write a program's JSON without what differs from run to run; `program` stays as it is."""
    dropped = ADDRESSES if keep_traces else ADDRESSES + TRACES
    cleaned = json.loads(json.dumps(program, allow_nan=False))
    modules: dict[str, str] = {}
    for _, graph in graphs(cleaned):
        for node in graph["nodes"]:
            metadata = node["metadata"]
            for key in dropped:
                metadata.pop(key, None)
            if "nn_module_stack" in metadata:
                metadata["nn_module_stack"] = _numbered(metadata["nn_module_stack"], modules)
    return json.dumps(cleaned, allow_nan=False).encode("ascii")


def _numbered(stack: str, modules: dict[str, str]) -> str:
    """Number the modules that strict export names by their address, in branches alone.

    A stack is `key,path,class;key,path,class`; keys tell instances apart.
    """
    parts = []
    for part in stack.split(";"):
        key, comma, rest = part.partition(",")
        if key.isdecimal():
            key = modules.setdefault(key, str(len(modules)))
        parts.append(key + comma + rest)
    return ";".join(parts)


def packed(parts: Iterable[Part]) -> Packed:
    """Lay out an archive of parts, sorted by name; a serialization id is made and added."""
    ordered = sorted((part for part in parts if part.name != IDENTITY), key=lambda p: p.name)
    ordered.append(Part(IDENTITY, DIGITS, 0, lambda: ()))
    at, offsets = 0, []
    for part in ordered:
        offsets.append(at)
        at += len(_local(part, at)) + part.size
    rows = sum(len(_central(part, at)) for part, at in zip(ordered, offsets, strict=True))
    size = at + rows + END64.size + LOCATOR.size + END.size
    return Packed(size, lambda: _written(ordered, offsets, at))


def _held(name: str, data: bytes) -> Part:
    return Part(name, len(data), zlib.crc32(data), lambda: (data,))


def _streamed(pt2: Pt2, entry: Entry) -> Part:
    return Part(entry.name, entry.size, entry.crc, lambda: blocks(pt2.source, entry))


def _written(parts: list[Part], offsets: list[int], end: int) -> Iterator[bytes]:
    digest = hashlib.sha256()
    *before, _ = parts
    for part, at in zip(before, offsets, strict=False):
        header = _local(part, at)
        digest.update(header)
        yield header
        yield from part.blocks()
    number = int.from_bytes(digest.digest()) % 10**DIGITS
    identity = _held(IDENTITY, f"{number:0{DIGITS}}".encode())
    yield _local(identity, offsets[-1])
    yield from identity.blocks()
    directory = b"".join(
        _central(part, at) for part, at in zip([*before, identity], offsets, strict=True)
    )
    yield directory
    yield _end(len(parts), len(directory), end)


def _names(part: Part) -> bytes:
    return f"{ROOT}/{part.name}".encode()


def _wide(*values: int) -> tuple[tuple[int, ...], bytes]:
    """Give what the 32-bit fields say, and the zip64 field with those that do not fit in."""
    narrow = tuple(min(value, FULL32) for value in values)
    full = [value for value in values if value >= FULL32]
    if not full:
        return narrow, b""
    return narrow, struct.pack(f"<2H{len(full)}Q", ZIP64, 8 * len(full), *full)


def _local(part: Part, at: int) -> bytes:
    """Write a local header, padded so that the data begin at a multiple of 64."""
    name = _names(part)
    (size, _), wide = _wide(part.size, part.size)
    version = VERSION64 if wide else VERSION
    room = -(at + LOCAL.size + len(name) + len(wide) + 4) % ALIGNED
    extra = wide + struct.pack("<2H", PADDING, room) + b"Z" * room
    fields = (b"PK\x03\x04", version, UTF8, 0, 0, 0, part.crc, size, size, len(name), len(extra))
    return LOCAL.pack(*fields) + name + extra


def _central(part: Part, at: int) -> bytes:
    name = _names(part)
    (size, _, offset), wide = _wide(part.size, part.size, at)
    version = VERSION64 if wide else VERSION
    head = (b"PK\x01\x02", version, version, UTF8, 0, 0, 0, part.crc, size, size)
    return CENTRAL.pack(*head, len(name), len(wide), 0, 0, 0, 0, offset) + name + wide


def _end(count: int, length: int, start: int) -> bytes:
    """Write the end as torch does, in both widths."""
    wide = (END64.size - 12, VERSION64, VERSION64, 0, 0, count, count, length, start)
    few, small, low = min(count, FULL16), min(length, FULL32), min(start, FULL32)
    return (
        END64.pack(b"PK\x06\x06", *wide)
        + LOCATOR.pack(b"PK\x06\x07", 0, start + length, 1)
        + END.pack(b"PK\x05\x06", 0, 0, few, few, small, low, 0)
    )

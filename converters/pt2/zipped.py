"""A strict reader of zip directories: one view of an archive, or none.

Every byte belongs to an entry, its data descriptor or the directory; local headers say what the
directory says. So no other parser (torch's, Python's) can see other entries in the same file.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from oprep.converters.pt2.entries import DEFLATED, STORED, Entry, refused
from oprep.converters.reading import Readable

LOCAL = struct.Struct("<4s5H3L2H")
NEWEST_NEEDED = 63
"""The newest version of the zip format that there is, in tenths."""
CENTRAL = struct.Struct("<4s6H3L5H2L")
END = struct.Struct("<4s4H2LH")
END64 = struct.Struct("<4sQ2H2L4Q")
LOCATOR = struct.Struct("<4sLQL")
DESCRIBED, ENCRYPTED, UTF8 = 8, 1, 2048
ALLOWED_FLAGS = DESCRIBED | UTF8 | 6
FULL16, FULL32 = 0xFFFF, 0xFFFFFFFF
ZIP64 = 1
KNOWN_EXTRAS = (ZIP64, 0x4246, 0x5455, 0x7875)
"""zip64, padding of torch, times, owner; others (a second name) are read by some parsers only."""

MAX_ENTRIES = 1 << 20
MAX_DIRECTORY = 1 << 28
MAX_RATIO = 100
RATIO_FREE = 1 << 20


class Damaged(Exception):
    """An archive that is no sound zip file, or has more than one view; the text says why."""


def entries_of(source: Readable) -> tuple[str, tuple[Entry, ...]]:
    """Give the root folder and the entries of an archive by offset; exit 3 if it is unsound."""
    try:
        start, rows = _directory(source)
        root = _one_root([name for name, _ in rows])
        found = [_entry(source, name, fields) for name, fields in rows]
        found.sort(key=lambda entry: entry.header)
        _gapless(found, start)
    except (Damaged, struct.error) as error:
        raise refused(source, str(error)) from error
    return root, tuple(replace(entry, name=entry.name[len(root) + 1 :]) for entry in found)


def _directory(source: Readable) -> tuple[int, list[tuple[str, tuple[int, ...]]]]:
    """Give offset and rows of the central directory; the archive has no comment."""
    size = source.size
    if size < END.size:
        raise Damaged("the archive is cut short")
    end = END.unpack(source.read_at(size - END.size, END.size))
    if end[0] != b"PK\x05\x06" or end[7]:
        raise Damaged("the archive is cut short, or has bytes after its end")
    _, disk, disk_start, here, count, length, start, _ = end
    after = size - END.size
    locator_at = after - LOCATOR.size
    if locator_at >= END64.size and source.read_at(locator_at, 4) == b"PK\x06\x07":
        after = locator_at - END64.size
        there = LOCATOR.unpack(source.read_at(locator_at, LOCATOR.size))
        wide = END64.unpack(source.read_at(after, END64.size))
        if wide[0] != b"PK\x06\x06" or wide[1] != END64.size - 12 or there[1:] != (0, after, 1):
            raise Damaged("the end of the archive is damaged")
        _same_end(end, wide)
        disk, disk_start, here, count, length, start = wide[4:]
    elif FULL16 in (here, count) or FULL32 in (length, start):
        raise Damaged("the end of the archive is damaged")
    if disk or disk_start or here != count or start + length != after:
        raise Damaged("the directory is not where the end of the archive says")
    if not 0 < count <= MAX_ENTRIES or length > MAX_DIRECTORY:
        raise Damaged(f"it has {count} entries")
    return start, _central(source.read_at(start, length), count)


def _same_end(end: Sequence[int], wide: Sequence[int]) -> None:
    narrow, full = end[3:7], wide[6:]
    for short, long, limit in zip(narrow, full, (FULL16, FULL16, FULL32, FULL32), strict=True):
        if short != limit and short != long:
            raise Damaged("the end of the archive says two things")


def _central(data: bytes, count: int) -> list[tuple[str, tuple[int, ...]]]:
    found: list[tuple[str, tuple[int, ...]]] = []
    at = 0
    for _ in range(count):
        fields = CENTRAL.unpack_from(data, at)
        if fields[0] != b"PK\x01\x02":
            raise Damaged("the directory is damaged")
        _, _, needed, flags, method, _, _, crc, packed, size, *lengths, _, _, header = fields
        if needed & 0xFF > NEWEST_NEEDED:
            raise Damaged(f"an entry needs version {(needed & 0xFF) / 10:.1f} of the zip format")
        n, x, c, disk = lengths[:4]
        at += CENTRAL.size
        raw, extra = data[at : at + n], data[at + n : at + n + x]
        at += n + x + c
        if c or disk or at > len(data):
            raise Damaged("the directory is damaged")
        size, packed, header = _widened(extra, size, packed, header)
        found.append((_name(raw), (flags, method, crc, packed, size, header)))
    if at != len(data):
        raise Damaged("the directory is damaged")
    return found


def _widened(extra: bytes, *narrow: int) -> tuple[int, ...]:
    """Take the sizes that do not fit into 32 bits from the zip64 part of the extra field."""
    parts = dict(_extras(extra))
    if FULL32 not in narrow:
        if ZIP64 in parts:
            raise Damaged("an entry has two sizes")
        return narrow
    wide = iter(struct.unpack(f"<{len(parts.get(ZIP64, b'')) // 8}Q", parts.get(ZIP64, b"")))
    try:
        full = tuple(next(wide) if value == FULL32 else value for value in narrow)
    except StopIteration as error:
        raise Damaged("an entry has no size") from error
    if next(wide, None) is not None:
        raise Damaged("an entry has two sizes")
    return full


def _extras(extra: bytes) -> Iterator[tuple[int, bytes]]:
    at, seen = 0, set()
    while at < len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind in seen or kind not in KNOWN_EXTRAS or at + 4 + length > len(extra):
            raise Damaged("an entry has an extra field that is damaged or not known here")
        seen.add(kind)
        yield kind, extra[at + 4 : at + 4 + length]
        at += 4 + length


def _name(raw: bytes) -> str:
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Damaged("the name of an entry is no UTF-8") from error
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or str(path) != name or "\\" in name:
        raise Damaged(f"entry `{name}` is no plain path below the archive")
    if not name.isprintable():
        raise Damaged(f"entry `{name}` has a name that does not print")
    return name


def _one_root(names: list[str]) -> str:
    """Tell the one root folder; names that differ in case alone are one name for torch."""
    roots = sorted({name.partition("/")[0] for name in names})
    if any("/" not in name for name in names):
        raise Damaged("not all entries are below one folder")
    if len(roots) != 1:
        raise Damaged(f"it has {len(roots)} roots: `{roots[0]}` and `{roots[1]}`")
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            raise Damaged(f"entry `{name}` is there twice")
        seen.add(name.casefold())
    return roots[0]


def _entry(source: Readable, name: str, fields: tuple[int, ...]) -> Entry:
    """Compare the directory's words on an entry with its local header's."""
    flags, method, crc, packed, size, header = fields
    if flags & ENCRYPTED:
        raise Damaged(f"entry `{name}` is encrypted")
    if method not in (STORED, DEFLATED) or flags & ~ALLOWED_FLAGS:
        raise Damaged(f"entry `{name}` is packed in a way that is not known here")
    if header + LOCAL.size > source.size or header + LOCAL.size + packed > source.size:
        raise Damaged(f"entry `{name}` reaches beyond the end of the file")
    if (method == STORED and size != packed) or size > max(RATIO_FREE, MAX_RATIO * packed):
        raise Damaged(f"entry `{name}`: {packed} bytes would become {size}")
    local = LOCAL.unpack(source.read_at(header, LOCAL.size))
    n, x = local[9:]
    start = header + LOCAL.size + n + x
    if local[0] != b"PK\x03\x04" or local[2] != flags or local[3] != method:
        raise Damaged(f"the header of entry `{name}` says something else than the directory")
    if start + packed > source.size:
        raise Damaged(f"entry `{name}` reaches beyond the end of the file")
    text = source.read_at(header + LOCAL.size, n + x) if n + x else b""
    if text[:n] != name.encode():
        raise Damaged(f"entry `{name}` has another name in its own header")
    extra = dict(_extras(text[n:]))
    end = start + packed
    if flags & DESCRIBED:
        end += _descriptor(source, name, end, (crc, packed, size))
        agreed = _agree(local[6:9], (crc, packed, size), extra.get(ZIP64, b""))
    else:
        sizes = _widened(text[n:], local[8], local[7])
        agreed = (local[6], *reversed(sizes)) == (crc, packed, size)
    if not agreed:
        raise Damaged(f"the header of entry `{name}` says something else than the directory")
    return Entry(name, method, crc, packed, size, header, start, end)


def _agree(there: Sequence[int], told: Sequence[int], wide: bytes) -> bool:
    """Tell whether a header that leaves its figures to the descriptor contradicts them."""
    narrow = all(a in (0, FULL32, b) for a, b in zip(there, told, strict=True))
    full = struct.unpack(f"<{len(wide) // 8}Q", wide)
    return narrow and all(value in (0, *told[1:]) for value in full)


def _descriptor(source: Readable, name: str, at: int, told: tuple[int, int, int]) -> int:
    """Give the length of the data descriptor at this offset, which says what the directory says."""
    data = source.read_at(at, min(24, source.size - at))
    for form in (struct.Struct("<4sL2Q"), struct.Struct("<4s3L")):
        if len(data) >= form.size:
            magic, *rest = form.unpack_from(data)
            if magic == b"PK\x07\x08" and tuple(rest) == told:
                return form.size
    raise Damaged(f"the end of entry `{name}` says something else than the directory")


def _gapless(found: list[Entry], directory: int) -> None:
    """Refuse bytes before, between and after the entries, and entries that share bytes."""
    if found[0].header:
        raise Damaged("there are bytes before the archive")
    for entry, following in itertools.pairwise(found):
        if following.header != entry.end:
            raise Damaged(f"entry `{following.name}` overlaps or hides other bytes")
    if found[-1].end != directory:
        raise Damaged("there are bytes between the entries and the directory")

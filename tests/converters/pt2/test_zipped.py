"""The strict reader of zip archives: sound ones of torch and others pass, two views never do."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from corpus.hostile_pt2 import unpacked, zipped
from hypothesis import given
from hypothesis import strategies as st

from oprep.converters.pt2.entries import blocks
from oprep.converters.pt2.packing import Part, packed
from oprep.converters.pt2.zipped import MAX_RATIO, entries_of
from oprep.converters.reading import Content
from oprep.opsets.errors import ExitCode, OprepError

TEXTS = {"one": b"1" * 70, "two": b"22", "sub/three": b""}


def content(data: bytes) -> Content:
    return Content(Path("m.pt2"), data, "")


def read(data: bytes) -> tuple[str, dict[str, bytes]]:
    root, entries = entries_of(content(data))
    return root, {entry.name: b"".join(blocks(content(data), entry)) for entry in entries}


def outcome(data: bytes) -> tuple[str, dict[str, bytes]] | OprepError:
    try:
        return read(data)
    except OprepError as error:
        return error


def sound() -> bytes:
    return zipped(TEXTS, "root")


def central(data: bytes, name: bytes) -> int:
    """Find the row of the directory that names an entry."""
    return data.rindex(b"root/" + name) - 46


def put(data: bytes, at: int, form: str, value: int) -> bytes:
    size = struct.calcsize(form)
    return data[:at] + struct.pack(form, value) + data[at + size :]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_archives_of_other_writers_are_read(method):
    assert read(zipped(TEXTS, "r", method)) == ("r", TEXTS)


def test_archives_of_torch_are_read(archives):
    for data in archives.values():
        assert read(data)[1] == unpacked(data)


def test_archives_of_ours_are_read():
    parts = [Part(name, len(data), crc(data), lambda data=data: [data])
             for name, data in TEXTS.items()]  # fmt: skip
    root, found = read(b"".join(packed(parts).chunks()))
    assert root == "archive"
    assert {name: found[name] for name in TEXTS} == TEXTS


def crc(data: bytes) -> int:
    import zlib

    return zlib.crc32(data)


def two_of_a_name() -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w") as archive:
        warnings.simplefilter("ignore")
        for name in ("root/one", "root/one"):
            archive.writestr(name, b"x")
    return buffer.getvalue()


def other_local_name() -> bytes:
    data = sound()
    at = data.index(b"root/one")
    return data[:at] + b"root/ONE" + data[at + 8 :]


def overlapping() -> bytes:
    """Let two entries of the directory share one local header."""
    data = sound()
    first = struct.unpack_from("<L", data, central(data, b"one") + 42)[0]
    return put(data, central(data, b"two") + 42, "<L", first)


def hidden() -> bytes:
    """Drop a row of the directory, so that its entry is seen by scanners only."""
    data = sound()
    row, following = central(data, b"one"), central(data, b"two")
    end = data.rindex(b"PK\5\6")
    head = data[:row] + data[following:end]
    count, size = 2, end - row - (following - row)
    return head + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, size, row, 0)


def central_field(offset: int, form: str, value: int, entry: bytes = b"two") -> bytes:
    data = sound()
    return put(data, central(data, entry) + offset, form, value)


def bomb() -> bytes:
    return zipped({"zeros": bytes(1 << 24)}, "root", zipfile.ZIP_DEFLATED)


def with_comment() -> bytes:
    buffer = io.BytesIO(sound())
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.comment = b"PK\5\6" + bytes(18)
    return buffer.getvalue()


def unicode_name_field() -> bytes:
    """A second name in an extra field, which some parsers take for the name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo("root/one")
        info.extra = struct.pack("<2H", 0x7075, 9) + b"\1" + bytes(4) + b"evil"
        archive.writestr(info, b"x")
    return buffer.getvalue()


def two_sizes() -> bytes:
    """A size in the zip64 field although the other field has one already."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo("root/one")
        info.extra = struct.pack("<2HQ", 1, 8, 5)
        archive.writestr(info, b"x")
    return buffer.getvalue()


def names(*given: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in given:
            archive.writestr(name, b"x")
    return buffer.getvalue()


TWO_VIEWS: dict[str, Callable[[], bytes]] = {
    "bytes before": lambda: b"#!/bin/sh\n" + sound(),
    "bytes after": lambda: sound() + b"x",
    "a second archive after": lambda: sound() + sound(),
    "a comment": with_comment,
    "an archive within an archive's comment": with_comment,
    "two roots": lambda: names("a/x", "b/x"),
    "no root": lambda: names("a/x", "version"),
    "a name twice": two_of_a_name,
    "names that differ in case": lambda: names("a/x", "a/X"),
    "absolute name": lambda: names("/a/x"),
    "parent folder": lambda: names("a/../x"),
    "parent folder at the end": lambda: names("a/.."),
    "backslash": lambda: names("a/x\\y"),
    "two slashes": lambda: names("a//x"),
    "dot": lambda: names("a/./x"),
    "folder": lambda: names("a/x", "a/y/"),
    "name that writes to the terminal": lambda: names("a/\x1b[31m"),
    "another name in the entry": other_local_name,
    "entries that share bytes": overlapping,
    "entry that the directory hides": hidden,
    "other checksum": lambda: central_field(16, "<L", 1),
    "other packed size": lambda: central_field(20, "<L", 1),
    "other size": lambda: central_field(24, "<L", 1),
    "size beyond the file": lambda: central_field(20, "<L", 1 << 30),
    "offset beyond the file": lambda: central_field(42, "<L", 1 << 30),
    "encrypted": lambda: central_field(8, "<H", 1),
    "unknown method": lambda: central_field(10, "<H", 99),
    "comment of an entry": lambda: central_field(32, "<H", 1),
    "other disk": lambda: central_field(34, "<H", 1),
    "second name": unicode_name_field,
    "two sizes": two_sizes,
    "more than 100:1": bomb,
    "no entry": lambda: b"PK\5\6" + bytes(18),
    "nothing": lambda: b"",
}


@pytest.mark.parametrize("name", TWO_VIEWS)
def test_p03_an_archive_with_more_than_one_view_is_refused(name):
    with pytest.raises(OprepError) as refused:
        read(TWO_VIEWS[name]())
    assert refused.value.exit_code == ExitCode.MODEL
    assert refused.value.message.startswith("`m.pt2` is refused: ")
    assert not refused.value.help


def test_p02_a_crc_is_checked():
    data = sound()
    at = data.index(b"1" * 70)
    with pytest.raises(OprepError, match="entry `one` is damaged"):
        read(data[:at] + b"0" + data[at + 1 :])


def test_p03_a_packed_entry_never_gives_more_than_it_says():
    data = zipped({"a": b"y" * 100_000}, "root", zipfile.ZIP_DEFLATED)
    at, local = central(data, b"a"), data.index(b"PK\3\4")
    lied = put(put(data, at + 24, "<L", 1000), local + 22, "<L", 1000)
    with pytest.raises(OprepError, match="unpacks to more than it says"):
        read(lied)


def test_p03_a_ratio_of_100_is_still_read():
    import os

    data = os.urandom(20_000) + bytes(1_900_000)
    assert 50 < len(data) / len(zipped({"a": data}, "r", zipfile.ZIP_DEFLATED)) < MAX_RATIO
    assert read(zipped({"a": data}, "r", zipfile.ZIP_DEFLATED))[1] == {"a": data}


@given(st.data())
def test_p11_flipped_bits_of_an_archive_are_refused_or_change_nothing(data):
    raw = bytearray(zipped(TEXTS, "root", data.draw(st.sampled_from([0, 8]))))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    found = outcome(bytes(raw))
    if isinstance(found, OprepError):
        assert found.exit_code == ExitCode.MODEL
        return
    with zipfile.ZipFile(io.BytesIO(raw)) as other:
        theirs = {name: other.read(name) for name in other.namelist()}
    assert {f"{found[0]}/{name}": content for name, content in found[1].items()} == theirs


@given(st.binary(max_size=200))
def test_p11_any_bytes_are_refused(data):
    for raw in (data, b"PK\3\4" + data, data + b"PK\5\6" + bytes(18)):
        with pytest.raises(OprepError) as refused:
            read(raw)
        assert refused.value.exit_code == ExitCode.MODEL

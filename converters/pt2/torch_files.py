"""Files of `torch.save`: tensors and plain data alone, or code; told without unpickling.

Zip archives (`data.pkl` and storages) and the older format (five pickles, then the storages). What
`torch.load` would take for something else (TorchScript inside, a tar file) is never plain.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn

from oprep.converters.pt2.entries import Entry, content, refused
from oprep.converters.pt2.pickles import CONTAINERS, Damaged, Found, first_forbidden
from oprep.converters.pt2.zipped import entries_of
from oprep.converters.reading import Content, Readable, as_stream
from oprep.opsets.errors import ExitCode, OprepError

ZIP = (b"PK\x03\x04", b"PK\x05\x06")
MAX_PICKLE = 1 << 28
LEGACY_MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
LEGACY_PICKLES = 5
CONVERT = "export it to `.pt2`, or pass `--trust-model` if the file is yours"


class Kind(StrEnum):
    """What a file of torch holds, as the words that a message uses for it."""

    WEIGHTS = "tensors and plain data"
    PICKLE = "PyTorch pickle"
    TORCHSCRIPT = "TorchScript archive"


@dataclass(frozen=True)
class TorchFile:
    """What a `.pt` holds: `imports` is the first thing in it that is code, empty if nothing is."""

    kind: Kind
    imports: str = ""
    legacy: bool = False

    @property
    def plain(self) -> bool:
        """Tell whether it can be loaded without running code."""
        return self.kind is Kind.WEIGHTS


def inspect(source: Readable, more: Collection[str] = ()) -> TorchFile:
    """Tell what a file of torch holds; one that is damaged is refused (exit 3).

    `more` are imports that are taken for plain data too.
    """
    try:
        if source.read_at(0, min(4, source.size)) in ZIP:
            return _zip(source, more)
        return _pickles(source)
    except Damaged as error:
        raise refused(source, "its pickle is damaged", str(error)) from error


def gate_state_dict(source: Readable, *, trusted: bool = False) -> TorchFile:
    """Let through what holds tensors and plain data only; code is exit 7 unless `trusted`."""
    found = inspect(source)
    if not found.plain and not trusted:
        untrusted(source, found)
    return found


def untrusted(source: Readable, found: TorchFile) -> NoReturn:
    """Refuse a file that holds code (exit 7)."""
    what = f" of class `{found.imports}`" if found.imports else ""
    raise OprepError(
        f"`{source.path.name}` can only be loaded by running code stored in it",
        where=f"{source.path}, {found.kind}{what}",
        help=CONVERT,
        exit_code=ExitCode.UNTRUSTED,
    )


def _zip(source: Readable, more: Collection[str]) -> TorchFile:
    _, entries = entries_of(source)
    by_name = {entry.name: entry for entry in entries}
    if "constants.pkl" in by_name or any(name.startswith("code/") for name in by_name):
        return TorchFile(Kind.TORCHSCRIPT)
    pickled = by_name.get("data.pkl")
    if pickled is None:
        raise refused(source, "it has no entry `data.pkl`")
    return _judged(_first_in(source, pickled, more), legacy=False)


def _first_in(source: Readable, entry: Entry, more: Collection[str]) -> Found | None:
    data = io.BytesIO(content(source, entry, MAX_PICKLE))
    found = first_forbidden(data, more)
    if found is None and data.read(1):
        raise refused(source, f"entry `{entry.name}` has bytes after its end")
    return found


def _pickles(source: Readable) -> TorchFile:
    """Walk the pickles of the older format, or the one of a plain pickle."""
    reader = as_stream(source, 0, source.size)
    if source.read_at(0, min(len(LEGACY_MAGIC), source.size)) != LEGACY_MAGIC:
        if _is_tar(source):
            return TorchFile(Kind.PICKLE, "", legacy=True)
        return TorchFile(Kind.PICKLE, _name(first_forbidden(reader)))
    for _ in range(LEGACY_PICKLES):
        found = first_forbidden(reader)
        if found is not None:
            return TorchFile(Kind.PICKLE, _name(found), legacy=True)
    return TorchFile(Kind.WEIGHTS, legacy=True)


def _is_tar(source: Readable) -> bool:
    head = source.read_at(0, min(512, source.size))
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _judged(found: Found | None, *, legacy: bool) -> TorchFile:
    if found is None:
        return TorchFile(Kind.WEIGHTS, legacy=legacy)
    return TorchFile(Kind.PICKLE, _name(found), legacy)


def _name(found: Found | None) -> str:
    return found.what if found is not None and found.is_import else ""


def first_code(source: Content) -> str:
    """Say what in a file of torch inside an archive is code; empty if nothing is."""
    found = inspect(source, CONTAINERS)
    if found.plain:
        return ""
    return f"a pickle that imports `{found.imports}`" if found.imports else f"a {found.kind}"

"""Which classes and functions a file of `torch.save` names, told without unpickling it.

Tensors in plain containers name only what `torch.load` rebuilds tensors with. Whatever else is
named would be imported and called: such a file is code.
"""

from __future__ import annotations

import io
import pickletools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from oprep.converters import archives
from oprep.converters.files import Content
from oprep.opsets.errors import ExitCode, OprepError

DATA = re.compile(
    r"collections\.(OrderedDict|Counter|defaultdict)"
    r"|(builtins|__builtin__)\.(set|frozenset|dict|list|tuple|int|float|bool|complex|bytearray|slice)"
    r"|_codecs\.encode"
    r"|torch\.(bool|(u|q|qu)?int\d+\w*|b?float\d+\w*|complex\d+|device|Size|Tensor|\w*Storage)"
    r"|torch\.storage\.\w*Storage"
    r"|torch\._utils\._rebuild_\w+|torch\._tensor\._rebuild_from_type_v2"
    r"|torch\.nn\.parameter\.(Parameter|Buffer)|torch\.serialization\._get_layout"
)
"""What files of tensors name; a narrower list is `torch.load`'s own, which runs in the child."""

STRINGS = frozenset(
    ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE", "SHORT_BINSTRING", "BINSTRING",
     "STRING")
)  # fmt: skip
CALLS = frozenset(("GLOBAL", "STACK_GLOBAL", "INST"))
EXTENSIONS = frozenset(("EXT1", "EXT2", "EXT4"))
LEGACY_PARTS = 5
"""Pickles in a file of before torch 1.6: magic, version, system, object, storage keys."""


@dataclass(frozen=True)
class Pickled:
    """All names that a file's pickles import, in order, and those that are no mere data."""

    names: tuple[str, ...]
    foreign: tuple[str, ...]


def pickled(content: Content) -> Pickled:
    """List what the pickles of a file name; exit 3 where they are damaged."""
    try:
        names = tuple(dict.fromkeys(_names(content)))
    except OprepError:
        raise
    except Exception as error:  # pickletools raises whatever the bytes make it raise
        raise OprepError(
            f"`{content.path.name}` is damaged",
            where=str(content.path),
            notes=(f"its pickle ends in the middle: {error}"[:200],),
            exit_code=ExitCode.MODEL,
        ) from error
    return Pickled(names, tuple(name for name in names if not DATA.fullmatch(name)))


def _names(content: Content) -> Iterator[str]:
    if not content.data.startswith(b"PK"):
        yield from _of_pickles(content.data, LEGACY_PARTS)
        return
    for entry, data in archives.members(content):
        if entry.endswith("/data.pkl"):
            yield from _of_pickles(data, 1)
            return


def _of_pickles(data: bytes, parts: int) -> Iterator[str]:
    file = io.BytesIO(data)
    for _ in range(parts):
        yield from _of_pickle(file)
        if file.tell() >= len(data) or data[file.tell()] != 0x80:
            return


def _of_pickle(file: io.BytesIO) -> Iterator[str]:
    """Follow strings through the memo, which is where a stack global finds its two names."""
    memo: dict[int, str] = {}
    recent: list[str] = []
    count = 0
    for opcode, argument, _ in pickletools.genops(file):
        name = opcode.name
        if name in STRINGS:
            recent.append(_text(argument))
        elif name == "MEMOIZE":
            memo[count] = recent[-1] if recent else ""
            count += 1
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            memo[int(str(argument))] = recent[-1] if recent else ""
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            recent.append(memo.get(int(str(argument)), ""))
        elif name in CALLS:
            yield _called(name, argument, recent)
        elif name in EXTENSIONS:
            yield f"extension {argument}"


def _text(argument: object) -> str:
    return argument.decode("latin-1") if isinstance(argument, bytes) else str(argument)


def _called(opcode: str, argument: object, recent: list[str]) -> str:
    if opcode == "STACK_GLOBAL":
        return ".".join(recent[-2:]) if len(recent) > 1 else "an unreadable name"
    return str(argument).replace(" ", ".", 1)

"""Find the line of every table, key and list item in a TOML file, which tomllib does not tell.

The text is cut into tokens once; that also bounds what tomllib is given: it takes quadratic time
for a long dotted key and recurses into brackets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from oprep.opsets.errors import ExitCode, OprepError

MAX_BYTES = 4 * 1024 * 1024
MAX_PARTS = 64
MAX_BRACKETS = 32

Path: TypeAlias = tuple[str | int, ...]

# possessive repeats, and `open` taking all that an unclosed string could be, keep this linear
_TOKEN = re.compile(
    r'''
      (?P<long>"""(?:[^"\\]++|\\.|"(?!""))*+"{3,5}|\'\'\'(?:[^']++|'(?!''))*+'{3,5})
    | (?P<string>"(?:[^"\\\n]++|\\[^\n])*+"(?!")|'[^'\n]*+'(?!'))
    | (?P<open>(?:"""|\'\'\').*|["'][^\n]*)
    | (?P<comment>\#[^\n]*)
    | (?P<newline>\n)
    | (?P<space>[ \t\r]+)
    | (?P<mark>[\[\]{}=,.])
    | (?P<bare>[^\s"'\#\[\]{}=,.]+)
    | (?P<other>.)
    ''',
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a key or item stands; where its text begins, and whether its newlines are real ones."""

    line: int
    text_line: int
    spans_lines: bool = False


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Positions:
    """The place of each path: `("rule", 0, "replace", 1)` is the second item of a list."""

    places: dict[Path, Place] = field(default_factory=dict)
    repeated: list[tuple[Path, int, int]] = field(default_factory=list)
    """Keys that are given twice: path, first line, second line."""

    def place(self, path: Path) -> Place:
        """Give the place of a path, else of the nearest table around it."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, Place(1, 1))


def check_limits(data: bytes, file: str) -> str:
    """Give the text of a rule file that tomllib can be trusted with.

    Raise OprepError (exit RULES) for more than 4 MiB, text that is not UTF-8, more than 64 parts
    in a dotted key and brackets deeper than 32.
    """
    if len(data) > MAX_BYTES:
        message = f"the rule file has {len(data)} bytes, at most {MAX_BYTES} are read"
        raise OprepError(message, file, (), "split it into several files", ExitCode.RULES)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"the rule file is not UTF-8: byte 0x{data[error.start]:02x}"
        place = f"{file}:{line}"
        raise OprepError(message, place, (), "save it as UTF-8", ExitCode.RULES) from error
    if text.startswith("\ufeff"):
        message = "the rule file begins with a byte order mark"
        raise OprepError(message, f"{file}:1", (), "save it without one", ExitCode.RULES)
    depth = parts = 0
    for token in _tokens(text):
        depth += (token.text in ("[", "{")) - (token.text in ("]", "}"))
        if token.kind != "space":
            parts = parts + (token.text == ".") if token.kind in _KEY or token.text == "." else 0
        if depth > MAX_BRACKETS or parts >= MAX_PARTS:
            what = "brackets nest" if depth > MAX_BRACKETS else "a dotted key has"
            most = f"{MAX_BRACKETS} deep" if depth > MAX_BRACKETS else f"{MAX_PARTS} parts"
            message = f"{what} more than {most}"
            place = f"{file}:{token.line}"
            raise OprepError(message, place, (), "write it flatter", ExitCode.RULES)
    return text


def positions(text: str) -> Positions:
    """Find all places; of text that is no TOML, those before the mistake."""
    return _Scanner(text).scan()


_KEY = ("bare", "string")
_END = _Token("end", "", 0)
_ITEMS = 1000
"""Items of a list whose places are kept; those behind share the last."""


def _tokens(text: str) -> Iterator[_Token]:
    line = 1
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup or "other"
        yield _Token(kind, found.group(), line)
        line += found.group().count("\n")


class _Scanner:
    """Follows tables and keys through the tokens; stops at what it does not understand."""

    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text)
        self.token = _END
        self.found = Positions()
        self.tables: dict[Path, int] = {}
        self.next()

    def next(self) -> None:
        """Go past the next token that says something."""
        skipped = ("space", "comment")
        self.token = next((token for token in self.tokens if token.kind not in skipped), _END)

    def take(self, text: str) -> bool:
        """Go past the next token if it is this one."""
        if self.token.text != text:
            return False
        self.next()
        return True

    def scan(self) -> Positions:
        table: Path = ()
        while self.token.kind != "end":
            if self.take("\n"):
                continue
            line = self.token.line
            if self.take("["):
                several = self.take("[")
                table = self.header(several, line)
                good = self.take("]") and (not several or self.take("]"))
            else:
                good = self.pair(table)
            if not good or self.token.kind not in ("newline", "end"):
                break
        return self.found

    def header(self, several: bool, line: int) -> Path:
        path: Path = ()
        parts = self.key()
        for number, part in enumerate(parts, 1):
            path = (*path, part)
            if several and number == len(parts):
                self.tables[path] = self.tables.get(path, 0) + 1
                self.found.places.setdefault(path, Place(line, line))
            if path in self.tables:
                path = (*path, self.tables[path] - 1)
            self.found.places.setdefault(path, Place(line, line))
        return path

    def key(self) -> list[str]:
        parts: list[str] = []
        while self.token.kind in _KEY:
            token = self.token
            # an escape in a quoted key is kept as written: its table's line is then shown
            parts.append(token.text[1:-1] if token.kind == "string" else token.text)
            self.next()
            if not self.take("."):
                break
        return parts

    def pair(self, table: Path) -> bool:
        line = self.token.line
        parts = self.key()
        if not parts or not self.take("="):
            return False
        path: Path = table
        for part in parts[:-1]:
            path = (*path, part)
            self.found.places.setdefault(path, Place(line, line))
        path = (*path, parts[-1])
        if path in self.found.places:
            self.found.repeated.append((path, self.found.places[path].line, line))
        return self.value(path, line)

    def value(self, path: Path, line: int) -> bool:
        token = self.token
        text_line, spans = token.line, token.kind == "long"
        if spans and token.text[3:].startswith(("\n", "\r\n")):
            text_line += 1
        self.found.places[path] = Place(line, text_line, spans)
        if self.take("["):
            return self.items(path)
        if self.take("{"):
            return self.inline(path)
        scalar = (*_KEY, "long")
        good = token.kind in scalar
        while self.token.kind in scalar or self.token.text == ".":
            self.next()
        return good

    def items(self, path: Path) -> bool:
        number = 0
        while True:
            while self.take("\n"):
                pass
            if self.take("]"):
                return True
            item = (*path, min(number, _ITEMS))
            if not self.value(item, self.token.line):
                return False
            number += 1
            while self.take("\n"):
                pass
            if not self.take(",") and self.token.text != "]":
                return False

    def inline(self, path: Path) -> bool:
        while not self.take("}"):
            if not self.pair(path):
                return False
            if not self.take(",") and self.token.text != "}":
                return False
        return True

"""Take typed values out of a TOML table with a closed set of keys; each refusal names its line."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.positions import Path, Positions, check_limits, positions
from oprep.opsets.rule import Source
from oprep.opsets.tokens import Text

LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Document:
    """A rule file that is TOML: where each of its values stands."""

    file: str
    positions: Positions

    def source(self, path: Path) -> Source:
        """Give the line of a key."""
        return Source(self.file, self.positions.place(path).line)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a rule file; `title` is how messages call it: ``rule `gelu` ``."""

    document: Document
    path: Path
    data: Mapping[str, Any]
    title: str

    @property
    def source(self) -> Source:
        """Give the line of the table."""
        return self.document.source(self.path)

    def sources(self) -> tuple[tuple[str, Source], ...]:
        """Give the line of each key."""
        return tuple((key, self.document.source((*self.path, key))) for key in self.data)

    def error(
        self, message: str, help: str, *keys: str | int, notes: tuple[str, ...] = ()
    ) -> OprepError:
        """Make the error at a key, or an item of its list; without one, at the table."""
        where = self.document.source((*self.path, *keys))
        return OprepError(message, str(where), notes, help, ExitCode.RULES)

    def close(self, *known: str) -> None:
        """Refuse a key that is not known."""
        for key in self.data:
            if key not in known:
                message = f"unknown key {_name(key)} in {self.title}"
                raise self.error(message, f"write {near(key, known)}", key)

    def has(self, key: str) -> bool:
        """Tell whether a key is written."""
        return key in self.data

    def take(self, key: str, kind: type | tuple[type, ...], wanted: str, *item: int) -> Any:
        """Give the value of a key, or of an item in its list, if it is of a kind."""
        value = self.data[key]
        for index in item:
            value = value[index]
        kinds = kind if isinstance(kind, tuple) else (kind,)
        # bool is an int to Python, but never to the author of a rule
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            number = f" number {item[0] + 1}" if item else ""
            message = f"`{key}`{number} of {self.title} is {_kind(value)}, not {wanted}"
            raise self.error(message, f"write {wanted}", key, *item)
        return value

    def text(self, key: str, *item: int) -> str:
        """Give a string that is not empty."""
        value: str = self.take(key, str, "a string", *item)
        if not value.strip():
            message = f"`{key}` of {self.title} is empty"
            raise self.error(message, "write it, or leave the key out", key, *item)
        return value

    def word(self, key: str, *item: int) -> str:
        """Give a string that can be printed on one line, of at most 200 characters."""
        value = self.text(key, *item)
        if not value.isprintable() or len(value) > LONGEST_NAME:
            message = f"`{key}` of {self.title} is no name that can be printed on a line"
            raise self.error(message, f"write at most {LONGEST_NAME} plain characters", key, *item)
        return value

    def words(self, key: str) -> tuple[str, ...]:
        """Give a string or a list of strings as a tuple."""
        if isinstance(self.data[key], str):
            return (self.word(key),)
        items: list[Any] = self.take(key, list, "a string or a list of strings")
        return tuple(self.word(key, index) for index in range(len(items)))

    def flag(self, key: str) -> bool:
        """Give a bool; False where the key is left out."""
        return self.has(key) and bool(self.take(key, bool, "`true` or `false`"))

    def amount(self, key: str) -> float:
        """Give a number that is finite and not negative."""
        written = self.take(key, (int, float), "a number")
        try:
            value = float(written)
        except OverflowError:  # an integer of more than 308 digits
            value = math.inf
        if math.isnan(value) or math.isinf(value) or value < 0:
            message = f"`{key}` of {self.title} is {value}"
            raise self.error(message, "write a finite number that is at least 0", key)
        return value

    def table(self, key: str) -> Table:
        """Give the table that is the value of a key."""
        data = self.take(key, dict, "a table `{ … }`")
        return Table(self.document, (*self.path, key), data, f"`{key}` of {self.title}")

    def tables(self, key: str) -> list[Table]:
        """Give the tables `[[key]]`, in order; each is titled by its name, else its number."""
        if not self.has(key):
            return []
        items = self.take(key, list, f"tables `[[{key}]]`")
        tables = []
        for index in range(len(items)):
            data = self.take(key, dict, "a table", index)
            given = data.get("name")
            name = given if isinstance(given, str) and given else f"{key}-{index + 1}"
            tables.append(Table(self.document, (key, index), data, f"{key} {_name(name)}"))
        return tables

    def written(self, key: str, *item: int) -> Text:
        """Give the text of an equation with its place, for the caret of a message."""
        value = self.text(key, *item)
        place = self.document.positions.place((*self.path, key, *item))
        return Text(value, Source(self.document.file, place.text_line), place.spans_lines)


def read_document(data: bytes, file: str) -> Table:
    """Parse a rule file within its limits; raise OprepError (exit RULES) with the line."""
    text = check_limits(data, file)
    try:
        content = tomllib.loads(text)
    except ValueError as error:
        raise _no_toml(text, file, error) from error
    return Table(Document(file, positions(text)), (), content, "the rule file")


def near(word: str, known: Sequence[str]) -> str:
    """Name the known word that was probably meant, else all of them (at most 12)."""
    close = get_close_matches(word[:LONGEST_NAME], known, n=1, cutoff=0.6)
    if close:
        return f"`{close[0]}`"
    some = ", ".join(f"`{item}`" for item in sorted(known)[:12])
    return ("one of " if len(known) > 1 else "") + some + (", …" if len(known) > 12 else "")


def _no_toml(text: str, file: str, error: ValueError) -> OprepError:
    """Say what tomllib found, with the lines that it leaves out for a repeated key."""
    for path, first, second in positions(text).repeated:
        message = f"key {_name(str(path[-1]))} is given twice"
        notes = (f"the first is in line {first}",)
        return OprepError(message, f"{file}:{second}", notes, "remove one", ExitCode.RULES)
    if not isinstance(error, tomllib.TOMLDecodeError):
        # Python's own refusal of a number of thousands of digits, or of a date, knows no line
        message = "the rule file has a number or a date that has no value"
        return OprepError(message, file, (), "correct it", ExitCode.RULES)
    said, _, place = str(error).partition(" (at ")
    message = f"the rule file is no TOML: {said[:1].lower()}{said[1:]}"
    line = place.removeprefix("line ").partition(",")[0]
    last = str(text.count("\n") + 1)
    where = f"{file}:{line if line.isdecimal() else last}"
    help = "correct this line" if line.isdecimal() else "complete the file"
    return OprepError(message, where, (), help, ExitCode.RULES)


def _kind(value: object) -> str:
    names = {bool: "a bool", int: "an integer", float: "a float", str: "a string"}
    names |= {list: "a list", dict: "a table"}
    return names.get(type(value), "a date or time")


def _name(text: str) -> str:
    shown = text if text.isprintable() else ascii(text)[1:-1]
    return f"`{shown[:LONGEST_NAME]}`"

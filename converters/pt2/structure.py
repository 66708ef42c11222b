"""Hold JSON to the schema: every field has its type, every text that torch acts on its form.

What has another structure is broken (`Misshapen`); what is sound but would run as code is reported
and the walk goes on, since a broken file is refused as such whatever else it holds.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from oprep.converters.pt2.expressions import (
    Unparsable,
    Unsafe,
    bare,
    check_expression,
    check_guard,
)
from oprep.converters.pt2.schema import DTYPES, RECORDS, UNIONS
from oprep.converters.pt2.targets import op_of, touches_files
from oprep.converters.pt2.treespec import check_treespec

Report = Callable[[str], None]
Check = Callable[[Any, Report], None]

DEVICE = re.compile(r"[a-z]{1,20}")
BARE_FILE = re.compile(r"[\w.\- +@=]+")
FLOAT_WORDS = ("Infinity", "-Infinity", "NaN")
SIZE = 1 << 63
SHOWN = 120
MAX_DEPTH = 200
QUICK_ROUNDS = 12
OTHERS = bytes(c for c in range(256) if c not in b"[]{}")
SQUARE = bytes.maketrans(b"{}", b"[]")
STEPS = {ord("["): 1, ord("]"): -1}
STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


class Misshapen(Exception):
    """A part that the schema does not know there; `path` leads to it, the innermost key first."""

    def __init__(self, fact: str) -> None:
        """Take what is wrong; the place is added on the way out."""
        super().__init__(fact)
        self.fact = fact
        self.path: list[str] = []

    def __str__(self) -> str:
        """Say where it is and what it is."""
        place = ".".join(reversed(self.path))
        return f"`{place}` {self.fact}" if place else self.fact


def parse(data: bytes) -> Any:
    """Parse JSON of at most 200 levels."""
    if _depth(data) > MAX_DEPTH:
        raise Misshapen(f"is nested more than {MAX_DEPTH} deep")
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Misshapen(f"is no JSON: {error}") from error


def _depth(data: bytes) -> int:
    """Count how deep JSON is nested, up to a level too many."""
    nested, rounds = STRINGS.sub(b"", data).translate(SQUARE, OTHERS), 0
    while rounds < QUICK_ROUNDS and nested:  # each takes away the innermost level, all at once
        nested, rounds = nested.replace(b"[]", b""), rounds + 1
    deepest = 0
    for depth in itertools.accumulate(map(STEPS.__getitem__, nested)):
        deepest = max(deepest, depth)
        if deepest > MAX_DEPTH:
            break
    return rounds + deepest


def check(value: Any, kind: str, report: Report) -> None:
    """Check a value against a type of the schema; `report` is told what would run as code."""
    try:
        _checker(kind)(value, report)
    except RecursionError as error:
        raise Misshapen(f"is nested more than {MAX_DEPTH} deep") from error


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def _plain(kinds: type | tuple[type, ...], word: str) -> Check:
    def checker(value: Any, report: Report) -> None:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool is not kinds):
            raise Misshapen(f"is `{_shown(value)}`, not {word}")

    return checker


def _int(value: Any, report: Report) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not -SIZE <= value < SIZE:
        raise Misshapen(f"is `{_shown(value)}`, not an integer")


def _float(value: Any, report: Report) -> None:
    if isinstance(value, bool) or not (isinstance(value, int | float) or value in FLOAT_WORDS):
        raise Misshapen(f"is `{_shown(value)}`, not a number")


def _dtype(value: Any, report: Report) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value not in DTYPES:
        raise Misshapen(f"is `{_shown(value)}`, not a dtype")


def _text(form: Callable[[str], bool], what: str) -> Check:
    """Make a check of a text: one of another form would run as code."""

    def checker(value: Any, report: Report) -> None:
        if not isinstance(value, str):
            raise Misshapen(f"is `{_shown(value)}`, not a text")
        if not form(value):
            report(f"{what} `{_shown(value)}`")

    return checker


def _form(form: re.Pattern[str], what: str) -> Check:
    """Make a check of a text that has to be of a form; another one means nothing to torch."""

    def checker(value: Any, report: Report) -> None:
        if not isinstance(value, str) or not form.fullmatch(value):
            raise Misshapen(f"is `{_shown(value)}`, not {what}")

    return checker


def _evaluated(parse: Callable[[str], None], what: str) -> Check:
    """Make a check of a text that torch evaluates."""

    def checker(value: Any, report: Report) -> None:
        if not isinstance(value, str):
            raise Misshapen(f"is `{_shown(value)}`, not a text")
        try:
            parse(value)
        except Unparsable as error:
            raise Misshapen(f"is `{_shown(value)}`, which does not parse") from error
        except Unsafe as error:
            report(f"{what} `{_shown(str(error))}`")

    return checker


def _target(value: Any, report: Report) -> None:
    if not isinstance(value, str):
        raise Misshapen(f"is `{_shown(value)}`, not the name of an op")
    op = op_of(value)
    if op is None or touches_files(op):
        report(f"a call of `{_shown(value)}`")


def _object(value: Any, report: Report) -> None:
    if not isinstance(value, str):
        raise Misshapen(f"is `{_shown(value)}`, not a text")
    report(f"an object of class `{_shown(value)}`")


LEAVES: Mapping[str, Check] = {
    "int": _int,
    "float": _float,
    "dtype": _dtype,
    "bool": _plain(bool, "true or false"),
    "text": _plain(str, "a text"),
    "name": _text(str.isidentifier, "a value named"),
    "keyword": _text(lambda text: not text or text.isidentifier(), "an argument named"),
    "path": _text(bare, "a parameter or module named"),
    "bare": _form(BARE_FILE, "the name of a file"),
    "string": _plain(str, "a text"),
    "device": _form(DEVICE, "a device"),
    "expression": _evaluated(check_expression, "the expression"),
    "symbol": _evaluated(check_expression, "the expression"),
    "guard": _evaluated(check_guard, "the guard"),
    "spec": _evaluated(check_treespec, "a structure with"),
    "target": _target,
    "object": _object,
}
_CHECKERS: dict[str, Check] = dict(LEAVES)


def _checker(kind: str) -> Check:
    found = _CHECKERS.get(kind)
    if found is None:
        _CHECKERS[kind] = _later(kind)  # records refer to themselves: a graph holds graphs
        _CHECKERS[kind] = found = _made(kind)
    return found


def _later(kind: str) -> Check:
    return lambda value, report: _CHECKERS[kind](value, report)


def _made(kind: str) -> Check:
    if kind.endswith("?"):
        return _optional(_checker(kind[:-1]))
    if kind.startswith("["):
        return _list(_checker(kind[1:-1]))
    if kind.startswith("{"):
        key, _, item = kind[1:-1].rpartition(":")
        return _mapping(_checker(key or "text"), _checker(item))
    if kind in UNIONS:
        return _union({name: _checker(inner) for name, inner in UNIONS[kind].items()})
    fields = RECORDS[kind]
    return _record(
        {name.rstrip("?"): _checker(inner) for name, inner in fields.items()},
        {name for name in fields if not name.endswith("?")},
    )


def _optional(inner: Check) -> Check:
    def checker(value: Any, report: Report) -> None:
        if value is not None:
            inner(value, report)

    return checker


def _list(inner: Check) -> Check:
    def checker(value: Any, report: Report) -> None:
        if not isinstance(value, list):
            raise Misshapen(f"is `{_shown(value)}`, not a list")
        at = 0
        try:
            for item in value:
                inner(item, report)
                at += 1
        except Misshapen as error:
            error.path.append(str(at))
            raise

    return checker


def _mapping(key: Check, inner: Check) -> Check:
    def checker(value: Any, report: Report) -> None:
        if not isinstance(value, dict):
            raise Misshapen(f"is `{_shown(value)}`, not a mapping")
        name = ""
        try:
            for name, item in value.items():
                key(name, report)
                inner(item, report)
        except Misshapen as error:
            error.path.append(_shown(name))
            raise

    return checker


def _record(fields: Mapping[str, Check], required: set[str]) -> Check:
    """Check a record; torch takes no notice of fields that it does not know, nor do we."""

    def checker(value: Any, report: Report) -> None:
        if not isinstance(value, dict):
            raise Misshapen(f"is `{_shown(value)}`, not a mapping")
        missing = required - value.keys()
        if missing:
            raise Misshapen(f"has no `{min(missing)}`")
        name = ""
        try:
            for name, item in value.items():
                inner = fields.get(name)
                if inner is not None:
                    inner(item, report)
        except Misshapen as error:
            error.path.append(_shown(name))
            raise

    return checker


def _union(kinds: Mapping[str, Check]) -> Check:
    def checker(value: Any, report: Report) -> None:
        if not isinstance(value, dict) or len(value) != 1:
            raise Misshapen(f"is `{_shown(value)}`, not one value of one kind")
        ((name, item),) = value.items()
        inner = kinds.get(name)
        if inner is None:
            raise Misshapen(f"is of the kind `{_shown(name)}`, which is not known here")
        try:
            inner(item, report)
        except Misshapen as error:
            error.path.append(name)
            raise

    return checker

"""Make text that came out of a file safe to print on a terminal or in a CI log."""

from __future__ import annotations

import re
import unicodedata

NAME_LIMIT = 200
SENTENCE_LIMIT = 2000

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Unicode categories that move the cursor, reorder text or show nothing (bidi marks are Cf)."""

_COMMAND = re.compile(r"##(?=[\w-]*\[)")
"""CI systems obey `##[group]`, `##vso[...]` and `##teamcity[...]` anywhere in a line."""

_LINE_COMMAND = re.compile(r"^(\s*)::")
"""`::error::` is obeyed at the start of a line, behind blanks too."""

_QUOTED = re.compile(rf"`([^`]{{{NAME_LIMIT + 1},}})`")


def clean(text: str) -> str:
    """Escape control, bidi and invisible characters and what starts a CI workflow command."""
    if not text.isascii() or not text.isprintable():
        text = "".join(map(_visible, text))
    return _LINE_COMMAND.sub(r"\1\\x3a:", _COMMAND.sub(r"\\x23#", text))


def name(text: str) -> str:
    """Escape a name and cut it at 200 characters."""
    return _cut(clean(text))


def sentence(text: str) -> str:
    """Escape a sentence; names in backticks are cut at 200 characters each."""
    return _cut(_QUOTED.sub(lambda match: f"`{_cut(match.group(1))}`", clean(text)), SENTENCE_LIMIT)


def _visible(character: str) -> str:
    if unicodedata.category(character) not in _INVISIBLE:
        return character
    if character in "\n\r\t":
        return {"\n": r"\n", "\r": r"\r", "\t": r"\t"}[character]
    code = ord(character)
    if code < 0x100:
        return rf"\x{code:02x}"
    return rf"\u{code:04x}" if code < 0x10000 else rf"\U{code:08x}"


def _cut(text: str, limit: int = NAME_LIMIT) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"

"""Cut the text of an equation into tokens, and point at the place of a mistake in it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.rule import Source

MAX_TEXT = 65536
"""Characters in one equation; a longer one is refused before it is read."""

MAX_NESTING = 64
"""Levels of brackets, and of `else`."""

WIDTH = 96
"""Characters of the line shown around a caret, so that a message stays readable."""

_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\r]+)
    | (?P<newline>\n)
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)
    | (?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
    | (?P<operator>::|\*\*|//|<=|>=|==|!=|[-+*/%@<>=()\[\],;?])
    """,
    re.VERBOSE,
)
_ESCAPES = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "t": "\t"}
_PAIRS = {"(": ")", "[": "]"}


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of an equation: `kind` is `number`, `name`, `string`, `operator`, `newline`, `end`.

    `text` is as written, but a string's without quotes and escapes; `at` is the index in the text.
    """

    kind: str
    text: str
    at: int


@dataclass(frozen=True, slots=True)
class Text:
    """An equation's text with the place it came from.

    `spans_lines` is False where a newline in it is an escape, so that all is on one file line.
    """

    text: str
    where: Source
    spans_lines: bool = True

    def error(self, message: str, at: int, help: str = "") -> OprepError:
        """Make the error whose notes are the line of `at` and a caret under the place."""
        at = max(0, min(at, len(self.text)))
        start = self.text.rfind("\n", 0, at) + 1
        end = self.text.find("\n", at)
        line = self.text[start : end if end >= 0 else len(self.text)]
        shown, column = _window(line, at - start)
        below = self.text.count("\n", 0, at) if self.spans_lines else 0
        where = Source(self.where.file, self.where.line + below)
        caret = " " * column + "^"
        return OprepError(message, str(where), (shown, caret), help, ExitCode.RULES)


def tokenize(text: Text) -> list[Token]:
    """Give the tokens of an equation; a newline inside brackets is none.

    Raise OprepError for a character that no token starts with and for brackets that do not pair.
    """
    source = text.text
    tokens: list[Token] = []
    open_brackets: list[Token] = []
    at = 0
    while at < len(source):
        found = _TOKEN.match(source, at)
        if found is None or found.lastgroup is None:
            raise _no_token(text, at)
        token = _token(text, found.lastgroup, found.group(), at)
        at = found.end()
        if at > MAX_TEXT:
            message = f"the equation has {len(source)} characters, at most {MAX_TEXT} are read"
            raise text.error(message, at, "split it into several rules")
        _pair(text, token, open_brackets)
        if token.kind != "space" and not (token.kind == "newline" and open_brackets):
            tokens.append(token)
    if open_brackets:
        last = open_brackets[-1]
        raise text.error(
            f"`{last.text}` is never closed", last.at, f"add `{_PAIRS[last.text]}` behind it"
        )
    return [*tokens, Token("end", "", len(source))]


def quote(text: str) -> str:
    """Write a string as the equation language reads it back."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + escaped.replace("\n", "\\n").replace("\t", "\\t") + "'"


def _token(text: Text, kind: str, written: str, at: int) -> Token:
    if kind == "number":
        behind = text.text[at + len(written) : at + len(written) + 1]
        if behind.isalnum() or behind in ("_", "."):
            raise text.error(f"`{behind}` cannot follow a number", at + len(written), "add `*`")
    if kind == "string":
        written = _unescape(text, written, at)
    return Token(kind, written, at)


def _unescape(text: Text, written: str, at: int) -> str:
    parts: list[str] = []
    index = 1
    while index < len(written) - 1:
        character = written[index]
        if character == "\\":
            index += 1
            if written[index] not in _ESCAPES:
                known = ", ".join(f"`\\{key}`" for key in "\\'\"nt")
                message = f"`\\{written[index]}` is no escape in a string"
                raise text.error(message, at + index - 1, f"write one of {known}")
            character = _ESCAPES[written[index]]
        parts.append(character)
        index += 1
    return "".join(parts)


def _pair(text: Text, token: Token, open_brackets: list[Token]) -> None:
    if token.kind != "operator":
        return
    if token.text in _PAIRS:
        open_brackets.append(token)
        if len(open_brackets) > MAX_NESTING:
            message = f"more than {MAX_NESTING} levels of nesting"
            raise text.error(message, token.at, "split it into statements")
    elif token.text in _PAIRS.values():
        if not open_brackets:
            raise text.error(f"`{token.text}` closes nothing", token.at, "remove it")
        opened = open_brackets.pop()
        if _PAIRS[opened.text] != token.text:
            message = f"`{token.text}` closes a `{opened.text}`"
            raise text.error(message, token.at, f"write `{_PAIRS[opened.text]}`")


def _no_token(text: Text, at: int) -> OprepError:
    character = text.text[at]
    if character in "'\"":
        return text.error("the string is never closed", at, f"add {character} at its end")
    shown = character if character.isprintable() else f"\\x{ord(character):02x}"
    replacement = {"^": "write `**` for a power", "&": "write `and`", "|": "write `or`"}
    replacement |= {"!": "write `not`", "#": "put comments into the file, outside the equation"}
    return text.error(
        f"`{shown}` has no meaning in an equation", at, replacement.get(character, "remove it")
    )


def _window(line: str, column: int) -> tuple[str, int]:
    """Cut a long line around the column, and blank what would move the caret."""
    plain = "".join(
        character
        if character.isprintable()
        else " "
        if character in "\t\r"
        else "\N{REPLACEMENT CHARACTER}"
        for character in line
    )
    if len(plain) <= WIDTH:
        return plain.rstrip(), min(column, len(plain.rstrip()))
    start = max(0, min(column - WIDTH // 2, len(plain) - WIDTH))
    before = "..." if start else ""
    behind = "..." if start + WIDTH < len(plain) else ""
    return before + plain[start : start + WIDTH] + behind, column - start + len(before)

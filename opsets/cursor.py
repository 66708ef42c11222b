"""Go through the tokens of an equation, and refuse one that cannot stand where it does."""

from __future__ import annotations

from oprep.opsets.errors import OprepError
from oprep.opsets.tokens import Text, Token, tokenize

LOGIC = ("and", "or", "not", "in", "if", "else")
"""Words that only a condition may use."""


class Cursor:
    """Where a reading is, how deep it is, and whether `and`, `if`, … are allowed there."""

    def __init__(self, text: Text, logic: bool = False) -> None:
        """Begin at the first token; `logic` allows what only a condition may say."""
        self.text = text
        self.tokens = tokenize(text)
        self.index = 0
        self.depth = 0
        self.logic = logic

    @property
    def token(self) -> Token:
        """Give the token that comes next."""
        return self.tokens[self.index]

    def before(self, kind: str, text: str) -> bool:
        """Tell whether the token behind the next one is of a kind and reads so."""
        following = self.tokens[min(self.index + 1, len(self.tokens) - 1)]
        return (following.kind, following.text) == (kind, text)

    def take(self) -> Token:
        """Give the next token and go past it."""
        token = self.token
        self.index += token.kind != "end"
        return token

    def at_operator(self, *texts: str) -> bool:
        """Tell whether one of these operators comes next."""
        return self.token.kind == "operator" and self.token.text in texts

    def at_word(self, *texts: str) -> bool:
        """Tell whether one of these words comes next."""
        return self.token.kind == "name" and self.token.text in texts

    def error(self, message: str, at: int | None = None, help: str = "") -> OprepError:
        """Make the error at a place, else at the next token."""
        return self.text.error(message, self.token.at if at is None else at, help)

    def unexpected(self, wanted: str, help: str) -> OprepError:
        """Make the error for a token that cannot stand here."""
        token = self.token
        if self.at_word(*LOGIC) and not self.logic:
            message = f"`{token.text}` cannot stand in an equation"
            return self.error(message, None, "say it in `when`")
        if self.at_operator("["):
            help = "write `dim(x, 0)` for a size" if self.logic else "write the op that takes it"
            return self.error("`[` cannot take an element", None, help)
        if self.at_operator("?"):
            message = "`?` marks an argument that may be absent"
            return self.error(message, None, "write it behind a name in a call: `f(x?)`")
        if self.at_operator("="):
            return self.error("`=` cannot stand here", None, "write `==` to compare")
        names = {"end": "the end", "newline": "the end of the line", "string": "a string"}
        found = names.get(token.kind, f"`{token.text}`")
        return self.error(f"expected {wanted}, found {found}", None, help)

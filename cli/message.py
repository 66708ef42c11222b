"""Lay out one error as `error: fact`, place, notes and help, of at most 4 KiB."""

from __future__ import annotations

from oprep.cli.escape import sentence
from oprep.opsets.errors import OprepError

MESSAGE_LIMIT = 4096

_MAX_NOTES = 3
_PART_LIMIT = MESSAGE_LIMIT // (3 + _MAX_NOTES) - 16
"""Bytes of the fact, the place, each note and the help where the whole would be too long."""


def error_text(error: OprepError) -> str:
    """Give the message without colour, ending in a newline.

    A caret stands below the line that the note before it shows. A note may have several lines; a
    further one starts with a bar, so that no text from a file can ever start a line of a log.
    """
    parts = [f"error: {sentence(error.message)}"]
    parts += [f"  --> {sentence(error.where)}"] if error.where else []
    parts += [_note(note) for note in error.notes[:_MAX_NOTES]]
    parts += [f"  = help: {sentence(error.help)}"] if error.help else []
    text = "\n".join(parts) + "\n"
    if len(_bytes(text)) > MESSAGE_LIMIT:
        text = "\n".join(map(_cut, parts)) + "\n"
    return text


def _note(note: str) -> str:
    if note.strip() == "^":
        return f"  |       {note}"
    first, *more = map(sentence, note.split("\n"))
    return "\n".join([f"  = note: {first}", *(f"  |       {line}" for line in more)])


def _cut(part: str) -> str:
    data = _bytes(part)
    if len(data) <= _PART_LIMIT:
        return part
    return data[:_PART_LIMIT].decode("utf-8", "ignore") + "…"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")

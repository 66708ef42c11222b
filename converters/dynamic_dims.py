"""`--dynamic INPUT:AXIS=NAME[LOW:HIGH]`: which dims of which inputs may vary, and how far.

`x:0=batch[1:64]` lets axis 0 of input `x` vary from 1 to 64 under the name `batch`; `x:0=batch`
leaves the bounds to the capture; `x:0=batch[1:]` gives one of them. One name is one size.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from oprep.opsets.errors import ExitCode, OprepError

OPTION = "--dynamic"
LARGEST = (1 << 63) - 1
EXAMPLE = "write it as `x:0=batch[1:64]`: input, axis, name and, if wanted, smallest and largest"


@dataclass(frozen=True)
class DynamicDim:
    """Axis `axis` (from the end where negative) of input `input` varies under the name `name`.

    `low` and `high` are its smallest and largest size; None leaves that bound to the capture.
    """

    input: str
    axis: int
    name: str
    low: int | None = None
    high: int | None = None

    def __str__(self) -> str:
        """Give it as it is written."""
        bounded = self.low is not None or self.high is not None
        low, high = ("" if size is None else str(size) for size in (self.low, self.high))
        return f"{self.input}:{self.axis}={self.name}" + (f"[{low}:{high}]" if bounded else "")


def parse_dynamic(texts: Iterable[str]) -> tuple[DynamicDim, ...]:
    """Parse what the user wrote; exit 2 with the place where one does not fit, or two disagree."""
    found: list[DynamicDim] = []
    for text in texts:
        dim = _Text(text).dim()
        for other in found:
            _refuse_conflict(dim, other)
        found.append(dim)
    return tuple(found)


def _refuse_conflict(dim: DynamicDim, other: DynamicDim) -> None:
    if (dim.input, dim.axis) == (other.input, other.axis):
        raise _refused(f"axis {dim.axis} of `{dim.input}` is given twice", (str(other), str(dim)))
    for end in ("low", "high") if dim.name == other.name else ():
        sizes = getattr(dim, end), getattr(other, end)
        if None not in sizes and sizes[0] != sizes[1]:
            fact = f"dim `{dim.name}` is given two ranges"
            raise _refused(fact, (f"`{other}` and `{dim}`", "one name is one size"))


@dataclass
class _Text:
    """One text and how far it has been read."""

    text: str
    at: int = 0

    def dim(self) -> DynamicDim:
        input = self._until(":", "the name of an input")
        axis = self._number("an axis", negative=True)
        self._expect("=")
        name = self._identifier()
        low = high = None
        if self._next() == "[":
            low, high = self._range()
        if self.at < len(self.text):
            raise self._wrong("the end")
        return DynamicDim(input, axis, name, low, high)

    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def _expect(self, mark: str) -> None:
        if self._next() != mark:
            raise self._wrong(f"`{mark}`")
        self.at += 1

    def _until(self, mark: str, wanted: str) -> str:
        end = self.text.find(mark, self.at)
        found = self.text[self.at :] if end < 0 else self.text[self.at : end]
        if not found.strip() or found != found.strip():
            raise self._wrong(wanted)
        self.at += len(found)
        self._expect(mark)
        return found

    def _number(self, wanted: str, *, negative: bool = False) -> int:
        start = self.at
        end = start + (negative and self._next() == "-")
        while self.text[end : end + 1] in tuple("0123456789"):
            end += 1
        digits = self.text[start:end]
        if not digits.lstrip("-") or len(digits) > 20 or int(digits) > LARGEST:
            raise self._wrong(wanted)
        self.at = end
        return int(digits)

    def _identifier(self) -> str:
        end = self.text.find("[", self.at)
        name = self.text[self.at :] if end < 0 else self.text[self.at : end]
        if not name.isidentifier():
            raise self._wrong("a name for the dim")
        self.at += len(name)
        return name

    def _range(self) -> tuple[int | None, int | None]:
        self._expect("[")
        low = None if self._next() == ":" else self._number("the smallest size")
        self._expect(":")
        start = self.at
        high = None if self._next() == "]" else self._number("the largest size")
        self._expect("]")
        if low is not None and high is not None and high <= low:
            self.at = start
            raise self._wrong(f"a size above {low}")
        return low, high

    def _wrong(self, wanted: str) -> OprepError:
        shown = self.text if len(self.text) <= 80 else self.text[:79] + "…"
        caret = " " * min(self.at, 80) + "^"
        got = f"`{self._next()}`" if self._next() else "the end"
        return _refused(
            f"`{OPTION}` is not readable: {wanted} is wanted at character {self.at + 1}, not {got}",
            (shown, caret),
        )


def _refused(message: str, notes: tuple[str, ...]) -> OprepError:
    return OprepError(message, where=OPTION, notes=notes, help=EXAMPLE, exit_code=ExitCode.USAGE)

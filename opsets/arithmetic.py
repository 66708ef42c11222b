"""Compare and calculate with what a condition reads: numbers, strings, lists, None and unknowns.

Nothing here raises: an operation that has no meaning for its values is unknown, with the reason.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

LONGEST = 10_000
"""Elements of a list that a condition may build; `range(n)` and list sums are held to it."""

_BITS = 1024
"""Size of an integer result, so that powers of powers end."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that is not known, and why; it is neither true nor false.

    `too_large` tells a number that nothing can hold from one that does not exist.
    """

    reason: str = ""
    too_large: bool = False

    def __bool__(self) -> bool:
        """Refuse: taking an unknown for false would be a silent answer."""
        raise TypeError("an unknown value is neither true nor false")


def show(value: object) -> str:
    """Write a value as messages have it: strings in double quotes, an unknown as `?`."""
    if isinstance(value, Unknown):
        return "?"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(show(item) for item in value)}]"
    return str(value)


def compare(symbol: str, left: object, right: object, text: str) -> bool | Unknown:
    """Answer `left symbol right`; `text` is what the user wrote, for the reason."""
    if symbol in ("!=", "not in"):
        answer = compare("==" if symbol == "!=" else "in", left, right, text)
        return answer if isinstance(answer, Unknown) else not answer
    for value in (left, right):
        if isinstance(value, Unknown):
            return value
    if symbol == "in":
        if not isinstance(right, list | tuple):
            return Unknown(f"`{text}` looks into {_kind(right)}, not a list")
        return _any([_equal(left, item, text) for item in right])
    if symbol == "==":
        return _equal(left, right, text)
    if _kind(left) == _kind(right) and isinstance(left, int | float | str):
        return bool(_ORDERS[symbol](left, right))
    return _mismatch(left, right, text)


def calculate(symbol: str, left: object, right: object, text: str) -> object:
    """Give `left symbol right` for numbers; two lists can be added."""
    for value in (left, right):
        if isinstance(value, Unknown):
            return value
    if symbol == "+" and isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return _bounded([*left, *right], text)
    if symbol not in _SUMS or not (
        isinstance(left, int | float) and isinstance(right, int | float)
    ):
        return Unknown(f"`{text}` calculates with {_kind(left)} and {_kind(right)}")
    # at least this many bits would the power have; a negative exponent makes it a float
    if symbol == "**" and isinstance(right, int) and (_bits(left) - 1) * right > _BITS:
        return _too_large(text)
    try:
        result = _SUMS[symbol](left, right)
    except OverflowError:
        return _too_large(text)
    except (ZeroDivisionError, ValueError):
        return Unknown(f"`{text}` has no value for {show(left)} and {show(right)}")
    if not isinstance(result, int | float):
        return Unknown(f"`{text}` has no value for {show(left)} and {show(right)}")
    return result if _bits(result) <= 4 * _BITS else _too_large(text)


def _too_large(text: str) -> Unknown:
    return Unknown(f"`{text}` is too large", too_large=True)


def _equal(left: object, right: object, text: str) -> bool | Unknown:
    for value in (left, right):
        if isinstance(value, Unknown):
            return value
    if left is None or right is None:
        return left is right
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        if len(left) != len(right):
            return False
        pairs = zip(left, right, strict=True)
        differ = _any([_not(_equal(one, other, text)) for one, other in pairs])
        return _not(differ)
    if _kind(left) != _kind(right) or _kind(left) == _OTHER:
        return _mismatch(left, right, text)
    return bool(left == right)


def _any(answers: Sequence[bool | Unknown]) -> bool | Unknown:
    if any(answer is True for answer in answers):
        return True
    return next((answer for answer in answers if isinstance(answer, Unknown)), False)


def _not(answer: bool | Unknown) -> bool | Unknown:
    return answer if isinstance(answer, Unknown) else not answer


_OTHER = "something else"


def _kind(value: object) -> str:
    if value is None:
        return "None"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, list | tuple) else _OTHER


def _mismatch(left: object, right: object, text: str) -> Unknown:
    kinds = f"{_kind(left)} with {_kind(right)}"
    return Unknown(f"`{text}` compares {kinds}: {show(left)} and {show(right)}")


def _bits(value: object) -> int:
    return value.bit_length() if isinstance(value, int) else 0


def _bounded(values: list[object], text: str) -> object:
    if len(values) > LONGEST:
        return Unknown(f"`{text}` has {len(values)} elements, at most {LONGEST} are made")
    return values


def _range(text: str, arguments: Sequence[object]) -> object:
    limits = [value for value in arguments if isinstance(value, int)]
    if not 1 <= len(limits) == len(arguments) <= 3 or (len(limits) == 3 and limits[2] == 0):
        return _refusal(text, arguments)
    made = range(*limits)
    # len() fails beyond the machine's word
    if made and abs(made[-1] - made[0]) // abs(made.step) >= LONGEST:
        return Unknown(f"`{text}` has more than {LONGEST} elements")
    return list(made)


def _len(text: str, arguments: Sequence[object]) -> object:
    if len(arguments) == 1 and isinstance(value := arguments[0], list | tuple | str):
        return len(value)
    return _refusal(text, arguments)


def _abs(text: str, arguments: Sequence[object]) -> object:
    if len(arguments) == 1 and isinstance(value := arguments[0], int | float):
        return abs(value)
    return _refusal(text, arguments)


def _extreme(choose: Callable[[list[float]], float]) -> Callable[[str, Sequence[object]], object]:
    def apply(text: str, arguments: Sequence[object]) -> object:
        alone = arguments[0] if len(arguments) == 1 else None
        values = alone if isinstance(alone, list | tuple) else arguments
        numbers = [value for value in values if isinstance(value, int | float)]
        if not numbers or len(numbers) != len(values):
            return _refusal(text, values)
        return choose(numbers)

    return apply


def _refusal(text: str, arguments: Sequence[object]) -> Unknown:
    for value in arguments:
        if isinstance(value, Unknown):
            return value
    return Unknown(f"`{text}` has no value for {', '.join(map(show, arguments)) or 'nothing'}")


BUILT_IN: dict[str, Callable[[str, Sequence[object]], object]] = {
    "range": _range,
    "len": _len,
    "abs": _abs,
    "min": _extreme(min),
    "max": _extreme(max),
}
"""Functions that ask nothing of the graph: they take the text written and their values."""

_ORDERS: dict[str, Callable[[Any, Any], object]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_SUMS: dict[str, Callable[[Any, Any], object]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "**": operator.pow,
}  # fmt: skip

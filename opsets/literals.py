"""Refuse arithmetic of literals whose value no float holds, before anything calculates with it.

`9 ** 9 ** 9` has 369 million digits: whoever worked it out with integers would never come back.
"""

from __future__ import annotations

import math

from oprep.opsets.arithmetic import Unknown, calculate
from oprep.opsets.parser import children
from oprep.opsets.printer import format_expression
from oprep.opsets.syntax import Binary, Expression, Number, Unary
from oprep.opsets.tokens import Text

_ARITHMETIC = frozenset({"+", "-", "*", "/", "//", "%", "**"})


def check_literals(text: Text, root: Expression) -> None:
    """Raise OprepError (exit RULES) at the innermost arithmetic of numbers that is too large.

    What has no value at all, as `1 / 0`, is left to whoever reads it.
    """
    _value(text, root)


def _value(text: Text, part: Expression) -> int | float | None:
    """Give the value of arithmetic of numbers alone; None where there is more, or no value."""
    values = [_value(text, child) for child in children(part)]
    found: object = None
    match part:
        case Number(value=found):
            pass
        case Unary(operator="-") if values[0] is not None:
            found = -values[0]
        case Binary(operator=operator) if operator in _ARITHMETIC and None not in values:
            left, right = values
            found = calculate(operator, left, right, format_expression(part))
            if _too_large(found, values):
                message = f"`{format_expression(part)}` is too large"
                raise text.error(message, part.at, "write a number that a float can hold, or `inf`")
    return found if isinstance(found, int | float) else None


def _too_large(found: object, values: list[int | float | None]) -> bool:
    if isinstance(found, Unknown):
        return found.too_large
    try:
        infinite = math.isinf(float(found))  # type: ignore[arg-type]
    except OverflowError:
        return True
    return infinite and not any(value is not None and math.isinf(value) for value in values)

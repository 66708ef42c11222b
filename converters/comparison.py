"""What one comparison of two arrays showed, as plain values that a child can send."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from oprep.converters.report import Numbers, Verdict
from oprep.opsets.rule import Tolerance

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, Any]

Atols: TypeAlias = "Callable[[int, int], Array]"
"""Gives the atol of the flat elements from a first to a last one."""

ATOLS = (
    0.0,
    *(float(f"1e{power}") for power in range(-9, -5)),
    *(float(f"{digit}e{power}") for power in range(-5, 2) for digit in (1, 2, 5)),
)
"""The atols for which a comparison says what rtol would pass."""


@dataclass(frozen=True)
class Comparison:
    """What one pair of arrays showed; `numbers` is None where no element could be compared.

    `over` orders comparisons: what the worst element is off by, divided by what is allowed there;
    `needs` are rtols that would pass, one for each of ATOLS (empty: nothing is off at all).
    """

    verdict: Verdict
    numbers: Numbers | None
    tolerance: Tolerance
    allowed: float | None
    dtype: str
    shape: tuple[int, ...]
    over: float = 0.0
    detail: str = ""
    needs: tuple[float, ...] = ()


NEVER = (math.inf,) * len(ATOLS)

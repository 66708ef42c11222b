"""Compare gradients as arrays: what is lost, what is new, and how far the rest is off.

Where a function has a kink (relu at 0) its gradient is not defined: how far the original's own
gradient moves when its inputs move by some units in the last place is allowed on top.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from oprep.converters import magnitudes, numbers
from oprep.converters.comparison import NEVER, Comparison
from oprep.converters.evidence import NOTHING
from oprep.converters.report import Verdict
from oprep.opsets import tolerances
from oprep.opsets.rule import Tolerance

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, Any]

LOST, ZERO, NEW = "gradient lost", "gradient unexpectedly zero", "gradient where none was"
SAME, OWN, NONE = "same", "own", "none"
"""What a rule asks of gradients: the original's, the op's declared one, or nothing at all."""

NOISE, TYPICAL = 2.0, 10.0
"""How many times the original's own movement is allowed: of an element, and what many share."""

SHARED = 0.25
"""What this part of the elements moves by is rounding; a kink moves fewer."""


@dataclass(frozen=True)
class Sides:
    """The gradient to one value: of the original, of the candidate, and of the original moved.

    None stands for no gradient. `upstream` is the RMS and the unit in the last place of the largest
    value of what went back.
    """

    name: str
    before: Array | None
    after: Array | None
    moved: Sequence[Array | None] = ()
    upstream: tuple[float, float] = (0.0, 0.0)


def failed(detail: str) -> Comparison:
    """Give a failure that has no numbers."""
    return replace(NOTHING, verdict=Verdict.FAIL, over=math.inf, detail=detail, needs=NEVER)


def nothing_flows() -> Comparison:
    """Give the verdict where neither side has a gradient."""
    return replace(NOTHING, verdict=Verdict.PASS, detail="no gradient flows here")


def some(gradient: Array | None) -> bool:
    """Tell whether anything goes back."""
    return gradient is not None and bool((gradient != 0).any())


def _lost(sides: Sides) -> str:
    finding = LOST if sides.after is None else ZERO
    return f"{finding}: the original gives one to `{sides.name}`"


def compare_own(sides: Sides, *, needed: bool = True) -> Comparison:
    """Accept whatever gradient there is, as long as there is one (if `needed`) and it is finite."""
    import numpy as np

    if sides.after is None:
        lost = needed and some(sides.before)
        return failed(_lost(sides)) if lost else nothing_flows()
    if sides.before is not None:
        spoiled = np.isfinite(sides.before) & ~np.isfinite(sides.after)
        if bool(spoiled.any()):
            return failed(f"the gradient to `{sides.name}` is not finite")
    dtype, shape = magnitudes.dtype_name(sides.after), tuple(sides.after.shape)
    detail = "a gradient of its own, not compared"
    return replace(NOTHING, verdict=Verdict.PASS, dtype=dtype, shape=shape, detail=detail)


def compare_same(sides: Sides, asked: Tolerance | None) -> Comparison:
    """Compare the candidate's gradient with the original's, element by element.

    `asked` is what a rule accepts of values of about 1; a gradient is as much larger as it is.
    """
    before, after = sides.before, sides.after
    if not some(before):
        if some(after) and not any(some(item) for item in sides.moved):
            return failed(f"{NEW}: the original gives none to `{sides.name}`")
        if before is None or after is None:
            return nothing_flows()
    assert before is not None
    noise = _noise(before, sides.moved)
    if not some(after) and bool((_sizes(before) > noise).any()):
        return failed(_lost(sides))
    if after is None:
        return nothing_flows()
    found_ = _compare(before, after, noise, sides.upstream, asked)
    if found_.verdict is not Verdict.FAIL:
        return found_
    return replace(found_, detail=found_.detail or f"gradient to `{sides.name}`")


def _compare(
    before: Array,
    after: Array,
    noise: Array,
    upstream: tuple[float, float],
    asked: Tolerance | None,
) -> Comparison:
    import numpy as np

    rms, unit = upstream
    scale = tolerances.Scale(magnitudes.scale(before).rms, unit, inputs=rms)
    default = tolerances.default(magnitudes.dtype_name(before), scale)
    allowed = default
    if asked is not None:
        size = max(scale.size, 1.0)
        behind = Tolerance(asked.rtol, asked.atol * size)
        allowed = tolerances.loosest(default, behind)
    flat = noise.reshape(-1)

    def atols(start: int, end: int) -> Array:
        return np.maximum(allowed.atol, flat[start:end])

    return numbers.compare(before, after, allowed, atols=atols, kept=default.atol)


def _sizes(array: Array) -> Array:
    import numpy as np

    sizes = np.abs(array.astype(_wide(array)))
    return np.where(np.isfinite(sizes), sizes, 0.0)


def _noise(one: Array, moved: Sequence[Array | None]) -> Array:
    """Give what each element may be off for: the original's own gradient moves as far.

    A kink moves single elements; what moves a quarter of them is rounding, and is allowed to all:
    in front of a normalisation a part of a packed bias has a gradient of nothing but that.
    """
    import numpy as np

    found: Array = np.zeros(one.shape)
    for item in moved:
        side = np.zeros(one.shape, _wide(one)) if item is None else item.astype(_wide(one))
        with np.errstate(invalid="ignore"):
            off = np.abs(side - one.astype(_wide(one)))
        found = np.maximum(found, np.where(np.isfinite(off), off, 0.0))
    typical = float(np.quantile(found, 1 - SHARED)) if found.size else 0.0
    return np.maximum(NOISE * found, TYPICAL * typical)


def _wide(array: Array) -> Any:
    import numpy as np

    return np.complex128 if array.dtype.kind == "c" else np.float64

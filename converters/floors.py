"""How much each element of a site may be off in absolute terms, as local as the site allows.

An elementwise formula loses a few units in the last place of the values at that very element; one
large element elsewhere excuses nothing. What mixes elements is measured by the whole tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from oprep.converters import magnitudes, numbers
from oprep.converters.comparison import Comparison
from oprep.converters.magnitudes import blocks, finite_sizes, kind, ulps
from oprep.opsets import tolerances
from oprep.opsets.rule import Tolerance

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, Any]

UNIT = 1.0
"""Formulas have constants of about this size: 1 + erf(x) loses units of 1, however small x is."""


class LocalAtols:
    """The atol of each element of an elementwise site, never above that of the whole tensor.

    The scale of an element is the largest absolute value among all that the site reads there, at
    least `UNIT` where anything in the tensor is that large.
    """

    def __init__(self, reference: Array, rms: float, reads: Sequence[Array]) -> None:
        """Keep views of what the site reads; nothing is computed before it is asked for."""
        import numpy as np

        self._table = tolerances.by_dtype(str(reference.dtype.name)).atol
        self._rms = rms
        self._reads: dict[Any, list[tuple[Array, float]]] = {}
        for array in reads:
            if kind(array) not in ("float", "complex") or not array.size:
                continue
            largest = max(float(finite_sizes(b).max(initial=0.0)) for b in blocks(array))
            try:
                spread = np.broadcast_to(array, reference.shape)
            except ValueError:
                spread = np.broadcast_to(np.asarray(largest), reference.shape)
            self._reads.setdefault(array.dtype, []).append((spread.reshape(-1), largest))

    def __call__(self, start: int, end: int) -> Array:
        """Give the atols of the flat elements from `start` to `end`."""
        import numpy as np

        size = np.zeros(end - start)
        floor = np.zeros(end - start)
        for dtype, arrays in self._reads.items():
            here = self._scale(arrays, start, end)
            size = np.maximum(size, here)
            floor = np.maximum(floor, tolerances.ULPS_AT_A_SITE * ulps(here, dtype))
        scaled = np.minimum(size, self._rms) if self._rms else size
        atols: Array = np.maximum(self._table * scaled, floor)
        return atols

    @staticmethod
    def _scale(arrays: Sequence[tuple[Array, float]], start: int, end: int) -> Array:
        import numpy as np

        found = np.zeros(end - start)
        for flat, _ in arrays:
            sizes = np.abs(flat[start:end]).astype(np.float64)
            found = np.maximum(found, np.where(np.isfinite(sizes), sizes, 0.0))
        largest = max(size for _, size in arrays)
        return np.minimum(np.maximum(found, UNIT), largest)


def reads_of_run(columns: Sequence[Sequence[Array]], run: int, runs: int) -> list[Array]:
    """Give what a site read in one of several runs of its region: a loop has many.

    What was recorded another number of times (made outside of the loop) counts in every run.
    """
    return [
        array for column in columns for array in ([column[run]] if len(column) == runs else column)
    ]


def compare_at_site(
    original: Array, candidate: Array, reads: list[Array], asked: Tolerance | None, *, local: bool
) -> Comparison:
    """Compare what a replacement makes with what the original makes of the same values.

    `reads` is what the site reads and its inner values, `asked` the tolerance of its rule;
    `local` says that it works element by element.
    """
    if asked is not None:
        return numbers.compare(original, candidate, asked)
    rms = magnitudes.scale(original).rms
    inputs = 0.0 if rms else max((magnitudes.scale(array).rms for array in reads), default=0.0)
    scale = tolerances.Scale(rms, magnitudes.largest_ulp(reads), inputs=inputs)
    default = tolerances.default(magnitudes.dtype_name(original), scale)
    atols = None
    if local and default != tolerances.EXACT:
        atols = LocalAtols(original, rms, reads)
    return numbers.compare(original, candidate, default, atols=atols)

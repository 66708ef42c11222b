"""What one array says about its scale: RMS, unit in the last place, noise between two runs.

Everything is computed in float64 and in blocks, so that huge arrays need no copies of their size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from oprep.opsets.tolerances import Scale

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, Any]

BLOCK = 1 << 16
LATTICE = {2: "int16", 4: "int32", 8: "int64"}


def kind(array: Array) -> str:
    """Tell how an array is compared: `float`, `complex`, `exact` or `text`."""
    if array.dtype.kind in "OSUT":
        return "text"
    if array.dtype.kind in "biu" or array.dtype.name in ("int4", "uint4", "int2", "uint2"):
        return "exact"
    return "complex" if array.dtype.kind == "c" else "float"


def dtype_name(array: Array) -> str:
    """Give the dtype as reports name it."""
    return "string" if array.dtype.kind in "OSUT" else str(array.dtype.name)


def scale(reference: Array) -> Scale:
    """Measure the RMS over the finite elements."""
    if kind(reference) == "text":
        return Scale(0.0)
    largest, count = 0.0, 0
    for block in blocks(reference):
        size = finite_sizes(block)
        count += size.size
        largest = max(largest, float(size.max(initial=0.0)))
    if not largest:
        return Scale(0.0)
    total = sum(float(((finite_sizes(b) / largest) ** 2).sum()) for b in blocks(reference))
    return Scale(largest * math.sqrt(total / count))


def largest_ulp(arrays: list[Array]) -> float:
    """Give the unit in the last place of the largest finite absolute value of floating arrays."""
    found = 0.0
    for array in arrays:
        if kind(array) in ("float", "complex"):
            size = max((float(finite_sizes(b).max(initial=0.0)) for b in blocks(array)), default=0)
            found = max(found, float(ulps(size, array.dtype)))
    return found


def all_finite(arrays: list[Array]) -> bool:
    """Tell whether no floating array holds a NaN or an infinity."""
    import numpy as np

    floating = (array for array in arrays if kind(array) in ("float", "complex"))
    return all(bool(np.isfinite(block).all()) for array in floating for block in blocks(array))


def largest_difference(left: Array, right: Array) -> float:
    """Give the largest absolute difference where both are finite: the noise between two runs."""
    if left.shape != right.shape or kind(left) not in ("float", "complex"):
        return 0.0
    import numpy as np

    found = 0.0
    for one, other in zip(blocks(left), blocks(right), strict=True):
        both = np.isfinite(one) & np.isfinite(other)
        found = max(found, float(np.abs(one[both] - other[both]).max(initial=0.0)))
    return found


def most_steps(left: Array, right: Array) -> float:
    """Count the representable numbers between two finite arrays, where there are most of them."""
    import numpy as np

    width = left.dtype.itemsize
    lowest = np.int64(-(2 ** (8 * width - 1)))
    steps = []
    for array in (left, right):
        whole = np.ascontiguousarray(array).view(LATTICE[width]).astype(np.int64)
        steps.append(np.where(whole < 0, lowest - whole, whole))
    with np.errstate(over="ignore"):
        near = np.abs(steps[0] - steps[1])
    if width < 8:
        return float(near.max())
    same_side = (steps[0] < 0) == (steps[1] < 0)
    far = np.abs(steps[0].astype(np.float64) - steps[1].astype(np.float64))
    return float(np.where(same_side, near.astype(np.float64), far).max())


def same_bits(left: Array, right: Array) -> bool:
    """Tell whether two runs gave the same: dtype, shape and every element, NaN included."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if kind(left) == "text":
        return bool((left == right).all())
    return left.tobytes() == right.tobytes()


def blocks(array: Array) -> Iterator[Array]:
    """Give flat blocks in float64, or complex128."""
    import numpy as np

    wide = np.complex128 if array.dtype.kind == "c" else np.float64
    flat = array.reshape(-1)
    for start in range(0, flat.size, BLOCK):
        yield flat[start : start + BLOCK].astype(wide)


def finite_sizes(block: Array) -> Array:
    """Give the absolute values of the finite elements, flat."""
    import numpy as np

    sizes: Array = np.abs(block)
    return sizes[np.isfinite(sizes)]


def ulps(sizes: Any, dtype: Any) -> Array:
    """Give the spacing at finite absolute values in a floating dtype (a complex number's parts)."""
    import numpy as np

    part = np.real(np.zeros(1, dtype)).dtype if dtype.kind == "c" else dtype
    info: Any
    if part.type.__module__ == "numpy":
        info = np.finfo(part)
    else:
        import ml_dtypes  # slow to import, and seldom needed

        info = ml_dtypes.finfo(part)  # type: ignore[no-untyped-call]
    lowest = math.frexp(float(info.smallest_normal))[1]
    exponent = np.maximum(np.frexp(np.asarray(sizes, np.float64))[1], lowest) - 1
    spacing: Array = np.ldexp(float(info.eps), exponent)
    return spacing


def unit_of(array: Array) -> float:
    """Give the largest finite absolute value (else 1): squares of scaled values stay in range."""
    return max((float(finite_sizes(b).max(initial=0.0)) for b in blocks(array)), default=0) or 1.0

"""Compare a candidate array with its reference: one verdict and the numbers behind it.

Everything is computed in float64 and in blocks, so that huge arrays need no copies of their size.
Elements where the reference is not finite are left out and counted; an element that is not finite
only in the candidate is a failure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from oprep.converters.magnitudes import (
    BLOCK,
    blocks,
    dtype_name,
    kind,
    unit_of,
)
from oprep.converters.report import Numbers, Verdict
from oprep.opsets.rule import Tolerance

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, Any]

LATTICE = {2: "int16", 4: "int32", 8: "int64"}


@dataclass(frozen=True)
class Comparison:
    """What one pair of arrays showed; `numbers` is None where no element could be compared.

    `over` orders comparisons: what the worst element is off by, divided by what is allowed there.
    """

    verdict: Verdict
    numbers: Numbers | None
    tolerance: Tolerance
    allowed: float | None
    dtype: str
    shape: tuple[int, ...]
    over: float = 0.0
    detail: str = ""


def compare(
    reference: Array, candidate: Array, tolerance: Tolerance, *, flips: Array | None = None
) -> Comparison:
    """Compare element by element: |candidate - reference| <= atol + rtol * |reference|.

    `flips` marks elements of an exact dtype that differ between two runs of the reference itself;
    they are left out.
    """
    name, shape = dtype_name(reference), tuple(reference.shape)
    result = Comparison(Verdict.NO_EVIDENCE, None, tolerance, None, name, shape)
    if dtype_name(candidate) != name:
        return _differs(result, "dtype", name, dtype_name(candidate))
    if candidate.shape != reference.shape:
        return _differs(result, "shape", list(shape), list(candidate.shape))
    if not reference.size:
        return replace(result, detail="an empty tensor")
    how = kind(reference)
    if how == "text":
        return _compare_text(result, reference, candidate)
    return _Tally(reference, candidate, tolerance, flips).result(result)


def _differs(result: Comparison, what: str, one: object, other: object) -> Comparison:
    detail = f"{what} {one} became {other}"
    return replace(result, verdict=Verdict.FAIL, over=math.inf, detail=detail)


def _compare_text(result: Comparison, reference: Array, candidate: Array) -> Comparison:
    import numpy as np

    wrong = np.argwhere(np.asarray(reference != candidate, dtype=bool))
    index = tuple(int(i) for i in wrong[0]) if len(wrong) else ()
    off = float(len(wrong) > 0)
    numbers = Numbers(reference.size, 0, off, 0.0, 0.0, None, None, None, index, 0.0, off, None)
    if not len(wrong):
        return replace(result, verdict=Verdict.PASS, numbers=numbers, allowed=0.0)
    detail = (
        f"{len(wrong)} of {reference.size} strings differ, the first at {list(index)}: "
        f"{reference[index]!r:.80} became {candidate[index]!r:.80}"
    )
    return replace(
        result, verdict=Verdict.FAIL, numbers=numbers, allowed=0.0, over=math.inf, detail=detail
    )


class _Tally:
    """Sums and maxima over the blocks of one comparison."""

    def __init__(
        self, reference: Array, candidate: Array, tolerance: Tolerance, flips: Array | None
    ) -> None:
        self.reference, self.candidate = reference, candidate
        self.exact = kind(reference) == "exact"
        self.tolerance = tolerance
        self.flips = None if flips is None else flips.reshape(-1)
        self.elements = self.left_out = self.lost = self.wrong = 0
        self.max_abs = self.max_rel = 0.0
        self.max_ulp: float | None = None
        self.passing: float | None = 0.0
        self.worst, self.over = (-math.inf, 0), 0.0
        self.unit = (unit_of(reference), unit_of(candidate))
        self.sums = [0.0, 0.0, 0.0, 0.0]
        for number, (one, other) in enumerate(
            zip(blocks(reference), blocks(candidate), strict=True)
        ):
            self._add(number * BLOCK, one, other)

    def _add(self, start: int, one: Array, other: Array) -> None:
        import numpy as np

        use = np.isfinite(one)
        if self.flips is not None:
            use &= ~self.flips[start : start + len(one)]
        self.left_out += int((~use).sum())
        places = np.flatnonzero(use)
        self.elements += places.size
        if not places.size:
            return
        if places.size < use.size:
            one, other = one[places], other[places]
        self.sums[0] += float((np.abs(one / self.unit[0]) ** 2).sum())
        finite = np.isfinite(other)
        self.lost += int((~finite).sum())
        if not finite.all():
            place = start + int(places[np.flatnonzero(~finite)[0]])
            self.worst, self.over = max(self.worst, (math.inf, -place)), math.inf
            one, other, places = one[finite], other[finite], places[finite]
        if places.size:
            self._add_finite(start, places, one, other)

    def _add_finite(self, start: int, places: Array, one: Array, other: Array) -> None:
        import numpy as np

        with np.errstate(over="ignore"):
            off = np.abs(other - one)
            size = np.abs(one)
            allowed = self.tolerance.atol + self.tolerance.rtol * size
        if self.exact:
            flat = start + places
            same = self.reference.reshape(-1)[flat] == self.candidate.reshape(-1)[flat]
            off = np.where(same, 0.0, np.maximum(off, 1.0))
        bad = ~(off <= allowed)
        self.wrong += int(bad.sum())
        self.max_abs = max(self.max_abs, float(off.max()))
        nonzero = size > 0
        if nonzero.any():
            self.max_rel = max(self.max_rel, float((off[nonzero] / size[nonzero]).max()))
        excess = off - allowed
        at = int(np.argmax(excess))
        self.worst = max(self.worst, (float(excess[at]), -(start + int(places[at]))))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(off > 0, off / allowed, 0.0)
        self.over = max(self.over, float(ratio.max()))
        self._add_passing(off, size)
        self._add_ulp(start, places)
        self._add_sums(one, other, off)

    def _add_passing(self, off: Array, size: Array) -> None:
        """Find the rtol that would have passed at the same atol; None where no rtol would."""
        need = off > self.tolerance.atol
        if not need.any() or self.passing is None:
            return
        if not size[need].all():
            self.passing = None
            return
        over = (off[need] - self.tolerance.atol) / size[need]
        self.passing = max(self.passing, float(over.max()))

    def _add_ulp(self, start: int, places: Array) -> None:
        """Count how many representable numbers lie between the two."""
        import numpy as np

        dtype = self.reference.dtype
        if self.exact or dtype.kind == "c" or dtype.itemsize not in LATTICE:
            return
        steps = []
        for array in (self.reference, self.candidate):
            block = array.reshape(-1)[start : start + BLOCK]
            used = block if places.size == block.size else block[places]
            bits = np.ascontiguousarray(used).view(LATTICE[dtype.itemsize])
            whole = bits.astype(np.int64)
            lowest = np.int64(-(2 ** (8 * dtype.itemsize - 1)))
            steps.append(np.where(whole < 0, lowest - whole, whole))
        if dtype.itemsize < 8:
            near = np.abs(steps[0] - steps[1])
            self.max_ulp = max(self.max_ulp or 0.0, float(near.max()))
            return
        same_side = (steps[0] < 0) == (steps[1] < 0)
        with np.errstate(over="ignore"):
            near = np.abs(steps[0] - steps[1]).astype(np.float64)
        far = np.abs(steps[0].astype(np.float64) - steps[1].astype(np.float64))
        self.max_ulp = max(self.max_ulp or 0.0, float(np.where(same_side, near, far).max()))

    def _add_sums(self, one: Array, other: Array, off: Array) -> None:
        import numpy as np

        one, other, off = one / self.unit[0], other / self.unit[1], off / self.unit[0]
        with np.errstate(over="ignore"):
            self.sums[1] += float((np.abs(other) ** 2).sum())
            self.sums[2] += float(np.real(one * np.conj(other)).sum())
            self.sums[3] += float((off**2).sum())

    def result(self, result: Comparison) -> Comparison:
        """Put verdict and numbers together."""
        if not self.elements:
            if self.exact:
                detail = "every element also differs between two runs of the original"
                return replace(result, detail=detail)
            detail = f"none of {self.left_out} elements is finite in the original"
            return replace(result, verdict=Verdict.NOT_FINITE, detail=detail)
        numbers = self._numbers()
        allowed = self.tolerance.atol + self.tolerance.rtol * abs(numbers.reference)
        verdict = Verdict.FAIL if self.wrong or self.lost else Verdict.PASS
        detail = f"{self.lost} elements are not finite in the candidate only" if self.lost else ""
        return replace(
            result,
            verdict=verdict,
            numbers=numbers,
            allowed=allowed,
            over=self.over,
            detail=detail,
        )

    def _numbers(self) -> Numbers:
        import numpy as np

        square, other, dot, noise = self.sums
        index = tuple(int(i) for i in np.unravel_index(-self.worst[1], self.reference.shape))
        at = [_number(array[index]) for array in (self.reference, self.candidate)]
        cosine = (
            dot / math.sqrt(square) / math.sqrt(other)
            if square and other and not self.lost
            else None
        )
        sqnr = 10 * math.log10(square / noise) if square and noise and not self.lost else None
        return Numbers(
            elements=self.elements,
            left_out=self.left_out,
            max_abs=math.inf if self.lost else self.max_abs,
            max_rel=math.inf if self.lost else self.max_rel,
            rms=self.unit[0] * math.sqrt(square / self.elements),
            cosine=cosine,
            sqnr_db=sqnr,
            max_ulp=self.max_ulp,
            worst_index=index,
            reference=at[0],
            candidate=at[1],
            passing_rtol=None if self.exact or self.lost else self.passing,
        )


def _number(value: Any) -> float:
    """Give one element as a float; a complex one by its absolute value."""
    return abs(complex(value)) if value.dtype.kind == "c" else float(value)

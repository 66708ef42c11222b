"""Compare a candidate array with its reference: one verdict and the numbers behind it.

Everything is computed in float64 and in blocks, so that huge arrays need no copies of their size.
The worst element is the one that is off by the largest multiple of what is allowed there.
Elements where the reference is not finite are left out and counted; an element that is not finite
only in the candidate is a failure.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from oprep.converters.comparison import ATOLS, NEVER, Atols, Comparison
from oprep.converters.magnitudes import (
    BLOCK,
    LATTICE,
    blocks,
    dtype_name,
    kind,
    most_steps,
    unit_of,
)
from oprep.converters.report import Numbers, Verdict
from oprep.opsets.rule import Tolerance

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, Any]


def compare(
    reference: Array,
    candidate: Array,
    tolerance: Tolerance,
    *,
    flips: Array | None = None,
    atols: Atols | None = None,
    kept: float = 0.0,
) -> Comparison:
    """Compare element by element: |candidate - reference| <= atol + rtol * |reference|.

    `flips` marks elements of an exact dtype that differ between two runs of the reference itself;
    they are left out. `atols` takes the place of the tolerance's atol; `kept` is the atol that
    stands whatever a rule asks for.
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
    return _Tally(reference, candidate, tolerance, flips, atols, kept).result(result)


def _differs(result: Comparison, what: str, one: object, other: object) -> Comparison:
    detail = f"{what} {one} became {other}"
    return replace(result, verdict=Verdict.FAIL, over=math.inf, detail=detail, needs=NEVER)


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
        result,
        verdict=Verdict.FAIL,
        numbers=numbers,
        allowed=0.0,
        over=math.inf,
        detail=detail,
        needs=NEVER,
    )


class _Tally:
    """Sums and maxima over the blocks of one comparison."""

    def __init__(
        self,
        reference: Array,
        candidate: Array,
        tolerance: Tolerance,
        flips: Array | None,
        atols: Atols | None,
        kept: float,
    ) -> None:
        self.reference, self.candidate = reference, candidate
        self.exact = kind(reference) == "exact"
        self.tolerance, self.atols, self.kept = tolerance, atols, kept
        self.flips = None if flips is None else flips.reshape(-1)
        self.elements = self.left_out = self.lost = self.wrong = 0
        self.max_abs = self.max_rel = 0.0
        self.max_ulp: float | None = None
        self.passing: float | None = 0.0
        self.worst = (-1.0, -1.0, 0)
        self.atol = tolerance.atol
        self.needs = [0.0] * len(ATOLS)
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
            self.worst = max(self.worst, (math.inf, math.inf, -place))
            one, other, places = one[finite], other[finite], places[finite]
        if places.size:
            self._add_finite(start, places, one, other)

    def _add_finite(self, start: int, places: Array, one: Array, other: Array) -> None:
        import numpy as np

        atol = self._atol(start, places)
        with np.errstate(over="ignore"):
            off = np.abs(other - one)
            size = np.abs(one)
            allowed = atol + self.tolerance.rtol * size
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
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = np.where(off > 0, off / allowed, 0.0)
        most = np.flatnonzero(ratio == ratio.max())
        at = int(most[np.argmax(off[most])])
        worst = (float(ratio[at]), float(off[at]), -(start + int(places[at])))
        if worst > self.worst:
            self.worst, self.atol = worst, float(atol[at])
        self._add_passing(off, size, atol)
        self._add_needs(off, size)
        self._add_ulp(start, places)
        self._add_sums(one, other, off)

    def _atol(self, start: int, places: Array) -> Array:
        import numpy as np

        if self.atols is None:
            return np.broadcast_to(np.float64(self.tolerance.atol), places.shape)
        end = min(start + BLOCK, self.reference.size)
        return self.atols(start, end)[places]

    def _add_needs(self, off: Array, size: Array) -> None:
        """Find for each of ATOLS the relative error of what is off by more."""
        import numpy as np

        wrong = off > self.kept
        if not wrong.any():
            return
        off, size = off[wrong], size[wrong]
        with np.errstate(divide="ignore", over="ignore"):
            relative = off / size
        largest = np.zeros(len(ATOLS) + 1)
        np.maximum.at(largest, np.searchsorted(ATOLS, off), relative)
        needed = np.maximum.accumulate(largest[::-1])[::-1][1:]
        self.needs = [max(pair) for pair in zip(self.needs, needed.tolist(), strict=True)]

    def _add_passing(self, off: Array, size: Array, atol: Array) -> None:
        """Find the rtol that would have passed at the same atol; None where no rtol would."""
        import numpy as np

        need = off > atol
        if not need.any() or self.passing is None:
            return
        if not size[need].all():
            self.passing = None
            return
        with np.errstate(over="ignore"):
            over = (off[need] - atol[need]) / size[need]
        self.passing = max(self.passing, float(over.max()))

    def _add_ulp(self, start: int, places: Array) -> None:
        """Count how many representable numbers lie between the two."""
        dtype = self.reference.dtype
        if self.exact or dtype.kind == "c" or dtype.itemsize not in LATTICE:
            return
        sides = []
        for array in (self.reference, self.candidate):
            block = array.reshape(-1)[start : start + BLOCK]
            sides.append(block if places.size == block.size else block[places])
        self.max_ulp = max(self.max_ulp or 0.0, most_steps(sides[0], sides[1]))

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
        used = Tolerance(self.tolerance.rtol, self.atol)
        allowed = used.atol + used.rtol * abs(numbers.reference)
        verdict = Verdict.FAIL if self.wrong or self.lost else Verdict.PASS
        detail = f"{self.lost} elements are not finite in the candidate only" if self.lost else ""
        return replace(
            result,
            verdict=verdict,
            numbers=numbers,
            tolerance=used,
            allowed=allowed,
            over=max(self.worst[0], 0.0),
            detail=detail,
            needs=NEVER if self.lost or (self.exact and self.wrong) else self._needs(),
        )

    def _needs(self) -> tuple[float, ...]:
        return tuple(self.needs) if any(self.needs) else ()

    def _numbers(self) -> Numbers:
        import numpy as np

        square, other, dot, noise = self.sums
        index = tuple(int(i) for i in np.unravel_index(-self.worst[2], self.reference.shape))
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

"""Put comparisons together: of iterations, calls, outputs and input sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from oprep.converters.comparison import Comparison
from oprep.converters.report import Numbers, Verdict
from oprep.opsets.rule import Tolerance


@dataclass(frozen=True, slots=True)
class InSet:
    """What one input set showed; `usual` says whether its values have the size of use."""

    name: str
    usual: bool
    comparison: Comparison


STRONGEST_FIRST = (
    Verdict.FAIL,
    Verdict.NOT_DETERMINISTIC,
    Verdict.PASS,
    Verdict.NOT_FINITE,
    Verdict.NO_EVIDENCE,
)
NUMBERS = tuple(field.name for field in fields(Numbers))
NOTHING = Comparison(Verdict.NO_EVIDENCE, None, Tolerance(0.0, 0.0), None, "", ())


def merged(found: Sequence[Comparison]) -> Comparison:
    """Give the worst one, counting the elements of all: one failure fails, one pass is evidence."""
    if not found:
        return NOTHING
    verdict = min((item.verdict for item in found), key=STRONGEST_FIRST.index)
    worst = max((item for item in found if item.verdict is verdict), key=_badness)
    return _counted(worst, found)


def over_sets(found: Sequence[InSet]) -> tuple[Comparison, str]:
    """Put the input sets of one site or output together; give the name of the worst set as well.

    Of several failing sets one with values of usual size is shown: what is off by 1e-2 is off by a
    lot where all values are 1e-6, but that says little.
    """
    if not found:
        return NOTHING, ""
    verdict = min((item.comparison.verdict for item in found), key=STRONGEST_FIRST.index)
    shown = [item for item in found if item.comparison.verdict is verdict]
    if verdict is Verdict.FAIL:
        shown = [item for item in shown if item.usual] or shown
    worst = max(shown, key=lambda item: _badness(item.comparison))
    return _counted(worst.comparison, [item.comparison for item in found]), worst.name


def said_of_set(found: Comparison, name: str) -> str:
    """Give the words of a comparison; those of a failure name the input set."""
    if found.verdict is not Verdict.FAIL or found.numbers is None:
        return found.detail
    return f"{found.detail}, in input set `{name}`" if found.detail else f"in input set `{name}`"


def _counted(worst: Comparison, found: Sequence[Comparison]) -> Comparison:
    """Let the worst comparison count the elements of all, and need what any of them needs."""
    worst = replace(worst, needs=largest_needs(item.needs for item in found))
    counted = [item.numbers for item in found if item.numbers is not None]
    if worst.numbers is None or not counted:
        return worst
    numbers = replace(
        worst.numbers,
        elements=sum(item.elements for item in counted),
        left_out=sum(item.left_out for item in counted),
    )
    return replace(worst, numbers=numbers)


def largest_needs(found: Iterable[Sequence[float]]) -> tuple[float, ...]:
    """Give the rtols that would pass all of several comparisons."""
    present = [needs for needs in found if needs]
    return tuple(max(column) for column in zip(*present, strict=True)) if present else ()


def _badness(item: Comparison) -> tuple[float, float, float]:
    """Order comparisons; of equally good ones the one with the larger values says more."""
    if item.numbers is None:
        return item.over, 0.0, 0.0
    return item.over, item.numbers.max_abs, item.numbers.rms


def to_plain(item: Comparison) -> dict[str, Any]:
    """Write a comparison as plain data, to be sent by a child."""
    numbers = item.numbers
    told = None if numbers is None else {name: getattr(numbers, name) for name in NUMBERS}
    tolerance = {"rtol": item.tolerance.rtol, "atol": item.tolerance.atol}
    return {**vars(item), "verdict": item.verdict.value, "numbers": told, "tolerance": tolerance}


def from_plain(data: Mapping[str, Any]) -> Comparison:
    """Read a comparison that came from a child."""
    numbers = data["numbers"]
    return Comparison(
        **{
            **data,
            "verdict": Verdict(data["verdict"]),
            "tolerance": Tolerance(**data["tolerance"]),
            "numbers": None if numbers is None else Numbers(**_indexed(numbers)),
            "shape": tuple(data["shape"]),
            "needs": tuple(data["needs"]),
        }
    )


def _indexed(numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {**numbers, "worst_index": tuple(numbers["worst_index"])}

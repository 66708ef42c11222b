"""The tolerance to be written into a rule so that it passes, and remarks on those that are odd.

A rule's tolerance stands in place of the default one at its sites, and beside it at the outputs; so
what is advised covers both, over all input sets, and is rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from oprep.converters.comparison import ATOLS, Comparison
from oprep.converters.evidence import largest_needs
from oprep.converters.report import CheckResult, Verdict
from oprep.converters.twin import TwinSite
from oprep.opsets.rule import Tolerance

MARGIN = 1.05
WORTH = 4
"""How much looser an rtol alone may be than the tightest pair: it is the easier one to read."""
MOST = 0.1
"""No larger rtol is advised, nor an atol above this part of the RMS: what is off by more computes
something else."""


@dataclass(frozen=True, slots=True)
class Found:
    """One comparison: of a site of `rule`, or of an output (`rule` is None), in one input set."""

    rule: str | None
    name: str
    comparison: Comparison
    usual: bool


def advised(found: Sequence[Found]) -> dict[str, Tolerance]:
    """Give for each rule the tolerance under which its sites and all outputs pass."""
    outputs = largest_needs(item.comparison.needs for item in found if item.rule is None)
    by_rule: dict[str, list[Found]] = {}
    for item in found:
        if item.rule is not None:
            by_rule.setdefault(item.rule, []).append(item)
    made = {}
    for rule, own in by_rule.items():
        needs = largest_needs([outputs, *(item.comparison.needs for item in own)])
        tolerance = _choice(needs, usual_rms(own)) if needs else None
        if tolerance is not None:
            made[rule] = tolerance
    return made


def usual_rms(found: Iterable[Found]) -> float:
    """Give the least RMS of the original's values, in sets of the size a model is used with."""
    numbers = [item.comparison.numbers for item in found if item.usual]
    return min((item.rms for item in numbers if item is not None and item.rms), default=0.0)


def _choice(needs: Sequence[float], rms: float) -> Tolerance | None:
    alone = rounded_up(needs[0])
    pairs = [
        (rounded_up(need), atol)
        for atol, need in zip(ATOLS, needs, strict=True)
        if need < math.inf and rms and atol <= MOST * rms
    ]
    best = min(pairs, key=lambda pair: pair[0] + pair[1] / rms, default=None)
    if alone <= MOST and (best is None or alone <= WORTH * (best[0] + best[1] / rms)):
        return Tolerance(alone, 0.0)
    return Tolerance(*best) if best is not None and best[0] <= MOST else None


def rounded_up(value: float) -> float:
    """Give the next of 1, 2, 5 x 10^k with a margin; 0 stays 0."""
    if value == 0 or not math.isfinite(value):
        return value
    wanted = value * MARGIN
    power = math.floor(math.log10(wanted))
    steps = (float(f"{digit}e{exponent}") for exponent in (power, power + 1) for digit in (1, 2, 5))
    return next(step for step in steps if step >= wanted)


def with_advice(
    check: CheckResult, advice: Mapping[str, Tolerance], found: Sequence[Found]
) -> CheckResult:
    """Let the `passing_rtol` of a failed check be one that passes everywhere when it is written."""
    if check.verdict is not Verdict.FAIL or check.measured is None:
        return check
    if check.rule is not None:
        chosen = [advice.get(check.rule)]
    elif any(item.rule is not None for item in found):
        rules = {item.rule for item in found if item.rule is not None}
        chosen = [advice.get(rule) for rule in sorted(rules)]
    else:
        own = [item.comparison.needs for item in found if item.name == check.name]
        needs = largest_needs(own)
        alone = rounded_up(needs[0]) if needs else math.inf
        chosen = [Tolerance(alone, 0.0) if alone <= MOST else None]
    passing = [item.rtol for item in chosen if item is not None and not item.atol]
    rtol = max(passing) if len(passing) == len(chosen) else None
    return replace(check, measured=replace(check.measured, passing_rtol=rtol))


def odd_tolerances(sites: Sequence[TwinSite], found: Sequence[Found]) -> Iterator[str]:
    """Say which rules accept nearly anything."""
    for rule, tolerance in {site.rule: site.tolerance for site in sites}.items():
        if tolerance is None:
            continue
        rms = usual_rms(item for item in found if item.rule == rule)
        if tolerance.rtol >= 1:
            yield f"rule `{rule}` allows rtol {tolerance.rtol:g}, so values twice as large pass"
        if rms and tolerance.atol > rms:
            yield (
                f"rule `{rule}` allows atol {tolerance.atol:g}, "
                f"more than the RMS {rms:.2g} of what it replaces"
            )

"""End to end: the gradients to inputs and parameters, the artifact's against the original's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oprep.converters.advice import Found
from oprep.converters.gradient_comparison import NONE, Sides, compare_own, compare_same
from oprep.converters.program_proving import Proving, Ran
from oprep.converters.program_sides import Side
from oprep.converters.program_sites import GRADIENTS, Fed
from oprep.converters.report import CheckResult, Verdict
from oprep.converters.runs import Trouble

WIDE = "wide"
TINY = 1e-30
"""Less than a unit in the last place of any dtype: a run moves its inputs by some of those then."""


def compare_gradients(proving: Proving, after: Side) -> list[CheckResult]:
    """Compare the gradients from the same cotangents, on sets of usual values."""
    proving.say("comparing gradients")
    results: dict[str, CheckResult] = {}
    for item in _sets(proving):
        before = proving.go(proving.before, item, gradients=True)
        if isinstance(before, Trouble) and proving.exchanged:
            proving.exchanging = False
            before = proving.go(proving.before, item, gradients=True)
        if isinstance(before, Trouble):
            proving.note(f"the original gives no gradients: {before.detail}")
            continue
        made = proving.go(after, item, gradients=True)
        if isinstance(made, Trouble) and _declared_none(proving, made):
            proving.note(f'a rule has `gradient = "none"`, and so has the artifact: {made.detail}')
            return list(results.values())
        if isinstance(made, Trouble):
            return [_lost(made, item)]
        for name, check in _compared(proving, item, before, made).items():
            results[name] = _worse(results.get(name), check)
    return list(results.values())


def _sets(proving: Proving) -> list[Fed]:
    """Give the sets to go back from; sizes that lie far apart prove sites, and blur the ends."""
    found = [item for item in proving.sets if item.gradients]
    return [item for item in found if item.name != WIDE] or found


def _declared_none(proving: Proving, trouble: Trouble) -> bool:
    """Tell whether a rule says that no gradient goes through what it puts in."""
    none = any(site.gradient == NONE for site in proving.sites)
    return none and trouble.verdict is Verdict.CANNOT_RUN


def _lost(trouble: Trouble, item: Fed) -> CheckResult:
    """Give the check where the artifact gives no gradient at all."""
    failed = trouble.verdict is Verdict.CANNOT_RUN
    verdict = Verdict.FAIL if failed else trouble.verdict
    detail = f"gradient lost: {trouble.detail} on input set `{item.name}`"
    return CheckResult(GRADIENTS, "all", verdict, detail=detail)


def _compared(proving: Proving, item: Fed, before: Ran, made: Ran) -> dict[str, CheckResult]:
    """Compare all gradients on one set; how far the original's move beside it is no error."""
    step = max(proving.coarsest / 2, TINY)
    beside = [proving.go(proving.before, item, gradients=True, aside=way) for way in (step, -step)]
    moved: Sequence[Ran] = [one for one in beside if not isinstance(one, Trouble)]
    for text in {before["sampled"], made["sampled"]} - {""}:
        proving.note(text)
    found = {}
    for name, gradient in before["gradients"].items():
        others = [one["gradients"][name] for one in moved]
        sides = Sides(name, gradient, made["gradients"].get(name), others)
        found[name] = _judged(proving, sides, item)
    return found


def _judged(proving: Proving, sides: Sides, item: Fed) -> CheckResult:
    own = not proving.same_gradients
    if own:
        found = compare_own(sides, needed=all(site.gradient != NONE for site in proving.sites))
    else:
        found = compare_same(sides, proving.asked)
        proving.found.append(Found(None, sides.name, found, usual=True))
    asked = "the rules" if proving.asked is not None else "dtype and scale"
    return CheckResult(
        GRADIENTS,
        sides.name,
        found.verdict,
        measured=found.numbers,
        tolerance=found.tolerance,
        tolerance_source="own gradients" if own else asked,
        allowed=found.allowed,
        dtype=found.dtype,
        shape=found.shape,
        sets=1,
        detail=found.detail,
        worst_set=item.name if found.numbers is not None else "",
    )


def _worse(one: CheckResult | None, other: CheckResult) -> CheckResult:
    """Give the check that says more: a failure before a pass, a pass with numbers before none."""
    if one is None:
        return other
    order = (Verdict.FAIL, Verdict.PASS, Verdict.NOT_FINITE, Verdict.NO_EVIDENCE)
    ranks = [(order.index(item.verdict), item.measured is None) for item in (one, other)]
    kept = one if ranks[0] <= ranks[1] else other
    return replace(kept, sets=one.sets + other.sets)

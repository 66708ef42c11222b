"""Say numbers and places of a check in words, the same in every kind of report."""

from __future__ import annotations

import math

from oprep.cli.escape import name, sentence
from oprep.converters.report import CheckResult, MissRecord, Numbers

NO_DIFFERENCE = "no difference"


def count(number: int, noun: str) -> str:
    """Give `1 site`, `12 sites`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def short(value: float | None) -> str:
    """Give a small figure with two digits: `2.4e-07`; 0 stays `0`."""
    if value is None:
        return "unknown"
    return "0" if value == 0 else f"{value:.1e}" if math.isfinite(value) else str(value)


def deviation(measured: Numbers) -> float:
    """Give |candidate - reference| at the worst element; not finite when one of them is not.

    Where both values print as one, as the same infinity does, it is the largest one anywhere.
    """
    if measured.candidate == measured.reference:
        return measured.max_abs
    return abs(measured.candidate - measured.reference)


def excess(check: CheckResult) -> float:
    """Give how far the worst element is off as a multiple of what is allowed; NaN counts as inf."""
    if check.measured is None:
        return -1.0
    off = deviation(check.measured)
    if math.isnan(off):
        return math.inf
    if off == 0:
        return 0.0
    return off / check.allowed if check.allowed else math.inf


def allowed(check: CheckResult) -> str:
    """Give how far the worst element may be off."""
    return f"allowed {short(check.allowed)}" if check.allowed else "exact"


def title(check: CheckResult) -> str:
    """Name what was checked; gradients are compared at sites and to inputs and parameters."""
    at_site = check.check == "gradients_close" and check.rule is not None
    return f"site {check.name}" if at_site else check.name


def miss_line(miss: MissRecord) -> str:
    """Say where a rule nearly matched, and why it did not."""
    reason = sentence(miss.reason)
    return f"near miss at {name(miss.site)}: {reason}" if miss.site else f"no match: {reason}"


def figures(check: CheckResult) -> str:
    """Give the worst place with both values, what is allowed and what would have passed."""
    measured = check.measured
    if measured is None:
        return sentence(check.detail)
    off = deviation(measured)
    if not differs(measured):
        parts = [NO_DIFFERENCE]
    elif not math.isfinite(off):
        parts = [_pair(measured) + place(measured)]
    else:
        parts = [_pair(measured) + place(measured), _off_by(off, check)]
    return ", ".join([*parts, *remarks(check)])


def _off_by(off: float, check: CheckResult) -> str:
    """Say how far off and what is allowed, with as many digits as tell them apart."""
    if not check.allowed:
        return f"off by {short(off)}, exact"
    for digits in (1, 2, 3, 5, 8):
        here, there = f"{off:.{digits}e}", f"{check.allowed:.{digits}e}"
        if here != there:
            break
    return f"off by {here}, allowed {there}"


def differs(measured: Numbers) -> bool:
    """Tell whether any element differs at all; an unknown difference (NaN) is one."""
    return measured.max_abs != 0 or deviation(measured) != 0


def place(measured: Numbers) -> str:
    """Give ` at [4, 7]`, nothing for a scalar."""
    return f" at {list(measured.worst_index)}" if measured.worst_index else ""


def remarks(check: CheckResult) -> list[str]:
    """Give what would have passed, and what the check says in words."""
    own = f"gradient to `{check.name}`"
    said = [sentence(check.detail)] if check.detail and check.detail != own else []
    if check.measured is not None and excess(check) > 1:
        rtol = check.measured.passing_rtol
        return [*([f"rtol {short(rtol)} would pass"] if rtol is not None else []), *said]
    return said


def _pair(measured: Numbers) -> str:
    """Give both values with six digits, or with all where six do not tell them apart."""
    before, after = measured.reference, measured.candidate
    if f"{before:.6g}" == f"{after:.6g}" and before != after:
        return f"{before!r} became {after!r}"
    return f"{before:.6g} became {after:.6g}"

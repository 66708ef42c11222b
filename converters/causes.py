"""Say whose fault it is that there is no result, and what can be done about it."""

from __future__ import annotations

import re
from dataclasses import replace

from oprep.converters.report import CheckResult, Verdict
from oprep.converters.runs import Trouble

ORIGINAL, CANDIDATE, REPLACEMENT = "the original", "the candidate", "the replacement"
NO_KERNEL = "has no kernel"
UNREACHED = "no input set reaches it: "
NOT_GENERATED = "which is not generated"
EMPTY = "every value that reaches it is empty"
WITHOUT_RESULT = (Verdict.CANNOT_RUN, Verdict.CRASHED, Verdict.TIMED_OUT)

_UNREGISTERED = re.compile(r"([\w.-]*):(\w+)\(-?\d+\) is not a registered function/op")
_UNIMPLEMENTED = re.compile(r"Could not find an implementation for (\w+)\((\d+)\)")
_MEMORY = re.compile(r"memory|bad.?alloc|failed to allocate", re.IGNORECASE)
_LACKS = re.compile(r"cannot run here: (`[^`]+`) has no kernel")


def blamed(trouble: Trouble, who: str) -> Trouble:
    """Let the words of a trouble begin with who failed, and with the cause where it is known."""
    if trouble.verdict is Verdict.CANNOT_RUN:
        itself = f"{who} itself" if who == ORIGINAL else who
        return replace(trouble, detail=f"{itself} cannot run here: {_cause(trouble.detail)}")
    if trouble.detail.startswith(who):
        return trouble
    return replace(trouble, detail=f"{who} {trouble.verdict}: {trouble.detail}")


def _cause(detail: str) -> str:
    found = _UNREGISTERED.search(detail)
    if found is not None:
        return f"`{found[1]}::{found[2]}` {NO_KERNEL} ({detail})"
    found = _UNIMPLEMENTED.search(detail)
    if found is not None:
        return f"`{found[1]}` {NO_KERNEL} for its dtypes at opset {found[2]} ({detail})"
    return detail


def short(detail: str) -> str:
    """Leave out what the runtimes said, where the cause is known."""
    return detail.partition(" (onnxruntime: ")[0] if NO_KERNEL in detail else detail


def is_of_replacement(check: CheckResult) -> bool:
    """Tell whether what was put in failed, and not the original."""
    return check.detail.startswith((CANDIDATE, REPLACEMENT))


def fact(check: CheckResult, place: str) -> str:
    """Say in one line who failed to give a result."""
    if not is_of_replacement(check):
        if NO_KERNEL in check.detail:
            return short(check.detail)
        if check.detail.endswith(NOT_GENERATED):
            return f"no inputs could be made: {check.detail}"
        said = {
            Verdict.TIMED_OUT: "timed out",
            Verdict.CRASHED: "crashed",
            Verdict.CANNOT_RUN: "itself cannot run here",
        }[check.verdict]
        return f"{ORIGINAL} {said}"
    does = {Verdict.TIMED_OUT: "times out", Verdict.CRASHED: "crashes"}
    who = REPLACEMENT if check.check == "sites_close" else "the converted model"
    return f"{who} {does.get(check.verdict, 'cannot run')} at {place}"


def advice(check: CheckResult) -> str:
    """Give the one action that fits the cause."""
    accept = f"pass `--accept '{check.verdict}'`"
    if check.verdict is Verdict.NO_EVIDENCE:
        return _advice_on_evidence(check, accept)
    if _MEMORY.search(check.detail):
        return (
            f"it needs more memory than there is: give smaller inputs with `--inputs`, or {accept}"
        )
    if check.verdict is Verdict.TIMED_OUT:
        return (
            f"give it more seconds with `--timeout`, or smaller inputs with `--inputs`, or {accept}"
        )
    lacking = _LACKS.search(check.detail)
    if lacking is not None:
        if is_of_replacement(check):
            return (
                f"no such op in the runtime: check `with`, or give {lacking[1]} a `body` "
                "in an `[[op]]`"
            )
        return f"{accept}, or give {lacking[1]} a `body` in an `[[op]]`"
    if check.verdict is Verdict.CRASHED or is_of_replacement(check):
        return f"look at what is put in, or {accept}" if is_of_replacement(check) else accept
    return f"give inputs that it takes with `--inputs`, or {accept}"


def _advice_on_evidence(check: CheckResult, accept: str) -> str:
    if check.detail.startswith(UNREACHED):
        place = check.detail.removeprefix(UNREACHED).partition(", in input set")[0]
        return f"give inputs that reach {place} with `--inputs`, or {accept}"
    if "empty" in check.detail:
        return f"give inputs with at least one element with `--inputs`, or {accept}"
    return f"give inputs that reach it with `--inputs`, or {accept}"

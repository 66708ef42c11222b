"""The candidate takes and gives what the original does: names, order, dtypes and dims."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from oprep.converters.checks.subject import Check, Subject
from oprep.converters.report import CheckResult, Verdict
from oprep.converters.signature import Port, signature


def run(subject: Subject) -> tuple[CheckResult, ...]:
    """Compare the two signatures; the detail is the first difference."""
    before, after = signature(subject.model), signature(subject.candidate_model)
    found = (
        _difference("input", before.inputs, after.inputs)
        or _difference("overridable input", before.optional, after.optional)
        or _difference("output", before.outputs, after.outputs)
    )
    verdict = Verdict.FAIL if found else Verdict.PASS
    return (CheckResult("signature_kept", "signature", verdict, detail=found),)


def _difference(what: str, before: Sequence[Port], after: Sequence[Port]) -> str:
    for number, (one, other) in enumerate(zip_longest(before, after)):
        if one != other:
            return f"{what} {number} was {_described(one)}, is {_described(other)}"
    return ""


def _described(port: Port | None) -> str:
    if port is None:
        return "absent"
    dims = "of any rank" if port.dims is None else str(list(port.dims)).replace("'", "")
    return f"`{port.name}` {port.dtype or port.kind} {dims}"


CHECK = Check("signature_kept", run, order=0)

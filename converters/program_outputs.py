"""End to end: outputs of a program, and buffers that a run changes, against those of the original.

Noise is what the original moves by with other threads and without oneDNN, and when what its sites
give is moved by a unit in the last place: no other implementation can be closer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast

from oprep.converters import magnitudes
from oprep.converters.causes import CANDIDATE, ORIGINAL, blamed
from oprep.converters.checks import outputs_close
from oprep.converters.inputs import InputSet
from oprep.converters.program_proving import Proving, Ran
from oprep.converters.program_sides import Side
from oprep.converters.program_sites import Fed
from oprep.converters.report import CheckResult, Verdict
from oprep.converters.runs import Trouble

OUTPUTS = outputs_close.NAME
NOISY: Mapping[str, Any] = {"threads": 4, "onednn": False}
"""The setting of the run that measures noise; all others have one thread."""

NOISY_COARSE: Mapping[str, Any] = {"threads": 4}
"""The same for 16-bit floats, which are added up in 16 bits without oneDNN."""

Row: TypeAlias = Mapping[str, Ran]
"""What one side gave, by input set."""
Run: TypeAlias = Callable[[Fed], "Ran | Trouble"]


def without_result(trouble: Trouble) -> CheckResult:
    """Give the check of outputs that could not be made."""
    return CheckResult(OUTPUTS, "outputs", trouble.verdict, detail=trouble.detail)


def compare_outputs(proving: Proving, after: Side) -> list[CheckResult]:
    """Compare every output over all sets of the whole program, with the artifact in `after`."""
    return compare_runs(proving, lambda item: proving.go(after, item))


def compare_runs(
    proving: Proving, candidate: Run, names: Sequence[str] | None = None
) -> list[CheckResult]:
    """Compare what `candidate` makes of each set.

    Where only some outputs are to be compared, `names` are theirs; else buffers and how results
    lie in memory are compared, too.
    """
    proving.say("running the converted program")
    before = proving.before
    after = _row(proving, candidate, CANDIDATE)
    if isinstance(after, Trouble):
        return _every(proving, after)
    proving.say("measuring the noise of the original")
    again = _row(proving, lambda item: proving.go(before, item), ORIGINAL)
    if isinstance(again, Trouble):
        return _every(proving, replace(again, verdict=Verdict.NOT_DETERMINISTIC))
    first = {item.name: proving.ran[item.name] for item in proving.whole}
    setting = NOISY_COARSE if proving.coarse else NOISY
    noise = _row(proving, lambda item: proving.go(before, item, **setting), ORIGINAL)
    nudged = _row(proving, lambda item: proving.go(before, item, nudged=True), ORIGINAL)
    for row in (noise, nudged):
        if isinstance(row, Trouble):
            proving.note(f"noise was measured in part only: {row.detail}")
    noise, nudged = (first if isinstance(row, Trouble) else row for row in (noise, nudged))
    rows = (first, after, again, noise, nudged)
    found = [_checked(proving, name, rows) for name in names or _names(rows)]
    if names is not None:
        return found
    return [_laid_out(result, first, after) for result in found]


def _row(proving: Proving, run: Run, who: str) -> Row | Trouble:
    """Run one side on all sets."""
    row = {}
    for item in proving.whole:
        ended = run(item)
        if isinstance(ended, Trouble):
            words = f"{ended.detail} on input set `{item.name}`"
            return blamed(replace(ended, detail=words), who)
        row[item.name] = ended
    return row


def _every(proving: Proving, trouble: Trouble) -> list[CheckResult]:
    names = list(next(iter(proving.ran.values()))["outputs"])
    return [CheckResult(OUTPUTS, n, trouble.verdict, detail=trouble.detail) for n in names]


def _names(rows: Sequence[Row]) -> list[str]:
    return list(
        dict.fromkeys(name for row in rows for ran in row.values() for name in _values(ran))
    )


def _values(ran: Ran) -> dict[str, Any]:
    """Give outputs, and buffers that the run changed, by name."""
    state = {f"{name} (buffer)": value for name, value in ran["state"].items()}
    return {**ran["outputs"], **state}


def _checked(proving: Proving, name: str, rows: Sequence[Row]) -> CheckResult:
    sides = [
        {item: {name: _arrays(_values(ran).get(name))} for item, ran in row.items()} for row in rows
    ]
    result = _result(proving, name, sides)
    if result.verdict is Verdict.FAIL and proving.before.told["draws"]:
        return _drawn_apart(result, rows[0], rows[1])
    return result


def _arrays(value: Mapping[str, Any] | None) -> list[Any]:
    """Give the array of one output; a number is an array of one, None is nothing."""
    import numpy as np

    if value is None:
        return []
    if "array" in value:
        return [value["array"]]
    return [] if value["plain"] is None else [np.asarray(value["plain"])]


def _result(proving: Proving, name: str, sides: Sequence[Any]) -> CheckResult:
    """Compare one output; sets that amplify rounding are left out where others tell more."""
    first, after, again, noise, nudged = sides
    pairs = [(a, b) for item, row in first.items()
             for a, b in zip(row[name], nudged[item][name], strict=False)]  # fmt: skip
    asked = proving.asked_behind(pairs)
    if not proving.coarse:
        noise = {item: {name: _noisier(row[name], noise[item][name], nudged[item][name])}
                 for item, row in first.items()}  # fmt: skip
    rows, sets = cast(Any, (first, after, again, noise)), list(map(proving.input_set, proving.sets))

    def over(chosen: Sequence[InputSet]) -> tuple[CheckResult, Any]:
        return outputs_close.result_of(name, rows, chosen, asked)

    result, found = over(sets)
    if _is_noise(result):
        each = {item.name: over([item])[0] for item in sets}
        quiet = [item for item in sets if not _is_noise(each[item.name])]
        if any(each[item.name].verdict in (Verdict.PASS, Verdict.FAIL) for item in quiet):
            result, found = over(quiet)
            left = ", ".join(f"`{item.name}`" for item in sets if item not in quiet)
            proving.note(f"output `{name}` of the original is nothing but rounding in {left}")
    proving.found += found
    return result


def _noisier(first: list[Any], one: list[Any], other: list[Any]) -> list[Any]:
    """Give the run that moved further from the first one."""
    if not len(first) == len(one) == len(other):
        return one
    further = [
        magnitudes.largest_difference(a, c) > magnitudes.largest_difference(a, b)
        for a, b, c in zip(first, one, other, strict=True)
    ]
    return [c if far else b for b, c, far in zip(one, other, further, strict=True)]


def _is_noise(result: CheckResult) -> bool:
    """Tell whether the original moves too much by itself; another draw is something else."""
    random = "in another process" in result.detail
    return result.verdict is Verdict.NOT_DETERMINISTIC and bool(result.noise) and not random


def _laid_out(result: CheckResult, before: Row, after: Row) -> CheckResult:
    """Fail where an output that is right lies in memory in another way."""
    if result.verdict is not Verdict.PASS:
        return result
    for item in before:
        one, other = (_values(row[item]).get(result.name) or {} for row in (before, after))
        if "array" in one and one["array"].size:
            rows = zip(one["array"].shape, one["strides"], other["strides"], strict=True)
            if any(left != right for size, left, right in rows if size > 1):
                detail = f"strides {one['strides']} became {other['strides']}"
                return replace(result, verdict=Verdict.FAIL, measured=None,
                               detail=f"{detail}, in input set `{item}`")  # fmt: skip
    return result


def _drawn_apart(result: CheckResult, before: Row, after: Row) -> CheckResult:
    """Where the candidate drew other random numbers, a difference says nothing."""
    item = result.worst_set
    if not item or before[item]["random"] == after[item].get("random"):
        return result
    detail = "the candidate draws other random numbers than the original from the same seed"
    return replace(result, verdict=Verdict.NOT_DETERMINISTIC, detail=detail)

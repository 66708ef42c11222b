"""End to end: the original against the artifact as a fresh process loads it, output by output.

What the original's own outputs move by when the runtime's optimisations are off is the noise
floor; an original that differs from itself in another process is no reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from oprep.converters import magnitudes, numbers
from oprep.converters.checks.subject import Check, Subject
from oprep.converters.comparison import Comparison
from oprep.converters.evidence import merged
from oprep.converters.report import CheckResult, Verdict
from oprep.converters.runs import Loadable, Runs, Trouble
from oprep.opsets import tolerances
from oprep.opsets.rule import Tolerance

NAME = "outputs_close"
Outputs = Mapping[str, Mapping[str, list[Any]]]


def run(subject: Subject) -> tuple[CheckResult, ...]:
    """Compare every output over all sets that may feed the whole model."""
    names = [item.name for item in subject.model.graph.output]
    trials = subject.trials
    if trials.trouble is not None:
        return _all(names, trials.trouble)
    assert trials.opened is not None
    subject.say("running the converted model")
    runtime = (trials.opened.runtime,)
    after = _outputs(subject, subject.other_runs, subject.candidate, "the candidate", runtime)
    if isinstance(after, Trouble):
        return _all(names, after)
    subject.say("measuring the noise of the original")
    again = _outputs(subject, subject.other_runs, subject.original, "the original again", runtime)
    if isinstance(again, Trouble):
        return _all(names, replace(again, verdict=Verdict.NOT_DETERMINISTIC))
    plain = _outputs(
        subject, subject.runs, subject.original, "the original unoptimised", runtime, False
    )
    if isinstance(plain, Trouble):
        subject.note(f"no noise floor was measured: {plain.detail}")
        plain = trials.outputs
    asked = _asked(subject)
    return tuple(_result(name, trials.outputs, after, again, plain, asked) for name in names)


def _all(names: list[str], trouble: Trouble) -> tuple[CheckResult, ...]:
    return tuple(CheckResult(NAME, name, trouble.verdict, detail=trouble.detail) for name in names)


def _outputs(
    subject: Subject,
    runs: Runs,
    model: Loadable,
    what: str,
    runtimes: tuple[str, ...],
    optimise: bool = True,
) -> Outputs | Trouble:
    """Run a freshly loaded model on every set of the whole model."""
    opened = runs.open(what, model, what, optimise=optimise, runtimes=runtimes)
    if isinstance(opened, Trouble):
        return replace(opened, detail=f"{what} cannot be loaded: {opened.detail}")
    found = {}
    for item in subject.sets:
        if item.whole:
            ended = runs.run(what, item.arrays)
            if isinstance(ended, Trouble):
                return replace(ended, detail=f"input set `{item.name}`: {ended.detail}")
            found[item.name] = ended
    runs.close(what)
    return found


def _asked(subject: Subject) -> Tolerance | None:
    """Give the loosest tolerance that the rules of the sites ask for, as far as the user allows."""
    sites = subject.plan.sites if subject.plan is not None else ()
    asked = [site.tolerance for site in sites if site.tolerance is not None]
    options = subject.options
    if not asked:
        return None
    return tolerances.clamp(tolerances.loosest(*asked), options.max_rtol, options.max_atol)


def _result(
    name: str,
    before: Outputs,
    after: Outputs,
    again: Outputs,
    plain: Outputs,
    asked: Tolerance | None,
) -> CheckResult:
    found: list[tuple[Comparison, float]] = []
    for item in before:
        sides = [outputs[item].get(name, []) for outputs in (before, after, again, plain)]
        found += _compare_set(sides, asked)
    best = merged([comparison for comparison, _ in found])
    noise = max((noise for one, noise in found if one.over == best.over), default=None)
    return CheckResult(
        NAME,
        name,
        best.verdict,
        measured=best.numbers,
        tolerance=best.tolerance,
        tolerance_source="the rules" if asked is not None else "dtype and scale",
        allowed=best.allowed,
        noise=noise,
        dtype=best.dtype,
        shape=best.shape,
        sets=sum(comparison.numbers is not None for comparison, _ in found),
        detail=best.detail,
    )


def _compare_set(sides: list[list[Any]], asked: Tolerance | None) -> list[tuple[Comparison, float]]:
    """Compare one output in one set: arrays of the original, candidate, second run, noise run."""
    before, after, again, plain = sides
    counts = [len(side) for side in sides]
    if counts[1] != counts[0]:
        differs = Comparison(Verdict.FAIL, None, tolerances.EXACT, None, "", (), float("inf"))
        detail = f"{counts[0]} values became {counts[1]}"
        return [(replace(differs, detail=detail), 0.0)]
    second = again if counts[2] == counts[0] else before
    third = plain if counts[3] == counts[0] else before
    return [
        _compare_arrays(*four, asked=asked)
        for four in zip(before, after, second, third, strict=True)
    ]


def _compare_arrays(
    one: Any, other: Any, second: Any, third: Any, asked: Tolerance | None
) -> tuple[Comparison, float]:
    noise = magnitudes.largest_difference(one, third)
    scale = replace(magnitudes.scale(one), noise=noise)
    allowed = tolerances.default(magnitudes.dtype_name(one), scale)
    if asked is not None and magnitudes.kind(one) in ("float", "complex"):
        allowed = tolerances.loosest(allowed, asked)
    flips = None
    if magnitudes.kind(one) == "exact" and third.shape == one.shape:
        flips = one != third
    found = numbers.compare(one, other, allowed, flips=flips)
    if not magnitudes.same_bits(one, second):
        detail = "the original differs from itself in another process"
        return replace(found, verdict=Verdict.NOT_DETERMINISTIC, detail=detail), noise
    if tolerances.noisy(scale) and found.verdict in (Verdict.PASS, Verdict.FAIL):
        detail = (
            f"the original differs from itself by {noise:.2g} with optimisations off, "
            f"more than {tolerances.NOISY:g} of its RMS {scale.rms:.2g}"
        )
        return replace(found, verdict=Verdict.NOT_DETERMINISTIC, detail=detail), noise
    return found, noise


CHECK = Check(NAME, run, order=2)

"""End to end: the original against the artifact as a fresh process loads it, output by output.

What the original's own outputs move by when the runtime's optimisations are off is the noise
floor; an original that differs from itself in another process is no reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from oprep.converters import magnitudes, numbers
from oprep.converters.advice import Found
from oprep.converters.causes import blamed
from oprep.converters.checks.subject import Check, Subject
from oprep.converters.comparison import NEVER, Comparison
from oprep.converters.evidence import InSet, over_sets, said_of_set
from oprep.converters.inputs import InputSet
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
    sides = (trials.outputs, after, again, plain)
    results = []
    for name in names:
        result, found = result_of(name, sides, subject.sets, asked)
        results.append(result)
        subject.found += found
    return tuple(results)


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
        return blamed(opened, what)
    found = {}
    for item in subject.sets:
        if item.whole:
            ended = runs.run(what, item.arrays)
            if isinstance(ended, Trouble):
                words = f"{ended.detail} on input set `{item.name}`"
                return blamed(replace(ended, detail=words), what)
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


def result_of(
    name: str,
    sides: tuple[Outputs, Outputs, Outputs, Outputs],
    sets: Sequence[InputSet],
    asked: Tolerance | None,
) -> tuple[CheckResult, list[Found]]:
    """Compare one output over all sets; `sides` are those of `compare_set`."""
    found: list[tuple[InSet, float]] = []
    for item in sets:
        if item.name in sides[0]:
            of_set = [outputs[item.name].get(name, []) for outputs in sides]
            for comparison, noise in compare_set(of_set, asked, item.arrays):
                found.append((InSet(item.name, item.usual, comparison), noise))
    best, worst_set = over_sets([one for one, _ in found])
    noises = [noise for one, noise in found if one.name == worst_set]
    result = CheckResult(
        NAME,
        name,
        best.verdict,
        measured=best.numbers,
        tolerance=best.tolerance,
        tolerance_source="the rules" if asked is not None else "dtype and scale",
        allowed=best.allowed,
        noise=max(noises, default=None),
        dtype=best.dtype,
        shape=best.shape,
        sets=sum(one.comparison.numbers is not None for one, _ in found),
        detail=said_of_set(best, worst_set),
        worst_set=worst_set,
    )
    return result, [Found(None, name, one.comparison, one.usual) for one, _ in found]


def compare_set(
    sides: list[list[Any]], asked: Tolerance | None, feeds: Mapping[str, Any]
) -> list[tuple[Comparison, float]]:
    """Compare one output in one set: arrays of the original, candidate, second run, noise run."""
    before, after, again, plain = sides
    counts = [len(side) for side in sides]
    if counts[1] != counts[0]:
        differs = Comparison(Verdict.FAIL, None, tolerances.EXACT, None, "", (), float("inf"))
        detail = f"{counts[0]} values became {counts[1]}"
        return [(replace(differs, detail=detail, needs=NEVER), 0.0)]
    second = again if counts[2] == counts[0] else before
    third = plain if counts[3] == counts[0] else before
    return [
        compare_arrays(*four, asked=asked, feeds=feeds)
        for four in zip(before, after, second, third, strict=True)
    ]


def compare_arrays(
    one: Any,
    other: Any,
    second: Any,
    third: Any,
    asked: Tolerance | None,
    feeds: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[Comparison, float]:
    """Compare one array of the original and the candidate; give the noise of the original, too.

    `second` is the original once more, `third` the original computed in another way.
    """
    noise = magnitudes.largest_difference(one, third)
    scale = replace(magnitudes.scale(one), noise=noise)
    if not scale.rms:
        inputs = (magnitudes.scale(array).rms for array in _floating(feeds))
        scale = replace(scale, inputs=max(inputs, default=0.0))
    default = tolerances.default(magnitudes.dtype_name(one), scale)
    allowed = default
    if asked is not None and magnitudes.kind(one) in ("float", "complex"):
        allowed = tolerances.loosest(default, asked)
    flips = None
    if magnitudes.kind(one) == "exact" and third.shape == one.shape:
        flips = one != third
    found = numbers.compare(one, other, allowed, flips=flips, kept=default.atol)
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


def _floating(feeds: Mapping[str, Any]) -> list[Any]:
    arrays = (array for array in feeds.values() if hasattr(array, "dtype"))
    return [array for array in arrays if magnitudes.kind(array) in ("float", "complex")]


CHECK = Check(NAME, run, order=2)

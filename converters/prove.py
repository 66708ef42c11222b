"""Prove a conversion: every check of `checks/` on one original and its candidate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from oprep.converters.advice import advised, odd_tolerances, with_advice
from oprep.converters.checks.sites_close import first_failing
from oprep.converters.checks.subject import Subject
from oprep.converters.discover import checks
from oprep.converters.inputs import InputSet
from oprep.converters.report import CheckResult, InputSetRecord
from oprep.opsets.rule import Tolerance


@dataclass(frozen=True)
class Proof:
    """What the checks found, the input sets they used, and remarks for the report.

    `first_differing` names the failing site that comes first in the graph; `advice` are the
    tolerances by rule under which everything would pass.
    """

    checks: tuple[CheckResult, ...]
    inputs: tuple[InputSetRecord, ...]
    first_differing: str | None
    notes: tuple[str, ...]
    sets: tuple[InputSet, ...] = ()
    advice: Mapping[str, Tolerance] = field(default_factory=dict)


def prove(subject: Subject, *, progress: Callable[[str], None] | None = None) -> Proof:
    """Run all checks, the cheap ones first; the children of `subject` are gone afterwards."""
    if progress is not None:
        subject.progress = progress
    with subject:
        results = tuple(result for check in checks() for result in check.run(subject))
        advice = advised(subject.found)
        results = tuple(with_advice(result, advice, subject.found) for result in results)
        for text in odd_tolerances(subject.plan.sites if subject.plan else (), subject.found):
            subject.note(text)
        trials = (subject.part or subject).trials
        if trials.opened is not None and trials.opened.reasons:
            reason = "; ".join(trials.opened.reasons)
            subject.note(f"run by the {trials.opened.runtime} evaluator, since {reason}")
        if not subject.runs.sandboxed:
            subject.note("models ran without file system isolation, which this kernel lacks")
    differing = first_failing(results, subject.plan)
    return Proof(results, trials.records, differing, tuple(subject.notes), trials.sets, advice)

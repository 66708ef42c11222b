"""The last steps of a conversion to an AOTInductor package: compiled, run once more, written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oprep.converters.answers import answer
from oprep.converters.program_artifacts import compare_package, write_package
from oprep.converters.program_code import Needed
from oprep.converters.prove import Proof
from oprep.converters.report import Report
from oprep.converters.runner import Child, Limits
from oprep.converters.verdicts import verified

if TYPE_CHECKING:
    from oprep.converters.program_pipeline import ProgramConversion

TASKS = "oprep.converters.programs"
COMPILING = 600.0
"""Seconds that compiling may take, at least."""


def to_aoti(report: Report, conversion: ProgramConversion, needed: Sequence[Needed]) -> Report:
    """Compile the converted program, compare the package with the original, and write it.

    Sites and gradients are those of the archive that was proven before.
    """
    job = conversion.job
    job.say("compile")
    made = conversion.host.call("artifact_tasks:aoti", seconds=COMPILING)
    report = replace(report, notes=(*report.notes, *made["notes"]))
    if job.verify:
        job.say("run the package")
        report = _compared(report, conversion, made)
    job.say("write")
    own = [conversion.source.path] if conversion.source is not None else []
    assert job.output is not None
    return write_package(report, Path(made["package"]), job.output, conversion.records,
                         conversion.entries(), conversion.parameters(), inputs=own,
                         needed=needed,
                         code=conversion.code if job.bundle else None)  # fmt: skip


def _compared(report: Report, conversion: ProgramConversion, made: dict[str, Any]) -> Report:
    package = Path(made["package"])
    limits = Limits(conversion.job.settings.seconds)
    with Child(readable=(package.parent,), limits=limits) as child:
        ops = {**conversion.opening_of_ops(), "definitions": conversion.opening["definitions"]}
        answer(child.call(f"{TASKS}.tasks:register_ops", ops), conversion.name)
        outputs = [
            answer(child.call(f"{TASKS}.artifact_tasks:package_outputs",
                              {"package": str(package), "leaves": item["leaves"]}),
                   conversion.name)
            for item in made["examples"]
        ]  # fmt: skip
    checks = (*report.checks, *compare_package(made["examples"], outputs))
    report = replace(report, checks=checks)
    proof = Proof(checks, report.inputs, None, ())
    return verified(report, proof, conversion.job.settings, conversion.name)

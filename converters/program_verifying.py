"""Verification as a step of a program's conversion: the captured one against the artifact."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from oprep.converters import handed
from oprep.converters.program_proof import ProofOptions, prove_program
from oprep.converters.program_sides import Opening
from oprep.converters.report import Report
from oprep.converters.verdicts import verified
from oprep.converters.verifying import save_sets

if TYPE_CHECKING:
    from oprep.converters.program_pipeline import ProgramConversion
    from oprep.converters.program_writing import Candidate

TASKS = "oprep.converters.programs.tasks"


def verified_program(report: Report, conversion: ProgramConversion, made: Candidate) -> Report:
    """Prove a conversion at its sites and end to end; raise (exit 4) where it does not hold."""
    job, settings = conversion.job, conversion.job.settings
    opening = {**conversion.opening, "key": conversion.host.key, "positions": conversion.positions}
    assert made.staged is not None
    proof = prove_program(
        Opening(f"{TASKS}:original", opening),
        Opening(
            f"{TASKS}:artifact",
            {
                **conversion.opening_of_ops(),
                "name": "the converted program",
                "archive": handed.plain(made.staged.file),
                "definitions": made.definitions,
            },
        ),
        ProofOptions(
            settings.seed,
            settings.seconds,
            None,
            settings.max_rtol,
            settings.max_atol,
            job.grad,
            conversion.host.starter(),
            conversion.fresh(made.staged.file),
        ),
        job.say,
    )
    if job.save_inputs is not None:
        save_sets(proof, job.save_inputs)
    notes = (*report.notes, *proof.notes)
    report = replace(report, checks=proof.checks, inputs=proof.inputs, notes=notes)
    return verified(report, proof, settings, conversion.name)

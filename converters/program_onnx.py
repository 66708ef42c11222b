"""The last steps of a conversion from PyTorch to ONNX: exported in the child, proven, written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oprep.converters.program_artifacts import ExportedModel, read_onnx, write_onnx
from oprep.converters.program_proof import ProofOptions, outputs_against_onnx
from oprep.converters.program_sides import Opening
from oprep.converters.report import CheckResult, Report
from oprep.converters.verdicts import verified
from oprep.converters.verifying import save_sets
from oprep.converters.writing import stamp

if TYPE_CHECKING:
    from oprep.converters.program_pipeline import ProgramConversion

TASKS = "oprep.converters.programs.tasks"


def to_onnx(report: Report, conversion: ProgramConversion) -> Report:
    """Export the converted program, prove it and write it; the child lives until then."""
    job = conversion.job
    job.say("export to ONNX")
    answer = conversion.host.call("artifact_tasks:onnx", **_options(conversion))
    model = read_onnx(answer, conversion.name)
    stamp(model.proto, conversion.rules_sha256)
    report = replace(report, notes=(*report.notes, *model.notes))
    if not conversion.sites:
        report = replace(report, notes=(*report.notes, "no rule matched, so the model was exported"
                                        " as it is"))  # fmt: skip
    if job.verify:
        job.say("verify")
        report = _proven(report, conversion, model)
    else:
        report = report.with_status("not verified")
    job.say("write")
    own = [conversion.source.path] if conversion.source is not None else []
    return write_onnx(report, model, job.output, conversion.records, conversion.entries(),
                      conversion.parameters(), inputs=own)  # fmt: skip


def _options(conversion: ProgramConversion) -> dict[str, Any]:
    job = conversion.job
    return {
        "accept_missing": "cannot run" in job.settings.accept,
        "keep_traces": job.keep_traces,
        "dynamic": list(job.dynamic),
    }


def _proven(report: Report, conversion: ProgramConversion, model: ExportedModel) -> Report:
    job, settings = conversion.job, conversion.job.settings
    options = ProofOptions(settings.seed, settings.seconds, None, settings.max_rtol,
                           settings.max_atol, False, conversion.host.starter())  # fmt: skip
    names = [item.name for item in model.proto.graph.input]
    opening = {**conversion.opening, "key": conversion.host.key,
               "positions": conversion.positions}  # fmt: skip
    proof = outputs_against_onnx(Opening(f"{TASKS}:original", opening), model.loadable(), names,
                                 model.outputs, options, job.say)  # fmt: skip
    if job.save_inputs is not None:
        save_sets(proof, job.save_inputs)
    checks: Sequence[CheckResult] = (*model.checks, *proof.checks)
    report = replace(report, checks=tuple(checks), inputs=proof.inputs,
                     notes=(*report.notes, *proof.notes))  # fmt: skip
    return verified(report, proof, settings, conversion.name)

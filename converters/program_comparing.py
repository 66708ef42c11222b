"""`verify` for PyTorch models: an original against a converted archive, sites of its sidecar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from oprep.converters import handed
from oprep.converters.code_files import read_code
from oprep.converters.files import OpenFile, holding, sniff_file
from oprep.converters.formats import WORDS
from oprep.converters.model_kind import is_program
from oprep.converters.program_code import code_beside, hashes_beside, needed_code
from oprep.converters.program_comparing_onnx import verify_against_onnx
from oprep.converters.program_job import ProgramJob
from oprep.converters.program_pipeline import (
    CODE,
    ProgramConversion,
    opened,
)
from oprep.converters.program_proof import ProofOptions, prove_program
from oprep.converters.program_sides import Opening
from oprep.converters.program_writing import definitions_of
from oprep.converters.pt2.gate import Pt2, read_pt2
from oprep.converters.pt2.ops import record as archive_record
from oprep.converters.report import Report
from oprep.converters.rules import load_rules
from oprep.converters.settings import versions
from oprep.converters.sidecar import read_sidecar
from oprep.converters.verdicts import verified
from oprep.converters.verifying import check_provenance, notes_on_tolerances, save_sets
from oprep.opsets.errors import ExitCode, OprepError

TASKS = "oprep.converters.programs.tasks"
Sidecar = Mapping[str, Any]


def verify_program(job: ProgramJob, converted: Any, *, provenance: bool) -> Report:
    """Prove a converted archive against its original; raise (exit 4) where it does not hold."""
    if not is_program(converted):
        return verify_against_onnx(job, converted, provenance=provenance)
    opsets, records = load_rules(job.rules, job.opset, no_code=job.no_code)
    code = read_code(opsets, CODE)
    with ExitStack() as stack:
        file = stack.enter_context(holding(converted, max_bytes=job.max_bytes))
        _require_archive(file)
        after = read_pt2(file, job.max_bytes, trusted=job.trust_model)
        code += code_beside(file.path, needed_code(definitions_of(after)), code,
                            trusted=job.trust_model and not job.no_code)  # fmt: skip
        conversion = opened(job, opsets, records, code, stack, proves=True)
        sidecar = read_sidecar(file.path)
        if provenance:
            vouched = {} if sidecar is None else hashes_beside(file.path, sidecar["subject"])
            check_provenance(sidecar, file.path.name, {file.path.name: after.sha256, **vouched},
                             conversion.name, conversion.sha256)  # fmt: skip
        sites, notes = _sites(conversion, after, sidecar)
        proof = prove_program(
            Opening(f"{TASKS}:compared", {**conversion.opening, "key": conversion.host.key,
                                          "sites": sites, "converted": _archive(
                                              conversion, after, conversion.host.give(file))}),
            Opening(f"{TASKS}:artifact", _archive(conversion, after, handed.plain(file))),
            ProofOptions(job.settings.seed, job.settings.seconds, None, job.settings.max_rtol,
                         job.settings.max_atol, job.grad, conversion.host.starter(),
                         conversion.fresh(file)),
            job.say,
        )  # fmt: skip
        if job.save_inputs is not None:
            save_sets(proof, job.save_inputs)
        made = {**versions(), "torch": conversion.described["torch"]}
        report = Report("verify", "failed", conversion.record(), archive_record(after),
                        checks=proof.checks, inputs=proof.inputs,
                        notes=(*conversion.described["notes"], *notes, *proof.notes),
                        versions=made, seed=job.settings.seed)  # fmt: skip
        return verified(report, proof, job.settings, file.path.name)


def _require_archive(file: OpenFile) -> None:
    found = sniff_file(file)
    if found != "pt2":
        raise OprepError(
            f"`{file.path.name}` is {WORDS[found]}, not a converted model",
            str(file.path),
            help="name the `.pt2` or `.onnx` that `oprep convert` wrote",
            exit_code=ExitCode.MODEL,
        )


def _archive(conversion: ProgramConversion, after: Pt2, file: Any) -> dict[str, Any]:
    return {
        **conversion.opening_of_ops(),
        "name": after.path.name,
        "archive": file,
        "definitions": definitions_of(after),
    }


def _sites(
    conversion: ProgramConversion, after: Pt2, sidecar: Sidecar | None
) -> tuple[Sequence[Mapping[str, Any]], list[str]]:
    """Take the sites of a sidecar that vouches for these very files; else say why not."""
    if sidecar is None:
        return (), ["the converted model has no sidecar, so its outputs alone are compared"]
    if after.sha256 not in sidecar["subject"].values():
        return (), ["the sidecar is of other bytes, so the outputs alone are compared"]
    if conversion.source is not None and conversion.sha256 not in sidecar["inputs"].values():
        return (), ["the sidecar is of another original, so the outputs alone are compared"]
    return sidecar["sites"], notes_on_tolerances(sidecar["sites"])

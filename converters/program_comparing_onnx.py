"""`verify` for a PyTorch model and its ONNX form: eager outputs against those of ONNX Runtime."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from oprep.converters.frontends.onnx_model import OnnxModel, open_model
from oprep.converters.program_job import ProgramJob
from oprep.converters.program_pipeline import opened
from oprep.converters.program_proof import ProofOptions, outputs_against_onnx
from oprep.converters.program_sides import Opening
from oprep.converters.prove import Proof
from oprep.converters.report import CheckResult, Report, Verdict
from oprep.converters.runs import Loadable
from oprep.converters.settings import versions
from oprep.converters.sidecar import read_sidecar
from oprep.converters.verdicts import verified
from oprep.converters.verifying import check_provenance, save_sets

TASKS = "oprep.converters.programs.tasks"
SITES = "the sites of a PyTorch model are proven when it is converted; here outputs are compared"


def verify_against_onnx(job: ProgramJob, converted: Path, *, provenance: bool) -> Report:
    """Compare an ONNX model with the PyTorch model it was made of; exit 4 where they differ."""
    after = open_model(converted, job.max_bytes)
    settings = job.settings
    with ExitStack() as stack:
        conversion = opened(job, (), [], (), stack)
        if provenance:
            hashes = {**after.external_sha256(), after.name: after.sha256}
            check_provenance(read_sidecar(converted), after.name, hashes, conversion.name,
                             conversion.sha256)  # fmt: skip
        ends = conversion.host.call("onnx_ends")
        signature = _signature(after, ends["inputs"], ends["outputs"])
        made = {**versions(), "torch": conversion.described["torch"]}
        report = Report("verify", "failed", conversion.record(), after.record(),
                        checks=(signature,), notes=(*conversion.described["notes"], SITES),
                        versions=made, seed=settings.seed)  # fmt: skip
        if signature.verdict is not Verdict.PASS:
            return verified(report, Proof((signature,), (), None, ()), settings, after.name)
        opening = {**conversion.opening, "key": conversion.host.key, "sites": ()}
        options = ProofOptions(settings.seed, settings.seconds, None, settings.max_rtol,
                               settings.max_atol, False, conversion.host.starter())  # fmt: skip
        proof = outputs_against_onnx(
            Opening(f"{TASKS}:compared", opening), Loadable(after.data, after.folder),
            after.input_names(), ends["positions"], options, job.say,
        )  # fmt: skip
        if job.save_inputs is not None:
            save_sets(proof, job.save_inputs)
        report = replace(report, checks=(signature, *proof.checks), inputs=proof.inputs,
                         notes=(*report.notes, *proof.notes))  # fmt: skip
        return verified(report, proof, settings, after.name)


def _signature(after: OnnxModel, inputs: list[str], outputs: list[str]) -> CheckResult:
    """Compare names and number of inputs and outputs; ONNX keeps no fixed arguments."""
    got = after.input_names()
    unknown = [name for name in got if name not in inputs]
    made = [item.name for item in after.proto.graph.output]
    detail = ""
    if unknown:
        detail = f"the ONNX model has the input `{unknown[0]}`, the program has {_listed(inputs)}"
    elif len(made) != len(outputs):
        detail = f"the ONNX model has {len(made)} outputs, the program has {len(outputs)}"
    verdict = Verdict.FAIL if detail else Verdict.PASS
    return CheckResult("signature_kept", "signature", verdict, detail=detail)


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:8]) or "none"

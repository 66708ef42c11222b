"""Capture, match, replace, verify, write, for a PyTorch model; its program lives in a child."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from oprep.converters.code_files import CodeFile, read_code
from oprep.converters.files import OpenFile, write_text
from oprep.converters.meaning import notes_on_meaning
from oprep.converters.planfile import apply_plan, plan_text
from oprep.converters.program_aoti import to_aoti
from oprep.converters.program_calls import calls, stored
from oprep.converters.program_code import code_beside, needed_code, require_place
from oprep.converters.program_host import (
    ChildHost,
    Host,
    OwnHost,
    Spare,
    code_for_child,
    opsets_for_child,
)
from oprep.converters.program_inputs import Given, open_inputs
from oprep.converters.program_job import ProgramJob
from oprep.converters.program_onnx import to_onnx
from oprep.converters.program_sides import Caller
from oprep.converters.program_source import Source, open_source
from oprep.converters.program_verifying import verified_program
from oprep.converters.program_writing import (
    Candidate,
    candidate,
    definitions_of,
    stage,
    write_program,
)
from oprep.converters.pt2.gate import Pt2, read_pt2
from oprep.converters.report import (
    FileRecord,
    MissRecord,
    ModelRecord,
    Report,
    RuleOutcome,
    SiteRecord,
)
from oprep.converters.rules import load_rules, rules_sha256
from oprep.converters.settings import versions
from oprep.converters.verdicts import expectations_met
from oprep.opsets.rule import Opset

CODE = ("python", "torch_library")
"""Keys of an op whose code is used for PyTorch."""


@dataclass
class ProgramConversion:
    """A conversion under way, from the parent's side."""

    job: ProgramJob
    host: Host
    source: Source | None
    archive: Pt2 | None
    opsets: Sequence[Opset]
    records: list[FileRecord]
    code: Sequence[CodeFile]
    given: Sequence[Any]
    spare: Spare | None = None
    opening: dict[str, Any] = field(default_factory=dict)
    described: Mapping[str, Any] = field(default_factory=dict)
    sites: list[Mapping[str, Any]] = field(default_factory=list)
    positions: list[int] | None = None

    @property
    def name(self) -> str:
        """The model as messages call it."""
        return str(self.described["name"])

    @property
    def sha256(self) -> str:
        """The hash of the model's file; of a factory's file and weights; empty for an object."""
        if self.source is None:
            return ""
        weights = self.source.weights
        if weights is None:
            return self.source.sha256
        return hashlib.sha256((self.source.sha256 + weights.sha256).encode()).hexdigest()

    def record(self) -> ModelRecord:
        """Describe the model for the report."""
        external: tuple[FileRecord, ...] = ()
        if self.source is not None and self.source.weights is not None:
            weights = self.source.weights
            external = (FileRecord(weights.name, weights.sha256, weights.content.size),)
        return ModelRecord(self.name, self.described["format"], self.sha256,
                           self.described["nodes"], 0, (), external)  # fmt: skip

    def open(self) -> None:
        """Register the ops and capture the model."""
        self.opening = {
            "model": self.job.model if self.source is None else self.source.plain(),
            "opsets": list(self.opsets) if self.source is None else opsets_for_child(self.opsets),
            "code": code_for_child(self.code),
            "folder": self.host.place(self.code),
            "capture": self.job.capture,
            "dynamic": list(self.job.dynamic),
            "given": [item.plain() if isinstance(item, Given) else item for item in self.given],
            "definitions": definitions_of(self.archive),
        }
        self.described = self.host.call("open_model", **self.opening)

    @property
    def rules_sha256(self) -> str:
        """One hash of all rules and their code."""
        return rules_sha256(self.records)

    def entries(self) -> list[dict[str, Any]]:
        """Describe the sites for the sidecar, so that `verify` finds them again."""
        keys = ("rule", "site", "outputs", "reads", "inner", "nodes", "tolerance",
                "tolerance_source", "gradient")  # fmt: skip
        return [{**{key: site[key] for key in keys}, "region": site["path"]} for site in self.sites]

    def parameters(self) -> dict[str, Any]:
        """Give what the conversion was asked for, for the sidecar."""
        job = self.job
        rules = [{"name": item.name, "digest": {"sha256": item.sha256}} for item in self.records]
        return {
            "rules": rules,
            "seed": job.settings.seed,
            "accept": sorted(job.settings.accept),
            "max_rtol": job.settings.max_rtol,
            "max_atol": job.settings.max_atol,
            "capture": self.described["capture"],
            "dynamic": list(job.dynamic),
            "grad": job.grad,
        }

    def fresh(self, file: OpenFile) -> Callable[[], Caller]:
        """Give what starts a fresh process that may read an artifact."""
        assert self.spare is not None
        return self.spare.reading(file)

    def opening_of_ops(self) -> dict[str, Any]:
        """Give what a fresh process needs to register the ops: by text, whatever the model is."""
        return {
            "opsets": opsets_for_child(self.opsets),
            "code": code_for_child(self.code),
            "folder": self.opening["folder"],
        }

    def plan(self) -> tuple[RuleOutcome, ...]:
        """Match the rules; keep of the sites those that a plan file names."""
        planned = self.host.call("plan", explain=self.job.explain)
        self.sites = planned["sites"]
        if self.job.plan is not None:
            hashed = rules_sha256(self.records)
            self.positions = apply_plan(self.job.plan, self.sha256, hashed, plain_sites(self.sites))
            self.sites = [self.sites[i] for i in self.positions]
            planned = self.host.call("choose", positions=self.positions)
        return tuple(_outcome(item) for item in planned["rules"])


def convert_program(job: ProgramJob) -> Report:
    """Do what `convert` does, for a model of PyTorch."""
    require_place(job)
    opsets, records = load_rules(job.rules, job.opset, no_code=job.no_code)
    code = read_code(opsets, CODE)
    records += [item.record() for item in code]
    with ExitStack() as stack:
        proves = job.verify and not job.explain and job.format != "onnx"
        conversion = opened(job, opsets, records, code, stack, proves=proves)
        return _converted(conversion, stack)


def opened(
    job: ProgramJob,
    opsets: Sequence[Opset],
    records: list[FileRecord],
    code: Sequence[CodeFile],
    stack: ExitStack,
    *,
    proves: bool = False,
) -> ProgramConversion:
    """Read the model, start what will hold it, register the ops and capture it.

    Where an artifact will be proven, the process for it starts meanwhile.
    """
    job.say("load")
    given = [*calls(job.inputs), *open_inputs(stored(job.inputs), max_bytes=job.max_bytes)]
    source: Source | None = None
    archive: Pt2 | None = None
    host: Host
    if is_path(job.model):
        source = open_source(job.model, weights=job.weights, trust_model=job.trust_model,
                             no_code=job.no_code, max_bytes=job.max_bytes,
                             held=stack)  # fmt: skip
        host = ChildHost(source, stack, job.settings.seconds)
    else:
        host = OwnHost(job.say)
        stack.callback(lambda: host.call("close"))
    spare = Spare(stack) if proves else None
    if source is not None and source.kind == "pt2":
        archive = read_pt2(source.content, job.max_bytes, trusted=job.trust_model)
        source = replace(source, sha256=archive.sha256)
        code = [*code, *code_beside(source.path, needed_code(definitions_of(archive)), code,
                                    trusted=job.trust_model and not job.no_code)]  # fmt: skip
    conversion = ProgramConversion(job, host, source, archive, opsets, records, code, given, spare)
    conversion.open()
    return conversion


def _converted(conversion: ProgramConversion, stack: ExitStack) -> Report:
    job = conversion.job
    job.say("match")
    outcomes = conversion.plan()
    matched = {outcome.rule for outcome in outcomes if outcome.sites}
    notes = (*conversion.described["notes"], *notes_on_meaning(conversion.opsets, matched))
    made = {**versions(), "torch": conversion.described["torch"]}
    report = Report("convert", "planned", conversion.record(), rules=outcomes, notes=notes,
                    versions=made, seed=job.settings.seed)  # fmt: skip
    if job.plan is None:
        expectations_met(report, conversion.opsets, conversion.name)
    if job.plan_out is not None:
        hashed = rules_sha256(conversion.records)
        write_text(job.plan_out, plan_text(conversion.sha256, hashed,
                                           plain_sites(conversion.sites)))  # fmt: skip
    if job.explain:
        return report
    if conversion.sites:
        job.say("replace")
        if job.verify:
            conversion.host.call("check", gradients=job.grad is not False)
        conversion.host.call("rewrite")
    if job.format == "onnx":
        return to_onnx(report, conversion)
    made_candidate: Candidate = candidate(conversion, stack)
    if not conversion.sites and job.format == "pt2":
        return write_program(replace(report, status="unchanged"), conversion, made_candidate)
    if job.verify:
        made_candidate = stage(conversion, made_candidate, stack)
        job.say("verify")
        report = verified_program(report, conversion, made_candidate)
    else:
        report = report.with_status("not verified")
    if job.format == "aoti":
        return to_aoti(report, conversion, needed_code(made_candidate.definitions))
    job.say("write")
    return write_program(report, conversion, made_candidate)


def plain_sites(sites: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give the sites as a plan file has them."""
    keys = ("rule", "site", "region", "outputs", "nodes")
    return [{key: site[key] for key in keys} for site in sites]


def is_path(model: Any) -> bool:
    """Tell whether a model is named, not held by the caller."""
    return isinstance(model, str) or hasattr(model, "__fspath__")


def _outcome(data: Mapping[str, Any]) -> RuleOutcome:
    sites = tuple(
        SiteRecord(item["site"], tuple(item["nodes"]), tuple(item["kept"]))
        for item in data["sites"]
    )
    misses = tuple(MissRecord(item["site"], item["reason"]) for item in data["misses"])
    return RuleOutcome(**{**data, "sites": sites, "misses": misses})

"""Verification as a step of a conversion, and as a command of its own on two models."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oprep.converters.applying import ONNX, TORCH, require_applying
from oprep.converters.arguments import (
    a_folder,
    a_path,
    a_size,
    input_sets,
    path_of,
    several,
)
from oprep.converters.checks.subject import Options, Subject
from oprep.converters.files import read_input_set, save_input_set, sidecar_name
from oprep.converters.frontends import onnx_model
from oprep.converters.frontends.onnx_recount import recount
from oprep.converters.frontends.onnx_sites import plan_of_sites
from oprep.converters.given import check_given
from oprep.converters.model_kind import is_program
from oprep.converters.outputs_apart import Files, named, named_external, named_model
from oprep.converters.program_calls import as_sets
from oprep.converters.program_job import ProgramJob, a_mode
from oprep.converters.prove import Proof, prove
from oprep.converters.report import Report
from oprep.converters.runs import Loadable
from oprep.converters.settings import Settings, versions
from oprep.converters.sidecar import read_sidecar
from oprep.converters.signature import signature
from oprep.converters.verdicts import verified
from oprep.opsets.errors import ExitCode, OprepError

if TYPE_CHECKING:
    from onnx import ModelProto

    from oprep.converters.frontends.onnx_conversion import Conversion
    from oprep.converters.frontends.onnx_model import OnnxModel
    from oprep.converters.match import Match

Sets = list[tuple[str, dict[str, Any]]]


def given_inputs(inputs: Sequence[Any], model: OnnxModel) -> Sets:
    """Read the input sets that the user gave, and name their arrays as the model does."""
    if not inputs:
        return []
    names, found = model.input_names(), signature(model.proto)
    sets: Sets = []
    for item in inputs:
        if isinstance(item, Mapping):
            sets.append((f"given {len(sets)}", dict(item)))
            continue
        for source in read_input_set(Path(item)):
            arrays = source.bind(names)
            check_given(found, arrays, f"{Path(item).name}, input set `{source.name}`")
            sets.append((source.name, arrays))
    return sets


def verify_candidate(
    report: Report,
    conversion: Conversion,
    proto: ModelProto,
    matches: Sequence[Match],
    sets: Sets,
    settings: Settings,
    say: Callable[[str], None],
) -> tuple[Report, Proof]:
    """Prove a conversion at its sites and end to end; the verdicts are not yet judged."""
    source = conversion.model
    subject = Subject(
        source.proto,
        Loadable(source.data, source.folder),
        proto,
        Loadable(proto.SerializeToString(), source.folder),
        conversion.twins(matches),
        _options(settings, sets),
        say,
    )
    proof = prove(subject)
    counted = recount(conversion, proto, matches)
    notes = (*report.notes, *proof.notes)
    checks = (*counted, *proof.checks)
    return replace(report, checks=checks, inputs=proof.inputs, notes=notes), proof


def _options(settings: Settings, sets: Sets) -> Options:
    return Options(
        settings.seed,
        settings.seconds,
        max_rtol=settings.max_rtol,
        max_atol=settings.max_atol,
        inputs=tuple(sets),
    )


def save_sets(proof: Proof, folder: Path) -> None:
    """Store the input sets for replay, one `.npz` each."""
    for number, item in enumerate(proof.sets):
        name = "".join(c if c.isalnum() or c in "._=" else "-" for c in item.name)
        save_input_set(folder, f"{number:02d}-{name}", item.arrays)


def verify(
    original: Any,
    converted: Any,
    *,
    inputs: Any = (),
    seed: int = 0,
    timeout: float = 120.0,
    accept: Sequence[str] = (),
    max_rtol: float | None = None,
    max_atol: float | None = None,
    max_bytes: int | None = None,
    external_data_root: str | Path | None = None,
    save_inputs: str | Path | None = None,
    provenance: bool = False,
    rules: Any = (),
    weights: str | Path | None = None,
    trust_model: bool = False,
    capture: str = "auto",
    dynamic: str | Sequence[str] = (),
    grad: bool | None = None,
    no_code: bool = False,
    timings: bool = False,
    also_written: Sequence[str | Path] = (),
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Compare a converted model with its original, at the sites of its sidecar and end to end.

    Models are paths or `onnx.ModelProto`s. With `provenance` the hashes in the sidecar must be
    those of the files. For PyTorch models `rules` are rule files whose code the converted model
    calls; `weights`, `trust_model`, `capture`, `dynamic` and `grad` are as in `convert`.
    `also_written` are files that the caller will write (reports): they must
    be none of those that are read. Raise OprepError where the command would exit with another
    code than 0.
    """
    started = time.monotonic()
    say = progress or (lambda step: None)
    torch_model = is_program(original)
    inputs = input_sets(as_sets(inputs), "inputs", calls=torch_model)
    accept = several(accept, "accept")
    max_bytes = a_size(max_bytes, "max_bytes")
    external_data_root = a_folder(external_data_root, "external_data_root")
    save_inputs = a_path(save_inputs, "save_inputs")
    settings = Settings(seed, timeout, accept, max_rtol, max_atol)
    models = (
        *named_model(original, "the original"),
        *named_model(converted, "the converted model"),
    )
    reports = tuple(path_of(item, "also_written") for item in also_written)
    files = Files((*models, *named("the input set", inputs)), reports=reports, saved=save_inputs)
    files.check()
    if torch_model:
        require_applying(TORCH, original, external_data_root=external_data_root)
        job = ProgramJob(
            original, several(rules, "rules"), (), None, inputs, settings, True, False, None, None,
            max_bytes, False, False, save_inputs, no_code, a_path(weights, "weights"), trust_model,
            a_mode(capture), several(dynamic, "dynamic"), grad, None, say,
        )  # fmt: skip
        from oprep.converters.program_comparing import verify_program

        report = verify_program(job, path_of(converted, "converted"), provenance=provenance)
        return report.with_seconds(round(time.monotonic() - started, 3)) if timings else report
    require_applying(ONNX, original, weights=weights, trust_model=trust_model, capture=capture,
                     dynamic=dynamic, grad=grad, rules=several(rules, "rules"))  # fmt: skip
    say("load")
    before = onnx_model.open_model(original, max_bytes, external_data_root)
    after = onnx_model.open_model(converted, max_bytes, external_data_root)
    files.check_read(named_external((*before.external, *after.external)))
    sets = given_inputs(inputs, before)
    sidecar = read_sidecar(after.path) if after.path is not None else None
    notes: list[str] = []
    if provenance:
        hashes = {**after.external_sha256(), after.name: after.sha256}
        check_provenance(sidecar, after.name, hashes, before.name, before.sha256)
    plan = None
    if sidecar is None:
        notes.append("the converted model has no sidecar, so its outputs alone are compared")
    elif after.sha256 not in sidecar["subject"].values():
        notes.append("the sidecar is of other bytes, so the outputs alone are compared")
    elif before.sha256 not in sidecar["inputs"].values():
        notes.append("the sidecar is of another original, so the outputs alone are compared")
    else:
        plan = plan_of_sites(before, after, sidecar["sites"])
        notes += _notes_on_sites(sidecar["sites"], before, after)
    subject = Subject(
        before.proto,
        Loadable(before.data, before.folder),
        after.proto,
        Loadable(after.data, after.folder),
        plan,
        _options(settings, sets),
        say,
    )
    proof = prove(subject)
    if save_inputs is not None:
        save_sets(proof, Path(save_inputs))
    report = Report("verify", "failed", before.record(), after.record(), checks=proof.checks,
                    inputs=proof.inputs, notes=(*notes, *proof.notes), versions=versions(),
                    seed=seed)  # fmt: skip
    report = verified(report, proof, settings, after.name)
    return report.with_seconds(round(time.monotonic() - started, 3)) if timings else report


def _notes_on_sites(
    sites: Sequence[Mapping[str, Any]], before: OnnxModel, after: OnnxModel
) -> list[str]:
    """Say what is taken from the sidecar on trust, and what it leaves out."""
    own = {(item.domain, item.name) for item in before.proto.functions}
    new = [f"`{item.domain}::{item.name}`" for item in after.proto.functions
           if (item.domain, item.name) not in own]  # fmt: skip
    if not sites and new:
        return [f"the sidecar records no sites, though the converted model has {', '.join(new[:3])}"
                ", so the outputs alone are compared"]  # fmt: skip
    return notes_on_tolerances(sites)


def notes_on_tolerances(sites: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say which tolerances are taken from a sidecar on trust."""
    places: dict[str, None] = {}
    for site in sites:
        if site.get("tolerance"):
            tolerance = site["tolerance"]
            place = f" ({site['tolerance_source']})" if site.get("tolerance_source") else ""
            places[f"rtol {tolerance['rtol']:g}, atol {tolerance['atol']:g} of `{site['rule']}`"
                   f"{place}"] = None  # fmt: skip
    return [f"tolerance taken from the sidecar: {place}" for place in places]


def check_provenance(
    sidecar: Mapping[str, Any] | None,
    after: str,
    hashes: Mapping[str, str],
    before: str,
    before_sha256: str,
) -> None:
    """Refuse (exit 4) an artifact whose sidecar vouches for other files.

    `hashes` are those of the artifact's files by name; `before` is the original.
    """
    if sidecar is None:
        raise OprepError(
            f"`{after}` has no sidecar",
            sidecar_name(after),
            help="convert again, or leave `--provenance` out",
            exit_code=ExitCode.VERIFICATION,
        )
    digests = set(sidecar["subject"].values())
    for name, now in hashes.items():
        if now not in digests:
            named = sidecar["subject"].get(name)
            said = named or next(iter(sidecar["subject"].values()), "nothing")
            raise _mismatch(name, after, f"sha256 {said[:16]}… in the sidecar, {now[:16]}… now")
    if before_sha256 not in sidecar["inputs"].values():
        raise _mismatch(before, after, f"sha256 {before_sha256[:16]}… is not among its inputs")


def _mismatch(name: str, after: str, note: str) -> OprepError:
    return OprepError(
        f"`{name}` is not what the sidecar vouches for",
        sidecar_name(after),
        (note,),
        "convert again from the original",
        ExitCode.VERIFICATION,
    )

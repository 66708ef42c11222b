"""Load, capture, match, replace, verify, write: the whole of what oprep does, on one screen."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oprep.converters.applying import ONNX, TORCH, require_applying
from oprep.converters.arguments import (
    a_folder,
    a_path,
    a_size,
    input_sets,
    path_of,
    require_rules,
    several,
)
from oprep.converters.files import write_text
from oprep.converters.frontends import onnx_model
from oprep.converters.frontends.onnx_conversion import Conversion
from oprep.converters.listing import list_ops
from oprep.converters.meaning import notes_on_meaning
from oprep.converters.model_kind import is_program
from oprep.converters.outputs_apart import Files, named, named_external, named_model
from oprep.converters.planfile import apply_plan, plan_text
from oprep.converters.planfile import planned as planned_site
from oprep.converters.program_calls import as_sets
from oprep.converters.program_job import SUFFIXES, ProgramJob, a_format, a_mode
from oprep.converters.program_pipeline import convert_program
from oprep.converters.report import Report
from oprep.converters.rules import load_rules, rules_sha256, unused_code
from oprep.converters.settings import Settings, versions
from oprep.converters.verdicts import expectations_met, verified
from oprep.converters.verifying import given_inputs, save_sets, verify, verify_candidate
from oprep.converters.writing import stamp, strip, write_converted, write_unchanged

if TYPE_CHECKING:
    from oprep.converters.match import Match

__all__ = ["convert", "list_ops", "verify"]


def convert(
    model: Any,
    *,
    rules: Any = (),
    opset: str | Sequence[str] = (),
    output: str | Path | None = None,
    inputs: Any = (),
    seed: int = 0,
    timeout: float = 120.0,
    verify: bool = True,
    dry_run: bool = False,
    plan: str | Path | None = None,
    plan_out: str | Path | None = None,
    accept: str | Sequence[str] = (),
    max_rtol: float | None = None,
    max_atol: float | None = None,
    max_bytes: int | None = None,
    external_data_root: str | Path | None = None,
    in_place: bool = False,
    strip_traces: bool = False,
    keep_traces: bool = False,
    weights: str | Path | None = None,
    trust_model: bool = False,
    capture: str = "auto",
    dynamic: str | Sequence[str] = (),
    grad: bool | None = None,
    to: str | None = None,
    bundle: bool = False,
    save_inputs: str | Path | None = None,
    no_code: bool = False,
    timings: bool = False,
    also_written: Sequence[str | Path] = (),
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Replace ops in a model as the rules say, prove the result and write it.

    `model` is a path, `file.py:factory` or `pkg.mod:Class`, an `onnx.ModelProto`, a
    `torch.nn.Module` or an `ExportedProgram` (objects stay as they are); `rules` are paths, `Opset`
    values or names of shipped opsets. `weights`, `trust_model`, `capture`, `dynamic`, `grad`,
    `keep_traces` and `to` (`pt2`, `onnx` or `aoti`) are for PyTorch models. `inputs` are files,
    mappings of arrays by input name, or for PyTorch objects a call: `(x, y)`. Of `rules`, `opset`,
    `inputs` and `accept` one may be given without a list. `timeout` is in seconds per run. Without
    `output` nothing is written, and `report.converted` holds the model.
    `also_written` are files that the caller will write, so that none of them is a file of this run.
    Raise OprepError where the command would exit with another code than 0.
    """
    started = time.monotonic()
    say = progress or (lambda step: None)
    rules, opset = several(rules, "rules"), several(opset, "opset")
    torch_model = is_program(model)
    inputs = input_sets(as_sets(inputs), "inputs", calls=torch_model)
    accept = several(accept, "accept")
    target, plan_target = a_path(output, "output"), a_path(plan_out, "plan_out")
    plan, save_inputs = a_path(plan, "plan"), a_path(save_inputs, "save_inputs")
    files = Files(
        (*named_model(model), *named("the rule file", rules), *named("the input set", inputs),
         *named("the plan to apply", [plan])),
        target, plan_target,
        tuple(path_of(item, "also_written") for item in several(also_written, "also_written")),
        save_inputs, in_place, dry_run, SUFFIXES if torch_model else (), bundle,
    )  # fmt: skip
    files.check()
    settings = Settings(seed, timeout, accept, max_rtol, max_atol)
    require_rules(rules, opset)
    max_bytes = a_size(max_bytes, "max_bytes")
    external_data_root = a_folder(external_data_root, "external_data_root")
    if torch_model:
        require_applying(TORCH, model, strip_traces=strip_traces,
                         external_data_root=external_data_root)  # fmt: skip
        job = ProgramJob(
            model, rules, opset, target, inputs, settings, verify, dry_run, plan, plan_target,
            max_bytes, in_place, keep_traces, save_inputs, no_code, a_path(weights, "weights"),
            trust_model, a_mode(capture), several(dynamic, "dynamic"), grad,
            a_format(to, target), say, bundle,
        )  # fmt: skip
        return _timed(convert_program(job), started, timings)
    require_applying(ONNX, model, weights=weights, trust_model=trust_model, capture=capture,
                     dynamic=dynamic, grad=grad, to=to, keep_traces=keep_traces,
                     bundle=bundle)  # fmt: skip
    say("load")
    opsets, rule_files = load_rules(rules, opset, no_code=no_code)
    source = onnx_model.open_model(model, max_bytes, external_data_root)
    files.check_read(named_external(source.external))
    sets = given_inputs(inputs, source)
    say("match")
    conversion = Conversion(source, opsets)
    planned = conversion.plan(explain=dry_run or plan_out is not None)
    rules_hash = rules_sha256(rule_files)
    matches: list[Match] = planned.matches
    if plan is not None:
        sites = [planned_site(match) for match in matches]
        matches = [matches[i] for i in apply_plan(plan, source.sha256, rules_hash, sites)]
    notes = (*unused_code(opsets), *notes_on_meaning(opsets, {m.rule.name for m in matches}))
    report = Report("convert", "planned", source.record(), rules=planned.for_matches(matches),
                    notes=notes, versions=versions(), seed=seed)  # fmt: skip
    if plan is None:
        expectations_met(report, opsets, source.name)
    if plan_target is not None:
        sites = [planned_site(match) for match in matches]
        write_text(plan_target, plan_text(source.sha256, rules_hash, sites))
    if dry_run or plan_target is not None:
        return _timed(report, started, timings)
    if not matches and not strip_traces:
        report = write_unchanged(report, source, target, rule_files, in_place=in_place)
        return _timed(report, started, timings)
    say("replace")
    proto, functions = conversion.rewritten(matches)
    stamp(proto, rules_hash)
    if strip_traces:
        strip(proto)
    if verify:
        report, proof = verify_candidate(report, conversion, proto, matches, sets, settings, say)
        if save_inputs is not None:
            save_sets(proof, save_inputs)
        report = verified(report, proof, settings, source.name)
    else:
        report = report.with_status("not verified")
    say("write")
    report = write_converted(report, conversion, proto, functions, matches, target, rule_files,
                             _parameters(rule_files, settings), in_place=in_place)  # fmt: skip
    return _timed(report, started, timings)


def _parameters(rule_files: Sequence[Any], settings: Settings) -> Mapping[str, Any]:
    return {
        "rules": [{"name": item.name, "digest": {"sha256": item.sha256}} for item in rule_files],
        "seed": settings.seed,
        "accept": sorted(settings.accept),
        "max_rtol": settings.max_rtol,
        "max_atol": settings.max_atol,
    }


def _timed(report: Report, started: float, timings: bool) -> Report:
    return report.with_seconds(round(time.monotonic() - started, 3)) if timings else report

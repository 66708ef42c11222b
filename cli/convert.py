"""`oprep convert`: replace ops in a model as rules say, prove the result, write it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oprep.cli import options, values
from oprep.cli.job import Job, Progress, Wanted

if TYPE_CHECKING:
    from oprep.converters.report import Report

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        show_default=False,
        help="An ONNX model, a PyTorch program (.pt2, or .pt with `--trust-model`), or the code "
        "that builds one: `file.py:factory` or `pkg.mod:Class`.",
    ),
]


def convert(
    model: Model,
    rules: options.Rules = [],  # noqa: B006  (typer copies it)
    opset: options.Opsets = [],  # noqa: B006
    output: options.Output = None,
    dry_run: options.DryRun = False,
    report: options.Reports = [],  # noqa: B006
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    plan_out: options.PlanOut = None,
    plan: options.Plan = None,
    inputs: options.Inputs = [],  # noqa: B006
    save_inputs: options.SaveInputs = None,
    seed: options.Seed = 0,
    no_verify: options.NoVerify = False,
    accept: options.Accept = [],  # noqa: B006
    max_rtol: options.MaxRtol = None,
    max_atol: options.MaxAtol = None,
    in_place: options.InPlace = False,
    strip_traces: options.StripTraces = False,
    weights: options.Weights = None,
    trust_model: options.TrustModel = False,
    capture: options.Capture = "auto",
    dynamic: options.Dynamic = [],  # noqa: B006
    grad: options.Grad = None,
    to: options.To = None,
    keep_traces: options.KeepTraces = False,
    bundle: options.Bundle = False,
    timings: options.Timings = False,
    debug: options.Debug = False,
    timeout: options.Timeout = 120.0,
    max_bytes: options.MaxBytes = None,
    external_data_root: options.ExternalRoot = None,
    no_code: options.NoCode = False,
) -> Job:
    """Replace ops in MODEL as rules say, prove it, write it.

    Every replaced site, every output and, for PyTorch, every gradient is compared with the
    original's; the result is written only if all of them hold.
    """
    path = values.model_path(model)
    if not rules and not opset:
        raise values.usage_error(
            "`convert` was given no rules",
            "name a rule file with `-r FILE` or a shipped opset with `--opset NAME`",
        )
    if output is None and not dry_run and plan_out is None:
        raise values.usage_error(
            "`convert` was given no output",
            "name one with `-o FILE`, or look first with `--dry-run`",
        )

    def call(progress: Progress | None) -> Report:
        from oprep.converters import pipeline

        return pipeline.convert(
            path,
            rules=rules,
            opset=opset,
            output=output,
            inputs=inputs,
            seed=seed,
            timeout=timeout,
            verify=not no_verify,
            dry_run=dry_run,
            plan=plan,
            plan_out=plan_out,
            accept=accept,
            max_rtol=max_rtol,
            max_atol=max_atol,
            max_bytes=max_bytes,
            external_data_root=external_data_root,
            in_place=in_place,
            strip_traces=strip_traces,
            keep_traces=keep_traces,
            weights=weights,
            trust_model=trust_model,
            capture=capture,
            dynamic=dynamic,
            grad=grad,
            to=to,
            bundle=bundle,
            save_inputs=save_inputs,
            no_code=no_code,
            timings=timings,
            also_written=report,
            progress=progress,
        )

    return Job(call, Wanted(json, tuple(report), quiet, verbose, debug))

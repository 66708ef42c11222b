"""`oprep verify`: compare a converted model with its original."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oprep.cli import options, values
from oprep.cli.job import Job, Progress, Wanted

if TYPE_CHECKING:
    from oprep.converters.report import Report

Original = Annotated[
    str,
    typer.Argument(
        metavar="ORIGINAL", show_default=False, help="The model before, as for `convert`."
    ),
]
Converted = Annotated[
    str,
    typer.Argument(
        metavar="CONVERTED",
        show_default=False,
        help="The model after; its sidecar `CONVERTED.oprep.json` names the replaced sites.",
    ),
]


def verify(
    original: Original,
    converted: Converted,
    report: options.Reports = [],  # noqa: B006  (typer copies it)
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    inputs: options.Inputs = [],  # noqa: B006
    save_inputs: options.SaveInputs = None,
    seed: options.Seed = 0,
    accept: options.Accept = [],  # noqa: B006
    max_rtol: options.MaxRtol = None,
    max_atol: options.MaxAtol = None,
    provenance: options.Provenance = False,
    rules: options.OpRules = [],  # noqa: B006
    weights: options.Weights = None,
    trust_model: options.TrustModel = False,
    capture: options.Capture = "auto",
    dynamic: options.Dynamic = [],  # noqa: B006
    grad: options.Grad = None,
    no_code: options.NoCode = False,
    timings: options.Timings = False,
    debug: options.Debug = False,
    timeout: options.Timeout = 120.0,
    max_bytes: options.MaxBytes = None,
    external_data_root: options.ExternalRoot = None,
) -> Job:
    """Prove that CONVERTED does what ORIGINAL does.

    They are compared at each replaced site, at every output and, for PyTorch, in every gradient.
    """
    before, after = values.model_path(original), values.model_path(converted)

    def call(progress: Progress | None) -> Report:
        from oprep.converters import pipeline

        return pipeline.verify(
            before,
            after,
            inputs=inputs,
            seed=seed,
            timeout=timeout,
            accept=accept,
            max_rtol=max_rtol,
            max_atol=max_atol,
            max_bytes=max_bytes,
            external_data_root=external_data_root,
            save_inputs=save_inputs,
            provenance=provenance,
            rules=rules,
            weights=weights,
            trust_model=trust_model,
            capture=capture,
            dynamic=dynamic,
            grad=grad,
            no_code=no_code,
            timings=timings,
            also_written=report,
            progress=progress,
        )

    return Job(call, Wanted(json, tuple(report), quiet, verbose, debug))

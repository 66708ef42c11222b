"""`oprep list-ops`: the ops of a model and what rules would match, or the shipped opsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oprep.cli import options, values
from oprep.cli.job import Job, Progress, Wanted

if TYPE_CHECKING:
    from oprep.converters.report import OpTable

Model = Annotated[
    str | None,
    typer.Argument(
        metavar="[MODEL]",
        show_default=False,
        help="The model, as for `convert`; without it the shipped opsets are listed.",
    ),
]


def list_ops(
    model: Model = None,
    rules: options.Rules = [],  # noqa: B006  (typer copies it)
    opset: options.Opsets = [],  # noqa: B006
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
    max_bytes: options.MaxBytes = None,
    external_data_root: options.ExternalRoot = None,
    no_code: options.NoCode = False,
    inputs: options.Inputs = [],  # noqa: B006
    weights: options.Weights = None,
    trust_model: options.TrustModel = False,
    capture: options.Capture = "auto",
    dynamic: options.Dynamic = [],  # noqa: B006
    timeout: options.Timeout = 120.0,
) -> Job:
    """List the ops of MODEL, and what rules would match.

    With rules: where each one matches, where it nearly does, and why not there.
    """
    path = None if model is None else values.model_path(model)
    if path is None and rules:
        raise values.usage_error(
            "`list-ops` was given rules and no model to match them on",
            "name the model, as in `oprep list-ops MODEL -r FILE`",
        )

    def call(progress: Progress | None) -> OpTable:
        from oprep.converters import listing

        return listing.list_ops(
            path,
            rules=rules,
            opset=opset,
            max_bytes=max_bytes,
            external_data_root=external_data_root,
            no_code=no_code,
            inputs=inputs,
            weights=weights,
            trust_model=trust_model,
            capture=capture,
            dynamic=dynamic,
            timeout=timeout,
        )

    return Job(call, Wanted(json=json, quiet=quiet, debug=debug))

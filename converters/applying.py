"""Options that mean something for one kind of model alone are refused for the other (exit 2)."""

from __future__ import annotations

import os
from typing import Any

from oprep.opsets.errors import ExitCode, OprepError

USUAL = {"capture": "auto"}
"""What an option is where nobody gave it, if that is neither None, False nor empty."""

ONNX, TORCH = "an ONNX model", "a PyTorch model"

WITHOUT = {
    "strip_traces": "stack traces of a program are left out, unless `--keep-traces` is given",
    "keep_traces": "an ONNX model keeps the stack traces that it carries",
    "external_data_root": "a PyTorch model has no data in other files",
    "weights": "an ONNX model has weights of its own",
    "trust_model": "an ONNX model holds no code",
    "capture": "an ONNX model is taken as it is",
    "dynamic": "an ONNX model is taken as it is",
    "grad": "an ONNX model has no gradients",
    "inputs": "an ONNX model is taken as it is",
    "to": "an ONNX model stays one",
    "rules": "an ONNX model carries the meaning of its ops itself",
    "bundle": "an ONNX model carries the meaning of its ops itself",
}
"""What an option is not needed for, by its keyword."""


def require_applying(kind: str, model: Any, **options: Any) -> None:
    """Refuse the first of `options` that was given: a model of this kind does not take it."""
    for name, value in options.items():
        given = value is not None and value is not False and value != USUAL.get(name)
        if name == "grad":
            given = value is not None
        if given and not (isinstance(value, tuple | list | str) and not value):
            named = isinstance(model, str | os.PathLike)
            option = "no-grad" if value is False else name.replace("_", "-")
            raise OprepError(
                f"`--{option}` does not apply to {kind}",
                os.fspath(model) if named else "",
                help=f"leave it out: {WITHOUT[name]}",
                exit_code=ExitCode.USAGE,
            )

"""What a conversion of a PyTorch model was asked for, as one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oprep.converters.arguments import a_path, input_sets, several
from oprep.converters.program_calls import as_sets
from oprep.converters.settings import Settings
from oprep.opsets.errors import ExitCode, OprepError

FORMATS = {"pt2": ".pt2", "onnx": ".onnx", "aoti": ".pt2"}
"""What can be written, and how its files end."""
MODES = ("auto", "export", "trace")
SUFFIXES = (".pt2", ".onnx")
"""How the name of an artifact ends, which says its format."""


@dataclass(frozen=True)
class ProgramJob:
    """The arguments of `convert` for a PyTorch model, checked one by one already."""

    model: Any
    rules: tuple[Any, ...]
    opset: tuple[str, ...]
    output: Path | None
    inputs: tuple[Path | Mapping[str, Any], ...]
    settings: Settings
    verify: bool
    dry_run: bool
    plan: Path | None
    plan_out: Path | None
    max_bytes: int | None
    in_place: bool
    keep_traces: bool
    save_inputs: Path | None
    no_code: bool
    weights: Path | None
    trust_model: bool
    capture: str
    dynamic: tuple[str, ...]
    grad: bool | None
    to: str | None
    say: Callable[[str], None]
    bundle: bool = False

    @property
    def format(self) -> str:
        """Give the format of the artifact: what was asked for, else what its name says."""
        if self.to is not None:
            return self.to
        onnx = self.output is not None and self.output.suffix.lower() == ".onnx"
        return "onnx" if onnx else "pt2"

    @property
    def explain(self) -> bool:
        """Tell whether near misses of all rules are wanted."""
        return self.dry_run or self.plan_out is not None


def listing_job(
    model: Any,
    rules: tuple[Any, ...],
    opset: tuple[str, ...],
    inputs: Any,
    timeout: float,
    max_bytes: int | None,
    no_code: bool,
    weights: Any,
    trust_model: bool,
    capture: str,
    dynamic: Any,
) -> ProgramJob:
    """Make the job of `list_ops`: it plans, explains and writes nothing."""
    return ProgramJob(
        model, rules, opset, None, input_sets(as_sets(inputs), "inputs", calls=True),
        Settings(seconds=timeout), False, True, None, None, max_bytes, False, False, None, no_code,
        a_path(weights, "weights"), trust_model, a_mode(capture), several(dynamic, "dynamic"),
        False, None, lambda step: None,
    )  # fmt: skip


def a_format(to: Any, output: Path | None) -> str | None:
    """Give the format that was asked for; one that the name of the output contradicts is exit 2."""
    if to is None:
        return None
    if to not in FORMATS:
        known = ", ".join(f"`{name}`" for name in FORMATS)
        raise OprepError(f"{_shown(to)} is no format that is written", "--to",
                         help=f"write one of {known}", exit_code=ExitCode.USAGE)  # fmt: skip
    wanted = FORMATS[to]
    if output is None or output.suffix.lower() != wanted:
        named = "no output was named" if output is None else f"the output is `{output.name}`"
        raise OprepError(f"`{to}` is written to a file `*{wanted}`", "--to", (named,),
                         f"name an output that ends in `{wanted}`", ExitCode.USAGE)  # fmt: skip
    return str(to)


def a_mode(capture: Any) -> str:
    """Give the way to capture; what is none is refused (exit 2)."""
    if capture not in MODES:
        known = ", ".join(f"`{mode}`" for mode in MODES)
        raise OprepError(f"{_shown(capture)} is no way to capture", "--capture",
                         help=f"write one of {known}", exit_code=ExitCode.USAGE)  # fmt: skip
    return str(capture)


def _shown(value: Any) -> str:
    return f"`{value if isinstance(value, str) else repr(value):.40}`"

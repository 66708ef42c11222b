"""The options that commands share: everyday ones first, the rest under headings of `--help`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from typer.core import TyperCommand

from oprep.cli import values

_RULES = "Rules"
_INPUTS = "Inputs"
_VERIFY = "Verification"
_OUTPUT = "Output and reports"
_LIMITS = "Limits and safety"
_TORCH = "PyTorch models"
_HEADINGS = ("Arguments", "Options", _RULES, _INPUTS, _TORCH, _VERIFY, _OUTPUT, _LIMITS)
"""The order in which `--help` shows the headings, whatever the order of a command's options."""


class GroupedHelp(TyperCommand):
    """A command whose plain help keeps the headings that typer shows in its rich help only."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Give the words behind the command's name, arguments as they are documented."""
        arguments = [each for each in self.params if each.param_type_name == "argument"]
        return ["[OPTIONS]", *(str(each.metavar) for each in arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, the everyday options, then each heading with its options."""
        panels: dict[str, list[tuple[str, str]]] = {heading: [] for heading in _HEADINGS}
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                help = getattr(parameter, "help", "")
                panels["Arguments"].append((str(parameter.metavar), help))
            elif (record := parameter.get_help_record(ctx)) is not None:
                panels[getattr(parameter, "rich_help_panel", None) or "Options"].append(record)
        for title, records in panels.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _option(*names: str, help: str, panel: str | None = None, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False, **more)


Rules: TypeAlias = Annotated[
    list[Path],
    _option("--rules", "-r", metavar="FILE", help="Rule file (TOML); may be repeated."),
]
OpRules: TypeAlias = Annotated[
    list[Path],
    _option(
        "--rules",
        "-r",
        metavar="FILE",
        panel=_TORCH,
        help="Rule file that names the code of CONVERTED's ops; may be repeated.",
    ),
]
Bundle: TypeAlias = Annotated[
    bool,
    _option(
        "--bundle",
        panel=_TORCH,
        help="Copy the code that the result needs into the folder `OUTPUT.oplib`.",
    ),
]
Opsets: TypeAlias = Annotated[
    list[str],
    _option("--opset", metavar="NAME", help="Shipped opset, as `activations`; may be repeated."),
]
Output: TypeAlias = Annotated[
    Path | None,
    _option(
        "--output",
        "-o",
        metavar="FILE",
        parser=values.output_path,
        help="Where to write the converted model.",
    ),
]
DryRun: TypeAlias = Annotated[
    bool, _option("--dry-run", help="Show what would be replaced; write nothing.")
]
Json: TypeAlias = Annotated[bool, _option("--json", help="Print one JSON document on stdout.")]
Reports: TypeAlias = Annotated[
    list[Path],
    _option(
        "--report",
        metavar="FILE",
        parser=values.report_path,
        help="Write a report: .json, .xml (JUnit) or .md; may be repeated.",
    ),
]
Quiet: TypeAlias = Annotated[bool, _option("--quiet", "-q", help="Print errors and the last line.")]
Verbose: TypeAlias = Annotated[
    bool, _option("--verbose", "-v", help="List every site with its numbers.")
]
Plan: TypeAlias = Annotated[
    Path | None,
    _option("--plan", metavar="FILE", panel=_RULES, help="Apply the matches of this plan."),
]
PlanOut: TypeAlias = Annotated[
    Path | None,
    _option(
        "--plan-out", metavar="FILE", panel=_RULES, help="Write the matches as a plan and stop."
    ),
]
NoCode: TypeAlias = Annotated[
    bool,
    _option("--no-code", panel=_LIMITS, help="Refuse rule files and models that name code to run."),
]
Inputs: TypeAlias = Annotated[
    list[Path],
    _option(
        "--inputs",
        metavar="FILE",
        panel=_INPUTS,
        help="Input set instead of generated ones: .npz, .safetensors, an ONNX test_data_set "
        "folder, or a .pt with one call of a PyTorch model; may be repeated.",
    ),
]
SaveInputs: TypeAlias = Annotated[
    Path | None,
    _option(
        "--save-inputs", metavar="DIR", panel=_INPUTS, help="Keep the input sets for a replay."
    ),
]
Seed: TypeAlias = Annotated[
    int,
    _option(
        "--seed",
        metavar="N",
        parser=values.seed,
        panel=_INPUTS,
        help="Seed of the generated inputs (0).",
    ),
]
NoVerify: TypeAlias = Annotated[
    bool,
    _option(
        "--no-verify", panel=_VERIFY, help="Write without a proof; the result says `not verified`."
    ),
]
Accept: TypeAlias = Annotated[
    list[str],
    _option(
        "--accept",
        metavar="VERDICT",
        parser=values.verdict,
        panel=_VERIFY,
        help="Let this verdict pass, as `no evidence`; the result says so; may be repeated.",
    ),
]
MaxRtol: TypeAlias = Annotated[
    float | None,
    _option(
        "--max-rtol",
        metavar="X",
        parser=values.tolerance,
        panel=_VERIFY,
        help="Largest rtol that a rule file may ask for.",
    ),
]
MaxAtol: TypeAlias = Annotated[
    float | None,
    _option(
        "--max-atol",
        metavar="X",
        parser=values.tolerance,
        panel=_VERIFY,
        help="Largest atol that a rule file may ask for.",
    ),
]
Provenance: TypeAlias = Annotated[
    bool,
    _option(
        "--provenance",
        panel=_VERIFY,
        help="Also check the hashes of CONVERTED's sidecar.",
    ),
]
Timeout: TypeAlias = Annotated[
    float,
    _option(
        "--timeout",
        metavar="SECONDS",
        parser=values.seconds,
        panel=_LIMITS,
        help="Time for one run of a model (120).",
    ),
]
InPlace: TypeAlias = Annotated[
    bool, _option("--in-place", panel=_OUTPUT, help="Let the output replace the input.")
]
StripTraces: TypeAlias = Annotated[
    bool,
    _option(
        "--strip-traces",
        panel=_OUTPUT,
        help="Remove stack traces that an ONNX model carries.",
    ),
]
Timings: TypeAlias = Annotated[
    bool, _option("--timings", panel=_OUTPUT, help="Put the time taken into the report.")
]
KeepTraces: TypeAlias = Annotated[
    bool,
    _option("--keep-traces", panel=_TORCH, help="Keep the stack traces of a captured program."),
]
Weights: TypeAlias = Annotated[
    Path | None,
    _option(
        "--weights",
        metavar="FILE[:KEY]",
        panel=_TORCH,
        help="State dict for what the factory builds: .pt or .safetensors.",
    ),
]
TrustModel: TypeAlias = Annotated[
    bool,
    _option(
        "--trust-model",
        panel=_TORCH,
        help="Let code inside the model file run, in a child process.",
    ),
]
Capture: TypeAlias = Annotated[
    str,
    _option(
        "--capture",
        metavar="WAY",
        panel=_TORCH,
        help="How to capture a module: auto, export or trace.",
    ),
]
Dynamic: TypeAlias = Annotated[
    list[str],
    _option(
        "--dynamic",
        metavar="DIM",
        panel=_TORCH,
        help="Let a dim vary, as `x:0=batch[1:64]`; may be repeated.",
    ),
]
To: TypeAlias = Annotated[
    str | None,
    _option(
        "--to",
        metavar="FORMAT",
        panel=_TORCH,
        help="What to write: pt2, onnx or aoti (an AOTInductor package); else as FILE is named.",
    ),
]
Grad: TypeAlias = Annotated[
    bool | None,
    _option(
        "--grad/--no-grad",
        panel=_TORCH,
        help="Compare gradients; by default where parameters require them.",
    ),
]
MaxBytes: TypeAlias = Annotated[
    int | None,
    _option(
        "--max-bytes",
        metavar="SIZE",
        parser=values.size,
        panel=_LIMITS,
        help="Refuse a larger model, as `2GB`.",
    ),
]
ExternalRoot: TypeAlias = Annotated[
    Path | None,
    _option(
        "--external-data-root",
        metavar="DIR",
        parser=values.folder,
        panel=_LIMITS,
        help="Folder below which the external data of an ONNX model may lie, for caches "
        "that link to it.",
    ),
]
Debug: TypeAlias = Annotated[
    bool, _option("--debug", panel=_OUTPUT, help="Show the traceback of an error.")
]

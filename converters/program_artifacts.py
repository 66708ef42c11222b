"""What a child made of a program, taken over by the parent: linted, checked, written.

An ONNX model comes as bytes, its large weights and a compiled package as files of the child's
private folder; they are streamed from there, so the child must live until they are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oprep.converters import magnitudes, numbers
from oprep.converters.code_files import CodeFile
from oprep.converters.comparison import NEVER, Comparison
from oprep.converters.evidence import InSet, over_sets
from oprep.converters.files import ExternalFile, Identity, Output, identify, stream
from oprep.converters.frontends.onnx_external import external_files
from oprep.converters.frontends.onnx_lint import lint
from oprep.converters.frontends.onnx_parse import parse
from oprep.converters.op_counts import Counted
from oprep.converters.program_code import Needed, bundle
from oprep.converters.report import Artifact, CheckResult, FileRecord, Report, Verdict
from oprep.converters.runs import Loadable
from oprep.converters.writing import add_sidecar, stage_onnx
from oprep.opsets import tolerances

if TYPE_CHECKING:
    from onnx import ModelProto

PACKAGE_RUNS = "package_close"


@dataclass(frozen=True)
class ExportedModel:
    """An ONNX model made of a program, before it is written.

    `outputs` are the positions of its outputs among the program's flat ones; its inputs have the
    program's names. `checks` say whether every custom op has its nodes.
    """

    proto: ModelProto
    folder: Path | None
    external: tuple[ExternalFile, ...]
    functions: tuple[str, ...]
    outputs: tuple[int, ...]
    checks: tuple[CheckResult, ...]
    notes: tuple[str, ...]

    def loadable(self) -> Loadable:
        """Give it as a runtime loads it."""
        return Loadable(self.proto.SerializeToString(), self.folder)


def read_onnx(answer: Mapping[str, Any], name: str) -> ExportedModel:
    """Take over what the task `onnx` gave; refuse (exit 3) a model that is not well formed."""
    proto = parse(answer["model"], name)
    lint(proto, name)
    folder = Path(answer["folder"]) if answer["folder"] is not None else None
    external = external_files(proto, folder) if folder is not None else ()
    return ExportedModel(
        proto,
        folder,
        external,
        tuple(answer["functions"]),
        tuple(answer["outputs"]),
        tuple(Counted(**item).result for item in answer["counts"]),
        tuple(answer["notes"]),
    )


def write_onnx(
    report: Report,
    model: ExportedModel,
    target: Path | None,
    rules: Sequence[FileRecord],
    sites: Sequence[Mapping[str, Any]],
    parameters: Mapping[str, Any],
    *,
    inputs: Sequence[Path] = (),
) -> Report:
    """Write a model with its sidecar; without a target it stays in memory.

    `inputs` are the files that were read, none of which may be written over.
    """
    if target is None:
        return replace(report, converted=model.proto)
    with Output(target, inputs=inputs) as output:
        file, sides, _ = stage_onnx(output, model.proto, model.external, target.name)
        artifact = Artifact(file, "onnx", tuple(sides), model.functions)
        report = replace(report, artifact=artifact)
        add_sidecar(report, output, rules, sites, parameters)
        output.commit()
    return report


def write_package(
    report: Report,
    package: Path,
    target: Path,
    rules: Sequence[FileRecord],
    sites: Sequence[Mapping[str, Any]],
    parameters: Mapping[str, Any],
    *,
    inputs: Sequence[Path] = (),
    needed: Sequence[Needed] = (),
    code: Sequence[CodeFile] | None = None,
) -> Report:
    """Write a compiled package with its sidecar, streamed from the child's folder.

    `needed` is the code that its ops are made of; with `code` it is copied beside the package.
    """
    identity = Identity.of(identify(package)[0])
    with Output(target, inputs=inputs) as output:
        chunks = stream(package, 0, identity.size, expected=identity)
        digest = output.write(chunks, size=identity.size)
        file = FileRecord(target.name, digest, identity.size)
        sides = bundle(output, needed, code) if code is not None else ()
        libraries = tuple(item.name for item in sides) or tuple(item.file for item in needed)
        report = replace(report, artifact=Artifact(file, "aoti", sides, libraries=libraries))
        add_sidecar(report, output, rules, sites, parameters)
        output.commit()
    return report


def compare_package(
    examples: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]]
) -> tuple[CheckResult, ...]:
    """Compare what a package gives with what the original gave on the same inputs, by output.

    `examples` are those of the task `aoti`, `outputs` the answers of `package_outputs`.
    """
    names = list(dict.fromkeys(name for item in examples for name in item["outputs"]))
    results = [_close(name, examples, outputs) for name in names]
    found = tuple(result for result in results if result is not None)
    if not found:
        detail = "there is no tensor to compare"
        return (CheckResult(PACKAGE_RUNS, "outputs", Verdict.NO_EVIDENCE, detail=detail),)
    return found


def _close(
    name: str, examples: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]]
) -> CheckResult | None:
    found = []
    for example, after in zip(examples, outputs, strict=True):
        comparison = _compared(example["outputs"].get(name), after.get(name))
        if comparison is not None:
            found.append(InSet(example["name"], True, comparison))
    if not found:
        return None
    best, worst = over_sets(found)
    return CheckResult(
        PACKAGE_RUNS,
        name,
        best.verdict,
        measured=best.numbers,
        tolerance=best.tolerance,
        tolerance_source="dtype and scale",
        allowed=best.allowed,
        dtype=best.dtype,
        shape=best.shape,
        sets=len(found),
        detail=best.detail,
        worst_set=worst,
    )


def _compared(before: Any, after: Any) -> Comparison | None:
    """Compare one output: tensors by numbers; None where both are the same plain value."""
    if before is not None and after is not None and "array" in before and "array" in after:
        one, other = before["array"], after["array"]
        allowed = tolerances.default(magnitudes.dtype_name(one), magnitudes.scale(one))
        return numbers.compare(one, other, allowed)
    if before is not None and after is not None and _plain(before) == _plain(after):
        return None
    detail = f"{_said(before)} became {_said(after)}"
    return Comparison(
        Verdict.FAIL, None, tolerances.EXACT, None, "", (), float("inf"), detail, NEVER
    )


def _plain(value: Mapping[str, Any]) -> Any:
    """Give a plain value; a package gives a number as a tensor without dims."""
    array = value.get("array")
    return value["plain"] if array is None else array.item() if not array.shape else array.tolist()


def _said(value: Any) -> str:
    if value is None:
        return "nothing"
    return "a tensor" if "array" in value else f"{value['plain']!r:.60}"

"""Write what came out: the artifact, its external data, its sidecar; or the input's bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oprep.converters.files import Output, sidecar_name
from oprep.converters.frontends.onnx_external import relocate
from oprep.converters.report import Artifact, CheckResult, FileRecord, Report, Verdict
from oprep.converters.sidecar import site_entry, statement
from oprep.opsets.errors import ExitCode, OprepError

if TYPE_CHECKING:
    from onnx import ModelProto

    from oprep.converters.frontends.onnx_conversion import Conversion
    from oprep.converters.frontends.onnx_model import OnnxModel
    from oprep.converters.match import Match

LARGEST = (1 << 31) - 1
TRACES = ("stack_trace",)


def stamp(proto: ModelProto, rules: str) -> None:
    """Say in a changed model's metadata which oprep and which rules changed it."""
    from oprep.converters.settings import versions

    own = {"oprep.version": versions()["oprep"], "oprep.rules": rules}
    for entry in proto.metadata_props:
        if entry.key in own:
            entry.value = own.pop(entry.key)
    for key in sorted(own):
        proto.metadata_props.add(key=key, value=own[key])


def strip(proto: ModelProto) -> None:
    """Remove the stack traces that exporters leave: in metadata and doc strings of nodes."""
    from oprep.converters.frontends.onnx_graph import graphs_of

    def clean(nodes: Any) -> None:
        for node in nodes:
            node.ClearField("doc_string")
            kept = [e for e in node.metadata_props if not e.key.endswith(TRACES)]
            if len(kept) != len(node.metadata_props):
                pairs = [(entry.key, entry.value) for entry in kept]
                del node.metadata_props[:]
                for key, value in pairs:
                    node.metadata_props.add(key=key, value=value)
            for _, _, graph in graphs_of(node):
                clean(graph.node)

    clean(proto.graph.node)
    for function in proto.functions:
        clean(function.node)


def write_unchanged(
    report: Report,
    source: OnnxModel,
    target: Path | None,
    rules: Sequence[FileRecord],
    *,
    in_place: bool,
) -> Report:
    """Copy the input's bytes, data files under their own names; nothing was matched."""
    check = CheckResult("unchanged", source.name, Verdict.UNCHANGED, detail="no rule matched")
    report = replace(report, status="unchanged", checks=(check,))
    if target is None:
        return replace(report, converted=source.proto)
    if source.path is not None and in_place and _same(source.path, target):
        return report
    own = [source.path] if source.path is not None else []
    with Output(target, inputs=[*own, *(item.path for item in source.external)],
                in_place=in_place) as output:  # fmt: skip
        sides = []
        for item in source.external:
            digest = output.write_data_at(item.location, item.chunks(), size=item.size)
            sides.append(FileRecord(item.location, digest, item.size))
        digest = output.write([source.data], size=len(source.data))
        report = _with_artifact(report, target, digest, len(source.data), sides, ())
        _add_sidecar(report, output, sides, rules, [], {})
        output.commit()
    return report


def write_converted(
    report: Report,
    conversion: Conversion,
    proto: ModelProto,
    functions: Sequence[str],
    matches: Sequence[Match],
    target: Path | None,
    rules: Sequence[FileRecord],
    parameters: Mapping[str, Any],
    *,
    in_place: bool,
) -> Report:
    """Write a converted model; without a target it stays in memory."""
    source = conversion.model
    if target is None:
        return replace(report, converted=proto)
    own = [source.path] if source.path is not None else []
    with Output(target, inputs=[*own, *(item.path for item in source.external)],
                in_place=in_place) as output:  # fmt: skip
        names: dict[str, str] = {}
        sides: list[FileRecord] = []
        hashed: dict[str, str] = {}
        for item in source.external:
            name, digest = output.write_data(item.chunks(), size=item.size)
            names[item.location] = name
            hashed[item.location] = digest
            if name not in [side.name for side in sides]:
                sides.append(FileRecord(name, digest, item.size))
        relocate(proto, names)
        data = _serialised(proto, source.name)
        digest = output.write([data], size=len(data))
        report = replace(report, model=source.record(hashed=hashed))
        report = _with_artifact(report, target, digest, len(data), sides, functions)
        sites = [site_entry(match) for match in matches]
        _add_sidecar(report, output, sides, rules, sites, parameters)
        output.commit()
    return report


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _serialised(proto: ModelProto, name: str) -> bytes:
    size = proto.ByteSize()
    if size > LARGEST:
        raise OprepError(
            f"the converted `{name}` has {size} bytes, an ONNX file has at most {LARGEST}",
            name,
            help="save the model with external data first",
            exit_code=ExitCode.LIMIT,
        )
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


def _with_artifact(
    report: Report,
    target: Path,
    digest: str,
    size: int,
    sides: Sequence[FileRecord],
    functions: Sequence[str],
) -> Report:
    artifact = Artifact(
        FileRecord(target.name, digest, size), "onnx", tuple(sides), tuple(functions)
    )
    return replace(report, artifact=artifact)


def _add_sidecar(
    report: Report,
    output: Output,
    sides: Sequence[FileRecord],
    rules: Sequence[FileRecord],
    sites: Sequence[Mapping[str, Any]],
    parameters: Mapping[str, Any],
) -> None:
    assert report.artifact is not None
    subject = [report.artifact.file, *sides]
    text = statement(report, subject, rules, sites, parameters)
    output.write_side(sidecar_name(report.artifact.file.name), [text.encode()])

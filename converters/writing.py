"""Write what came out: the artifact, its external data, its sidecar; or the input's bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oprep.converters.files import ExternalFile, Output, sidecar_name
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
        file = FileRecord(target.name, digest, len(source.data))
        report = replace(report, artifact=Artifact(file, "onnx", tuple(sides)))
        add_sidecar(report, output, rules, [], {})
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
        file, sides, hashed = stage_onnx(output, proto, source.external, source.name)
        report = replace(report, model=source.record(hashed=hashed))
        report = replace(report, artifact=Artifact(file, "onnx", tuple(sides), tuple(functions)))
        sites = [site_entry(match) for match in matches]
        add_sidecar(report, output, rules, sites, parameters)
        output.commit()
    return report


def stage_onnx(
    output: Output, proto: ModelProto, external: Sequence[ExternalFile], name: str
) -> tuple[FileRecord, list[FileRecord], dict[str, str]]:
    """Write a model and its data files, whose locations in `proto` become their new names.

    Gives the model's file, those of its data, and the sha256 of each old location.
    """
    names: dict[str, str] = {}
    sides: list[FileRecord] = []
    hashed: dict[str, str] = {}
    for item in external:
        side, digest = output.write_data(item.chunks(), size=item.size)
        names[item.location] = side
        hashed[item.location] = digest
        if side not in [known.name for known in sides]:
            sides.append(FileRecord(side, digest, item.size))
    relocate(proto, names)
    data = _serialised(proto, name)
    digest = output.write([data], size=len(data))
    return FileRecord(output.path.name, digest, len(data)), sides, hashed


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


def add_sidecar(
    report: Report,
    output: Output,
    rules: Sequence[FileRecord],
    sites: Sequence[Mapping[str, Any]],
    parameters: Mapping[str, Any],
) -> None:
    """Write the sidecar of the report's artifact."""
    artifact = report.artifact
    assert artifact is not None
    text = statement(report, [artifact.file, *artifact.side_files], rules, sites, parameters)
    output.write_side(sidecar_name(artifact.file.name), [text.encode()])

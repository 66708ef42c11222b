"""ONNX models: read behind the gates, described for a report, their ops counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oprep.converters.files import Content, ExternalFile, read, require_onnx
from oprep.converters.frontends.onnx_external import external_files
from oprep.converters.frontends.onnx_graph import OnnxGraph
from oprep.converters.frontends.onnx_lint import Rows, lint
from oprep.converters.frontends.onnx_parse import parse
from oprep.converters.report import FileRecord, ModelRecord
from oprep.opsets.errors import ExitCode, OprepError

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True)
class OnnxModel:
    """A model that passed the gates. `path` is None for one that was given in memory.

    `rows` are what the lint read of the main graph.
    """

    proto: ModelProto
    path: Path | None
    data: bytes
    sha256: str
    external: tuple[ExternalFile, ...] = ()
    rows: Rows | None = None

    @property
    def name(self) -> str:
        """Give the base name for messages."""
        return self.path.name if self.path is not None else "model"

    @property
    def folder(self) -> Path | None:
        """Give the folder in which external data lies."""
        return self.path.parent.resolve() if self.path is not None else None

    def input_names(self) -> list[str]:
        """Give the inputs that a caller has to feed: those that are no initializers."""
        graph = self.proto.graph
        own = {item.name for item in graph.initializer}
        return [item.name for item in graph.input if item.name not in own]

    def external_sha256(self) -> dict[str, str]:
        """Hash the external data files, by location."""
        import hashlib

        found = {}
        for item in self.external:
            digest = hashlib.sha256()
            for chunk in item.chunks():
                digest.update(chunk)
            found[item.location] = digest.hexdigest()
        return found

    def record(self, *, hashed: Mapping[str, str] | None = None) -> ModelRecord:
        """Describe the model for a report; `hashed` gives the sha256 of external files."""
        known = hashed or {}
        return ModelRecord(
            self.name,
            "onnx",
            self.sha256,
            len(self.proto.graph.node),
            self.proto.ir_version,
            tuple(sorted((e.domain or "ai.onnx", e.version) for e in self.proto.opset_import)),
            tuple(
                FileRecord(item.location, known.get(item.location, ""), item.size)
                for item in self.external
            ),
        )


def open_model(
    model: Any, max_bytes: int | None = None, external_root: str | Path | None = None
) -> OnnxModel:
    """Take a model as a path or as an `onnx.ModelProto`."""
    if isinstance(model, str | Path):
        root = Path(external_root) if external_root is not None else None
        return load(Path(model), max_bytes=max_bytes, external_root=root)
    if hasattr(model, "graph") and hasattr(model, "opset_import"):
        return from_proto(model)
    raise OprepError(
        f"`{type(model).__name__}` is no model that oprep reads",
        help="give a path or an `onnx.ModelProto`",
        exit_code=ExitCode.USAGE,
    )


def load(
    path: Path, *, max_bytes: int | None = None, external_root: Path | None = None
) -> OnnxModel:
    """Read a file: regular, of that format, whole, sound, its external data where it may be."""
    content: Content = read(path, max_bytes=max_bytes)
    require_onnx(content)
    proto = parse(content.data, str(path.name))
    rows: Rows = ([], [])
    lint(proto, path.name, rows)
    external = external_files(proto, path.parent, external_root)
    return OnnxModel(proto, path, content.data, content.sha256, external, rows)


def from_proto(proto: ModelProto, name: str = "model") -> OnnxModel:
    """Take a model object; it is copied, so the caller's stays as it is."""
    import hashlib

    data = proto.SerializeToString(deterministic=True)
    copy = parse(data, name)
    lint(copy, name)
    return OnnxModel(copy, None, data, hashlib.sha256(data).hexdigest())


def op_table(model: OnnxModel) -> dict[str, tuple[int, list[str], list[str]]]:
    """Count the ops of all regions: op to count, dtypes (declared ones) and regions, sorted."""
    graph = OnnxGraph(model.proto)
    found: dict[str, tuple[int, set[str], set[str]]] = {}
    for view in graph.views:
        for op, nodes in view.region.by_op.items():
            count, dtypes, regions = found.get(op, (0, set(), set()))
            for node in nodes:
                for value in view.region.outputs[node][:1]:
                    dtypes.update(kind for kind in view.dtypes(value) if kind)
            regions.add(view.region.label or "main")
            found[op] = (count + len(nodes), dtypes, regions)
    return {
        op: (count, sorted(dtypes), sorted(regions))
        for op, (count, dtypes, regions) in sorted(found.items())
    }

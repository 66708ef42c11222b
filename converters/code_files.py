"""The code that rule files name: found below their folders, hashed, and handed on as bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from oprep.converters.files import read
from oprep.converters.report import FileRecord
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.rule import CustomOp, Opset

KEYS = ("python", "torch_library", "ort_library", "kernel")
MAX_CODE = 1 << 30


@dataclass(frozen=True, slots=True)
class CodeFile:
    """One file of code as an opset names it (`ops.py`), with its bytes."""

    opset: str
    name: str
    data: bytes
    sha256: str

    def record(self) -> FileRecord:
        """Describe it for the provenance."""
        return FileRecord(self.name, self.sha256, len(self.data))


def read_code(opsets: Sequence[Opset], keys: Sequence[str] = KEYS) -> list[CodeFile]:
    """Read every file that ops name under `keys`, once each, checked against its pinned hash."""
    found: dict[tuple[str, str], CodeFile] = {}
    for opset in opsets:
        for op in opset.ops:
            for key, name in named_files(op, keys):
                if (opset.name, name) not in found:
                    found[opset.name, name] = _read(opset, op, key, name)
    return list(found.values())


def named_files(op: CustomOp, keys: Sequence[str] = KEYS) -> Iterator[tuple[str, str]]:
    """Give key and file of each file that an op names; the class after `ops.py:` is left out."""
    for key in keys:
        written = getattr(op, key)
        if written:
            yield key, written.rpartition(":")[0] if key == "python" and ":" in written else written


def _read(opset: Opset, op: CustomOp, key: str, name: str) -> CodeFile:
    where = str(dict(op.sources).get(key, op.source))
    if not opset.folder:
        raise OprepError(
            f"`{name}` of op `{op.name or op.onnx}` cannot be found",
            where,
            ("the opset was not loaded from a file, so there is no folder to look in",),
            "pass the path of the rule file",
            ExitCode.RULES,
        )
    folder = Path(opset.folder)
    path = folder / name
    inside = path.resolve()
    if not inside.is_relative_to(folder.resolve()):
        raise OprepError(
            f"`{name}` of op `{op.name or op.onnx}` leaves the folder of the rule file",
            where,
            ("a link on the way points elsewhere",),
            "copy the file beside the rule file",
            ExitCode.RULES,
        )
    content = read(inside, max_bytes=MAX_CODE, exit_code=ExitCode.RULES)
    pinned = dict(op.sha256).get(name)
    if pinned is not None and pinned != content.sha256:
        raise OprepError(
            f"`{name}` is not the file that the rule file pins",
            where,
            (f"sha256 {pinned[:16]}… is pinned, the file has {content.sha256[:16]}…",),
            "look at what changed, then write the new hash",
            ExitCode.RULES,
        )
    return CodeFile(opset.name, name, content.data, content.sha256)

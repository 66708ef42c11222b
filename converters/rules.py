"""From what the user names to opsets: rule files, shipped opsets, opset values."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from oprep.converters.arguments import path_of
from oprep.converters.files import Content, read
from oprep.converters.report import FileRecord
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.load import load_opset
from oprep.opsets.rule import CustomOp, Opset

MAX_RULES = 4 << 20


def shipped_names() -> list[str]:
    """Give the names of the opsets that oprep brings along, sorted."""
    folder = resources.files("oprep.opsets").joinpath("builtin")
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir()
                  if item.name.endswith(".toml"))  # fmt: skip


def shipped(name: str) -> Opset:
    """Load a shipped opset by name (exit 5 with the nearest names)."""
    names = shipped_names()
    if name not in names:
        near = difflib.get_close_matches(str(name), names, 3)
        known = ", ".join(f"`{item}`" for item in near or names)
        raise OprepError(
            f"there is no opset `{name}`",
            help=f"shipped opsets: {known}",
            exit_code=ExitCode.RULES,
        )
    file = resources.files("oprep.opsets").joinpath("builtin", f"{name}.toml")
    return load_opset(file.read_bytes(), name, shipped=True, file=f"{name}.toml")


def load_rules(
    rules: Sequence[Any], opsets: Sequence[str], *, no_code: bool = False
) -> tuple[list[Opset], list[FileRecord]]:
    """Load everything that was named, in order; give the files with their hashes."""
    found: list[Opset] = []
    records: list[FileRecord] = []
    for item in rules:
        if isinstance(item, Opset):
            found.append(item)
            records.append(FileRecord(f"opset {item.name}", item.sha256, 0))
        elif isinstance(item, str) and item in shipped_names() and not Path(item).exists():
            found.append(shipped(item))
            records.append(FileRecord(f"opset {item}", found[-1].sha256, 0))
        else:
            path = path_of(item, "rules")
            content = _read_rules(path)
            loaded = load_opset(content.data, path.stem, file=path.name)
            found.append(replace(loaded, folder=str(path.parent.resolve())))
            records.append(FileRecord(path.name, content.sha256, len(content.data)))
    for name in opsets:
        found.append(shipped(name))
        records.append(FileRecord(f"opset {name}", found[-1].sha256, 0))
    _one_definition(found)
    if no_code:
        _refuse_code(found)
    return found, records


def _read_rules(path: Path) -> Content:
    try:
        return read(path, max_bytes=MAX_RULES, exit_code=ExitCode.RULES)
    except OprepError as error:
        if error.exit_code is not ExitCode.LIMIT:
            raise
        raise OprepError(
            f"`{path.name}` is too large for a rule file",
            path.name,
            (f"a rule file has at most {MAX_RULES} bytes",),
            "split it, and give each part with `-r`",
            ExitCode.LIMIT,
        ) from error


def _one_definition(opsets: Sequence[Opset]) -> None:
    """Refuse two opsets that define one op in two ways, and two rules of one name."""
    seen: dict[str, CustomOp] = {}
    for opset in opsets:
        for op in opset.ops:
            other = seen.setdefault(str(op.onnx), op)
            if other is not op and (other.body, other.parameters) != (op.body, op.parameters):
                raise OprepError(
                    f"op `{op.onnx}` is defined twice",
                    str(op.source),
                    (f"first at {other.source}",),
                    "leave one out, or give it another name",
                    ExitCode.RULES,
                )


def _refuse_code(opsets: Sequence[Opset]) -> None:
    for opset in opsets:
        for op in opset.ops:
            files = [item for item in (op.python, op.kernel, op.torch_library, op.ort_library)
                     if item]  # fmt: skip
            if files:
                raise OprepError(
                    f"op `{op.onnx}` needs code, and `--no-code` forbids it",
                    str(op.source),
                    tuple(f"it names `{file}`" for file in files[:3]),
                    "give the op a `body`, or leave `--no-code` out if the rule file is yours",
                    ExitCode.UNTRUSTED,
                )


def unused_code(opsets: Sequence[Opset]) -> list[str]:
    """Say which code of ops an ONNX conversion does not use: it goes by the bodies."""
    notes = []
    for opset in opsets:
        for op in opset.ops:
            instead = "its body is" if op.body is not None else "and it has no `body`"
            for key in ("python", "kernel", "torch_library", "ort_library"):
                if getattr(op, key):
                    notes.append(f"`{key}` of `{op.onnx}` is not used for ONNX, {instead}")
    return notes


def rules_sha256(records: Sequence[FileRecord]) -> str:
    """Give one hash for all rules that were applied, in their order."""
    joined = "\n".join(record.sha256 for record in records)
    return hashlib.sha256(joined.encode()).hexdigest()

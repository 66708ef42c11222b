"""`oprep.load`: load a converted program with the custom ops that it needs.

Ops with a body are made of what the archive says of them. Code is another matter: a Python file or
a library is taken from a rule file that the caller names, or from the folder beside the archive
where the caller trusts it, and only with the hash that the archive gives.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from oprep.converters.arguments import path_of, several
from oprep.converters.bundles import bundle_name, bundled_name
from oprep.converters.code_files import MAX_CODE, CodeFile, read_code
from oprep.converters.files import holding, read
from oprep.converters.program_code import BESIDE
from oprep.converters.programs import definitions as described
from oprep.converters.programs.definitions import Definition
from oprep.converters.programs.ops import (
    install,
    is_made,
    make_body,
    make_library,
    make_python,
)
from oprep.converters.programs.overloads import packet
from oprep.converters.pt2.gate import Pt2, read_pt2
from oprep.converters.pt2.ops import custom_ops
from oprep.converters.reading import as_stream
from oprep.converters.rules import load_rules
from oprep.opsets.errors import ExitCode, OprepError

DEFINITIONS = "extra/oprep.json"


def load(path: Any, *, rules: Any = (), trust_model: bool = False) -> ExportedProgram:
    """Load an exported program (`.pt2`) and register the custom ops that it calls.

    `rules` are rule files, one or several by path: they name the code of its ops, or define those
    of which the archive says nothing. `trust_model` allows code in the archive to run, and that in
    the folder `PATH.oplib` beside it.
    Raise OprepError: exit MODEL for what cannot be loaded or lacks an op, exit UNTRUSTED for code
    that was not allowed.
    """
    where = path_of(path, "model")
    with holding(where) as source:
        archive = read_pt2(source, trusted=trust_model)
        code = _Code(where, several(rules, "rules"), trust_model)
        if DEFINITIONS in archive.by_name:
            found = described.read(archive.read(DEFINITIONS), f"{where.name}, {DEFINITIONS}")
            register(found, code)
        if _missing_ops(archive):
            code.install()
        _all_there(archive)
        loaded = _loaded(archive, as_stream(source, 0, source.size))
        source.unchanged()
        return loaded


class _Code:
    """Where the code of ops may come from."""

    def __init__(self, model: Path, rules: Sequence[Any], trusted: bool) -> None:
        self.model, self.trusted = model, trusted
        self.opsets = load_rules(rules, ())[0] if rules else []
        self.folders = {opset.name: Path(opset.folder) for opset in self.opsets}
        self.files = read_code(self.opsets, ("python", "torch_library"))
        self.named: dict[str, CodeFile] = {item.sha256: item for item in self.files}

    def install(self) -> None:
        """Register the ops of the rule files: what `torch.export.save` writes says nothing of any.

        An op that is there already is the one that the caller means.
        """
        for opset in self.opsets:
            missing = [op for op in opset.ops if op.name and packet(*_parts(op.name)) is None]
            files = {item.name: item.data for item in self.files if item.opset == opset.name}
            install(missing, files, self.folders[opset.name])

    def find(self, definition: Definition) -> tuple[bytes, Path]:
        """Give the bytes of an op's file and where it lies; refuse any other hash."""
        named = self.named.get(definition.sha256)
        if named is not None:
            return named.data, self.folders[named.opset] / named.name
        bundle = self.model.with_name(bundle_name(self.model.name))
        file = bundle / bundled_name(definition.file, definition.sha256)
        if not file.is_file():
            file = bundle / Path(definition.file).name
        if not file.is_file():
            raise _missing(self.model, definition, f"`{bundle.name}` does not have it")
        if not self.trusted:
            raise OprepError(
                f"`{definition.name}` is made by code beside the model",
                f"{bundle.name}/{file.name}",
                ("it would run in this process",),
                "name its rule file in `rules=`, or pass `trust_model=True` if the file is yours",
                ExitCode.UNTRUSTED,
            )
        content = read(file, max_bytes=MAX_CODE)
        if content.sha256 != definition.sha256:
            told = f"it has sha256 {content.sha256[:16]}…, the model says {definition.sha256[:16]}…"
            raise _missing(self.model, definition, told)
        return content.data, file


@dataclass(frozen=True)
class Beside:
    """Code from beside an archive that was found and judged already, by its hash."""

    files: Mapping[str, tuple[bytes, Path]]

    @staticmethod
    def of(code: Sequence[Mapping[str, Any]], folder: str) -> Beside:
        """Take it out of the code that was handed to a task; the rest belongs to rule files."""
        return Beside({
            hashlib.sha256(item["data"]).hexdigest(): (item["data"], Path(folder) / item["name"])
            for item in code if item["opset"] == BESIDE
        })  # fmt: skip

    def find(self, definition: Definition) -> tuple[bytes, Path]:
        """Give the bytes of an op's file and where it lies."""
        return self.files[definition.sha256]


def register(definitions: Sequence[Definition], code: _Code | Beside) -> None:
    """Make every op that is not there yet; `code` gives the files of those made of code."""
    for definition in definitions:
        there = packet(*_parts(definition.name)) is not None
        if there and not is_made(definition.name):
            continue  # the caller has registered an op of that name, and means that one
        if definition.kind == "body":
            make_body(described.body_op(definition))
            continue
        if definition.kind == "registered" or there:
            continue
        data, path = code.find(definition)
        op = (described.body_op if definition.body else described.code_op)(definition)
        if definition.kind == "python":
            make_python(op, definition.file, definition.cls, data)
        else:
            make_library(op, path.name, data, path.parent)


def _missing_ops(archive: Pt2) -> list[str]:
    return [name for name in custom_ops(archive) if packet(*_parts(name)) is None]


def _all_there(archive: Pt2) -> None:
    """Refuse a program that calls an op which nobody registered, by its name."""
    missing = _missing_ops(archive)
    if missing:
        raise OprepError(
            f"`{archive.path.name}` calls `{missing[0]}`, which is not registered",
            archive.path.name,
            tuple(f"`{name}` is missing, too" for name in missing[1:3]),
            "import the module that registers it, or name its rule file in `rules=`",
            ExitCode.MODEL,
        )


def _parts(name: str) -> tuple[str, str]:
    space, _, rest = name.partition("::")
    return space, rest.partition(".")[0]


def _missing(model: Path, definition: Definition, reason: str) -> OprepError:
    return OprepError(
        f"`{model.name}` calls `{definition.name}`, whose code is not at hand",
        model.name,
        (f"`{definition.file}` with sha256 {definition.sha256[:16]}… makes it; {reason}",),
        "name the rule file that names it in `rules=`",
        ExitCode.MODEL,
    )


def _loaded(archive: Pt2, data: Any) -> ExportedProgram:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.load(data)
    except Exception as error:  # the archive decides what is raised
        raise OprepError(
            f"`{archive.path.name}` cannot be loaded",
            archive.path.name,
            (f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",),
            exit_code=ExitCode.MODEL,
        ) from error

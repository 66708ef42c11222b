"""Load a `.pt2` whose bytes have passed the gate; say which ops are missing where that fails."""

from __future__ import annotations

import re
import zipfile

import torch
from torch.export import ExportedProgram

from oprep.converters.programs.exporting import quiet
from oprep.converters.programs.user_code import told
from oprep.converters.reading import OpenFile, Readable, as_stream
from oprep.opsets.errors import ExitCode, OprepError

TARGET = re.compile(rb'"torch\.ops\.(\w+)\.(\w+)(?:\.(\w+))?"')
HOW_TO_KNOW = "name the op in a rule file (`[[op]]` with `python`, `body` or a library)"


def loaded(name: str, content: Readable) -> ExportedProgram:
    """Load an archive; exit 3 where torch cannot, naming ops that nothing here knows."""
    try:
        with quiet():
            exported = torch.export.load(as_stream(content, 0, content.size))
    except Exception as error:  # the archive decides what is raised
        missing = missing_ops(content)
        if missing:
            raise _without_ops(name, missing) from error
        raise OprepError(
            f"`{name}` cannot be loaded",
            where=name,
            notes=(told(error),),
            help="export the model again with the torch that is installed",
            exit_code=ExitCode.MODEL,
        ) from error
    if isinstance(content, OpenFile):
        content.unchanged()
    return exported


def missing_ops(content: Readable) -> tuple[str, ...]:
    """Name the ops of an archive's graphs that are not registered in this process."""
    try:
        with zipfile.ZipFile(as_stream(content, 0, content.size)) as archive:
            texts = [
                archive.read(name)
                for name in archive.namelist()
                if "/models/" in name and name.endswith(".json")
            ]
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError):
        return ()
    named = {match.groups() for text in texts for match in TARGET.finditer(text)}
    unknown = {f"{ns.decode()}::{op.decode()}" for ns, op, _ in named if not _known(ns, op)}
    return tuple(sorted(unknown))


def _known(namespace: bytes, op: bytes) -> bool:
    if namespace == b"higher_order":
        return True
    return hasattr(getattr(torch.ops, namespace.decode()), op.decode())


def _without_ops(name: str, missing: tuple[str, ...]) -> OprepError:
    listed = ", ".join(f"`{op}`" for op in missing[:8])
    return OprepError(
        f"`{name}` needs {'ops' if len(missing) > 1 else 'an op'} that nothing here provides",
        where=name,
        notes=(f"not registered: {listed}",),
        help=HOW_TO_KNOW,
        exit_code=ExitCode.MODEL,
    )

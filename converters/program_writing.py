"""Make the bytes of a converted program, and write them with their sidecar."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from oprep.converters.files import Content, OpenFile, Output, holding, sidecar_name
from oprep.converters.folders import PrivateFolder
from oprep.converters.program_code import bundle, needed_code
from oprep.converters.pt2.gate import MODEL_JSON, Pt2, read_pt2
from oprep.converters.pt2.packing import Packed, repack
from oprep.converters.reading import blocks_of
from oprep.converters.report import Artifact, CheckResult, FileRecord, Report, Verdict
from oprep.converters.rules import rules_sha256
from oprep.converters.settings import versions
from oprep.converters.sidecar import statement

if TYPE_CHECKING:
    from oprep.converters.program_pipeline import ProgramConversion

EXTRA_NAME = "oprep.json"
DEFINITIONS = f"extra/{EXTRA_NAME}"
"""The extra file of an archive that says which custom ops it calls and what made it."""
SAVED, STAGED = "captured.pt2", "converted.pt2"


@dataclass(frozen=True)
class Staged:
    """A file that is complete but not at its place yet, and may never be."""

    output: Output
    file: OpenFile
    sha256: str


@dataclass(frozen=True)
class Candidate:
    """The bytes that will be written, in blocks, and what is to be said of them."""

    size: int
    chunks: Callable[[], Iterator[bytes]]
    format: str
    functions: tuple[str, ...] = ()
    staged: Staged | None = None
    definitions: bytes = b""

    def data(self) -> bytes:
        """Give all of it at once, for a caller who wants no file."""
        return b"".join(self.chunks())


def candidate(conversion: ProgramConversion, stack: ExitStack) -> Candidate:
    """Give the artifact of a conversion; the child that holds the program is asked for it once."""
    source, archive = conversion.source, conversion.archive
    if not conversion.sites and archive is not None and source is not None:
        return Candidate(source.content.size, lambda: blocks_of(source.content), "pt2",
                         definitions=definitions_of(archive))  # fmt: skip
    if archive is not None:
        entry = conversion.host.call("program_entry")
        replaced = {MODEL_JSON: entry["model"]}
        return _packed(repack(archive, replaced, _extra(conversion, entry["definitions"]),
                              keep_traces=conversion.job.keep_traces),
                       entry["definitions"])  # fmt: skip
    saved, definitions = _saved(conversion, stack)
    extra = _extra(conversion, definitions) if conversion.sites else None
    return _packed(repack(saved, None, extra, keep_traces=conversion.job.keep_traces), definitions)


def _packed(packed: Packed, definitions: bytes) -> Candidate:
    return Candidate(packed.size, packed.chunks, "pt2", definitions=definitions)


def definitions_of(archive: Pt2 | None) -> bytes:
    """Give what an archive says of the custom ops that it calls; empty where it says nothing."""
    if archive is None or DEFINITIONS not in archive.by_name:
        return b""
    return archive.read(DEFINITIONS)


def _saved(conversion: ProgramConversion, stack: ExitStack) -> tuple[Pt2, bytes]:
    """Let the program be saved as torch does; read that archive like any other."""
    file = conversion.host.file(SAVED)
    made = conversion.host.call("save_program", file="" if file is None else str(file))
    if file is None:
        held: Any = Content(conversion.job.output or _unnamed(), made["archive"], "")
    else:
        held = stack.enter_context(holding(file))
    return read_pt2(held, trusted=True), made["definitions"]


def _unnamed() -> Any:
    from pathlib import Path

    return Path("program.pt2")


def _extra(conversion: ProgramConversion, definitions: bytes) -> dict[str, bytes]:
    """Say in the archive which oprep and which rules changed it, and what its ops are."""
    held = json.loads(definitions)
    made = {"oprep": versions()["oprep"], "rules": rules_sha256(conversion.records)}
    text = json.dumps({**held, "made": made}, indent=1, sort_keys=True)
    return {EXTRA_NAME: text.encode()}


def write_program(report: Report, conversion: ProgramConversion, made: Candidate) -> Report:
    """Write the artifact and its sidecar; without an output the program stays in memory."""
    job = conversion.job
    if report.status == "unchanged":
        check = CheckResult("unchanged", conversion.name, Verdict.UNCHANGED,
                            detail="no rule matched")  # fmt: skip
        report = replace(report, checks=(check,))
    if job.output is None:
        return replace(report, converted=conversion.host.converted(made))
    with ExitStack() as stack:
        made = stage(conversion, made, stack)
        assert made.staged is not None
        output = made.staged.output
        file = FileRecord(job.output.name, made.staged.sha256, made.size)
        needed = needed_code(made.definitions)
        sides = bundle(output, needed, conversion.code) if job.bundle else ()
        libraries = tuple(item.name for item in sides) or tuple(item.file for item in needed)
        artifact = Artifact(file, made.format, sides, made.functions, libraries)
        report = replace(report, artifact=artifact)
        text = statement(report, [file, *sides], conversion.records, conversion.entries(),
                         conversion.parameters())  # fmt: skip
        output.write_side(sidecar_name(job.output.name), [text.encode()])
        output.commit()
    return report


def stage(conversion: ProgramConversion, made: Candidate, stack: ExitStack) -> Candidate:
    """Write it whole under a hidden name, from where a fresh process can load it.

    What is not committed before the stack is left is gone then. Where no archive is wanted in the
    end, it lies in a private folder.
    """
    job, target = conversion.job, conversion.job.output
    if made.staged is not None:
        return made
    if target is None or job.format != made.format:
        folder = PrivateFolder()
        stack.callback(folder.remove)
        target = folder.path / STAGED
    own = [conversion.source.path] if conversion.source is not None else []
    output = stack.enter_context(Output(target, inputs=own, in_place=job.in_place))
    digest = output.write(made.chunks(), size=made.size)
    file = stack.enter_context(output.held())
    return replace(made, staged=Staged(output, file, digest))

"""The code that the ops of a converted program are made of: named, and copied beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from oprep.converters.code_files import CodeFile
from oprep.converters.files import Output
from oprep.converters.program_job import ProgramJob
from oprep.converters.report import FileRecord
from oprep.opsets.errors import ExitCode, OprepError


def require_place(job: ProgramJob) -> None:
    """Refuse (exit 2) to bundle code where no file is written that could need it."""
    if not job.bundle or job.explain:
        return
    if job.output is None:
        raise OprepError("`--bundle` copies code beside an output, and none was named",
                         help="name one with `-o FILE`", exit_code=ExitCode.USAGE)  # fmt: skip
    if job.format == "onnx":
        raise OprepError(
            "`--bundle` does not apply to an ONNX output",
            job.output.name,
            help="leave it out: an ONNX model carries the meaning of its ops itself",
            exit_code=ExitCode.USAGE,
        )


@dataclass(frozen=True, slots=True)
class Needed:
    """A file of code as an artifact names it, and the first op that is made of it."""

    file: str
    sha256: str
    op: str


def needed_code(definitions: bytes) -> list[Needed]:
    """Give the files that the ops of an artifact are made of, from what it says of them."""
    found: dict[str, Needed] = {}
    for item in json.loads(definitions)["ops"] if definitions else ():
        if item["kind"] in ("python", "library"):
            found.setdefault(item["sha256"], Needed(item["file"], item["sha256"], item["name"]))
    return sorted(found.values(), key=lambda item: (item.file, item.sha256))


def bundle(
    output: Output, needed: Sequence[Needed], code: Sequence[CodeFile]
) -> tuple[FileRecord, ...]:
    """Stage a copy of every needed file beside an artifact; refuse (exit 2) one not at hand."""
    at_hand = {item.sha256: item for item in code}
    records = []
    for item in needed:
        file = at_hand.get(item.sha256)
        if file is None:
            raise OprepError(
                f"the code of `{item.op}` is not at hand, so it cannot be bundled",
                output.path.name,
                (f"`{item.file}` with sha256 {item.sha256[:16]}… makes it",),
                "name the rule file that names it with `-r`, or leave `--bundle` out",
                ExitCode.USAGE,
            )
        location = output.write_bundled(file.name, file.data, file.sha256)
        records.append(FileRecord(location, file.sha256, len(file.data)))
    return tuple(records)

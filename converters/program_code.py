"""The code that the ops of a converted program are made of: copied beside it, and found again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from oprep.converters.bundles import bundle_name, bundled_name
from oprep.converters.code_files import MAX_CODE, CodeFile
from oprep.converters.files import Output, read
from oprep.converters.program_job import ProgramJob
from oprep.converters.report import FileRecord
from oprep.opsets.errors import ExitCode, OprepError

BESIDE = ""
"""What stands for the opset of code that lies beside an archive, which no rule file names."""


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
    try:
        for item in json.loads(definitions)["ops"] if definitions else ():
            if item["kind"] in ("python", "library"):
                file, digest, op = str(item["file"]), str(item["sha256"]), str(item["name"])
                found.setdefault(digest, Needed(file, digest, op))
    except (ValueError, KeyError, TypeError, RecursionError):
        return []  # the child that reads them says what is wrong
    return sorted(found.values(), key=lambda item: (item.file, item.sha256))


def code_beside(
    archive: Path, needed: Sequence[Needed], code: Sequence[CodeFile], *, trusted: bool
) -> list[CodeFile]:
    """Give the needed code that is not at hand from the folder beside an archive, by its hash.

    Raise OprepError: exit UNTRUSTED for code there that nobody trusts, exit MODEL where there is
    none.
    """
    at_hand = {item.sha256 for item in code}
    bundle = archive.with_name(bundle_name(archive.name))
    found = []
    for item in needed:
        if item.sha256 in at_hand:
            continue
        file = bundle / bundled_name(item.file, item.sha256)
        if not file.is_file():
            raise OprepError(
                f"`{archive.name}` calls `{item.op}`, whose code is not at hand",
                archive.name,
                (f"`{item.file}` with sha256 {item.sha256[:16]}… makes it",),
                "name the rule file that names that file with `-r`",
                ExitCode.MODEL,
            )
        if not trusted:
            raise OprepError(
                f"`{item.op}` is made by code beside the model",
                f"{bundle.name}/{file.name}",
                ("it would run in a child process",),
                "name its rule file with `-r`, or pass `--trust-model` if the file is yours",
                ExitCode.UNTRUSTED,
            )
        content = read(file, max_bytes=MAX_CODE)
        if content.sha256 != item.sha256:
            raise OprepError(
                f"`{file.name}` is not the file that `{archive.name}` calls",
                f"{bundle.name}/{file.name}",
                (f"sha256 {item.sha256[:16]}… is wanted, it has {content.sha256[:16]}…",),
                "convert again with `--bundle`",
                ExitCode.MODEL,
            )
        found.append(CodeFile(BESIDE, file.name, content.data, content.sha256))
    return found


def hashes_beside(archive: Path, subject: Mapping[str, str]) -> dict[str, str]:
    """Give the hashes of the bundled files that a sidecar vouches for, as they are now."""
    name = bundle_name(archive.name)
    vouched = [item for item in subject if item.startswith(f"{name}/")]
    files = {item: archive.with_name(name) / PurePosixPath(item).name for item in vouched}
    return {
        item: read(file, max_bytes=MAX_CODE).sha256 for item, file in files.items()
        if file.is_file()
    }  # fmt: skip


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

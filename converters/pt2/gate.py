"""Read an exported program without torch, and let through only what torch loads without code.

Broken files end with exit 3. Sound ones that would run code when they are loaded or run (pickles,
objects, a bundled library, texts that torch evaluates or writes into code) end with exit 7 unless
they are trusted; then what was found is kept in `Pt2.code`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oprep.converters.pt2.entries import STORED, Entry, blocks, content, refused
from oprep.converters.pt2.expressions import bare
from oprep.converters.pt2.payload import check_payload
from oprep.converters.pt2.schema import MAJOR
from oprep.converters.pt2.structure import Misshapen, check, parse
from oprep.converters.pt2.torch_files import first_code
from oprep.converters.pt2.zipped import entries_of
from oprep.converters.reading import BLOCK, Content, OpenFile, Readable
from oprep.opsets.errors import ExitCode, OprepError

MODEL = "model"
MODEL_JSON = f"models/{MODEL}.json"
SAMPLE_INPUTS = f"data/sample_inputs/{MODEL}.pt"
WEIGHTS, CONSTANTS = "data/weights/", "data/constants/"
LEGACY = (f"{WEIGHTS}{MODEL}.pt", f"{CONSTANTS}{MODEL}.pt")
CONFIGS = {
    WEIGHTS: f"{WEIGHTS}{MODEL}_weights_config.json",
    CONSTANTS: f"{CONSTANTS}{MODEL}_constants_config.json",
}
LIBRARIES = "data/aotinductor/"
EXTRA = "extra/"
MAX_JSON = 1 << 30
MAX_PICKLED = 1 << 32
MAX_UNPACKED = 1 << 36
MAX_NAMED = 3


@dataclass(frozen=True)
class Pt2:
    """An exported program as its archive says it; nothing of it was loaded.

    `program` is the parsed `models/model.json`, `weights` and `constants` the tables of what lies
    in the archive; `code` says what would run as code (only of a trusted file), by entry.
    """

    source: Readable
    sha256: str
    root: str
    entries: tuple[Entry, ...]
    program: Mapping[str, Any]
    weights: Mapping[str, Any]
    constants: Mapping[str, Any]
    code: tuple[str, ...] = ()
    by_name: Mapping[str, Entry] = field(default_factory=dict, repr=False)

    @property
    def path(self) -> Path:
        """Tell where the archive lies."""
        return self.source.path

    @property
    def schema_version(self) -> tuple[int, int]:
        """Tell major and minor version of the schema."""
        version = self.program["schema_version"]
        return version["major"], version["minor"]

    @property
    def torch_version(self) -> str:
        """Tell which torch wrote it."""
        return str(self.program.get("torch_version", ""))

    @property
    def extra_files(self) -> tuple[str, ...]:
        """List the files that were saved beside the program, by their own names."""
        names = (entry.name for entry in self.entries)
        return tuple(sorted(name[len(EXTRA) :] for name in names if name.startswith(EXTRA)))

    def read(self, name: str) -> bytes:
        """Give the content of an entry, its CRC checked."""
        return content(self.source, self.by_name[name], MAX_JSON)


def read_pt2(source: Readable, max_bytes: int | None = None, *, trusted: bool = False) -> Pt2:
    """Read an archive that passes the gate; every entry's CRC is checked and the file hashed.

    Exit 3 where it is broken, 9 where it unpacks to more than `max_bytes`, 7 where code would run
    and it is not `trusted`.
    """
    root, entries = entries_of(source)
    by_name = {entry.name: entry for entry in entries}
    _limited(source, entries, max_bytes)
    _expected(source, by_name)
    sha256 = _hashed(source, entries)
    findings: list[str] = []
    program = _program(source, by_name, findings)
    tables = {
        folder: _payloads(source, by_name, folder, config, findings)
        for folder, config in CONFIGS.items()
    }
    _pickled(source, by_name, findings)
    findings += [f"entry `{e.name}`" for e in entries if e.name.startswith(LIBRARIES)]
    if findings and not trusted:
        raise _untrusted(source, findings)
    return Pt2(source, sha256, root, entries, program, tables[WEIGHTS], tables[CONSTANTS],
               tuple(findings), by_name)  # fmt: skip


def _limited(source: Readable, entries: Sequence[Entry], max_bytes: int | None) -> None:
    limit = MAX_UNPACKED if max_bytes is None else max_bytes
    total = sum(entry.size for entry in entries)
    if total > limit:
        raise OprepError(
            f"`{source.path.name}` unpacks to more than is allowed",
            where=str(source.path),
            notes=(f"it holds {total} bytes; {limit} are allowed",),
            help=f"pass `--max-bytes {total}` if that is meant",
            exit_code=ExitCode.LIMIT,
        )


def _expected(source: Readable, by_name: Mapping[str, Entry]) -> None:
    """Refuse an archive of another kind, or of another number of programs."""
    models = sorted(name for name in by_name if name.startswith("models/"))
    if not models and any(name.startswith(LIBRARIES) for name in by_name):
        raise OprepError(
            f"`{source.path.name}` is an AOTInductor package, not an exported program",
            where=str(source.path),
            notes=("it holds compiled code, no graph",),
            help="name the exported program (`.pt2` of `torch.export.save`) that it was made from",
            exit_code=ExitCode.MODEL,
        )
    if not models:
        raise refused(source, f"it has no entry `{MODEL_JSON}`")
    if models != [MODEL_JSON]:
        names = ", ".join(f"`{name}`" for name in models[:MAX_NAMED])
        raise refused(source, f"it holds other programs than `{MODEL}`", f"found {names}")
    for name, wanted in (("archive_format", b"pt2"), ("archive_version", b"0")):
        if name not in by_name:
            raise refused(source, f"it has no entry `{name}`")
        if content(source, by_name[name], 1 << 10) != wanted:
            raise refused(source, f"entry `{name}` says that it is no archive known here")
    order = by_name.get("byteorder")
    if order is not None and content(source, order, 1 << 10) != b"little":
        raise refused(source, "its weights are not in little-endian byte order")


def _hashed(source: Readable, entries: Sequence[Entry]) -> str:
    """Check every CRC and hash the file: in one pass, where entries are not packed."""
    known = source.sha256 if isinstance(source, Content) else ""
    digest, at = hashlib.sha256(), 0
    for entry in entries:
        stored = entry.method == STORED and not known
        if stored:
            _feed(digest, source, at, entry.start)
            at = entry.start + entry.packed
        for block in blocks(source, entry):
            if stored:
                digest.update(block)
    if known:
        return known
    _feed(digest, source, at, source.size)
    if isinstance(source, OpenFile):
        source.unchanged()
    return digest.hexdigest()


def _feed(digest: hashlib._Hash, source: Readable, start: int, end: int) -> None:
    for at in range(start, end, BLOCK):
        digest.update(source.read_at(at, min(BLOCK, end - at)))


def program_of(source: Readable, data: bytes) -> Mapping[str, Any]:
    """Parse JSON that is to be the program of this archive; exit 3 if it is none."""
    program = _json(source, MODEL_JSON, data)
    _checked(source, MODEL_JSON, program, "ExportedProgram", [])
    found: Mapping[str, Any] = program
    return found


def _json(source: Readable, name: str, data: bytes) -> Any:
    try:
        return parse(data)
    except Misshapen as error:
        raise refused(source, f"entry `{name}` {error}") from error


def _checked(source: Readable, name: str, value: Any, kind: str, findings: list[str]) -> None:
    seen: set[str] = set()

    def report(what: str) -> None:
        if what not in seen:
            seen.add(what)
            findings.append(f"entry `{name}`: {what}")

    try:
        check(value, kind, report)
    except Misshapen as error:
        raise refused(source, f"entry `{name}`: {error}") from error


def _program(source: Readable, by_name: Mapping[str, Entry], findings: list[str]) -> Any:
    entry = by_name[MODEL_JSON]
    program = _json(source, MODEL_JSON, content(source, entry, MAX_JSON))
    version = program.get("schema_version") if isinstance(program, dict) else None
    major = version.get("major") if isinstance(version, dict) else None
    if isinstance(major, int) and major != MAJOR:
        raise refused(
            source,
            f"its schema has the version {major}, only {MAJOR} is known here",
            f"it was written by torch {str(program.get('torch_version'))[:40]}",
        )
    _checked(source, MODEL_JSON, program, "ExportedProgram", findings)
    for text in _string_inputs(program["graph_module"]):
        if not bare(text):
            findings.append(f"entry `{MODEL_JSON}`: the constant input `{text[:120]}`")
    return program


def _string_inputs(graph_module: Mapping[str, Any]) -> list[str]:
    """Give the texts that a program takes as inputs: torch writes them into a condition in code."""
    specs = [spec.get("constant_input") for spec in graph_module["signature"]["input_specs"]]
    texts = [spec["value"].get("as_string") for spec in specs if spec is not None]
    texts += [argument.get("as_string") for argument in graph_module["graph"]["inputs"]]
    return [text for text in texts if text is not None]


def _payloads(
    source: Readable,
    by_name: Mapping[str, Entry],
    folder: str,
    config: str,
    findings: list[str],
) -> Mapping[str, Any]:
    """Check one table of weights or constants against the entries that it names."""
    entry = by_name.get(config)
    if entry is None:
        if f"{folder}{MODEL}.pt" in by_name:
            return {}
        raise refused(source, f"it has no entry `{config}`")
    table = _json(source, config, content(source, entry, MAX_JSON))
    _checked(source, config, table, "PayloadConfig", findings)
    payloads: Mapping[str, Any] = table["config"]
    for name, meta in payloads.items():
        entry = by_name.get(folder + meta["path_name"])
        if entry is None:
            raise refused(source, f"`{name}` is in no entry", f"`{meta['path_name']}` is not there")
        if meta["use_pickle"]:
            findings.append(f"entry `{entry.name}`: a pickled value of `{name}`")
        else:
            check_payload(source, entry, name, meta)
    return payloads


def _pickled(source: Readable, by_name: Mapping[str, Entry], findings: list[str]) -> None:
    """Walk the pickles that torch reads: sample inputs, and weights of the older format.

    An empty entry stands for no sample inputs.
    """
    for name in (SAMPLE_INPUTS, *LEGACY):
        entry = by_name.get(name)
        if entry is None or entry.size == 0:
            if name == SAMPLE_INPUTS and entry is None:
                raise refused(source, f"it has no entry `{name}`")
            continue
        data = content(source, entry, MAX_PICKLED)
        try:
            code = first_code(Content(source.path, data, ""))
        except OprepError as error:
            cause = error.message.partition("is refused: ")[2]
            raise refused(source, f"entry `{name}` is damaged", cause, *error.notes) from error
        if code:
            findings.append(f"entry `{name}`: {code}")


def _untrusted(source: Readable, findings: Sequence[str]) -> OprepError:
    more = len(findings) - MAX_NAMED
    notes = [*findings[:MAX_NAMED]] if more <= 0 else [
        *findings[: MAX_NAMED - 1], f"and {more + 1} more"
    ]  # fmt: skip
    return OprepError(
        f"`{source.path.name}` can only be loaded by running code stored in it",
        where=f"{source.path}, {findings[0].partition(':')[0]}",
        notes=tuple(notes),
        help="pass `--trust-model` if the file is yours",
        exit_code=ExitCode.UNTRUSTED,
    )

"""The steps of a conversion as tasks of a child: plain data in, plain data out.

The same functions serve objects that a caller holds, in the caller's process; then `model` is the
object itself and opsets are values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from torch.export import ExportedProgram

from oprep.converters.answers import REFUSED, answering, from_plain
from oprep.converters.dynamic_dims import parse_dynamic
from oprep.converters.handed import received
from oprep.converters.program_inputs import Given
from oprep.converters.program_source import Source
from oprep.converters.programs import definitions
from oprep.converters.programs.archive import loaded
from oprep.converters.programs.capture import capture
from oprep.converters.programs.contract import check_contract
from oprep.converters.programs.definitions import Definition
from oprep.converters.programs.graph import TorchGraph
from oprep.converters.programs.loading import DEFINITIONS as definitions_name
from oprep.converters.programs.loading import Beside, register
from oprep.converters.programs.ops import Installed, install
from oprep.converters.programs.recorded_sites import recorded_sites
from oprep.converters.programs.serial import model_json, saved
from oprep.converters.programs.session import Session
from oprep.converters.programs.subject import Site, Subject
from oprep.opsets.load import load_opset
from oprep.opsets.rule import Opset

Say: TypeAlias = Callable[[str], None]
Payload: TypeAlias = Mapping[str, Any]

_sessions: dict[str, Session] = {}


@answering
def open_model(payload: Payload, say: Say) -> dict[str, Any]:
    """Register the ops of the rules, then capture the model; keep both under `key`."""
    opsets = [_opset(item) for item in payload["opsets"]]
    say("registering the custom ops")
    known = registered(payload)
    folder = Path(payload["folder"]) if payload["folder"] else None
    installed = _installed(opsets, payload["code"], folder, say)
    given = payload["model"]
    source = Source.of(given) if isinstance(given, Mapping) else given
    name = source.name if isinstance(source, Source) else type(source).__name__
    say(f"capturing `{name}`")
    program = capture(
        source,
        mode=payload["capture"],
        dynamic=parse_dynamic(payload["dynamic"]),
        given=tuple(
            Given.of(item) if isinstance(item, Mapping) else item for item in payload["given"]
        ),
    )
    opened = Session(program, tuple(opsets), installed, bool(payload["given"]), known)
    _sessions[payload["key"]] = opened
    return opened.described()


@answering
def plan(payload: Payload, say: Say) -> dict[str, Any]:
    """Match the rules."""
    say("matching")
    return session(payload).planned(explain=payload["explain"])


@answering
def op_table(payload: Payload, say: Say) -> list[dict[str, Any]]:
    """Count the ops of the program, with the rules that would replace them."""
    say("counting ops")
    return session(payload).op_table()


@answering
def choose(payload: Payload, say: Say) -> dict[str, Any]:
    """Keep only some of the matches, by their positions."""
    return session(payload).chosen(payload["positions"])


@answering
def rewrite(payload: Payload, say: Say) -> dict[str, Any]:
    """Carry the plan out; the program that comes of it stays here."""
    say("replacing")
    session(payload).rewritten()
    return {}


@answering
def check(payload: Payload, say: Say) -> dict[str, Any]:
    """Hold the custom ops of the sites to their contracts."""
    say("trying the custom ops")
    check_contract(session(payload).subject(), say, gradients=payload["gradients"])
    return {}


@answering
def program_entry(payload: Payload, say: Say) -> dict[str, Any]:
    """Give what of the input's archive changes: the entry that holds the graph."""
    say("writing the program")
    found = session(payload)
    assert found.exported is not None
    return {"model": model_json(found.exported), "definitions": found.definitions()}


@answering
def save_program(payload: Payload, say: Say) -> dict[str, Any]:
    """Write the converted program (or the captured one) as torch does; give the bytes or a file."""
    say("saving the program")
    found = session(payload)
    exported = found.exported or found.program.exported
    definitions = found.definitions() if found.exported is not None else b""
    return {"archive": saved(exported, payload["file"]), "definitions": definitions}


@answering
def register_ops(payload: Payload, say: Say) -> dict[str, Any]:
    """Register the ops of rules and of an archive, for a package that calls them."""
    say("registering the custom ops")
    registered(payload)
    folder = Path(payload["folder"]) if payload["folder"] else None
    _installed([_opset(item) for item in payload["opsets"]], payload["code"], folder, say)
    return {}


@answering
def onnx_ends(payload: Payload, say: Say) -> dict[str, Any]:
    """Name the inputs and outputs that an ONNX model of the program has, and their places."""
    from oprep.converters.programs.onnx_names import (
        output_positions,
        tensor_inputs,
        tensor_outputs,
    )

    exported = session(payload).program.exported
    return {
        "inputs": [spec.arg.name for spec in tensor_inputs(exported)],
        "outputs": [spec.arg.name for spec in tensor_outputs(exported)],
        "positions": list(output_positions(exported)),
    }


def original(payload: Payload, say: Say) -> Subject:
    """Give the captured program with its sites; in a new child everything is done again."""
    if payload["key"] not in _sessions:
        answered = open_model(payload, say)
        if REFUSED in answered:
            raise from_plain(answered[REFUSED])
        found = session(payload)
        found.planned(explain=False)
        if payload["positions"] is not None:
            found.chosen(payload["positions"])
    return session(payload).subject()


def artifact(payload: Payload, say: Say) -> ExportedProgram:
    """Load an archive, its ops registered as the rules have them and as it says itself."""
    opsets = [_opset(item) for item in payload["opsets"]]
    folder = Path(payload["folder"]) if payload["folder"] else None
    _installed(opsets, payload["code"], folder, say)
    say("loading the program")
    registered(payload)
    return loaded(payload["name"], received(payload["archive"]))


def compared(payload: Payload, say: Say) -> Subject:
    """Capture the original of a comparison, with the sites that a sidecar records."""
    converted = artifact(payload["converted"], say) if payload["sites"] else None
    if payload["key"] not in _sessions:
        answered = open_model(payload, say)
        if REFUSED in answered:
            raise from_plain(answered[REFUSED])
    found = session(payload)
    sites: tuple[Site, ...] = ()
    if converted is not None:
        graph = TorchGraph(found.program.exported)
        sites = recorded_sites(graph, converted, payload["sites"])
    return Subject(found.program, sites, found.program.examples if found.given else ())


def registered(payload: Payload) -> dict[str, Definition]:
    """Register the ops that an archive describes, but those whose code a rule file names.

    Gives all that it describes.
    """
    data = payload.get("definitions") or b""
    if not data:
        return {}
    found = definitions.read(data, definitions_name)
    beside = Beside.of(payload["code"], payload["folder"])
    register([item for item in found if not item.file or item.sha256 in beside.files], beside)
    return {item.name: item for item in found}


@answering
def close(payload: Payload, say: Say) -> dict[str, Any]:
    """Let go of a conversion."""
    _sessions.pop(payload["key"], None)
    return {}


def session(payload: Payload) -> Session:
    """Give the conversion under a key."""
    return _sessions[payload["key"]]


def _opset(item: Any) -> Opset:
    if isinstance(item, Opset):
        return item
    return load_opset(item["text"], item["name"], shipped=item["shipped"], file=item["file"])


def _installed(
    opsets: Sequence[Opset], code: Sequence[Mapping[str, Any]], folder: Path | None, say: Say
) -> list[Installed]:
    found = []
    for opset in opsets:
        files = {item["name"]: item["data"] for item in code if item["opset"] == opset.name}
        found.append(install(opset.ops, files, folder / opset.name if folder else None, say))
    return found

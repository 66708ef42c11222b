"""A converted program as an ONNX model or a compiled package: tasks of the child that holds it.

Small things come back as data; weights of a large model and packages stay as files in a folder,
which goes with the process unless the caller names one.
"""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from oprep.converters.answers import answering
from oprep.converters.dynamic_dims import parse_dynamic
from oprep.converters.folders import PrivateFolder
from oprep.converters.programs.aoti import BUILT, compile_package, run_package
from oprep.converters.programs.example_sets import example_sets
from oprep.converters.programs.input_leaves import Inputs
from oprep.converters.programs.onnx_export import INSIDE, export_onnx
from oprep.converters.programs.program import Program
from oprep.converters.programs.running import Runner, Setting
from oprep.converters.programs.tasks import session
from oprep.converters.programs.travel import from_plain, to_plain

MOST_EXAMPLES = 3
Say: TypeAlias = Callable[[str], None]
Payload: TypeAlias = Mapping[str, Any]


@answering
def onnx(payload: Payload, say: Say) -> dict[str, Any]:
    """Write the converted program of a session as ONNX.

    Takes `key`, and where wanted `opset`, `dynamic` (as `--dynamic` writes it), `accept_missing`,
    `keep_traces`, `inside` and `folder`.
    """
    found = session(payload)
    say(f"writing `{found.program.name}` as ONNX")
    ops = tuple(dict.fromkeys(op for opset in found.opsets for op in opset.ops))
    folder = _folder(payload)
    made = export_onnx(
        found.exported or found.program.exported,
        ops,
        folder=folder,
        dims={(dim.input, dim.axis): dim.name
              for dim in parse_dynamic(payload.get("dynamic", ()))},
        opset=payload.get("opset"),
        accept_missing=payload.get("accept_missing", False),
        keep_traces=payload.get("keep_traces", False),
        inside=payload.get("inside", INSIDE),
        name=found.program.name,
    )  # fmt: skip
    if made.data is None:
        folder.rmdir()
    return {
        "model": made.proto.SerializeToString(deterministic=True),
        "folder": str(folder) if made.data is not None else None,
        "functions": list(made.functions),
        "counts": [asdict(item) for item in made.counts],
        "outputs": list(made.outputs),
        "notes": list(made.notes),
    }


@answering
def aoti(payload: Payload, say: Say) -> dict[str, Any]:
    """Compile the converted program of a session; run the original on its examples, eagerly.

    Gives the package's path, and per example the flat inputs and what the original makes of them.
    """
    found = session(payload)
    program = found.program
    say(f"compiling `{program.name}`")
    package = compile_package(found.exported or program.exported, _folder(payload), program.name)
    say(f"running `{program.name}`")
    return {
        "package": str(package),
        "examples": _expected(program, payload.get("seed", 0)),
        "notes": [BUILT],
    }


def _expected(program: Program, seed: int) -> list[dict[str, Any]]:
    """Run the original on its own examples, on made up ones where it has none."""
    runner, inputs = Runner(program.exported), Inputs(program.exported)
    found = []
    for example in (program.examples or example_sets(program, seed=seed))[:MOST_EXAMPLES]:
        leaves = inputs.flat(example.args, example.kwargs)
        if leaves is not None:
            ran = runner.run(leaves, Setting(seed))
            found.append({
                "name": example.name,
                "leaves": [to_plain(leaf) for leaf in leaves],
                "outputs": {name: to_plain(value) for name, value in ran.outputs.items()},
            })  # fmt: skip
    return found


@answering
def package_outputs(payload: Payload, say: Say) -> dict[str, Any]:
    """Run a package that was just built, in a process in which its ops are registered."""
    say("running the compiled package")
    leaves = [from_plain(item) for item in payload["leaves"]]
    outputs = run_package(Path(payload["package"]), leaves)
    return {name: to_plain(value) for name, value in outputs.items()}


def _folder(payload: Payload) -> Path:
    """Give a folder for large files: in the one that was named, else gone with this process."""
    named = payload.get("folder")
    if named is not None:
        return Path(tempfile.mkdtemp(prefix="artifact-", dir=named))
    folder = PrivateFolder()
    atexit.register(folder.remove)
    return folder.path

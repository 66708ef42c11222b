"""Load compiled op libraries: probed in a child first, because a wrong one ends the process.

A library with an unresolved symbol is an error that torch reports; one that defines an op that is
there already calls terminate (measured). So a child loads what this process has loaded, then the
new one, and tells which ops it added; only then is it loaded here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from oprep.converters.files import read
from oprep.converters.runner import Child, Ended, Limits
from oprep.opsets.errors import ExitCode, OprepError

SECONDS = 120.0
MAX_LIBRARY = 1 << 32

_LOADED: dict[str, tuple[Path, tuple[str, ...]]] = {}
"""What was loaded here, by the sha256 of the file, in the order of loading."""

_SYMBOL = re.compile(r"undefined symbol: (\S+)")


def load_library(path: str | PathLike[str]) -> tuple[Any, ...]:
    """Load a compiled op library into this process; give the ops that it added, sorted by name.

    The ops are `torch._ops.OpOverload`s, also found under `torch.ops`. A library that cannot be
    loaded, that would end the process or that adds no op is an `OprepError`. The same file, or a
    copy of it, a second time is a no-op that gives the same ops.
    """
    content = read(Path(path), max_bytes=MAX_LIBRARY, exit_code=ExitCode.RULES)
    known = _LOADED.get(content.sha256)
    if known is None:
        whole = Path(path).resolve()
        names = probe(whole, fspath(path))
        load_probed(whole, names, fspath(path))
        known = _LOADED[content.sha256] = (whole, names)
    return tuple(_overload(name) for name in known[1])


def probe(path: Path, told: str) -> tuple[str, ...]:
    """Load a library in a child; give the names of the ops it adds, or say why it cannot be."""
    payload = {"path": str(path), "before": [str(other) for other in _present(path)]}
    with Child(readable=(Path("/"),), limits=Limits(SECONDS)) as child:
        ended = child.call("oprep.converters.libraries:probe_task", payload)
    if ended.outcome != "ok":
        raise _refused(told, _end(ended), "build it against this torch, and load it once")
    reason = ended.value["reason"]
    if reason:
        raise _refused(told, (reason,), _advice(reason))
    names = tuple(sorted(ended.value["ops"]))
    if not names:
        raise _refused(
            told,
            ("it was loaded in a child and no op came of it",),
            "register an op in it with `TORCH_LIBRARY` or `STABLE_TORCH_LIBRARY`",
            fact="adds no op",
        )
    return names


def load_probed(path: Path, names: Sequence[str], told: str) -> None:
    """Load a library whose ops are known into this process, unless torch has it already."""
    import torch

    if str(path) in torch.ops.loaded_libraries:
        return
    taken = sorted(set(names) & _all_ops())
    if taken:
        raise _refused(
            told,
            (f"it defines `{taken[0]}`, which is defined here already",),
            "load one of the two libraries, or give the op another name",
        )
    try:
        torch.ops.load_library(str(path))  # type: ignore[no-untyped-call]
    except OSError as error:
        raise _refused(told, (_reason(error),), "build it against this torch") from error


def probe_task(payload: Mapping[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """Load what the parent has and then the library; runs in a child."""
    import torch

    for other in payload["before"]:
        say(f"loading {Path(other).name}")
        torch.ops.load_library(other)  # type: ignore[no-untyped-call]
    before = _all_ops()
    say(f"loading {Path(payload['path']).name}")
    try:
        torch.ops.load_library(payload["path"])  # type: ignore[no-untyped-call]
    except OSError as error:
        return {"reason": _reason(error), "ops": []}
    return {"reason": "", "ops": sorted(_all_ops() - before)}


def _present(path: Path) -> list[Path]:
    """Give the libraries that torch has loaded here, ours first and in their order."""
    import torch

    ours = [other for other, _ in _LOADED.values()]
    rest = sorted(Path(other) for other in torch.ops.loaded_libraries)
    every = [*ours, *(other for other in rest if other not in ours)]
    return [other for other in every if other != path and other.is_file()]


def _all_ops() -> set[str]:
    import torch

    return set(torch._C._dispatch_get_all_op_names())


def _overload(name: str) -> Any:
    import torch

    space, _, rest = name.partition("::")
    short, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, space), short), overload or "default")


def _reason(error: OSError) -> str:
    """Give the loader's own words, with the symbol as it is written in C++."""
    import torch

    text = str(error.__cause__ or error)
    found = _SYMBOL.search(text)
    if found is None:
        return text.partition(": ")[2] or text
    return f"undefined symbol `{torch._C._demangle(found[1])}`"


def _advice(reason: str) -> str:
    if "undefined symbol" in reason:
        return "link it with `-ltorch_cpu`, and build it for this version of torch"
    return "pass a shared library that was built for this machine"


def _end(ended: Ended) -> tuple[str, ...]:
    """Say how the child ended, with what it printed last where that tells the cause."""
    how = ended.signal or ended.error
    told = [line.partition("what():")[2].strip() for line in ended.stderr.splitlines()]
    return (f"loading it ends the process: {how}", *[text[:200] for text in told if text][:1])


def _refused(
    told: str, notes: tuple[str, ...], help: str, fact: str = "cannot be loaded"
) -> OprepError:
    return OprepError(f"`{Path(told).name}` {fact}", told, notes, help, ExitCode.RULES)

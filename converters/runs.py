"""Models loaded in a child, from the parent's side: reopened when the child has died."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oprep.converters.report import Verdict
from oprep.converters.runner import Child, Ended, Limits

TASKS = "oprep.converters.sessions"
RUNTIMES = ("onnxruntime", "onnx reference")
GRACE = 10.0
"""Seconds that a runtime may take to end a run by itself before its process is ended."""


@dataclass(frozen=True)
class Loadable:
    """A model as a runtime loads it: its bytes, and the folder of its external data if any."""

    data: bytes
    folder: Path | None = None


@dataclass(frozen=True)
class Trouble:
    """Why there is no result: a verdict, and the words for it."""

    verdict: Verdict
    detail: str


@dataclass(frozen=True)
class Opened:
    """The runtime that loaded a model, and why the ones before it did not."""

    runtime: str
    reasons: tuple[str, ...]
    outputs: tuple[str, ...]


class Runs:
    """One child and the models that it holds, by key.

    `seconds` limits each run, `memory` the child; every run has one thread, so that two runs of
    one model agree to the last bit. With `reset` every run has a session of its own: random ops
    with a seed go on drawing within one.
    """

    def __init__(
        self, child: Child, seconds: float, memory: int | None = None, *, reset: bool = False
    ) -> None:
        """Use `child`; nothing is loaded before the first run."""
        self._child, self._seconds, self._memory = child, seconds, memory
        self._reset, self._used = reset, set[str]()
        self._open: dict[str, Opened] = {}
        self._known: dict[str, dict[str, Any]] = {}
        self.sandboxed = True

    def open(
        self,
        key: str,
        model: Loadable,
        what: str,
        *,
        optimise: bool = True,
        runtimes: Sequence[str] = RUNTIMES,
    ) -> Opened | Trouble:
        """Load a model under `key`, to be called `what` in messages."""
        self._known[key] = {
            "key": key,
            "model": model.data,
            "folder": "" if model.folder is None else str(model.folder),
            "what": what,
            "optimise": optimise,
            "runtimes": list(runtimes),
            "threads": 1,
        }
        return self._reopen(key)

    def _reopen(self, key: str) -> Opened | Trouble:
        ended = self._call("open_model", self._known[key])
        if isinstance(ended, Trouble):
            return ended
        if "refused" in ended:
            return Trouble(Verdict.CANNOT_RUN, str(ended["refused"]))
        opened = Opened(ended["runtime"], tuple(ended["reasons"]), tuple(ended["outputs"]))
        self._open[key] = opened
        self._used.discard(key)
        return opened

    def close(self, key: str) -> None:
        """Let go of a model."""
        self._known.pop(key, None)
        if self._open.pop(key, None) is not None:
            self._call("close_model", {"key": key})

    def run(
        self, key: str, feeds: Mapping[str, Any], *, keep: bool = True
    ) -> dict[str, list[Any]] | Trouble:
        """Run a model on `feeds`: arrays by output name (none unless `keep`)."""
        ended = self._on(key, "run_model", {"feeds": feeds, "keep": keep})
        return ended if isinstance(ended, Trouble) else ended["outputs"]

    def run_sites(self, key: str, payload: Mapping[str, Any]) -> dict[str, Any] | Trouble:
        """Run a twin and compare its sites (see sessions.run_sites)."""
        return self._on(key, "run_sites", payload)

    def _on(self, key: str, task: str, payload: Mapping[str, Any]) -> dict[str, Any] | Trouble:
        if key not in self._open or (self._reset and key in self._used):
            opened = self._reopen(key)
            if isinstance(opened, Trouble):
                return opened
        self._used.add(key)
        what = self._known[key]["what"]
        ended = self._call(task, {"key": key, "what": what, "seconds": self._seconds, **payload})
        if isinstance(ended, Trouble):
            return ended
        if "timed out" in ended:
            return Trouble(Verdict.TIMED_OUT, f"{what} did not end within {self._seconds:g} s")
        if "refused" in ended:
            return Trouble(Verdict.CANNOT_RUN, str(ended["refused"]))
        return ended

    def _call(self, task: str, payload: Mapping[str, Any]) -> dict[str, Any] | Trouble:
        limits = Limits(seconds=self._seconds + GRACE, memory=self._memory)
        ended = self._child.call(f"{TASKS}:{task}", payload, limits)
        self.sandboxed = self.sandboxed and (ended.sandboxed or ended.outcome == "crashed")
        if ended.outcome == "ok":
            return dict(ended.value)
        if ended.outcome != "error":
            self._open.clear()
        return trouble_of(ended)


def trouble_of(ended: Ended) -> Trouble:
    """Turn the end of a call without a result into a verdict."""
    doing = f" while {ended.began}" if ended.began else ""
    if ended.outcome == "timed out":
        return Trouble(Verdict.TIMED_OUT, f"{ended.error}{doing}")
    if ended.outcome == "error":
        return Trouble(Verdict.CANNOT_RUN, f"{ended.error}{doing}")
    return Trouble(Verdict.CRASHED, f"{ended.error}{doing}")

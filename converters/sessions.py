"""Run models; only in a child. A session stays open under a key until the child dies.

ONNX Runtime runs what it can; what it cannot load (bfloat16 on CPU, foreign ops, repeated node
names) onnx's ReferenceEvaluator runs. Errors of a runtime are results, in one line.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import onnxruntime  # type: ignore[import-untyped]

from oprep.converters import magnitudes, twin
from oprep.converters.comparison import NEVER
from oprep.converters.evidence import NOTHING, merged, to_plain
from oprep.converters.floors import compare_at_site, reads_of_run
from oprep.converters.report import Verdict
from oprep.opsets.rule import Tolerance

Say = Callable[[str], None]
MAX_REASON = 300
ERROR_ONLY = 4
"""ONNX Runtime logs fatal errors only."""


class Refused(Exception):
    """A runtime would not load a model or would not run it on these inputs."""


class TimedOut(Exception):
    """A run was ended by its own time limit."""


class Session(Protocol):
    """A loaded model."""

    runtime: str

    def run(self, outputs: list[str] | None, feeds: dict[str, Any], seconds: float) -> list[Any]:
        """Give the outputs named, or all."""
        ...

    def names(self) -> list[str]:
        """Give the names of all outputs."""
        ...


_sessions: dict[str, Session] = {}


class OnnxRuntime:
    """A session of ONNX Runtime on the CPU, one thread unless told otherwise."""

    runtime = "onnxruntime"

    def __init__(self, model: bytes, folder: str, optimise: bool, threads: int) -> None:
        """Load a model; its external data lies in `folder`."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = threads
        options.log_severity_level = ERROR_ONLY
        levels = onnxruntime.GraphOptimizationLevel
        options.graph_optimization_level = (
            levels.ORT_ENABLE_ALL if optimise else levels.ORT_DISABLE_ALL
        )
        if folder:
            key = "session.model_external_initializers_file_folder_path"
            # as bytes: a name that is no UTF-8 cannot be passed as text
            options.add_session_config_entry(key, os.fsencode(folder))
        try:
            self._session = onnxruntime.InferenceSession(
                model, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise Refused(reason(error)) from error

    def names(self) -> list[str]:
        """Give the names of all outputs."""
        return [item.name for item in self._session.get_outputs()]

    def run(self, outputs: list[str] | None, feeds: dict[str, Any], seconds: float) -> list[Any]:
        """Run once, ended from within after `seconds`."""
        options = onnxruntime.RunOptions()
        options.log_severity_level = ERROR_ONLY
        ended = threading.Event()

        def end() -> None:
            ended.set()
            options.terminate = True

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            return list(self._session.run(outputs, feeds, options))
        except Exception as error:
            if ended.is_set():
                raise TimedOut from error
            raise Refused(reason(error)) from error
        finally:
            timer.cancel()


class Reference:
    """onnx's own evaluator: slow, but it knows every standard op and dtype."""

    runtime = "onnx reference"

    def __init__(self, model: bytes, folder: str) -> None:
        """Load a model and the external data that lies in `folder`."""
        import onnx
        from onnx.external_data_helper import load_external_data_for_model
        from onnx.reference import ReferenceEvaluator

        try:
            proto = onnx.load_from_string(model)
            if folder:
                load_external_data_for_model(proto, folder)
            self._evaluator = ReferenceEvaluator(proto)
        except Exception as error:
            raise Refused(reason(error)) from error

    def names(self) -> list[str]:
        """Give the names of all outputs."""
        return list(self._evaluator.output_names)

    def run(self, outputs: list[str] | None, feeds: dict[str, Any], seconds: float) -> list[Any]:
        """Run once; the time limit is the child's."""
        try:
            with np.errstate(all="ignore"):
                return list(self._evaluator.run(outputs, feeds))
        except MemoryError:
            raise
        except Exception as error:
            raise Refused(reason(error)) from error


def reason(error: Exception) -> str:
    """Give the words of an error in one line, without where in the runtime it was raised."""
    text = " ".join(str(error).split())
    for noise in ("[ONNXRuntimeError] : ", "Load model from  failed:", "Error: "):
        text = text.replace(noise, "")
    kept = [part for part in text.split(" ") if not part.startswith("/onnxruntime_src/")]
    words = " ".join(kept) or type(error).__name__
    return words if len(words) <= MAX_REASON else words[: MAX_REASON - 1] + "…"


def open_model(payload: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Load `model` under `key`; `runtimes` are tried in order. Gives the runtime or `refused`."""
    say(f"loading {payload['what']}")
    _sessions.pop(payload["key"], None)
    model, folder = bytes(payload["model"]), str(payload["folder"] or "")
    reasons = []
    for runtime in payload["runtimes"]:
        try:
            session: Session
            if runtime == OnnxRuntime.runtime:
                session = OnnxRuntime(model, folder, payload["optimise"], payload["threads"])
            else:
                session = Reference(model, folder)
        except Refused as error:
            reasons.append(f"{runtime}: {error}")
            continue
        _sessions[payload["key"]] = session
        return {"runtime": runtime, "reasons": reasons, "outputs": session.names()}
    return {"refused": "; ".join(reasons), "reasons": reasons}


def close_model(payload: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Let go of the session under `key`."""
    _sessions.pop(payload["key"], None)
    return {}


def run_model(payload: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Run the session under `key` on `feeds`: `outputs` by name, each a list of arrays."""
    session = _sessions[payload["key"]]
    say(f"running {payload['what']}")
    found = _run(session, None, payload)
    if isinstance(found, str):
        return {found: True} if found == "timed out" else {"refused": found}
    if not payload["keep"]:
        return {"outputs": {}}
    values = dict(zip(session.names(), found, strict=True))
    return {"outputs": {name: arrays_of(value) for name, value in values.items()}}


def _run(
    session: Session, outputs: list[str] | None, payload: Mapping[str, Any]
) -> list[Any] | str:
    try:
        return session.run(outputs, dict(payload["feeds"]), payload["seconds"])
    except TimedOut:
        return "timed out"
    except Refused as error:
        return str(error) or "refused without a reason"


def arrays_of(value: Any) -> list[np.ndarray[Any, Any]]:
    """Flatten an output (tensor, sequence, map, optional) into arrays in a fixed order."""
    if value is None:
        return []
    if isinstance(value, Mapping):
        keys = sorted(value)
        return [np.array(keys), *(item for key in keys for item in arrays_of(value[key]))]
    if isinstance(value, list | tuple):
        return [array for item in value for array in arrays_of(item)]
    return [np.asarray(value)]


def run_sites(payload: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Run a twin on `feeds` and compare the two sides of each of `sites`."""
    session = _sessions[payload["key"]]
    say(f"running {payload['what']}")
    names = list(payload["outputs"])
    found = _run(session, names, payload)
    if isinstance(found, str):
        return {found: True} if found == "timed out" else {"refused": found}
    values = dict(zip(names, (_sequence(value) for value in found), strict=True))
    size = sum(array.nbytes for value in values.values() for array in arrays_of(value))
    say("comparing")
    if payload["digest"]:
        return {"digests": [_digests(site, values) for site in payload["sites"]]}
    whole = bool(payload["whole"])
    return {
        "bytes": size,
        "sites": [_compare_site(site, values, whole) for site in payload["sites"]],
    }


def _sequence(value: Any) -> Any:
    return value if isinstance(value, np.ndarray) else arrays_of(value)


def _compare_site(
    site: Mapping[str, Any], values: Mapping[str, Any], whole: bool
) -> dict[str, Any]:
    """Compare both sides of a site in all runs of its region.

    Where a set may not feed the whole model (`whole` is false), a site that it drives to
    infinities on its way is left out: what an op makes of those is no matter of a conversion.
    """
    columns = [twin.decode(column, values) for column in site["reads"]]
    reads = [array for column in columns for array in column]
    reached = twin.decode(site["reached"], values) if site["reached"] else [np.ones(1)]
    total = sum(int(array.size) for array in reached)
    if not whole and not magnitudes.all_finite(reads):
        return {"reached": total, "comparison": to_plain(NOTHING)}
    asked = Tolerance(*site["tolerance"]) if site["tolerance"] else None
    found = []
    for original, candidate in site["pairs"]:
        one, other = twin.decode(original, values), twin.decode(candidate, values)
        if len(one) != len(other):
            detail = f"{len(one)} values became {len(other)}"
            failed = replace(NOTHING, verdict=Verdict.FAIL, over=math.inf, detail=detail)
            found.append(replace(failed, needs=NEVER))
            continue
        for run, pair in enumerate(zip(one, other, strict=True)):
            read = reads_of_run(columns, run, len(one))
            found.append(compare_at_site(*pair, read, asked, local=bool(site["local"])))
    return {"reached": total, "comparison": to_plain(merged(found))}


def _digests(site: Mapping[str, Any], values: Mapping[str, Any]) -> tuple[str, str]:
    """Hash what a site reads and what the original makes of it."""
    reads = [array for column in site["reads"] for array in twin.decode(column, values)]
    made = [array for pair in site["pairs"] for array in twin.decode(pair[0], values)]
    return _hash(reads), _hash(made)


def _hash(arrays: list[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())
        text = array.dtype.kind in "OSUT"
        digest.update(repr(array.tolist()).encode() if text else array.tobytes())
    return digest.hexdigest()

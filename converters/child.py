"""The other end of runner.Child: what the fresh interpreter does until it is told to stop or dies.

It confines itself first, then takes one task after another. Whatever a task does to the process is
the parent's business to notice; here only exceptions are caught.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oprep.converters import handed, sandbox, wire
from oprep.converters.memory import uncollected
from oprep.opsets.errors import OprepError

READY, BEGAN, OK, ERROR, MEMORY, TASK = range(6)
MAX_TEXT, MAX_TRACE = 4096, 16384
REQUEST_LIMIT = 1 << 40


def main(setup: Mapping[str, Any]) -> None:
    """Run tasks from descriptor `requests` and answer on descriptor `results`."""
    sandbox.be_first_to_go()
    sandbox.drop_capabilities()
    sandbox.die_with(setup["parent"])
    sandbox.no_core_dump()
    sandbox.limit_memory(None, setup["memory"])
    requests, results = setup["requests"], setup["results"]
    for descriptor in (requests, results):
        os.set_inheritable(descriptor, False)
    handed.listen(setup["files"])
    nonce = bytes.fromhex(setup["nonce"])
    faulthandler.enable()
    sandboxed = sandbox.restrict(setup["readable"], setup["private"])
    _send(results, wire.pack(READY, sandboxed, nonce))
    _import(setup["imports"])
    reader = wire.Reader(requests, nonce, REQUEST_LIMIT)
    own = os.getpid()
    while True:
        try:
            frame = reader.read()
        except EOFError:
            return
        if frame is not None:
            _answer(results, frame.value, own)


def _import(modules: Sequence[str]) -> None:
    """Import what tasks will need while the parent does something else; they show what is wrong."""
    with uncollected():
        for name in modules:
            try:
                importlib.import_module(name)
            except Exception:
                return


def _answer(results: int, request: Mapping[str, Any], own: int) -> None:
    nonce = request["nonce"]

    def say(text: str) -> None:
        _send(results, wire.pack(BEGAN, str(text)[:MAX_TEXT], nonce))

    pieces = _run(request, say)
    if os.getpid() != own:  # a copy that the task forked off has nothing to answer
        os._exit(0)
    _flush()
    _send(results, pieces)


def _run(request: Mapping[str, Any], say: Callable[[str], None]) -> list[memoryview]:
    nonce = request["nonce"]
    try:
        sandbox.limit_memory(request["memory"])
        module, _, name = request["task"].partition(":")
        with uncollected():
            task = getattr(importlib.import_module(module), name)
        return wire.pack(OK, task(request["payload"], say), nonce)
    except MemoryError as error:
        sandbox.limit_memory(None)
        return wire.pack(MEMORY, _told(error), nonce)
    except (Exception, KeyboardInterrupt) as error:
        sandbox.limit_memory(None)
        return wire.pack(ERROR, _told(error), nonce)


def _told(error: BaseException) -> tuple[str, str]:
    text = error.line() if isinstance(error, OprepError) else f"{type(error).__name__}: {error}"
    trace = "".join(traceback.format_exception(error))
    return text[:MAX_TEXT], trace[-MAX_TRACE:]


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    ctypes.CDLL(None).fflush(None)


def _send(results: int, pieces: list[memoryview]) -> None:
    for piece in pieces:
        while piece:
            piece = piece[os.write(results, piece) :]

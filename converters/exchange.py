"""One call to a child: the request goes out, what it says and prints comes in, until it answers.

Nothing here waits without an end, and nothing that the child sends or prints is kept without bound.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from oprep.converters import child, wire

DYING_SECONDS = 2.0
POLL_SECONDS = 0.1
CAPTURE = 1 << 16
BLOCK = 1 << 16
MAX_DRAINED = 64
MAX_FRAMES = 64


@dataclass(frozen=True)
class Limits:
    """Seconds of wall time per call, bytes of writable memory of the child (None: no limit).

    `result` bounds the bytes of arrays that one call may send back.
    """

    seconds: float = 120.0
    memory: int | None = None
    result: int = 1 << 33


@dataclass(frozen=True)
class Ended:
    """How one call ended.

    `outcome` is `ok`, `error` (the task raised: `error` has type and message), `crashed`
    (signal or exit without a result), `timed out` or `memory`. `value` is JSON-like data
    with numpy arrays inside. `began` is the last thing the task said it began. `error` says in
    words what happened wherever the outcome is not `ok`; `trace` is for `--debug` only.
    """

    outcome: str
    value: Any = None
    error: str = ""
    began: str = ""
    signal: str = ""
    stdout: str = ""
    stderr: str = ""
    sandboxed: bool = False
    trace: str = ""


@dataclass
class Captured:
    """The first and the last bytes of a stream that may be endless."""

    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    left_out: int = 0

    def add(self, data: bytes) -> None:
        """Keep what fits into the head, else into the tail."""
        room = max(CAPTURE // 2 - len(self.head), 0)
        self.head += data[:room]
        self.tail += data[room:]
        surplus = max(len(self.tail) - CAPTURE // 2, 0)
        del self.tail[:surplus]
        self.left_out += surplus

    def text(self) -> str:
        """Give both ends, and how much is missing between them."""
        gap = f"\n… {self.left_out} bytes left out …\n".encode() if self.left_out else b""
        return bytes(self.head + gap + self.tail).decode("utf-8", "replace")

    def take(self, descriptor: int) -> bool:
        """Read one block; False when there is none now (or never again)."""
        try:
            data = os.read(descriptor, BLOCK)
        except BlockingIOError:
            return False
        self.add(data)
        return bool(data)


@dataclass(frozen=True)
class Line:
    """The descriptors to a living child, none of which blocks, and whether it lives."""

    requests: int
    results: int
    streams: tuple[int, int]
    dead: Callable[[], bool]


class Exchange:
    """One request and its answer, with everything the child prints meanwhile."""

    def __init__(self, line: Line, pieces: list[memoryview], nonce: bytes, limits: Limits) -> None:
        """Get ready; the time runs from here."""
        self.line, self.limits = line, limits
        self.pieces = [piece for piece in pieces if piece]
        self.reader = wire.Reader(line.results, nonce, limits.result)
        self.captured = (Captured(), Captured())
        self.began = ""
        self.reason = ""
        self.deadline = time.monotonic() + limits.seconds

    def run(self) -> Ended | None:
        """Give the answer; None when there will be none: the child has to be stopped then."""
        line = self.line
        with selectors.DefaultSelector() as selector:
            selector.register(line.results, selectors.EVENT_READ)
            for stream, captured in zip(line.streams, self.captured, strict=True):
                selector.register(stream, selectors.EVENT_READ, captured)
            if self.pieces:
                selector.register(line.requests, selectors.EVENT_WRITE)
            while (left := self.deadline - time.monotonic()) > 0:
                dead = line.dead()
                ready = selector.select(0 if dead else min(left, POLL_SECONDS))
                frame = self._handle(selector, [key for key, _ in ready])
                if frame is not None:
                    return self._answered(frame)
                if self.reason or (dead and line.results not in [key.fd for key, _ in ready]):
                    return None
        self.reason = "timed out"
        return None

    def _handle(
        self, selector: selectors.BaseSelector, ready: list[selectors.SelectorKey]
    ) -> wire.Frame | None:
        frame = None
        for key in ready:
            if isinstance(key.data, Captured):
                if not key.data.take(key.fd):
                    selector.unregister(key.fd)
            elif key.fd == self.line.requests:
                if self._write():
                    selector.unregister(key.fd)
            else:
                frame = self._read()
        return frame

    def _read(self) -> wire.Frame | None:
        """Take frames until the answer; set `reason` where the conversation is over."""
        try:
            for _ in range(MAX_FRAMES):
                frame = self.reader.read()
                if frame is None or frame.kind != child.BEGAN:
                    return frame
                self.began = str(frame.value)
        except EOFError:
            self.reason = "gone"
            self._wait_for_death()
        except wire.WireError as error:
            self.reason = f"sent {error}"
        return None

    def _wait_for_death(self) -> None:
        """Let a dying process become a dead one, so that its own exit status is seen."""
        end = min(time.monotonic() + DYING_SECONDS, self.deadline)
        while not self.line.dead() and time.monotonic() < end:
            time.sleep(0.005)

    def _write(self) -> bool:
        """Send what fits; True when all is sent or nobody reads any more."""
        try:
            while self.pieces:
                count = os.write(self.line.requests, self.pieces[0])
                self.pieces[0] = self.pieces[0][count:]
                if not self.pieces[0]:
                    self.pieces.pop(0)
        except BlockingIOError:
            return False
        except BrokenPipeError:
            pass
        return True

    def _ended(self, outcome: str, error: str = "", **more: Any) -> Ended:
        for stream, captured in zip(self.line.streams, self.captured, strict=True):
            for _ in range(MAX_DRAINED):  # whoever still prints is not waited for
                if not captured.take(stream):
                    break
        out, err = (captured.text() for captured in self.captured)
        return Ended(outcome, error=error, began=self.began, stdout=out, stderr=err, **more)

    def _answered(self, frame: wire.Frame) -> Ended:
        if frame.kind in (child.OK, child.READY):
            return self._ended("ok", value=frame.value)
        outcome = "memory" if frame.kind == child.MEMORY else "error"
        text, trace = frame.value if isinstance(frame.value, tuple) else (frame.value, "")
        return self._ended(outcome, str(text), trace=str(trace))

    def ended_badly(self, status: int) -> Ended:
        """Say how a call without an answer ended; `status` is the leader's, as Popen gives it."""
        if self.reason == "timed out":
            return self._ended("timed out", f"no result within {self.limits.seconds:g} s")
        if self.reason not in ("", "gone"):
            return self._ended("crashed", f"the child {self.reason}")
        if status >= 0:
            return self._ended("crashed", f"ended with exit code {status} and no result")
        name = _signal_name(-status)
        ended = self._ended("crashed", f"ended by {name}", signal=name)
        if self.limits.memory is not None and "bad_alloc" in ended.stderr:
            text = f"out of the {self.limits.memory} bytes of memory it may have"
            return replace(ended, outcome="memory", error=text)
        return ended


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

"""The only starter of child processes: whatever runs a model, a kernel or a compiler runs there.

A crash, a hang, a flood or an early exit of a task is a value (`Ended`), never an exception here.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from oprep.converters import child, wire
from oprep.converters.folders import PrivateFolder
from oprep.opsets.errors import OprepError

START_SECONDS = 120.0
DYING_SECONDS = 2.0
POLL_SECONDS = 0.1
CAPTURE = 1 << 16
BLOCK = 1 << 16
PIPE_SIZE = 1 << 20
KEPT_ENVIRONMENT = (
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "GLIBC_TUNABLES",
)
SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"
TOKEN = "OPREP_CHILD"
BOOT = (
    "import json, sys; setup = json.loads(sys.argv[1]);"
    "sys.path.extend(p for p in setup['path'] if p not in sys.path);"
    "from oprep.converters.child import main; main(setup)"
)


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
class _Captured:
    """The first and the last bytes of a stream that may be endless."""

    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    left_out: int = 0

    def add(self, data: bytes) -> None:
        room = max(CAPTURE // 2 - len(self.head), 0)
        self.head += data[:room]
        self.tail += data[room:]
        surplus = max(len(self.tail) - CAPTURE // 2, 0)
        del self.tail[:surplus]
        self.left_out += surplus

    def text(self) -> str:
        gap = f"\n… {self.left_out} bytes left out …\n".encode() if self.left_out else b""
        return bytes(self.head + gap + self.tail).decode("utf-8", "replace")


@dataclass
class _Interpreter:
    """A living child: its process, the two descriptors of the conversation, and what it printed."""

    process: subprocess.Popen[bytes]
    requests: int
    results: int
    nonce: bytes
    token: str
    sandboxed: bool = False

    @property
    def streams(self) -> tuple[IO[bytes], IO[bytes]]:
        """Give the captured stdout and stderr."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        return self.process.stdout, self.process.stderr

    def dead(self) -> bool:
        """Tell whether it ended, without reaping it: its group id must stay taken until killed."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.process.pid, options) is not None

    def stop(self) -> int:
        """Kill the whole group and whatever left it; give the exit status of the leader."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        _kill_strays(self.token)
        status = self.process.wait()
        _kill_strays(self.token)  # one that was just starting another program had no environment
        for descriptor in (self.requests, self.results):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        return status

    def close_streams(self) -> None:
        """Let go of the captured streams after their last bytes were read."""
        for stream in self.streams:
            stream.close()


def _kill_strays(token: str) -> None:
    """Kill descendants that made a session of their own; they still carry our token."""
    mark = f"{TOKEN}={token}".encode()
    for entry in os.scandir("/proc") if os.path.isdir("/proc") else ():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if mark in Path(entry.path, "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)


class Child:
    """A fresh interpreter that runs tasks one after another until it dies; then a new one.

    A task is named `package.module:function`; it is called as `function(payload, say)` where
    `payload` is JSON-like data (numpy arrays and bytes allowed) and `say(text)` records
    what is about to begin. Own session, limits, allowlisted environment, private working and
    temp folder, Landlock where the kernel has it (reads only `readable` beside the system's),
    results over a separate descriptor with a nonce, never pickle; stdout and stderr captured.
    Modules are found on this process's `sys.path` and in `import_from`. Not for several threads;
    it dies with the thread that made the first call.
    """

    def __init__(
        self,
        *,
        readable: tuple[Path, ...] = (),
        limits: Limits | None = None,
        import_from: tuple[Path, ...] = (),
    ) -> None:
        """Note what the child may read; nothing starts before the first call."""
        self.limits = limits or Limits()
        self._readable = tuple(str(path.resolve()) for path in (*readable, *import_from))
        self._import_from = tuple(str(path.resolve()) for path in import_from)
        self._living: _Interpreter | None = None
        self._folder: PrivateFolder | None = None

    def call(self, task: str, payload: Mapping[str, Any], limits: Limits | None = None) -> Ended:
        """Run one task; start the interpreter if there is none alive."""
        limits = limits or self.limits
        try:
            if self._living is not None and self._living.dead():
                self._forget()
            if self._living is None:
                failed = self._start()
                if failed is not None:
                    return failed
            nonce = secrets.token_bytes(16)
            request = {"nonce": nonce, "task": task, "payload": payload, "memory": limits.memory}
            assert self._living is not None
            pieces = wire.pack(child.TASK, request, self._living.nonce)
            return self._converse(pieces, nonce, limits)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Kill the whole process group and remove the private folder."""
        try:
            self._forget()
        finally:
            if self._folder is not None:
                self._folder.remove()
                self._folder = None

    def __enter__(self) -> Child:
        """Give the child, to be killed at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill the whole process group and remove the private folder."""
        self.close()

    def _forget(self) -> None:
        living, self._living = self._living, None
        if living is not None:
            living.stop()
            living.close_streams()

    def _start(self) -> Ended | None:
        """Start an interpreter and wait until it is ready; give the end it came to otherwise."""
        if self._folder is None:
            self._folder = PrivateFolder()
        self._living = _spawn(self._folder.path, self._readable, self._import_from, self.limits)
        ended = self._converse([], self._living.nonce, Limits(START_SECONDS))
        if ended.outcome == "ok":
            self._living.sandboxed = bool(ended.value)
            return None
        return replace(ended, error=f"the child did not start: {ended.error}")

    def _converse(self, pieces: list[memoryview], nonce: bytes, limits: Limits) -> Ended:
        """Send a request, read until its answer, the end of the child or the end of the time."""
        living = self._living
        assert living is not None
        exchange = _Exchange(living, pieces, nonce, limits)
        ended = exchange.run()
        if ended is not None:
            return ended
        self._living = None
        status = living.stop()
        ended = exchange.ended_badly(status)
        living.close_streams()
        return ended


class _Exchange:
    """One request and its answer, with everything the child prints meanwhile."""

    def __init__(
        self, living: _Interpreter, pieces: list[memoryview], nonce: bytes, limits: Limits
    ) -> None:
        self.living, self.limits = living, limits
        self.pieces = [piece for piece in pieces if piece]
        self.reader = wire.Reader(living.results, nonce, limits.result)
        self.captured = (_Captured(), _Captured())
        self.began = ""
        self.reason = ""
        self.deadline = time.monotonic() + limits.seconds

    def run(self) -> Ended | None:
        """Give the answer; None when there will be none (`reason` is then set or empty)."""
        living = self.living
        with selectors.DefaultSelector() as selector:
            selector.register(living.results, selectors.EVENT_READ, self._read)
            for stream, captured in zip(living.streams, self.captured, strict=True):
                selector.register(stream, selectors.EVENT_READ, captured)
            if self.pieces:
                selector.register(living.requests, selectors.EVENT_WRITE, self._write)
            while True:
                left = self.deadline - time.monotonic()
                if left <= 0:
                    self.reason = "timed out"
                    return None
                events = selector.select(min(left, POLL_SECONDS))
                frame = self._handle(selector, events)
                if frame is not None:
                    return self._answered(frame)
                if self.reason or (not events and living.dead()):
                    return None

    def _handle(
        self,
        selector: selectors.BaseSelector,
        events: list[tuple[selectors.SelectorKey, int]],
    ) -> wire.Frame | None:
        for key, _ in events:
            if isinstance(key.data, _Captured):
                if not _take(key.fd, key.data):
                    selector.unregister(key.fileobj)
            elif key.fd == self.living.requests:
                if self._write():
                    selector.unregister(key.fileobj)
            else:
                frame = self._read()
                if frame is not None:
                    return frame
        return None

    def _read(self) -> wire.Frame | None:
        """Take frames until the answer; set `reason` where the conversation is over."""
        try:
            while (frame := self.reader.read()) is not None:
                if frame.kind != child.BEGAN:
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
        while not self.living.dead() and time.monotonic() < end:
            time.sleep(0.005)

    def _write(self) -> bool:
        """Send what fits; True when all is sent or nobody reads any more."""
        try:
            while self.pieces:
                count = os.write(self.living.requests, self.pieces[0][: 1 << 20])
                self.pieces[0] = self.pieces[0][count:]
                if not self.pieces[0]:
                    self.pieces.pop(0)
        except BlockingIOError:
            return False
        except BrokenPipeError:
            pass
        return True

    def _answered(self, frame: wire.Frame) -> Ended:
        self._drain()
        out, err = (captured.text() for captured in self.captured)
        common = Ended("ok", None, "", self.began, "", out, err, self.living.sandboxed)
        if frame.kind in (child.OK, child.READY):
            return replace(common, value=frame.value)
        outcome = "memory" if frame.kind == child.MEMORY else "error"
        text, trace = frame.value if isinstance(frame.value, tuple) else (frame.value, "")
        return replace(common, outcome=outcome, error=str(text), trace=str(trace))

    def ended_badly(self, status: int) -> Ended:
        """Say how a call without an answer ended; `status` is the leader's, as Popen gives it."""
        self._drain()
        out, err = (captured.text() for captured in self.captured)
        common = Ended("crashed", None, "", self.began, "", out, err, self.living.sandboxed)
        if self.reason == "timed out":
            text = f"no result within {self.limits.seconds:g} s"
            return replace(common, outcome="timed out", error=text)
        if self.reason not in ("", "gone"):
            return replace(common, error=f"the child {self.reason}")
        if status >= 0:
            return replace(common, error=f"ended with exit code {status} and no result")
        name = _signal_name(-status)
        if self.limits.memory is not None and "bad_alloc" in err:
            text = f"out of the {self.limits.memory} bytes of memory it may have"
            return replace(common, outcome="memory", error=text, signal=name)
        return replace(common, error=f"ended by {name}", signal=name)

    def _drain(self) -> None:
        """Take what was printed up to now; whoever still prints is not waited for."""
        for stream, captured in zip(self.living.streams, self.captured, strict=True):
            for _ in range(CAPTURE // BLOCK * 64):
                if not _take(stream.fileno(), captured):
                    break


def _take(descriptor: int, captured: _Captured) -> bool:
    """Read one block into `captured`; False when there is none now (or never again)."""
    try:
        data = os.read(descriptor, BLOCK)
    except BlockingIOError:
        return False
    captured.add(data)
    return bool(data)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _spawn(
    private: Path, readable: tuple[str, ...], import_from: tuple[str, ...], limits: Limits
) -> _Interpreter:
    """Start an interpreter in its own session with nothing of ours but two descriptors."""
    requests, to_child = os.pipe()
    from_child, results = os.pipe()
    nonce, token = secrets.token_bytes(16), secrets.token_hex(16)
    path = [entry for entry in sys.path if os.path.isabs(entry)]
    setup = {
        "path": [*import_from, *path],
        "readable": [*_interpreter_paths(), *path, *readable],
        "private": str(private),
        "requests": requests,
        "results": results,
        "nonce": nonce.hex(),
        "parent": os.getpid(),
        "memory": limits.memory,
    }
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", BOOT, json.dumps(setup)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=private,
            env=_environment(private, token),
            pass_fds=(requests, results),
            start_new_session=True,
        )
    except OSError as error:
        os.close(to_child)
        os.close(from_child)
        raise OprepError(
            "cannot start a child process", where=sys.executable, notes=(str(error),)
        ) from error
    finally:
        os.close(requests)
        os.close(results)
    living = _Interpreter(process, to_child, from_child, nonce, token)
    for descriptor in (to_child, from_child):
        with contextlib.suppress(OSError, AttributeError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    for descriptor in (to_child, from_child, *(stream.fileno() for stream in living.streams)):
        os.set_blocking(descriptor, False)
    return living


def _interpreter_paths() -> list[str]:
    """Give the folders that Python and this package are made of, also when installed editable."""
    import oprep.converters
    import oprep.opsets

    folders = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    for package in (oprep, oprep.converters, oprep.opsets):
        folders.update(str(Path(entry).resolve()) for entry in package.__path__)
    return sorted(folders)


def _environment(private: Path, token: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
    folder = str(private)
    own = {"PATH": SEARCH_PATH, "HOME": folder, "TMPDIR": folder, TOKEN: token}
    return {"LANG": "C.UTF-8", **kept, **own}

"""The only starter of child processes: whatever runs a model, a kernel or a compiler runs there.

A crash, a hang, a flood or an early exit of a task is a value (`Ended`), never an exception here.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from oprep.converters import child, wire
from oprep.converters.exchange import Ended, Exchange, Limits, Line
from oprep.converters.folders import PrivateFolder, put
from oprep.converters.handed import Giver
from oprep.converters.reading import OpenFile
from oprep.opsets.errors import OprepError

__all__ = ["Child", "Ended", "Limits"]

START_SECONDS = 120.0
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


@dataclass
class _Interpreter:
    """A living child: its process and the descriptors of the conversation."""

    process: subprocess.Popen[bytes]
    requests: int
    results: int
    nonce: bytes
    token: str
    giver: Giver
    ready: bool = False
    sandboxed: bool = False

    @property
    def line(self) -> Line:
        """Give what a call needs of it."""
        streams = (_descriptor(self.process.stdout), _descriptor(self.process.stderr))
        return Line(self.requests, self.results, streams, self.dead)

    def dead(self) -> bool:
        """Tell whether it ended, without reaping it: its group id must stay taken until killed."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            return os.waitid(os.P_PID, self.process.pid, options) is not None
        except ChildProcessError:  # someone else in this process waits for all children
            return True

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
        self.giver.close()
        return status

    def close_streams(self) -> None:
        """Let go of the captured streams after their last bytes were read."""
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def _descriptor(stream: IO[bytes] | None) -> int:
    assert stream is not None
    return stream.fileno()


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
        self._files: list[OpenFile] = []

    def call(self, task: str, payload: Mapping[str, Any], limits: Limits | None = None) -> Ended:
        """Run one task; start the interpreter if there is none alive."""
        limits = limits or self.limits
        try:
            if self._living is not None and self._living.dead():
                self._forget()
            failed = self._ready()
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

    def start(self, imports: Sequence[str] = ()) -> None:
        """Start the interpreter without waiting for it; it imports modules until a task comes."""
        self._living = _spawn(self.folder, self._readable, self._import_from, self.limits, imports)
        for file in self._files:
            self._living.giver.give(file)

    @property
    def folder(self) -> Path:
        """Give the private folder, in which tasks run and may write."""
        if self._folder is None:
            self._folder = PrivateFolder()
        return self._folder.path

    def put(self, name: str, data: bytes) -> Path:
        """Write a file into the private folder for the next task; give its path."""
        return put(self.folder, name, data)

    def hand(self, file: OpenFile) -> None:
        """Let this interpreter and those after it read a file, which has to stay open here."""
        self._files.append(file)
        if self._living is not None:
            self._living.giver.give(file)

    @property
    def running(self) -> bool:
        """Tell whether an interpreter is alive."""
        return self._living is not None and not self._living.dead()

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

    def _ready(self) -> Ended | None:
        """Wait until the interpreter, started if need be, is ready; give any other end."""
        if self._living is None:
            self.start()
        living = self._living
        assert living is not None
        if living.ready:
            return None
        ended = self._converse([], living.nonce, Limits(START_SECONDS))
        if ended.outcome == "ok":
            living.ready, living.sandboxed = True, bool(ended.value)
            return None
        return replace(ended, error=f"the child did not start: {ended.error}")

    def _converse(self, pieces: list[memoryview], nonce: bytes, limits: Limits) -> Ended:
        """Send a request, read until its answer, the end of the child or the end of the time."""
        living = self._living
        assert living is not None
        exchange = Exchange(living.line, pieces, nonce, limits)
        ended = exchange.run()
        if ended is None:
            self._living = None
            ended = exchange.ended_badly(living.stop())
            living.close_streams()
        return replace(ended, sandboxed=living.sandboxed)


def _spawn(
    private: Path,
    readable: tuple[str, ...],
    import_from: tuple[str, ...],
    limits: Limits,
    imports: Sequence[str],
) -> _Interpreter:
    """Start an interpreter in its own session with nothing of ours but three descriptors."""
    requests, to_child = os.pipe()
    from_child, results = os.pipe()
    giver = Giver()
    nonce, token = secrets.token_bytes(16), secrets.token_hex(16)
    path = [entry for entry in sys.path if os.path.isabs(entry)]
    setup = {
        "path": [*import_from, *path],
        "readable": [*_interpreter_paths(), *path, *readable],
        "private": str(private),
        "requests": requests,
        "results": results,
        "files": giver.descriptor,
        "nonce": nonce.hex(),
        "parent": os.getpid(),
        "memory": limits.memory,
        "imports": list(imports),
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
            pass_fds=(requests, results, giver.descriptor),
            start_new_session=True,
        )
    except OSError as error:
        os.close(to_child)
        os.close(from_child)
        giver.close()
        raise OprepError(
            "cannot start a child process", where=sys.executable, notes=(str(error),)
        ) from error
    finally:
        os.close(requests)
        os.close(results)
        giver.started()
    living = _Interpreter(process, to_child, from_child, nonce, token, giver)
    for descriptor in (to_child, from_child):
        with contextlib.suppress(OSError, AttributeError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    for descriptor in (to_child, from_child, *living.line.streams):
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

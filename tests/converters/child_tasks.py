"""Tasks for test_runner.py: what a good and a bad kernel may do to its process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oprep.converters.handed import received
from oprep.converters.reading import OpenFile

Say = Callable[[str], None]
STATE: dict[str, int] = {"calls": 0}


def echo(payload: Any, say: Say) -> Any:
    return payload["value"]


def read_handed(payload: Any, say: Say) -> dict[str, Any]:
    """Read a file that the parent handed over, then do to it whatever a bad kernel could."""
    file = received(payload["file"])
    assert isinstance(file, OpenFile)
    data = file.read_at(0, file.size)
    refused = []
    for what, act in (
        ("open", lambda: os.open(file.path, os.O_RDONLY)),
        ("write", lambda: os.pwrite(file.descriptor, b"x", 0)),
        ("cut", lambda: os.ftruncate(file.descriptor, 0)),
        ("open again", lambda: os.open(f"/proc/self/fd/{file.descriptor}", os.O_RDWR)),
    ):
        try:
            act()
        except OSError:
            refused.append(what)
    inherited = os.get_inheritable(file.descriptor)
    return {"data": data, "refused": refused, "inherited": inherited}


def count(payload: Any, say: Say) -> int:
    STATE["calls"] += 1
    return STATE["calls"]


def pid(payload: Any, say: Say) -> int:
    return os.getpid()


def imported(payload: Any, say: Say) -> bool:
    return payload["module"] in sys.modules


def surroundings(payload: Any, say: Say) -> dict[str, Any]:
    folder = Path.cwd()
    return {
        "environment": dict(os.environ),
        "folder": str(folder),
        "mode": folder.stat().st_mode & 0o777,
        "session": os.getsid(0) == os.getpid(),
        "open": sorted(os.listdir("/proc/self/fd"), key=int),
    }


def fail(payload: Any, say: Say) -> None:
    say("op acme::gelu")
    raise ValueError(payload.get("text", "no such shape"))


def segfault(payload: Any, say: Say) -> None:
    say("op acme::gelu, node n7")
    ctypes.string_at(0)


def abort(payload: Any, say: Say) -> None:
    os.abort()


def exit_quietly(payload: Any, say: Say) -> None:
    os._exit(0)


def system_exit(payload: Any, say: Say) -> None:
    sys.exit(3)


def overflow_stack(payload: Any, say: Say) -> None:
    call = ctypes.CFUNCTYPE(None)
    holder: list[Any] = []
    holder.append(call(lambda: holder[0]()))
    sys.setrecursionlimit(10**9)
    holder[0]()


def spin(payload: Any, say: Say) -> None:
    say("the endless op")
    while True:
        pass


def sleep_deaf(payload: Any, say: Say) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(60)


def eat_memory(payload: Any, say: Say) -> int:
    held = []
    while True:
        held.append(bytearray(b"x" * (32 << 20)))


def raise_limit(payload: Any, say: Say) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def eat_native_memory(payload: Any, say: Say) -> None:
    import numpy as np

    np.ones(1 << 34, np.uint8)


def leave_a_process(payload: Any, say: Say) -> int:
    process = os.fork()
    if process == 0:
        time.sleep(600)
        os._exit(0)
    return process


def leave_a_daemon(payload: Any, say: Say) -> int:
    """Start a process in a session of its own, which a kill of the group does not reach."""
    code = "import time; time.sleep(600)"
    return subprocess.Popen([sys.executable, "-c", code], start_new_session=True).pid


def fork_and_return(payload: Any, say: Say) -> str:
    os.fork()
    return "both return"


def die_and_leave_a_process(payload: Any, say: Say) -> None:
    if os.fork() == 0:
        time.sleep(600)
    os.kill(os.getpid(), signal.SIGKILL)


def print_much(payload: Any, say: Say) -> int:
    os.write(1, b"first line\n")
    for _ in range(200):
        os.write(1, b"x" * 65536)
        os.write(2, b"y" * 65536)
    print("last line")
    return 7


def print_without_end(payload: Any, say: Say) -> None:
    while True:
        os.write(1, b"x" * 65536)


def say_without_end(payload: Any, say: Say) -> None:
    while True:
        say("again")


def result_without_end(payload: Any, say: Say) -> None:
    """Begin a result of the largest size that is allowed, and send it for as long as it goes."""
    import inspect
    import struct

    frame = inspect.currentframe()
    while frame is not None and "results" not in frame.f_locals:
        frame = frame.f_back
    assert frame is not None
    results, nonce = frame.f_locals["results"], frame.f_locals["request"]["nonce"]
    header = b"[1, [%d]]" % (1 << 33)
    os.write(results, struct.pack("<16sBIQ", nonce, 2, len(header), 1 << 33) + header)
    block = bytes(1 << 12)
    while True:
        os.write(results, block)


def print_unflushed(payload: Any, say: Say) -> None:
    ctypes.CDLL(None).puts(b"from C")
    print("from Python")
    print("to stderr", file=sys.stderr)


def big_result(payload: Any, say: Say) -> bytes:
    return bytes(payload["size"])


def unsendable(payload: Any, say: Say) -> object:
    return object()


def pipes() -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        with contextlib.suppress(OSError):
            if number > 2 and "pipe" in os.readlink(f"/proc/self/fd/{name}"):
                found.append(number)
    return found


def scribble(payload: Any, say: Say) -> str:
    """Write junk to every descriptor that could be the results."""
    for number in pipes():
        with contextlib.suppress(OSError):
            os.write(number, b"\x00" * 100)
    return "unheard"


def close_results(payload: Any, say: Say) -> None:
    for number in pipes():
        os.close(number)
    time.sleep(60)


def forge(payload: Any, say: Say) -> None:
    """Send a frame with the nonce of the call, as code that found it could, and break it."""
    import inspect
    import struct

    frame = inspect.currentframe()
    while frame is not None and "results" not in frame.f_locals:
        frame = frame.f_back
    assert frame is not None
    results = frame.f_locals["results"]
    nonce = frame.f_locals["request"]["nonce"]
    header = payload["header"]
    body = payload["body"]
    size = payload.get("size", len(body))
    os.write(results, struct.pack("<16sBIQ", nonce, 2, len(header), size) + header + body)
    time.sleep(60)


def attempt(payload: Any, say: Say) -> dict[str, str]:
    """Try what the sandbox should refuse; give the error of each, or `done`."""
    outside = payload["outside"]
    tries: dict[str, Callable[[], Any]] = {
        "read": lambda: Path(outside, "secret").read_text(),
        "write": lambda: Path(outside, "new").write_text("x"),
        "write again": lambda: Path(outside, "secret").write_text("x"),
        "remove": lambda: os.unlink(os.path.join(outside, "secret")),
        "list": lambda: os.listdir(outside),
        "system file": lambda: Path("/etc/hostname").read_text(),
        "connect": lambda: socket.create_connection(("127.0.0.1", payload["port"]), 1),
        "signal": lambda: os.kill(os.getppid(), signal.SIGCONT),
        "environment": lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes(),
        "private": lambda: Path("mine").write_text("x"),
        "readable": lambda: Path(payload["readable"], "model").read_text(),
        "write readable": lambda: Path(payload["readable"], "model").write_text("x"),
    }
    found = {}
    for name, call in tries.items():
        try:
            call()
            found[name] = "done"
        except OSError as error:
            found[name] = type(error).__name__
    return found

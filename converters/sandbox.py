"""What a child does to itself before any work: limits, death with its parent, Landlock.

Landlock lets the child read what Python and the task need and write only in its private folder; TCP
and signals to other processes are refused as well. UDP is not covered by the kernel. Where the
kernel has no Landlock `restrict` says so; nothing else depends on it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct
from collections.abc import Iterable

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
RULE_PATH_BENEATH = 1

CAPABILITY_VERSION = 0x20080522
FILE_ACCESS = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
TRUNCATE, IOCTL_DEVICE = 1 << 14, 1 << 15
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE
READ_RIGHTS = EXECUTE | READ_FILE | READ_DIR
RIGHT_BITS = {1: 13, 2: 14, 3: 15, 4: 15}
NEWEST_BITS = 16
NET_ABI, SCOPE_ABI = 4, 6
SYSTEM = (
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/bin",
    "/opt",
    "/nix/store",
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/localtime",
    "/proc",
    "/sys",
    "/dev",
)
WRITABLE_DEVICES = ("/dev/null", "/dev/zero", "/dev/full")


def die_with(parent: int) -> None:
    """Ask the kernel for SIGKILL when the parent dies; end at once if it is dead already."""
    if hasattr(signal, "pidfd_send_signal"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def drop_capabilities() -> None:
    """Give up what root may do beyond its own files: raise limits, look into other processes.

    Access to files of other users stays, for a model mounted into a container is often one.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("=Ii", CAPABILITY_VERSION, 0)
    sets = ctypes.create_string_buffer(24)
    if getattr(libc, "capget", None) is None or libc.capget(header, sets):
        return
    effective, permitted, _, *_ = struct.unpack("=6I", sets.raw)
    kept = struct.pack("=6I", effective & FILE_ACCESS, permitted & FILE_ACCESS, 0, 0, 0, 0)
    libc.capset(header, kept)


def be_first_to_go() -> None:
    """Let a machine that runs out of memory end this process rather than another."""
    with contextlib.suppress(OSError):
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, b"1000")
        finally:
            os.close(descriptor)


def limit_memory(soft: int | None, hard: int | None = None) -> None:
    """Bound the writable memory of this process; `hard` cannot be raised again afterwards.

    RLIMIT_DATA counts private writable mappings: neither mapped weights nor reserved addresses,
    of which torch and CUDA take far more than they use.
    """
    top = resource.getrlimit(resource.RLIMIT_DATA)[1]
    top = _lower(top, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (_lower(top, soft), top))


def _lower(limit: int, wanted: int | None) -> int:
    if wanted is None:
        return limit
    return wanted if limit == resource.RLIM_INFINITY else min(limit, wanted)


def no_core_dump() -> None:
    """Keep a crash from writing gigabytes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def restrict(readable: Iterable[str], writable: str) -> bool:
    """Confine this thread and all it starts; False where the kernel cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    abi = libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if abi < 1:
        return False
    rights = (1 << RIGHT_BITS.get(abi, NEWEST_BITS)) - 1
    fields = [rights] + [3] * (abi >= NET_ABI) + [3] * (abi >= SCOPE_ABI)
    attribute = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = libc.syscall(CREATE_RULESET, attribute, ctypes.c_size_t(len(attribute)), 0)
    if ruleset < 0:
        return False
    try:
        for path in (*SYSTEM, *readable):
            _allow(libc, ruleset, path, READ_RIGHTS)
        for path in WRITABLE_DEVICES:
            _allow(libc, ruleset, path, (READ_FILE | WRITE_FILE) & rights)
        _allow(libc, ruleset, writable, rights)
        if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            return False
        return bool(libc.syscall(RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    """Allow what lies at or below a path; a path that is not there needs no rule."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            rights &= FILE_RIGHTS
        attribute = struct.pack("=Qi", rights, descriptor)
        libc.syscall(ADD_RULE, ruleset, RULE_PATH_BENEATH, attribute, 0)
    finally:
        os.close(descriptor)

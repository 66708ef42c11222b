"""Run a command and tell its wall time and its peak memory; best of several runs."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """Wall seconds, and the peak resident memory in MB of the process and its children."""

    seconds: float
    peak_mb: float


def run(command: Sequence[str]) -> Run:
    """Run a command once; a failure ends the benchmark with what it wrote."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    complaint = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{complaint.decode(errors='replace')}")
    return Run(seconds, usage.ru_maxrss / 1024)


def best(action: Callable[[], Run], rounds: int) -> Run:
    """Give the fastest of several runs, with the largest peak of all."""
    runs = [action() for _ in range(rounds)]
    return Run(min(one.seconds for one in runs), max(one.peak_mb for one in runs))

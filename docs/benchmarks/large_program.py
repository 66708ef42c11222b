"""Converting a large exported program without verifying, against loading and saving it with torch.

`python docs/benchmarks/large_program.py [--gigabytes 1] [--folder DIR]`; needs three times the
space. Both sides are whole processes, start-up and imports included, and run in turn; the program
is written by a process of its own, as a child's peak begins with its parent's. The peak of the
process that holds the program is told by it alone, so it is read from `/proc` while it runs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from timing import run

WIDTH = 2048
BYTES = WIDTH * WIDTH * 4
BUDGET, MEMORY = 1.2, 512 + BYTES / 2**20
RULE = """
format = 1
[[op]]
name = "bench::gelu"
onnx = { domain = "bench", type = "Gelu", version = 1 }
body = "0.5 * x * (1 + erf(x / sqrt(2)))"
[[rule]]
name = "gelu"
replace = "gelu(x)"
with = "bench::gelu(x)"
"""
PEER = """
import sys, time, torch
began = time.perf_counter()
torch.export.save(torch.export.load(sys.argv[1]), sys.argv[2])
print(time.perf_counter() - began)
"""


@dataclass(frozen=True)
class Measured:
    """Wall seconds of a process, and the peak in MB of it and of its largest child."""

    seconds: float
    parent_mb: float
    child_mb: float
    printed: str


def build(path: Path, gigabytes: float) -> None:
    """Export layers of Linear and GELU."""
    import torch

    layers = max(1, round(gigabytes * 1e9 / BYTES))
    steps = [
        part for _ in range(layers) for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())
    ]
    exported = torch.export.export(torch.nn.Sequential(*steps), (torch.ones(2, WIDTH),))
    torch.export.save(exported, path)


def measured(command: list[str]) -> Measured:
    """Run a command, and look at it and at its children twenty times a second."""
    peaks: dict[int, float] = {}
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None:
        for pid, parent, peak in processes():
            if process.pid in (pid, parent):
                peaks[pid] = max(peak, peaks.get(pid, 0.0))
        time.sleep(0.05)
    seconds = time.perf_counter() - began
    out, complaint = process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{complaint}")
    own = peaks.pop(process.pid)
    return Measured(seconds, own, max(peaks.values(), default=0.0), out)


def processes() -> list[tuple[int, int, float]]:
    """Give pid, parent and peak in MB of all processes."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                lines = Path("/proc", name, "status").read_text().splitlines()
            except OSError:
                continue
            facts = dict(line.split(":", 1) for line in lines)
            if "VmHWM" in facts:
                peak = int(facts["VmHWM"].split()[0]) / 1024
                found.append((int(name), int(facts["PPid"]), peak))
    return found


def main() -> None:
    """Measure both in turn and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--build", type=Path, default=None, help="only write the program there")
    options = parser.parse_args()
    if options.build:
        build(options.build, options.gigabytes)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        model, rules, target = (Path(name, item) for item in ("in.pt2", "gelu.toml", "out.pt2"))
        rules.write_text(RULE)
        size = ["--gigabytes", str(options.gigabytes)]
        run([sys.executable, __file__, "--build", str(model), *size])
        run(["sha256sum", str(model)])
        words = ["convert", str(model), "-r", str(rules), "-o", str(target), "--no-verify"]
        pairs = []
        for _ in range(options.rounds):
            theirs = measured([sys.executable, "-c", PEER, str(model), str(target)])
            target.unlink()
            ours = measured([sys.executable, "-m", "oprep", *words])
            pairs.append((ours, theirs))
            print(line(ours, theirs), flush=True)
        ours, theirs = min(pairs, key=lambda pair: pair[0].seconds)
        print(f"{model.stat().st_size / 1e9:.2f} GB, best of {options.rounds} (budget {BUDGET})")
        print(line(ours, theirs))
        print(f"memory: parent {ours.parent_mb:.0f} MB (budget {MEMORY:.0f}), "
              f"its child that holds the program {ours.child_mb:.0f} MB, "
              f"torch alone {theirs.parent_mb:.0f} MB")  # fmt: skip


def line(ours: Measured, theirs: Measured) -> str:
    """Say both times and their ratio."""
    return (f"oprep convert {ours.seconds:5.1f} s, load and save {theirs.seconds:5.1f} s (without "
            f"imports {float(theirs.printed):5.1f} s), "
            f"ratio {ours.seconds / theirs.seconds:.2f}")  # fmt: skip


if __name__ == "__main__":
    main()

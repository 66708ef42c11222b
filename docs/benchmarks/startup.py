"""How fast the commands start, as ratios to a bare import: `python docs/benchmarks/startup.py`."""

from __future__ import annotations

import sys
from pathlib import Path

from timing import Run, run

MODEL = Path(__file__).resolve().parents[2] / "sample_models" / "encoder.onnx"
OPREP = [sys.executable, "-m", "oprep"]
PAIRS = (
    ("oprep --help", [*OPREP, "--help"], "import typer"),
    ("oprep list-ops encoder.onnx", [*OPREP, "list-ops", str(MODEL)], "import onnx"),
)
ROUNDS, BUDGET = 15, 2.0


def alternate(left: list[str], right: list[str]) -> tuple[Run, Run]:
    """Run both in turn, so that a slow moment hits both; give the fastest of each."""
    runs = [(run(left), run(right)) for _ in range(ROUNDS)]
    lefts, rights = zip(*runs, strict=True)
    return min(lefts, key=lambda r: r.seconds), min(rights, key=lambda r: r.seconds)


def main() -> None:
    """Print one line per command."""
    print(f"best of {ROUNDS}")
    for name, command, statement in PAIRS:
        ours, bare = alternate(command, [sys.executable, "-c", statement])
        print(
            f"{name:32} {ours.seconds * 1e3:6.0f} ms   python -c '{statement}' "
            f"{bare.seconds * 1e3:6.0f} ms   ratio {ours.seconds / bare.seconds:.2f} "
            f"(budget {BUDGET:.0f})"
        )


if __name__ == "__main__":
    main()

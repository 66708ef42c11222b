"""Run models in ONNX Runtime in one child process, so that a crash or a hang is a failed test."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

CHILD = """
import sys, numpy, onnxruntime
from pathlib import Path
from typing import Any
folder, quiet = Path(sys.argv[1]), onnxruntime.SessionOptions()
quiet.log_severity_level = 3
for place in sorted(folder.iterdir()):
    session = onnxruntime.InferenceSession(
        Path(place, "path").read_text(), quiet, providers=["CPUExecutionProvider"]
    )
    with numpy.load(place / "feeds.npz") as feeds:
        results = session.run(None, dict(feeds))
    names = [f"{n:05d}" for n in range(len(results))]
    numpy.savez(place / "results.npz", **dict(zip(names, results)))
"""

Arrays = dict[str, NDArray[Any]]


def run_all(
    jobs: Sequence[tuple[onnx.ModelProto | Path, Arrays]], *, seconds: float = 60
) -> list[list[NDArray[Any]]]:
    """Run each model on its inputs and give the outputs of each, in the models' order."""
    with tempfile.TemporaryDirectory() as name:
        places = []
        for number, (model, feeds) in enumerate(jobs):
            place = Path(name, f"{number:05d}")
            place.mkdir()
            path = model if isinstance(model, Path) else place / "model.onnx"
            if not isinstance(model, Path):
                path.write_bytes(model.SerializeToString())
            Path(place, "path").write_text(str(path))
            np.savez(place / "feeds.npz", **feeds)  # type: ignore[arg-type]
            places.append(place)
        command = [sys.executable, "-c", CHILD, name]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        assert ended.returncode == 0, ended.stderr[-2000:]
        return [results(place) for place in places]


def results(place: Path) -> list[NDArray[Any]]:
    """Read what the child wrote for one model."""
    with np.load(place / "results.npz") as stored:
        return [stored[key] for key in sorted(stored.files)]


KINDS = {
    "FLOAT": np.float32,
    "FLOAT16": np.float16,
    "DOUBLE": np.float64,
    "INT64": np.int64,
    "INT32": np.int32,
}


def feeds_for(
    model: onnx.ModelProto, *, free: int = 2, seed: int = 0, bools: bool = True, whole: int = 9
) -> Arrays:
    """Draw an input set: normal numbers of both signs, integers below `whole`, one bool value.

    What has an initializer of the same name keeps it.
    """
    draw, feeds = np.random.default_rng(seed), {}
    given = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        kind = value.type.tensor_type
        dims = [dim.dim_value if dim.dim_value > 0 else free for dim in kind.shape.dim]
        name = onnx.TensorProto.DataType.Name(kind.elem_type)
        if value.name in given:
            continue
        if name == "BOOL":
            feeds[value.name] = np.full(dims, bools)
        elif name.startswith("INT"):
            feeds[value.name] = draw.integers(0, whole, dims).astype(KINDS[name])
        else:
            feeds[value.name] = draw.standard_normal(dims).astype(KINDS[name])
    return feeds

"""Converting a model with gigabytes of external data, against `cp` plus `sha256sum` of the data.

`python docs/benchmarks/external_data.py [--gigabytes 3] [--folder DIR]`; needs three times the
space. The data is written for real, not sparse, and read once before anything is measured. It is
written by a process of its own: the peak that the system tells of a child begins with its parent's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from timing import Run, run

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

WIDTH = 4096
BYTES = WIDTH * WIDTH * 4


def build(folder: Path, gigabytes: float) -> Path:
    """Write layers of MatMul and GELU, written out, whose weights lie beside the model."""
    import numpy as np
    from onnx import TensorProto, helper

    constants = {"root": 2**0.5, "one": 1.0, "half": 0.5}
    stored = [
        helper.make_tensor(name, TensorProto.FLOAT, [], [value])
        for name, value in constants.items()
    ]
    layers, nodes, x = max(1, round(gigabytes * 1e9 / BYTES)), [], "x"
    block = np.random.default_rng(0).standard_normal(WIDTH * WIDTH, np.float32).tobytes()
    with (folder / "model.onnx.data").open("wb") as data:
        for layer in range(layers):
            stored.append(external(f"weight{layer}", layer * BYTES))
            nodes += written_out(layer, x)
            x = f"act{layer}"
            data.write(layer.to_bytes(4, "little") + block[4:])
    dims = ["batch", WIDTH]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    result = helper.make_tensor_value_info(x, TensorProto.FLOAT, dims)
    graph = helper.make_graph(nodes, "layers", [given], [result], stored)
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def external(name: str, offset: int) -> TensorProto:
    """Describe a square weight that lies in the data file at `offset`."""
    from onnx import TensorProto

    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[WIDTH, WIDTH])
    tensor.data_location = TensorProto.EXTERNAL
    where = {"location": "model.onnx.data", "offset": str(offset), "length": str(BYTES)}
    for key, value in where.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def written_out(layer: int, x: str) -> list[NodeProto]:
    """Write a MatMul and the five nodes of GELU."""
    from onnx import helper

    steps = (
        ("MatMul", [x, f"weight{layer}"], "wide"),
        ("Div", ["wide", "root"], "div"),
        ("Erf", ["div"], "erf"),
        ("Add", ["erf", "one"], "add"),
        ("Mul", ["wide", "add"], "mul"),
        ("Mul", ["mul", "half"], "act"),
    )
    own = {"wide", "div", "erf", "add", "mul", "act"}
    return [
        helper.make_node(op, [f"{i}{layer}" if i in own else i for i in inputs], [f"{to}{layer}"])
        for op, inputs, to in steps
    ]


def shell(data: Path, copy: Path) -> Run:
    """Copy and hash the data with the system's own tools."""
    copied, hashed = run(["cp", str(data), str(copy)]), run(["sha256sum", str(data)])
    copy.unlink()
    return Run(copied.seconds + hashed.seconds, max(copied.peak_mb, hashed.peak_mb))


def convert(model: Path, target: Path) -> Run:
    """Convert without verifying, then remove what was written."""
    words = ["convert", str(model), "--opset", "activations", "-o", str(target), "--no-verify"]
    ended = run([sys.executable, "-m", "oprep", *words])
    for path in target.parent.iterdir():
        if path.name.startswith(target.name) or path.suffix == ".data":
            path.unlink()
    return ended


def main() -> None:
    """Measure both in turn and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=3.0)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--build", type=Path, default=None, help="only write the model there")
    options = parser.parse_args()
    if options.build:
        build(options.build, options.gigabytes)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        source, target = Path(name, "in"), Path(name, "out")
        source.mkdir(), target.mkdir()
        size = ["--gigabytes", str(options.gigabytes)]
        run([sys.executable, __file__, "--build", str(source), *size])
        model = source / "model.onnx"
        data = source / "model.onnx.data"
        run(["sha256sum", str(data)])
        runs = []
        for _ in range(options.rounds):
            theirs = shell(data, target / "copy")
            time.sleep(1)
            runs.append((convert(model, target / "model.onnx"), theirs))
            time.sleep(1)
        ours = min((a for a, _ in runs), key=lambda r: r.seconds)
        theirs = min((b for _, b in runs), key=lambda r: r.seconds)
        print(f"{data.stat().st_size / 1e9:.2f} GB of external data, best of {options.rounds}")
        print(f"oprep convert      {ours.seconds:6.1f} s  peak {ours.peak_mb:5.0f} MB (budget 250)")
        print(f"cp and sha256sum   {theirs.seconds:6.1f} s")
        print(f"ratio {ours.seconds / theirs.seconds:.2f}")


if __name__ == "__main__":
    main()

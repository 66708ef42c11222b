"""Export GELU blocks with both of PyTorch's exporters; the results are committed beside this file.

`python tests/data/exports/make.py FOLDER`. Source paths that the exporter records are left out.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import onnx
import torch


class Block(torch.nn.Module):
    """A layer and its activation, twice."""

    def __init__(self, activation: torch.nn.Module) -> None:
        super().__init__()
        self.up, self.act, self.down = torch.nn.Linear(4, 8), activation, torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.down(self.act(self.up(x))))


ACTIVATIONS = {
    "gelu": torch.nn.GELU(),
    "gelu_tanh": torch.nn.GELU(approximate="tanh"),
    "silu": torch.nn.SiLU(),
    "hardswish": torch.nn.Hardswish(),
    "hardsigmoid": torch.nn.Hardsigmoid(),
    "leaky_relu": torch.nn.LeakyReLU(0.2),
}


def export(name: str, dtype: torch.dtype, *, dynamo: bool, path: Path) -> None:
    """Export one block to `path`, at the opset each exporter knows best."""
    torch.manual_seed(0)
    block = Block(ACTIVATIONS[name]).to(dtype).eval()
    words = {"input_names": ["x"], "output_names": ["y"], "dynamo": dynamo}
    if dynamo:
        batch = torch.export.Dim("batch")
        words |= {"opset_version": 18, "dynamic_shapes": ({0: batch},), "external_data": False}
    else:
        words |= {"opset_version": 17, "dynamic_axes": {"x": {0: "batch"}}}
    torch.onnx.export(block, (torch.randn(2, 4, dtype=dtype),), path, verbose=False, **words)
    model = onnx.load(path)
    for node in model.graph.node:
        kept = [entry for entry in node.metadata_props if "stack_trace" not in entry.key]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(model, path)


def main(folder: Path) -> None:
    """Export every activation with both exporters, GELU in float16 too."""
    warnings.simplefilter("ignore")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ACTIVATIONS:
        for dtype in (torch.float32, torch.float16) if name == "gelu" else (torch.float32,):
            half = "_half" if dtype is torch.float16 else ""
            export(name, dtype, dynamo=True, path=folder / f"{name}{half}_dynamo_18.onnx")
            export(name, dtype, dynamo=False, path=folder / f"{name}{half}_torchscript_17.onnx")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent)

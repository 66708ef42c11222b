"""Rewriting a captured program, against capturing it: the 12 layers of an encoder.

`python docs/benchmarks/program_rewrite.py [--layers 12] [--rounds 9]`. Everything runs in one
process, in turn, in CPU time: `torch.export`, then indexing and matching, then the rewrite itself,
which copies the graphs, puts the new nodes in and makes a valid program of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

from oprep.converters.programs.conversion import ProgramConversion
from oprep.converters.programs.ops import install
from oprep.converters.programs.program import Program
from oprep.opsets.load import load_opset
from oprep.opsets.rule import Opset

BUDGET = 0.05
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


def model(layers: int) -> tuple[torch.nn.Module, torch.Tensor, Any]:
    """Make an encoder in training mode, with a free batch and length."""
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, activation="gelu", batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    dims = {0: torch.export.Dim("batch", max=64), 1: torch.export.Dim("length", max=128)}
    return encoder, torch.randn(2, 16, 64), (dims,)


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """Run something and tell the CPU seconds it took."""
    began = time.process_time()
    made = action()
    return time.process_time() - began, made


def one_round(
    opset: Opset, encoder: torch.nn.Module, x: torch.Tensor, dims: Any, sites: int
) -> tuple[tuple[float, ...], int]:
    """Give the ratio and the seconds of each step, and the number of nodes."""
    capture, exported = timed(lambda: torch.export.export(encoder, (x,), dynamic_shapes=dims))
    program = Program(exported, "encoder", "object", "export")
    index, conversion = timed(lambda: ProgramConversion(program, [opset]))
    match, plan = timed(conversion.plan)
    rewrite, made = timed(lambda: conversion.rewritten(plan.matches))
    assert len(plan.matches) == sites
    assert sum("bench" in str(node.target) for node in made.graph.nodes) == sites
    return (rewrite / capture, capture, index, match, rewrite), len(exported.graph.nodes)


def main() -> None:
    """Measure all steps in each round and print the best round by its ratio, and the middle one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    opset = load_opset(RULE, "gelu.toml")
    install(opset.ops, {}, None)
    encoder, x, dims = model(options.layers)
    rows = []
    for number in range(options.rounds + 1):
        row, nodes = one_round(opset, encoder, x, dims, options.layers)
        if number:  # the first round imports and fills caches
            rows.append(row)
    sizes = f"{options.layers} layers, {nodes} nodes, {options.layers} sites"
    print(f"{sizes}, {options.rounds} rounds")
    rows.sort()
    for name, row in (("best", rows[0]), ("middle", rows[len(rows) // 2])):
        ratio, *seconds = row
        capture, index, match, rewrite = (1000 * item for item in seconds)
        print(f"{name:7} capture {capture:7.1f} ms, index {index:5.1f}, match {match:5.1f}, "
              f"rewrite {rewrite:5.1f}: {100 * ratio:.1f} % of the capture (budget "
              f"{100 * BUDGET:.0f} %)")  # fmt: skip


if __name__ == "__main__":
    main()

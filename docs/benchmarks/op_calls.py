"""What one call of a registered op costs in eager mode, against `torch.library.custom_op`.

`python docs/benchmarks/op_calls.py [--rounds 9]`. The same class computes both; 8 elements, one
thread, so that the time is the overhead. The ratio of each round is taken within the round, and the
median of them is told: the two take turns, so that a busy machine touches both.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import oprep
from oprep import Rp

CALLS = 4000


class Swish(Rp, name="bench::swish"):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, s = ctx.saved_tensors
        return grad * (s + x * s * (1 - s))


def custom_op() -> Callable[[Tensor], Tensor]:
    """Give the same op made with `torch.library.custom_op`; backward computes `s` again."""

    @torch.library.custom_op("bench::swish_custom", mutates_args=())
    def swish(x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)

    def setup(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s + x * s * (1 - s))

    swish.register_autograd(backward, setup_context=setup)
    swish.register_fake(torch.empty_like)
    return swish


def microseconds(call: Callable[[], Any]) -> float:
    """Time one call, the mean of many."""
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - began) / CALLS * 1e6


def main() -> None:
    """Print the microseconds and ratios of three ways to call."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    ours, theirs, bare = oprep.register_autograd(Swish), custom_op(), Swish.apply
    flat, leaf = torch.randn(8), torch.randn(8, requires_grad=True)
    ones = torch.ones(8)
    ways: dict[str, Callable[[Any], Callable[[], Any]]] = {
        "no gradient": lambda op: lambda: op(flat),
        "gradient, forward": lambda op: lambda: op(leaf),
        "gradient, both": lambda op: lambda: torch.autograd.grad(op(leaf), leaf, ones),
    }
    print("| call | registered, us | custom_op, us | ratio | autograd.Function, us |")
    print("|---|---|---|---|---|")
    for name, way in ways.items():
        rows = []
        for _ in range(rounds):
            rows.append([microseconds(way(op)) for op in (ours, theirs, bare)])
        mine, other, least = (statistics.median(column) for column in zip(*rows, strict=True))
        ratio = statistics.median(row[0] / row[1] for row in rows)
        print(f"| {name} | {mine:.1f} | {other:.1f} | {ratio:.2f} | {least:.1f} |")


if __name__ == "__main__":
    main()

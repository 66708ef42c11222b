"""Exported programs for tests of archives; built where torch is, given as bytes."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable
from typing import Any

NAMES = ("rich", "plain", "dynamic", "strict", "loops", "text", "nested", "lstm", "decomposed",
         "custom", "odd_names", "relu", "half")  # fmt: skip


def build() -> dict[str, Any]:
    """Export every model, save it and give the bytes as arrays of uint8."""
    import numpy as np
    import torch

    made = {}
    for name in NAMES:
        torch.manual_seed(0)
        buffer = io.BytesIO()
        torch.export.save(BUILDERS[name](), buffer)
        made[name] = np.frombuffer(buffer.getvalue(), np.uint8)
    return made


def rich() -> Any:
    """Tied weights, buffers that change, constants, branches, no_grad, autocast, nested inputs."""
    import torch
    from torch import nn

    class Rich(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = nn.Linear(4, 4)
            self.second.weight = self.first.weight
            self.register_buffer("calls", torch.zeros(()))
            self.register_buffer("mask", torch.ones(3), persistent=False)
            self.constant = torch.ones(2)

        def forward(self, x, y, *, scale=2.0, flag=None):
            self.calls.add_(1)
            a = self.second(nn.functional.gelu(self.first(x))) + y["k"][0].sum()
            a = a + self.mask.sum() + self.constant.sum()
            with torch.no_grad():
                quiet = a.relu() * 2
            z = torch.cond(a.shape[0] > 4, lambda t: t.sin(), lambda t: t.cos().relu(), (a,))
            with torch.autocast("cpu", dtype=torch.bfloat16):
                low = a @ a.t()
            top = torch.topk(a, 2, dim=0)[0]
            return {"o": quiet * scale, "z": (z, low), "n": None, "i": 3, "top": top,
                    "inf": x.masked_fill(x > 0, float("-inf"))}  # fmt: skip

    example = (torch.randn(6, 4), {"k": [torch.ones(3), torch.ones(1)]})
    rows = torch.export.Dim("batch", min=5, max=64)
    shapes = {"x": {0: rows}, "y": {"k": [None, None]}, "scale": None, "flag": None}
    return torch.export.export(Rich(), example, {"scale": 2.0, "flag": None}, dynamic_shapes=shapes)


def plain() -> Any:
    """Two linear layers and a GELU."""
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    return torch.export.export(model, (torch.randn(3, 4),))


def relu() -> Any:
    """One op without weights."""
    import torch

    return torch.export.export(torch.nn.ReLU(), (torch.ones(2, 3),))


def half() -> Any:
    """Weights of float16 and complex numbers."""
    import torch
    from torch import nn

    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 6).half())
            self.turn = nn.Parameter(torch.randn(3, dtype=torch.complex64))

        def forward(self, x):
            return x @ self.weight.t(), self.turn * (1 + 2j)

    return torch.export.export(Half(), (torch.randn(2, 6).half(),))


def dynamic() -> Any:
    """Derived dims and guards."""
    import torch

    class Shift(torch.nn.Module):
        def forward(self, x, y):
            return (x - 1)[: x.shape[0] // 2], y

    rows = torch.export.Dim("rows", max=100)
    shapes = {"x": {0: 8 * rows}, "y": {0: 8 * rows + 1}}
    return torch.export.export(
        Shift(), (torch.randn(16, 3), torch.randn(17)), dynamic_shapes=shapes
    )


def strict() -> Any:
    """Every kind of size that torch computes, captured by dynamo."""
    import torch

    class Sizes(torch.nn.Module):
        def forward(self, x, y):
            rows, columns = x.shape
            largest = torch.sym_max(rows, columns) - torch.sym_min(rows, 3) + 3
            return (
                x.new_ones(rows % 4 + 1, (columns + 7) // 8), x.reshape(-1), torch.cat([x, y]),
                x.new_ones(largest, rows**2), x.unfold(0, 3, 2),
                torch.nn.functional.interpolate(x[None, None], scale_factor=1.7),
                x.new_ones(torch.sym_int(rows * 1.7)),
                torch.cond(rows * 2 > y.shape[0] + 1, torch.sin, torch.cos, (x,)),
            )  # fmt: skip

    columns = torch.export.Dim("columns", min=3)
    rows = torch.export.Dim("rows", min=4, max=4096)
    shapes = {"x": {0: rows, 1: columns}, "y": {0: torch.export.Dim.DYNAMIC, 1: columns}}
    example = (torch.randn(18, 16), torch.randn(12, 16))
    return torch.export.export(Sizes(), example, dynamic_shapes=shapes, strict=True)


def loops() -> Any:
    """A while loop and a scan."""
    import torch

    class Loops(torch.nn.Module):
        def forward(self, x):
            start = torch.zeros((), dtype=torch.int64)
            count, y = torch.while_loop(
                lambda i, a: i < 5, lambda i, a: (i + 1, a.sin()), (start, x)
            )
            last, all_sums = torch._higher_order_ops.scan(
                lambda a, b: ((a + b).clone(), (a * b).clone()), x[0].clone(), x
            )
            return count, y, last, all_sums

    return torch.export.export(Loops(), (torch.randn(4, 3),))


def text() -> Any:
    """A text among the inputs."""
    import torch

    class Text(torch.nn.Module):
        def forward(self, x, mode: str = "tanh"):
            return torch.nn.functional.gelu(x, approximate=mode)

    return torch.export.export(Text(), (torch.randn(2, 3), "tanh"))


def nested() -> Any:
    """A defaultdict as input, a dict as output."""
    import torch

    class Nested(torch.nn.Module):
        def forward(self, d):
            return {key: value + 1 for key, value in d.items()}

    given = defaultdict(list, {"x": torch.ones(2), "y": torch.ones(3)})
    return torch.export.export(Nested(), (given,))


def lstm() -> Any:
    """An LSTM, attention, an embedding and ops with several results."""
    import torch
    from torch import nn

    class Lstm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.LSTM(3, 4, bidirectional=True, batch_first=True)
            self.table = nn.Embedding(9, 3)

        def forward(self, i):
            y, _ = self.cells(self.table(i))
            return nn.functional.scaled_dot_product_attention(y, y, y), y.chunk(2, -1)

    return torch.export.export(Lstm(), (torch.randint(0, 9, (2, 5)),))


def decomposed() -> Any:
    """A program in inference IR, with a mutated buffer in its signature."""
    import torch

    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls.add_(1)
            return torch.nn.functional.gelu(x) * self.calls

    return torch.export.export(Counter(), (torch.randn(3),)).run_decompositions()


def custom() -> Any:
    """A call of an op that torch does not have."""
    import torch

    register()

    class Custom(torch.nn.Module):
        def forward(self, x):
            return torch.ops.pt2_tests.fast(x, 2.0)

    return torch.export.export(Custom(), (torch.randn(2, 3),))


def register() -> None:
    """Register the op that `custom` calls."""
    import torch

    if not hasattr(torch.ops.pt2_tests, "fast"):
        library = torch.library.Library("pt2_tests", "DEF")
        library.define("fast(Tensor x, float k=1.0) -> Tensor")
        library.impl("fast", lambda x, k=1.0: x * k, "CompositeExplicitAutograd")
        KEPT.append(library)


def odd_names() -> Any:
    """Parameters whose names are no identifiers."""
    import torch
    from torch import nn

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p = nn.ParameterDict({"a-b": nn.Parameter(torch.ones(2))})
            self.m = nn.ModuleDict({"x y": nn.Linear(2, 2)})

        def forward(self, x):
            return self.m["x y"](x) + self.p["a-b"]

    return torch.export.export(Odd(), (torch.randn(4, 2),))


KEPT: list[Any] = []
BUILDERS: dict[str, Callable[[], Any]] = {name: globals()[name] for name in NAMES}

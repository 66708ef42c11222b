"""Small PyTorch models as files, made in the child; the tests themselves need no torch."""

from __future__ import annotations

import base64
from pathlib import Path

from torch_child import call

GELU = """
format = 1
[[op]]
name = "acme::gelu"
onnx = { domain = "com.acme", type = "Gelu", version = 1 }
body = "0.5 * x * (1 + erf(x / sqrt(2)))"
[[rule]]
name = "gelu"
replace = ["0.5 * x * (1 + erf(x / sqrt(2)))", "gelu(x)"]
with = "acme::gelu(x)"
"""

SEVEN = '''
import torch

class Relu7(torch.autograd.Function):
    """relu with a gradient of its own: seven times what comes in."""

    @staticmethod
    def forward(ctx, x):
        return torch.clamp(x, min=0)

    @staticmethod
    def backward(ctx, grad):
        return 7 * grad
'''

FACTORY = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 8)
        self.act = torch.nn.GELU()

    def forward(self, x, scale=None):
        y = self.act(self.a(x))
        return y if scale is None else y * scale

def build():
    torch.manual_seed(3)
    return Net()

def example_inputs():
    return (torch.ones(2, 4),), {"scale": torch.tensor(2.0)}
"""


def write(folder: Path, name: str, text: str) -> Path:
    """Write a text file."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def archive(folder: Path, name: str = "mlp.pt2", kind: str = "mlp") -> Path:
    """Write an exported program."""
    path = folder / name
    path.write_bytes(base64.b64decode(call(__file__, "_archive", {"kind": kind}, 120)))
    return path


def _archive(kind: str) -> str:
    import io

    import torch

    torch.manual_seed(0)
    dims = {"x": {0: torch.export.Dim("batch", min=1, max=64)}}
    made = torch.export.export(_module(kind), (torch.randn(3, 8),), dynamic_shapes=dims)
    held = io.BytesIO()
    torch.export.save(made, held)
    return base64.b64encode(held.getvalue()).decode()


def _module(kind: str):
    import torch
    import torch.nn.functional as F

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(8, 8)
            self.norm = torch.nn.BatchNorm1d(8)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            y = self.a(x)
            if kind == "relu":
                return torch.relu(y)
            self.calls.add_(1)
            y = self.norm(F.gelu(y))
            z = torch.cond(x.sum() > 0, lambda y: F.gelu(y) * 2, lambda y: torch.tanh(y), (y,))
            with torch.no_grad():
                w = F.gelu(y)
            return {"z": z, "w": w}, self.calls + 0

    class Mlp(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(8, 16)
            self.b = torch.nn.Linear(16, 4)
            self.act = torch.nn.GELU()

        def forward(self, x):
            return self.b(self.act(self.a(x)))

    return Mlp() if kind == "mlp" else Model()

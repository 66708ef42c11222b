"""A small PyTorch model, GELU and SiLU between three layers: what `mlp.py:build` names.

`mlp.pt2` is this model exported, `mlp.safetensors` holds its weights; make.py writes both.
"""

from __future__ import annotations

import torch


class Mlp(torch.nn.Module):
    """Three layers on 16 features."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(16, 32)
        self.act = torch.nn.GELU()
        self.mix = torch.nn.Linear(32, 32)
        self.gate = torch.nn.SiLU()
        self.down = torch.nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Give 4 scores for each row of `x`."""
        return self.down(self.gate(self.mix(self.act(self.up(x)))))


def build() -> Mlp:
    """Build the model; oprep calls it without arguments."""
    torch.manual_seed(0)
    return Mlp()


def example_inputs() -> tuple[torch.Tensor, ...]:
    """Give the inputs of one call: oprep captures the model with them."""
    return (torch.linspace(-3, 3, 32).reshape(2, 16),)

"""SiLU with a backward written by hand, as `swish.toml` names it."""

from __future__ import annotations

import torch

from oprep import Rp


class Swish(Rp):
    """x * sigmoid(x); keeps x alone for the way back, and not the sigmoid."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s + x * s * (1 - s))

"""The contract of an op, written once: everything that is registered derives from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

from oprep.opsets.rp.messages import misused

Sharding = str | Callable[..., Any]

AUTOCAST = ("keep", "lower", "float32", "widest")
SHARDING = ("elementwise", "rowwise", "reduce", "replicate", "none")
VMAP = ("generate", "loop")
LAYOUTS = ("any", "contiguous")


@dataclass(frozen=True)
class Contract:
    """Say what an op takes, gives and promises.

    `schema` is a torch schema without the name, `(Tensor x, float eps=1e-05) -> Tensor`. `mutates`
    names the arguments that forward changes. `differentiable=False` declares an op without
    gradient: asking for one raises. `double_backward` declares that the gradient may be
    differentiated again (forward is then run again for it). `random` says that forward draws
    random numbers. `dtypes` are those that tensors may have (all, where empty). `autocast` says
    what inputs become under autocast: `keep`, `lower` (autocast's dtype), `float32` or `widest` of
    the inputs; the code inside never sees autocast. `sharding` tells DTensor what may be split:
    `elementwise` (every dim), `rowwise` (every dim but the last), `reduce` (every dim; the result
    is the sum over the parts), `replicate` (nothing), a function as
    `torch.distributed.tensor.experimental.register_sharding` takes, or `none` (no rule). `vmap` is
    `generate` (run forward on batched tensors) or `loop` (one call per element). `layouts` is
    `any` or `contiguous` (inputs are made so before the class sees them).
    """

    name: str
    schema: str
    mutates: tuple[str, ...] = ()
    differentiable: bool = True
    double_backward: bool = False
    random: bool = False
    dtypes: tuple[torch.dtype, ...] = ()
    layouts: str = "any"
    vmap: str = "generate"
    autocast: str = "keep"
    sharding: Sharding = "replicate"

    def __post_init__(self) -> None:
        """Refuse words that mean nothing and promises that exclude each other."""
        for word, known in _CHOICES.items():
            value = getattr(self, word)
            if isinstance(value, str) and value not in known:
                raise misused(
                    f"`{word}` of `{self.name}` is `{value}`",
                    notes=("known: " + ", ".join(f"`{name}`" for name in known),),
                    help=f"write one of them as `{word}`",
                )
        if self.random and self.double_backward:
            raise misused(
                f"`{self.name}` cannot be random and have a double backward",
                notes=("the second gradient runs forward again, which would draw other numbers",),
                help="leave `double_backward` out",
            )
        if self.mutates and self.double_backward:
            raise misused(
                f"`{self.name}` changes an argument and so has no double backward",
                help="leave `double_backward` out",
            )


_CHOICES = {"autocast": AUTOCAST, "sharding": SHARDING, "vmap": VMAP, "layouts": LAYOUTS}

WORDS = frozenset({field.name for field in fields(Contract)} - {"name"}) | {"fake", "definition"}
"""What may be said of an op in a class line or in `register_autograd`."""


def dtypes_of(given: Sequence[torch.dtype | str]) -> tuple[torch.dtype, ...]:
    """Read dtypes given as such or by name."""
    found = []
    for item in given:
        dtype = getattr(torch, item, None) if isinstance(item, str) else item
        if not isinstance(dtype, torch.dtype):
            raise misused(f"unknown dtype `{item}`", help="write a torch dtype or its name")
        found.append(dtype)
    return tuple(found)

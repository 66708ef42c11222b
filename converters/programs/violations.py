"""A call of a custom op, and what is said of one that does not keep its contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from oprep.converters import magnitudes
from oprep.converters.programs.tensors import dtype_name, to_array
from oprep.opsets.errors import ExitCode, OprepError

SHOWN, LONGEST = 4, 240


@dataclass
class Call:
    """One call of an op; `failed` is what it raised."""

    op: torch._ops.OpOverload
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    failed: Exception | None = None

    def copied(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Copy the arguments."""
        made: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map_only(
            Tensor, lambda item: item.detach().clone(), (self.args, dict(self.kwargs))
        )
        return made

    def named(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Iterator[tuple[str, Tensor]]:
        """Give the tensors among arguments with the names of their parameters."""
        parameters = [item.name for item in self.op._schema.arguments]
        for name, value in [*zip(parameters, args, strict=False), *kwargs.items()]:
            for item in pytree.tree_leaves(value):
                if isinstance(item, Tensor):
                    yield name, item

    def declared(self) -> tuple[set[str], set[str]]:
        """Give the parameters that the schema says are written to, and those that alias at all."""
        held = [(item.name, item.alias_info) for item in self.op._schema.arguments]
        known = [(name, info) for name, info in held if info is not None]
        return {name for name, info in known if info.is_write}, {name for name, _ in known}


@dataclass(frozen=True)
class Refusal:
    """What an op does wrong, both sides of it, and what helps."""

    fact: str
    sides: tuple[str, ...]
    help: str = ""

    @staticmethod
    def of_error(fact: str, error: Exception, help: str = "") -> Refusal:
        """Show what was raised."""
        if isinstance(error, OprepError):
            return Refusal(fact, (error.message,), help)
        text = " ".join(str(error).split()) or type(error).__name__
        text = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
        return Refusal(fact, (f"{type(error).__name__}: {text}",), help)

    def error(self, call: Call, where: str) -> OprepError:
        """Make the error that a user sees."""
        taken = ", ".join(f"`{n}` {show(t)}" for n, t in call.named(call.args, call.kwargs))
        notes = self.sides if len(self.sides) > 2 else (*self.sides, f"the site passes {taken}")
        return OprepError(
            f"`{op_name(call.op)}` {self.fact}",
            where,
            notes[:3],
            self.help or f"correct `{op_name(call.op)}`, or replace with another op",
            ExitCode.VERIFICATION,
        )


def op_name(op: torch._ops.OpOverload) -> str:
    """Name an op as rules do."""
    return str(op._schema.name)


def show(tensor: Tensor, *, strides: bool = False, content: bool = False) -> str:
    """Write dtype and shape of a tensor, its strides or its first elements."""
    text = f"{dtype_name(tensor.dtype)} {[str(dim) for dim in tensor.shape]}".replace("'", "")
    if strides:
        text += f" with strides {list(tensor.stride())}"
    if content:
        first = [f"{float(item.real):.4g}" for item in tensor.reshape(-1)[:SHOWN]]
        text = f"[{', '.join(first)}{', …' if tensor.numel() > SHOWN else ''}]"
    return text


def same_content(left: Tensor, right: Tensor) -> bool:
    """Tell whether two tensors hold the same bits."""
    return magnitudes.same_bits(to_array(left), to_array(right))

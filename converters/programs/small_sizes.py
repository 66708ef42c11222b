"""Sizes 0 and 1 of a free dim: run by the original and by the program, and compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.export import ExportedProgram

from oprep.converters.dynamic_dims import OPTION
from oprep.converters.programs.dynamic import SMALLEST_TRACED, Free, resized
from oprep.converters.programs.exporting import quiet
from oprep.converters.programs.held import private_copy, same_random_state
from oprep.converters.programs.program import Example
from oprep.converters.programs.user_code import told
from oprep.opsets.errors import ExitCode, OprepError

SMALL = (1, 0)


def with_small_sizes(
    model: nn.Module,
    exported: ExportedProgram,
    example: Example,
    free: Sequence[Free],
    name: str,
) -> tuple[Free, ...]:
    """Run the sizes below 2 that the ranges allow; raise a bound that nobody asked for.

    A size that the user asked for and the program gets wrong is an error (exit 3) with both sides.
    """
    found = []
    for item in free:
        low, why = item.low or 0, item.why
        for size in SMALL if item.times == 1 else ():
            if size < low or (item.high is not None and size > item.high):
                continue
            fault = _fault(model, exported, resized(example, free, {item.name: size}))
            if fault and item.asked[0] is not None:
                raise _refused(item, size, fault, name)
            if fault:
                low, why = size + 1, f"at {size} {fault}"
                break
        found.append(replace(item, low=low, why=why))
    return tuple(found)


def _fault(model: nn.Module, exported: ExportedProgram, example: Example) -> str:
    """Say why a size does not work; empty where both give the same."""
    try:
        wanted = run(model, example)
    except Exception as error:  # the user's code
        return f"the model itself refuses it: {told(error)}"
    try:
        got = run(exported.module(), example)
    except Exception as error:  # a guard or an op
        return f"the program refuses it: {told(error)}"
    return "" if same(wanted, got) else "the program gives another result than the model"


def run(model: nn.Module, example: Example) -> list[Any]:
    """Run a copy of a module on copies of the inputs, always with the same random numbers.

    Gradients are on as in a capture: some modules take another way without them.
    """
    values, spec = pytree.tree_flatten((example.args, dict(example.kwargs)))
    copied = [
        value.detach().clone().requires_grad_(value.requires_grad)
        if isinstance(value, Tensor)
        else value
        for value in values
    ]
    args, kwargs = pytree.tree_unflatten(copied, spec)
    with quiet(), torch.enable_grad(), same_random_state(seed=0):
        made = pytree.tree_leaves(private_copy(model)(*args, **kwargs))
    return [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in made]


def same(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Compare results by dtype, shape and value within torch's usual tolerances."""
    try:
        torch.testing.assert_close(list(left), list(right), equal_nan=True)
    except (AssertionError, TypeError, ValueError):
        return left == right if not any(isinstance(x, Tensor) for x in (*left, *right)) else False
    return True


def _refused(item: Free, size: int, fault: str, name: str) -> OprepError:
    wanted = item.written(SMALLEST_TRACED if size else 1, item.asked[1])
    return OprepError(
        f"dim `{item.name}` cannot have size {size} in `{name}`",
        where=OPTION,
        notes=(f"asked for is `{item.written(*item.asked)}`; at {size} {fault}",),
        help=f"ask for `{wanted}`",
        exit_code=ExitCode.MODEL,
    )

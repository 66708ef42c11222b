"""Capture by torch.jit.trace, for modules that torch.export refuses.

A trace keeps the way that one set of inputs took: what depends on data is frozen. That is said,
and the result is compared with the module's on other inputs.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.export import ExportedProgram

from oprep.converters.programs.exporting import quiet, reason, user_line
from oprep.converters.programs.program import Example
from oprep.converters.programs.small_sizes import run, same
from oprep.converters.programs.torchscript import Form, apart, converted
from oprep.opsets.errors import ExitCode, OprepError

TRIES = 3


@dataclass(frozen=True)
class Trace:
    """A module that replays the trace, and the lines whose outcome it froze."""

    module: nn.Module
    frozen: tuple[str, ...]


def trace(model: nn.Module, example: Example, name: str) -> Trace:
    """Trace a module of ours with one example; `forward` may take and give any containers."""
    leaves, spec = pytree.tree_flatten((example.args, dict(example.kwargs)))
    places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    signature, inner = inspect.signature(model.forward), model.forward
    forms: list[Form] = []

    def forward(*tensors: Tensor) -> tuple[Tensor, ...]:
        values = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            values[place] = tensor
        args, kwargs = pytree.tree_unflatten(values, spec)
        result = inner(*args, **kwargs)
        forms.append(Form.of(result))
        return tuple(leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor))

    given = apart([leaves[place] for place in places])
    model.forward = forward
    try:
        script, frozen = _traced(model, given)
    except Exception as error:  # the user's code, or what tracing cannot do
        raise OprepError(
            f"`{name}` cannot be traced",
            where=user_line(error) or name,
            notes=(reason(error),),
            exit_code=ExitCode.MODEL,
        ) from error
    finally:
        model.forward = inner
    module = converted(script, given, forms[-1].rebuild, signature, model, name)
    return Trace(module, frozen)


def _traced(model: nn.Module, given: Sequence[Tensor]) -> tuple[Any, tuple[str, ...]]:
    with quiet(), warnings.catch_warnings(record=True) as caught, torch.enable_grad():
        warnings.simplefilter("always")
        jit: Any = torch.jit
        script = jit.trace(model, tuple(given), check_trace=False, strict=False)
    frozen = [
        f"{Path(warning.filename).name}:{warning.lineno}"
        for warning in caught
        if issubclass(warning.category, jit.TracerWarning)
        and str(warning.message).startswith("Converting a tensor")
    ]
    return script, tuple(dict.fromkeys(frozen))


def frozen_note(found: Trace) -> tuple[str, ...]:
    """Say which lines depended on data when the trace was made."""
    if not found.frozen:
        return ()
    more = f" and {len(found.frozen) - 3} more" if len(found.frozen) > 3 else ""
    lines = ", ".join(f"`{line}`" for line in found.frozen[:3])
    return (f"captured by trace: what depends on data at {lines}{more} is frozen",)


def compare(
    model: nn.Module, exported: ExportedProgram, found: Trace, others: Sequence[Example], name: str
) -> None:
    """Compare module and program on other inputs; exit 3 where the trace froze what differs."""
    program = exported.module()
    for example in others[:TRIES]:
        try:
            wanted = run(model, example)
        except Exception:  # values that the module itself refuses tell nothing
            continue
        try:
            equal, fault = same(wanted, run(program, example)), "gives another result"
        except Exception as error:  # a guard or an op
            equal, fault = False, f"fails: {reason(error)}"
        if not equal:
            frozen = f"frozen when traced: {', '.join(f'`{line}`' for line in found.frozen[:3])}"
            raise OprepError(
                f"the trace of `{name}` does not compute what the module computes",
                where=found.frozen[0] if found.frozen else name,
                notes=(
                    f"on input set `{example.name}` the trace {fault}",
                    *((frozen,) if found.frozen else ()),
                ),
                help="write the branch with `torch.cond` or `torch.where` and use "
                "`--capture export`",
                exit_code=ExitCode.MODEL,
            )

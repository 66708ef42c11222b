"""Calls that a Python caller gives as inputs: tensors, or `(args, kwargs)`, beside stored sets."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def is_call(item: Any) -> bool:
    """Tell whether an input set is a call: a tensor, or a tuple of arguments."""
    torch = sys.modules.get("torch")
    return isinstance(item, tuple) or (torch is not None and isinstance(item, torch.Tensor))


def as_sets(inputs: Any) -> Any:
    """Take `(x, y)` with tensors in it as one call, not as several input sets."""
    if isinstance(inputs, tuple) and any(is_call(item) for item in inputs):
        together = len(inputs) == 2 and isinstance(inputs[0], tuple)
        return [inputs] if not together or isinstance(inputs[1], Mapping) else list(inputs)
    return [inputs] if is_call(inputs) and not isinstance(inputs, tuple) else inputs


def calls(inputs: Sequence[Any]) -> list[Any]:
    """Give the calls among the input sets, as examples."""
    found = [item for item in inputs if is_call(item)]
    if not found:
        return []
    from oprep.converters.programs.program import Example

    examples = []
    for number, item in enumerate(found, 1):
        args: Any = item if isinstance(item, tuple) else (item,)
        kwargs: Any = {}
        if len(args) == 2 and isinstance(args[0], tuple) and isinstance(args[1], Mapping):
            args, kwargs = args
        examples.append(Example(f"given {number}", tuple(args), dict(kwargs)))
    return examples


def stored(inputs: Sequence[Any]) -> list[Path | Mapping[str, Any]]:
    """Give the other input sets: files, and arrays by name."""
    return [item for item in inputs if not is_call(item)]

"""Names of flattened inputs: `x`, `batch_mask`, `xs_0`, as torch.export calls its placeholders.

They follow the parameters of `forward` and the path through containers: dict keys, positions and
field names joined by `_`, in lower case.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

import torch.utils._pytree as pytree
from torch import nn

from oprep.opsets.errors import ExitCode, OprepError

Arguments = Mapping[str, Any]


def bound(model: nn.Module, args: tuple[Any, ...], kwargs: Arguments, what: str) -> dict[str, Any]:
    """Bind a call to the parameters of `forward`, in its order; exit 3 where it does not fit.

    What a `**kwargs` takes is named like any other keyword.
    """
    signature = explicit_signature(model, kwargs)
    try:
        return dict(signature.bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise OprepError(
            f"the inputs do not fit `{type(model).__name__}.forward`",
            where=what,
            notes=(f"it takes {signature}"[:200], str(error)),
            help="give what `forward` takes",
            exit_code=ExitCode.MODEL,
        ) from error


def in_order(model: nn.Module, args: tuple[Any, ...], kwargs: Arguments, what: str) -> Arguments:
    """Give keywords in the order in which `forward` names them: torch mixes up others."""
    found = bound(model, args, kwargs, what)
    return {name: kwargs[name] for name in found if name in kwargs}


def leaf_names(model: nn.Module, args: tuple[Any, ...], kwargs: Arguments) -> list[str]:
    """Name every leaf of a call, in the order in which torch flattens it."""
    found = inspect.signature(model.forward).bind_partial(*args).arguments
    leaves, _ = pytree.tree_flatten_with_path({**found, **kwargs})
    return [path_name(path) for path, _ in leaves]


def path_name(path: tuple[Any, ...]) -> str:
    """Join the keys of a path to a leaf into one name."""
    return "_".join(_key(entry).lower() for entry in path)


def _key(entry: Any) -> str:
    for field in ("key", "idx", "name"):
        if hasattr(entry, field):
            return re.sub(r"[^a-zA-Z0-9]", "_", str(getattr(entry, field)))
    return str(entry)


def explicit(model: nn.Module, kwargs: Arguments) -> None:
    """Let a `forward(**kwargs)` name its keywords, without which torch refuses dynamic shapes.

    `model` is a copy of ours; only what `inspect.signature` says of it changes.
    """
    signature, forward = explicit_signature(model, kwargs), model.forward
    if signature == inspect.signature(forward):
        return

    def call(*args: Any, **given: Any) -> Any:
        return forward(*args, **given)

    call.__signature__ = signature  # type: ignore[attr-defined]
    model.forward = call


def explicit_signature(model: nn.Module, kwargs: Arguments) -> inspect.Signature:
    """Give the signature of `forward` with a name for everything that a `**kwargs` takes."""
    signature = inspect.signature(model.forward)
    known = signature.parameters
    kept = [one for one in known.values() if one.kind is not one.VAR_KEYWORD]
    if len(kept) == len(known):
        return signature
    named = {one.name for one in kept}
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
        for name in kwargs
        if name not in named
    ]
    return signature.replace(parameters=[*kept, *more])

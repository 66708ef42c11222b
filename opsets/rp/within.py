"""A class that stands in for a standard op: inside it the op is the old one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch._ops import OpOverload
from torch.autograd import Function

from oprep.opsets.rp.derive import as_tuple
from oprep.opsets.rp.function import Class, backward_of, has_backward, has_setup
from oprep.opsets.rp.messages import misused, qualified

Old = Callable[[], AbstractContextManager[None]]


def taken(cls: Class, overload: OpOverload) -> int:
    """Give how many of the op's arguments the class takes; refuse one that takes more."""
    formal = len(overload._schema.arguments)
    signature = inspect.signature(cls.forward)
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return formal
    offset = not has_setup(cls)
    for count in range(formal, 0, -1):
        try:
            signature.bind(*[None] * (count + offset))
        except TypeError:
            continue
        return count
    raise misused(
        f"`{cls.__name__}` cannot stand in for `{overload}`",
        where=qualified(cls),
        notes=(f"the op: {overload._schema}", f"the class: forward{signature}"),
        help="let its `forward` take the op's arguments, or the first of them",
    )


def within(cls: Class, overload: OpOverload, old: Old) -> Class:
    """Give the class with the old op inside, taking all arguments of the op."""
    count, total = taken(cls, overload), len(overload._schema.arguments)
    body: dict[str, Any] = {"__module__": cls.__module__, "boxed_grads_call": False}
    shift = not has_setup(cls)

    def forward(*args: Any) -> Any:
        with old():
            return cls.forward(*args[: count + shift])

    body["forward"] = staticmethod(forward)
    if has_setup(cls):

        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            with old():
                cls.setup_context(ctx, inputs[:count], output)

        body["setup_context"] = staticmethod(setup_context)
    if has_backward(cls):
        written = backward_of(cls)

        def backward(ctx: Any, *grads: Any) -> Any:
            with old():
                given = as_tuple(written(ctx, *grads))
            return (*given[:count], *[None] * (total - count))

        body["backward"] = staticmethod(backward)
        body["vjp"] = staticmethod(Function.vjp)
    meta: Any = type(cls)
    made: Class = meta(cls.__name__, (cls,), body)
    return made

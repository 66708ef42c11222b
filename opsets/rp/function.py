"""`Rp`, the class that a user writes, and the questions asked about any `autograd.Function`.

Subclassing registers nothing. The words of the contract may stand in the class line
(`class Swish(Rp, name="acme::swish", random=False)`) and are kept until the class is registered.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch.autograd import Function

from oprep.opsets.rp.contract import WORDS
from oprep.opsets.rp.messages import misused

DECLARED = "__oprep_contract__"

Class = type[Function]


class RpMeta(type(Function)):  # type: ignore[misc]
    """Take the words of the contract out of the class line."""

    def __new__(
        mcls, title: str, bases: tuple[type, ...], body: dict[str, Any], /, **words: Any
    ) -> RpMeta:
        """Make the class; refuse a word that the contract does not know."""
        unknown = sorted(set(words) - WORDS - {"name"})
        if unknown:
            known = ", ".join(f"`{word}`" for word in sorted(WORDS | {"name"}))
            raise misused(
                f"unknown word `{unknown[0]}` in the class line of `{title}`",
                notes=(f"known: {known}",),
                help=f"remove `{unknown[0]}`",
            )
        made: RpMeta = super().__new__(mcls, title, bases, {**body, DECLARED: words})
        return made

    def __init__(
        cls, title: str, bases: tuple[type, ...], body: dict[str, Any], /, **words: Any
    ) -> None:
        """Let autograd make the node class of this class."""
        super().__init__(title, bases, body)


class Rp(Function, metaclass=RpMeta):
    """An op of your own: write `forward`, and `backward` where the gradient is not that of it.

    Both styles of `torch.autograd.Function` are accepted: `forward(ctx, …)`, or `forward(…)` with
    `setup_context(ctx, inputs, output)`. Further static methods that are used where they are
    there: `fake(ctx, …)` for a forward that cannot run without data, `vmap(info, in_dims, …)`.
    """


def declared(cls: Class) -> Mapping[str, Any]:
    """Give the contract words of the class line, those of its bases included."""
    words: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        own = vars(base).get(DECLARED, {})
        words = {word: value for word, value in words.items() if word != "name"}
        words.update(own)
    return words


def has_setup(cls: Class) -> bool:
    """Tell whether the class has the new style, whose forward takes no ctx."""
    return cls.setup_context is not Function.setup_context


def has_backward(cls: Class) -> bool:
    """Tell whether the class says its gradient itself."""
    return cls.backward is not Function.backward or cls.vjp is not Function.vjp


def backward_of(cls: Class) -> Callable[..., Any]:
    """Give the backward of a class as `function(ctx, *grads)`, under whichever name it has it."""
    written = cls.backward if cls.vjp is Function.vjp else cls.vjp
    if not getattr(cls, "boxed_grads_call", False):
        return written

    def unboxed(ctx: Any, *grads: Any) -> Any:
        return written(ctx, list(grads))

    return unboxed


def own_method(cls: Class, name: str) -> Any:
    """Give a static method that the class adds to what `Function` has, else None."""
    found = getattr(cls, name, None)
    return None if found is None or found is getattr(Function, name, None) else found


def takes_ctx(function: Any, arguments: int) -> bool:
    """Tell whether a function takes one positional value more than the op has arguments."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in inspect.signature(function).parameters.values() if p.kind in kinds]
    return len(names) > arguments or names[:1] == ["ctx"]

"""Check the gradient of a custom op on inputs like those of its sites."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from oprep.converters.programs.running import differentiable, drawn_like, fresh
from oprep.converters.programs.violations import Call, Refusal, same_content, show

ARITY = re.compile(r"incorrect number of gradients \(expected (\d+), got (\d+)\)")
NO_FORMULA = re.compile(r"no autograd formula|not implemented|no gradient|does not require grad")
GIVE_ONE = 'give the op a backward, or set `gradient = "none"` on the rule'


def check_gradient(call: Call) -> Refusal | None:
    """Go back through an op once, with a gradient that another branch would need, too."""
    args, kwargs = call.copied()
    leaves = [(name, item) for name, item in call.named(args, kwargs) if differentiable(item)]
    if not leaves:
        return None
    for _, item in leaves:
        item.requires_grad_()
    given = pytree.tree_map_only(
        Tensor, lambda t: fresh(t) if t.requires_grad else t, (args, kwargs)
    )
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        try:
            made = call.op(*given[0], **given[1])
        except Exception as error:  # whatever an op raises is the finding
            return Refusal.of_error("fails where a gradient is asked for", error, GIVE_ONE)
        outputs = [item for item in pytree.tree_leaves(made) if _asks(item)]
        if not outputs:
            names = ", ".join(f"`{name}`" for name, _ in leaves)
            return Refusal("has no gradient, and the site needs one",
                           (f"the gradient goes to {names} here", "its result asks for none"),
                           GIVE_ONE)  # fmt: skip
        return _back(call, outputs, leaves, given)


def _passed(item: Tensor) -> Tensor:
    return fresh(item) if item.requires_grad else item


def _asks(item: Any) -> bool:
    return isinstance(item, Tensor) and item.requires_grad


def _back(
    call: Call, outputs: list[Tensor], leaves: list[tuple[str, Tensor]], given: Any
) -> Refusal | None:
    incoming = [drawn_like(item, number) for number, item in enumerate(outputs)]
    kept = [item.clone() for item in incoming]
    read = [(name, item.detach().clone()) for name, item in call.named(*given)]
    try:
        found = torch.autograd.grad(
            outputs, [item for _, item in leaves], incoming, allow_unused=True
        )
    except Exception as error:  # whatever a backward raises is the finding
        return _of_backward(error)
    for one, other in zip(kept, incoming, strict=True):
        if not same_content(one, other):
            sides = (f"it was given {show(one, content=True)}",
                     f"afterwards that was {show(other, content=True)}")  # fmt: skip
            return Refusal("overwrites the gradient that its backward is given", sides,
                           "let its backward write into new memory")  # fmt: skip
    for (name, one), (_, other) in zip(read, call.named(*given), strict=True):
        if name not in call.declared()[0] and not same_content(one, other.detach()):
            sides = (f"`{name}` was {show(one, content=True)}",
                     f"afterwards it was {show(other.detach(), content=True)}")  # fmt: skip
            return Refusal(f"changes `{name}` in its backward", sides,
                           "let its backward write into new memory")  # fmt: skip
    if all(item is None for item in found):
        names = ", ".join(f"`{name}`" for name, _ in leaves)
        return Refusal("has no gradient, and the site needs one",
                       (f"the gradient goes to {names} here", "its backward gives none"),
                       GIVE_ONE)  # fmt: skip
    return None


def _of_backward(error: Exception) -> Refusal:
    arity = ARITY.search(str(error))
    if arity is not None:
        return Refusal(
            "gives another number of gradients than it has inputs",
            (f"it takes {arity[1]} inputs", f"its backward gives {arity[2]} gradients"),
            "return one gradient for each input, None where there is none",
        )
    if NO_FORMULA.search(str(error)):
        return Refusal.of_error("has no gradient, and the site needs one", error, GIVE_ONE)
    return Refusal.of_error("has a gradient that fails", error, "correct its backward")

"""An op that has code and a body: both must say the same, as each stands for it somewhere.

The code runs in PyTorch, the body becomes the function of an ONNX model.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from oprep.converters.programs.bodies import body_of
from oprep.converters.programs.replacement import Replacement
from oprep.converters.programs.subject import Site
from oprep.converters.programs.tensors import dtype_name
from oprep.converters.programs.violations import Call, Refusal, op_name, show
from oprep.opsets import tolerances
from oprep.opsets.rule import CustomOp, Tolerance

ROUNDINGS = 8
"""How often code and body may round differently, in what the table allows for one difference."""


def body_differs(call: Call, site: Site) -> Refusal | None:
    """Compare what an op's code gives with what its body gives."""
    op = _declared(call, site)
    random = torch.Tag.nondeterministic_seeded in call.op.tags
    if op is None or op.body is None or not (op.python or op.torch_library) or random:
        return None
    args, kwargs = call.copied()
    given = dict(zip((item.name for item in call.op._schema.arguments), args, strict=False))
    given |= kwargs
    formal = [given.get(item.name, item.default) for item in op.parameters]
    if len(given) > len(formal):
        return None
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        code = pytree.tree_leaves(call.op(*args, **kwargs))
        try:
            body = pytree.tree_leaves(body_of(op)(*formal))
        except Exception as error:  # whatever a body raises is the finding
            return Refusal.of_error("has a body that fails on what the site gives it", error)
    for one, other in zip(code, body, strict=False):
        if isinstance(one, Tensor) and isinstance(other, Tensor) and _apart(one, other, site):
            sides = (f"its code gives {show(one)} {show(one, content=True)}",
                     f"its body gives {show(other)} {show(other, content=True)}")  # fmt: skip
            return Refusal("computes something else than its body", sides, "make the two agree")
    return None


def _declared(call: Call, site: Site) -> CustomOp | None:
    replacement = getattr(site.evaluate, "__self__", None)
    assert isinstance(replacement, Replacement), "a site is computed by the replacement of a rule"
    return replacement.ops.get(op_name(call.op))


def _apart(one: Tensor, other: Tensor, site: Site) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return True
    table = tolerances.by_dtype(dtype_name(one.dtype))
    asked = site.match.rule.tolerance or Tolerance(0.0, 0.0)
    largest = float(one.abs().max()) if one.numel() and table.rtol else 0.0
    atol = max(asked.atol, ROUNDINGS * max(table.atol, table.rtol) * max(largest, 1.0))
    atol = atol if table.rtol else asked.atol
    rtol = max(asked.rtol, table.rtol)
    return not torch.allclose(one, other, rtol=rtol, atol=atol, equal_nan=True)

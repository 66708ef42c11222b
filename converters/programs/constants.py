"""Constants of a program: numbers, lifted tensors, buffers that nothing changes, and what small
arithmetic makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from oprep.converters.frontends.onnx_constants import shortest
from oprep.converters.graph import WEAK, Constant, Plain, Several
from oprep.converters.programs.layout import named_arguments

if TYPE_CHECKING:
    from oprep.converters.programs.view import TorchView

MOST = 16
"""Elements of a constant whose value a rule can name."""
FOLDED = frozenset({
    f"aten::{name}" for name in (
        "lift_fresh_copy", "lift_fresh", "detach", "detach_", "alias", "clone", "to.dtype",
        "to.dtype_layout", "to.device", "to.other", "_to_copy", "type_as", "neg", "sqrt", "rsqrt",
        "reciprocal", "add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "rsub.Scalar",
        "rsub.Tensor", "mul.Tensor", "mul.Scalar", "div.Tensor", "div.Scalar", "square",
        "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "scalar_tensor", "full", "zeros",
        "ones", "unsqueeze", "squeeze", "view", "reshape", "contiguous", "expand",
    )
})  # fmt: skip
"""Ops through which the value of a constant is followed."""


def width_beside(number: Any, made: Any) -> float:
    """Give the relative width of a Python number in a call that gives `made`: 2 ulp of its dtype.

    Whole numbers are exact in every dtype that a rule could tell them apart in.
    """
    if not isinstance(number, float):
        return 0.0
    floating = isinstance(made, torch.Tensor) and made.dtype.is_floating_point
    return _width(made.dtype if floating else torch.float64)


class Constants:
    """What is constant in one region, looked up once."""

    def __init__(self, view: TorchView) -> None:
        """Look at one region."""
        self.view = view
        self._known: dict[str, Constant | None] = {}
        self._tensors: dict[str, tuple[torch.Tensor, float] | None] = {}

    def get(self, value: Any) -> Constant | None:
        """Give a constant of at most 16 elements; None for anything else."""
        if isinstance(value, Plain):
            number = value.number
            return Constant((number,), (), WEAK, value.width, isinstance(number, float))
        if not value or isinstance(value, Several):
            return None
        if value not in self._known:
            held = self.tensor(value)
            self._known[value] = None if held is None else _constant(*held)
        return self._known[value]

    def is_constant(self, value: Any) -> bool:
        """Tell whether a value is a number, a parameter, a buffer or a constant of any size."""
        if isinstance(value, Plain):
            return True
        if self.get(value) is not None:
            return True
        home = self.view.home(value)
        if home is None:
            return False
        view, outer = home
        if view.parent is not None or outer not in view.owner.bound:
            return False
        return view.owner.tensor(outer) is not None and not view.aliases.written(outer)

    def written(self, constant: Constant) -> list[Any]:
        """Give elements as they were written: 0.1, not 0.10000000149."""
        if not constant.floating or constant.dtype == WEAK:
            return list(constant.items)
        return [shortest(item, constant.dtype) for item in constant.items]

    def tensor(self, value: str) -> tuple[torch.Tensor, float] | None:
        """Give a small constant as a tensor, and the relative width that its dtypes leave."""
        if value not in self._tensors:
            self._tensors[value] = None  # a cycle is no constant
            self._tensors[value] = self._find(value)
        return self._tensors[value]

    def _find(self, value: str) -> tuple[torch.Tensor, float] | None:
        view = self.view
        node = view.region.producer.get(value)
        if node is not None:
            return self._folded(node) if view.region.ops[node] in FOLDED else None
        home = view.home(value)
        if home is None:
            return None
        outer, name = home
        if outer is not view:
            return outer.constants.tensor(name)
        held = None if view.trained(name) else view.held(name)
        if held is None or held.numel() > MOST or view.aliases.written(name):
            return None
        return held, _width(held.dtype)

    def _folded(self, node: int) -> tuple[torch.Tensor, float] | None:
        view = self.view
        fx, layout = view.fx[node], view.layouts[node]
        made = fx.meta.get("val")
        if layout is None or not isinstance(made, torch.Tensor) or view.changed(node):
            return None
        if any(not isinstance(dim, int) for dim in made.shape) or made.numel() > MOST:
            return None
        given = named_arguments(layout, fx)
        width = _width(made.dtype)
        for name, argument in given.items():
            if not isinstance(argument, Node):
                if isinstance(argument, list | tuple) and any(
                    isinstance(item, Node) for item in argument
                ):
                    return None
                continue
            inner = self.tensor(view.values[argument])
            if inner is None:
                return None
            given[name] = inner[0]
            width += inner[1]
        assert isinstance(fx.target, torch._ops.OpOverload)
        if layout.key == "aten::detach_":
            return given["self"], width
        with torch.no_grad():
            return fx.target(**given), width


def _constant(tensor: torch.Tensor, width: float) -> Constant:
    plain = tensor.detach().cpu()
    name = str(plain.dtype).removeprefix("torch.")
    items = tuple(plain.to(torch.float64 if plain.dtype.is_floating_point else plain.dtype)
                  .flatten().tolist())  # fmt: skip
    return Constant(items, tuple(plain.shape), name, width, plain.dtype.is_floating_point)


def _width(dtype: torch.dtype) -> float:
    return 2 * torch.finfo(dtype).eps if dtype.is_floating_point else 0.0

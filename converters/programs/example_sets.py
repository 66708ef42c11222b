"""Input sets for verifying a program: those that were given, else made up from a seed.

Shapes come from the program's own input metadata; values are of the kinds of
`converters/inputs.py`, integers within the tables that they index. Dims that may vary are tried
at other sizes too, each symbol at another size where the ranges allow it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import sympy  # type: ignore[import-untyped]
import torch
from torch import Tensor

from oprep.converters import inputs as making
from oprep.converters.hints import Hint
from oprep.converters.inputs import InputSet
from oprep.converters.programs.input_hints import input_hints
from oprep.converters.programs.input_leaves import Inputs, Leaf, shape_at
from oprep.converters.programs.program import Example, Program
from oprep.converters.programs.tensors import dtype_name, to_tensor
from oprep.converters.signature import Port, Signature

Sizes: TypeAlias = Mapping[sympy.Symbol, int]

USUAL = 8
"""The size of a dim that may vary where no example tells one."""

OTHER_SIZES = 3


def example_sets(
    program: Program, given: Sequence[Example] = (), seed: int = 0
) -> tuple[Example, ...]:
    """Give the sets to verify with, in a fixed order; the same seed gives the same values.

    Given sets stand alone. Else come the program's own examples, then generated ones: empty where
    an input is of a kind that cannot be made up and no example has it.
    """
    if given:
        return tuple(given)
    inputs = Inputs(program.exported)
    own = [values for example in program.examples if (values := _flat(inputs, example)) is not None]
    examples = tuple(example for example in program.examples if _flat(inputs, example) is not None)
    base = own[0] if own else None
    if not cannot_generate(inputs, base) and _draws(inputs):
        examples += tuple(_Made(inputs, program, base, seed).sets())
    return examples


def _flat(inputs: Inputs, example: Example) -> list[Any] | None:
    return inputs.flat(example.args, example.kwargs)


def _draws(inputs: Inputs) -> bool:
    return any(leaf.kind in ("tensor", "number") for leaf in inputs.leaves)


def cannot_generate(inputs: Inputs, base: Sequence[Any] | None) -> str:
    """Say which input cannot be made up; empty where all can."""
    for leaf in inputs.leaves:
        if leaf.kind == "object" and base is None:
            return f"input `{leaf.name}` is a {leaf.value}, which is not generated"
        if leaf.kind == "tensor" and dtype_name(leaf.dtype or torch.float32).startswith("q"):
            return f"input `{leaf.name}` is quantized, which is not generated"
    return ""


class _Made:
    """Makes sets for one program; `base` holds the flat values of an example, if there is one."""

    def __init__(self, inputs: Inputs, program: Program, base: list[Any] | None, seed: int) -> None:
        self.inputs, self.base, self.seed = inputs, base, seed
        found = input_hints(program.exported.graph_module)
        self.hints = {
            leaf.name: _hint(found.get(leaf.name, Hint()), self._example(index))
            for index, leaf in enumerate(inputs.leaves)
        }

    def sets(self) -> Iterator[Example]:
        """Give every kind at the first sizes, and normal values at others and other choices."""
        first, *others = sizes(self.inputs, self.base)
        signature = self._signature(first)
        choices = making.choices(signature)
        for kind in making.KINDS:
            yield self._made(kind, first, choices[0])
        for choice in choices[1:]:
            said = ", ".join(f"{name}={value:g}" for name, value in choice.items())
            yield self._made("normal", first, choice, f"normal, {said}")
        for chosen in others:
            said = ", ".join(f"{symbol}={size}" for symbol, size in chosen.items())
            name = f"normal, {said}"
            yield self._made("normal", chosen, making.choices(self._signature(chosen))[0], name)

    def _example(self, index: int) -> Any:
        return None if self.base is None else self.base[index]

    def _signature(self, chosen: Sizes) -> Signature:
        ports = [
            Port(
                leaf.name,
                "tensor",
                dtype_name(leaf.dtype or torch.float32),
                shape_at(leaf, chosen),
                self.hints[leaf.name],
            )
            for leaf in self.inputs.leaves
            if leaf.kind == "tensor"
        ]
        return Signature(tuple(ports), (), ())

    def _made(
        self, kind: str, chosen: Sizes, choice: Mapping[str, float], name: str = ""
    ) -> Example:
        made = making.generate(self._signature(chosen), kind, {}, choice, self.seed, name)
        values = [
            self._value(index, leaf, made, chosen) for index, leaf in enumerate(self.inputs.leaves)
        ]
        return Example(made.name, *self.inputs.call(values), made.whole, made.usual)

    def _value(self, index: int, leaf: Leaf, made: InputSet, chosen: Sizes) -> Any:
        if leaf.kind == "tensor":
            return _laid_out(to_tensor(made.arrays[leaf.name]), leaf.order)
        if leaf.kind == "number":
            return shape_at(leaf, chosen)[0]
        return leaf.value if leaf.kind == "fixed" else self._example(index)


def _laid_out(tensor: Tensor, order: tuple[int, ...]) -> Tensor:
    """Lay a tensor out with the axes in the order in which the program met them."""
    if order == tuple(range(tensor.dim())):
        return tensor
    back = [order.index(axis) for axis in range(tensor.dim())]
    return tensor.permute(order).contiguous().permute(back)


def _hint(found: Hint, example: Any) -> Hint:
    """Where the graph tells nothing about an integer, an example's own values do."""
    told = found.rows is not None or found.equal or found.ordered
    if told or not isinstance(example, Tensor) or not example.numel():
        return found
    if example.dtype.is_floating_point or example.dtype.is_complex or example.dtype is torch.bool:
        return found
    low, high = int(example.min()), int(example.max())
    return Hint(span=(float(low), float(high))) if low < high else found


def sizes(inputs: Inputs, base: Sequence[Any] | None = None) -> list[dict[sympy.Symbol, int]]:
    """Give sizes of the symbols: those of the example first, then others within the ranges."""
    if not inputs.ranges:
        return [{}]
    known = inputs.sizes(base) if base is not None else {}
    taken: list[int] = []
    first: dict[sympy.Symbol, int] = {}
    for symbol, (low, high) in inputs.ranges.items():
        usual = USUAL + len(taken)
        size = known.get(symbol, min(max(usual, low), high))
        first[symbol] = size
        taken.append(size)
    offered = [first]
    for step in range(OTHER_SIZES * 4):
        other = {
            symbol: _other(first[symbol], bounds, step + index)
            for index, (symbol, bounds) in enumerate(inputs.ranges.items())
        }
        if other not in offered and _fits(inputs, other):
            offered.append(other)
        if len(offered) > OTHER_SIZES:
            break
    return offered if _fits(inputs, first) or len(offered) == 1 else offered[1:]


def _other(size: int, bounds: tuple[int, int], step: int) -> int:
    """Offer a bit more, a bit less, twice as much and the smallest size, within the bounds."""
    low, high = bounds
    ladder = (size + 1, max(size - 1, 1), 2 * size, max(low, 1), size + 3, low)
    return min(max(ladder[step % len(ladder)], low), high)


def _fits(inputs: Inputs, chosen: Sizes) -> bool:
    """Tell whether every dim is a whole number from 0 on at these sizes."""
    dims = [dim for leaf in inputs.leaves for dim in leaf.dims if isinstance(dim, sympy.Expr)]
    found = [dim.subs(chosen) for dim in dims]
    return all(size.is_integer and size >= 0 for size in found)

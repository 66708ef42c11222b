"""The flattened inputs of a captured program: names, dtypes, dims, and values that are fixed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind

from oprep.converters.programs.tensors import dtype_name

UNBOUNDED = 1 << 30


@dataclass(frozen=True)
class Leaf:
    """One flattened input. `kind` is `tensor`, `number` (free, as a symbol), `fixed` or `object`.

    `dims` are numbers or expressions over symbols; those of a number are its own symbol alone.
    `order` lists the axes from the widest stride to the narrowest. A fixed leaf has `value`.
    """

    name: str
    kind: str
    dtype: torch.dtype | None = None
    dims: tuple[Any, ...] = ()
    order: tuple[int, ...] = ()
    value: Any = None

    def __str__(self) -> str:
        """Give dtype and dims as messages name them."""
        if self.kind != "tensor":
            return f"{self.value!r}" if self.kind == "fixed" else f"a {self.kind}"
        assert self.dtype is not None
        return f"{dtype_name(self.dtype)}{shown(self.dims)}"


def shown(dims: Iterable[Any]) -> str:
    """Write dims as `[s0, 8]`."""
    return "[" + ", ".join(str(dim) for dim in dims) + "]"


@dataclass(frozen=True)
class Inputs:
    """All leaves of a program's call in order, and the ranges of the symbols in them."""

    exported: ExportedProgram

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """Read the leaves from the signature and the placeholders."""
        nodes = {node.name: node for node in self.exported.graph.nodes if node.op == "placeholder"}
        found = []
        for spec in self.exported.graph_signature.input_specs:
            if spec.kind is not InputKind.USER_INPUT:
                continue
            arg: Any = spec.arg
            if isinstance(arg, ConstantArgument):
                found.append(Leaf(arg.name, "fixed", value=arg.value))
            else:
                node = nodes.get(arg.name)
                found.append(_leaf(arg.name, None if node is None else node.meta.get("val")))
        return tuple(found)

    @property
    def named(self) -> dict[str, Leaf]:
        """Give the leaves by name."""
        return {leaf.name: leaf for leaf in self.leaves}

    @cached_property
    def ranges(self) -> dict[sympy.Symbol, tuple[int, int]]:
        """Give smallest and largest size of each symbol in the leaves, in order of appearance."""
        dims = [dim for leaf in self.leaves for dim in leaf.dims if isinstance(dim, sympy.Expr)]
        symbols = dict.fromkeys(s for dim in dims for s in sorted(dim.free_symbols, key=str))
        return {symbol: self._range(symbol) for symbol in symbols}

    def _range(self, symbol: sympy.Symbol) -> tuple[int, int]:
        found = self.exported.range_constraints.get(symbol)
        if found is None:
            return 0, UNBOUNDED
        low, high = (_number(bound) for bound in (found.lower, found.upper))
        return max(low, 0), min(high, UNBOUNDED)

    def call(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Put flat values back into the containers of the program's call."""
        args, kwargs = pytree.tree_unflatten(list(values), self.exported.call_spec.in_spec)
        return tuple(args), dict(kwargs)

    def flat(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any] | None:
        """Flatten a call; None where its containers are not those of the program."""
        spec = self.exported.call_spec.in_spec
        names = spec.child(1).context if spec.num_children == 2 else []
        if set(names or ()) != set(kwargs):
            return None
        ordered = {name: kwargs[name] for name in names or ()}
        values, given = pytree.tree_flatten((tuple(args), ordered))
        return values if given == spec else None

    def sizes(self, values: Sequence[Any]) -> dict[sympy.Symbol, int]:
        """Read the symbols' values off given ones, as far as a dim is a symbol alone."""
        found: dict[sympy.Symbol, int] = {}
        for leaf, value in zip(self.leaves, values, strict=True):
            for dim, size in zip(leaf.dims, _shape(leaf, value), strict=False):
                if isinstance(dim, sympy.Symbol):
                    found.setdefault(dim, int(size))
        for leaf, value in zip(self.leaves, values, strict=True):
            for dim, size in zip(leaf.dims, _shape(leaf, value), strict=False):
                if isinstance(dim, sympy.Expr):
                    _solve(dim, int(size), found)
        return found


def _solve(dim: sympy.Expr, size: int, found: dict[sympy.Symbol, int]) -> None:
    free = [symbol for symbol in dim.free_symbols if symbol not in found]
    if len(free) == 1:
        left = dim.subs(found)
        answers = sympy.solve(left - size, free[0])
        if len(answers) == 1 and answers[0].is_integer:
            found[free[0]] = int(answers[0])


def _shape(leaf: Leaf, value: Any) -> tuple[int, ...]:
    if leaf.kind == "tensor" and isinstance(value, Tensor):
        return tuple(value.shape)
    return (value,) if leaf.kind == "number" and isinstance(value, int) else ()


def shape_at(leaf: Leaf, sizes: Mapping[sympy.Symbol, int]) -> tuple[int, ...]:
    """Give the dims of a leaf at given sizes of the symbols."""
    return tuple(
        int(dim.subs(sizes)) if isinstance(dim, sympy.Expr) else int(dim) for dim in leaf.dims
    )


def _leaf(name: str, value: Any) -> Leaf:
    if isinstance(value, Tensor):
        dims = tuple(_dim(dim) for dim in value.shape)
        return Leaf(name, "tensor", value.dtype, dims, _order(value))
    if isinstance(value, torch.SymInt):
        return Leaf(name, "number", torch.int64, (_dim(value),))
    if value is None or isinstance(value, bool | int | float | str):
        return Leaf(name, "fixed", value=value)
    return Leaf(name, "object", value=type(value).__name__)


def _dim(size: Any) -> Any:
    if isinstance(size, torch.SymInt):
        expression = size.node.expr
        return int(expression) if expression.is_number else expression
    return int(size)


def _order(value: Tensor) -> tuple[int, ...]:
    """List the axes from the widest stride; where sizes are unknown, by what torch guesses."""
    if value.layout is not torch.strided:
        return tuple(range(value.dim()))
    try:
        strides = [_guess(stride) for stride in value.stride()]
    except (RuntimeError, TypeError, ValueError):
        return tuple(range(value.dim()))
    return tuple(sorted(range(value.dim()), key=lambda axis: (-strides[axis], axis)))


def _guess(stride: Any) -> int:
    expression = stride.node.expr if isinstance(stride, torch.SymInt) else sympy.Integer(stride)
    return int(expression.subs(dict.fromkeys(expression.free_symbols, 2)))


def _number(bound: Any) -> int:
    try:
        return int(bound)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return UNBOUNDED

"""Inputs that the user gave, brought to a program's call and refused where they do not fit."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sympy  # type: ignore[import-untyped]
import torch
from torch import Tensor

from oprep.converters.arrays import InputSource
from oprep.converters.programs.input_leaves import UNBOUNDED, Inputs, Leaf, shape_at, shown
from oprep.converters.programs.program import Example, Program
from oprep.converters.programs.tensors import dtype_name, to_tensor
from oprep.opsets.errors import ExitCode, OprepError

Arrays = Mapping[str | int, Any]
HELP = "name the arrays as the program's inputs, with their dtypes and shapes"


def bind_arrays(program: Program, arrays: Arrays, name: str = "given") -> Example:
    """Make a call of arrays (or tensors) by input name or position.

    Fixed inputs (None, numbers, strings) need no array; one that is given must be equal. Exit 3
    where names, dtypes, shapes or sizes do not fit, with both sides.
    """
    inputs = Inputs(program.exported)
    tensors = [leaf for leaf in inputs.leaves if leaf.kind in ("tensor", "number")]
    by_name = _by_name(inputs, [leaf.name for leaf in tensors], arrays, name)
    missing = [leaf.name for leaf in tensors if leaf.name not in by_name]
    if missing:
        raise refused(
            f"nothing is given for {listed(missing)}",
            name,
            (f"the program takes {listed([leaf.name for leaf in tensors])}",),
        )
    values = [
        leaf.value if leaf.name not in by_name else as_value(leaf, by_name[leaf.name], name)
        for leaf in inputs.leaves
    ]
    return checked(inputs, values, name)


def bind_call(program: Program, args: tuple[Any, ...], kwargs: Mapping[str, Any],
              name: str = "given") -> Example:  # fmt: skip
    """Take a call as it is, where its containers, dtypes and shapes are those of the program."""
    inputs = Inputs(program.exported)
    values = inputs.flat(args, kwargs)
    if values is None:
        named = _by_parameter(inputs, args, kwargs)
        if named is not None:
            return bind_arrays(program, named, name)
        raise refused(
            "the inputs are not put together as the program takes them",
            name,
            (f"the program takes {described(inputs)}", f"given are {_kinds(args, kwargs)}"),
            "give `(args, kwargs)` as in the call that was exported",
        )
    return checked(inputs, values, name)


def checked(inputs: Inputs, values: Sequence[Any], name: str) -> Example:
    """Refuse flat values that do not fit; give them as a call."""
    for leaf, value in zip(inputs.leaves, values, strict=True):
        _require_fit(leaf, value, name)
    sizes = inputs.sizes(values)
    for symbol, size in sizes.items():
        low, high = inputs.ranges[symbol]
        if not low <= size <= high:
            leaf, axis = _first_use(inputs, symbol)
            raise refused(
                f"axis {axis} of input `{leaf.name}` has a size that the program does not take",
                name,
                (f"given is {size}, the program takes {low} to {_bound(high)}",),
                "give inputs of another size",
            )
    for leaf, value in zip(inputs.leaves, values, strict=True):
        if leaf.kind == "tensor" and shape_at(leaf, sizes) != tuple(value.shape):
            fact = f"the program wants {shown(leaf.dims)}, given is {list(value.shape)}"
            at = ", ".join(f"{symbol} = {size}" for symbol, size in sizes.items())
            raise refused(f"input `{leaf.name}` has the wrong shape", name, (fact, f"with {at}"))
    return Example(name, *inputs.call(values))


def _require_fit(leaf: Leaf, value: Any, name: str) -> None:
    if leaf.kind == "fixed":
        plain = value is None or isinstance(value, bool | int | float | str)
        if not plain or value != leaf.value:
            said = f"{value!r}" if plain else _kind(value)
            fact = f"it was exported with {leaf.value!r}, given is {said}"[:200]
            raise refused(f"input `{leaf.name}` is fixed in the program", name, (fact,),
                          "leave it out, or export the program with the other value")  # fmt: skip
        return
    if leaf.kind == "number":
        if not isinstance(value, int) or isinstance(value, bool):
            fact = f"the program wants a whole number, given is {_kind(value)}"
            raise refused(f"input `{leaf.name}` has the wrong type", name, (fact,))
        return
    if leaf.kind == "object":
        return
    if not isinstance(value, Tensor):
        fact = f"the program wants {leaf}, given is {_kind(value)}"
        raise refused(f"input `{leaf.name}` is no tensor", name, (fact,))
    if value.dtype != leaf.dtype:
        assert leaf.dtype is not None
        ours, theirs = dtype_name(leaf.dtype), dtype_name(value.dtype)
        fact = f"the program wants {ours}, given is {theirs}"
        raise refused(f"input `{leaf.name}` has the wrong dtype", name, (fact,))
    wrong = [
        dim
        for dim, size in zip(leaf.dims, value.shape, strict=False)
        if not isinstance(dim, sympy.Expr) and dim != size
    ]
    if wrong or len(leaf.dims) != value.dim():
        kind = "shape" if len(leaf.dims) == value.dim() else "rank"
        fact = f"the program wants {shown(leaf.dims)}, given is {list(value.shape)}"
        raise refused(f"input `{leaf.name}` has the wrong {kind}", name, (fact,))


def as_value(leaf: Leaf, given: Any, name: str) -> Any:
    """Make a tensor of an array, or a plain value of a single element where one is wanted."""
    if isinstance(given, Tensor):
        return given if leaf.kind == "tensor" else given.item() if given.numel() == 1 else given
    if not isinstance(given, np.ndarray | np.generic):
        return given
    if leaf.kind != "tensor":
        return np.asarray(given).item() if np.asarray(given).size == 1 else given
    array = np.asarray(given)
    if array.dtype.kind == "V" and leaf.dtype is torch.bfloat16 and array.dtype.itemsize == 2:
        import ml_dtypes

        array = array.view(ml_dtypes.bfloat16)
    try:
        return to_tensor(array)
    except TypeError as error:
        raise refused(f"input `{leaf.name}` has the wrong dtype", name, (str(error),)) from error


def _by_name(inputs: Inputs, tensors: Sequence[str], arrays: Arrays, name: str) -> dict[str, Any]:
    known = {leaf.name for leaf in inputs.leaves}
    unknown = [key for key in arrays if key not in known]
    if not unknown:
        return {str(key): value for key, value in arrays.items()}
    if len(unknown) == len(arrays):
        try:
            return dict(InputSource(name, dict(arrays), Path(name)).bind(list(tensors)))
        except OprepError:
            pass
    near = difflib.get_close_matches(str(unknown[0]), sorted(known), n=1, cutoff=0.6)
    raise refused(
        f"the program has no input {listed([str(key) for key in unknown])}",
        name,
        (f"it takes {described(inputs)}",),
        f"did you mean `{near[0]}`" if near else HELP,
    )


def _by_parameter(
    inputs: Inputs, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str | int, Any] | None:
    """Read a plain dict of names to tensors as what it is: inputs by name."""
    known = inputs.named
    if args or not kwargs or not all(name in known for name in kwargs):
        return None
    return {name: value for name, value in kwargs.items()}


def described(inputs: Inputs) -> str:
    """List names, dtypes and dims of the inputs."""
    return ", ".join(f"`{leaf.name}` {leaf}" for leaf in inputs.leaves[:6]) + (
        ", …" if len(inputs.leaves) > 6 else ""
    )


def _first_use(inputs: Inputs, symbol: sympy.Symbol) -> tuple[Leaf, int]:
    return next(
        (leaf, axis)
        for leaf in inputs.leaves
        for axis, dim in enumerate(leaf.dims)
        if isinstance(dim, sympy.Expr) and symbol in dim.free_symbols
    )


def _bound(high: int) -> str:
    return "any size" if high >= UNBOUNDED else str(high)


def _kinds(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    positional = [_kind(arg) for arg in args]
    return ", ".join([*positional, *(f"{key}={_kind(value)}" for key, value in kwargs.items())])


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{dtype_name(value.dtype)}{list(value.shape)}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return "None" if value is None else f"a {type(value).__name__}"


def listed(names: Sequence[str]) -> str:
    """List names for a message."""
    return ", ".join(f"`{name}`" for name in names[:8]) + (", …" if len(names) > 8 else "")


def refused(message: str, where: str, notes: tuple[str, ...], help: str = HELP) -> OprepError:
    """Say that given inputs do not fit: exit 3."""
    return OprepError(message, where=where, notes=notes, help=help, exit_code=ExitCode.MODEL)

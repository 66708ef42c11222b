"""Input sets that the user gave, as calls: of a module before its capture, of a program after."""

from __future__ import annotations

import inspect
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch.utils._pytree as pytree
from torch import Tensor, nn

from oprep.converters.arrays import InputSource
from oprep.converters.program_inputs import Given
from oprep.converters.programs.examples import bind_arrays, bind_call, listed, refused
from oprep.converters.programs.factory import as_call
from oprep.converters.programs.input_names import leaf_names
from oprep.converters.programs.program import Example, Program
from oprep.converters.programs.tensors import to_tensor
from oprep.converters.programs.weights import load_data
from oprep.opsets.errors import OprepError


def bound_to_program(program: Program, given: Sequence[Given | Example]) -> tuple[Example, ...]:
    """Bring given sets to a program's call; exit 3 where one does not fit."""
    return tuple(_bound(program, item) for item in given)


def _bound(program: Program, item: Given | Example) -> Example:
    if isinstance(item, Given):
        if item.arrays is not None:
            return bind_arrays(program, item.arrays, item.name)
        args, kwargs = as_call(load_data(io.BytesIO(item.data), item.name))
        return bind_call(program, args, kwargs, item.name)
    return bind_call(program, tuple(item.args), item.kwargs, item.name)


def first_call(
    given: Sequence[Given | Example],
    own: Sequence[Example],
    signature: inspect.Signature,
    model: nn.Module | None,
) -> Example | None:
    """Give the call to capture with: the first given set, else the first of the factory's own.

    Arrays by name replace those leaves of the factory's example; without one each parameter of
    `forward` takes the array of its name, or arrays go by position.
    """
    if not given:
        return own[0] if own else None
    item = given[0]
    if isinstance(item, Example):
        return item
    if item.arrays is None:
        return Example(item.name, *as_call(load_data(io.BytesIO(item.data), item.name)))
    if own and model is not None:
        filled = _filled(model, own[0], item)
        if filled is not None:
            return filled
    return _by_parameter(signature, item)


def _filled(model: nn.Module, own: Example, item: Given) -> Example | None:
    assert item.arrays is not None
    values, spec = pytree.tree_flatten((own.args, dict(own.kwargs)))
    names = leaf_names(model, own.args, own.kwargs)
    tensors = [name for name, value in zip(names, values, strict=True) if isinstance(value, Tensor)]
    try:
        arrays = InputSource(item.name, dict(item.arrays)).bind(tensors)
    except OprepError:
        return None
    if set(arrays) != set(tensors):
        return None
    filled = [
        _tensor(arrays[name], name, item.name) if name in arrays else value
        for name, value in zip(names, values, strict=True)
    ]
    args, kwargs = pytree.tree_unflatten(filled, spec)
    return Example(item.name, tuple(args), kwargs)


def _by_parameter(signature: inspect.Signature, item: Given) -> Example:
    assert item.arrays is not None
    positional = [
        name
        for name, one in signature.parameters.items()
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    if any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values()):
        names = [*positional, *(str(key) for key in item.arrays)]
    else:
        names = list(signature.parameters)
    arrays = InputSource(item.name, dict(item.arrays)).bind(list(dict.fromkeys(names)))
    tensors = {name: _tensor(array, name, item.name) for name, array in arrays.items()}
    required = [
        name
        for name in positional
        if signature.parameters[name].default is inspect.Parameter.empty and name not in tensors
    ]
    if required:
        raise refused(
            f"nothing is given for {listed(required)}",
            item.name,
            (f"`forward` takes {signature}"[:200],),
            "name the arrays as the parameters of `forward`",
        )
    args: list[Any] = []
    for name in positional:
        if name not in tensors or signature.parameters[name].kind.name == "KEYWORD_ONLY":
            break
        args.append(tensors.pop(name))
    return Example(item.name, tuple(args), tensors)


def _tensor(array: Any, name: str, where: str) -> Any:
    if not isinstance(array, np.ndarray | np.generic):
        return array
    try:
        return to_tensor(np.asarray(array))
    except TypeError as error:
        raise refused(f"input `{name}` has the wrong dtype", where, (str(error),)) from error

"""Input sets that the user gave, brought to the model's names and refused where they do not fit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from oprep.converters.inputs import InputSet, numpy_dtype
from oprep.converters.signature import Port, Signature
from oprep.opsets.errors import ExitCode, OprepError

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, Any]


def given(
    found: Signature, sets: Sequence[tuple[str, Mapping[str, Array]]]
) -> tuple[InputSet, ...]:
    """Check sets that the user gave and bring them to the model's names, by name or position."""
    return tuple(InputSet(name, _bind(found, name, arrays)) for name, arrays in sets)


def check_given(found: Signature, arrays: Mapping[str, Array], where: str) -> None:
    """Refuse arrays that do not fit the model's inputs, before anything runs."""
    _bind(found, where, arrays)


def _bind(found: Signature, where: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    known = {port.name: port for port in (*found.inputs, *found.optional)}
    needed = [port.name for port in found.inputs]
    if not set(arrays) & set(known) and all(re.fullmatch(r"(arr|input)_\d+", n) for n in arrays):
        order = sorted(arrays, key=lambda item: int(item.rpartition("_")[2]))
        if len(order) != len(needed):
            raise _refused(
                f"{len(order)} arrays for {len(needed)} inputs",
                where,
                (f"the model takes {_listed(needed)}",),
            )
        arrays = {name: arrays[item] for name, item in zip(needed, order, strict=True)}
    unknown = sorted(set(arrays) - set(known))
    missing = [name for name in needed if name not in arrays]
    if unknown or missing:
        facts = [f"there is no input {_listed(unknown)}"] if unknown else []
        facts += [f"nothing is given for {_listed(missing)}"] if missing else []
        raise _refused("the input names are not those of the model", where, tuple(facts))
    return {name: _fitted(known[name], array, where) for name, array in arrays.items()}


def _fitted(port: Port, array: Array, where: str) -> Array:
    from oprep.converters.magnitudes import dtype_name

    if array.dtype.kind == "V" and port.dtype.endswith("float16"):
        array = array.view(numpy_dtype(port.dtype)) if array.dtype.itemsize == 2 else array
    if port.kind == "tensor" and dtype_name(array) != port.dtype:
        fact = f"the model wants {port.dtype}, the file has {dtype_name(array)}"
        raise _refused(f"input `{port.name}` has the wrong dtype", where, (fact,))
    wrong = _misfit(port.dims, array.shape) if port.dims is not None else ""
    if wrong:
        wanted = str(list(port.dims or ())).replace("'", "")
        fact = f"the model wants {wanted}, the file has {list(array.shape)}"
        raise _refused(f"input `{port.name}` has the wrong {wrong}", where, (fact,))
    return array


def _misfit(dims: tuple[int | str, ...], shape: tuple[int, ...]) -> str:
    if len(dims) != len(shape):
        return "rank"
    pairs = zip(dims, shape, strict=True)
    return "" if all(isinstance(dim, str) or dim == size for dim, size in pairs) else "shape"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:8]) + (", …" if len(names) > 8 else "")


def _refused(message: str, where: str, notes: tuple[str, ...]) -> OprepError:
    return OprepError(
        message,
        where=where,
        notes=notes,
        help="name the arrays as the model's inputs, with their dtypes and shapes",
        exit_code=ExitCode.MODEL,
    )

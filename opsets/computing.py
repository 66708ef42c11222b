"""What the vocabulary computes: parameters that ONNX or a dispatcher overload says otherwise.

`padding` of a convolution is half of ONNX's `pads`, `normalized_shape` the end of a shape. The
expressions are those of conditions, with the functions of `FUNCTIONS` besides. Whatever has no
answer is an `Unknown` with the reason, never an exception.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oprep.opsets.arithmetic import BUILT_IN, Unknown, show
from oprep.opsets.evaluate import Environment, evaluate_with, explain
from oprep.opsets.syntax import Expression

END = (1 << 31) - 1
"""The least `end` of a slice that exporters write for "to the end"."""

_EPSILON = {
    "float16": 0.0009765625, "bfloat16": 0.0078125, "float32": 1.1920928955078125e-07,
    "float64": 2.220446049250313e-16,
}  # fmt: skip


def compute(expression: Expression, environment: Environment) -> Any:
    """Give the value of an expression of the vocabulary, or an `Unknown` that says why not."""
    return _known(evaluate_with(expression, environment, FUNCTIONS))


def holds(condition: Expression, environment: Environment) -> bool:
    """Tell whether a condition of the vocabulary is true; an unknown one is not."""
    return compute(condition, environment) is True


def why_not(condition: Expression, environment: Environment) -> str:
    """Say why a condition of the vocabulary does not hold."""
    return explain(condition, environment, FUNCTIONS)


def _known(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return next((item for item in value if isinstance(item, Unknown)), list(value))
    return value


def _fill(value: Any, count: int) -> Any:
    """Write a number, or a list of one, as a list of `count`; None stays what it is."""
    if value is None:
        return None
    items = list(value) if isinstance(value, list | tuple) else [value]
    items = items * count if len(items) == 1 else items
    return items if len(items) == count else Unknown(f"{show(value)} has not {count} items")


def _item(values: Sequence[Any], index: int) -> Any:
    return values[index]


def _only(values: Any) -> Any:
    if not isinstance(values, list | tuple):
        return values
    return values[0] if len(values) == 1 else Unknown(f"{show(values)} is not one number")


def _first(values: Sequence[Any], count: int) -> list[Any]:
    return list(values[:count])


def _drop(values: Sequence[Any], count: int) -> list[Any]:
    return list(values[count:])


def _last(values: Sequence[Any], count: int) -> list[Any]:
    return list(values[len(values) - count :])


def _given(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value


def _halved(pads: Sequence[int]) -> Any:
    """Give the padding of `pads`, whose halves are what stands before and behind each axis."""
    half = len(pads) // 2
    if list(pads[:half]) != list(pads[half:]):
        return Unknown(f"`pads` is {show(pads)}, more at one side than at the other")
    return list(pads[:half])


def _padding(value: Any, count: int) -> Any:
    """Read a convolution's padding: numbers, `"valid"`, or `"same"` as it is."""
    if value == "valid":
        return [0] * count
    return value if value == "same" else _fill(value, count)


def _window(value: Any, kernel: Any, count: int) -> Any:
    """Give the stride of a pool, which is its window where it is left out."""
    return _fill(kernel if value is None or value == [] else value, count)


def _swapped(rank: int, one: int, other: int) -> list[int]:
    order = list(range(rank))
    order[one], order[other] = order[other], order[one]
    return order


def _moved(order: Sequence[int], which: int) -> Any:
    """Give the lower (0) or the higher (1) of the two axes that a permutation swaps."""
    moved = [axis for axis, source in enumerate(order) if axis != source]
    if len(moved) != 2:
        return Unknown(f"{show(order)} does not swap two axes")
    return moved[which]


def _mirrored(rank: int) -> list[int]:
    return list(range(rank))[::-1]


def _axis(axis: int, rank: int) -> int:
    return axis % rank if rank else axis


def _onnx_pads(pad: Sequence[int], rank: int) -> Any:
    """Turn torch's pairs, last axis first, into ONNX's starts and ends."""
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)][::-1]
    if len(pairs) > rank:
        return Unknown(f"{show(pad)} pads more than {rank} axes")
    pairs = [(0, 0)] * (rank - len(pairs)) + pairs
    return [before for before, _ in pairs] + [after for _, after in pairs]


def _torch_pads(pads: Sequence[int]) -> list[int]:
    half = len(pads) // 2
    pairs = zip(pads[:half], pads[half:], strict=True)
    return _trimmed([part for pair in [*pairs][::-1] for part in pair])


def _trimmed(pad: Sequence[int]) -> list[int]:
    """Leave out the pairs at the end of torch's padding that pad nothing."""
    found = list(pad)
    while len(found) >= 2 and found[-1] == found[-2] == 0:
        del found[-2:]
    return found


def _translated(value: Any, words: Sequence[Any], meanings: Sequence[Any]) -> Any:
    for word, meaning in zip(words, meanings, strict=True):
        if value == word and isinstance(value, str) == isinstance(word, str):
            return meaning
    return Unknown(f"{show(value)} is none of {show(words)}")


def _start(start: int | None, size: int) -> int:
    start = 0 if start is None else start
    return max(start + size, 0) if start < 0 else min(start, size)


def _stop(end: int | None, size: int) -> int:
    return _start(size if end is None else end, size)


def _to_end(end: int | None) -> Any:
    """Give the end of a slice where the size is unknown: None for "to the end"."""
    return (1 << 63) - 1 if end is None or end >= END else end


def _flipped(starts: Any, ends: Any, axes: Any, steps: Any, shape: Sequence[Any]) -> Any:
    """Give the axes that a Slice reads backwards as a whole."""
    parts = [list(part) for part in (starts, ends, axes, steps)]
    for start, end, axis, step in zip(*parts, strict=True):
        size = shape[axis]
        whole = start == -1 or (isinstance(size, int) and start >= size - 1)
        before = end <= -END or (isinstance(size, int) and end <= -size - 1)
        if step != -1 or not whole or not before:
            return Unknown("the slice is not a whole axis backwards")
    return parts[2]


def _sections(value: Any, size: Any) -> Any:
    """Give the sizes of the parts of a split: a number is the size of all but the last."""
    if isinstance(value, list | tuple):
        return list(value)
    whole = [value] * (size // value)
    return whole + ([size % value] if size % value else [])


def _parts(sizes: Sequence[int]) -> Any:
    """Count the parts of a split into equal parts."""
    return len(sizes) if len(set(sizes)) == 1 else Unknown(f"{show(sizes)} are not equal parts")


def _count(shape: Sequence[Any], dims: Any) -> Any:
    """Count the elements along some axes; all where none is named."""
    axes = range(len(shape)) if dims is None or dims == [] else dims
    axes = [axes] if isinstance(axes, int) else axes
    return math.prod(shape[axis] for axis in axes)


def _spatial(scales: Sequence[float]) -> Any:
    """Give the scales behind batch and channels, which must not be scaled."""
    if len(scales) < 3 or any(item != 1 for item in scales[:2]):
        return Unknown(f"{show(scales)} scales more than the axes behind the second")
    return list(scales[2:])


def _epsilon(dtype: str) -> float:
    return _EPSILON[dtype]


def _checked(function: Callable[..., Any]) -> Callable[[str, Sequence[object]], object]:
    @functools.wraps(function)
    def apply(text: str, arguments: Sequence[object]) -> object:
        for value in arguments:
            unknown = _known(value)
            if isinstance(unknown, Unknown) and not function.__name__ == "_flipped":
                return unknown
        try:
            return function(*arguments)
        except (TypeError, ValueError, IndexError, KeyError, ZeroDivisionError):
            return Unknown(f"`{text}` has no value for {', '.join(map(show, arguments))}")

    return apply


_OWN: Mapping[str, Callable[..., Any]] = {
    "fill": _fill, "item": _item, "only": _only, "first": _first, "drop": _drop,
    "last": _last, "given": _given, "halved": _halved, "padding_of": _padding,
    "window": _window, "swapped": _swapped, "moved": _moved, "axis_of": _axis,
    "onnx_pads": _onnx_pads, "torch_pads": _torch_pads, "trimmed": _trimmed,
    "translated": _translated, "start_of": _start, "stop_of": _stop, "to_end": _to_end,
    "flipped": _flipped, "sections": _sections, "parts": _parts, "count": _count,
    "spatial": _spatial, "epsilon_of": _epsilon, "product": math.prod, "root": math.sqrt,
    "int": int, "mirrored": _mirrored,
}  # fmt: skip

FUNCTIONS: Mapping[str, Callable[[str, Sequence[object]], object]] = {
    **BUILT_IN,
    **{name: _checked(function) for name, function in _OWN.items()},
}
"""What an expression of the vocabulary can call, beside what every condition can."""

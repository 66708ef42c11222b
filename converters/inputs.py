"""Input sets for a model, generated from a seed.

Sizes of free dims are not known from the file: `sizes` gives them in the order in which they are
tried on the original. Values follow what the graph tells (see hints.py). Same seed, same arrays.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from oprep.converters.signature import Port, Signature

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, Any]

Sizes: TypeAlias = Mapping[str, int]

KINDS = ("normal", "negated", "wide", "zeros", "ones", "tiny", "medium", "large", "huge")
SITES_ALONE = ("medium", "large", "huge")
"""A whole model fed with large values overflows where a right conversion need not."""

OTHER_SCALE = ("zeros", "tiny", *SITES_ALONE)
"""Sets whose numbers say little about how far a conversion is off in use."""

MEDIUM = 100.0
SPREAD = {"wide": (-3.0, 2.0), "large": (3.0, 4.0), "huge": (5.0, 6.0)}
"""Powers of ten between which sizes lie. Only `wide` mixes scales: an error of the size of small
values cannot be seen beside huge ones."""

SPREAD_OF_HALVES = {**SPREAD, "large": (2.0, 3.0), "huge": (3.0, 4.0)}
"""Those of 16-bit floats with a small range."""

LADDER = (2, 3, 8, 16, 32, 64, 128, 256, 512, 1024)
PLENTY = 64
"""The size of one more set where the largest input has less than FEW_ELEMENTS."""

FEW_ELEMENTS, ENOUGH_ELEMENTS, MOST_ELEMENTS = 1 << 12, 1 << 15, 1 << 24
CHOICES = 8
SMALL = 8
RANK = 2
WORDS = ("", "a", "word", "two words", "été", "0")


@dataclass(frozen=True)
class InputSet:
    """Arrays by input name; `whole` says whether they may feed the whole model.

    `usual` says whether their values have the size that a model is used with.
    """

    name: str
    arrays: Mapping[str, Array]
    whole: bool = True
    usual: bool = True


def sizes(found: Signature) -> Iterator[dict[str, int]]:
    """Give sizes of the free dims in the order in which they are to be tried on the original.

    A first axis is mostly a batch: it stays small first, then grows with the others, then is 1.
    """
    every = [dim for port in found.inputs for dim in _dims(port) if isinstance(dim, str)]
    first = {_dims(port)[0] for port in found.inputs if _dims(port)}
    free = list(dict.fromkeys(every))
    given: list[dict[str, int]] = []
    for step, size in enumerate(LADDER if free else (0,)):
        for batch in (min(size, 2 + step % 2), size, 1):
            chosen = {dim: batch if dim in first else size for dim in free}
            if chosen not in given and elements(found, chosen) <= MOST_ELEMENTS:
                given.append(chosen)
                yield chosen


def _dims(port: Port) -> tuple[int | str, ...]:
    if port.dims is None:
        return tuple(f"{port.name}.{axis}" for axis in range(RANK))
    return port.dims


def _shape(port: Port, chosen: Sizes) -> tuple[int, ...]:
    return tuple(chosen[dim] if isinstance(dim, str) else dim for dim in _dims(port))


def empty_sizes(found: Signature) -> dict[str, int] | None:
    """Take dims that are declared as 0 at their word; None where there are none."""
    zeros = {dim for port in found.inputs for dim in port.zeros}
    if not zeros:
        return None
    first = next(sizes(found))
    return {**first, **dict.fromkeys(zeros, 0)}


def elements(found: Signature, chosen: Sizes) -> int:
    """Count the elements of the largest input at these sizes."""
    return max((prod(_shape(port, chosen)) for port in found.inputs), default=0)


def choices(found: Signature) -> list[dict[str, float]]:
    """Give combinations of values for single-element inputs that the graph compares with constants.

    They are what decides branches. The first one has the first constant of each input.
    """
    offered = {port.name: _candidates(port) for port in found.inputs}
    offered = {name: values for name, values in offered.items() if values}
    combined = islice(product(*offered.values()), CHOICES)
    return [dict(zip(offered, values, strict=True)) for values in combined]


def _candidates(port: Port) -> list[float]:
    if port.dims is None or any(dim != 1 for dim in port.dims):
        return []
    if port.dtype == "bool":
        return [1.0, 0.0]
    whole = not _is_floating(port.dtype)
    beside = [value + step for value in port.hint.ordered for step in (0, 1, -1)]
    other = [value + 1 for value in port.hint.equal]
    low, high = port.hint.span or (0.0, 0.0)
    ends = [low, high, (low + high) / 2] if port.hint.span else []
    values = dict.fromkeys([*port.hint.equal, *beside, *other, *ends])
    return [value for value in values if not whole or (value.is_integer() and _fits(value, port))]


def _fits(value: float, port: Port) -> bool:
    import numpy as np

    if not hasattr(np, port.dtype):
        return False
    info = np.iinfo(port.dtype)
    return bool(info.min <= value <= info.max)


def _is_floating(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex"))


def generate(
    found: Signature,
    kind: str,
    chosen: Sizes,
    choice: Mapping[str, float],
    seed: int,
    name: str = "",
) -> InputSet:
    """Make the set of one of `KINDS`; `chosen` gives sizes, `choice` values of single elements."""
    arrays = {}
    for port in found.inputs:
        same_as = "normal" if kind == "negated" else kind
        key = [seed, zlib.crc32(same_as.encode()), zlib.crc32(port.name.encode())]
        arrays[port.name] = _values(port, _shape(port, chosen), kind, choice, key)
    return InputSet(name or kind, arrays, kind not in SITES_ALONE, kind not in OTHER_SCALE)


def _values(
    port: Port, shape: tuple[int, ...], kind: str, choice: Mapping[str, float], key: list[int]
) -> Array:
    import numpy as np

    generator = np.random.default_rng(key)
    dtype = numpy_dtype(port.dtype)
    if port.name in choice:
        return np.full(shape, choice[port.name]).astype(dtype)
    if port.dtype == "string":
        picked = generator.integers(0, len(WORDS), shape)
        return np.array([WORDS[i] for i in picked.reshape(-1)], object).reshape(shape)
    if port.dtype == "bool":
        fixed = {"zeros": False, "ones": True}
        drawn = generator.integers(0, 2, shape).astype(bool)
        drawn = ~drawn if kind == "negated" else drawn
        return np.full(shape, fixed[kind]) if kind in fixed else np.asarray(drawn)
    if not _is_floating(port.dtype):
        return _integers(port, shape, kind, generator).astype(dtype)
    values = _floats(shape, kind, port.dtype, generator)
    if port.dtype.startswith("complex"):
        values = values + 1j * _floats(shape, kind, port.dtype, generator)
    return np.asarray(values).astype(dtype)


def numpy_dtype(dtype: str) -> Any:
    """Give the numpy dtype of a port's dtype; strings are objects."""
    import numpy as np

    if dtype == "string":
        return np.dtype(object)
    try:
        return np.dtype(dtype)
    except TypeError:
        import ml_dtypes  # noqa: F401  (slow; registers bfloat16 and its like with numpy)

        return np.dtype(dtype)


def _floats(shape: tuple[int, ...], kind: str, dtype: str, generator: Any) -> Array:
    import numpy as np

    normal: Array = np.asarray(generator.standard_normal(shape))
    if kind in ("zeros", "ones"):
        return np.full(shape, float(kind == "ones"))
    if kind == "medium":
        return np.asarray(generator.uniform(-MEDIUM, MEDIUM, shape))
    if kind in SPREAD:
        low, high = (SPREAD_OF_HALVES if dtype == "float16" else SPREAD)[kind]
        return np.asarray(np.sign(normal) * 10.0 ** generator.uniform(low, high, shape))
    return normal * {"negated": -1.0, "tiny": 1e-6}.get(kind, 1.0)


def _integers(port: Port, shape: tuple[int, ...], kind: str, generator: Any) -> Array:
    """Draw from the range that the graph allows; where it tells nothing, 0 to 8."""
    import numpy as np

    low, high = _range(port, bool(shape))
    if kind in ("zeros", "ones"):
        return np.full(shape, min(max(int(kind == "ones"), low), high))
    drawn: Array = np.asarray(generator.integers(low, high, shape, endpoint=True))
    met = [
        value
        for value in (*port.hint.equal, *port.hint.ordered)
        if low <= value <= high or (port.hint.rows is None and _fits(value, port))
    ]
    if met and shape:
        drawn = np.where(generator.random(shape) < 0.25, generator.choice(met, shape), drawn)
    return drawn


def _range(port: Port, many: bool) -> tuple[int, int]:
    if port.hint.rows is not None:
        return 0, port.hint.rows - 1
    if port.hint.span is not None:
        return int(port.hint.span[0]), int(port.hint.span[1])
    narrow = {"int8": (-128, 127), "uint8": (0, 255), "int4": (-8, 7), "uint4": (0, 15)}
    if many and port.dtype in narrow:
        return narrow[port.dtype]
    return 0, SMALL

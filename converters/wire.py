"""How values travel between oprep and a child: plain data and raw buffers, never pickle.

A frame is `nonce, kind, header length, body length`, a JSON header and the raw buffers. What comes
from a child is not trusted: sizes, dtypes and nesting are checked before anything is built.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

PREFIX = struct.Struct("<16sBIQ")
MAX_HEADER = 1 << 26
MAX_READS = 256
PLAIN_KINDS = "biufcSU"


class WireError(Exception):
    """What came over the descriptor is not a frame of this conversation."""


@dataclass(frozen=True)
class Frame:
    """One message: `kind` is a small number that both ends agree on."""

    kind: int
    value: Any


def pack(kind: int, value: Any, nonce: bytes) -> list[memoryview]:
    """Give the pieces of a frame in order; arrays and bytes are not copied where contiguous."""
    buffers: list[memoryview] = []
    tree = _encode(value, buffers)
    header = json.dumps([tree, [len(part) for part in buffers]], separators=(",", ":")).encode()
    if len(header) > MAX_HEADER:
        raise ValueError(f"a message of {len(header)} bytes of plain data is too long")
    body = sum(len(part) for part in buffers)
    prefix = PREFIX.pack(nonce, kind, len(header), body)
    return [memoryview(prefix + header), *buffers]


def _encode(value: Any, buffers: list[memoryview]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [_encode(item, buffers) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_encode(item, buffers) for item in value]}
    if isinstance(value, Mapping):
        return {"dict": [[_encode(k, buffers), _encode(v, buffers)] for k, v in value.items()]}
    if isinstance(value, bytes | bytearray | memoryview):
        buffers.append(memoryview(value).cast("B"))
        return {"bytes": len(buffers) - 1}
    return _encode_array(value, buffers)


def _encode_array(value: Any, buffers: list[memoryview]) -> Any:
    import numpy as np

    if not isinstance(value, np.ndarray | np.generic):
        raise TypeError(f"a value of type `{type(value).__name__}` cannot travel")
    array = np.asarray(value)
    shape = list(array.shape)
    if array.dtype.kind == "O" or array.dtype.name == "StringDType":
        items = [_encode(_text(item), buffers) for item in array.ravel().tolist()]
        return {"strings": [shape, items]}
    name = _dtype_name(array.dtype)
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.size else None
    buffers.append(memoryview(b"" if flat is None else flat.data))
    return {"array": [name, shape, len(buffers) - 1]}


def _text(item: Any) -> str | bytes:
    if isinstance(item, str | bytes):
        return item
    raise TypeError(f"an array that holds a `{type(item).__name__}` cannot travel")


def _dtype_name(dtype: np.dtype[Any]) -> str:
    if dtype.kind in PLAIN_KINDS:
        return dtype.str
    if dtype.names is None and dtype.type.__module__ == "ml_dtypes":
        return dtype.name
    raise TypeError(f"an array of dtype `{dtype}` cannot travel")


class Reader:
    """Put frames together from a descriptor, blocking or not, and refuse what is none.

    `limit` bounds the body of one frame in bytes; memory is taken as bytes arrive.
    """

    def __init__(self, descriptor: int, nonce: bytes, limit: int) -> None:
        """Expect the first frame to begin with the next byte."""
        self.descriptor, self.nonce, self.limit = descriptor, nonce, limit
        self._begin()

    def _begin(self) -> None:
        self._kind, self._tree, self._body = -1, None, 0
        self._filled: list[memoryview] = []
        self._todo = [memoryview(bytearray(PREFIX.size))]
        self._at, self._stage = 0, "prefix"

    def read(self) -> Frame | None:
        """Read what is there and give the frame once it is whole; EOFError at the end.

        None means that more has to come, or that it is time to look at the clock.
        """
        for _ in range(MAX_READS):
            if not self._todo:
                break
            view = self._todo[0]
            if self._at < len(view):
                try:
                    count = os.readv(self.descriptor, [view[self._at :]])
                except BlockingIOError:
                    return None
                if not count:
                    raise EOFError
                self._at += count
            if self._at == len(view):
                self._filled.append(self._todo.pop(0))
                self._at = 0
                self._advance()
        if self._todo:
            return None
        frame = Frame(self._kind, decode(self._tree, self._filled))
        self._begin()
        return frame

    def _advance(self) -> None:
        if self._stage == "prefix":
            nonce, self._kind, header, self._body = PREFIX.unpack(self._filled.pop())
            if nonce != self.nonce:
                raise WireError("bytes that are not a message of this call")
            if header > MAX_HEADER or self._body > self.limit:
                raise WireError(f"a message of {self._body} bytes; {self.limit} are allowed")
            self._todo, self._stage = [memoryview(bytearray(header))], "header"
        elif self._stage == "header":
            self._tree, lengths = _parse_header(self._filled.pop(), self._body)
            self._todo, self._stage = [_empty(length) for length in lengths], "body"


def _empty(length: int) -> memoryview:
    if not length:
        return memoryview(bytearray())
    import numpy as np

    try:
        return memoryview(np.empty(length, np.uint8).data)
    except MemoryError as error:
        raise WireError(f"an array of {length} bytes, for which there is no memory") from error


def _parse_header(header: memoryview, body: int) -> tuple[Any, list[int]]:
    try:
        tree, lengths = json.loads(bytes(header))
    except (ValueError, RecursionError, TypeError) as error:
        raise WireError("a message whose header is not readable") from error
    if not isinstance(lengths, list) or not all(type(n) is int and n >= 0 for n in lengths):
        raise WireError("a message whose buffers have no lengths")
    if sum(lengths) != body:
        raise WireError(f"a message of {body} bytes whose parts add up to {sum(lengths)}")
    return tree, lengths


def decode(tree: Any, buffers: list[memoryview]) -> Any:
    """Build the value that a header describes; WireError where it does not fit its buffers."""
    try:
        return _decode(tree, buffers)
    except (KeyError, IndexError, ValueError, TypeError, RecursionError, AttributeError) as error:
        raise WireError("a message whose header does not fit its buffers") from error


def _decode(tree: Any, buffers: list[memoryview]) -> Any:
    if isinstance(tree, list):
        return [_decode(item, buffers) for item in tree]
    if not isinstance(tree, dict):
        return tree
    ((kind, rest),) = tree.items()
    if kind == "tuple":
        return tuple(_decode(item, buffers) for item in rest)
    if kind == "dict":
        return {_decode(key, buffers): _decode(item, buffers) for key, item in rest}
    if kind == "bytes":
        return bytes(buffers[_index(rest)])
    if kind == "strings":
        return _decode_strings(rest[0], _decode(rest[1], buffers))
    if kind == "array":
        name, shape, index = rest
        return _decode_array(name, shape, index, buffers)
    raise ValueError(kind)


def _index(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value


def _decode_strings(shape: Any, items: list[Any]) -> np.ndarray[Any, Any]:
    import numpy as np

    dims = tuple(_index(dim) for dim in shape)
    if prod(dims) != len(items):
        raise ValueError(shape)
    array = np.empty(len(items), dtype=object)
    array[:] = [_text(item) for item in items]
    return array.reshape(dims)


def _decode_array(
    name: str, shape: Any, index: Any, buffers: list[memoryview]
) -> np.ndarray[Any, Any]:
    import numpy as np

    dtype = _dtype(name)
    dims = tuple(_index(dim) for dim in shape)
    data = buffers[_index(index)]
    if prod(dims) * dtype.itemsize != len(data):
        raise ValueError(shape)
    if not len(data):
        return np.empty(dims, dtype)
    return np.frombuffer(data, np.uint8).view(dtype).reshape(dims)


def _dtype(name: str) -> np.dtype[Any]:
    import numpy as np

    if name[:1] in "<>|=":
        dtype = np.dtype(name)
        if dtype.kind in PLAIN_KINDS:
            return dtype
    import ml_dtypes

    scalar = getattr(ml_dtypes, name)
    if not (isinstance(scalar, type) and issubclass(scalar, np.generic)):
        raise ValueError(name)
    return np.dtype(scalar)

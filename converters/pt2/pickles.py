"""Walk the opcodes of pickles without unpickling: which names they import, and what they do.

An allowlist of opcodes and of imports decides: what torch's own weights-only loader takes, less
what would be harmful under plain pickle, since torch falls back to it when that loader fails.
"""

from __future__ import annotations

import pickletools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import IO

OPCODES = {
    *("PROTO", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2"),
    *("LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINSTRING", "EMPTY_TUPLE", "TUPLE", "TUPLE1"),
    *("TUPLE2", "TUPLE3", "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS"),
    *("EMPTY_SET", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "GLOBAL", "REDUCE", "NEWOBJ"),
    *("BUILD", "BINPERSID"),
}
"""What the weights-only loader of torch takes."""

STORAGES = {
    *("Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double", "Bool", "QUInt2x4"),
    *("BFloat16", "ComplexFloat", "ComplexDouble", "QInt8", "QUInt8", "QInt32", "QUInt4x2"),
}
DTYPES = {
    *("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool"),
    *("bfloat16", "complex32", "complex64", "complex128", "uint16", "uint32", "uint64"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("qint8", "quint8", "qint32", "quint4x2", "quint2x4", "bits8", "bits16"),
    *("per_tensor_affine", "per_tensor_symmetric", "per_channel_affine", "per_channel_symmetric"),
    "per_channel_affine_float_qparams",
}
REBUILT = {
    *("tensor", "tensor_v2", "tensor_v3", "parameter", "parameter_with_state", "qtensor"),
    *("sparse_tensor", "meta_tensor_no_storage", "nested_tensor"),
}
IMPORTS = {
    *("collections OrderedDict", "collections Counter", "torch Size", "torch device"),
    *("torch Tensor", "torch.nn.parameter Parameter", "torch.serialization _get_layout"),
    *("builtins set", "__builtin__ set", "builtins complex", "__builtin__ complex"),
    *("torch._tensor _rebuild_from_type_v2", "_codecs encode"),
    *("torch.storage UntypedStorage", "torch.storage TypedStorage"),
    *(f"torch {name}Storage" for name in STORAGES),
    *(f"torch {name}" for name in DTYPES),
    *(f"torch._utils _rebuild_{name}" for name in REBUILT),
}
"""Imports, as `module name`, that build tensors, numbers, texts and plain containers."""

CONTAINERS = {"collections defaultdict"} | {
    f"{module} {name}"
    for module in ("builtins", "__builtin__")
    for name in ("list", "dict", "tuple", "int", "float", "str", "bool")
}
"""More imports of sample inputs, harmless too: torch reads these by plain pickle if need be."""

TEXTS = {"BINUNICODE", "SHORT_BINUNICODE", "UNICODE", "BINUNICODE8"}
PUTS = {"PUT", "BINPUT", "LONG_BINPUT"}
GETS = {"GET", "BINGET", "LONG_BINGET"}
MAX_OPCODES = 50_000_000


class Damaged(Exception):
    """Bytes that are no pickle."""


@dataclass(frozen=True)
class Found:
    """The first thing in a pickle that is not allowed: a class or function, or an opcode."""

    what: str
    is_import: bool

    def __str__(self) -> str:
        """Name it for a message."""
        return f"`{self.what}`" if self.is_import else f"opcode {self.what}"


def first_forbidden(data: IO[bytes], more: Collection[str] = ()) -> Found | None:
    """Walk one pickle to its end; give the first import or opcode that is not allowed.

    `more` are imports allowed beside `IMPORTS`. An import goes before an opcode, as it says more.
    Raise Damaged where it is no pickle, whatever it imports before that shows.
    """
    imported: Found | None = None
    opcode: Found | None = None
    texts: list[str] = []
    memo: dict[int, str] = {}
    for name, argument in _walk(data):
        if name == "GLOBAL" or name == "INST":
            if name == "INST" or not (argument in IMPORTS or argument in more):
                imported = imported or Found(str(argument).replace(" ", "."), True)
        elif name == "STACK_GLOBAL" and " ".join(texts[-2:]) not in IMPORTS:
            imported = imported or Found(".".join(texts[-2:]), True)
        elif name not in OPCODES:
            opcode = opcode or Found(name, False)
        _remember(name, argument, texts, memo)
    return imported or opcode


def _walk(data: IO[bytes]) -> Iterator[tuple[str, object]]:
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if count > MAX_OPCODES:
                raise Damaged("it never ends")
            yield opcode.name, argument
    except (ValueError, EOFError, UnicodeDecodeError, OverflowError, MemoryError) as error:
        raise Damaged(str(error)) from error


def _remember(name: str, argument: object, texts: list[str], memo: dict[int, str]) -> None:
    """Keep the last texts on the stack: they name what protocol 4 imports, for the message."""
    if name in TEXTS:
        texts.append(str(argument))
        del texts[:-4]
    elif name == "MEMOIZE" or name in PUTS:
        key = len(memo) if name == "MEMOIZE" else int(str(argument))
        memo[key] = texts[-1] if texts else ""
    elif name in GETS and memo.get(int(str(argument))):
        texts.append(memo[int(str(argument))])
        del texts[:-4]

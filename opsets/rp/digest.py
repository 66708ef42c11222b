"""What an op's definition is, as a hash: two processes with the same hash compute the same.

Torch's compile caches know an op by its name alone (a gradient of another process was served,
measured), so the hash must hold whatever the class's code depends on: its functions' code,
defaults, closures and the globals that they name, followed through the user's own modules. Code of
installed packages stands for itself by name and version. What cannot be read this way makes the
hash unique to this process: a cache miss, never a wrong hit.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import sysconfig
import uuid
from collections.abc import Iterable, Iterator, Mapping, Set
from importlib import metadata
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

_UNIQUE = uuid.uuid4().hex
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_TORCH_WORDS = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)
_SKIPPED = {"__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "_backward_cls"}


def definition_hash(*values: object) -> str:
    """Give the sha256 of everything that these values depend on."""
    writer = _Writer()
    for value in values:
        writer.write(value)
    return writer.sha.hexdigest()


class _Writer:
    """Feed values into a hash, each once; a value met again is named by its number."""

    def __init__(self) -> None:
        self.sha = hashlib.sha256()
        self.seen: dict[int, int] = {}
        self.kept: list[object] = []

    def put(self, *words: object) -> None:
        """Feed words, each with its length, so that no two sequences are alike."""
        for word in words:
            data = word if isinstance(word, bytes) else str(word).encode()
            self.sha.update(b"%d:" % len(data))
            self.sha.update(data)

    def write(self, value: object) -> None:
        """Feed a value by its kind."""
        if isinstance(value, _PLAIN):
            self.put(type(value).__name__, repr(value))
            return
        if isinstance(value, _TORCH_WORDS):
            self.put("torch", value)
            return
        if id(value) in self.seen:
            self.put("again", self.seen[id(value)])
            return
        self.seen[id(value)] = len(self.seen)
        self.kept.append(value)
        self._write_new(value)

    def _write_new(self, value: object) -> None:
        for kinds, write in _WAYS:
            if isinstance(value, kinds):
                write(self, value)
                return
        self._object(value)

    def many(self, word: str, values: Iterable[object]) -> None:
        """Feed several values under a word."""
        self.put(word)
        for value in values:
            self.write(value)
        self.put("end")

    def mapping(self, value: Mapping[Any, Any]) -> None:
        """Feed a mapping in its order, which may matter."""
        self.many("mapping", (part for item in value.items() for part in item))

    def unordered(self, value: Set[Any]) -> None:
        """Feed a set by the sorted hashes of its items."""
        self.put("set", *sorted(definition_hash(item) for item in value))

    def tensor(self, value: torch.Tensor) -> None:
        """Feed a tensor's type, shape and bytes."""
        self.put("tensor", value.dtype, tuple(value.shape), value.requires_grad)
        if value.device.type != "meta" and value.layout is torch.strided:
            plain = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            self.put(plain.numpy().tobytes())

    def function(self, value: FunctionType) -> None:
        """Feed a function's code and what the code can reach."""
        self.put("function", value.__qualname__)
        if _installed(value.__module__):
            self.put(value.__module__, _version(value.__module__))
            if value.__closure__ is None:
                return
        self.code(value.__code__, value.__globals__)
        self.many("defaults", (value.__defaults__, value.__kwdefaults__))
        self.many("closure", map(_content, value.__closure__ or ()))

    def code(self, code: CodeType, names: Mapping[str, Any]) -> None:
        """Feed byte code, constants, and the globals that the code names."""
        self.put("code", code.co_code, code.co_varnames, code.co_freevars, code.co_names)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self.code(constant, names)
            else:
                self.write(constant)
        for name in code.co_names:
            if name in names:
                self.put("global", name)
                self._global(names[name], code.co_names)

    def _global(self, value: object, named: tuple[str, ...]) -> None:
        """Feed a global; of a module of the user's only what the same code names."""
        if isinstance(value, ModuleType) and not _installed(value.__name__):
            self.put("module", value.__name__)
            for name in named:
                if name in vars(value):
                    self.write(vars(value)[name])
        else:
            self.write(value)

    def module(self, value: ModuleType) -> None:
        """Feed a module by its name and version."""
        self.put("module", value.__name__, _version(value.__name__))

    def method(self, value: MethodType) -> None:
        """Feed a bound method and its object."""
        self.many("method", (value.__func__, value.__self__))

    def wrapped(self, value: Any) -> None:
        """Feed what a static or class method wraps."""
        self.many(type(value).__name__, (value.__func__,))

    def partial(self, value: functools.partial[Any]) -> None:
        """Feed a partial call's parts."""
        self.many("partial", (value.func, value.args, value.keywords))

    def accessor(self, value: property) -> None:
        """Feed a property's functions."""
        self.many("property", (value.fget, value.fset, value.fdel))

    def builtin(self, value: Any) -> None:
        """Feed a function that has no Python code by its name."""
        self.put("builtin", value.__module__, value.__qualname__)

    def overload(self, value: Any) -> None:
        """Feed an op by its name."""
        self.put("op", value)

    def klass(self, value: type) -> None:
        """Feed a class: a name where it is installed, else its bases and everything in it."""
        self.put("class", value.__qualname__)
        if _installed(value.__module__):
            self.put(value.__module__, _version(value.__module__))
            return
        self.many("bases", value.__bases__)
        for name, item in vars(value).items():
            if name not in _SKIPPED:
                self.put(name)
                self.write(item)

    def _object(self, value: object) -> None:
        """Feed an object by what a copy would be made of; one that hides it is unique."""
        self.put("object")
        try:
            parts = value.__reduce_ex__(4)
        except Exception:  # whatever the object's own code raises: it cannot be read
            self.put(_UNIQUE, id(value))
            return
        if isinstance(parts, str):
            self.put(parts, type(value))
            return
        for part in parts:
            self.write(list(part) if isinstance(part, Iterator) else part)


_WAYS: tuple[tuple[Any, Any], ...] = (
    ((list, tuple), lambda writer, value: writer.many(type(value).__name__, value)),
    ((set, frozenset), _Writer.unordered),
    (Mapping, _Writer.mapping),
    (torch.Tensor, _Writer.tensor),
    (FunctionType, _Writer.function),
    (type, _Writer.klass),
    (ModuleType, _Writer.module),
    (MethodType, _Writer.method),
    ((staticmethod, classmethod), _Writer.wrapped),
    (functools.partial, _Writer.partial),
    (property, _Writer.accessor),
    (BuiltinFunctionType, _Writer.builtin),
    ((torch._ops.OpOverload, torch._ops.OpOverloadPacket), _Writer.overload),
)


def _content(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return "empty cell"


@functools.cache
def _installed(name: str | None) -> bool:
    """Tell whether a module belongs to Python or an installed package."""
    module = sys.modules.get(name or "")
    if module is None:
        return False
    file = getattr(module, "__file__", None)
    if file is None:
        return name != "__main__" and name in sys.builtin_module_names
    paths = {sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    return str(file).startswith(tuple(f"{path}/" for path in paths))


@functools.cache
def _version(name: str | None) -> str:
    """Give the version of the package that a module belongs to."""
    top = (name or "").split(".")[0]
    if top == "torch":
        return torch.__version__
    try:
        return metadata.version(top)
    except metadata.PackageNotFoundError:
        return sys.version.split()[0]

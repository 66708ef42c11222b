"""Build a module from `file.py:factory` or `pkg.mod:Class`: import, call, load weights into it."""

from __future__ import annotations

import difflib
import importlib
import importlib.abc
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor, nn
from torch.export import ExportedProgram

from oprep.converters.program_source import Source
from oprep.converters.programs.program import Example
from oprep.converters.programs.user_code import calling
from oprep.converters.programs.weights import load_weights
from oprep.opsets.errors import ExitCode, OprepError

EXAMPLES = "example_inputs"
"""The function beside a factory that gives inputs: `(args, kwargs)`, a tuple of args, or one."""


@dataclass(frozen=True)
class Built:
    """What a factory built, inputs from the function beside it, and what there is to say."""

    model: nn.Module | ExportedProgram
    examples: tuple[Example, ...]
    notes: tuple[str, ...]


class _Bytes(importlib.abc.SourceLoader):
    """Load one module from bytes that were read and hashed before; no cache is read or written."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self.data = path, data

    def get_filename(self, fullname: str) -> str:
        return str(self.path)

    def get_data(self, path: str | bytes) -> bytes:
        if str(path) != str(self.path):
            raise OSError(path)
        return self.data


def build(source: Source) -> Built:
    """Import the module, call the factory without arguments and load the weights, if any."""
    module = _imported(source)
    factory = _found(module, source)
    _require_no_arguments(factory, source)
    with calling(f"`{source.name}`", source.name):
        model = factory()
    if not isinstance(model, nn.Module | ExportedProgram):
        raise _not_a_model(source, factory, model)
    notes: tuple[str, ...] = ()
    if source.weights is not None:
        if not isinstance(model, nn.Module):
            fact = f"`{source.name}` gives an exported program, which has weights of its own"
            raise _refused(fact, source.name, help="leave `--weights` out")
        notes = load_weights(model, source.weights)
    return Built(model, _examples(module, source), notes)


def _imported(source: Source) -> ModuleType:
    folder = str(source.folder)
    if folder not in sys.path:  # a package of the working folder never hides an installed one
        sys.path.insert(len(sys.path) if source.module else 0, folder)
    if source.module:
        return _import_named(source)
    name = source.path.stem
    if name in sys.modules or name in sys.stdlib_module_names or not name.isidentifier():
        name = f"model_{''.join(c if c.isalnum() else '_' for c in name)}"
    loader = _Bytes(source.path, source.data)
    spec = importlib.util.spec_from_file_location(name, source.path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with calling(f"importing `{source.path.name}`", source.path.name):
            loader.exec_module(module)
    except OprepError as error:
        if isinstance(error.__cause__, ImportError) and "relative import" in str(error.__cause__):
            error.help = f"name it as a part of its package, as `package.{source.path.stem}:build`"
        raise
    return module


def _import_named(source: Source) -> ModuleType:
    try:
        with calling(f"importing `{source.module}`", source.module):
            return importlib.import_module(source.module)
    except OprepError as error:
        cause = error.__cause__
        parts = source.module.split(".")
        names = {".".join(parts[: end + 1]) for end in range(len(parts))}
        if not isinstance(cause, ModuleNotFoundError) or cause.name not in names:
            raise
        raise _refused(
            f"there is no module `{cause.name}`",
            source.name,
            notes=("it is neither installed nor in the working folder",),
            help="name the file instead, as `model.py:build`",
        ) from cause


def _found(module: ModuleType, source: Source) -> Callable[[], Any]:
    try:
        found = reduce(getattr, source.attribute.split("."), module)
    except AttributeError as error:
        raise _missing(module, source) from error
    if callable(found) and not isinstance(found, nn.Module):
        return found
    if isinstance(found, nn.Module):
        return lambda: found
    raise _refused(
        f"`{source.attribute}` in `{_place(source)}` is {_kind(found)}, not a factory",
        source.name,
        help="name a function or class that gives a `torch.nn.Module`",
    )


def _require_no_arguments(factory: Callable[[], Any], source: Source) -> None:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # built into the interpreter: calling it will tell
        return
    wanted = [
        one.name
        for one in parameters
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if wanted:
        listed = ", ".join(f"`{name}`" for name in wanted[:8])
        raise _refused(
            f"`{source.name}` wants arguments",
            source.name,
            notes=(f"{listed}; a factory is called without any",),
            help="write a function without parameters that calls it",
        )


def _missing(module: ModuleType, source: Source) -> OprepError:
    own = [
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", "") == module.__name__
        and not name.startswith("_")
    ]  # fmt: skip
    near = difflib.get_close_matches(source.attribute, own, n=3, cutoff=0.6)
    listed = ", ".join(f"`{name}`" for name in sorted(own)[:8])
    return _refused(
        f"there is no `{source.attribute}` in `{_place(source)}`",
        source.name,
        notes=(f"it defines {listed}",) if own else ("it defines no function and no class",),
        help="did you mean " + " or ".join(f"`{name}`" for name in near) if near else "",
    )


def _place(source: Source) -> str:
    return source.module or source.path.name


def _not_a_model(source: Source, factory: Callable[[], Any], model: Any) -> OprepError:
    help = ""
    if isinstance(model, type) and issubclass(model, nn.Module):
        help = f"let it return `{model.__name__}()`"
    elif inspect.isclass(factory):
        help = "name a subclass of `torch.nn.Module`, or a function that gives one"
    return _refused(
        f"`{source.name}` gives {_kind(model)}, not a model",
        source.name,
        notes=("a `torch.nn.Module` or a `torch.export.ExportedProgram` is wanted",),
        help=help,
    )


def _kind(value: Any) -> str:
    if value is None:
        return "`None`"
    if isinstance(value, type):
        return f"the class `{value.__name__}`"
    return f"a `{type(value).__name__}`"


def _examples(module: ModuleType, source: Source) -> tuple[Example, ...]:
    function = getattr(module, EXAMPLES, None)
    if function is None:
        return ()
    where = f"{_place(source)}:{EXAMPLES}"
    with calling(f"`{EXAMPLES}` in `{_place(source)}`", where):
        given = function()
    return (Example(EXAMPLES, *as_call(given)),)


def as_call(given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Take `(args, kwargs)`, a tuple or list of args, a dict of keywords, or one tensor."""
    if isinstance(given, tuple | list):
        if len(given) == 2 and isinstance(given[0], tuple | list) and _is_keywords(given[1]):
            return tuple(given[0]), dict(given[1])
        return tuple(given), {}
    if not isinstance(given, Tensor) and _is_keywords(given):
        return (), dict(given)
    return (given,), {}


def _is_keywords(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) for key in value)


def _refused(message: str, where: str, notes: tuple[str, ...] = (), help: str = "") -> OprepError:
    return OprepError(message, where=where, notes=notes, help=help, exit_code=ExitCode.MODEL)

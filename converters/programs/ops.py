"""The ops of rule files as real torch ops, and the record of what each of them is.

An op is made of its `python` where it has one, else of its `torch_library`, else of its `body`.
A definition is made once per process; another one for the same name is refused, with both shown,
as torch keeps one op per name.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import new_class
from typing import Any

import torch
from torch._ops import OpOverload

from oprep.converters.answers import CODE
from oprep.converters.libraries import load_library, load_probed
from oprep.converters.programs.bodies import body_of, schema_of
from oprep.converters.programs.code_modules import run_code
from oprep.converters.programs.definitions import Definition, body_op, of_body, of_code
from oprep.converters.programs.overloads import overload_names, packet, slots_of
from oprep.converters.runner import TOKEN
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.expression import walk
from oprep.opsets.rp import Rp, register_autograd
from oprep.opsets.rule import CustomOp
from oprep.opsets.syntax import Call

WITHOUT_DATA = ("Meta", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
"""The dispatch keys whose kernels run on tensors without data, too."""

_MADE: dict[str, Definition] = {}
"""What was made in this process, by name: torch keeps one op per name, too."""


@dataclass
class Installed:
    """The ops that are registered now, and what a report should say of them."""

    definitions: dict[str, Definition] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def install(
    ops: Sequence[CustomOp],
    sources: Mapping[str, bytes],
    folder: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Installed:
    """Register every op of a rule file that has a name in torch and a meaning.

    `sources` has the bytes of the files that the ops name, by the name as it is written there.
    `folder` holds private copies of the libraries among them, under the same names. `say` hears
    whose code runs now, should the process not come back from it.
    Raise OprepError: exit RULES for code that does not run or register what it should, exit
    VERIFICATION for an op that breaks its contract.
    """
    installed = Installed()
    for op in ops:
        if op.name is None:
            installed.notes.append(f"`{op.onnx}` has no `name`, so PyTorch programs cannot use it")
            continue
        if op.kernel:
            instead = "its `python` is" if op.python else "its body is"
            known = op.python or op.body is not None
            installed.notes.append(
                f"`kernel` of `{op.name}` is not built for PyTorch programs"
                + (f", {instead} used" if known else "")
            )
        code = op.python or op.torch_library
        if code:
            say(f"{CODE}`{code}`")
        definition = _make(op, sources, folder)
        if definition is None:
            installed.notes.append(
                f"`{op.name}` has neither `body`, `python` nor `torch_library`, and is no op of "
                "this PyTorch"
            )
            continue
        installed.definitions[op.name] = definition
    return installed


def _make(op: CustomOp, sources: Mapping[str, bytes], folder: Path | None) -> Definition | None:
    assert op.name is not None
    if op.python:
        file, _, cls = op.python.rpartition(":") if ":" in op.python else (op.python, "", "")
        return make_python(op, file, cls, sources[file])
    if op.torch_library:
        if folder is None:
            raise _misused(op, "there is no folder to load its library from")
        return make_library(op, op.torch_library, sources[op.torch_library], folder)
    if op.body is not None and (op.name in _MADE or packet(*_split(op.name)) is None):
        return make_body(op)
    if packet(*_split(op.name)) is not None:
        return _remember(of_code(op, "registered", schema_text(op.name)))
    return None


def make_body(op: CustomOp) -> Definition:
    """Register an op that computes its body; the gradient is that of the body."""
    assert op.name is not None
    definition = of_body(op)
    if _known(definition):
        return definition
    body = body_of(op)

    def forward(ctx: Any, *arguments: Any) -> Any:
        return body(*arguments)

    made = new_class(
        _class_name(op.name),
        (Rp,),
        exec_body=lambda names: names.update(forward=staticmethod(forward)),
    )
    register_autograd(op.name, made, schema=schema_of(op), definition=definition.text())
    return _remember(definition)


def make_python(op: CustomOp, file: str, cls: str, data: bytes) -> Definition:
    """Register an op of a class in a Python file, or let the file register it."""
    assert op.name is not None
    digest = hashlib.sha256(data).hexdigest()
    where = str(dict(op.sources).get("python", op.source))
    _known(of_code(op, "python", _wanted(op), file, cls, digest))
    module = run_code(file, data, where)
    if cls:
        found = getattr(module, cls, None)
        if not isinstance(found, type) or not issubclass(found, torch.autograd.Function):
            what = "is no class with `forward`" if found is not None else "is not there"
            raise OprepError(
                f"`{cls}` of `{file}` {what}",
                where,
                ("`python` names a subclass of `oprep.Rp` or `torch.autograd.Function`",),
                "correct the name, or the class",
                ExitCode.RULES,
            )
        if found.forward is torch.autograd.Function.forward:
            raise OprepError(
                f"`{cls}` of `{file}` has no `forward`",
                where,
                (),
                "write `forward(ctx, …)` as a static method",
                ExitCode.RULES,
            )
        words = {"schema": schema_of(op)} if op.has_signature else {}
        try:
            register_autograd(op.name, found, **words)
        except OprepError as error:
            usage = error.exit_code is ExitCode.USAGE
            code = ExitCode.RULES if usage else error.exit_code
            raise OprepError(error.message, where, error.notes, error.help, code) from error
    elif packet(*_split(op.name)) is None:
        raise OprepError(
            f"`{file}` was run and did not register `{op.name}`",
            where,
            (),
            f'call `oprep.register_autograd("{op.name}", …)` in it, or name a class',
            ExitCode.RULES,
        )
    _same_signature(op, where)
    return _remember(of_code(op, "python", schema_text(op.name), file, cls, digest))


def make_library(op: CustomOp, file: str, data: bytes, folder: Path) -> Definition:
    """Load a compiled library that has an op; its body says what it gives where the op does not."""
    assert op.name is not None
    digest = hashlib.sha256(data).hexdigest()
    where = str(dict(op.sources).get("torch_library", op.source))
    if not _known(of_code(op, "library", _wanted(op), file, "", digest)):
        _load(folder / file)
    if packet(*_split(op.name)) is None:
        raise OprepError(
            f"`{file}` does not have `{op.name}`",
            where,
            (),
            "correct the name of the op",
            ExitCode.RULES,
        )
    _same_signature(op, where)
    if op.body is not None and not has_fake(op.name):
        torch.library.register_fake(op.name, body_of(op))
    return _remember(of_code(op, "library", schema_text(op.name), file, "", digest))


def has_fake(name: str) -> bool:
    """Tell whether an op says by itself what it gives without data."""
    known = torch._library.simple_registry.singleton.find(name).fake_impl.kernel
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return known is not None or any(has(name, key) for key in WITHOUT_DATA)


def _load(path: Path) -> None:
    """Load a library; a child is its own probe, as its end is a result."""
    if TOKEN in os.environ:
        load_probed(path, (), path.name)
    else:
        load_library(path)


def _wanted(op: CustomOp) -> str:
    """Give the schema that an op is registered with already, else the declared one."""
    assert op.name is not None
    return schema_text(op.name) if packet(*_split(op.name)) is not None else schema_of(op)


def _known(definition: Definition) -> bool:
    """Tell whether an op was made of this definition; refuse where of another one."""
    made = _MADE.get(definition.name)
    if made is not None and made.text() + made.sha256 != definition.text() + definition.sha256:
        raise OprepError(
            f"`{definition.name}` is defined in two ways",
            definition.name,
            (f"it is {made.shown()}", f"it should be {definition.shown()}"),
            "give one of them another name, or use another process",
            ExitCode.RULES,
        )
    return made is not None and packet(*_split(definition.name)) is not None


def is_made(name: str) -> bool:
    """Tell whether an op was made here of a definition."""
    return name in _MADE


def _remember(definition: Definition) -> Definition:
    _MADE.setdefault(definition.name, definition)
    return definition


def _same_signature(op: CustomOp, where: str) -> None:
    """Refuse an op whose code takes other arguments than the rule file says."""
    assert op.name is not None
    if not op.has_signature:
        return
    wanted, there = schema_of(op), schema_text(op.name)
    names = [item.name for item in op.parameters]
    slots = slots_of(overload_of(op.name))
    kinds = {"tensor": "tensor", "optional": "tensor", "tensors": "tensor"}
    same = [slot.name for slot in slots] == names and all(
        (slot.kind == "tensor") == (item.kind in kinds)
        for slot, item in zip(slots, op.parameters, strict=True)
    )
    if not same:
        raise OprepError(
            f"`{op.name}` takes something else than the rule file says",
            where,
            (f"the rule file says {wanted}", f"the code has {there}"),
            "make the two agree",
            ExitCode.VERIFICATION,
        )


def overload_of(name: str) -> OpOverload:
    """Give the overload that a custom op has."""
    found = packet(*_split(name))
    assert found is not None
    overload: OpOverload = getattr(found, overload_names(found)[0])
    return overload


def schema_text(name: str) -> str:
    """Give the schema of a registered op, without its name."""
    text = str(overload_of(name)._schema)
    return text[text.index("(") :]


def used_with(definitions: Mapping[str, Definition], names: Iterable[str]) -> list[Definition]:
    """Give the definitions of ops and of those that their bodies call."""
    found: dict[str, Definition] = {}
    waiting = sorted(set(names))
    while waiting:
        name = waiting.pop()
        definition = definitions.get(name)
        if definition is None or name in found:
            continue
        found[name] = definition
        if definition.kind == "body":
            waiting += sorted(called(body_op(definition)))
    return [found[name] for name in sorted(found)]


def called(op: CustomOp) -> set[str]:
    """Give the ops that a body names, as `namespace::op`."""
    assert op.body is not None
    parts = [*(statement.value for statement in op.body.statements), *op.body.results]
    calls = [item for part in parts for item in walk(part) if isinstance(item, Call)]
    return {f"{call.domain}::{call.function}" for call in calls if call.domain}


def _split(name: str) -> tuple[str, str]:
    space, _, short = name.partition("::")
    return space, short


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in _split(name)[1].split("_")) or "Op"


def _misused(op: CustomOp, reason: str) -> OprepError:
    return OprepError(f"`{op.name}` cannot be registered: {reason}", str(op.source),
                      exit_code=ExitCode.RULES)  # fmt: skip

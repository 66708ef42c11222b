"""Let a class compute a standard op in eager mode, forward and gradient, until it is undone.

The Autograd kernel and the backend kernel are overridden, so that inference mode, other threads and
callers of `torch.ops.aten` see the class too; one of them alone keeps the old gradient or is passed
by (measured), and a function mode misses most of these. The kernel before functorch's transforms is
overridden as well. What runs in the class is a registered op of its own. While a program is being
exported the old op stays: captured graphs are changed by rules.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._ops import OpOverload

from oprep.opsets.rp import caches
from oprep.opsets.rp.arguments import filled, parameters_of
from oprep.opsets.rp.digest import definition_hash
from oprep.opsets.rp.function import Class
from oprep.opsets.rp.handle import Handle
from oprep.opsets.rp.messages import qualified
from oprep.opsets.rp.registry import LOCK, register_autograd
from oprep.opsets.rp.variants import Variant, base_overload, variants
from oprep.opsets.rp.within import taken, within

BACKENDS = {"cuda": "CUDA", "xpu": "XPU", "mps": "MPS"}
_FRONT = "FuncTorchDynamicLayerFrontMode"


class _Here(threading.local):
    """What holds in this thread: ops whose old meaning is asked for, modules that are running."""

    def __init__(self) -> None:
        self.old: dict[str, int] = {}
        self.running: dict[int, int] = {}


_HERE = _Here()
_FAMILIES: dict[str, _Family] = {}


@dataclass(eq=False)
class _Replacement:
    """One class in place of a standard op, everywhere or in one module."""

    op: OpOverload
    taken: int
    module: torch.nn.Module | None

    def holds(self) -> bool:
        """Tell whether it is meant here."""
        return self.module is None or _HERE.running.get(id(self), 0) > 0


@dataclass(eq=False)
class _Family:
    """A standard op with its in-place and `out=` spellings, and what replaces it now."""

    overload: OpOverload
    active: list[_Replacement] = field(default_factory=list)
    library: Any = None

    @property
    def name(self) -> str:
        """Give the name that the thread notes the op by."""
        return str(self.overload)

    def chosen(self) -> _Replacement | None:
        """Give the last replacement that holds here."""
        if _HERE.old.get(self.name) or torch.compiler.is_exporting():
            return None
        return next((one for one in reversed(self.active) if one.holds()), None)

    @contextmanager
    def old(self) -> Iterator[None]:
        """Let the op be the old one in this thread."""
        _HERE.old[self.name] = _HERE.old.get(self.name, 0) + 1
        try:
            yield
        finally:
            _HERE.old[self.name] -= 1

    def install(self) -> None:
        """Override the kernels of all spellings."""
        self.library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
        keys = [_FRONT]
        for backend in ("CPU", *_accelerator()):
            keys += [f"Autograd{backend}", backend]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            for variant in variants(self.overload):
                for key in keys:
                    self._override(variant, key)
        self._look_up_anew()

    def _override(self, variant: Variant, key: str) -> None:
        try:
            original = torch.library.get_kernel(variant.overload, key)
        except RuntimeError:  # the op has no kernel for this device
            return
        parameters = parameters_of(variant.overload._schema)

        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            chosen = self.chosen()
            if chosen is not None:
                given, outs = variant.part(filled(parameters, args, kwargs))
                rest = zip(given[chosen.taken :], parameters[chosen.taken :], strict=False)
                if all(value == parameter.default for value, parameter in rest):
                    positional, named = variant.base_call(given)
                    return variant.finish(chosen.op(*positional, **named), given, outs)
            with self.old():
                return original.call_boxed(keyset, *args, **kwargs)

        self.library.impl(variant.overload, kernel, key, with_keyset=True)

    def remove(self, one: _Replacement) -> None:
        """Take a replacement out; give the kernels back with the last one."""
        self.active = [other for other in self.active if other is not one]
        if not self.active and self.library is not None:
            self.library._destroy()
            self.library = None
            self._look_up_anew()

    def _look_up_anew(self) -> None:
        """Let torch forget which kernel it chose: a compiler that saw the op once looks no more."""
        for variant in variants(self.overload):
            variant.overload._dispatch_cache.clear()


def _accelerator() -> tuple[str, ...]:
    if not torch.accelerator.is_available():
        return ()
    device = torch.accelerator.current_accelerator()
    key = BACKENDS.get(device.type if device is not None else "")
    return (key,) if key else ()


def replace_standard(
    name: str | Any, cls: Class, /, module: torch.nn.Module | None = None
) -> Handle:
    """Let `cls` compute a standard op in eager mode; give a handle to undo it.

    `name` is `aten::gelu`, or `aten::add.Tensor` where there are several overloads; the in-place
    and `out=` spellings follow. `cls` takes the op's arguments, or the first of them: a call whose
    others are not at their defaults stays with the old op. With `module` only calls while that
    module's forward runs are replaced. Inside `cls` the op is the old one. Programs being exported
    keep the op. Raises `OprepError` for an unknown op, a view, or a class that cannot stand in.
    """
    overload = base_overload(name)
    with LOCK:
        family = _FAMILIES.setdefault(str(overload), _Family(overload))
        one = _Replacement(_registered(family, cls), taken(cls, overload), module)
        if family.library is None:
            family.install()
        family.active = [*family.active, one]
    hooks = _hooks(one, module) if module is not None else ()
    caches.forget()

    def undo() -> None:
        with LOCK:
            family.remove(one)
        for hook in hooks:
            hook.remove()
        caches.forget()

    return Handle(f"{overload} computed by {qualified(cls)}", undo)


def _registered(family: _Family, cls: Class) -> OpOverload:
    """Register the class, with the old op inside it, under a name made of its definition."""
    made = within(cls, family.overload, family.old)
    digest = definition_hash(family.name, cls)
    short = family.name.removeprefix("aten.").removesuffix(".default").replace(".", "_")
    name = f"oprep::standard_{short}_{digest[:12]}"
    schema = str(family.overload._schema)
    return register_autograd(name, made, schema=schema, definition=digest)


def _hooks(one: _Replacement, module: torch.nn.Module) -> tuple[Any, ...]:
    def enter(*_: Any) -> None:
        _HERE.running[id(one)] = _HERE.running.get(id(one), 0) + 1

    def leave(*_: Any) -> None:
        _HERE.running[id(one)] -= 1

    return (
        module.register_forward_pre_hook(enter, prepend=True),
        module.register_forward_hook(leave, always_call=True),
    )

"""Let another class compute a registered op, wherever the op is called from then on.

The kernels look the class up at each call, so that eager code, programs that were captured, loaded
or traced, and `torch.ops` follow at once. What torch.compile has compiled holds the old gradient
(measured), so the change also sets another cache tag and lets it compile anew.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from oprep.opsets.rp import caches, sharding
from oprep.opsets.rp.chain import chained
from oprep.opsets.rp.digest import definition_hash
from oprep.opsets.rp.function import Class, declared, has_setup
from oprep.opsets.rp.handle import Handle
from oprep.opsets.rp.messages import misused, qualified
from oprep.opsets.rp.op import Implementation, Op, implement
from oprep.opsets.rp.registry import LOCK, find, install, retag

MODES = ("replace", "compose")


@dataclass(frozen=True, eq=False)
class Layer:
    """One change of an op: the class, what was found out about it, and how it is put in."""

    now: Implementation
    mode: str
    definition: str


def register_composite(name: str | Any, cls: Class, /, mode: str = "replace") -> Handle:
    """Let `cls` compute the op registered under `name`; give a handle to undo it.

    `mode="compose"` feeds the results of `cls` to what the op was before, in place of its first
    arguments; both gradients are chained. `cls` takes the op's arguments. Raises `OprepError` for
    a name that is not registered here and for a class that cannot stand in.
    """
    op = find(name)
    if mode not in MODES:
        raise misused(f"unknown mode `{mode}` for `{op.name}`", help="write `replace` or `compose`")
    _fits(op, cls)
    now = implement(cls, op.contract, len(op.parameters), None)
    layer = Layer(now, mode, definition_hash(mode, cls))
    with LOCK:
        _change(op, [*op.layers, layer])
    return Handle(f"{op.name} computed by {qualified(cls)}", lambda: _remove(op, layer))


def _remove(op: Op, layer: Layer) -> None:
    with LOCK:
        _change(op, [other for other in op.layers if other is not layer])


def _change(op: Op, layers: list[Layer]) -> None:
    now = op.base
    for layer in layers:
        now = layer.now if layer.mode == "replace" else chained(op, layer.now, now)
    op.layers = list(layers)
    install(op, now)
    retag()
    sharding.forget()
    caches.forget()


def _fits(op: Op, cls: Class) -> None:
    """Refuse a class that takes other arguments, or draws random numbers where the op does not."""
    values = [None] * (len(op.parameters) + (not has_setup(cls)))
    try:
        inspect.signature(cls.forward).bind(*values)
    except TypeError as error:
        raise misused(
            f"`{cls.__name__}` cannot compute `{op.name}`",
            where=qualified(cls),
            notes=(f"the op takes {op.contract.schema}", f"its forward: {error}"),
            help="let its `forward` take the op's arguments",
        ) from error
    if declared(cls).get("random") and not op.contract.random:
        raise misused(
            f"`{cls.__name__}` draws random numbers, `{op.name}` is not declared to",
            where=qualified(cls),
            help=f"register `{op.name}` with `random=True`",
        )

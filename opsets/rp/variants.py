"""The spellings of a standard op: the plain one, in place, and with `out=`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket

from oprep.opsets.rp.messages import misused


@dataclass(frozen=True)
class Variant:
    """One spelling: its overload and where its result goes."""

    overload: OpOverload
    base: OpOverload
    kind: str
    """`plain`, `in place` or `out`."""

    def part(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Tensor, ...]]:
        """Part all arguments into those of the plain spelling and the `out=` tensors."""
        count = len(self.base._schema.arguments)
        return args[:count], args[count:]

    def base_call(self, args: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give the positional and keyword-only arguments of the plain spelling.

        The dispatcher hands a number at a tensor's place to Python as a number.
        """
        formal = self.base._schema.arguments
        args = [
            torch.tensor(value)
            if str(item.type) == "Tensor" and not isinstance(value, Tensor)
            else value
            for item, value in zip(formal, args, strict=True)
        ]
        at = sum(not argument.kwarg_only for argument in formal)
        names = [argument.name for argument in formal[at:]]
        return tuple(args[:at]), dict(zip(names, args[at:], strict=True))

    def finish(self, result: Any, args: Sequence[Any], outs: Sequence[Tensor]) -> Any:
        """Put the result where this spelling wants it."""
        if self.kind == "plain":
            return result
        if self.kind == "in place":
            return args[0].copy_(result)
        results = (result,) if isinstance(result, Tensor) else tuple(result)
        for out, value in zip(outs, results, strict=True):
            if out.shape != value.shape:
                out.resize_(value.shape)
            out.copy_(value)
        return outs[0] if len(outs) == 1 else tuple(outs)


def base_overload(name: str | Any) -> OpOverload:
    """Find the plain overload that is meant; refuse views, unknown and unclear names."""
    packet, wanted = _packet(name)
    keys: list[str] = packet.overloads()  # type: ignore[no-untyped-call]
    overloads: list[OpOverload] = [getattr(packet, key) for key in keys]
    plain = [one for one in overloads if not _writes(one) and _gives_tensors(one)]
    if wanted:
        plain = [one for one in plain if one._overloadname == wanted]
    elif len(plain) > 1:
        plain = [one for one in plain if one._overloadname == "default"] or plain
    if len(plain) != 1:
        told = ", ".join(f"`{_written(one)}`" for one in plain or overloads)
        raise misused(
            f"`{name}` is no overload of a standard op" if not plain else f"`{name}` is unclear",
            notes=(f"overloads: {told}",),
            help="write the overload, as in `aten::add.Tensor`",
        )
    _check(plain[0])
    return plain[0]


def _packet(name: str | Any) -> tuple[OpOverloadPacket, str]:
    if isinstance(name, OpOverload):
        return name.overloadpacket, name._overloadname
    if isinstance(name, OpOverloadPacket):
        return name, ""
    space, _, rest = str(name).rpartition("::")
    short, _, wanted = rest.partition(".")
    packet = getattr(torch.ops.aten, short, None) if space == "aten" else None
    if not isinstance(packet, OpOverloadPacket):
        raise misused(
            f"`{name}` is no standard op",
            notes=("standard ops are those of namespace `aten`",),
            help="write a name as `aten::gelu`",
        )
    return packet, wanted


def _check(overload: OpOverload) -> None:
    schema = overload._schema
    if any(value.alias_info is not None for value in (*schema.returns, *schema.arguments)):
        raise misused(
            f"`{_written(overload)}` gives a view and cannot be replaced", where=str(schema)
        )


def _gives_tensors(overload: OpOverload) -> bool:
    kinds = [str(value.type) for value in overload._schema.returns]
    return bool(kinds) and all(kind in ("Tensor", "List[Tensor]") for kind in kinds)


def _writes(overload: OpOverload) -> bool:
    infos = [argument.alias_info for argument in overload._schema.arguments]
    return any(info is not None and info.is_write for info in infos)


def _written(overload: OpOverload) -> str:
    space, _, short = overload._schema.name.partition("::")
    name = overload._overloadname
    return f"{space}::{short}" + ("" if name == "default" else f".{name}")


def variants(base: OpOverload) -> list[Variant]:
    """Give the plain spelling, and those in place and with `out=` that there are."""
    found = [Variant(base, base, "plain")]
    short = base._schema.name.partition("::")[2]
    in_place = getattr(getattr(torch.ops.aten, f"{short}_", None), base._overloadname, None)
    if in_place is not None and _same(in_place, base, 0):
        found.append(Variant(in_place, base, "in place"))
    packet = base.overloadpacket
    for key in packet.overloads():
        overload = getattr(packet, key)
        if _writes(overload) and _same(overload, base, len(base._schema.returns)):
            found.append(Variant(overload, base, "out"))
    return found


def _same(other: OpOverload, base: OpOverload, outs: int) -> bool:
    """Tell whether an overload takes what the base takes, and `outs` tensors to write to."""
    mine = [(a.name, str(a.real_type)) for a in base._schema.arguments]
    its = [(a.name, str(a.real_type)) for a in other._schema.arguments]
    return its[: len(mine)] == mine and len(its) == len(mine) + outs

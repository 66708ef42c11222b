"""Register a class as an op of torch's dispatcher, once, and find it again.

The recipe: the op and a hidden companion that also returns what forward saved, each with a kernel
for every device and a fake one; an Autograd kernel that redispatches where no gradient is needed;
a kernel before functorch's transforms; one for autocast. So the op stays one node in every graph
and keeps its own backward in every mode.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch._ops import OpOverload

from oprep.opsets.rp import caches, kernels, sharding
from oprep.opsets.rp.arguments import parameters_of
from oprep.opsets.rp.contract import WORDS, Contract, dtypes_of
from oprep.opsets.rp.digest import definition_hash
from oprep.opsets.rp.function import Class, declared
from oprep.opsets.rp.guards import eager_call
from oprep.opsets.rp.messages import misused, qualified
from oprep.opsets.rp.op import Implementation, Op, implement
from oprep.opsets.rp.schema import infer

HOME = "oprep"
HIDDEN = "__fwd"

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*::[A-Za-z_]\w*")
_OPS: dict[str, Op] = {}
LOCK = threading.RLock()


def register_autograd(name: str | Class, cls: Class | None = None, /, **words: Any) -> OpOverload:
    """Make a class an op; give the op, which is called as the class's forward without ctx.

    `name` is `ns::op`; a bare name lies in namespace `oprep`. It may be left out where the class
    line has it. `words` are those of `Contract`, and `fake` (a function of the arguments that gives
    tensors of the right shape; needed only where forward cannot run without data) and `definition`
    (a text or hash that stands for the class's code where the code is generated). They add to
    those of the class line. The same definition twice is the same op; another definition of a
    registered name is an `OprepError`, as are a foreign op of that name and a contract that the
    class cannot keep.
    """
    if not isinstance(name, str):
        cls, name = name, str(declared(name).get("name", ""))
    if cls is None or not isinstance(cls, type) or not issubclass(cls, torch.autograd.Function):
        raise misused(
            f"`{name}` needs a class with `forward`, a subclass of `oprep.Rp`",
            help='write `register_autograd("ns::op", Class)`',
        )
    words = _known({**declared(cls), **words})
    contract = _contract(full_name(name), cls, words)
    fake, definition = words.get("fake"), words.get("definition")
    digest = definition_hash(contract, definition or (cls, fake))
    with LOCK:
        op = _OPS.get(contract.name)
        if op is None:
            op = _OPS[contract.name] = _define(contract, cls, fake, digest)
            _publish(op)
        elif op.definition != digest:
            raise misused(
                f"`{op.name}` is registered already, with another definition",
                where=qualified(cls),
                help=f'call `register_composite("{op.name}", {cls.__name__})` to change it',
            )
        return op.overload


def _known(words: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(words) - WORDS - {"name"})
    if unknown:
        raise misused(
            f"unknown word `{unknown[0]}` for an op",
            notes=("known: " + ", ".join(f"`{word}`" for word in sorted(WORDS)),),
            help=f"remove `{unknown[0]}`",
        )
    return {word: value for word, value in words.items() if word != "name"}


def full_name(name: str) -> str:
    """Give `ns::op`; refuse what cannot be a name."""
    whole = name if "::" in name else f"{HOME}::{name}"
    if not _NAME.fullmatch(whole) or whole.endswith(HIDDEN):
        raise misused(
            f"`{name}` cannot be the name of an op" if name else "the op has no name",
            notes=("a name is `op` or `namespace::op`",),
            help='write `register_autograd("ns::op", Class)`, or `class Op(Rp, name="ns::op")`',
        )
    return whole


def _contract(name: str, cls: Class, words: Mapping[str, Any]) -> Contract:
    given = {word: value for word, value in words.items() if word not in ("fake", "definition")}
    mutates = given.pop("mutates", ())
    mutates = (mutates,) if isinstance(mutates, str) else tuple(mutates)
    dtypes = dtypes_of(given.pop("dtypes", ()))
    schema = given.pop("schema", None) or infer(cls, mutates)
    schema = schema[schema.index("(") :]
    differentiable = given.pop("differentiable", not mutates)
    if mutates and differentiable:
        raise misused(
            f"`{name}` changes an argument and so has no gradient",
            help="leave `differentiable` out",
        )
    return Contract(name, schema, mutates, differentiable, dtypes=dtypes, **given)


def _define(contract: Contract, cls: Class, fake: Callable[..., Any] | None, digest: str) -> Op:
    space, short = contract.name.split("::")
    if _exists(contract.name):
        raise misused(
            f"`{contract.name}` is an op of another library",
            help="choose another name",
        )
    schema = _parsed(contract)
    parameters = parameters_of(schema)
    now = implement(cls, contract, len(parameters), fake)
    library: Any = torch.library.Library(space, "FRAGMENT")  # type: ignore[no-untyped-call]
    tags = [torch.Tag.pt2_compliant_tag]
    tags += [torch.Tag.nondeterministic_seeded] if contract.random else []
    library.define(f"{short}{contract.schema}", tags=tags)
    overload = getattr(getattr(torch.ops, space), short).default
    hidden = None
    if not contract.mutates:
        inputs = contract.schema[: contract.schema.rindex("->")]
        library.define(f"{short}{HIDDEN}{inputs}-> Tensor[]", tags=tags)
        hidden = getattr(getattr(torch.ops, space), short + HIDDEN).default
    returns, results = _returns(schema)
    contract = replace(contract, mutates=tuple(p.name for p in parameters if p.mutated))
    op = Op(contract, parameters, returns, results, library, overload, hidden, now, now, digest)
    install(op, now)
    _implement(op, short)
    return op


def install(op: Op, now: Implementation) -> None:
    """Let an op be computed by a class from now on."""
    op.now = now
    op.eager = eager_call(op)
    op.fresh = True


def _implement(op: Op, short: str) -> None:
    library = op.library
    pairs: list[tuple[str, Callable[..., Any], Callable[..., Any]]] = [
        (short, kernels.plain(op), kernels.fake(op))
    ]
    if op.hidden is not None:
        real, fake = kernels.hidden(op, real=True), kernels.hidden(op, real=False)
        pairs.append((short + HIDDEN, real, fake))
    for name, real, fake in pairs:
        library.impl(name, real, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{library.ns}::{name}", fake, lib=library)
    library.impl(short, kernels.autograd(op), "Autograd", with_keyset=True)
    library.impl(short, kernels.functorch(op), "FuncTorchDynamicLayerFrontMode")
    for key in kernels.AUTOCAST_KEYS:
        library.impl(short, kernels.autocast(op), key)


def _publish(op: Op) -> None:
    """Let the caches, DTensor and `oprep.ops` know."""
    retag()
    sharding.wait(op)
    from oprep.opsets.rp.names import ops

    ops.add(op)


def retag() -> None:
    """Set the cache tag from what all ops compute now."""
    caches.tag(f"{op.name} {current(op)}" for op in _OPS.values())


def current(op: Op) -> str:
    """Give the hash of what an op computes now, replaced parts included."""
    return definition_hash(op.definition, [layer.definition for layer in op.layers])


def _exists(name: str) -> bool:
    found = torch._C._jit_get_schemas_for_operator(name)
    return bool(found)


def _parsed(contract: Contract) -> torch.FunctionSchema:
    try:
        return torch._C.parse_schema(f"{contract.name}{contract.schema}")
    except RuntimeError as error:
        raise misused(
            f"the schema of `{contract.name}` cannot be read",
            where=contract.schema,
            notes=(str(error).strip().splitlines()[0],),
            help="write it as `(Tensor x, float eps=1e-05) -> Tensor`",
        ) from error


def _returns(schema: torch.FunctionSchema) -> tuple[str, int]:
    kinds = [str(item.type) for item in schema.returns]
    if kinds == ["Tensor"]:
        return "one", 1
    if kinds == ["List[Tensor]"]:
        return "list", 0
    if all(kind == "Tensor" for kind in kinds):
        return ("many", len(kinds)) if kinds else ("none", 0)
    raise misused(
        f"`{schema.name}` gives something else than tensors",
        where=str(schema),
        help="let it give `Tensor`, `(Tensor, Tensor)`, `Tensor[]` or `()`",
    )


def find(op: str | Any) -> Op:
    """Give the registered op of a name, an overload or a packet."""
    name = op if isinstance(op, str) else getattr(op, "_name", None) or op._qualified_op_name
    name = full_name(str(name)).removesuffix(".default")
    if name not in _OPS:
        raise misused(
            f"`{name}` is no op that was registered here",
            help="register it with `register_autograd`",
        )
    return _OPS[name]


def is_registered(name: str) -> bool:
    """Tell whether an op of this name was registered here."""
    return full_name(name) in _OPS


def registered() -> tuple[str, ...]:
    """Give the names of all ops that were registered here, sorted."""
    return tuple(sorted(_OPS))


def contract_of(op: str | Any) -> Contract:
    """Give the contract of a registered op, named or as torch gives it."""
    return find(op).contract


def definition_of(op: str | Any) -> str:
    """Give the sha256 of what a registered op computes now."""
    return current(find(op))


def class_of(op: str | Any) -> Class:
    """Give the class that computes a registered op now."""
    return find(op).now.cls

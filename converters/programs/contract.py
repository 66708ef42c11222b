"""Check each custom op on inputs like those of its sites, before anything is written.

An op is held to what its schema and its fake implementation say, and to what a site needs of it.
Each finding names the op and the site and shows both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from oprep.converters.answers import TRYING
from oprep.converters.gradient_comparison import NONE
from oprep.converters.programs.builders import EagerBuilder
from oprep.converters.programs.casting import Casts, casts_of, entered
from oprep.converters.programs.contract_body import body_differs
from oprep.converters.programs.contract_gradients import check_gradient
from oprep.converters.programs.example_sets import sizes
from oprep.converters.programs.input_leaves import Inputs
from oprep.converters.programs.needing import needing
from oprep.converters.programs.places import Place
from oprep.converters.programs.program import Program
from oprep.converters.programs.replacement import Replacement
from oprep.converters.programs.running import drawn_like, same_strides
from oprep.converters.programs.subject import Site, Subject
from oprep.converters.programs.violations import Call, Refusal, same_content, show
from oprep.opsets.errors import OprepError

BUILT_IN = frozenset(("aten", "prims", "prim", "higher_order", "quantized", "debugprims"))
SIZES = 2
"""At how many sizes of the free dims an op is tried."""


def check_contract(subject: Subject, say: Callable[[str], None], *, gradients: bool = True) -> None:
    """Try the custom ops of every site, each kind of call once.

    Raise OprepError (exit VERIFICATION) for the first op that does not keep its contract.
    """
    asked = needing(subject.program.exported) if gradients else set()
    tried: set[Any] = set()
    casts = casts_of(subject.program.exported.graph_module)
    for index, site in enumerate(subject.sites):
        say(f"{TRYING}{site.label}")
        place = Place(index, site.match)
        needs = bool(asked & set(place.read.values())) and site.match.rule.gradient != NONE
        around = casts[id(place.graph)]
        for chosen in _sizes(subject.program):
            for call in _calls(site, place, chosen, around):
                key = (call.op, needs, *_kinds(call))
                if key not in tried:
                    tried.add(key)
                    refusal = _tried(call, needs) or body_differs(call, site)
                    if refusal is not None:
                        raise _error(refusal, call, site, subject.program)


def _tried(call: Call, needs: bool) -> Refusal | None:
    found = fake_differs(call) or shares_or_changes(call)
    return found or (check_gradient(call) if needs else None)


def _error(refusal: Refusal, call: Call, site: Site, program: Program) -> OprepError:
    where = f"{program.name}, site `{site.name}`, rule `{site.match.rule.name}`"
    return refusal.error(call, where)


def _sizes(program: Program) -> list[dict[Any, int]]:
    inputs = Inputs(program.exported)
    base = None
    for example in program.examples:
        base = base or inputs.flat(example.args, example.kwargs)
    return sizes(inputs, base)[:SIZES]


def _kinds(call: Call) -> Iterator[Any]:
    for item in pytree.tree_leaves((call.args, call.kwargs)):
        if isinstance(item, Tensor):
            yield (item.dtype, tuple(item.shape), item.stride())
        else:
            yield repr(item)


@dataclass(frozen=True)
class _Noting(EagerBuilder):
    """Makes the calls of a replacement, and notes those of custom ops with their arguments.

    A dispatch mode would miss ops whose gradient kernel computes the result by itself.
    """

    found: list[Call] = field(default_factory=list)

    def call(
        self, overload: torch._ops.OpOverload, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Any:
        """Call an op."""
        if overload.namespace not in BUILT_IN:
            copied = pytree.tree_map_only(Tensor, _copy, (tuple(arguments), dict(keywords)))
            self.found.append(Call(overload, *copied))
        return EagerBuilder.call(self, overload, arguments, keywords)


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone()


def _calls(site: Site, place: Place, chosen: Mapping[Any, int], around: Casts) -> list[Call]:
    """Compute a replacement on made up values of the shapes that its site has."""
    values: dict[Node, Any] = {}
    for number, node in enumerate(place.outer):
        made = _made(node.meta.get("val"), chosen, number)
        if made is None:
            return []
        values[node] = made
    bound, noting = place.bindings(values), _Noting()
    replacement = getattr(site.evaluate, "__self__", None)
    assert isinstance(replacement, Replacement), "a site is computed by the replacement of a rule"
    with torch.no_grad(), torch.random.fork_rng(devices=[]), entered(around):
        try:
            replacement.emit(place.match, noting, lambda value: bound[value])
        except OprepError:
            raise
        except Exception as error:  # the last op that was called is the one that failed
            if noting.found:
                noting.found[-1].failed = error
    return noting.found


def _made(value: Any, chosen: Mapping[Any, int], seed: int) -> Any:
    """Make up a value like the one that the graph declares; None where its size is unknown."""
    if isinstance(value, tuple | list):
        items = [_made(item, chosen, seed + i) for i, item in enumerate(value)]
        return None if any(item is None for item in items) else items
    if isinstance(value, torch.SymInt):
        return _size(value, chosen)
    if not isinstance(value, Tensor):
        return value
    shape = [_size(dim, chosen) for dim in value.shape]
    if any(size is None for size in shape):
        return None
    return _laid_out(
        _filled([size for size in shape if size is not None], value.dtype, seed), value
    )


def _size(dim: Any, chosen: Mapping[Any, int]) -> int | None:
    if not isinstance(dim, torch.SymInt):
        return int(dim)
    left = dim.node.expr.subs(chosen)
    return int(left) if left.is_integer and left.is_number else None


def _filled(shape: Sequence[int], dtype: torch.dtype, seed: int) -> Tensor:
    blank = torch.zeros(tuple(shape), dtype=dtype)
    if dtype.is_floating_point or dtype.is_complex:
        return drawn_like(blank, seed)
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2, tuple(shape), generator=generator).to(dtype)


def _laid_out(tensor: Tensor, like: Tensor) -> Tensor:
    """Lay a tensor out with its axes in the order of memory that the graph declares."""
    try:
        steps = [int(step) for step in like.stride()]
    except (RuntimeError, TypeError, ValueError):
        return tensor
    order = sorted(range(tensor.dim()), key=lambda dim: -steps[dim])
    back = [order.index(dim) for dim in range(tensor.dim())]
    return tensor.permute(order).contiguous().permute(back)


def fake_differs(call: Call) -> Refusal | None:
    """Compare what an op gives with what its fake implementation says."""
    if call.failed is not None:
        return Refusal.of_error("fails on what the site gives it", call.failed)
    args, kwargs = call.copied()
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        real = call.op(*args, **kwargs)
    mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True)
    fakes = pytree.tree_map_only(Tensor, mode.from_tensor, call.copied())
    try:
        with mode, torch.no_grad():
            fake = call.op(*fakes[0], **fakes[1])
    except Exception as error:  # whatever a fake raises is the finding
        return Refusal.of_error("has no fake implementation that works", error)
    ones, others = (pytree.tree_leaves(item) for item in (real, fake))
    if len(ones) != len(others):
        sides = (f"it gives {len(ones)} results", f"its fake implementation gives {len(others)}")
        return Refusal("gives another number of results than its fake implementation", sides)
    for one, other in zip(ones, others, strict=True):
        if isinstance(one, Tensor) and isinstance(other, Tensor) and _apart(one, other):
            strides = one.shape == other.shape and one.dtype == other.dtype
            sides = (f"it gives {show(one, strides=strides)}",
                     f"its fake implementation says {show(other, strides=strides)}")  # fmt: skip
            return Refusal("disagrees with its fake implementation", sides,
                           "let the fake implementation give dtype, shape and strides of the "
                           "result")  # fmt: skip
    return None


def _apart(real: Tensor, fake: Tensor) -> bool:
    if real.dtype != fake.dtype or real.dim() != fake.dim():
        return True
    known = [(one, other) for one, other in zip(real.shape, fake.shape, strict=True)
             if isinstance(other, int)]  # fmt: skip
    if any(one != other for one, other in known):
        return True
    return len(known) == real.dim() and not same_strides(real, fake)


def shares_or_changes(call: Call) -> Refusal | None:
    """Look for results that are an argument, and for arguments that an op writes into."""
    args, kwargs = call.copied()
    before = call.copied()
    given = list(call.named(args, kwargs))
    versions = [item._version for _, item in given]
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        made = call.op(*args, **kwargs)
    writes, aliased = call.declared()
    kept = [item for _, item in call.named(*before)]
    for (name, after), one, version in zip(given, kept, versions, strict=True):
        if name in writes:
            continue
        if after._version != version or not same_content(one, after):
            sides = (f"`{name}` was {show(one, content=True)}, is {show(after, content=True)}",
                     f"its schema says `{call.op._schema}`")  # fmt: skip
            return Refusal(f"changes its argument `{name}` without saying so", sides,
                           f"write into a copy, or declare `{name}` as mutated")  # fmt: skip
    for number, result in enumerate(pytree.tree_leaves(made)):
        for name, item in given:
            if name not in aliased and isinstance(result, Tensor) and _one_memory(result, item):
                sides = (f"result {number} lies in the memory of `{name}`",
                         f"its schema says `{call.op._schema}`")  # fmt: skip
                return Refusal(f"returns its argument `{name}`", sides, "return a copy of it")
    return None


def _one_memory(left: Tensor, right: Tensor) -> bool:
    if not left.numel() or not right.numel():
        return False
    return left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()

"""The gradients of one site: the original's against the replacement's, on recorded values.

What went back through the site in a backward pass of the original goes back through both. In
float64 a replacement's gradient is compared with the slope of its own values, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from oprep.converters import magnitudes
from oprep.converters.comparison import Comparison
from oprep.converters.gradient_comparison import (
    LOST,
    NEW,
    NONE,
    OWN,
    Sides,
    compare_own,
    compare_same,
    failed,
)
from oprep.converters.programs.recording import Record, leaves
from oprep.converters.programs.running import aside, differentiable, drawn_like, fresh
from oprep.converters.programs.tensors import to_array
from oprep.opsets.rule import Tolerance

Evaluate = Callable[[Any, Mapping[Any, Any]], Sequence[Any]]
Back = dict[str, "Tensor | None"]


@dataclass(frozen=True)
class Wanted:
    """What a rule asks of gradients: `kind` is `same`, `own` or `none`."""

    kind: str
    tolerance: Tolerance | None = None
    seed: int = 0


def compare_gradients(record: Record, evaluate: Evaluate, wanted: Wanted) -> list[Comparison]:
    """Compare the gradients to all values that the site reads; nothing where none flows."""
    if wanted.kind == NONE or not record.mode.grad or not record.asked:
        return []
    if not record.differentiable:
        return _new(record, evaluate, wanted)
    upstream = dict(record.upstream)
    if not upstream:
        return []
    before = _original(record, upstream, 0.0, wanted.seed)
    try:
        after = _candidate(record, evaluate, upstream)
    except Exception as error:  # whatever an op's gradient raises is its verdict
        if not any(_flows(item) for item in before.values()):
            return []
        return [failed(f"{LOST}: {words(error)}")]
    if wanted.kind == OWN:
        return [compare_own(_sides(record, name, before, after)) for name in before]
    moved = [_original(record, upstream, way, wanted.seed) for way in (TINY, -TINY)]
    return [
        compare_same(_sides(record, name, before, after, *moved), wanted.tolerance)
        for name in before
    ]


def in_mode(record: Record) -> AbstractContextManager[Any]:
    """Set grad mode, autocast and the random generator as they were at a site."""
    stack = ExitStack()
    stack.enter_context(torch.random.fork_rng(devices=[]))
    stack.enter_context(torch.set_grad_enabled(record.mode.grad))
    stack.enter_context(record.mode.casting())
    torch.random.set_rng_state(record.random)
    return stack


def _new(record: Record, evaluate: Evaluate, wanted: Wanted) -> list[Comparison]:
    """Look for a gradient where the original has none."""
    values, starts = leaves(record)
    with in_mode(record):
        made = evaluate(record.place.match, record.place.bindings(values))
        pairs = [
            (item, drawn_like(item, wanted.seed))
            for item in made
            if isinstance(item, Tensor) and item.requires_grad
        ]
        if not pairs:
            return []
        found = _back(pairs, starts)
    if wanted.kind == OWN or not any(_flows(item) for item in found.values()):
        return []
    named = ", ".join(f"`{name}`" for name, item in found.items() if _flows(item))
    return [failed(f"{NEW}: the original gives none to {named}")]


def _original(record: Record, upstream: Mapping[int, Tensor], move: float, seed: int) -> Back:
    values, starts = leaves(record)
    if move:
        values = {
            node: aside(values[node], move, seed + number) if node in starts else values[node]
            for number, node in enumerate(values)
        }
    with in_mode(record):
        return _back(_pairs(record.place.replay(values), upstream), starts)


def _candidate(record: Record, evaluate: Evaluate, upstream: Mapping[int, Tensor]) -> Back:
    values, starts = leaves(record)
    with in_mode(record):
        made = evaluate(record.place.match, record.place.bindings(values))
        return _back(_pairs(made, upstream), starts)


def _pairs(made: Sequence[Any], upstream: Mapping[int, Tensor]) -> list[tuple[Tensor, Tensor]]:
    return [
        (made[i], gradient.clone())
        for i, gradient in upstream.items()
        if isinstance(made[i], Tensor) and made[i].requires_grad
    ]


def _back(pairs: Sequence[tuple[Tensor, Tensor]], starts: Mapping[Node, Tensor]) -> Back:
    if not pairs:
        return {node.name: None for node in starts}
    found = torch.autograd.grad(
        [one for one, _ in pairs],
        list(starts.values()),
        [other for _, other in pairs],
        allow_unused=True,
    )
    return {node.name: item for node, item in zip(starts, found, strict=True)}


def _flows(gradient: Tensor | None) -> bool:
    return gradient is not None and bool((gradient != 0).any())


def words(error: Exception) -> str:
    """Give what an error says in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:199] + "…"


def _sides(record: Record, name: str, *found: Back) -> Sides:
    """Put together what the original, the candidate and the moved originals gave to one value."""
    one, other, *moved = (None if (item := b[name]) is None else to_array(item) for b in found)
    upstream = [to_array(item) for item in record.upstream.values()]
    rms = max((magnitudes.scale(item).rms for item in upstream), default=0.0)
    return Sides(name, one, other, moved, (rms, magnitudes.largest_ulp(upstream)))


TINY = 1e-30
"""To move by: less than a unit in the last place of any dtype, so by some of those."""

STEP = 1e-5
SLOPE_RTOL, SLOPE_ATOL = 1e-4, 1e-8
"""How far a slope may be off its central difference in float64, in parts of what adds up in it."""


def slope_differs(record: Record, evaluate: Evaluate, seed: int) -> str:
    """Say where a replacement's gradient is not the slope of its own values, in float64.

    Empty where it is, where float64 is not taken, and where the original's is not either (it
    detaches, or rounds).
    """
    if record.mode.autocast or not record.mode.grad or not record.asked:
        return ""
    try:
        own = _slopes(record, record.place.replay, seed)
        if own is None or _apart(own):
            return ""
        place = record.place
        found = _slopes(record, lambda v: evaluate(place.match, place.bindings(v)), seed)
    except Exception:  # an op that takes no float64 is compared in its own dtype alone
        return ""
    if found is None or not _apart(found):
        return ""
    return f"in float64 its gradient gives the slope {found[0]:.6g}, its values {found[1]:.6g}"


def _apart(slopes: tuple[float, float, float]) -> bool:
    gradient, difference, allowed = slopes
    return not abs(gradient - difference) <= allowed


def _slopes(
    record: Record, compute: Callable[[dict[Node, Any]], Sequence[Any]], seed: int
) -> tuple[float, float, float] | None:
    """Give the slope by gradient and by difference in one random direction, and what may differ."""
    values = {node: _double(item, seed) for node, item in record.outer.items()}
    starts = {node: values[node].detach().requires_grad_() for node in record.asked}
    ways = {n: drawn_like(item, seed + 1 + i) for i, (n, item) in enumerate(starts.items())}

    def at(step: float) -> list[Tensor]:
        moved = {n: fresh(item.detach()) if isinstance(item, Tensor) else item
                 for n, item in values.items()}  # fmt: skip
        moved |= {n: fresh(item.detach() + step * ways[n]) for n, item in starts.items()}
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.random.set_rng_state(record.random)
            return [item for item in compute(moved) if _floats(item)]

    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.random.set_rng_state(record.random)
        made = compute({**values, **{n: fresh(item) for n, item in starts.items()}})
        outputs = [item for item in made if _floats(item)]
        pairs = [(item, drawn_like(item, seed + i)) for i, item in enumerate(outputs)]
        if not pairs or not all(item.requires_grad for item in outputs):
            return None
        found = _back(pairs, starts)
    by_name = {node.name: way for node, way in ways.items()}
    parts = [(item, by_name[name]) for name, item in found.items() if item is not None]
    gradient = sum(_dot(item, way) for item, way in parts)
    ahead, behind = at(STEP), at(-STEP)
    rises = [(one - other) / (2 * STEP) for one, other in zip(ahead, behind, strict=True)]
    rise = sum(_dot(one, w) for one, (_, w) in zip(rises, pairs, strict=True))
    size = sum(_dot(item.abs(), way.abs()) for item, way in parts)
    level = sum(_dot(item.detach().abs(), w.abs()) for item, w in pairs)
    return gradient, rise, SLOPE_RTOL * size + SLOPE_ATOL * level


def _floats(item: Any) -> bool:
    return isinstance(item, Tensor) and differentiable(item)


def _double(item: Any, seed: int) -> Any:
    """Give a value in float64, off the kinks that whole numbers and equal values lie on."""
    if isinstance(item, list):
        return [_double(each, seed) for each in item]
    if not _floats(item):
        return item
    wide = item.to(torch.complex128 if item.is_complex() else torch.float64)
    size = wide.abs().clamp(min=1e-3)
    return wide + 1e-3 * size * drawn_like(wide, seed + 7)


def _dot(one: Tensor, other: Tensor) -> float:
    return float((one.detach() * other.detach().conj()).real.sum())

"""Sums and products of a graph, read as what they are.

A cut is one way to read a tree of arithmetic nodes: which of them are opened (at most 8), and
which values are left as factors or terms. The full cut is tried first; others only matter where a
variable of the pattern stands for something that is itself a product or a sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, nan
from typing import Any, NamedTuple

from oprep.converters.graph import PRODUCT, SUM, Constant
from oprep.converters.state import State

OPENED = 8


KEPT = 1024
"""Cuts that are remembered: what is near is asked for again, what is far away is not."""


class Cut(NamedTuple):
    """A value as `number * leaf ** power * …` (product) or `number + factor * leaf + …` (sum)."""

    number: float
    width: float
    leaves: dict[Any, float]
    nodes: tuple[int, ...]
    constants: tuple[tuple[Constant, Any, int, float], ...]


def close(got: float, wanted: float, width: float) -> bool:
    """Tell whether two numbers are equal within a relative width (and rounding of our own)."""
    if got == wanted:
        return True
    if not isfinite(wanted) or not isfinite(got):
        return False
    return abs(got - wanted) <= (width + 1e-15) * abs(wanted)


def ratio(number: float, divisor: float) -> float:
    """Divide; NaN, which is close to nothing, where there is no number."""
    try:
        return number / divisor
    except (ZeroDivisionError, OverflowError):
        return nan


def raised(base: float, exponent: float) -> float:
    """Raise to a power; NaN where there is no real number."""
    try:
        value = base**exponent
    except (ZeroDivisionError, OverflowError):
        return nan
    return nan if isinstance(value, complex) else value


def full_cut(state: State, value: Any, kind: str) -> Cut:
    """Open every node of the tree at `value`, root first, at most `OPENED`; cached."""
    known = state.products if kind == PRODUCT else state.sums
    cut: Cut | None = known.get(value)
    if cut is None:
        if len(known) > KEPT:
            known.clear()
        cut = known[value] = _full_cut(state, value, kind)
    return cut


def _full_cut(state: State, value: Any, kind: str) -> Cut:
    """Do what the first of `cuts` does, in a loop: this is the hot path of matching."""
    product = kind == PRODUCT
    number, width = (1.0 if product else 0.0), 0.0
    leaves: dict[Any, float] = {}
    nodes: list[int] = []
    constants: list[tuple[Constant, Any, int, float]] = []
    work: list[tuple[Any, float, int]] = [(value, 1, -1)]
    constant_of, producer, kinds, ops = (
        state.view.constant, state.producer, state.arithmetic, state.ops
    )  # fmt: skip
    simple, inputs, possible = state.view.simple, state.inputs, state.view.constant_values
    for value, power, reader in work:
        if possible is None or value in possible:
            constant = constant_of(value)
            found = None if constant is None else _number(constant, power, kind)
            if constant is not None and found is not None:
                number = number * found if product else number + found
                # relative in a product, absolute in a sum: that is how they add up
                width += constant.width * abs(power if product else found)
                constants.append((constant, value, reader, power))
                continue
        node = producer.get(value)
        if node is not None and kinds.get(ops[node]) == kind and len(nodes) < OPENED:
            exponents = simple.get(ops[node])
            if exponents is not None and len(inputs[node]) == 2 and power == int(power):
                nodes.append(node)
                left, right = inputs[node]
                work.append((left, power, node))
                work.append((right, exponents * power, node))
                continue
            opened = state.view.open(node)
            if opened is not None and power == int(power):
                if abs(power) != 1 and any(e != int(e) for _, e in opened.parts):
                    leaves[value] = _joined(leaves.get(value), power)
                    continue
                if product and opened.coefficient != 1.0:
                    number *= opened.coefficient**power
                nodes.append(node)
                for part, exponent in opened.parts:
                    work.append((part, exponent * power, node))
                continue
        leaves[value] = power if value not in leaves else _joined(leaves[value], power)
    if not product and number:
        width /= abs(number)
    return Cut(number, width, leaves, tuple(nodes), tuple(constants))


def cuts(state: State, value: Any, kind: str, most: int = 1 << 30) -> Iterator[Cut]:
    """Yield every way to read the tree at `value` with at most `most` leaves, largest first."""
    neutral = 1.0 if kind == PRODUCT else 0.0
    yield from _cuts(state, [(value, 1, -1)], Cut(neutral, 0.0, {}, (), ()), kind, most)


def _cuts(
    state: State, work: list[tuple[Any, float, int]], cut: Cut, kind: str, most: int
) -> Iterator[Cut]:
    if len(cut.leaves) > most:
        return
    if not work:
        yield cut
        return
    state.step()
    (value, power, reader), rest = work[0], work[1:]
    constant = state.view.constant(value)
    if constant is not None and (number := _number(constant, power, kind)) is not None:
        folded = cut.number * number if kind == PRODUCT else cut.number + number
        seen = (*cut.constants, (constant, value, reader, power))
        if kind == PRODUCT:
            width = cut.width + constant.width * abs(power)
        else:
            absolute = cut.width * abs(cut.number) + constant.width * abs(number)
            width = absolute / abs(folded) if folded else absolute
        yield from _cuts(state, rest, Cut(folded, width, cut.leaves, cut.nodes, seen), kind, most)
        return
    node = state.producer.get(value)
    if node is not None and len(cut.nodes) < OPENED and state.arithmetic.get(state.ops[node]):
        opened = state.view.open(node)
        rooted = opened is not None and any(e != int(e) for _, e in opened.parts)
        if opened is not None and opened.kind == kind and float(power).is_integer() and (
            abs(power) == 1 or not rooted
        ):  # fmt: skip
            scale = opened.coefficient**power if kind == PRODUCT else 1.0
            parts = _together(
                [*rest, *((part, exponent * power, node) for part, exponent in opened.parts)]
            )
            inner = Cut(
                cut.number * scale if kind == PRODUCT else cut.number,
                cut.width,
                cut.leaves,
                (*cut.nodes, node),
                cut.constants,
            )
            yield from _cuts(state, parts, inner, kind, most)
    leaves = dict(cut.leaves)
    leaves[value] = _joined(leaves.get(value), power)
    yield from _cuts(state, rest, cut._replace(leaves=leaves), kind, most)


def _together(work: list[tuple[Any, float, int]]) -> list[tuple[Any, float, int]]:
    """Take a value that waits twice once: `v + v` is opened as one, not in every combination."""
    waiting: dict[Any, tuple[Any, float, int]] = {}
    for value, power, reader in work:
        old = waiting.get(value)
        if old is None:
            waiting[value] = (value, power, reader)
        else:
            waiting[value] = (value, _joined(old[1], power), reader)
    return list(waiting.values())


def _joined(old: float | None, power: float) -> float:
    """Add the powers of one value; NaN, which nothing matches, where that would change its meaning.

    `a - a` and `a / a` are not nothing (NaN, inf, and the shape of `a`), and a squared root is
    undefined where its argument is negative.
    """
    if old is None:
        return power
    total = old + power
    whole = float(old).is_integer() and float(power).is_integer()
    return total if whole and total else float("nan")


def _number(constant: Constant, power: float, kind: str) -> float | None:
    scalar = constant.scalar
    if not isinstance(scalar, int | float) or isinstance(scalar, bool):
        return None
    if kind == SUM:
        return float(scalar) * power
    if power == 1:
        return float(scalar)
    if scalar == 0 and power < 0:
        return None
    try:
        number = float(scalar) ** power
    except OverflowError:
        return None
    return None if isinstance(number, complex) else number

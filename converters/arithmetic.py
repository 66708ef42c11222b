"""Sums and products of a graph, read as what they are and matched without regard to form.

A cut is one way to read a tree of arithmetic nodes: which of them are opened (at most 8), and
which values are left as factors or terms. The full cut is tried first; others only matter where a
variable of the pattern stands for something that is itself a product or a sum.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any, NamedTuple, TypeAlias

from oprep.converters.cuts import Cut, close, cuts, full_cut, raised, ratio
from oprep.converters.graph import PRODUCT, SUM, Attribute
from oprep.converters.normal import Wanted
from oprep.converters.state import Matcher, ScaledMatcher, ScaledThen, State, Then, show


class Factor(NamedTuple):
    """One factor of a product pattern; exactly one of `plain`, `scaled` and `slot` is used."""

    exponent: float
    plain: Matcher | None
    scaled: ScaledMatcher | None
    slot: int
    arithmetic: bool


def product_matcher(wanted: Wanted, factors: list[Factor]) -> ScaledMatcher:
    """Match a value that is `scale * pattern`, for whatever scale the continuation accepts."""
    count = len(factors)
    reopen = any(factor.arithmetic for factor in factors)
    structured = sum(1 for factor in factors if factor.slot < 0)
    most = sum(_leaves_for(factor) for factor in factors)
    lone = factors[0] if count == 1 and factors[0].exponent == 1 else None

    def assign(
        state: State,
        i: int,
        leaves: dict[Any, float],
        cut: Cut,
        number: float,
        width: float,
        then: ScaledThen,
        spent: bool,
        needed: float = 0,
    ) -> bool:
        if i == count:
            if leaves:
                return state.why is not None and state.why.note(
                    state, f"the product also has the factor {_named(state, leaves)}", 0.2
                )
            return then(number / wanted.value, width + wanted.width)
        factor = factors[i]
        exponent = needed or factor.exponent
        state.step()
        if factor.slot >= 0 and not needed:
            bound = state.slots[factor.slot]
            if isinstance(bound, str) and leaves.get(bound) == exponent:
                left = dict(leaves)
                del left[bound]
                if assign(state, i + 1, left, cut, number, width, then, spent):
                    return True
        items = list(leaves.items())
        if factor.slot < 0 and len(items) > 1:
            # what is made last is nearest to the anchor: it fits first in most graphs
            items.sort(key=lambda item: -state.producer.get(item[0], -1))
        for value, power in items:
            used = _used(factor, exponent, power)
            if not used:
                continue
            left = dict(leaves)
            if power == used:
                del left[value]
            else:
                left[value] = power - used
            after, more_needed = (i + 1, 0.0) if used == exponent else (i, exponent - used)
            if factor.scaled is not None:

                def scaled(
                    scale: float,
                    more: float,
                    left: dict[Any, float] = left,
                    used: float = used,
                    after: int = after,
                    more_needed: float = more_needed,
                ) -> bool:
                    if scale < 0 and not float(used).is_integer():
                        return False
                    total = number * raised(scale, used)
                    return assign(
                        state, after, left, cut, total, width + more, then, spent, more_needed
                    )

                if factor.scaled(state, value, scaled):
                    return True
            else:
                assert factor.plain is not None

                def plain(
                    left: dict[Any, float] = left,
                    after: int = after,
                    more_needed: float = more_needed,
                ) -> bool:
                    return assign(state, after, left, cut, number, width, then, spent, more_needed)

                if factor.plain(state, value, plain):
                    return True
        if factor.slot < 0 or spent or not cut.constants:
            return False
        return _coefficient(
            state,
            factor,
            cut,
            number,
            wanted,
            lambda total: assign(state, i + 1, leaves, cut, total, width, then, True),
        )

    def single(state: State, value: Any, then: ScaledThen) -> bool:
        """Match a value that is no product: only a pattern of one factor can be it."""
        if lone is None:
            return state.why is not None and state.why.note(
                state, f"`{state.view.value_name(value)}` is no product", 0.1
            )
        if lone.scaled is not None:
            return lone.scaled(
                state, value, lambda scale, width: then(scale / wanted.value, width + wanted.width)
            )
        assert lone.plain is not None
        return lone.plain(state, value, lambda: then(1 / wanted.value, wanted.width))

    def attempt(state: State, cut: Cut, then: ScaledThen) -> bool:
        found = len(cut.leaves)
        if structured > found or (not found and not cut.constants):
            return state.why is not None and state.why.note(
                state, f"the product has {found} factors, the rule wants {count}", 0.1
            )
        if found > most and state.why is None:
            return False
        nodes, constants = len(state.nodes), len(state.constants)
        state.nodes.extend(cut.nodes)
        state.constants.extend(item[:3] for item in cut.constants)
        if cut.nodes:
            state.trees.append(cut)
        if assign(state, 0, cut.leaves, cut, cut.number, cut.width, then, False):
            return True
        if cut.nodes:
            state.trees.pop()
        del state.nodes[nodes:]
        del state.constants[constants:]
        return False

    def match(state: State, value: Any, then: ScaledThen) -> bool:
        node = state.producer.get(value)
        if node is None or state.arithmetic.get(state.ops[node]) != PRODUCT:
            return single(state, value, then)
        first = full_cut(state, value, PRODUCT)
        if attempt(state, first, then):
            return True
        if not reopen or not first.nodes:
            return False
        others = cuts(state, value, PRODUCT, most)
        return any(attempt(state, cut, then) for cut in others if cut.nodes != first.nodes)

    return match


def _leaves_for(factor: Factor) -> int:
    """Say how many leaves a factor can take: `exp(x) ** 2` may be two nodes."""
    whole = factor.slot < 0 and float(factor.exponent).is_integer()
    return int(abs(factor.exponent)) if whole else 1


def _used(factor: Factor, exponent: float, power: float) -> float:
    """Say which part of a leaf's power a factor takes; 0 where it cannot take any."""
    if power == exponent:
        return exponent
    if power * exponent <= 0 or power != power:
        return 0
    if abs(power) > abs(exponent):
        return exponent
    whole = float(power).is_integer() and float(exponent).is_integer()
    return power if factor.slot < 0 and whole else 0


def _coefficient(
    state: State,
    factor: Factor,
    cut: Cut,
    number: float,
    wanted: Wanted,
    then: Callable[[float], bool],
) -> bool:
    """Bind a variable that no factor is left for to the coefficient, a constant of the graph."""
    bound = state.slots[factor.slot]
    if bound is not None:
        value = bound.value if isinstance(bound, Attribute) else None
        if value is None and not isinstance(bound, Attribute):
            constant = state.view.constant(bound)
            value = constant.scalar if constant is not None else None
        if not isinstance(value, int | float) or not value:
            return False
        return then(ratio(number, raised(float(value), factor.exponent)))
    coefficient = raised(ratio(number, wanted.value), 1 / factor.exponent)
    if not isfinite(coefficient):
        return False
    one = cut.constants[0] if len(cut.constants) == 1 else None
    if one is not None and one[3] == factor.exponent and close(one[0].scalar, coefficient, 1e-12):
        state.slots[factor.slot] = one[1]
    else:
        state.slots[factor.slot] = Attribute(coefficient)
    if then(wanted.value):
        return True
    state.slots[factor.slot] = None
    return False


Scales: TypeAlias = tuple[tuple[float, float], ...]
"""What the terms of a sum say its scale is, each with its relative width."""


class TermPattern(NamedTuple):
    """One term of a sum pattern: `coefficient * pattern`, a lone variable in `slot`."""

    coefficient: float
    width: float
    scaled: ScaledMatcher
    slot: int
    arithmetic: bool


def sum_matcher(offset: Wanted, terms: list[TermPattern]) -> ScaledMatcher:
    """Match a value that is `scale * (offset + terms)`, all terms agreeing on the scale."""
    count = len(terms)
    reopen = any(term.arithmetic for term in terms)

    def assign(
        state: State,
        i: int,
        leaves: dict[Any, float],
        cut: Cut,
        scales: Scales,
        then: ScaledThen,
        pending: TermPattern | None,
    ) -> bool:
        if i == count:
            if leaves:
                return state.why is not None and state.why.note(
                    state, f"the sum also has the term {_named(state, leaves)}", 0.2
                )
            if pending is None:
                return _finish(state, cut, offset, scales, cut.number, then)
            if not scales:
                return False
            return _bind_offset(
                state,
                pending,
                cut,
                _best(scales)[0],
                offset,
                lambda rest: _finish(state, cut, offset, scales, rest, then),
            )
        term = terms[i]
        state.step()
        for value, sign in list(leaves.items()):
            left = dict(leaves)
            del left[value]

            def scaled(
                found: float, more: float, sign: float = sign, left: dict[Any, float] = left
            ) -> bool:
                mine = ratio(sign * found, term.coefficient)
                own = more + term.width
                other = _disagreeing(scales, mine, own)
                if other is not None:
                    return state.why is not None and state.why.note(
                        state,
                        f"a term has the factor {show(mine)}, the rule wants {show(other)}",
                        0.3,
                    )
                return assign(state, i + 1, left, cut, (*scales, (mine, own)), then, pending)

            if term.scaled(state, value, scaled):
                return True
        if term.slot < 0 or pending is not None or not cut.constants:
            return False
        return assign(state, i + 1, leaves, cut, scales, then, term)

    def attempt(state: State, cut: Cut, then: ScaledThen) -> bool:
        if not cut.nodes or not cut.leaves:
            return False
        if len(cut.leaves) > count and state.why is None:
            return False
        nodes, constants = len(state.nodes), len(state.constants)
        state.nodes.extend(cut.nodes)
        state.constants.extend(item[:3] for item in cut.constants)
        state.trees.append(cut)
        if assign(state, 0, cut.leaves, cut, (), then, None):
            return True
        state.trees.pop()
        del state.nodes[nodes:]
        del state.constants[constants:]
        return False

    def match(state: State, value: Any, then: ScaledThen) -> bool:
        node = state.producer.get(value)
        if node is None or state.arithmetic.get(state.ops[node]) != SUM:
            return state.why is not None and state.why.note(
                state, f"`{state.view.value_name(value)}` is no sum", 0.1
            )
        first = full_cut(state, value, SUM)
        if attempt(state, first, then):
            return True
        if not reopen or len(first.nodes) < 2:
            return False
        others = cuts(state, value, SUM, count)
        return any(attempt(state, cut, then) for cut in others if cut.nodes != first.nodes)

    return match


def _best(scales: Scales) -> tuple[float, float]:
    """Give the scale that is known most exactly, and its width."""
    return min(scales, key=lambda item: item[1])


def _disagreeing(scales: Scales, mine: float, width: float) -> float | None:
    """Give a scale found before that another one is not close to."""
    for scale, other in scales:
        if not close(mine, scale, width + other):
            return scale
    return None


def _finish(
    state: State, cut: Cut, offset: Wanted, scales: Scales, number: float, then: ScaledThen
) -> bool:
    """Compare the offset; each number of a sum keeps its own width, the most exact one decides."""
    factor, width = _best(scales) if scales else (1.0, 0.0)
    if not offset.value or not number:
        if not offset.value and not number:
            return then(factor, width)
    else:
        mine, own = ratio(number, offset.value), offset.width + cut.width
        if not scales or _disagreeing(scales, mine, own) is None:
            return then(*_best((*scales, (mine, own))))
    return state.why is not None and state.why.note(
        state,
        f"the constant term is {show(ratio(number, factor))}, the rule wants {show(offset.value)}",
        0.5,
    )


def _bind_offset(
    state: State, term: TermPattern, cut: Cut, scale: float, offset: Wanted,
    then: Callable[[float], bool],
) -> bool:  # fmt: skip
    bound = state.slots[term.slot]
    if bound is not None:
        constant = None if isinstance(bound, Attribute) else state.view.constant(bound)
        value = bound.value if isinstance(bound, Attribute) else constant and constant.scalar
        if not isinstance(value, int | float):
            return False
        return then(cut.number - scale * term.coefficient * float(value))
    found = ratio(ratio(cut.number, scale) - offset.value, term.coefficient)
    if not isfinite(found):
        return False
    one = cut.constants[0] if len(cut.constants) == 1 else None
    same = one is not None and close(one[0].scalar, found, 1e-12)
    state.slots[term.slot] = one[1] if same and one is not None else Attribute(found)
    if then(scale * offset.value):
        return True
    state.slots[term.slot] = None
    return False


def exactly(scaled: ScaledMatcher, wanted: Wanted, *, wanted_scale: float = 1.0) -> Matcher:
    """Match a value that is the pattern itself, its scale being one."""

    def match(state: State, value: Any, then: Then) -> bool:
        def check(scale: float, width: float) -> bool:
            if close(scale, wanted_scale, width):
                return then()
            return state.why is not None and state.why.note(
                state, _explain_scale(state, scale, wanted), 0.5
            )

        return scaled(state, value, check)

    return match


def _explain_scale(state: State, scale: float, wanted: Wanted) -> str:
    """Say what the one constant is and should be, or both coefficients where there are several."""
    used = [item for item in state.constants if item[0].scalar not in (None, 0)]
    got = scale * wanted.value
    if used:
        constant, value, _ = used[-1]
        number = float(constant.scalar)
        for exponent in (1, -1):
            target = number * raised(ratio(1, scale), exponent)
            if exponent == 1 and close(number, got, 1e-6):
                return f"constant {show(number)} where {show(wanted.value)} is wanted"
            if exponent == -1 and close(ratio(1, number), got, 1e-6):
                return f"constant {show(number)} where {show(target)} is wanted"
        name = state.view.value_name(value)
        return (
            f"the constant factor is {show(got)} (with `{name}` = {show(number)}), "
            f"the rule wants {show(wanted.value)}"
        )
    return f"the constant factor is {show(got)}, the rule wants {show(wanted.value)}"


def _named(state: State, leaves: dict[Any, float]) -> str:
    """Name what is too much; say so where it would be a constant but for its caller."""
    for value in leaves:
        why = state.view.not_constant(value)
        if "override" in why:
            return why
    return f"`{state.view.value_name(next(iter(leaves)))}`"

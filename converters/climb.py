"""From an anchor up to the nodes that can be the root of a pattern."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oprep.converters.compile import Anchor, Compiled, Level
from oprep.converters.graph import SUM, View

CLIMBED = 8


def climb(view: View, compiled: Compiled, anchor: Anchor, node: int) -> Iterator[int]:
    """Give the nodes that can be the root above an anchor, nearest first."""
    region = view.region
    arithmetic, users, ops = view.arithmetic, region.users, region.ops
    frontier = [node]
    levels = anchor.levels
    i, count = 0, len(levels)
    if not count:
        yield node
        return
    if all(level[0] == "arith" for level in levels):
        yield from _arithmetic_roots(view, compiled, _phases(levels), node)
        return
    while i < count:
        kind, data = levels[i]
        if kind == "call":
            reached = dict.fromkeys(
                user
                for item in frontier
                for value in region.outputs[item]
                for user in users.get(value, ())
                if ops[user] in data
            )
            frontier = list(reached)
            i += 1
            if i == count:
                yield from frontier
            continue
        start = i
        while i < count and levels[i][0] == "arith":
            i += 1
        phases = _phases(levels[start:i])
        seen: dict[tuple[int, int], int] = {}
        work = [(item, 0, 0) for item in frontier]
        for item, phase, depth in work:
            if depth == CLIMBED:
                continue
            for value in region.outputs[item]:
                for user in users.get(value, ()):
                    found = arithmetic.get(ops[user])
                    if found is None:
                        continue
                    step = phase
                    while step < len(phases) and phases[step] != found:
                        step += 1
                    if step < len(phases) and (user, step) not in seen:
                        seen[user, step] = depth
                        work.append((user, step, depth + 1))
        if i == count:
            yield from _roots(seen, phases, compiled)
        else:
            frontier = list(dict.fromkeys([*frontier, *(user for user, _ in seen)]))


def _phases(levels: Sequence[Level]) -> list[str]:
    """Give the kinds of arithmetic on the way up; two of one kind in a row are one tree."""
    kinds = [level[1][0] for level in levels]
    return [kind for i, kind in enumerate(kinds) if not i or kinds[i - 1] != kind]


def _arithmetic_roots(
    view: View, compiled: Compiled, phases: list[str], node: int
) -> Iterator[int]:
    """Do what `climb` does where only arithmetic lies above: the hot path of matching."""
    region = view.region
    outputs, users, ops, arithmetic = region.outputs, region.users, region.ops, view.arithmetic
    kinds, last = compiled.roots[0].kinds, len(phases) - 1
    seen: set[tuple[int, int]] = set()
    work = [(node, 0, 0)]
    for item, phase, depth in work:
        for value in outputs[item]:
            for user in users.get(value, ()):
                found = arithmetic.get(ops[user])
                if found is None:
                    continue
                step = phase
                while step <= last and phases[step] != found:
                    step += 1
                if step > last or (user, step) in seen:
                    continue
                seen.add((user, step))
                if depth < CLIMBED:
                    work.append((user, step, depth + 1))
                if step == last or (SUM in kinds and step == last - 1):
                    yield user


def _roots(
    seen: dict[tuple[int, int], int], phases: list[str], compiled: Compiled
) -> Iterator[int]:
    last = len(phases) - 1
    kinds = compiled.roots[0].kinds
    for user, step in seen:
        if step == last or (SUM in kinds and step == last - 1):
            yield user

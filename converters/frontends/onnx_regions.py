"""Patterns that name tensors: the part of a graph between given inputs and outputs."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from oprep.converters.conditions import holds, unnamed_output
from oprep.converters.frontends.onnx_graph import OnnxView
from oprep.converters.match import Match
from oprep.converters.state import State
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.rule import NamedRegion, Rule


def region_matches(
    view: OnnxView, rule: Rule, order: int, alternative: int, pattern: NamedRegion
) -> Iterator[Match]:
    """Give the match of a named region, where this graph makes all of its outputs."""
    region = view.region
    if not all(value in region.producer for value in pattern.outputs):
        return
    inputs = {tensor for _, tensor in pattern.inputs}
    nodes = _between(view, inputs, pattern.outputs, rule)
    bound: dict[str, Any] = dict(pattern.inputs)
    match = Match(rule, order, alternative, view, tuple(sorted(nodes)), pattern.outputs, bound)
    state = State(view, 0)
    reason = unnamed_output(state, match.nodes, match.roots)
    if reason:
        raise _fail(rule, f"the region of rule `{rule.name}` cannot be replaced", reason,
                    "name that output, too")  # fmt: skip
    if holds(rule, view, bound):
        yield match


def _between(view: OnnxView, inputs: set[str], outputs: tuple[str, ...], rule: Rule) -> set[int]:
    """Give every node that leads to an output, back to the named inputs and to constants."""
    region = view.region
    nodes: set[int] = set()
    reached: set[str] = set()
    work = list(outputs)
    entering: dict[str, int] = {}
    while work:
        value = work.pop()
        if value in inputs:
            reached.add(value)
            continue
        node = region.producer.get(value)
        if view.is_constant(value):
            continue
        if node is None:
            entering.setdefault(value, -1)
            continue
        if node not in nodes:
            nodes.add(node)
            work.extend(item for item in region.inputs[node] if item)
    if entering:
        name = sorted(entering)[0]
        raise _fail(rule, f"the region of rule `{rule.name}` is not closed",
                    f"`{name}` enters it and is neither a named input nor a constant",
                    f"add `{name}` to `inputs`")  # fmt: skip
    missing = sorted(inputs - reached)
    if missing:
        raise _fail(rule, f"the region of rule `{rule.name}` does not read `{missing[0]}`",
                    f"no path leads from it to {', '.join(f'`{item}`' for item in outputs)}",
                    "check the tensor names")  # fmt: skip
    return nodes


def _fail(rule: Rule, message: str, note: str, help_: str) -> OprepError:
    return OprepError(message, str(rule.place("replace")), (note,), help_, ExitCode.EXPECTATION)


def missing_tensors(views: Sequence[OnnxView], pattern: NamedRegion) -> list[str]:
    """Say which named tensors no graph of the model has, with the nearest names."""
    known: set[str] = set()
    for view in views:
        known.update(view.region.producer)
        known.update(view.region.users)
    reasons = []
    for value in (*(tensor for _, tensor in pattern.inputs), *pattern.outputs):
        if value not in known:
            near = difflib.get_close_matches(value, sorted(known), 2, 0.4)
            text = f"the model has no tensor `{value}`"
            names = " or ".join(f"`{name}`" for name in near)
            reasons.append(f"{text}, the nearest is {names}" if near else text)
    return reasons or ["its outputs are made in different graphs"]

"""Run the original with something else in place of what its sites give.

Replacements, gradients included: where a rule lets an op keep a gradient of its own, the original's
gradients are no reference behind that site; the original with those replacements in place is one.
Rounding: what a unit in the last place at every site does to the outputs is no error of any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from oprep.converters.programs.places import Place
from oprep.converters.programs.recording import run_watched
from oprep.converters.programs.running import (
    Ran,
    Runner,
    Setting,
    back,
    differentiable,
    drawn_like,
    in_setting,
    move_aside,
    named_outputs,
    passed_on,
    started,
    wanted,
)
from oprep.converters.programs.subject import Site


def fits(place: Place) -> bool:
    """Tell whether a site can be exchanged on the way: one result, and nothing changed in place."""
    schemas = [getattr(node.target, "_schema", None) for node in place.nodes]
    whole = all(schema is not None and not schema.is_mutable for schema in schemas)
    return whole and len(place.match.roots) == 1 and place.match.roots[0].index == 0


def run_with(
    runner: Runner, sites: Sequence[tuple[Place, Site]], leaves: Sequence[Any], setting: Setting
) -> Ran:
    """Run a program with replacements in place of `sites`, and go back from seeded cotangents."""
    by_graph: dict[int, list[tuple[Place, Site]]] = {}
    for place, site in sites:
        by_graph.setdefault(id(place.graph), []).append((place, site))

    def watch(graph: GraphModule) -> _Exchanging | None:
        here = by_graph.get(id(graph.graph))
        return None if here is None else _Exchanging(here)

    with in_setting(setting), torch.enable_grad():
        state = runner.fresh_state(moved=bool(setting.aside))
        starts = [started(item, True) for item in leaves]
        asking = wanted(dict(zip(runner.input_names, starts, strict=True)), state)
        if setting.aside:
            move_aside(asking.values(), setting)
        made = run_watched(runner, [passed_on(item) for item in starts], state, watch)
        return Ran({}, {}, back(named_outputs(list(made)), asking, setting.seed))


def run_nudged(
    runner: Runner, places: Sequence[Place], leaves: Sequence[Any], setting: Setting
) -> Ran:
    """Run a program with every result of its sites off by one unit in the last place."""
    with in_setting(setting), torch.no_grad():
        state = runner.fresh_state()
        nudging = _Nudging(places, setting.seed)
        made = run_watched(runner, [passed_on(item) for item in leaves], state, lambda _: nudging)
        outputs = pytree.tree_unflatten(list(made), runner.exported.call_spec.out_spec)
    kept = {name: value for name, value in state.items() if name not in runner.parameters}
    return Ran(named_outputs(outputs), kept)


class _Nudging:
    """Moves what sites give, each element in a direction of its own."""

    def __init__(self, places: Sequence[Place], seed: int) -> None:
        self.roots: dict[Node, set[int]] = {}
        for place in places:
            for root in place.match.roots:
                self.roots.setdefault(root.node, set()).add(root.index)
        self.seed = seed

    def before(self, node: Node, env: Mapping[Node, Any]) -> None:
        pass

    def after(self, node: Node, made: Any) -> Any:
        indexes = self.roots.get(node)
        if indexes is None:
            return made
        if isinstance(made, Tensor):
            return self.nudged(node, made)
        return [self.nudged(node, v) if i in indexes else v for i, v in enumerate(made)]

    def nudged(self, node: Node, value: Any) -> Any:
        if not isinstance(value, Tensor) or not differentiable(value):
            return value
        self.seed += 1
        signs = torch.sign(drawn_like(value.real, self.seed))
        moved = value + (torch.finfo(value.dtype).eps * signs * value.abs()).to(value.dtype)
        schema = getattr(node.target, "_schema", None)
        return value.copy_(moved) if schema is not None and schema.is_mutable else moved


class _Exchanging:
    """Gives the result of a replacement for that of its site, in one execution of a graph."""

    def __init__(self, sites: Sequence[tuple[Place, Site]]) -> None:
        self.by_root = {place.match.roots[0].node: (place, site) for place, site in sites}
        self.readers: dict[Node, list[Place]] = {}
        for place, _ in sites:
            for node in place.nodes:
                self.readers.setdefault(node, []).append(place)
        self.outer: dict[int, dict[Node, Any]] = {place.index: {} for place, _ in sites}

    def before(self, node: Node, env: Mapping[Node, Any]) -> None:
        for place in self.readers.get(node, ()):
            entered = {item: env[item] for item in node.all_input_nodes if item in place.outer}
            self.outer[place.index] |= entered

    def after(self, node: Node, made: Any) -> Any:
        if node not in self.by_root:
            return made
        place, site = self.by_root[node]
        (exchanged,) = site.evaluate(place.match, place.bindings(self.outer[place.index]))
        if isinstance(made, Tensor):
            return exchanged
        return [exchanged, *list(made)[1:]]

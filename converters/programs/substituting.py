"""Run the original with some of its sites computed by their replacements, gradients included.

Where a rule lets an op keep a gradient of its own, the original's gradients are no reference behind
that site. The original with those replacements in place is one: nothing else differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from oprep.converters.programs.recording import Place, run_watched
from oprep.converters.programs.running import (
    Ran,
    Runner,
    Setting,
    back,
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

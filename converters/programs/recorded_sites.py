"""Sites that a sidecar records, found again in both programs; the converted one computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from oprep.converters.match import Match
from oprep.converters.programs.graph import TorchGraph
from oprep.converters.programs.subject import Site
from oprep.converters.programs.view import TorchView
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.rule import BareOp, Expect, Rule, Source, Tolerance


def recorded_sites(
    original: TorchGraph, converted: ExportedProgram, entries: Sequence[Mapping[str, Any]]
) -> tuple[Site, ...]:
    """Give the sites of a sidecar; raise OprepError (exit MODEL) where one fits neither program."""
    views = {view.region.path: view for view in original.views}
    after = {view.region.path: view for view in TorchGraph(converted).views}
    found = []
    for entry in entries:
        path = tuple(tuple(step) for step in entry["region"])
        before, behind = views.get(path), after.get(path)
        if before is None or behind is None:
            raise _stale(entry, f"there is no graph {'/'.join(str(step[-1]) for step in path)}")
        match = _match(before, entry)
        found.append(Site(match, _evaluator(behind, match), tuple(_ops(behind, match))))
    return tuple(found)


def _match(view: TorchView, entry: Mapping[str, Any]) -> Match:
    values = {str(value): value for value in view.values.values()}
    for outputs in view.region.outputs:
        values.update({str(value): value for value in outputs})
    for name in (*entry["outputs"], *entry["reads"]):
        if name not in values:
            raise _stale(entry, f"the original has no value `{name}`")
    numbers = {name: number for number, name in enumerate(view.names)}
    nodes = sorted(numbers[name] for name in entry["nodes"] if name in numbers)
    roots = tuple(values[name] for name in entry["outputs"])
    if len(nodes) != len(entry["nodes"]) or not roots:
        raise _stale(entry, "the original lacks nodes of the site")
    if any(view.region.producer.get(root) not in nodes for root in roots):
        raise _stale(entry, "its outputs are not made by its nodes")
    bound = {f"read {i}": values[name] for i, name in enumerate(entry["reads"])}
    return Match(_rule(entry), 0, 0, view, tuple(nodes), roots, bound)


def _rule(entry: Mapping[str, Any]) -> Rule:
    asked = entry.get("tolerance")
    tolerance = None if asked is None else Tolerance(asked["rtol"], asked["atol"])
    gradient = entry.get("gradient", "same")
    if gradient not in ("same", "own", "none"):
        raise _stale(entry, f"`gradient` is {gradient!r:.40}")
    source = Source(str(entry.get("tolerance_source") or "the sidecar"), 1)
    return Rule(str(entry["rule"]), (), BareOp("", ""), None, "", (), Expect(">=", 0), tolerance,
                gradient, False, source)  # fmt: skip


def _evaluator(
    view: TorchView, match: Match
) -> Callable[[Match, Mapping[Any, Any]], tuple[Any, ...]]:
    """Compute a site's outputs with the nodes of the converted program that lead to them."""

    def evaluate(_: Match, values: Mapping[Any, Any]) -> tuple[Any, ...]:
        known = {str(value): tensor for value, tensor in values.items()}
        return tuple(_value(view, str(root), known) for root in match.roots)

    return evaluate


def _value(view: TorchView, name: str, known: dict[str, Any]) -> Any:
    nodes = {node.name: node for node in view.graph_module.graph.nodes}
    made: dict[str, Any] = {}
    work = [nodes[name]] if name in nodes else []
    if not work:
        raise KeyError(f"the converted program has no value `{name}`")
    while work:
        node = work[-1]
        if node.name in made:
            work.pop()
            continue
        if node is not nodes[name] and node.name in known:
            made[node.name] = known[node.name]
            continue
        waiting = [item for item in node.all_input_nodes if item.name not in made]
        if waiting:
            work += waiting
            continue
        made[node.name] = _made(view, node, made)
    return made[name]


def _made(view: TorchView, node: Node, made: Mapping[str, Any]) -> Any:
    if node.op in ("placeholder", "get_attr"):
        home = view.home(node.name)
        held = home[0].held(home[1]) if home is not None else None
        if held is None:
            raise KeyError(f"`{node.name}` is an input that the site does not name")
        return held
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda item: made[item.name])
    assert callable(node.target)
    return node.target(*args, **kwargs)


def _ops(view: TorchView, match: Match) -> list[str]:
    producers = [view.region.producer.get(str(root)) for root in match.roots]
    return [view.region.ops[node] for node in producers if node is not None]


def _stale(entry: Mapping[str, Any], reason: str) -> OprepError:
    return OprepError(
        f"the sidecar's site `{entry['site']}` is not in the models",
        str(entry["site"]),
        (reason,),
        "convert again, or delete the sidecar to compare the outputs only",
        ExitCode.MODEL,
    )

"""The part of a model that leads to its sites, where the model as a whole cannot be run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from oprep.converters.twin import RegionPath, TwinPlan, TwinSite

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

    Key = tuple[str, str, str]

RUNTIME_DOMAINS = ("com.microsoft",)


@dataclass(frozen=True)
class Part:
    """A smaller model, the plan of the sites in it, and their indexes in the whole plan."""

    model: ModelProto
    plan: TwinPlan
    indexes: tuple[int, ...]


def leading_part(model: ModelProto, plan: TwinPlan) -> Part | None:
    """Cut out what the sites need that depend on no foreign op; None where nothing is left out."""
    reader = _Reader(model)
    chosen: list[int] = []
    kept: set[int] = set()
    ends: dict[str, None] = {}
    for index, site in enumerate(plan.sites):
        anchors = reader.anchors(site)
        needed = reader.closure(anchors)
        if needed and not any(reader.foreign(node) for node in needed):
            chosen.append(index)
            kept |= needed
            ends.update(dict.fromkeys(reader.made_by(anchors)))
    if not chosen or len(kept) == len(model.graph.node):
        return None
    order = sorted(kept)
    place = {old: new for new, old in enumerate(order)}
    sites = [_moved(plan.sites[index], place) for index in chosen]
    smaller = reader.cut(order, list(ends))
    return Part(smaller, TwinPlan(sites, plan.functions, plan.imports), tuple(chosen))


def _moved(site: TwinSite, place: dict[int, int]) -> TwinSite:
    region: RegionPath = site.region
    if not region:
        return replace(site, after=place.get(site.after, site.after))
    if region[0][0] == "function":
        return site
    first = (place[region[0][0]], *region[0][1:])
    return replace(site, region=(first, *region[1:]))


class _Reader:
    """Answers what the nodes of a model's main graph need."""

    def __init__(self, model: ModelProto) -> None:
        self.model = model
        self.nodes: Sequence[NodeProto] = list(model.graph.node)
        self.makers = {name: index for index, node in enumerate(self.nodes)
                       for name in node.output if name}  # fmt: skip
        self.functions = {(f.domain, f.name, f.overload): f for f in model.functions}
        self.inside = [list(self._all(node)) for node in self.nodes]

    def _all(self, node: NodeProto) -> Iterator[NodeProto]:
        """Give a node and those of the graphs that it holds."""
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                for inner in graph.node:
                    yield from self._all(inner)

    def called(self, nodes: Sequence[NodeProto]) -> set[Key]:
        """Give the functions that nodes call, directly or not."""
        found: set[Key] = set()
        work = list(nodes)
        while work:
            node = work.pop()
            key = (node.domain, node.op_type, node.overload)
            if key in self.functions and key not in found:
                found.add(key)
                work += [each for item in self.functions[key].node for each in self._all(item)]
        return found

    def anchors(self, site: TwinSite) -> set[int]:
        """Give the nodes of the main graph in which a site is, or that its replacement reads."""
        if site.region and site.region[0][0] == "function":
            key = tuple(site.region[0][1:])
            return {i for i, nodes in enumerate(self.inside) if key in self.called(nodes)}
        if site.region:
            return {site.region[0][0]}
        names = [original for original, _ in site.pairs]
        names += [*site.reads, *(name for node in site.nodes for name in node.input)]
        return {self.makers[name] for name in names if name in self.makers}

    def closure(self, anchors: set[int]) -> set[int]:
        """Give the nodes that lead to some nodes, these included."""
        found, work = set(anchors), list(anchors)
        while work:
            for node in self.inside[work.pop()]:
                new = {self.makers[name] for name in node.input if name in self.makers} - found
                found |= new
                work += new
        return found

    def foreign(self, index: int) -> bool:
        """Tell whether a node, or one inside of it, is no op that a runtime could know."""
        nodes: list[NodeProto] = list(self.inside[index])
        for key in self.called(nodes):
            nodes += [each for item in self.functions[key].node for each in self._all(item)]
        return not all(map(self._known, nodes))

    def _known(self, node: NodeProto) -> bool:
        from onnx import defs

        if (node.domain, node.op_type, node.overload) in self.functions:
            return True
        domain = "" if node.domain == "ai.onnx" else node.domain
        return domain in RUNTIME_DOMAINS or bool(defs.has(node.op_type, domain=domain))

    def made_by(self, anchors: set[int]) -> list[str]:
        """Name the first output of each node."""
        return [next(name for name in self.nodes[i].output if name) for i in sorted(anchors)]

    def cut(self, order: Sequence[int], ends: Sequence[str]) -> Any:
        """Copy the model with some of its nodes; `ends` become outputs where none is left."""
        from onnx import ModelProto

        smaller = ModelProto()
        smaller.CopyFrom(self.model)
        del smaller.graph.node[:], smaller.graph.output[:]
        smaller.graph.node.extend(self.nodes[index] for index in order)
        made = {name for index in order for name in self.nodes[index].output}
        smaller.graph.output.extend(o for o in self.model.graph.output if o.name in made)
        names = {item.name for item in smaller.graph.output}
        for name in ends:
            if name not in names:
                smaller.graph.output.add(name=name)
        used = self.called([node for index in order for node in self.inside[index]])
        del smaller.functions[:]
        smaller.functions.extend(self.functions[key] for key in self.functions if key in used)
        return smaller

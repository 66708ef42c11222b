"""Record what the sites of a program read and give while the original runs.

Every execution of a site is one record: a branch not taken gives none, a loop gives many. Values
are kept by reference; where the program changes tensors in place they are copied instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from oprep.converters.programs.interpreting import Watch, run_graph
from oprep.converters.programs.places import Place, picked
from oprep.converters.programs.running import Runner, fresh, snapshot


@dataclass(frozen=True)
class Mode:
    """What autograd and autocast were set to where a site ran."""

    grad: bool
    autocast: bool
    dtype: torch.dtype

    @staticmethod
    def now() -> Mode:
        """Read what is set here."""
        return Mode(
            torch.is_grad_enabled(),
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
        )

    def casting(self) -> torch.autocast:
        """Set autocast as it was, for a block."""
        return torch.autocast("cpu", dtype=self.dtype, enabled=self.autocast)


def changes_in_place(exported: ExportedProgram) -> bool:
    """Tell whether any node of a program writes into a tensor."""
    graphs = [item for item in exported.graph_module.modules() if isinstance(item, GraphModule)]
    targets = (node.target for graph in graphs for node in graph.graph.nodes)
    return any(isinstance(t, torch._ops.OpOverload) and _writes(t) for t in targets)


def _writes(target: torch._ops.OpOverload) -> bool:
    return target._schema.is_mutable or str(target._schema.name).startswith("aten::batch_norm")


@dataclass
class Record:
    """One execution of a site.

    `outer` are the values that entered, `asked` those of them that a gradient goes to, `inner`
    the values between, `made` the results; `upstream` what came back to each of them, filled in by
    the backward pass.
    """

    place: Place
    mode: Mode
    random: Tensor
    outer: dict[Node, Any] = field(default_factory=dict)
    asked: set[Node] = field(default_factory=set)
    inner: list[Tensor] = field(default_factory=list)
    made: dict[int, Any] = field(default_factory=dict)
    strides: dict[int, tuple[int, ...]] = field(default_factory=dict)
    differentiable: set[int] = field(default_factory=set)
    upstream: dict[int, Tensor] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Tell whether all results are there."""
        return len(self.made) == len(self.place.match.roots)

    @property
    def results(self) -> list[Any]:
        """The results of the site in their order."""
        return [self.made[i] for i in range(len(self.made))]

    def reads(self) -> list[Tensor]:
        """Give all tensors that entered or lie between, for their magnitudes."""
        return [*_flat(self.outer.values()), *self.inner]

    @property
    def nbytes(self) -> int:
        """Bytes that this record keeps alive."""
        tensors = [*_flat(self.outer.values()), *_flat(self.made.values())]
        return sum(item.numel() * item.element_size() for item in tensors)


def _flat(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _flat(value)


def run_watched(
    runner: Runner, inputs: Sequence[Any], state: Mapping[str, Tensor], watch: Watch
) -> list[Any]:
    """Run a program node by node on flat inputs and a state; give the user's outputs."""
    exported = runner.exported
    values, users = [], iter(inputs)
    for spec in exported.graph_signature.input_specs:
        kind = spec.kind.name
        if kind == "USER_INPUT":
            values.append(next(users))
        elif kind == "TOKEN":
            values.append(torch.zeros(0))
        else:
            target = str(spec.target)
            values.append(state[target] if target in state else exported.constants[target])
    made = run_graph(exported.graph_module, values, watch)
    kinds = [spec.kind.name for spec in exported.graph_signature.output_specs]
    return [v for v, kind in zip(made, kinds, strict=True) if kind == "USER_OUTPUT"]


Seen = Callable[[Record], None]


class Recorder:
    """Runs the original with an eye on some of its sites, and hands over each record."""

    def __init__(self, runner: Runner, places: Sequence[Place]) -> None:
        """Watch `places`; the program itself is not changed."""
        self.runner = runner
        self.by_graph: dict[int, list[Place]] = {}
        for place in places:
            self.by_graph.setdefault(id(place.graph), []).append(place)
        self.copying = changes_in_place(runner.exported)

    def run(self, inputs: Sequence[Any], state: Mapping[str, Tensor], seen: Seen) -> list[Any]:
        """Run on flat inputs and a state of its own; give the user's outputs."""
        return run_watched(self.runner, inputs, state, lambda graph: self.watch(graph, seen))

    def watch(self, graph: GraphModule, seen: Seen) -> _Execution | None:
        """Give who watches one execution of a graph that has sites."""
        places = self.by_graph.get(id(graph.graph))
        return None if places is None else _Execution(places, seen, self.copying)


class _Execution:
    """Watches one execution of one graph."""

    def __init__(self, places: Sequence[Place], seen: Seen, copying: bool) -> None:
        self.seen, self.copying = seen, copying
        self.readers: dict[Node, list[Place]] = {}
        for place in places:
            for node in place.nodes:
                self.readers.setdefault(node, []).append(place)
        self.open: dict[int, Record] = {}

    def before(self, node: Node, env: Mapping[Node, Any]) -> None:
        for place in self.readers.get(node, ()):
            record = self.open.get(place.index)
            if record is None:
                record = Record(place, Mode.now(), torch.random.get_rng_state())
                self.open[place.index] = record
            for item in node.all_input_nodes:
                if item in place.outer and item not in record.outer:
                    value = env[item]
                    if isinstance(value, Tensor) and value.requires_grad:
                        record.asked.add(item)
                    record.outer[item] = self.kept(value)

    def after(self, node: Node, made: Any) -> Any:
        for place in self.readers.get(node, ()):
            record = self.open[place.index]
            if node not in place.makers:
                record.inner += [self.kept(item) for item in _flat([made])]
                continue
            for number, root in enumerate(place.match.roots):
                if root.node is node:
                    self.result(record, number, picked(made, root))
            if record.complete:
                self.seen(record)
        return made

    def result(self, record: Record, number: int, value: Any) -> None:
        record.made[number] = self.kept(value)
        if isinstance(value, Tensor):
            record.strides[number] = value.stride()
        if isinstance(value, Tensor) and value.requires_grad:
            record.differentiable.add(number)

            def arrived(gradient: Tensor) -> None:
                record.upstream[number] = gradient.detach()

            value.register_hook(arrived)  # type: ignore[no-untyped-call]

    def kept(self, value: Any) -> Any:
        """Keep a value as it is now."""
        if isinstance(value, Tensor):
            return snapshot(value) if self.copying else value.detach()
        if isinstance(value, tuple | list):
            return [self.kept(item) for item in value]
        return value


def copied(outer: Mapping[Node, Any]) -> dict[Node, Any]:
    """Copy what entered a site, so that nothing that is tried on it can change the record."""
    return {node: _copied(value) for node, value in outer.items()}


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return snapshot(value)
    return [_copied(item) for item in value] if isinstance(value, tuple | list) else value


def leaves(record: Record) -> tuple[dict[Node, Any], dict[Node, Tensor]]:
    """Give fresh values of a site in an autograd graph of their own, and its leaves."""
    values = copied(record.outer)
    starts = {}
    for node in record.asked:
        start = values[node].requires_grad_()
        starts[node] = start
        values[node] = fresh(start)
    return values, starts

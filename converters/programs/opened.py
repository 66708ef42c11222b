"""Programs that are open in this process, under a key, and what a parent is told of each.

How a program is opened is told by the name of a function, so that a file, an archive or an object
can all be proven alike.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from oprep.converters.gradient_comparison import SAME
from oprep.converters.programs.input_leaves import Inputs
from oprep.converters.programs.places import Place, draws, picked
from oprep.converters.programs.program import Example, Program
from oprep.converters.programs.running import Runner
from oprep.converters.programs.subject import Site, Subject
from oprep.converters.programs.substituting import fits
from oprep.converters.programs.tensors import dtype_name

Say = Callable[[str], None]


@dataclass
class Opened:
    """A program in this process; `sites` are those of the original."""

    program: Program
    runner: Runner
    sites: tuple[Site, ...] = ()
    given: tuple[Example, ...] = ()
    sets: tuple[Example, ...] = ()
    places: dict[int, Place] = field(default_factory=dict)

    def place(self, index: int) -> Place:
        """Give a site as the interpreter meets it."""
        if index not in self.places:
            self.places[index] = Place(index, self.sites[index].match)
        return self.places[index]


programs: dict[str, Opened] = {}


def _called(payload: Mapping[str, Any], say: Say) -> Any:
    module, _, name = payload["task"].partition(":")
    return getattr(importlib.import_module(module), name)(payload["payload"], say)


def open_program(payload: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Open what `task` gives (a Subject, a Program or an ExportedProgram) under `key`.

    Gives its signature, its sites, and whether a parameter asks for a gradient.
    """
    say(f"opening {payload['what']}")
    found = _called(payload, say)
    subject = _subject(found, payload["what"])
    program = subject.program
    opened = Opened(program, Runner(program.exported), subject.sites, subject.given)
    programs[payload["key"]] = opened
    return {
        "signature": _signature(program.exported),
        "sites": [_told(site) for site in opened.sites],
        **_trainable(opened),
        "draws": _draws(program.exported),
    }


def _dtypes(site: Site) -> set[str]:
    """Name the dtypes of what a site gives."""
    made = [root.node.meta.get("val") for root in site.match.roots]
    each = [picked(value, root) for value, root in zip(made, site.match.roots, strict=True)]
    return {dtype_name(item.dtype) for item in each if isinstance(item, Tensor)}


def _subject(found: Any, what: str) -> Subject:
    if isinstance(found, Subject):
        return found
    if isinstance(found, ExportedProgram):
        found = Program(found, what, "object", "archive")
    return Subject(found)


def _trainable(opened: Opened) -> dict[str, bool]:
    """Tell what gradients could go to: parameters that ask, or floating inputs."""
    parameters = opened.runner.parameters
    held = opened.runner.held()
    asking = [held[name].requires_grad for name in parameters if name in held]
    leaves = Inputs(opened.program.exported).leaves
    floating = [leaf.dtype for leaf in leaves if leaf.kind == "tensor" and leaf.dtype is not None]
    return {
        "asks": any(asking),
        "frozen": bool(asking) and not any(asking),
        "floating": any(dtype.is_floating_point or dtype.is_complex for dtype in floating),
    }


def _told(site: Site) -> dict[str, Any]:
    rule, region = site.match.rule, site.match.view.region
    tolerance = rule.tolerance
    return {
        "name": site.name,
        "label": site.label,
        "rule": rule.name,
        "tolerance": None if tolerance is None else (tolerance.rtol, tolerance.atol),
        "gradient": rule.gradient,
        "dtypes": sorted(_dtypes(site)),
        "exchangeable": rule.gradient != SAME and fits(Place(0, site.match)),
        "region": " in ".join(str(step[-1]) for step in reversed(region.path)),
    }


def _signature(exported: ExportedProgram) -> dict[str, Any]:
    """Describe what a caller sees: inputs, outputs, their structure, and the state dict."""
    inputs = [f"`{leaf.name}` {leaf}" for leaf in Inputs(exported).leaves]
    outputs = []
    node = next(iter(exported.graph.find_nodes(op="output")))
    for spec, value in zip(exported.graph_signature.output_specs, node.args[0], strict=True):
        if spec.kind.name == "USER_OUTPUT":
            meta = getattr(value, "meta", {}).get("val", value)
            outputs.append(_described(meta))
    state = {k: (_described(v), v.requires_grad) for k, v in exported.state_dict.items()}
    return {
        "inputs": inputs,
        "outputs": outputs,
        "structure": [str(exported.call_spec.in_spec), str(exported.call_spec.out_spec)],
        "state": sorted((k, *v) for k, v in state.items()),
    }


def _described(value: Any) -> str:
    if not isinstance(value, Tensor):
        return str(value)
    return f"{dtype_name(value.dtype)}[{', '.join(map(str, value.shape))}]"


def _draws(exported: ExportedProgram) -> bool:
    graphs = [m for m in exported.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    return any(draws(node) for graph in graphs for node in graph.graph.nodes)


def close_programs(payload: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Let go of all programs."""
    programs.clear()
    return {}


def held_here(payload: Mapping[str, Any], say: Say) -> Any:
    """Give a program that this very process holds: what `held` of the payload is."""
    return payload["held"]

"""Tasks of a child that proves a program: open, make inputs, run, compare at sites.

Nothing here changes a program: every run has copies of its state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from oprep.converters import magnitudes
from oprep.converters.programs.example_sets import cannot_generate, example_sets
from oprep.converters.programs.input_leaves import Inputs
from oprep.converters.programs.opened import (
    Opened,
    close_programs,
    held_here,
    open_program,
    programs,
)
from oprep.converters.programs.propagate import propagate_all
from oprep.converters.programs.proving_sites import run_sites
from oprep.converters.programs.recording import run_watched
from oprep.converters.programs.running import Ran, Setting, in_setting
from oprep.converters.programs.substituting import run_nudged, run_with
from oprep.converters.programs.tensors import to_array
from oprep.converters.programs.travel import from_plain, to_plain

__all__ = [
    "close_programs",
    "held_here",
    "list_sets",
    "make_set",
    "open_program",
    "propagate",
    "run_program",
    "run_sites",
    "run_steps",
]

Say = Callable[[str], None]
STEP = "running "
LARGE = 1 << 20
"""Gradients of more elements travel as that many, evenly spread."""


def list_sets(payload: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Make the input sets from a seed; give their names and what they are good for."""
    opened = programs[payload["key"]]
    say("making inputs")
    opened.sets = example_sets(opened.program, opened.given, payload["seed"])
    return {
        "sets": [
            {"name": item.name, "whole": item.whole, "usual": item.usual} for item in opened.sets
        ],
        "names": list(opened.runner.input_names),
        "cannot": cannot_generate(Inputs(opened.program.exported), None),
    }


def make_set(payload: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Give the flat inputs of one set."""
    opened = programs[payload["key"]]
    example = opened.sets[payload["number"]]
    leaves = Inputs(opened.program.exported).flat(example.args, example.kwargs)
    assert leaves is not None
    return {"leaves": [to_plain(leaf) for leaf in leaves]}


def run_program(payload: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Run a program: outputs, buffers that changed, gradients where asked for."""
    opened = programs[payload["key"]]
    say(f"running {payload['what']}")
    leaves = [from_plain(item) for item in payload["leaves"]]
    ran = _ran(opened, leaves, payload)
    held = opened.runner.held()
    changed = {k: v for k, v in ran.state.items() if not _same(v, held[k])}
    gradients, sampled = _sampled(ran.gradients)
    return {
        "outputs": {name: to_plain(value) for name, value in ran.outputs.items()},
        "state": {name: to_plain(value) for name, value in changed.items()},
        "gradients": gradients,
        "sampled": sampled,
        "random": ran.random,
    }


def _ran(opened: Opened, leaves: Sequence[Any], payload: Mapping[str, Any]) -> Ran:
    """Run as a caller would, or with something else in place of what sites give."""
    setting, gradients = Setting(**payload["setting"]), bool(payload["gradients"])
    if payload.get("nudged"):
        places = [opened.place(index) for index in range(len(opened.sites))]
        return run_nudged(opened.runner, places, leaves, setting)
    exchanged = [(opened.place(index), opened.sites[index]) for index in payload["exchanged"]]
    if exchanged and gradients:
        return run_with(opened.runner, exchanged, leaves, setting)
    return opened.runner.run(leaves, setting, gradients=gradients)


def _sampled(gradients: Mapping[str, Tensor | None]) -> tuple[dict[str, Any], str]:
    """Give gradients as arrays; of large ones elements evenly spread, and the words for that."""
    found: dict[str, Any] = {}
    large = 0
    for name, gradient in gradients.items():
        if gradient is not None and gradient.numel() > LARGE:
            large += 1
            step = -(-gradient.numel() // LARGE)
            gradient = gradient.reshape(-1)[::step]
        found[name] = None if gradient is None else to_array(gradient)
    words = f"of {large} large gradients at most {LARGE} elements each were compared end to end"
    return found, words if large else ""


def propagate(payload: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Compare what every op of a program gives on fake tensors with what the graph declares."""
    say("comparing metadata")
    found = propagate_all(programs[payload["key"]].runner.exported)
    return {
        "differences": [
            f"`{item.op}` at `{item.node}`: the program declares {item.declared}, "
            f"its fake implementation gives {item.found}"
            for item in found
        ]
    }


def run_steps(payload: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Run a program node by node and say which op begins: for one that crashes or hangs."""
    opened = programs[payload["key"]]
    leaves = [from_plain(item) for item in payload["leaves"]]
    with in_setting(Setting(**payload["setting"])), torch.no_grad():
        run_watched(opened.runner, leaves, opened.runner.fresh_state(), lambda graph: _Saying(say))
    return {}


class _Saying:
    """Says each op before it runs."""

    def __init__(self, say: Say) -> None:
        self.say = say

    def before(self, node: torch.fx.Node, env: Mapping[torch.fx.Node, Any]) -> None:
        schema = getattr(node.target, "_schema", None)
        if schema is not None:
            self.say(f"{STEP}`{schema.name}` at `{node.name}`")

    def after(self, node: torch.fx.Node, made: Any) -> Any:
        return made


def _same(left: Tensor, right: Tensor) -> bool:
    return magnitudes.same_bits(to_array(left), to_array(right))

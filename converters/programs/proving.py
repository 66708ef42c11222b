"""Tasks of a child that proves a program: open, run, and compare at sites.

What is open stays under a key until the child dies. How a program is opened is told by the name of
a function, so that a file, an archive or an object can all be proven alike.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from oprep.converters import magnitudes
from oprep.converters.comparison import Comparison
from oprep.converters.evidence import NOTHING, merged
from oprep.converters.evidence import to_plain as plain_comparison
from oprep.converters.floors import compare_at_site
from oprep.converters.gradient_comparison import SAME, failed
from oprep.converters.programs.example_sets import example_sets
from oprep.converters.programs.gradients import (
    Evaluate,
    Wanted,
    compare_gradients,
    in_mode,
    slope_differs,
    words,
)
from oprep.converters.programs.input_leaves import Inputs
from oprep.converters.programs.program import Example, Program
from oprep.converters.programs.recording import (
    Place,
    Record,
    Recorder,
    copied,
    picked,
    run_watched,
)
from oprep.converters.programs.running import (
    Runner,
    Setting,
    back,
    in_setting,
    passed_on,
    started,
    wanted,
)
from oprep.converters.programs.running import named_outputs as named
from oprep.converters.programs.subject import Site, Subject
from oprep.converters.programs.tensors import dtype_name, to_array
from oprep.converters.programs.travel import from_plain, to_plain
from oprep.converters.report import Verdict
from oprep.opsets.rule import Tolerance

Say = Callable[[str], None]
STEP = "running "
KEPT_BYTES, KEPT_RECORDS = 1 << 29, 64
"""What one site keeps of one run for its gradients; further executions are compared forward."""


@dataclass
class _Opened:
    """A program in this process; `sites` are those of the original."""

    program: Program
    runner: Runner
    sites: tuple[Site, ...] = ()
    given: tuple[Example, ...] = ()
    sets: tuple[Example, ...] = ()
    places: dict[int, Place] = field(default_factory=dict)


_open: dict[str, _Opened] = {}


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
    opened = _Opened(program, Runner(program.exported), subject.sites, subject.given)
    _open[payload["key"]] = opened
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


def _trainable(opened: _Opened) -> dict[str, bool]:
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
    return f"{str(value.dtype).removeprefix('torch.')} {[str(dim) for dim in value.shape]}"


def _draws(exported: ExportedProgram) -> bool:
    from oprep.converters.programs.recording import draws

    graphs = [m for m in exported.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    return any(draws(node) for graph in graphs for node in graph.graph.nodes)


def list_sets(payload: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Make the input sets from a seed; give their names and what they are good for."""
    opened = _open[payload["key"]]
    say("making inputs")
    opened.sets = example_sets(opened.program, opened.given, payload["seed"])
    return {
        "sets": [
            {"name": item.name, "whole": item.whole, "usual": item.usual} for item in opened.sets
        ],
        "names": list(opened.runner.input_names),
    }


def make_set(payload: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Give the flat inputs of one set."""
    opened = _open[payload["key"]]
    example = opened.sets[payload["number"]]
    leaves = Inputs(opened.program.exported).flat(example.args, example.kwargs)
    assert leaves is not None
    return {"leaves": [to_plain(leaf) for leaf in leaves]}


def close_programs(payload: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Let go of all programs."""
    _open.clear()
    return {}


def held_here(payload: Mapping[str, Any], say: Say) -> Any:
    """Give a program that this very process holds: what `held` of the payload is."""
    return payload["held"]


def run_program(payload: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Run a program: outputs, buffers that changed, gradients where asked for."""
    opened = _open[payload["key"]]
    say(f"running {payload['what']}")
    leaves = [from_plain(item) for item in payload["leaves"]]
    setting = Setting(**payload["setting"])
    ran = opened.runner.run(leaves, setting, gradients=payload["gradients"])
    held = opened.runner.held()
    changed = {k: v for k, v in ran.state.items() if not _same(v, held[k])}
    return {
        "outputs": {name: to_plain(value) for name, value in ran.outputs.items()},
        "state": {name: to_plain(value) for name, value in changed.items()},
        "gradients": {k: None if g is None else to_array(g) for k, g in ran.gradients.items()},
        "random": ran.random,
    }


def run_steps(payload: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Run a program node by node and say which op begins: for one that crashes or hangs."""
    opened = _open[payload["key"]]
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


def run_sites(payload: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Run the original and compare its sites: forward in each execution, and gradients."""
    opened = _open[payload["key"]]
    say(f"running {payload['what']}")
    leaves = [from_plain(item) for item in payload["leaves"]]
    sites = [_Compared(opened, item, payload) for item in payload["sites"]]
    proof = _Proof(opened, sites, payload, say)
    proof.run(leaves)
    return {
        "bytes": proof.bytes,
        "sites": [site.result() for site in sites],
        "no_way_back": proof.no_way_back,
    }


class _Compared:
    """What one set shows of one site."""

    def __init__(
        self, opened: _Opened, told: Mapping[str, Any], payload: Mapping[str, Any]
    ) -> None:
        index = told["index"]
        self.site = opened.sites[index]
        if index not in opened.places:
            opened.places[index] = Place(index, self.site.match)
        self.place = opened.places[index]
        self.index, self.said = index, told["said"]
        self.whole = bool(payload["whole"])
        asked = told["tolerance"]
        self.asked = None if asked is None else Tolerance(*asked)
        self.wanted = Wanted(told["gradient"], self.asked, payload["setting"]["seed"])
        self.forward: list[Comparison] = []
        self.back: list[Comparison] = []
        self.records: list[Record] = []
        self.reached = self.bytes = self.left_out = 0
        self.refused = ""

    def result(self) -> dict[str, Any]:
        """Give what was found as plain data."""
        return {
            "reached": self.reached,
            "left_out": self.left_out,
            "refused": self.refused,
            "comparison": plain_comparison(merged(self.forward)),
            "gradient": plain_comparison(merged(self.back)) if self.back else None,
        }


class _Proof:
    """One run of the original with its sites compared on the way."""

    def __init__(
        self, opened: _Opened, sites: Sequence[_Compared], payload: Mapping[str, Any], say: Say
    ) -> None:
        self.opened, self.sites, self.say = opened, sites, say
        self.by_index = {site.index: site for site in sites}
        self.gradients = bool(payload["gradients"])
        self.slopes = bool(payload["slopes"])
        self.setting = Setting(**payload["setting"])
        self.bytes = 0
        self.no_way_back = ""

    def run(self, leaves: Sequence[Any]) -> None:
        """Go forward, compare at each site, then back where gradients are compared."""
        runner = self.opened.runner
        recorder = Recorder(runner, [site.place for site in self.sites])
        with in_setting(self.setting), torch.set_grad_enabled(self.gradients):
            state = runner.fresh_state()
            starts = [started(item, self.gradients) for item in leaves]
            passed = [passed_on(item) for item in starts]
            outputs = recorder.run(passed, state, self.seen)
            if self.gradients:
                self.go_back(outputs, dict(zip(runner.input_names, starts, strict=True)), state)

    def seen(self, record: Record) -> None:
        """Compare one execution of a site; keep it for the way back."""
        site = self.by_index[record.place.index]
        site.reached += 1
        self.say(site.said)
        if site.refused:
            return
        try:
            site.forward += compare_forward(record, site.site.evaluate, site)
        except Exception as error:  # whatever an op raises is its verdict
            site.refused = words(error)
            return
        size = record.nbytes
        self.bytes += size
        if not self.gradients:
            return
        if len(site.records) >= KEPT_RECORDS or site.bytes + size > KEPT_BYTES:
            site.left_out += bool(site.records)
            if site.records:
                return
        site.bytes += size
        site.records.append(record)

    def go_back(
        self, outputs: Sequence[Any], inputs: Mapping[str, Any], state: Mapping[str, Tensor]
    ) -> None:
        """Go back through the original, then compare what came to each site."""
        try:
            back(named(list(outputs)), wanted(inputs, state), self.setting.seed)
        except Exception as error:  # an original without a gradient is no fault of a conversion
            self.no_way_back = words(error)
            return
        for site in self.sites:
            for record in site.records:
                self.say(site.said)
                evaluate = site.site.evaluate
                found = compare_gradients(record, evaluate, site.wanted)
                if self.slopes and site.wanted.kind == SAME and not record.place.draws:
                    right = all(item.verdict is not Verdict.FAIL for item in found)
                    wrong = slope_differs(record, evaluate, site.wanted.seed) if right else ""
                    found = [*found, failed(wrong)] if wrong else found
                site.back += found
            site.records.clear()


def compare_forward(record: Record, evaluate: Evaluate, site: _Compared) -> list[Comparison]:
    """Compare what a replacement makes of recorded values with what the original made of them."""
    reads = [to_array(item) for item in record.reads()]
    if not site.whole and not magnitudes.all_finite(reads):
        return []
    values = copied(record.outer)
    with in_mode(record), torch.no_grad():
        made = list(evaluate(record.place.match, record.place.bindings(values)))
    spoiled = [node.name for node in values if not _untouched(values[node], record.outer[node])]
    if spoiled:
        return [failed(f"it changes `{name}`, which it only reads") for name in spoiled]
    results = record.results
    if len(made) != len(results):
        return [failed(f"{len(results)} results became {len(made)}")]
    found = []
    for number, (one, other) in enumerate(zip(results, made, strict=True)):
        comparison = _compared(one, other, reads, record, site.asked)
        if comparison.verdict is Verdict.FAIL and record.place.draws:
            detail = "it draws random numbers, and the replacement draws others"
            comparison = replace(comparison, verdict=Verdict.NOT_DETERMINISTIC, detail=detail)
        strides = record.strides.get(number)
        if comparison.verdict is Verdict.PASS and strides is not None:
            apart = _apart(one, strides, other)
            comparison = failed(apart) if apart else comparison
        found.append(comparison)
    return found


def _untouched(after: Any, before: Any) -> bool:
    if isinstance(after, Tensor):
        return magnitudes.same_bits(to_array(after), to_array(before))
    if isinstance(after, list):
        return all(_untouched(*pair) for pair in zip(after, before, strict=True))
    return True


def _compared(
    one: Any, other: Any, reads: list[Any], record: Record, asked: Tolerance | None
) -> Comparison:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        kinds = [type(item).__name__ for item in (one, other)]
        same = kinds[0] == kinds[1] and one == other
        return replace(NOTHING, verdict=Verdict.PASS) if same else failed(f"{one} became {other}")
    return compare_at_site(to_array(one), to_array(other), reads, asked, local=record.place.local)


def _apart(one: Tensor, strides: tuple[int, ...], other: Tensor) -> str:
    """Say how two results of one shape lie in memory, where it differs."""
    sizes = zip(one.shape, strides, other.stride(), strict=True)
    if not one.numel() or all(a == b for size, a, b in sizes if size > 1):
        return ""
    return f"strides {list(strides)} became {list(other.stride())}"

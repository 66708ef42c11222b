"""Compare the sites of a program while the original runs: values on the way, then gradients.

Every execution of a site is compared as soon as its results are there; what its gradients need is
kept until the way back, within bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from oprep.converters import magnitudes
from oprep.converters.comparison import Comparison
from oprep.converters.evidence import NOTHING, merged
from oprep.converters.evidence import to_plain as plain_comparison
from oprep.converters.floors import compare_at_site
from oprep.converters.gradient_comparison import SAME, failed
from oprep.converters.programs.gradients import (
    Evaluate,
    Wanted,
    compare_gradients,
    in_mode,
    slope_differs,
    words,
)
from oprep.converters.programs.opened import Opened, programs
from oprep.converters.programs.recording import Record, Recorder, copied
from oprep.converters.programs.running import Setting, back, in_setting, passed_on, started, wanted
from oprep.converters.programs.running import named_outputs as named
from oprep.converters.programs.tensors import to_array
from oprep.converters.programs.travel import from_plain
from oprep.converters.report import Verdict
from oprep.opsets.rule import Tolerance

Say = Callable[[str], None]
KEPT_BYTES, KEPT_RECORDS = 1 << 29, 64
"""What one site keeps of one run for its gradients; further executions are compared forward."""


def run_sites(payload: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Run the original and compare its sites: forward in each execution, and gradients."""
    opened = programs[payload["key"]]
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

    def __init__(self, opened: Opened, told: Mapping[str, Any], payload: Mapping[str, Any]) -> None:
        index = told["index"]
        self.site = opened.sites[index]
        self.place = opened.place(index)
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
        self, opened: Opened, sites: Sequence[_Compared], payload: Mapping[str, Any], say: Say
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

"""Where a rule nearly matched: one reason per anchor node, the attempt that came furthest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oprep.converters.compile import Compiled
from oprep.converters.graph import View
from oprep.converters.match import Match, explain_at, rarest
from oprep.converters.report import MissRecord
from oprep.converters.state import State, shown_ops

ANCHORS = 400


def near_misses(
    views: Sequence[View],
    alternatives: Callable[[View], Sequence[Compiled]],
    prepare: Callable[[Match], str],
    matches: Sequence[Match],
    refused: Sequence[tuple[Match, str]],
) -> list[MissRecord]:
    """Look again at every place where a rule could have matched; one reason per anchor node."""
    best: dict[tuple[int, int], tuple[float, str, str, int]] = {}
    general: dict[str, None] = {}
    for number, view in enumerate(views):
        inside = {node for match in matches if match.view is view for node in match.nodes}
        inside |= {node for match, _ in refused if match.view is view for node in match.nodes}
        state = State(view, 0)
        state.prepare = prepare
        for number_of_form, compiled in enumerate(alternatives(view)):
            if compiled.missing:
                general[compiled.missing] = None
                continue
            anchor = rarest(compiled, view)
            if anchor is None:
                if number == 0:
                    general[_nothing_there(compiled, view)] = None
                continue
            nodes = [node for op in anchor.ops for node in view.region.by_op.get(op, ())]
            for node in nodes[:ANCHORS]:
                if node in inside:
                    continue
                why = explain_at(state, compiled, anchor, node)
                key = (number, node)
                if why.text and why.best > best.get(key, (-1.0, "", "", 0))[0]:
                    best[key] = (why.best, view.node_name(node), why.text, number_of_form)
    ranked = sorted(best.values(), key=lambda item: -item[0])
    first = {form: item for item in reversed(ranked) for form in (item[3],)}
    ranked.sort(key=lambda item: first[item[3]] is not item)  # the best of each form leads
    records = [MissRecord(site, text) for _, site, text, _ in ranked]
    return records or [MissRecord("", text) for text in general]


def _nothing_there(compiled: Compiled, view: View) -> str:
    by_op = view.region.by_op
    for anchor in compiled.anchors:
        if not any(op in by_op for op in anchor.ops):
            names = " or ".join(shown_ops(anchor.ops))
            return f"the graph has no {names}"
    return "the graph has nothing of the kind"

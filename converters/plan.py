"""From matches to a plan: overlaps resolved, what stays settled, every rule accounted for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from oprep.converters.compile import Compiled
from oprep.converters.graph import View
from oprep.converters.match import Match, explain_at, find, rarest
from oprep.converters.memory import uncollected
from oprep.converters.report import MissRecord, RuleOutcome, SiteRecord
from oprep.converters.state import State
from oprep.opsets.rule import Opset, Rule

ANCHORS = 400
SHOWN = 8


@dataclass(frozen=True, slots=True)
class Candidate:
    """One rule of one opset with its alternatives, compiled for each region's dialect."""

    rule: Rule
    opset: Opset
    order: int
    alternatives: Callable[[View], Sequence[Compiled]]
    replacement: str
    prepare: Callable[[Match], str]
    """Fill in what the replacement needs; give the reason where that is impossible."""

    regions: Callable[[View], list[Match]] | None = None
    """Matches of patterns that name tensors instead of ops."""


@dataclass
class Plan:
    """What will be replaced, and what each rule found, in rule order.

    `gone` are the nodes that leave each region that has matches, by the region's position.
    `refused` are matches that hold but are not made, with the reason.
    """

    matches: list[Match]
    gone: dict[int, set[int]]
    views: Sequence[View]
    candidates: Sequence[Candidate]
    refused: list[tuple[Match, str]]
    explain: bool

    @cached_property
    def outcomes(self) -> tuple[RuleOutcome, ...]:
        """Account for every rule; near misses of those that are short of matches, or of all."""
        with uncollected():
            return tuple(self._outcome(candidate) for candidate in self.candidates)

    def _outcome(self, candidate: Candidate) -> RuleOutcome:
        own = [match for match in self.matches if match.order == candidate.order]
        met = candidate.rule.expect.met_by(len(own))
        misses: list[MissRecord] = []
        if self.explain or not met:
            misses = [
                MissRecord(match.site, reason)
                for match, reason in self.refused
                if match.order == candidate.order
            ]
            misses += near_misses(self.views, candidate, self.matches, self.refused)
        return _outcome(candidate, own, met, misses)

    def for_matches(self, matches: Sequence[Match]) -> tuple[RuleOutcome, ...]:
        """Give the outcomes with the sites of these matches alone (those a plan file names)."""
        if len(matches) == len(self.matches):
            return self.outcomes
        kept = {(match.rule.name, match.site) for match in matches}
        return tuple(
            replace(outcome, sites=tuple(
                site for site in outcome.sites if (outcome.rule, site.site) in kept
            ))
            for outcome in self.outcomes
        )  # fmt: skip


def make_plan(views: Sequence[View], candidates: Sequence[Candidate], *, explain: bool) -> Plan:
    """Match every rule against the original graph, once; with `explain`, near misses of all."""
    found: list[Match] = []
    refused: list[tuple[Match, str]] = []
    for view in views:
        here = _in_region(view, candidates, refused)
        accepted, overlapping = without_overlaps(here)
        refused += overlapping
        accepted = without_cycles(view, accepted, refused)
        found += accepted
    gone: dict[int, set[int]] = {}
    by_view: dict[int, list[Match]] = {}
    for match in found:
        by_view.setdefault(id(match.view), []).append(match)
    for number, view in enumerate(views):
        if id(view) in by_view:
            gone[number] = settle(by_view[id(view)], view)
    return Plan(found, gone, views, candidates, refused, explain)


def _in_region(
    view: View, candidates: Sequence[Candidate], refused: list[tuple[Match, str]]
) -> list[Match]:
    matches: list[Match] = []
    for candidate in candidates:
        matches += find(view, candidate.alternatives(view), candidate.prepare)
        for match in candidate.regions(view) if candidate.regions is not None else ():
            reason = candidate.prepare(match)
            if reason:
                refused.append((match, reason))
            else:
                matches.append(match)
    return matches


def without_overlaps(matches: list[Match]) -> tuple[list[Match], list[tuple[Match, str]]]:
    """Keep, of matches that contain each other's output node, that of most nodes, then the first.

    Shared inner nodes alone are no overlap.
    """
    if _all_apart(matches):
        return sorted(matches, key=lambda match: match.root), []
    ranked = sorted(
        matches, key=lambda match: (-len(match.nodes), match.order, match.alternative, match.root)
    )
    taken: dict[int, Match] = {}
    roots: dict[int, Match] = {}
    accepted: list[Match] = []
    refused: list[tuple[Match, str]] = []
    for match in ranked:
        region = match.view.region
        own = {region.producer[value] for value in match.roots}
        other = next((taken[node] for node in own if node in taken), None)
        other = other or next((roots[node] for node in match.nodes if node in roots), None)
        if other is None:
            accepted.append(match)
            taken.update(dict.fromkeys(match.nodes, match))
            roots.update(dict.fromkeys(own, match))
        elif other.order != match.order or other.root != match.root:
            text = f"overlaps with `{other.site}` of rule `{other.rule.name}`"
            refused.append((match, f"{text}, which has {len(other.nodes)} nodes"
                            f" to {len(match.nodes)}"))  # fmt: skip
    accepted.sort(key=lambda match: (match.root, match.order))
    return accepted, refused


def _all_apart(matches: Sequence[Match]) -> bool:
    """Tell whether no match contains an output node of another: the common case, and cheap."""
    roots = {match.root for match in matches}
    if len(roots) < len(matches) or any(len(match.roots) > 1 for match in matches):
        return False
    return all(
        len(match.nodes) == 1 or roots.isdisjoint(match.nodes[:-1])
        if match.nodes[-1] == match.root
        else False
        for match in matches
    )


def without_cycles(
    view: View, matches: list[Match], refused: list[tuple[Match, str]]
) -> list[Match]:
    """Drop matches of several outputs that, together with others, would make a cycle.

    One of them alone was checked when it was found; the last one in the graph goes first.
    """
    several = [match for match in matches if len(match.roots) > 1]
    while len(several) > 1 and not _acyclic(view, several):
        last = several.pop()
        matches = [match for match in matches if match is not last]
        other = several[-1]
        refused.append((last, f"together with `{other.site}` of rule `{other.rule.name}` it would"
                        " make a cycle"))  # fmt: skip
    return matches


def _acyclic(view: View, matches: Sequence[Match]) -> bool:
    """Tell whether the graph has an order when each match is one node."""
    region = view.region
    place = {
        region.producer[value]: number for number, match in enumerate(matches)
        for value in match.roots
    }  # fmt: skip
    reads: dict[tuple[str, int], set[tuple[str, int]]] = {}
    for number, match in enumerate(matches):
        reads["match", number] = {_maker(region.producer, place, v) for v in match.reads}
    for node, inputs in enumerate(region.inputs):
        if node not in place:
            reads["node", node] = {_maker(region.producer, place, value) for value in inputs}
    waiting = {item: {maker for maker in makers if maker in reads} for item, makers in
               reads.items()}  # fmt: skip
    readers: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for item, makers in waiting.items():
        for maker in makers:
            readers.setdefault(maker, []).append(item)
    ready = [item for item, makers in waiting.items() if not makers]
    done = 0
    while ready:
        item = ready.pop()
        done += 1
        for reader in readers.get(item, ()):
            waiting[reader].discard(item)
            if not waiting[reader]:
                ready.append(reader)
    return done == len(reads)


def _maker(producer: dict[Any, int], place: dict[int, int], value: Any) -> tuple[str, int]:
    node = producer.get(value, -1)
    return ("match", place[node]) if node in place else ("node", node)


def settle(matches: Sequence[Match], view: View) -> set[int]:
    """Find the inner nodes that have to stay, and note them in each match; give those that go.

    A node goes when nothing outside the matches reads what it makes: neither a node that stays
    nor a replacement nor an output of the graph.
    """
    region = view.region
    producer, users, results = region.producer, region.users, region.results
    gone: set[int] = set()
    needed: set[Any] = set()
    inner: set[int] = set()
    for match in matches:
        gone.update(producer[value] for value in match.roots)
        needed.update(match.reads)
        inner.update(match.nodes)
    outputs = region.outputs
    for node in sorted(inner - gone, reverse=True):
        for value in outputs[node]:
            readers = users.get(value, ())
            if value in needed or value in results:
                break
            if readers and readers[0] not in gone:
                break
            if len(readers) > 1 and any(user not in gone for user in readers):
                break
        else:
            gone.add(node)
    for match in matches:
        if not gone.issuperset(match.nodes):
            match.kept = tuple(node for node in match.nodes if node not in gone)
    return gone


def _outcome(
    candidate: Candidate, own: list[Match], met: bool, misses: list[MissRecord]
) -> RuleOutcome:
    rule = candidate.rule
    sites = tuple(_site(match) for match in own)
    unique = list(dict.fromkeys(misses))[: max(SHOWN, len(own) and SHOWN)]
    return RuleOutcome(
        rule.name, str(rule.source), candidate.opset.name, candidate.replacement,
        str(rule.expect), met, sites, tuple(unique),
    )  # fmt: skip


def _site(match: Match) -> SiteRecord:
    names = match.view.names
    kept = tuple(names[node] for node in match.kept) if match.kept else ()
    return SiteRecord(names[match.root], tuple([names[node] for node in match.nodes]), kept)


def near_misses(
    views: Sequence[View],
    candidate: Candidate,
    matches: Sequence[Match],
    refused: Sequence[tuple[Match, str]],
) -> list[MissRecord]:
    """Look again at every place where a rule could have matched; one reason per anchor node."""
    best: dict[tuple[int, int], tuple[float, str, str]] = {}
    general: dict[str, None] = {}
    for number, view in enumerate(views):
        inside = {node for match in matches if match.view is view for node in match.nodes}
        inside |= {node for match, _ in refused if match.view is view for node in match.nodes}
        state = State(view, 0)
        state.prepare = candidate.prepare
        for compiled in candidate.alternatives(view):
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
                if why.text and why.best > best.get(key, (-1.0, "", ""))[0]:
                    best[key] = (why.best, view.node_name(node), why.text)
    ranked = sorted(best.values(), key=lambda item: -item[0])
    records = [MissRecord(site, text) for _, site, text in ranked]
    return records or [MissRecord("", text) for text in general]


def _nothing_there(compiled: Compiled, view: View) -> str:
    by_op = view.region.by_op
    for anchor in compiled.anchors:
        if not any(op in by_op for op in anchor.ops):
            names = " or ".join(f"`{op}`" for op in sorted(anchor.ops))
            return f"the graph has no {names}"
    return "the graph has nothing of the kind"

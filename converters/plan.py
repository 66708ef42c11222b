"""From matches to a plan: overlaps resolved, what stays settled, every rule accounted for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from oprep.converters.compile import Compiled
from oprep.converters.graph import View
from oprep.converters.match import Match, find
from oprep.converters.memory import uncollected
from oprep.converters.near_misses import near_misses
from oprep.converters.overlaps import settle, without_cycles, without_overlaps
from oprep.converters.report import MissRecord, RuleOutcome, SiteRecord
from oprep.opsets.rule import Opset, Rule


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

    absent: Callable[[], list[str]] | None = None
    """Why such a pattern matches nowhere."""


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
            misses += near_misses(
                self.views, candidate.alternatives, candidate.prepare, self.matches, self.refused
            )
        if candidate.absent is not None and not own:
            misses += [MissRecord("", reason) for reason in candidate.absent()]
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


def _outcome(
    candidate: Candidate, own: list[Match], met: bool, misses: list[MissRecord]
) -> RuleOutcome:
    rule = candidate.rule
    sites = tuple(_site(match) for match in own)
    unique = list(dict.fromkeys(misses))
    return RuleOutcome(
        rule.name, str(rule.source), candidate.opset.name, candidate.replacement,
        str(rule.expect), met, sites, tuple(unique),
    )  # fmt: skip


def _site(match: Match) -> SiteRecord:
    names = match.view.names
    kept = tuple(names[node] for node in match.kept) if match.kept else ()
    return SiteRecord(names[match.root], tuple([names[node] for node in match.nodes]), kept)

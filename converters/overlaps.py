"""Which matches can be made together, and which nodes leave with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oprep.converters.graph import View
from oprep.converters.match import Match


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

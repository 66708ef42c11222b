"""Prove the sites of a program from the parent's side: in groups, on every input set.

The child says which site it is at, so a crash or a hang is the verdict of that site alone and the
others are proven in the next child.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oprep.converters.advice import Found
from oprep.converters.causes import EMPTY, REPLACEMENT, UNREACHED, blamed
from oprep.converters.evidence import InSet, from_plain, over_sets, said_of_set
from oprep.converters.gradient_comparison import SAME
from oprep.converters.program_sides import Side
from oprep.converters.report import CheckResult, Verdict
from oprep.converters.runs import Trouble
from oprep.opsets import tolerances
from oprep.opsets.rule import Tolerance

SITES, GRADIENTS = "sites_close", "gradients_close"
FIRST_GROUP, LARGEST_GROUP = 64, 2048
GROUP_BYTES = 1 << 29


@dataclass(frozen=True)
class Fed:
    """An input set as it travels: flat leaves in plain data, and what it is good for."""

    name: str
    leaves: Sequence[Mapping[str, Any]]
    whole: bool = True
    usual: bool = True
    gradients: bool = False
    slopes: bool = False


@dataclass(frozen=True)
class ProgramSite:
    """What the parent knows of a site; `region` is empty in the main graph.

    `exchangeable` says that the original can be run with its replacement in place.
    """

    site: str
    label: str
    rule: str
    tolerance: Tolerance | None
    gradient: str
    region: str
    dtypes: tuple[str, ...] = ()
    exchangeable: bool = False

    @staticmethod
    def from_plain(data: Mapping[str, Any]) -> ProgramSite:
        """Read what a child told."""
        asked = data["tolerance"]
        tolerance = None if asked is None else Tolerance(*asked)
        return ProgramSite(data["name"], data["label"], data["rule"], tolerance, data["gradient"],
                           data["region"], tuple(data["dtypes"]), data["exchangeable"])  # fmt: skip


@dataclass
class _Evidence:
    """What was found about one site so far."""

    forward: list[InSet] = field(default_factory=list)
    back: list[InSet] = field(default_factory=list)
    reached: int = 0
    left_out: int = 0
    trouble: Trouble | None = None


@dataclass
class SiteProof:
    """The evidence about all sites; `notes` and `found` are added to what the caller keeps."""

    side: Side
    sites: Sequence[ProgramSite]
    sets: Sequence[Fed]
    limits: tuple[float | None, float | None]
    seed: int
    notes: list[str] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with nothing."""
        self.evidence = [_Evidence() for _ in self.sites]
        self._bytes_per_site = 0.0

    def run(self) -> tuple[CheckResult, ...]:
        """Go through the sites in groups; the first group tells how large the next may be."""
        start, count = 0, len(self.sites)
        while start < count:
            size = FIRST_GROUP
            if self._bytes_per_site:
                size = int(GROUP_BYTES / self._bytes_per_site)
            end = min(count, start + max(1, min(size, LARGEST_GROUP)))
            self._prove(list(range(start, end)))
            start = end
        forward = [self._forward(i) for i in range(count)]
        back = [made for i in range(count) if (made := self._back(i)) is not None]
        return (*forward, *back)

    def _prove(self, group: list[int]) -> None:
        """Prove a group; where it dies the site it died at goes, else it is halved."""
        while group:
            for index in group:
                self.evidence[index] = _Evidence()
            trouble = self._try(group)
            if trouble is None:
                return
            guilty = [index for index in group if self._said(index) == self.side.began]
            if not guilty and len(group) > 1:
                middle = len(group) // 2
                self._prove(group[:middle])
                self._prove(group[middle:])
                return
            for index in guilty or group:
                self.evidence[index].trouble = blamed(trouble, REPLACEMENT)
            group = [index for index in group if index not in (guilty or group)]

    def _said(self, index: int) -> str:
        return f"proving site {index + 1}, {self.sites[index].label}"

    def _try(self, group: list[int]) -> Trouble | None:
        for item in self.sets:
            found = self.side.ask("run_sites", self._payload(group, item))
            if isinstance(found, Trouble):
                return Trouble(found.verdict, f"{found.detail} on input set `{item.name}`")
            self._bytes_per_site = max(self._bytes_per_site, found["bytes"] / len(group))
            if found["no_way_back"] and item.gradients:
                self._note(f"the original gives no gradients: {found['no_way_back']}")
            for index, told in zip(group, found["sites"], strict=True):
                self._take(index, item, told)
        return None

    def _payload(self, group: list[int], item: Fed) -> dict[str, Any]:
        return {
            "leaves": item.leaves,
            "whole": item.whole,
            "gradients": item.gradients,
            "slopes": item.slopes,
            "setting": {"seed": self.seed},
            "sites": [
                {
                    "index": index,
                    "said": self._said(index),
                    "tolerance": self._asked(index),
                    "gradient": self.sites[index].gradient,
                }
                for index in group
            ],
        }

    def _asked(self, index: int) -> tuple[float, float] | None:
        asked = self.sites[index].tolerance
        if asked is None:
            return None
        clamped = tolerances.clamp(asked, *self.limits)
        return (clamped.rtol, clamped.atol)

    def _take(self, index: int, item: Fed, told: Mapping[str, Any]) -> None:
        evidence = self.evidence[index]
        evidence.reached += told["reached"]
        evidence.left_out += told["left_out"]
        if told["refused"] and evidence.trouble is None:
            words = f"{told['refused']} on input set `{item.name}`"
            evidence.trouble = blamed(Trouble(Verdict.CANNOT_RUN, words), REPLACEMENT)
        forward = InSet(item.name, item.usual, from_plain(told["comparison"]))
        evidence.forward.append(forward)
        if told["gradient"] is not None:
            back = InSet(item.name, item.usual, from_plain(told["gradient"]))
            evidence.back.append(back)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _forward(self, index: int) -> CheckResult:
        site, evidence = self.sites[index], self.evidence[index]
        if evidence.trouble is not None:
            trouble = evidence.trouble
            return CheckResult(SITES, site.site, trouble.verdict, site.rule, detail=trouble.detail)
        if evidence.left_out:
            more = f"{evidence.left_out} more times than were kept for gradients"
            self._note(f"site `{site.site}` ran {more}")
        self.found += [
            Found(site.rule, site.site, one.comparison, one.usual) for one in evidence.forward
        ]
        return self._result(SITES, site, evidence, evidence.forward)

    def _back(self, index: int) -> CheckResult | None:
        """Give the verdict on gradients; none where a rule asks for none, or none can flow."""
        site, evidence = self.sites[index], self.evidence[index]
        if evidence.trouble is not None or not evidence.back:
            return None
        if site.gradient == SAME:
            self.found += [
                Found(site.rule, site.site, one.comparison, one.usual) for one in evidence.back
            ]
        return self._result(GRADIENTS, site, evidence, evidence.back)

    def _result(
        self, check: str, site: ProgramSite, evidence: _Evidence, found: Sequence[InSet]
    ) -> CheckResult:
        best, worst_set = over_sets(found)
        detail = said_of_set(best, worst_set)
        if best.verdict is Verdict.NO_EVIDENCE:
            where = f"`{site.region}`" if site.region else "the main graph"
            detail = EMPTY if evidence.reached else f"{UNREACHED}{where}"
        source = "the rule" if site.tolerance is not None else "dtype and scale"
        return CheckResult(
            check,
            site.site,
            best.verdict,
            site.rule,
            measured=best.numbers,
            tolerance=best.tolerance,
            tolerance_source=source,
            allowed=best.allowed,
            dtype=best.dtype,
            shape=best.shape,
            sets=sum(one.comparison.numbers is not None for one in found),
            detail=detail,
            worst_set=worst_set if best.numbers is not None else "",
        )

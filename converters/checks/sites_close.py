"""Site by site: what each replacement makes of the original's own values, through twin graphs.

Sites are watched in groups, so that memory stays bounded; where a group cannot be loaded, crashes
or hangs, it is halved until the guilty site is alone and all others are proven.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oprep.converters.advice import Found
from oprep.converters.causes import EMPTY, REPLACEMENT, UNREACHED, blamed
from oprep.converters.checks.regions import describe
from oprep.converters.checks.subject import Check, Subject
from oprep.converters.elementwise import Elementwise
from oprep.converters.evidence import InSet, from_plain, over_sets, said_of_set
from oprep.converters.inputs import InputSet
from oprep.converters.parts import leading_part
from oprep.converters.report import CheckResult, Verdict
from oprep.converters.runs import Loadable, Opened, Runs, Trouble
from oprep.converters.twin import SiteColumns, Twin, TwinPlan, build_twin
from oprep.converters.twin_types import TwinTypes
from oprep.opsets import tolerances

if TYPE_CHECKING:
    from oprep.converters.twin import TwinSite

NAME = "sites_close"
FIRST_GROUP, LARGEST_GROUP = 64, 2048
GROUP_BYTES = 1 << 29
"""Bytes of watched values that one run of a twin may give back."""


@dataclass
class _Evidence:
    """What was found about one site so far."""

    comparisons: list[InSet] = field(default_factory=list)
    sets: int = 0
    reached: int = 0
    failed: list[InputSet] = field(default_factory=list)
    trouble: Trouble | None = None


def run(subject: Subject) -> tuple[CheckResult, ...]:
    """Prove every site of the plan over all input sets."""
    plan = subject.plan
    if plan is None or not plan.sites:
        return ()
    trouble = subject.trials.trouble
    if trouble is None:
        proof = _Proof(subject, plan)
        proof.run()
        return tuple(proof.result(index) for index in range(len(plan.sites)))
    proven = _proven_on_a_part(subject, plan)
    return tuple(
        proven.get(index) or _without_evidence(site, trouble)
        for index, site in enumerate(plan.sites)
    )


def _proven_on_a_part(subject: Subject, plan: TwinPlan) -> dict[int, CheckResult]:
    """Prove the sites that do not need what the original cannot run, by index in the plan."""
    part = leading_part(subject.model, plan)
    if part is None:
        return {}
    loadable = Loadable(part.model.SerializeToString(), subject.original.folder)
    smaller = Subject(part.model, loadable, part.model, loadable, part.plan, subject.options,
                      subject.progress, subject.notes, subject.found)  # fmt: skip
    with smaller:
        if smaller.trials.trouble is not None:
            return {}
        proof = _Proof(smaller, part.plan)
        proof.run()
        results = [proof.result(number) for number in range(len(part.indexes))]
    subject.part = smaller
    whole = subject.trials.trouble
    assert whole is not None
    subject.note(
        f"the original as a whole gives no result ({whole.verdict}), so sites were proven on the "
        f"part that leads to them: {len(results)} of {len(plan.sites)}"
    )
    return dict(zip(part.indexes, results, strict=True))


def _without_evidence(site: TwinSite, trouble: Trouble) -> CheckResult:
    return CheckResult(NAME, site.site, trouble.verdict, site.rule, detail=trouble.detail)


class _Proof:
    """The evidence about all sites of one plan."""

    def __init__(self, subject: Subject, plan: TwinPlan) -> None:
        self.subject, self.plan = subject, plan
        self.evidence = [_Evidence() for _ in plan.sites]
        self.types = TwinTypes(subject.model, plan)
        known = Elementwise(subject.model)
        self.local = [known.site(site) for site in plan.sites]
        self.bytes_per_site = 0.0
        self.groups = 0

    def run(self) -> None:
        """Go through the sites in groups; the first group tells how large the next may be."""
        start, count = 0, len(self.plan.sites)
        while start < count:
            size = FIRST_GROUP
            if self.bytes_per_site:
                size = int(GROUP_BYTES / self.bytes_per_site)
            end = min(count, start + max(1, min(size, LARGEST_GROUP)))
            self.subject.say(f"proving sites {start + 1} to {end} of {count}")
            self.prove(list(range(start, end)))
            start = end

    def prove(self, group: list[int]) -> None:
        """Prove a group; halve it where it gives no result as a whole."""
        for index in group:
            self.evidence[index] = _Evidence()
        trouble = self.try_group(group)
        if trouble is None:
            return
        if len(group) > 1:
            middle = len(group) // 2
            self.prove(group[:middle])
            self.prove(group[middle:])
        else:
            self.evidence[group[0]].trouble = blamed(trouble, REPLACEMENT)

    def try_group(self, group: list[int]) -> Trouble | None:
        """Run the twin of a group on every set; give what went wrong."""
        twin = build_twin(self.subject.model, self.plan, group, self.types)
        for index, why in twin.refused.items():
            self.evidence[index].trouble = Trouble(Verdict.CANNOT_RUN, why)
        if not twin.columns:
            return None
        runs, key = self.subject.runs, self.key()
        opened = self.open(runs, key, twin, group)
        if isinstance(opened, Trouble):
            return opened
        for item in self.subject.sets:
            found = runs.run_sites(key, self.payload(twin, item))
            if isinstance(found, Trouble):
                runs.close(key)
                words = f"{found.detail} on input set `{item.name}`"
                return Trouble(found.verdict, words)
            self.take(twin, item, found)
        runs.close(key)
        self.recheck(twin)
        return None

    def key(self) -> str:
        self.groups += 1
        return f"twin {self.groups}"

    def open(self, runs: Runs, key: str, twin: Twin, group: list[int]) -> Opened | Trouble:
        trials = self.subject.trials
        assert trials.opened is not None
        try:
            data = twin.model.SerializeToString()
        except ValueError as error:
            return Trouble(Verdict.CANNOT_RUN, f"the twin is too large to be written: {error}")
        what = f"the twin of `{self.plan.sites[group[0]].site}`" if len(group) == 1 else "a twin"
        runtimes = [trials.opened.runtime]
        if len(group) == 1 and runtimes[0] == "onnxruntime":
            runtimes.append("onnx reference")
        model = Loadable(data, self.subject.original.folder)
        return runs.open(key, model, what, optimise=False, runtimes=runtimes)

    def payload(self, twin: Twin, item: InputSet, *, digest: bool = False) -> dict[str, Any]:
        sites = [self.told(index, columns) for index, columns in twin.columns.items()]
        return {
            "feeds": item.arrays,
            "whole": item.whole,
            "outputs": list(twin.outputs),
            "sites": sites,
            "digest": digest,
        }

    def told(self, index: int, columns: SiteColumns) -> dict[str, Any]:
        """Say to the child where a site's values are and what its rule asks for."""
        asked, options = self.plan.sites[index].tolerance, self.subject.options
        if asked is not None:
            asked = tolerances.clamp(asked, options.max_rtol, options.max_atol)
        return {
            "pairs": columns.pairs,
            "reads": columns.reads,
            "reached": columns.reached,
            "local": self.local[index],
            "tolerance": None if asked is None else (asked.rtol, asked.atol),
        }

    def take(self, twin: Twin, item: InputSet, found: Mapping[str, Any]) -> None:
        """Note what one run showed."""
        self.bytes_per_site = max(self.bytes_per_site, found["bytes"] / len(twin.columns))
        for index, told in zip(twin.columns, found["sites"], strict=True):
            evidence = self.evidence[index]
            comparison = from_plain(told["comparison"])
            evidence.reached += told["reached"]
            evidence.comparisons.append(InSet(item.name, item.usual, comparison))
            evidence.sets += comparison.numbers is not None
            if comparison.verdict is Verdict.FAIL:
                evidence.failed.append(item)

    def recheck(self, twin: Twin) -> None:
        """Ask of failed sites whether the original itself gives the same in another process."""
        for index in twin.columns:
            evidence = self.evidence[index]
            if evidence.failed and self.is_random(index, evidence.failed[0]):
                evidence.trouble = Trouble(
                    Verdict.NOT_DETERMINISTIC,
                    "the original gives other values for the same inputs in another process",
                )

    def is_random(self, index: int, item: InputSet) -> bool:
        """Tell whether the site's original makes other values of equal ones."""
        twin = build_twin(self.subject.model, self.plan, [index], self.types)
        seen = []
        for runs in (self.subject.runs, self.subject.other_runs):
            key = self.key()
            if isinstance(self.open(runs, key, twin, [index]), Trouble):
                return False
            found = runs.run_sites(key, self.payload(twin, item, digest=True))
            runs.close(key)
            if isinstance(found, Trouble):
                return False
            seen.append(found["digests"][0])
        (reads, made), (reads_again, made_again) = seen
        return bool(reads == reads_again and made != made_again)

    def result(self, index: int) -> CheckResult:
        """Put together what is known of one site."""
        site, evidence = self.plan.sites[index], self.evidence[index]
        if evidence.trouble is not None:
            return _without_evidence(site, evidence.trouble)
        best, worst_set = over_sets(evidence.comparisons)
        self.subject.found += [
            Found(site.rule, site.site, one.comparison, one.usual) for one in evidence.comparisons
        ]
        detail = said_of_set(best, worst_set)
        if best.verdict is Verdict.NO_EVIDENCE:
            detail = self.unreached(site, evidence.reached)
        return CheckResult(
            NAME,
            site.site,
            best.verdict,
            site.rule,
            measured=best.numbers,
            tolerance=best.tolerance,
            tolerance_source="the rule" if site.tolerance is not None else "dtype and scale",
            allowed=best.allowed,
            dtype=best.dtype,
            shape=best.shape,
            sets=evidence.sets,
            detail=detail,
            worst_set=worst_set if best.numbers is not None else "",
        )

    def unreached(self, site: TwinSite, reached: int) -> str:
        """Say why nothing was compared at a site."""
        if reached:
            return EMPTY
        return f"{UNREACHED}{describe(self.subject.model, site.region)}"


def first_failing(results: Sequence[CheckResult], plan: TwinPlan | None) -> str | None:
    """Name the failing site that comes first in its graph."""
    order = {site.site: (len(site.region), site.after) for site in (plan.sites if plan else ())}
    bad = [item.name for item in results if item.check == NAME and item.verdict is Verdict.FAIL]
    return min(bad, key=lambda name: order.get(name, (0, 0)), default=None)


CHECK = Check(NAME, run, order=1)

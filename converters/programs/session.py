"""A conversion under way: the program, the opsets, what was planned and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram

from oprep.converters.match import Match
from oprep.converters.plan import Plan
from oprep.converters.planfile import planned as planned_site
from oprep.converters.programs.conversion import ProgramConversion
from oprep.converters.programs.definitions import Definition, write
from oprep.converters.programs.graph import TorchGraph
from oprep.converters.programs.ops import Installed, used_with
from oprep.converters.programs.program import Program
from oprep.converters.programs.subject import Site, Subject
from oprep.opsets.rule import Opset


@dataclass
class Session:
    """One conversion from capture to artifact; lives in the process that holds the program.

    `given` says that the examples of the program are input sets of the user; `described_ops` are
    the custom ops that its archive describes.
    """

    program: Program
    opsets: tuple[Opset, ...] = ()
    installed: Sequence[Installed] = ()
    given: bool = False
    described_ops: Mapping[str, Definition] = field(default_factory=dict)
    conversion: ProgramConversion | None = None
    plan: Plan | None = None
    matches: Sequence[Match] = ()
    exported: ExportedProgram | None = None

    def described(self) -> dict[str, Any]:
        """Describe the program for the report of the parent."""
        program = self.program
        nodes = sum(
            node.op == "call_function"
            for module in program.exported.graph_module.modules()
            if isinstance(module, torch.fx.GraphModule)
            for node in module.graph.nodes
        )
        return {
            "name": program.name,
            "format": program.format,
            "capture": program.capture,
            "nodes": nodes,
            "notes": [*program.notes, *(note for item in self.installed for note in item.notes)],
            "torch": torch.__version__.partition("+")[0],
        }

    def planned(self, *, explain: bool) -> dict[str, Any]:
        """Match all rules; give what each found and the sites in the form of a plan file."""
        self.conversion = ProgramConversion(self.program, self.opsets)
        self.plan = self.conversion.plan(explain=explain)
        self.matches = self.plan.matches
        return {
            "rules": [asdict(outcome) for outcome in self.plan.outcomes],
            "sites": [{**planned_site(match), **_site_facts(match)} for match in self.matches],
        }

    def chosen(self, positions: Sequence[int]) -> dict[str, Any]:
        """Keep the matches that a plan file names."""
        assert self.plan is not None
        self.matches = [self.plan.matches[position] for position in positions]
        return {"rules": [asdict(item) for item in self.plan.for_matches(self.matches)]}

    def op_table(self) -> list[dict[str, Any]]:
        """Count the ops of all graphs, with dtypes of their first results, graphs and rules."""
        graph = self.conversion.graph if self.conversion else TorchGraph(self.program.exported)
        rules: dict[str, set[str]] = {}
        for match in self.matches:
            for node in match.nodes:
                rules.setdefault(match.view.region.ops[node], set()).add(match.rule.name)
        found: dict[str, tuple[int, set[str], set[str]]] = {}
        for view in graph.views:
            for op, nodes in view.region.by_op.items():
                count, dtypes, regions = found.get(op, (0, set(), set()))
                for node in nodes:
                    for value in view.region.outputs[node][:1]:
                        dtypes.update(kind for kind in view.dtypes(value) if kind)
                regions.add(view.region.label or "main")
                found[op] = (count + len(nodes), dtypes, regions)
        return [
            {"op": op, "count": count, "dtypes": sorted(dtypes), "regions": sorted(regions),
             "rules": sorted(rules.get(op, ()))}
            for op, (count, dtypes, regions) in sorted(found.items())
        ]  # fmt: skip

    def definitions(self) -> bytes:
        """Write down the ops that the converted program and their bodies call, for its archive."""
        assert self.exported is not None
        called = {
            str(node.target._schema.name)
            for module in self.exported.graph_module.modules()
            if isinstance(module, torch.fx.GraphModule)
            for node in module.graph.nodes
            if isinstance(node.target, torch._ops.OpOverload)
        }
        known = dict(self.described_ops)
        for each in self.installed:
            known |= each.definitions
        return write(used_with(known, called))

    def result(self) -> ExportedProgram:
        """Give the converted program; the captured one where nothing was replaced."""
        return self.exported or self.program.exported

    def subject(self) -> Subject:
        """Give the original with its sites, to be proven."""
        assert self.conversion is not None
        sites = []
        for match in self.matches:
            replacement = self.conversion.replacement(match.rule, match.order)
            sites.append(Site(match, replacement.evaluate, (replacement.label,)))
        return Subject(self.program, tuple(sites), self.program.examples if self.given else ())

    def rewritten(self) -> ExportedProgram:
        """Carry the plan out."""
        assert self.conversion is not None
        self.exported = self.conversion.rewritten(self.matches)
        return self.exported


def _site_facts(match: Match) -> Mapping[str, Any]:
    """Describe a site for the sidecar, so that it can be found again in the converted program."""
    region = match.view.region
    inner = [str(value) for node in match.nodes for value in region.outputs[node]
             if value and value not in match.roots]  # fmt: skip
    tolerance = match.rule.tolerance
    return {
        "path": [list(step) for step in region.path],
        "reads": sorted(str(value) for value in match.reads),
        "inner": inner,
        "gradient": match.rule.gradient,
        "tolerance": {"rtol": tolerance.rtol, "atol": tolerance.atol} if tolerance else None,
        "tolerance_source": str(match.rule.place("tolerance")) if tolerance else "",
    }

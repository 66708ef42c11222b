"""One model and the opsets applied to it: planned, rewritten, and described for the twin graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from oprep.converters.call_arguments import ops_by_name, require_bound
from oprep.converters.compile import Compiled, compile_equation
from oprep.converters.frontends.onnx_bodies import (
    Bodies,
    import_domains,
    import_in_functions,
    opset_of,
)
from oprep.converters.frontends.onnx_dialect import OnnxDialect
from oprep.converters.frontends.onnx_external import small_tensor
from oprep.converters.frontends.onnx_graph import OnnxGraph, OnnxView
from oprep.converters.frontends.onnx_lint import lint
from oprep.converters.frontends.onnx_model import OnnxModel
from oprep.converters.frontends.onnx_named import bare_call
from oprep.converters.frontends.onnx_regions import missing_tensors, region_matches
from oprep.converters.frontends.onnx_replacement import Replacement
from oprep.converters.frontends.onnx_rewrite import Names, rewrite
from oprep.converters.graph import View
from oprep.converters.match import Match
from oprep.converters.memory import uncollected
from oprep.converters.plan import Candidate, Plan, make_plan
from oprep.converters.twin import TwinPlan, TwinSite
from oprep.opsets.expression import free_variables, variables
from oprep.opsets.rule import BareOp, ModulePattern, NamedRegion, Opset, Rule
from oprep.opsets.syntax import Equation

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


class Conversion:
    """One model and the opsets that are applied to it."""

    def __init__(self, model: OnnxModel, opsets: Sequence[Opset]) -> None:
        """Index the model; functions that are ops of the rule files are no regions."""
        self.model = model
        self.opsets = tuple(opsets)
        self.ops = ops_by_name(opsets)
        leave = frozenset((op.onnx.domain, op.onnx.type) for op in self.ops.values())
        with uncollected():
            self.graph = OnnxGraph(
                model.proto,
                external=small_tensor(model.external),
                leave=leave,
                rows=model.rows,
            )
        self.bodies = Bodies(self.graph, self.ops)
        self.planned: Plan | None = None
        self._dialects: dict[tuple[tuple[str, int], ...], OnnxDialect] = {}
        self._replacements: dict[tuple[int, int], Replacement] = {}

    def dialect(self, view: OnnxView) -> OnnxDialect:
        """Give what names mean in a region: it depends on its opset imports alone."""
        key = tuple(sorted(view.imports.items()))
        if key not in self._dialects:
            self._dialects[key] = OnnxDialect(view.imports, tuple(self.ops.values()))
        return self._dialects[key]

    def candidates(self) -> list[Candidate]:
        """Give every rule of every opset, ready to be matched."""
        found: list[Candidate] = []
        for opset in self.opsets:
            for rule in opset.rules:
                found.append(self._candidate(opset, rule, len(found)))
        return found

    def _candidate(self, opset: Opset, rule: Rule, order: int) -> Candidate:
        compiled: dict[int, list[Compiled]] = {}

        def alternatives(view: View) -> Sequence[Compiled]:
            assert isinstance(view, OnnxView)
            dialect = self.dialect(view)
            if id(dialect) not in compiled:
                compiled[id(dialect)] = self._compile(rule, order, dialect)
            return compiled[id(dialect)]

        def regions(view: View) -> list[Match]:
            assert isinstance(view, OnnxView)
            return [
                match
                for number, pattern in enumerate(rule.patterns)
                if isinstance(pattern, NamedRegion)
                for match in region_matches(view, rule, order, number, pattern)
            ]

        named = any(isinstance(pattern, NamedRegion) for pattern in rule.patterns)
        label = self.replacement(rule, order, self.graph.opset).label

        def absent() -> list[str]:
            return [
                reason
                for pattern in rule.patterns
                if isinstance(pattern, NamedRegion)
                for reason in missing_tensors(self.graph.views, pattern)
            ]

        return Candidate(rule, opset, order, alternatives, label, self._prepare,
                         regions if named else None, absent if named else None)  # fmt: skip

    def replacement(self, rule: Rule, order: int, opset: int) -> Replacement:
        """Give the right side of a rule for one opset."""
        key = (order, opset)
        if key not in self._replacements:
            self._replacements[key] = Replacement(rule, self.ops, opset)
        return self._replacements[key]

    def _prepare(self, match: Match) -> str:
        assert isinstance(match.view, OnnxView)
        replacement = self.replacement(match.rule, match.order, match.view.opset)
        reason = replacement.prepare(match)
        return reason or self.bodies.missing(match, replacement.used)

    def _compile(self, rule: Rule, order: int, dialect: OnnxDialect) -> list[Compiled]:
        asked = set(free_variables(rule.when)) if rule.when is not None else set()
        if isinstance(rule.replacement, Equation):
            asked |= set(variables(rule.replacement))
        found: list[Compiled] = []
        seen: set[Any] = set()
        for number, pattern in enumerate(rule.patterns):
            if isinstance(pattern, BareOp):
                call = bare_call(pattern.domain, pattern.name, self.ops)
                require_bound(rule, pattern, call, asked)
                pattern = Equation((), (call,))
            if isinstance(pattern, NamedRegion):
                continue
            if isinstance(pattern, ModulePattern):
                why = "modules are known in PyTorch programs only"
                found.append(Compiled(rule, order, number, {}, [], [], False, False, missing=why))
                continue
            found += compile_equation(rule, order, number, pattern, dialect, asked, seen)
        return found

    def plan(self, *, explain: bool = False) -> Plan:
        """Match all rules against the graph."""
        with uncollected():
            self.planned = make_plan(self.graph.views, self.candidates(), explain=explain)
        return self.planned

    def _write(
        self, match: Match, results: Sequence[str], fresh: Callable[[str], str], into: NodeProto
    ) -> list[NodeProto]:
        assert isinstance(match.view, OnnxView)
        replacement = self.replacement(match.rule, match.order, match.view.opset)
        nodes = replacement.write(match, results, fresh, into)
        self.bodies.attend(match, [*nodes, into])
        return nodes

    def rewritten(self, matches: Sequence[Match]) -> tuple[ModelProto, list[str]]:
        """Give the converted model (external locations as they were) and its new functions."""
        whole = self.planned is not None and matches is self.planned.matches
        settled = self.planned.gone if self.planned is not None and whole else None
        with uncollected():
            proto = rewrite(self.graph, matches, self._write, settled)
        functions = self.bodies.add_to(proto)
        self._import(proto, matches)
        lint(proto, self.model.name)
        return proto, functions

    def _import(self, proto: ModelProto, matches: Sequence[Match]) -> None:
        used: dict[str, tuple[int, str]] = {}
        for op in self.ops.values():
            used.setdefault(op.onnx.domain, (op.onnx.version, str(op.source)))
        wanted = {domain for domain, _ in self._new_domains(matches)}
        wanted |= {function.domain for function in self.bodies.made.values()}
        missing = {domain: used.get(domain, (1, "")) for domain in wanted}
        known = {entry.domain: entry.version for entry in proto.opset_import}
        for domain in wanted - set(used):
            missing[domain] = (known.get(domain, 1), "")
        import_domains(proto, missing)
        functions = (match.view.region.function for match in matches)
        changed = {function for function in functions if function is not None}
        import_in_functions(proto, changed)

    def _new_domains(self, matches: Sequence[Match]) -> set[tuple[str, str]]:
        """Give domain and type of every custom op that the matches put in."""
        found: set[tuple[str, str]] = set()
        labels = {self.replacement(m.rule, m.order, opset_of(m)).label for m in matches}
        for label in sorted(labels):
            for name in label.split(", "):
                domain, _, op = name.rpartition("::")
                if domain:
                    found.add((domain, op))
        return found

    def twins(self, matches: Sequence[Match]) -> TwinPlan:
        """Describe every site for the twin graph: its replacement beside the original."""
        names = Names(self.graph)
        sites = [self._twin(match, names) for match in matches]
        imports: dict[str, int] = {}
        for op in self.ops.values():
            imports.setdefault(op.onnx.domain, op.onnx.version)
        for domain, _ in self._new_domains(matches):
            imports.setdefault(domain, 1)
        for entry in self.model.proto.opset_import:
            imports.pop(entry.domain, None)
        return TwinPlan(sites, tuple(self.bodies.made.values()), tuple(sorted(imports.items())))

    def _twin(self, match: Match, names: Names) -> TwinSite:
        from onnx import NodeProto

        region = match.view.region
        results = [names.fresh(f"{value}__candidate") for value in match.roots]
        last = NodeProto()
        nodes = [*self._write(match, results, names.fresh, last), last]
        inner = [
            value
            for node in match.nodes
            for value in region.outputs[node]
            if value and value not in match.roots
        ]
        reads = sorted(str(value) for value in match.reads)
        return TwinSite(
            match.site,
            match.rule.name,
            region.path,
            max(region.producer[value] for value in match.roots),
            tuple(nodes),
            tuple(zip(match.roots, results, strict=True)),
            tuple(dict.fromkeys([*reads, *inner])),
            match.rule.tolerance,
            tuple(inner),
        )

"""One program and the opsets applied to it: planned, then rewritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch.export import ExportedProgram

from oprep.converters.call_arguments import ops_by_name, require_bound
from oprep.converters.compile import Compiled, compile_equation
from oprep.converters.conditions import holds, in_scope, unnamed_output, why_not
from oprep.converters.graph import View
from oprep.converters.match import Match
from oprep.converters.memory import uncollected
from oprep.converters.plan import Candidate, Plan, make_plan
from oprep.converters.programs.dialect import TorchDialect, bare_call, shares
from oprep.converters.programs.graph import TorchGraph
from oprep.converters.programs.modules import module_matches
from oprep.converters.programs.placement import blocked
from oprep.converters.programs.program import Program
from oprep.converters.programs.replacement import Replacement
from oprep.converters.programs.rewrite import rewrite
from oprep.converters.programs.view import TorchView
from oprep.converters.state import State
from oprep.opsets.expression import free_variables, variables, walk
from oprep.opsets.rule import BareOp, CustomOp, ModulePattern, NamedRegion, Opset, Rule
from oprep.opsets.syntax import Call, Equation


class ProgramConversion:
    """One program and the opsets that are applied to it; their ops are registered already."""

    def __init__(self, program: Program, opsets: Sequence[Opset]) -> None:
        """Index the program."""
        self.program = program
        self.opsets = tuple(opsets)
        self.ops = ops_by_name(opsets)
        self.graph = TorchGraph(program.exported)
        self.dialect = TorchDialect(self.ops)
        self._replacements: dict[int, Replacement] = {}
        self._sharing: dict[int, bool] = {}

    def replacement(self, rule: Rule, order: int) -> Replacement:
        """Give the right side of a rule."""
        if order not in self._replacements:
            self._replacements[order] = Replacement(rule, self.ops)
        return self._replacements[order]

    def plan(self, *, explain: bool = False) -> Plan:
        """Match all rules against the program."""
        with uncollected():
            return make_plan(self.graph.views, self._candidates(), explain=explain)

    def rewritten(self, matches: Sequence[Match]) -> ExportedProgram:
        """Give the converted program; weights are shared, the captured one stays as it is."""
        used = {match.order: self.replacement(match.rule, match.order) for match in matches}
        return rewrite(self.graph, matches, used)

    def _candidates(self) -> list[Candidate]:
        found: list[Candidate] = []
        for opset in self.opsets:
            for rule in opset.rules:
                found.append(self._candidate(opset, rule, len(found)))
        return found

    def _candidate(self, opset: Opset, rule: Rule, order: int) -> Candidate:
        compiled = self._compile(rule, order)
        patterns = [(number, pattern) for number, pattern in enumerate(rule.patterns)
                    if isinstance(pattern, ModulePattern)]  # fmt: skip

        def regions(view: View) -> list[Match]:
            assert isinstance(view, TorchView)
            return [
                match
                for number, pattern in patterns
                for match in module_matches(view, rule, order, number, pattern)
            ]

        label = self.replacement(rule, order).label
        return Candidate(rule, opset, order, lambda view: compiled, label, self._prepare,
                         regions if patterns else None,
                         (lambda: self._absent(patterns)) if patterns else None)  # fmt: skip

    def _prepare(self, match: Match) -> str:
        view = match.view
        assert isinstance(view, TorchView)
        if isinstance(match.rule.patterns[match.alternative], ModulePattern):
            reason = _fits_module(view, match)
            if reason:
                return reason
        reason = self.replacement(match.rule, match.order).prepare(match) or blocked(match)
        if reason or not self._may_share(match.rule):
            return reason
        changed = view.aliases.changed_later(match.roots, match.reads, match.root)
        return f"`{changed}` changes what the replacement may share memory with" if changed else ""

    def _may_share(self, rule: Rule) -> bool:
        """Tell whether what is put in may be a view of what it reads: custom ops never are."""
        if id(rule) not in self._sharing:
            target = rule.replacement
            calls = [Call(target.name, (), (), target.domain)] if isinstance(target, BareOp) else [
                item for part in (*(s.value for s in target.statements), *target.results)
                for item in walk(part) if isinstance(item, Call)
            ]  # fmt: skip
            self._sharing[id(rule)] = any(shares(call) for call in calls)
        return self._sharing[id(rule)]

    def _absent(self, patterns: Sequence[tuple[int, ModulePattern]]) -> list[str]:
        known: dict[str, None] = {}
        for view in self.graph.views:
            for node in range(len(view.fx)):
                for _, kind, _ in view.modules(node):
                    known[kind] = None
        listed = ", ".join(f"`{kind}`" for kind in sorted(known)[:8])
        return [f"no module is `{item.module}`; the program has {listed}" for _, item in patterns]

    def _compile(self, rule: Rule, order: int) -> list[Compiled]:
        asked = set(free_variables(rule.when)) if rule.when is not None else set()
        if isinstance(rule.replacement, Equation):
            asked |= set(variables(rule.replacement))
        found: list[Compiled] = []
        seen: set[Any] = set()
        for number, pattern in enumerate(rule.patterns):
            if isinstance(pattern, ModulePattern):
                continue
            if isinstance(pattern, NamedRegion):
                why = "tensors have names in ONNX models only"
                found.append(Compiled(rule, order, number, {}, [], [], False, False, missing=why))
                continue
            for equation in _equations(pattern, self.ops):
                if isinstance(pattern, BareOp):
                    (call,) = equation.results
                    assert isinstance(call, Call)
                    also = ("input",) if "self" in free_variables(call) else ()
                    require_bound(rule, pattern, call, asked, also)
                found += compile_equation(rule, order, number, equation, self.dialect, asked, seen)
            if isinstance(pattern, BareOp) and not _equations(pattern, self.ops):
                why = f"`{pattern.domain}::{pattern.name}` is no op of PyTorch that is known here"
                found.append(Compiled(rule, order, number, {}, [], [], False, False, missing=why))
        return found


def _equations(pattern: Equation | BareOp, ops: Mapping[str, CustomOp]) -> list[Equation]:
    if isinstance(pattern, Equation):
        return [pattern]
    return [Equation((), (call,)) for call in bare_call(pattern.domain, pattern.name, ops)]


def _fits_module(view: TorchView, match: Match) -> str:
    """Say why the call of a module cannot be replaced as a whole; empty where it can."""
    target = match.rule.replacement
    results = len(target.results) if isinstance(target, Equation) else 1
    if len(match.roots) != results:
        return f"the module gives {len(match.roots)} results, `with` gives {results}"
    if match.rule.scope and not in_scope(match.rule.scope, view.scope_of(match.root)):
        return f"`{view.scope_of(match.root)}` is outside the scope"
    state = State(view, 0)
    reason = unnamed_output(state, match.nodes, match.roots)
    reason = reason or view.hazard(match.nodes, match.roots, match.reads)
    if not reason and not holds(match.rule, view, match.bound):
        reason = why_not(match.rule, view, match.bound)
    return reason

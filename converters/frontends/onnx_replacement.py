"""What a rule puts in place of a match, as ONNX nodes: prepared while planning, written later.

One custom op over bound names is written directly; everything else goes through `emit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oprep.converters.conditions import Bindings, raises_rank
from oprep.converters.forms import ATTRIBUTES, equal_plain
from oprep.converters.frontends.onnx_emit import emit
from oprep.converters.frontends.onnx_graph import Reference
from oprep.converters.frontends.onnx_schema import schema, standard_domain
from oprep.converters.frontends.onnx_targets import (
    KINDS,
    TENSORS,
    arity,
    as_kind,
    calls_of,
    direct_call,
    inputs_of,
    label_of,
    named_ops,
    names_of,
    pattern_default,
    plain_call,
    reference_kind,
    set_attribute,
)
from oprep.converters.frontends.onnx_types import dtype_number
from oprep.converters.frontends.onnx_values import AttributeRef
from oprep.converters.graph import ABSENT, Absent, Attribute, Many
from oprep.converters.match import Match
from oprep.converters.normal import literal_of
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.expression import UNKNOWN, evaluate, explain, format_expression, variables
from oprep.opsets.rule import BareOp, CustomOp, NamedRegion, Rule
from oprep.opsets.syntax import Call, Equation, Expression, Maybe, Name, Rest
from oprep.opsets.vocabulary import vocabulary

if TYPE_CHECKING:
    from onnx import NodeProto


class Replacement:
    """The right side of one rule for one set of opset imports."""

    def __init__(self, rule: Rule, ops: Mapping[str, CustomOp], opset: int) -> None:
        """Read what a rule puts in; `ops` are the custom ops by torch and ONNX name."""
        self.rule, self.ops, self.opset = rule, ops, opset
        self.where = str(rule.place("with"))
        self.label = label_of(rule, ops)
        self.used = tuple(dict.fromkeys(self._custom_ops()))
        self._plain = plain_call(rule, ops)
        self._direct: dict[int, tuple[Equation, Call | None]] = {}

    def _custom_ops(self) -> list[CustomOp]:
        target = self.rule.replacement
        if isinstance(target, BareOp):
            op = self.ops.get(f"{target.domain}::{target.name}")
            return [op] if op is not None else []
        return [self.ops[name] for name in named_ops(target) if name in self.ops]

    def prepare(self, match: Match) -> str:
        """Settle the equation and the attributes of one match; give why that cannot be."""
        target = self.rule.replacement
        try:
            equation = self._bare(match, target) if isinstance(target, BareOp) else target
        except _Refused as refused:
            return str(refused)
        if self._plain is not None and self._plain[0] is equation and self._fits(match):
            match.prepared = (equation, self._plain[1], ())
            return ""
        captured = match.bound.get(ATTRIBUTES)
        if captured is not None and captured.value and not isinstance(target, BareOp):
            names = ", ".join(f"`{name}`" for name in captured.value)
            return f"the op has {names}, which `with` does not pass on; write the bare op there"
        call = self._call(equation)
        if call is not None and any(
            isinstance(match.bound.get(item.name), Attribute)  # type: ignore[union-attr]
            for item in call.arguments
        ):
            call = None
        if call is None:
            match.prepared = (equation, None, ())
            return self._keywords_known(equation, match)
        attributes: list[tuple[str, Any]] = []
        op = self.ops.get(f"{call.domain}::{call.function}")
        for key, expression in call.keywords:
            value, reason = self._keyword(key, expression, match, op)
            if reason:
                return reason
            if value is not None:
                attributes.append((key, value))
        if op is not None and (reason := arity(op, call, match, attributes)):
            return reason
        match.prepared = (equation, call, tuple(attributes))
        return ""

    def _fits(self, match: Match) -> bool:
        """Tell whether a call of plain names has a tensor for each: the most common match."""
        assert self._plain is not None
        bound = match.bound
        return ATTRIBUTES not in bound and all(
            isinstance(bound.get(name), str) for name in self._plain[2]
        )

    def _call(self, equation: Equation) -> Call | None:
        """Give the one custom call that an equation is, where all its arguments are names."""
        known = self._direct.get(id(equation))
        if known is None:
            known = self._direct[id(equation)] = (equation, direct_call(equation, self.ops))
        return known[1]

    def _keyword(
        self, key: str, expression: Expression, match: Match, op: CustomOp | None
    ) -> tuple[Any, str]:
        bound = match.bound.get(expression.name) if isinstance(expression, Name | Maybe) else None
        if isinstance(bound, Absent):
            return None, ""
        if isinstance(bound, Attribute) and isinstance(bound.value, Reference):
            return bound.value, ""
        if isinstance(bound, str) and (constant := match.view.constant(bound)) is not None:
            if len(constant.items) == 1 and constant.shape:
                reason = raises_rank(match.view, match.nodes, bound, constant.shape)
                if reason:
                    return None, reason
        environment = Bindings(match.view, match.bound)
        value = evaluate(expression, environment)
        if value is UNKNOWN:
            why = explain(expression, environment) or f"`{format_expression(expression)}`"
            return None, f"`{key}` of `{self.label}` is no constant here: {why}"
        if op is not None:
            kind = next((item.kind for item in op.parameters if item.name == key), "")
            return as_kind(key, kind, value) if kind else (value, "")
        return value, ""

    def _keywords_known(self, equation: Equation, match: Match) -> str:
        """Tell, before anything is written, that no keyword will be unknown."""
        environment = Bindings(match.view, match.bound)
        for call in calls_of(equation):
            for key, expression in call.keywords:
                names = [item for item in names_of(expression) if item in match.bound]
                free = [item for item in names_of(expression) if item not in match.bound]
                if free or (isinstance(expression, Name | Maybe | Rest) and names):
                    continue
                if names and evaluate(expression, environment) is UNKNOWN:
                    why = explain(expression, environment)
                    return f"`{key}` of `{call.function}` is unknown here: {why}"
        return ""

    def _bare(self, match: Match, target: BareOp) -> Equation:
        """Write a bare `with` as a call: tensors by position, attributes by name."""
        op = self.ops.get(f"{target.domain}::{target.name}")
        pattern = self.rule.patterns[0]
        order = variables(pattern) if isinstance(pattern, Equation) else tuple(match.bound)
        if isinstance(pattern, NamedRegion):
            order = tuple(name for name, _ in pattern.inputs)
        named = self._plain_parameters(target, op)
        arguments: list[Expression] = []
        keywords: list[tuple[str, Expression]] = []
        for name in order:
            if name == ATTRIBUTES:
                continue
            value = match.bound.get(name, ABSENT)
            if isinstance(value, Attribute):
                if named is None or name in named:
                    keywords.append((name, Name(name)))
                elif not isinstance(pattern, Equation):
                    self._dropped(match, name, value.value, op)
                else:
                    arguments.append(Name(name))
            elif isinstance(value, Absent):
                if named is None or name not in named:
                    arguments.append(Maybe(name))
            elif named is not None and name in named:
                keywords.append((name, Name(name)))
            else:
                arguments.append(Rest(name) if isinstance(value, Many) else Name(name))
        keywords += self._captured(match, op)
        while arguments and isinstance(last := arguments[-1], Maybe) and (
            isinstance(match.bound.get(last.name, ABSENT), Absent)
        ):  # fmt: skip
            arguments.pop()
        domain = None if target.domain == "vocabulary" else target.domain
        return Equation((), (Call(target.name, tuple(arguments), tuple(keywords), domain),))

    def _captured(self, match: Match, op: CustomOp | None) -> list[tuple[str, Expression]]:
        """Pass on the attributes of an op that nobody declared, by name; none may get lost."""
        captured = match.bound.get(ATTRIBUTES)
        unknown = op is None or not op.has_signature
        known = None if unknown or op is None else {item.name for item in op.parameters}
        found: list[tuple[str, Expression]] = []
        for name, value in captured.value.items() if captured is not None else ():
            if known is not None and name not in known:
                self._dropped(match, name, value, op)
            written = literal_of(value)
            if written is None:
                raise _Refused(f"the attribute `{name}` is no number, string or list of them")
            found.append((name, written))
        return found

    def _plain_parameters(self, target: BareOp, op: CustomOp | None) -> set[str] | None:
        """Give the names of the target's parameters that are no tensors; None where unknown."""
        if op is not None and not op.has_signature:
            return None
        if op is not None:
            return {item.name for item in op.parameters if item.kind not in TENSORS}
        if target.domain == "vocabulary":
            known = vocabulary()[target.name].parameters
            return {item.name for item in known if item.kind not in TENSORS}
        found = schema(standard_domain(target.domain), target.name, self.opset)
        return set(found.attributes) if found is not None else None

    def _dropped(self, match: Match, name: str, value: Any, op: CustomOp | None) -> None:
        """Refuse to leave out an attribute that does not have its default."""
        default = pattern_default(self.rule, name, self.opset)
        if default is not None and equal_plain(default, value):
            return
        takes = ", ".join(f"{item.kind} {item.name}" for item in op.parameters) if op else ""
        raise _Refused(f"the site passes `{name}` = {value!r}, `{self.label}` takes ({takes})")

    def write(
        self, match: Match, results: Sequence[str], fresh: Callable[[str], str], into: NodeProto
    ) -> list[NodeProto]:
        """Turn `into` into the last node of the replacement; give the nodes that go before it."""
        equation, call, attributes = match.prepared
        if call is not None:
            self._fill(into, match, call, attributes, results)
            return []
        nodes = self._emitted(match, equation, results, fresh)
        _become(into, nodes[-1])
        return nodes[:-1]

    def _emitted(
        self,
        match: Match,
        equation: Equation,
        results: Sequence[str],
        fresh: Callable[[str], str],
    ) -> list[NodeProto]:
        view = match.view
        values = {
            name: value
            for name, value in match.bound.items()
            if not (isinstance(value, Attribute) and isinstance(value.value, Reference))
        }
        references = {
            name: AttributeRef(value.value.name, reference_kind(value.value))
            for name, value in match.bound.items()
            if isinstance(value, Attribute) and isinstance(value.value, Reference)
        }
        environment = Bindings(view, match.bound)
        emitted = emit(
            equation,
            values,
            opset=self.opset,
            fresh=fresh,
            dtype={name: _dtype(match, value) for name, value in match.bound.items()
                   if isinstance(value, str)},
            results=results,
            attributes=references,
            ops=tuple(dict.fromkeys(self.ops.values())),
            shape_of=lambda name: _one(view.shapes(name)),
            evaluate_keyword=lambda expression: evaluate(expression, environment),
            where=self.where,
        )  # fmt: skip
        if len(emitted.outputs) != len(match.roots):
            raise OprepError(
                f"rule `{self.rule.name}` gives {len(emitted.outputs)} results for "
                f"{len(match.roots)} outputs of its pattern",
                self.where,
                help="give as many results in `with` as `replace` returns",
                exit_code=ExitCode.RULES,
            )
        return emitted.nodes

    def _fill(
        self,
        node: NodeProto,
        match: Match,
        call: Call,
        attributes: Sequence[tuple[str, Any]],
        results: Sequence[str],
    ) -> None:
        """Write one custom op over a node; the node's name and metadata stay."""
        op = self.ops.get(f"{call.domain}::{call.function}")
        if op is not None:
            node.op_type, node.domain = op.onnx.type, op.onnx.domain
        else:
            node.op_type, node.domain = call.function, call.domain or ""
        if node.input:
            del node.input[:]
        node.input.extend(inputs_of(match, call))
        if list(node.output) != list(results):
            del node.output[:]
            node.output.extend(results)
        if node.attribute:
            del node.attribute[:]
        if attributes:
            kinds = {item.name: KINDS.get(item.kind, "") for item in op.parameters} if op else {}
            for name, value in attributes:
                set_attribute(node, name, value, kinds.get(name, ""))


def _become(node: NodeProto, made: NodeProto) -> None:
    """Turn a node into another one; its name and metadata stay."""
    node.op_type, node.domain = made.op_type, made.domain
    del node.input[:]
    node.input.extend(made.input)
    del node.output[:]
    node.output.extend(made.output)
    del node.attribute[:]
    node.attribute.extend(made.attribute)


class _Refused(Exception):
    """A match that the replacement cannot stand in for; the text is the near miss's reason."""


def _dtype(match: Match, value: Any) -> int | None:
    kind = _one(match.view.dtypes(value))
    return dtype_number(kind) if kind is not None else None


def _one(items: Sequence[Any]) -> Any:
    """Give what all typings agree on, else None."""
    return items[0] if items and all(item == items[0] for item in items) else None

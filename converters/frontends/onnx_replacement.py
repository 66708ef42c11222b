"""What a rule puts in place of a match, as ONNX nodes: prepared while planning, written later.

One custom op over bound names is written directly; everything else goes through `emit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oprep.converters.calls import ATTRIBUTES, equal_plain
from oprep.converters.conditions import Bindings, raises_rank
from oprep.converters.frontends.onnx_emit import emit
from oprep.converters.frontends.onnx_graph import Reference
from oprep.converters.frontends.onnx_schema import schema, standard_domain
from oprep.converters.frontends.onnx_types import dtype_number
from oprep.converters.frontends.onnx_values import AttributeRef
from oprep.converters.graph import ABSENT, Absent, Attribute, Many
from oprep.converters.match import Match
from oprep.converters.normal import literal_of
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.expression import UNKNOWN, evaluate, explain, format_expression, variables
from oprep.opsets.rule import REQUIRED, BareOp, CustomOp, NamedRegion, Rule
from oprep.opsets.syntax import Call, Equation, Expression, Maybe, Name, Rest
from oprep.opsets.vocabulary import vocabulary

if TYPE_CHECKING:
    from onnx import NodeProto

KINDS = {
    "float": "FLOAT", "int": "INT", "bool": "INT", "str": "STRING",
    "floats": "FLOATS", "ints": "INTS", "bools": "INTS", "strs": "STRINGS",
}  # fmt: skip
TENSORS = frozenset({"tensor", "optional", "tensors"})


class Replacement:
    """The right side of one rule for one set of opset imports."""

    def __init__(self, rule: Rule, ops: Mapping[str, CustomOp], opset: int) -> None:
        """Read what a rule puts in; `ops` are the custom ops by torch and ONNX name."""
        self.rule, self.ops, self.opset = rule, ops, opset
        self.where = str(rule.place("with"))
        self.label = _label(rule, ops)
        self.used = tuple(dict.fromkeys(self._custom_ops()))
        self._plain = _plain_call(rule, ops)
        self._direct: dict[int, tuple[Equation, Call | None]] = {}

    def _custom_ops(self) -> list[CustomOp]:
        target = self.rule.replacement
        if isinstance(target, BareOp):
            op = self.ops.get(f"{target.domain}::{target.name}")
            return [op] if op is not None else []
        return [self.ops[name] for name in _named(target) if name in self.ops]

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
        if op is not None and (reason := _arity(op, call, match, attributes)):
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
            known = self._direct[id(equation)] = (equation, _direct(equation, self.ops))
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
            return _as_kind(key, kind, value) if kind else (value, "")
        return value, ""

    def _keywords_known(self, equation: Equation, match: Match) -> str:
        """Tell, before anything is written, that no keyword will be unknown."""
        environment = Bindings(match.view, match.bound)
        for call in _calls(equation):
            for key, expression in call.keywords:
                names = [item for item in _names(expression) if item in match.bound]
                free = [item for item in _names(expression) if item not in match.bound]
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
        unknown = op is None or (not op.parameters and op.body is None)
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
        if op is not None and not op.parameters and op.body is None:
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
        default = _pattern_default(self.rule, name, self.opset)
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
            name: AttributeRef(value.value.name, _reference_kind(value.value))
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
        node.input.extend(_inputs(match, call))
        if list(node.output) != list(results):
            del node.output[:]
            node.output.extend(results)
        if node.attribute:
            del node.attribute[:]
        if attributes:
            kinds = {item.name: KINDS.get(item.kind, "") for item in op.parameters} if op else {}
            for name, value in attributes:
                _set_attribute(node, name, value, kinds.get(name, ""))


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


def _plain_call(
    rule: Rule, ops: Mapping[str, CustomOp]
) -> tuple[Equation, Call, tuple[str, ...]] | None:
    """Give the call that a `with` is where it passes tensors alone, as many as the op takes."""
    target = rule.replacement
    call = _direct(target, ops) if isinstance(target, Equation) else None
    if call is None or call.keywords or not isinstance(target, Equation):
        return None
    op = ops.get(f"{call.domain}::{call.function}")
    names = tuple(item.name for item in call.arguments if isinstance(item, Name))
    if op is None or len(names) != len(call.arguments):
        return None
    if [item.kind for item in op.parameters] != ["tensor"] * len(names):
        return None
    return target, call, names


def _inputs(match: Match, call: Call) -> list[str]:
    found: list[str] = []
    for argument in call.arguments:
        value = match.bound.get(argument.name, ABSENT)  # type: ignore[union-attr]
        if isinstance(value, Many):
            found.extend(value.values)
        else:
            found.append("" if isinstance(value, Absent) else value)
    while found and not found[-1]:
        found.pop()
    return found


def _set_attribute(node: NodeProto, name: str, value: Any, kind: str) -> None:
    from onnx import AttributeProto, helper

    if isinstance(value, Reference):
        node.attribute.add(name=name, ref_attr_name=value.name, type=value.kind)
        return
    number = AttributeProto.AttributeType.Value(kind) if kind else None
    if kind.startswith("FLOAT"):
        value = [float(item) for item in value] if kind == "FLOATS" else float(value)
    elif kind.startswith("INT"):
        value = [int(item) for item in value] if kind == "INTS" else int(value)
    elif isinstance(value, bool):
        value = int(value)
    node.attribute.append(helper.make_attribute(name, value, attr_type=number))


def _as_kind(key: str, kind: str, value: Any) -> tuple[Any, str]:
    """Bring a value to the kind of the op's parameter; give the reason where it has another."""
    listed = kind.endswith("s") and kind != "str"
    single = kind[:-1] if listed else kind
    if listed and not isinstance(value, list | tuple):
        value = [value]
    if not listed and isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    items = list(value) if listed else [value]
    accepted = {"float": (int, float), "int": (int,), "bool": (bool, int), "str": (str,)}[single]
    for i, item in enumerate(items):
        if single in ("int", "bool") and isinstance(item, float) and item.is_integer():
            items[i] = int(item)
        elif not isinstance(item, accepted):
            return None, f"`{key}` is {value!r}, the op wants {kind}"
    return (items if listed else items[0]), ""


def _arity(op: CustomOp, call: Call, match: Match, attributes: Sequence[tuple[str, Any]]) -> str:
    if not op.parameters and op.body is None:
        return ""  # neither schema nor body: nobody knows what it takes
    tensors = [item for item in op.parameters if item.kind in TENSORS]
    many = any(item.kind == "tensors" for item in tensors)
    least = sum(1 for item in tensors if item.kind == "tensor")
    got = _inputs(match, call)
    if len(got) < least or (not many and len(got) > len(tensors)):
        return f"`{op.onnx}` takes {len(tensors)} tensors, the site gives {len(got)}"
    given = {name for name, _ in attributes}
    for item in op.parameters:
        if item.kind not in TENSORS and item.default is REQUIRED and item.name not in given:
            return f"`{op.onnx}` needs `{item.name}`, the site gives none"
    return ""


def _direct(equation: Equation, ops: Mapping[str, CustomOp]) -> Call | None:
    if equation.statements or len(equation.results) != 1:
        return None
    call = equation.results[0]
    if not isinstance(call, Call) or not call.domain:
        return None
    known = f"{call.domain}::{call.function}" in ops
    if not known and (standard_domain(call.domain) == "" or schema(call.domain, call.function, 1)):
        return None
    if not all(isinstance(argument, Name | Maybe | Rest) for argument in call.arguments):
        return None
    op = ops.get(f"{call.domain}::{call.function}")
    if op is not None and any(
        item.kind in TENSORS for item in op.parameters if item.name in dict(call.keywords)
    ):
        return None
    return call


def _label(rule: Rule, ops: Mapping[str, CustomOp]) -> str:
    """Name what a rule puts in, as reports print it."""
    target = rule.replacement
    if isinstance(target, BareOp):
        name = target.name if target.domain in ("", "vocabulary") else (
            f"{target.domain}::{target.name}"
        )  # fmt: skip
        return str(ops[name].onnx) if name in ops else name
    calls = _calls(target)
    names = []
    for call in calls:
        name = call.function if not call.domain else f"{call.domain}::{call.function}"
        names.append(str(ops[name].onnx) if name in ops else name)
    unique = list(dict.fromkeys(names))
    return ", ".join(unique[:3]) if unique else format_expression(target.results[0])


def _calls(equation: Equation) -> list[Call]:
    from oprep.opsets.expression import walk

    parts = [*(statement.value for statement in equation.statements), *equation.results]
    return [item for part in parts for item in walk(part) if isinstance(item, Call)]


def _named(equation: Equation) -> list[str]:
    return [f"{call.domain}::{call.function}" for call in _calls(equation) if call.domain]


def _names(expression: Expression) -> tuple[str, ...]:
    from oprep.opsets.expression import free_variables

    return free_variables(expression)


def _dtype(match: Match, value: Any) -> int | None:
    kind = _one(match.view.dtypes(value))
    return dtype_number(kind) if kind is not None else None


def _one(items: Sequence[Any]) -> Any:
    """Give what all typings agree on, else None."""
    return items[0] if items and all(item == items[0] for item in items) else None


def _reference_kind(reference: Reference) -> str:
    return {1: "float", 2: "int", 3: "str", 6: "floats", 7: "ints", 8: "strs"}.get(
        reference.kind, "float"
    )


def _pattern_default(rule: Rule, name: str, opset: int) -> Any:
    pattern = rule.patterns[0]
    if not isinstance(pattern, BareOp):
        return None
    if pattern.domain == "vocabulary":
        for item in vocabulary()[pattern.name].parameters:
            if item.name == name:
                return item.default
        return None
    found = schema(standard_domain(pattern.domain), pattern.name, opset)
    info = found.attributes.get(name) if found is not None else None
    return info.default if info is not None else None

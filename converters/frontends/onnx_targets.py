"""What a `with` names, and what its arguments are to the op: read once per rule and match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oprep.converters.frontends.onnx_graph import Reference
from oprep.converters.frontends.onnx_schema import schema, standard_domain
from oprep.converters.graph import ABSENT, Absent, Many
from oprep.converters.match import Match
from oprep.opsets.expression import format_expression
from oprep.opsets.rule import REQUIRED, BareOp, CustomOp, Rule
from oprep.opsets.syntax import Call, Equation, Expression, Maybe, Name, Rest
from oprep.opsets.vocabulary import vocabulary

if TYPE_CHECKING:
    from onnx import NodeProto

KINDS = {
    "float": "FLOAT", "int": "INT", "bool": "INT", "str": "STRING",
    "floats": "FLOATS", "ints": "INTS", "bools": "INTS", "strs": "STRINGS",
}  # fmt: skip


TENSORS = frozenset({"tensor", "optional", "tensors"})


def plain_call(
    rule: Rule, ops: Mapping[str, CustomOp]
) -> tuple[Equation, Call, tuple[str, ...]] | None:
    """Give the call that a `with` is where it passes tensors alone, as many as the op takes."""
    target = rule.replacement
    call = direct_call(target, ops) if isinstance(target, Equation) else None
    if call is None or call.keywords or not isinstance(target, Equation):
        return None
    op = ops.get(f"{call.domain}::{call.function}")
    names = tuple(item.name for item in call.arguments if isinstance(item, Name))
    if op is None or len(names) != len(call.arguments):
        return None
    if [item.kind for item in op.parameters] != ["tensor"] * len(names):
        return None
    return target, call, names


def inputs_of(match: Match, call: Call) -> list[str]:
    """Give the tensors that a call passes at a match; what is absent at the end is left off."""
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


def set_attribute(node: NodeProto, name: str, value: Any, kind: str) -> None:
    """Put a plain value, or a reference to the function's own attribute, on a node."""
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


def as_kind(key: str, kind: str, value: Any) -> tuple[Any, str]:
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


def arity(op: CustomOp, call: Call, match: Match, attributes: Sequence[tuple[str, Any]]) -> str:
    """Say why the op cannot take what the site gives; empty where it can."""
    if not op.has_signature:
        return ""  # neither schema nor body: nobody knows what it takes
    tensors = [item for item in op.parameters if item.kind in TENSORS]
    many = any(item.kind == "tensors" for item in tensors)
    least = sum(1 for item in tensors if item.kind == "tensor")
    got = inputs_of(match, call)
    if len(got) < least or (not many and len(got) > len(tensors)):
        many_tensors = "1 tensor" if len(tensors) == 1 else f"{len(tensors)} tensors"
        return f"`{op.onnx}` takes {many_tensors}, the site gives {len(got)}"
    given = {name for name, _ in attributes}
    for item in op.parameters:
        if item.kind not in TENSORS and item.default is REQUIRED and item.name not in given:
            return f"`{op.onnx}` needs `{item.name}`, the site gives none"
    return ""


def direct_call(equation: Equation, ops: Mapping[str, CustomOp]) -> Call | None:
    """Give the one custom call that an equation is, its arguments all names."""
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


def label_of(rule: Rule, ops: Mapping[str, CustomOp]) -> str:
    """Name what a rule puts in, as reports print it."""
    target = rule.replacement
    if isinstance(target, BareOp):
        name = target.name if target.domain in ("", "vocabulary") else (
            f"{target.domain}::{target.name}"
        )  # fmt: skip
        return str(ops[name].onnx) if name in ops else name
    calls = calls_of(target)
    names = []
    for call in calls:
        name = call.function if not call.domain else f"{call.domain}::{call.function}"
        names.append(str(ops[name].onnx) if name in ops else name)
    unique = list(dict.fromkeys(names))
    return ", ".join(unique[:3]) if unique else format_expression(target.results[0])


def calls_of(equation: Equation) -> list[Call]:
    """Give every call in an equation."""
    from oprep.opsets.expression import walk

    parts = [*(statement.value for statement in equation.statements), *equation.results]
    return [item for part in parts for item in walk(part) if isinstance(item, Call)]


def named_ops(equation: Equation) -> list[str]:
    """Give `domain::op` of every call that names its op."""
    return [f"{call.domain}::{call.function}" for call in calls_of(equation) if call.domain]


def names_of(expression: Expression) -> tuple[str, ...]:
    """Give the names that an expression reads."""
    from oprep.opsets.expression import free_variables

    return free_variables(expression)


def reference_kind(reference: Reference) -> str:
    """Give the parameter kind behind an attribute's type number."""
    return {1: "float", 2: "int", 3: "str", 6: "floats", 7: "ints", 8: "strs"}.get(
        reference.kind, "float"
    )


def pattern_default(rule: Rule, name: str, opset: int) -> Any:
    """Give the default of a bare op's attribute in this opset; None where there is none."""
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

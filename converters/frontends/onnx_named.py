"""Ops that a pattern names exactly: by their newest schema, by their declaration, or as written."""

from __future__ import annotations

from collections.abc import Mapping

from oprep.converters.call_arguments import TENSORS, arguments_of, fail
from oprep.converters.forms import AttributeWant, Default, Guarded, InputWant, NodeForm
from oprep.converters.frontends.onnx_schema import (
    Schema,
    newest_opset,
    schema,
    standard_domain,
    versions,
)
from oprep.opsets.rule import REQUIRED, CustomOp, Rule
from oprep.opsets.syntax import (
    Call,
    Expression,
    Maybe,
    Name,
    Rest,
)
from oprep.opsets.vocabulary import renames, vocabulary

COMMUTATIVE = frozenset({
    "Add", "Mul", "Min", "Max", "And", "Or", "Xor", "Equal", "Sum", "Mean", "BitwiseAnd",
    "BitwiseOr", "BitwiseXor",
})  # fmt: skip


def named_forms(
    call: Call, domain: str, opset: int, rule: Rule
) -> list[NodeForm | Expression | Guarded]:
    """Match one standard op by the names of its newest schema, whatever this opset calls them."""
    newest = _newest(domain, call.function)
    if newest is None:
        raise fail(
            rule, f"`{call.function}` is no op of ONNX",
            "write a function in lower case, or `domain::Op` for a custom op",
        )  # fmt: skip
    here = schema(domain, call.function, opset)
    names = [(item.name, "tensors" if item.variadic else "tensor") for item in newest.inputs]
    names += [(name, "plain") for name in newest.attributes]
    given = arguments_of(call, names, rule, f"`{call.function}`")
    if here is None:
        return []
    inputs: list[InputWant] = []
    rest: Expression | None = None
    attributes: list[AttributeWant] = []
    taken: set[str] = set()
    by_old = {_old_name(call.function, name, opset): name for name, _ in names}
    for formal in here.inputs:
        name = by_old.get(formal.name, formal.name)
        taken.add(name)
        if formal.variadic:
            parts = given.get(name, ())
            parts = parts if isinstance(parts, tuple) else (parts,)
            rest = next((part for part in parts if isinstance(part, Rest)), None)
            inputs += [InputWant(part, False, name) for part in parts if part is not rest]
        else:
            info = newest.attributes.get(name)
            plain = info is not None or not _tensor_like(formal.name)
            absent = info.default if info else MEANT.get((call.function, name))
            want = given[name] if name in given else Default(absent)
            inputs.append(InputWant(want, plain, name, absent))
    for old, info in here.attributes.items():
        name = by_old.get(old, old)
        taken.add(name)
        given_want = given[name] if name in given else Default(info.default)
        absent = None if isinstance(given_want, Maybe) and name not in newest.attributes else (
            info.default
        )  # fmt: skip
        attributes.append(AttributeWant(old, given_want, absent, name))
    for name in given:
        if name not in taken:
            info = newest.attributes.get(name)
            attributes.append(AttributeWant("", given[name], info.default if info else None, name))
    return [
        NodeForm(
            call.function if not domain else f"{domain}::{call.function}",
            tuple(inputs),
            tuple(attributes),
            rest,
            commutative=call.function in COMMUTATIVE,
            floats=here.float_only,
        )
    ]


MEANT = {
    ("Dropout", "ratio"): 0.5, ("Dropout", "training_mode"): False, ("Pad", "constant_value"): 0,
}  # fmt: skip
"""What an optional input means that is not there, where the op's text says so."""


PLAIN_INPUTS = frozenset({
    "axes", "axis", "shape", "split", "ratio", "min", "max", "k", "K", "starts", "ends", "steps",
    "pads", "repeats", "scales", "sizes", "training_mode", "depth",
})  # fmt: skip


def _tensor_like(name: str) -> bool:
    return name not in PLAIN_INPUTS


def _newest(domain: str, op: str) -> Schema | None:
    known = versions(domain, op)
    if not known:
        return None
    newest = newest_opset() if domain == "" else known[-1]
    return schema(domain, op, newest) or schema(domain, op, known[-1])


def _old_name(op: str, parameter: str, opset: int) -> str:
    for old in renames().get((op, parameter), ()):
        if old.since <= opset <= old.until:
            return old.name
    return parameter


def custom_form(call: Call, op: CustomOp, rule: Rule) -> NodeForm:
    """Match an op that a rule file declares, by its own parameters."""
    names = [(item.name, item.kind) for item in op.parameters]
    given = arguments_of(call, names, rule, f"`{op.onnx}`")
    inputs: list[InputWant] = []
    attributes: list[AttributeWant] = []
    rest: Expression | None = None
    for item in op.parameters:
        default = None if item.default is REQUIRED else item.default
        if item.kind == "tensors":
            parts = given.get(item.name, ())
            parts = parts if isinstance(parts, tuple) else (parts,)
            rest = next((part for part in parts if isinstance(part, Rest)), None)
            inputs += [InputWant(part, False, item.name) for part in parts if part is not rest]
            continue
        want = given[item.name] if item.name in given else Default(default)
        if item.kind in TENSORS:
            inputs.append(InputWant(want, False, item.name))
        else:
            attributes.append(AttributeWant(item.name, want, default, item.name))
    return NodeForm(str(op.onnx), tuple(inputs), tuple(attributes), rest)


def unknown_form(call: Call, name: str) -> NodeForm:
    """Match an op of a domain nobody declared: inputs by position, attributes as written."""
    plain = [item for item in call.arguments if not isinstance(item, Rest)]
    rest = next((item for item in call.arguments if isinstance(item, Rest)), None)
    forwarded = rest is not None and rest.name == ALL_INPUTS
    return NodeForm(
        name,
        tuple(InputWant(item, False, f"input {i}") for i, item in enumerate(plain)),
        tuple(AttributeWant(key, value, None, key) for key, value in call.keywords),
        rest,
        closed=None if forwarded else frozenset(key for key, _ in call.keywords),
        captured=forwarded,
    )


ALL_INPUTS = "inputs"


def bare_call(domain: str, name: str, ops: Mapping[str, CustomOp]) -> Call:
    """Write `replace = "Relu"` as a call that binds each parameter to a variable of its name."""
    arguments: list[Expression] = []
    keywords: list[tuple[str, Expression]] = []

    def add(parameter: str, kind: str, default: object) -> None:
        if kind == "tensors":
            arguments.append(Rest(parameter))
        elif kind in ("tensor", "optional"):
            optional = kind == "optional" or default is None
            keywords.append((parameter, Maybe(parameter) if optional else Name(parameter)))
        else:
            keywords.append((parameter, Maybe(parameter)))

    if domain == "vocabulary":
        for item in vocabulary()[name].parameters:
            add(item.name, item.kind, item.default)
        return Call(name, tuple(arguments), tuple(keywords))
    declared = ops.get(f"{domain}::{name}")
    if declared is not None:
        for parameter in declared.parameters:
            add(parameter.name, parameter.kind, parameter.default)
        return Call(name, tuple(arguments), tuple(keywords), domain)
    newest = _newest(standard_domain(domain), name)
    if newest is None:
        return Call(name, (Rest(ALL_INPUTS),), (), domain)
    for formal in newest.inputs:
        kind = "tensors" if formal.variadic else "optional" if formal.optional else "tensor"
        add(formal.name, kind, REQUIRED)
    for attribute, info in newest.attributes.items():
        add(attribute, info.kind, info.default)
    return Call(name, tuple(arguments), tuple(keywords), standard_domain(domain))

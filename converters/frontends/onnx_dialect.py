"""What the calls of a pattern are in ONNX, in one opset: node forms, or equations over ops."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from oprep.converters.forms import (
    AttributeWant,
    Default,
    Guarded,
    InputWant,
    NodeForm,
    Required,
    Want,
)
from oprep.converters.frontends.onnx_arguments import TENSORS, arguments_of, fail
from oprep.converters.frontends.onnx_graph import ARITHMETIC
from oprep.converters.frontends.onnx_named import custom_form, named_forms, unknown_form
from oprep.converters.frontends.onnx_schema import (
    Schema,
    schema,
    standard_domain,
    versions,
)
from oprep.converters.frontends.onnx_types import dtype_number
from oprep.converters.normal import Wanted, literal, literal_of, substitute
from oprep.opsets.expression import UNKNOWN, evaluate, free_variables, variables
from oprep.opsets.rule import REQUIRED, CustomOp, Rule
from oprep.opsets.syntax import (
    Binary,
    Call,
    Expression,
    Literal,
    Maybe,
    Name,
    Rest,
    Unary,
)
from oprep.opsets.vocabulary import DTYPE_CLASSES, Function, OnnxForm, Slot, vocabulary


class OnnxDialect:
    """ONNX at one set of opset imports, with the custom ops that the rule files declare."""

    arithmetic: Mapping[str, str] = ARITHMETIC

    def __init__(self, imports: Mapping[str, int], ops: tuple[CustomOp, ...]) -> None:
        """Read names in a region with these imports."""
        self.opset = imports.get("", imports.get("ai.onnx", 1))
        self.imports = imports
        self.ops = {str(op.onnx): op for op in ops} | {op.name: op for op in ops if op.name}
        self._forms: dict[Call, list[NodeForm | Expression | Guarded]] = {}

    def forms(self, call: Call, rule: Rule) -> list[NodeForm | Expression | Guarded]:
        """Give the ways in which this opset can say a call; empty where it cannot."""
        if call not in self._forms:
            self._forms[call] = list(self._find(call, rule))
        return self._forms[call]

    def why(self, call: Call) -> str:
        """Say why a call has no form here."""
        if call.domain is None:
            return f"`{call.function}` cannot be said in opset {self.opset}"
        domain = standard_domain(call.domain)
        known = versions(domain, call.function) if domain == "" else ()
        if known:
            return f"`{call.function}` needs opset {known[0]}, the model has opset {self.opset}"
        name = call.function if not domain else f"{domain}::{call.function}"
        return f"`{name}` is no op of this model"

    def _find(self, call: Call, rule: Rule) -> list[NodeForm | Expression | Guarded]:
        if call.domain is None:
            return _vocabulary_forms(call, rule, self.opset)
        domain = standard_domain(call.domain)
        name = f"{domain}::{call.function}"
        if domain and name in self.ops:
            return [custom_form(call, self.ops[name], rule)]
        if domain and self._known(domain, call.function) is None:
            return [unknown_form(call, name)]
        return named_forms(call, domain, self._version(domain), rule)

    def _version(self, domain: str) -> int:
        return self.opset if not domain else self.imports.get(domain, 1)

    def _known(self, domain: str, op: str) -> Schema | None:
        return schema(domain, op, self._version(domain))


def _vocabulary_forms(call: Call, rule: Rule, opset: int) -> list[NodeForm | Expression | Guarded]:
    table = vocabulary()
    if call.function not in table:
        near = difflib.get_close_matches(call.function, sorted(table), 1)
        raise fail(
            rule,
            f"unknown function `{call.function}`",
            f"write `{near[0]}`" if near else "name the op as `domain::Op`",
        )
    function = table[call.function]
    names = [(parameter.name, parameter.kind) for parameter in function.parameters]
    given = arguments_of(call, names, rule, f"`{call.function}`")
    forms: list[NodeForm | Expression | Guarded] = []
    for form in function.onnx:
        if form.covers(opset):
            made = _form(form, function, given, opset)
            forms += [] if made is None else [made]
    return forms


def _form(
    form: OnnxForm, function: Function, given: Mapping[str, Any], opset: int
) -> NodeForm | Expression | Guarded | None:
    defaults = {item.name: item.default for item in function.parameters}
    if form.equation is not None:
        return _equation(form, given, defaults)
    formal = schema(form.domain, form.op, opset) if form.domain == "" else None
    used: set[str] = set()
    inputs: list[InputWant] = []
    rest: Expression | None = None
    kinds = {item.name: item.kind for item in function.parameters}
    for slot in form.inputs:
        name = slot.parameter
        if name is None:
            inputs.append(InputWant(Required(slot.literal), True, ""))
            continue
        used.add(name)
        if kinds[name] == "tensors":
            parts = given.get(name, ())
            rest = next((part for part in parts if isinstance(part, Rest)), None)
            inputs += [InputWant(part, False, name) for part in parts if part is not rest]
            continue
        want: Want = given[name] if name in given else Default(defaults[name])
        inputs.append(InputWant(want, kinds[name] not in TENSORS, name, slot.absent))
    attributes = [_slot_want(slot, given, defaults, formal) for slot in form.attributes]
    used |= {slot.parameter for slot in form.attributes if slot.parameter}
    attributes += _unlisted(formal, {slot.name for slot in form.attributes})
    asked = set(free_variables(form.when)) if form.when is not None else set()
    settled: list[tuple[str, object]] = []
    for name in [name for name in defaults if name not in used]:
        given_want: Any = given.get(name)
        plain = given_want is not None and not isinstance(given_want, tuple)
        said = literal(given_want) if plain else ...
        if name in asked and said is not ...:
            settled.append((name, said.value if isinstance(said, Wanted) else said))
            continue
        if name in asked:
            settled.append((name, defaults[name]))
        if given_want is not None:
            attributes.append(AttributeWant("", given_want, defaults[name], name))
    key = form.op if not form.domain else f"{form.domain}::{form.op}"
    dtypes = frozenset(
        dtype for group in form.dtypes for dtype in DTYPE_CLASSES.get(group, (group,))
    )
    return NodeForm(
        key,
        tuple(inputs),
        tuple(attributes),
        rest,
        commutative=function.commutative,
        floats=function.floats,
        when=form.when,
        changed=_changed(form, opset),
        settled=tuple(settled),
        dtypes=frozenset() if function.floats else dtypes,
    )


def _changed(form: OnnxForm, opset: int) -> str:
    """Say that an op means something else in this opset than in later ones."""
    if form.when is None or form.until is None:
        return ""
    names = " and ".join(f"`{slot.name}`" for slot in form.attributes) or "it"
    return (
        f"{names} of `{form.op}` means something else in opset {opset} than from "
        f"{form.until + 1} on"
    )


def _slot_want(
    slot: Slot, given: Mapping[str, Any], defaults: Mapping[str, object], formal: Schema | None
) -> AttributeWant:
    info = formal.attributes.get(slot.name) if formal is not None else None
    schema_default = info.default if info is not None else None
    name = slot.parameter
    if name is None:
        return AttributeWant(slot.name, Required(slot.literal), schema_default)
    if name not in given:
        return AttributeWant(
            slot.name, Default(_numbered(name, defaults[name])), schema_default, name
        )
    want = given[name]
    if name == "dtype" and isinstance(want, Literal) and isinstance(want.value, str):
        number = dtype_number(want.value)
        want = Required(number)
    return AttributeWant(slot.name, want, schema_default, name)


def _numbered(name: str, value: object) -> object:
    return dtype_number(value) if name == "dtype" and isinstance(value, str) else value


def _unlisted(formal: Schema | None, listed: set[str]) -> list[AttributeWant]:
    """Attributes of the schema that a form does not name must have their defaults."""
    if formal is None:
        return []
    return [
        AttributeWant(name, Default(info.default), info.default)
        for name, info in formal.attributes.items()
        if name not in listed
    ]


def _equation(
    form: OnnxForm, given: Mapping[str, Any], defaults: Mapping[str, object]
) -> Expression | Guarded | None:
    """Put the call's arguments into the equation that stands for the function.

    A plain parameter that the equation does not hold is settled: it has its default, to which a
    variable of the rule is then bound. None where the condition of the form does not hold.
    """
    assert form.equation is not None
    values: dict[str, Expression] = {}
    plain: dict[str, object] = {}
    presets: list[tuple[str, object]] = []
    inside = set(variables(form.equation))
    for name, default in defaults.items():
        want = given.get(name)
        if isinstance(want, tuple):
            return None
        if want is None:
            if default is not REQUIRED:
                values[name], plain[name] = literal_of(default) or Literal(None), default
        elif (said := literal(want)) is not ...:
            values[name] = want
            plain[name] = said.value if isinstance(said, Wanted) else said
        elif name in inside or default is REQUIRED:
            values[name] = want
        else:
            plain[name] = default
            if isinstance(want, Name | Maybe) and want.name != "_" and default is not None:
                presets.append((want.name, default))
    if form.when is not None and evaluate(form.when, _Plain(plain)) is not True:
        return None
    inner: dict[str, Expression] = {}
    for statement in form.equation.statements:
        inner[statement.targets[0]] = substitute(statement.value, {**values, **inner})
    whole = substitute(form.equation.results[0], {**values, **inner})
    dtypes = frozenset(
        dtype for group in form.dtypes for dtype in DTYPE_CLASSES.get(group, (group,))
    )
    if dtypes.issuperset(DTYPE_CLASSES["float"]) and isinstance(whole, Binary | Unary):
        dtypes = frozenset()  # sums and products ask for a floating type themselves
    names = tuple(item.name for item in given.values() if isinstance(item, Name))
    if presets or (dtypes and names):
        return Guarded(whole, tuple(presets), names, dtypes if names else frozenset())
    return whole


class _Plain:
    """What a form's condition can know before any graph is seen: literals and defaults."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self.values = values

    def name(self, name: str) -> object:
        """Give a literal or a default; a variable is unknown."""
        return self.values.get(name, UNKNOWN)

    def call(self, function: str, arguments: tuple[object, ...]) -> object:
        """Answer nothing about graphs."""
        return UNKNOWN

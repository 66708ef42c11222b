"""What the calls of a pattern are in ONNX, in one opset: node forms, or equations over ops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oprep.converters.call_arguments import TENSORS, vocabulary_call
from oprep.converters.equations import equations, pins
from oprep.converters.forms import (
    AttributeWant,
    Default,
    Guarded,
    InputWant,
    NodeForm,
    Required,
    Want,
)
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
from oprep.converters.parameters import unwrapped
from oprep.opsets.expression import free_variables
from oprep.opsets.rule import REQUIRED, CustomOp, Rule
from oprep.opsets.syntax import Call, Expression, Literal, Name, Rest
from oprep.opsets.vocabulary import DTYPE_CLASSES, Function, OnnxForm, Slot


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
    function, given = vocabulary_call(call, rule, "`domain::Op`")
    forms: list[NodeForm | Expression | Guarded] = []
    for form in function.onnx:
        if not form.covers(opset) or not form.read:
            continue
        if form.equation is not None:
            forms += equations(form, function, given)
        elif (made := _form(form, function, given, opset)) is not None:
            forms.append(made)
    return forms


def _form(
    form: OnnxForm, function: Function, given: Mapping[str, Any], opset: int
) -> NodeForm | None:
    defaults = {item.name: item.default for item in function.parameters}
    formal = schema(form.domain, form.op, opset) if form.domain == "" else None
    reads = dict(form.reads)
    used: set[str] = set(reads)
    inputs: list[InputWant] = []
    rest: Expression | None = None
    kinds = {item.name: item.kind for item in function.parameters}
    places = [item.name for item in formal.inputs] if formal is not None else []
    free = {at for at, place in enumerate(places) if place in form.ignores}
    for at, slot in enumerate(form.inputs):
        name = slot.parameter
        if slot.value is not None or name in reads or at in free:
            inputs.append(InputWant(Name("_"), True, ""))
            continue
        if name is None:
            inputs.append(InputWant(Required(slot.literal), True, "", slot.absent, slot.dtype))
            continue
        used.add(name)
        if kinds[name] == "tensors":
            parts = given.get(name, ())
            rest = next((part for part in parts if isinstance(part, Rest)), None)
            if rest is not None and form.each is not None:
                return None
            values = {key: value for key, value in given.items() if key != name}
            values |= {
                key: literal_of(value) or Literal(None)
                for key, value in defaults.items()
                if key not in given and value is not REQUIRED
            }
            parts = [part for part in parts if part is not rest]
            if form.each is not None:
                parts = [substitute(form.each, {**values, "item": part}) for part in parts]
            inputs += [InputWant(part, False, name) for part in parts]
            continue
        want: Want = given[name] if name in given else Default(defaults[name])
        inputs.append(InputWant(want, kinds[name] not in TENSORS, name, slot.absent))
    attributes = [
        AttributeWant("", given.get(name, Default(defaults[name])), defaults[name], name,
                      reads=expression, means=function.means.get(name))
        for name, expression in reads.items()
    ]  # fmt: skip
    attributes += [
        _slot_want(slot, given, defaults, formal, function.means)
        for slot in form.attributes
        if slot.value is None and slot.parameter not in reads
    ]
    used |= {slot.parameter for slot in form.attributes if slot.parameter}
    listed = {slot.name for slot in form.attributes} | set(form.ignores)
    attributes += _unlisted(formal, listed)
    asked = set(free_variables(form.when)) if form.when is not None else set()
    pinned = pins(form.when)
    settled: list[tuple[str, object]] = []
    for name in [name for name in defaults if name not in used]:
        given_want: Any = given.get(name)
        plain = given_want is not None and not isinstance(given_want, tuple)
        said = literal(given_want) if plain else ...
        if name in asked and said is not ...:
            settled.append((name, said.value if isinstance(said, Wanted) else said))
            continue
        value = defaults[name] if given_want is None else pinned.get(name, defaults[name])
        if name in asked:
            settled.append((name, value))
        if given_want is not None:
            attributes.append(AttributeWant("", given_want, value, name))
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
        formals={key: info.default for key, info in formal.attributes.items()} if formal else {},
        places=tuple(item.name for item in formal.inputs) if formal is not None else (),
        said=_said(given, defaults),
        computed=_computed(form, formal),
        alone=form.alone,
    )


def _said(given: Mapping[str, Any], defaults: Mapping[str, object]) -> dict[str, object]:
    """Give what a pattern says of parameters in plain values: literals and defaults."""
    found: dict[str, object] = {}
    for name, default in defaults.items():
        want = given.get(name)
        if want is None and default is not REQUIRED:
            found[name] = default
        elif want is not None and not isinstance(want, tuple) and literal(want) is not ...:
            found[name] = unwrapped(literal(want))
    return found


def _computed(form: OnnxForm, formal: Schema | None) -> tuple[tuple[str, Expression], ...]:
    """List attributes and inputs that follow from the parameters, none being read from them."""
    read = {name for _, expression in form.reads for name in free_variables(expression)}
    places = [item.name for item in formal.inputs] if formal is not None else []
    named = [(slot.name, slot) for slot in form.attributes]
    named += list(zip(places, form.inputs, strict=False))
    read |= set(form.ignores)
    return tuple(
        (name, slot.value) for name, slot in named if slot.value is not None and name not in read
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
    slot: Slot,
    given: Mapping[str, Any],
    defaults: Mapping[str, object],
    formal: Schema | None,
    means: Mapping[str, Expression],
) -> AttributeWant:
    info = formal.attributes.get(slot.name) if formal is not None else None
    schema_default = info.default if info is not None else None
    schema_default = slot.absent if schema_default is None else schema_default
    name = slot.parameter
    if name is None:
        return AttributeWant(slot.name, Required(slot.literal), schema_default)
    if name not in given:
        default = Default(_numbered(name, defaults[name]))
        return AttributeWant(slot.name, default, schema_default, name, means=means.get(name))
    want = given[name]
    if name == "dtype" and isinstance(want, Literal) and isinstance(want.value, str):
        number = dtype_number(want.value)
        want = Required(number)
    return AttributeWant(slot.name, want, schema_default, name, means=means.get(name))


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

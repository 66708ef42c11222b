"""What the calls of a pattern are in ONNX, in one opset: node forms, or equations over ops."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from oprep.converters.calls import (
    AttributeWant,
    Default,
    Guarded,
    InputWant,
    NodeForm,
    Required,
    Want,
)
from oprep.converters.frontends.onnx_graph import ARITHMETIC
from oprep.converters.frontends.onnx_schema import (
    Schema,
    newest_opset,
    schema,
    standard_domain,
    versions,
)
from oprep.converters.frontends.onnx_types import dtype_number
from oprep.converters.normal import Wanted, literal, literal_of, substitute
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.expression import UNKNOWN, evaluate, free_variables, variables
from oprep.opsets.rule import REQUIRED, CustomOp, Rule
from oprep.opsets.syntax import (
    Binary,
    Call,
    Expression,
    ListOf,
    Literal,
    Maybe,
    Name,
    Rest,
    Unary,
)
from oprep.opsets.vocabulary import DTYPE_CLASSES, Function, OnnxForm, Slot, renames, vocabulary

COMMUTATIVE = frozenset({
    "Add", "Mul", "Min", "Max", "And", "Or", "Xor", "Equal", "Sum", "Mean", "BitwiseAnd",
    "BitwiseOr", "BitwiseXor",
})  # fmt: skip
TENSORS = frozenset({"tensor", "optional", "tensors"})


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
            return [_custom_form(call, self.ops[name], rule)]
        if domain and self._known(domain, call.function) is None:
            return [_unknown_form(call, name)]
        return _named_forms(call, domain, self._version(domain), rule)

    def _version(self, domain: str) -> int:
        return self.opset if not domain else self.imports.get(domain, 1)

    def _known(self, domain: str, op: str) -> Schema | None:
        return schema(domain, op, self._version(domain))


def _fail(rule: Rule, message: str, help_: str) -> OprepError:
    return OprepError(message, str(rule.place("replace")), help=help_, exit_code=ExitCode.RULES)


def _arguments(call: Call, names: list[tuple[str, str]], rule: Rule, what: str) -> dict[str, Any]:
    """Bind a call's arguments to formal parameters (name, kind), like Python does."""
    found: dict[str, Any] = {}
    position = 0
    for argument in call.arguments:
        if position >= len(names):
            raise _fail(
                rule,
                f"{what} takes {len(names)} arguments, the rule gives {len(call.arguments)}",
                f"its parameters are {', '.join(name for name, _ in names)}",
            )
        name, kind = names[position]
        if kind == "tensors":
            found.setdefault(name, ())
            items = argument.items if isinstance(argument, ListOf) else (argument,)
            found[name] = (*found[name], *items)
            if isinstance(argument, Rest):
                position += 1
            continue
        found[name] = argument
        position += 1
    known = {name for name, _ in names}
    for key, value in call.keywords:
        if key not in known:
            near = difflib.get_close_matches(key, sorted(known), 1)
            raise _fail(
                rule,
                f"{what} has no parameter `{key}`",
                f"write `{near[0]}`" if near else f"its parameters are {', '.join(sorted(known))}",
            )
        if key in found:
            raise _fail(rule, f"{what} gets `{key}` twice", f"leave one `{key}` out")
        found[key] = value
    return found


def _vocabulary_forms(call: Call, rule: Rule, opset: int) -> list[NodeForm | Expression | Guarded]:
    table = vocabulary()
    if call.function not in table:
        near = difflib.get_close_matches(call.function, sorted(table), 1)
        raise _fail(
            rule,
            f"unknown function `{call.function}`",
            f"write `{near[0]}`" if near else "name the op as `domain::Op`",
        )
    function = table[call.function]
    names = [(parameter.name, parameter.kind) for parameter in function.parameters]
    given = _arguments(call, names, rule, f"`{call.function}`")
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


def _named_forms(
    call: Call, domain: str, opset: int, rule: Rule
) -> list[NodeForm | Expression | Guarded]:
    """Match one standard op by the names of its newest schema, whatever this opset calls them."""
    newest = _newest(domain, call.function)
    if newest is None:
        raise _fail(
            rule, f"`{call.function}` is no op of ONNX",
            "write a function in lower case, or `domain::Op` for a custom op",
        )  # fmt: skip
    here = schema(domain, call.function, opset)
    names = [(item.name, "tensors" if item.variadic else "tensor") for item in newest.inputs]
    names += [(name, "plain") for name in newest.attributes]
    given = _arguments(call, names, rule, f"`{call.function}`")
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


def _custom_form(call: Call, op: CustomOp, rule: Rule) -> NodeForm:
    names = [(item.name, item.kind) for item in op.parameters]
    given = _arguments(call, names, rule, f"`{op.onnx}`")
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


def _unknown_form(call: Call, name: str) -> NodeForm:
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

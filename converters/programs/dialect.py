"""What the calls of a pattern are in a PyTorch program: node forms over dispatcher overloads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from oprep.converters.call_arguments import arguments_of, fail, vocabulary_call
from oprep.converters.equations import equations
from oprep.converters.forms import AttributeWant, Default, Guarded, InputWant, NodeForm, Want
from oprep.converters.normal import literal
from oprep.converters.parameters import unwrapped
from oprep.converters.programs.layout import (
    LIST,
    PASSES_THROUGH,
    PLAIN,
    TENSOR,
    Formal,
    Layout,
    key_of,
    layout_of,
)
from oprep.converters.programs.overloads import RENAMED
from oprep.converters.programs.view import ARITHMETIC, in_place
from oprep.opsets.rule import REQUIRED, CustomOp, Rule
from oprep.opsets.syntax import Call, Expression, Maybe, Name, Rest
from oprep.opsets.vocabulary import Function, vocabulary

Form = NodeForm | Expression | Guarded

COMMUTATIVE = frozenset({
    "aten::add", "aten::mul", "aten::maximum", "aten::minimum", "aten::eq", "aten::ne",
    "aten::logical_and", "aten::logical_or", "aten::logical_xor", "aten::bitwise_and",
    "aten::bitwise_or", "aten::bitwise_xor",
})  # fmt: skip
"""Ops whose first two tensors may stand in either order where a rule names the op itself."""


class TorchDialect:
    """The dispatcher of this process, with the custom ops that the rule files declare."""

    arithmetic: Mapping[str, str] = ARITHMETIC

    def __init__(self, ops: Mapping[str, CustomOp]) -> None:
        """Read names beside these ops, by `namespace::op` and by their ONNX name."""
        self.ops = ops
        self._forms: dict[Call, list[Form]] = {}

    def forms(self, call: Call, rule: Rule) -> list[Form]:
        """Give the overloads that a call stands for; empty where PyTorch has none."""
        if call not in self._forms:
            self._forms[call] = list(self._find(call, rule))
        return self._forms[call]

    def why(self, call: Call) -> str:
        """Say why a call has no form here."""
        if call.domain is None:
            return f"`{call.function}` is no op of PyTorch"
        if not call.domain or call.domain == "ai.onnx":
            return f"`{call.function}` is an op of ONNX, the model is a PyTorch program"
        return f"`{call.domain}::{call.function}` is no op that is registered here"

    def _find(self, call: Call, rule: Rule) -> Iterator[Form]:
        if call.domain is None:
            yield from self._vocabulary(call, rule)
            return
        declared = self.ops.get(f"{call.domain}::{call.function}")
        if declared is not None and declared.name:
            name = declared.name
        elif declared is not None or not call.domain or call.domain == "ai.onnx":
            return
        else:
            name = f"{call.domain}::{call.function}"
        for op in overloads(name):
            form = named_form(call, op, rule, loose=not _names_overload(name))
            if form is not None:
                yield form

    def _vocabulary(self, call: Call, rule: Rule) -> Iterator[Form]:
        named = "`aten::op` or `domain::Op`"
        function, given = vocabulary_call(call, rule, named)
        for written in function.aten:
            for op in overloads(f"aten::{written}"):
                form = _function_form(function, given, layout_of(op))
                if form is not None:
                    yield form
        for equation in function.torch:
            if equation.read:
                yield from equations(equation, function, given)


def _names_overload(name: str) -> bool:
    return "." in name.partition("::")[2]


def overloads(name: str) -> list[torch._ops.OpOverload]:
    """Find what a name stands for: `aten::max.dim` is one overload, `aten::relu` all of them.

    In vocabulary rows `relu` is the overload `default`. Forms in place and `out=` come along.
    """
    space, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    found: list[torch._ops.OpOverload] = []
    for packet in (base, f"{base}_"):
        held = getattr(getattr(torch.ops, space), packet, None)
        if not isinstance(held, torch._ops.OpOverloadPacket):
            continue
        for each in held.overloads():  # type: ignore[no-untyped-call]
            if _stands_for(each, overload):
                op = getattr(held, each)
                if any(formal.kind != PLAIN for formal in layout_of(op).formals):
                    found.append(op)
    return found


def shares(call: Call) -> bool:
    """Tell whether a result of a call may share memory with an argument of it."""
    if call.domain is None:
        row = vocabulary().get(call.function)
        names = [f"aten::{name}" for name in row.aten] if row is not None else []
    else:
        names = [f"{call.domain}::{call.function}"]
    layouts = [layout_of(op) for name in names for op in overloads(name)]
    return any(
        item.key.partition(".")[0] in PASSES_THROUGH or any(item.results)
        for item in layouts
        if not any(formal.writes for formal in item.formals)
    )


def _stands_for(each: str, overload: str) -> bool:
    if not overload or each == overload:
        return True
    return each.removesuffix("_out") == overload or (each == "out" and overload == "default")


def _function_form(function: Function, given: Mapping[str, Any], layout: Layout) -> NodeForm | None:
    """Say how an overload says a vocabulary function called with these arguments."""
    names = parameter_names(function, layout)
    wants: dict[str, Any] = {}
    plain: dict[str, object] = {}
    for parameter in function.parameters:
        formal = names.get(parameter.name)
        if parameter.name in given:
            want = given[parameter.name]
        elif parameter.default is REQUIRED:
            return None
        else:
            want = Default(parameter.default)
        if formal is not None:
            wants[formal] = want
            said = literal(want) if not isinstance(want, Default | tuple) else ...
            if isinstance(want, Default):
                plain[parameter.name] = want.value
            elif said is not ...:
                plain[parameter.name] = unwrapped(said)
        elif not isinstance(want, Default):
            wants[f"*{parameter.name}"] = want
    if not all(_can_be_said(layout, name, want) for name, want in wants.items()):
        return None
    labels = {formal: name for name, formal in names.items()}
    extra = [
        AttributeWant("", want, _default(function, name[1:]), name[1:])
        for name, want in wants.items() if name.startswith("*")
    ]  # fmt: skip
    settled = tuple(
        (item.name, item.default)
        for item in function.parameters
        if item.name not in names and item.name not in given
    )
    commutative = function.commutative and "alpha" not in given
    made = _form(layout, wants, labels, extra, commutative=commutative,
                 floats=function.floats, settled=settled)  # fmt: skip
    attributes = tuple(
        replace(item, means=function.means.get(item.parameter))
        for item in made.attributes
        if item.name not in function.fixed
    )
    return replace(made, attributes=attributes, said=plain)


def _default(function: Function, name: str) -> object:
    return next(item.default for item in function.parameters if item.name == name)


def _can_be_said(layout: Layout, name: str, want: Any) -> bool:
    """Tell whether an expression may stand at an argument: a plain one takes no computed value."""
    formal = layout.formal(name)
    if formal is None or formal.kind != PLAIN or isinstance(want, Default | Name | Maybe):
        return True
    return literal(want) is not ...


def parameter_names(function: Function, layout: Layout) -> dict[str, str]:
    """Map a function's parameters to an overload's arguments: by name, else by position.

    torch calls the first tensor of a function `input` and that of an overload `self`.
    """
    free = [item for item in layout.formals if not _is_out(item, layout)]
    known = {item.name for item in free}
    found: dict[str, str] = {}
    for parameter in function.parameters:
        name = RENAMED.get((function.name, parameter.name), parameter.name)
        if name in known:
            found[parameter.name] = name
    taken = set(found.values())
    for position, parameter in enumerate(function.parameters):
        if parameter.name in found or position >= len(free):
            continue
        formal = free[position]
        if formal.name not in taken and _fits(parameter.kind, formal):
            found[parameter.name] = formal.name
            taken.add(formal.name)
    return found


def _fits(kind: str, formal: Formal) -> bool:
    if kind == "tensors":
        return formal.kind == LIST
    if kind in ("tensor", "optional"):
        return formal.kind != LIST and (formal.kind != PLAIN or formal.number)
    return formal.kind == PLAIN


def _is_out(formal: Formal, layout: Layout) -> bool:
    """Tell whether an argument only takes the result: `out=`."""
    return formal.keyword and formal.writes and formal.kind in (TENSOR, LIST)


def named_form(
    call: Call, op: torch._ops.OpOverload, rule: Rule, *, loose: bool
) -> NodeForm | None:
    """Match one overload by the names of its schema; None where it lacks what a rule names.

    With `loose` the overload is one of several of that name.
    """
    layout = layout_of(op)
    formals = [item for item in layout.formals if not _is_out(item, layout)]
    names = [(item.name, "tensors" if item.kind == LIST else item.kind) for item in formals]
    known = {name for name, _ in names}
    if loose and not _takes(call, formals):
        return None
    aliased = call
    if "self" in known and "input" not in known:
        keywords = tuple(("self" if key == "input" else key, value) for key, value in call.keywords)
        aliased = Call(call.function, call.arguments, keywords, call.domain, call.at)
    wants = arguments_of(aliased, names, rule, f"`{layout.key}`")
    if not all(_can_be_said(layout, name, want) for name, want in wants.items()):
        return None
    for item in formals:
        if item.name not in wants and item.required and item.kind != LIST:
            if loose:
                return None
            raise fail(
                rule, f"`{layout.key}` needs `{item.name}`",
                f"write `{item.name}=_` to accept any",
            )  # fmt: skip
    base = layout.key.partition(".")[0]
    commutative = base in COMMUTATIVE or base.removesuffix("_") in COMMUTATIVE
    commutative = commutative and "alpha" not in wants
    return _form(layout, wants, {item.name: item.name for item in formals}, [],
                 commutative=commutative)  # fmt: skip


def _takes(call: Call, formals: list[Formal]) -> bool:
    known = {item.name for item in formals} | {"input"}
    if any(key not in known for key, _ in call.keywords):
        return False
    count = sum(not isinstance(item, Rest) for item in call.arguments)
    return count <= len(formals) or any(item.kind == LIST for item in formals)


def _form(
    layout: Layout,
    wants: Mapping[str, Any],
    labels: Mapping[str, str],
    extra: list[AttributeWant],
    *,
    commutative: bool = False,
    floats: bool = False,
    settled: tuple[tuple[str, Any], ...] = (),
) -> NodeForm:
    """Put the wants into the order of an overload's inputs and attributes."""
    inputs: list[InputWant] = []
    rest: Expression | None = None
    attributes = list(extra)
    for formal in layout.row:
        want = wants.get(formal.name, ())
        label = labels.get(formal.name, formal.name)
        if _is_out(formal, layout):
            inputs.append(InputWant(Name("_"), False, label))
        elif formal.name == layout.spread:
            parts = want if isinstance(want, tuple) else (want,)
            rest = next((part for part in parts if isinstance(part, Rest)), None)
            inputs += [InputWant(part, False, label) for part in parts if part is not rest]
        elif formal.kind == LIST:
            inputs.append(InputWant(_whole_list(want), False, label))
        else:
            inputs.append(InputWant(_absent(formal, wants), False, label))
    for formal in layout.formals:
        if formal.kind != PLAIN:
            continue
        plain: Want = wants.get(formal.name, Default(formal.default))
        if isinstance(plain, tuple):
            plain = Default(formal.default)
        attributes.append(AttributeWant(formal.name, plain, formal.default,
                                        labels.get(formal.name, formal.name)))  # fmt: skip
    return NodeForm(layout.key, tuple(inputs), tuple(attributes), rest, commutative=commutative,
                    floats=floats, settled=settled)  # fmt: skip


def _absent(formal: Formal, wants: Mapping[str, Any]) -> Want:
    want: Want = wants.get(formal.name, Default(None))
    if isinstance(want, Default) and want.value is REQUIRED:
        return Default(None)
    return want


def _whole_list(want: Any) -> Want:
    """Take a list among several as one value: `*hx`, or a name for it."""
    if isinstance(want, tuple):
        return want[0] if want else Name("_")
    return want if isinstance(want, Rest | Name | Default) else Name("_")


def bare_call(domain: str, name: str, ops: Mapping[str, CustomOp]) -> list[Call]:
    """Write `replace = "aten::gelu"` as calls that bind each parameter to its own name."""
    if domain == "vocabulary":
        function = vocabulary()[name]
        items = [(item.name, item.kind, item.default) for item in function.parameters]
        return [_bare(name, None, items)]
    declared = ops.get(f"{domain}::{name}")
    full = declared.name if declared is not None and declared.name else f"{domain}::{name}"
    calls: list[Call] = []
    for op in overloads(full):
        layout = layout_of(op)
        items = [
            (item.name, {LIST: "tensors", PLAIN: "plain"}.get(item.kind, item.kind),
             REQUIRED if item.required else item.default)
            for item in layout.formals if not _is_out(item, layout)
        ]  # fmt: skip
        space, _, base = full.partition("::")
        call = _bare(f"{base.partition('.')[0]}.{op._overloadname}", space, items)
        if call not in calls:
            calls.append(call)
    return calls


def _bare(name: str, domain: str | None, items: list[tuple[str, str, object]]) -> Call:
    arguments: list[Expression] = []
    keywords: list[tuple[str, Expression]] = []
    for parameter, kind, default in items:
        if kind == "tensors":
            arguments.append(Rest(parameter))
        elif kind == "tensor" and default is REQUIRED:
            keywords.append((parameter, Name(parameter)))
        else:
            keywords.append((parameter, Maybe(parameter)))
    return Call(name, tuple(arguments), tuple(keywords), domain)


__all__ = ["TorchDialect", "bare_call", "in_place", "key_of", "overloads"]

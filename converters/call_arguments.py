"""The arguments of a call in a pattern, bound to formal parameters as Python does."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.expression import free_variables
from oprep.opsets.rule import BareOp, CustomOp, Opset, Rule
from oprep.opsets.syntax import Call, ListOf, Rest
from oprep.opsets.vocabulary import Function, vocabulary

TENSORS = frozenset({"tensor", "optional", "tensors"})


def fail(rule: Rule, message: str, help_: str) -> OprepError:
    """Make the error (exit 5) for what is wrong in a rule's pattern."""
    return OprepError(message, str(rule.place("replace")), help=help_, exit_code=ExitCode.RULES)


def arguments_of(call: Call, names: list[tuple[str, str]], rule: Rule, what: str) -> dict[str, Any]:
    """Bind a call's arguments to formal parameters (name, kind), like Python does."""
    found: dict[str, Any] = {}
    position = 0
    for argument in call.arguments:
        if position >= len(names):
            raise fail(
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
            raise fail(
                rule,
                f"{what} has no parameter `{key}`",
                f"write `{near[0]}`" if near else f"its parameters are {', '.join(sorted(known))}",
            )
        if key in found:
            raise fail(rule, f"{what} gets `{key}` twice", f"leave one `{key}` out")
        found[key] = value
    return found


def vocabulary_call(call: Call, rule: Rule, named: str) -> tuple[Function, dict[str, Any]]:
    """Give the vocabulary function that a call names and its arguments by parameter.

    `named` says how an op that is none of the vocabulary is written. Exit 5 for an unknown name.
    """
    table = vocabulary()
    if call.function not in table:
        near = difflib.get_close_matches(call.function, sorted(table), 1)
        message = f"unknown function `{call.function}`"
        raise fail(rule, message, f"write `{near[0]}`" if near else f"name the op as {named}")
    function = table[call.function]
    names = [(parameter.name, parameter.kind) for parameter in function.parameters]
    return function, arguments_of(call, names, rule, f"`{call.function}`")


def require_bound(
    rule: Rule, pattern: BareOp, call: Call, asked: set[str], also: Sequence[str] = ()
) -> None:
    """Refuse (exit 5) a name that a bare op does not bind: it binds its own parameters.

    `also` are other names of them.
    """
    bound = [*free_variables(call), *also]
    for name in sorted(asked - set(bound)):
        names = ", ".join(f"`{item}`" for item in bound)
        raise OprepError(
            f"`{name}` is not bound by the bare op `{pattern.name}` of rule `{rule.name}`",
            str(rule.place("with")),
            (f"a bare op binds its own parameters: {names}",),
            f"write `replace` as a call that names `{name}`, or `with` as a bare op, too",
            ExitCode.RULES,
        )


def ops_by_name(opsets: Sequence[Opset]) -> dict[str, CustomOp]:
    """Give the custom ops of opsets by their names in torch and in ONNX."""
    found: dict[str, CustomOp] = {}
    for opset in opsets:
        for op in opset.ops:
            found[str(op.onnx)] = op
            if op.name:
                found[op.name] = op
    return found

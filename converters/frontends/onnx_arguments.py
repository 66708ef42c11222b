"""The arguments of a call in a pattern, bound to formal parameters as Python does."""

from __future__ import annotations

import difflib
from typing import Any

from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.rule import Rule
from oprep.opsets.syntax import (
    Call,
    ListOf,
    Rest,
)

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

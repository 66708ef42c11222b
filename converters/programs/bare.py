"""A bare `with` as a call: the variables in order, what the op takes by name by its name."""

from __future__ import annotations

from typing import Any

from oprep.converters.forms import ATTRIBUTES, equal_plain
from oprep.converters.graph import ABSENT, Absent, Attribute, Many
from oprep.converters.match import Match
from oprep.converters.normal import literal_of
from oprep.converters.programs.overloads import named, overloads_of, places_of, slots_of
from oprep.opsets.expression import variables
from oprep.opsets.rule import REQUIRED, BareOp, Rule
from oprep.opsets.syntax import Call, Equation, Expression, Maybe, Name, Rest
from oprep.opsets.vocabulary import vocabulary


class Refused(Exception):
    """A match that the replacement cannot stand in for; the text is the near miss's reason."""


def written_call(rule: Rule, target: BareOp, match: Match, label: str) -> Call:
    """Write the call that a bare op is at one match; no parameter gets lost silently."""
    pattern = rule.patterns[0]
    equation = isinstance(pattern, Equation)
    order = variables(pattern) if isinstance(pattern, Equation) else tuple(match.bound)
    known = _parameters(target)
    plain = {name for name, kind in known.items() if kind != "tensor"}
    arguments: list[Expression] = []
    keywords: list[tuple[str, Expression]] = []
    for name in order:
        if name == ATTRIBUTES:
            continue
        value = match.bound.get(name, ABSENT)
        if isinstance(value, Attribute):
            if name in plain:
                keywords.append((name, Name(name)))
            elif equation:
                arguments.append(Name(name))
            else:
                _dropped(match, name, value.value, label, target)
        elif isinstance(value, Absent):
            if name not in plain:
                arguments.append(Maybe(name))
        elif name in plain:
            keywords.append((name, Name(name)))
        else:
            arguments.append(Rest(name) if isinstance(value, Many) else Name(name))
    keywords += _captured(match, known, label, target)
    while arguments and isinstance(last := arguments[-1], Maybe) and (
        isinstance(match.bound.get(last.name, ABSENT), Absent)
    ):  # fmt: skip
        arguments.pop()
    domain = None if target.domain == "vocabulary" else target.domain
    return Call(target.name, tuple(arguments), tuple(keywords), domain)


def _parameters(target: BareOp) -> dict[str, str]:
    """Give the parameters of an op by name, with their kinds; none where it is not there."""
    if target.domain == "vocabulary":
        found = vocabulary()[target.name].parameters
        tensors = ("tensor", "optional", "tensors")
        return {item.name: "tensor" if item.kind in tensors else item.kind for item in found}
    overloads = named(target.domain, target.name)
    return {slot.name: slot.kind for slot in slots_of(overloads[0])} if overloads else {}


def _captured(
    match: Match, known: dict[str, str], label: str, target: BareOp
) -> list[tuple[str, Expression]]:
    """Pass on the plain arguments of an op that nobody declared, by name."""
    captured = match.bound.get(ATTRIBUTES)
    found: list[tuple[str, Expression]] = []
    for name, value in captured.value.items() if captured is not None else ():
        if name not in known:
            _dropped(match, name, value, label, target)
            continue
        written = literal_of(value)
        if written is None:
            raise Refused(f"the argument `{name}` is no number, string or list of them")
        found.append((name, written))
    return found


def _dropped(match: Match, name: str, value: Any, label: str, target: BareOp) -> None:
    """Refuse to leave out an argument that does not have its default."""
    default = _default(match, name)
    if default is not REQUIRED and equal_plain(default, value):
        return
    overloads = named(target.domain, target.name)
    takes = ", ".join(str(slot) for slot in slots_of(overloads[0])) if overloads else ""
    raise Refused(f"the site passes `{name}` = {value!r}, `{label}` takes ({takes})")


def _default(match: Match, name: str) -> Any:
    """Give the default of an argument of the matched op, under the name that the rule calls it."""
    pattern = match.rule.patterns[match.alternative]
    overload = match.view.fx[match.root].target  # type: ignore[attr-defined]
    if isinstance(pattern, BareOp) and pattern.domain == "vocabulary":
        for item in vocabulary()[pattern.name].parameters:
            if item.name == name:
                return item.default
        if overload in overloads_of(pattern.name):
            name = places_of(pattern.name, overload).get(name) or name
    if not hasattr(overload, "_schema"):
        return REQUIRED
    return next((slot.default for slot in slots_of(overload) if slot.name == name), REQUIRED)

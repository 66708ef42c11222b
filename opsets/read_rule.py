"""Make a rule of a table `[[rule]]`, and check all of it that needs no graph."""

from __future__ import annotations

import re
from dataclasses import dataclass

from oprep.opsets.calls import (
    Known,
    check_condition,
    check_equation,
    count_results,
    counted,
    matches_anything,
)
from oprep.opsets.coefficients import clash, constants_of_condition, constants_of_keywords
from oprep.opsets.fields import Table, near
from oprep.opsets.parser import parse_condition, walk
from oprep.opsets.patterns import Alternative, bare_op, parse, read_alternatives
from oprep.opsets.rule import BareOp, Expect, Rule, Tolerance
from oprep.opsets.scope import free_variables, targets, variables
from oprep.opsets.syntax import Equation, Expression, Maybe, Name, Rest
from oprep.opsets.tokens import Text

KEYS = (
    "name", "replace", "with", "when", "scope", "expect", "tolerance", "gradient", "exact",
)  # fmt: skip
GRADIENTS = ("same", "own", "none")
_EXPECT = re.compile(r"(==|!=|<=|>=|<|>)?\s*([0-9]{1,9})", re.ASCII)
_WORD = re.compile(r"\s*[a-z_]\w*\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The equations of a rule with their texts, for the checks between them."""

    table: Table
    known: Known
    alternatives: tuple[Alternative, ...]
    replacement: Equation | BareOp
    with_text: Text
    when: Expression | None
    when_text: Text | None


def read_rule(table: Table, number: int, known: Known, shipped: bool) -> Rule:
    """Read and check a rule; `number` names one that has no name."""
    table.close(*KEYS)
    for key in ("replace", "with"):
        if not table.has(key):
            raise table.error(f"{table.title} has no `{key}`", f"write `{key} = …`")
    alternatives = read_alternatives(table, known)
    with_text = table.written("with")
    when_text = table.written("when") if table.has("when") else None
    when = _condition(when_text) if when_text else None
    replacement = _replacement(with_text, known, alternatives)
    parts = _Parts(table, known, alternatives, replacement, with_text, when, when_text)
    rule = Rule(
        name=table.word("name") if table.has("name") else f"rule-{number}",
        patterns=tuple(alternative.pattern for alternative in alternatives),
        replacement=replacement,
        when=when,
        when_text=when_text.text if when_text else "",
        scope=table.words("scope") if table.has("scope") else (),
        expect=_expect(table, shipped),
        tolerance=_tolerance(table),
        gradient=_gradient(table),
        exact=table.flag("exact"),
        source=table.source,
        sources=table.sources(),
    )
    _check_calls(parts)
    _check_names(parts)
    _check_results(parts)
    if not rule.exact:
        _check_coefficients(parts)
    return rule


def _condition(text: Text) -> Expression:
    condition = parse_condition(text.text, text.where, spans_lines=text.spans_lines)
    check_condition(text, condition)
    return condition


def _replacement(
    text: Text, known: Known, alternatives: tuple[Alternative, ...]
) -> Equation | BareOp:
    """Read `with`; a lone word is a bound variable before it is a function."""
    word = text.text.strip()
    if not any(word in (alternative.bound or ()) for alternative in alternatives):
        bare = bare_op(text.text, known)
        if bare is not None:
            return bare
        if _WORD.fullmatch(text.text):
            message = f"`{word}` is neither an op nor a name that `replace` binds"
            help = f"write {near(word, [*known.functions])}, or `domain::op`"
            raise text.error(message, text.text.index(word), help)
    return parse(text)


def _check_calls(parts: _Parts) -> None:
    used = set(free_variables(parts.when)) if parts.when is not None else set()
    if isinstance(parts.replacement, Equation):
        used.update(variables(parts.replacement))
    for alternative in parts.alternatives:
        if isinstance(alternative.pattern, Equation) and alternative.text:
            check_equation(alternative.text, alternative.pattern, parts.known, "replace", used)
            if anything := matches_anything(alternative.pattern):
                message = "a result that is no operation would match anything"
                raise alternative.text.error(message, anything.at, "write what computes it")
    if isinstance(parts.replacement, Equation):
        check_equation(parts.with_text, parts.replacement, parts.known, "with")


def _check_names(parts: _Parts) -> None:
    """Check that every alternative binds every name that `when` and `with` read."""
    if parts.when is not None and parts.when_text is not None:
        _check_bound(parts, parts.when_text, "when", parts.when, ())
    if isinstance(parts.replacement, Equation):
        own = targets(parts.replacement)
        values = [statement.value for statement in parts.replacement.statements]
        for root in (*values, *parts.replacement.results):
            _check_bound(parts, parts.with_text, "with", root, own)
        return
    first = parts.alternatives[0]
    for alternative in parts.alternatives[1:]:
        for name in first.bound or ():
            if isinstance(first.pattern, Equation) and name in targets(first.pattern):
                continue
            if alternative.bound is not None and name not in alternative.bound:
                message = f"`with` passes `{name}`, which alternative {_number(alternative)}"
                help = "write the arguments in `with`"
                raise parts.table.error(f"{message} of `replace` does not bind", help, "with")


def _check_bound(
    parts: _Parts, text: Text, key: str, root: Expression, own: tuple[str, ...]
) -> None:
    several = len(parts.alternatives) > 1
    for part in walk(root):
        if not isinstance(part, Name | Maybe | Rest) or part.name in (*own, "_"):
            continue
        for alternative in parts.alternatives:
            if alternative.bound is not None and part.name not in alternative.bound:
                which = f"alternative {_number(alternative)} of `replace`"
                message = f"`{part.name}` in `{key}` is not bound by "
                meant = [name for name in alternative.bound if name != "_"]
                help = f"write {near(part.name, meant)}" if meant else "name it in `replace`"
                raise text.error(message + (which if several else "`replace`"), part.at, help)


def _check_results(parts: _Parts) -> None:
    """Check that the replacement gives as many results as each alternative has."""
    given = count_results(parts.replacement, parts.known)
    if given is None:
        return
    for alternative in parts.alternatives:
        if alternative.outputs is not None and alternative.outputs != given:
            which = f" number {_number(alternative)}" if len(parts.alternatives) > 1 else ""
            have = counted(given, "result")
            message = f"`with` gives {have}, `replace`{which} has {alternative.outputs}"
            raise parts.table.error(message, "make the two agree", "with")


def _check_coefficients(parts: _Parts) -> None:
    constants = constants_of_condition(parts.when) if parts.when is not None else set()
    if isinstance(parts.replacement, Equation):
        constants |= constants_of_keywords(parts.replacement, parts.known)
    for alternative in parts.alternatives:
        if isinstance(alternative.pattern, Equation) and alternative.text:
            if found := clash(alternative.pattern, constants):
                first, second, what = found
                message = (
                    f"`{first.name}` and `{second.name}` could both be the constant of one {what}"
                )
                help = "write one name for both, or `exact = true`"
                raise alternative.text.error(message, second.at, help)


def _number(alternative: Alternative) -> int:
    return alternative.item[0] + 1 if alternative.item else 1


def _expect(table: Table, shipped: bool) -> Expect:
    if not table.has("expect"):
        return Expect(">=", 0 if shipped else 1)
    wanted = 'an integer or a comparison such as `">=1"`'
    value = table.take("expect", (int, str), wanted)
    found = _EXPECT.fullmatch(str(value).strip())
    if found is None:
        message = f"`expect` of {table.title} is `{value}`, not {wanted}"
        raise table.error(message, f"write {wanted}", "expect")
    return Expect(found[1] or "==", int(found[2]))


def _tolerance(table: Table) -> Tolerance | None:
    if not table.has("tolerance"):
        return None
    tolerance = table.table("tolerance")
    tolerance.close("rtol", "atol")
    if not tolerance.data:
        message = f"`tolerance` of {table.title} is empty"
        raise table.error(message, "write `{ rtol = 1e-4, atol = 1e-6 }`", "tolerance")
    amounts = {key: tolerance.amount(key) for key in tolerance.data}
    return Tolerance(rtol=amounts.get("rtol", 0.0), atol=amounts.get("atol", 0.0))


def _gradient(table: Table) -> str:
    if not table.has("gradient"):
        return "same"
    gradient = table.word("gradient")
    if gradient not in GRADIENTS:
        message = f"`gradient` of {table.title} is `{gradient}`"
        raise table.error(message, f"write {near(gradient, GRADIENTS)}", "gradient")
    return gradient

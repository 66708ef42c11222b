"""Read what `replace` and `with` name: equations, bare ops, modules and regions of a graph."""

from __future__ import annotations

import re
from dataclasses import dataclass

from oprep.opsets.calls import Known
from oprep.opsets.errors import OprepError
from oprep.opsets.fields import Table, near
from oprep.opsets.grammar import CAPITALISED, RESERVED
from oprep.opsets.parser import parse_equation
from oprep.opsets.rule import BareOp, ModulePattern, NamedRegion, Pattern
from oprep.opsets.scope import bound_names
from oprep.opsets.syntax import Equation
from oprep.opsets.tokens import Text

VOCABULARY = "vocabulary"
"""The domain of a `BareOp` that is a function of the vocabulary."""

_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NAMED = re.compile(r"([A-Za-z_][\w.]*)::([A-Za-z_][\w.]*)", re.ASCII)
_QUOTED = re.compile(r"'([^'\\]*?)::([^'\\]+)'|\"([^\"\\]*?)::([^\"\\]+)\"")


@dataclass(frozen=True, slots=True)
class Alternative:
    """One form of `replace`: what it binds and how many results it has, None where not known."""

    pattern: Pattern
    text: Text | None
    bound: tuple[str, ...] | None
    outputs: int | None
    item: tuple[int, ...] = ()


def read_alternatives(table: Table, known: Known) -> tuple[Alternative, ...]:
    """Read `replace`: one form, or a list of them."""
    value = table.data["replace"]
    if not isinstance(value, list):
        return (_alternative(table, known),)
    if not value:
        message = f"`replace` of {table.title} is an empty list"
        raise table.error(message, "write at least one equation", "replace")
    return tuple(_alternative(table, known, index) for index in range(len(value)))


def bare_op(text: str, known: Known) -> BareOp | None:
    """Give the op that a text without a call names, None where it is an equation."""
    text = text.strip()
    if found := _NAMED.fullmatch(text) or _QUOTED.fullmatch(text):
        domain, name = [part for part in found.groups() if part is not None]
        return BareOp("" if domain == "ai.onnx" else domain, name)
    if text in RESERVED:
        return None
    if CAPITALISED.fullmatch(text):
        return BareOp("", text)
    return BareOp(VOCABULARY, text) if text in known.functions else None


def parse(text: Text) -> Equation:
    """Parse the equation of a text that knows its place."""
    return parse_equation(text.text, text.where, spans_lines=text.spans_lines)


def _alternative(table: Table, known: Known, *item: int) -> Alternative:
    value = table.data["replace"][item[0]] if item else table.data["replace"]
    if isinstance(value, dict):
        return _by_place(Table(table.document, (*table.path, "replace", *item), value, "`replace`"))
    wanted = "an equation, an op, `{ module = … }` or `{ inputs = …, outputs = … }`"
    table.take("replace", str, wanted, *item)
    text = table.written("replace", *item)
    bare = bare_op(text.text, known)
    if bare is not None:
        return _bare(bare, text, known, item)
    if (word := text.text.strip()) not in RESERVED and _WORD.fullmatch(word):
        raise _lone_word(text, word, known)
    equation = parse(text)
    return Alternative(equation, text, bound_names(equation), len(equation.results), item)


def _lone_word(text: Text, word: str, known: Known) -> OprepError:
    at = text.text.index(word)
    message = f"`{word}` is neither an op nor an equation"
    return text.error(message, at, f"write {near(word, [*known.functions])}, or `domain::op`")


def _bare(bare: BareOp, text: Text, known: Known, item: tuple[int, ...]) -> Alternative:
    if bare.domain == VOCABULARY:
        function = known.functions[bare.name]
        bound = tuple(parameter.name for parameter in function.parameters)
        return Alternative(bare, text, bound, function.outputs or None, item)
    op = known.ops.get(f"{bare.domain}::{bare.name}")
    if op is None or not op.has_signature:
        return Alternative(bare, text, None, None, item)
    names = tuple(parameter.name for parameter in op.parameters)
    return Alternative(bare, text, names, op.outputs, item)


def _by_place(table: Table) -> Alternative:
    """Read a module, or the region between named tensors."""
    if table.has("module"):
        table.close("module")
        return Alternative(ModulePattern(table.word("module")), None, None, None)
    table.close("module", "inputs", "outputs")
    for key in ("inputs", "outputs"):
        if not table.has(key):
            raise table.error(f"{table.title} lacks `{key}`", f"write `{key}`, or `module`")
    inputs = table.table("inputs")
    for name in inputs.data:
        if not _WORD.fullmatch(name) or name in RESERVED or name == "_":
            message = f"`{name}` in `inputs` cannot be a variable"
            raise inputs.error(message, "rename it", name)
    named = tuple((name, inputs.text(name)) for name in inputs.data)
    items = table.take("outputs", list, "a list of tensor names")
    outputs = tuple(table.text("outputs", index) for index in range(len(items)))
    if not outputs or len(set(outputs)) != len(outputs):
        message = "`outputs` is empty" if not outputs else "`outputs` names a tensor twice"
        raise table.error(message, "name each output of the region once", "outputs")
    bound = tuple(name for name, _ in named)
    return Alternative(NamedRegion(named, outputs), None, bound, len(outputs))

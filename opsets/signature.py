"""Read a torch schema string: `(Tensor x, float alpha=0.1, Tensor? b=None) -> (Tensor, Tensor)`."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from oprep.opsets.grammar import RESERVED, ExpressionParser
from oprep.opsets.rule import REQUIRED, Parameter
from oprep.opsets.syntax import ListOf, Literal, Number
from oprep.opsets.tokens import Text

KINDS = {
    "Tensor": "tensor", "Tensor?": "optional", "Tensor[]": "tensors",
    "float": "float", "int": "int", "bool": "bool", "str": "str",
    "float[]": "floats", "int[]": "ints", "bool[]": "bools", "str[]": "strs",
}  # fmt: skip
"""The types of a schema, and the kinds of `Parameter` that they become."""

_PYTHON: dict[str, type | tuple[type, ...]] = {
    "float": (int, float), "int": int, "bool": bool, "str": str,
}  # fmt: skip
_TENSORS = ("tensor", "optional", "tensors")


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of an op, and how many results it has."""

    parameters: tuple[Parameter, ...]
    outputs: int


def parse_signature(text: Text) -> Signature:
    """Read a schema; raise OprepError (exit RULES) with a caret at the mistake."""
    if "!" in text.text:
        message = "an op of a rule file changes nothing in place"
        raise text.error(message, text.text.index("!"), "write the type without `(a!)`")
    return _SignatureParser(text).signature()


class _SignatureParser(ExpressionParser):
    def signature(self) -> Signature:
        self.tokens = [token for token in self.tokens if token.kind != "newline"]
        self.need("(", "a schema begins with `(`")
        parameters: list[Parameter] = []
        while not self.at_operator(")"):
            if self.at_operator("*"):
                # what torch passes by keyword only is no other parameter to a rule
                self.take()
            else:
                parameters.append(self.parameter(parameters))
            if not self.at_operator(","):
                break
            self.take()
        self.need(")", "the parameters are separated by `,`")
        self.need("-", "the results stand behind `->`")
        self.need(">", "the results stand behind `->`")
        outputs = self.results()
        if self.token.kind != "end":
            raise self.error("nothing can follow the results", None, "remove it")
        return Signature(tuple(parameters), outputs)

    def need(self, operator: str, message: str) -> None:
        if not self.at_operator(operator):
            raise self.error(message, None, "write `(Tensor x, float alpha=0.1) -> Tensor`")
        self.take()

    def type(self) -> str:
        at = self.token.at
        if self.token.kind != "name":
            raise self.error("a type is missing", at, "write `Tensor x`")
        written = self.take().text
        if self.at_operator("("):
            message = "an op of a rule file returns no view"
            raise self.error(message, None, "write the type without `(a)`")
        if self.at_operator("?"):
            written += self.take().text
        elif self.at_operator("["):
            self.take()
            self.need("]", "a list has no length in a schema")
            written += "[]"
        if written not in KINDS:
            close = get_close_matches(written, KINDS, n=1)
            help = f"write `{close[0]}`" if close else f"write one of {', '.join(KINDS)}"
            raise self.error(f"`{written}` is no type of a schema", at, help)
        return KINDS[written]

    def parameter(self, before: list[Parameter]) -> Parameter:
        at = self.token.at
        kind = self.type()
        if self.token.kind != "name" or "." in self.token.text:
            raise self.error("a parameter has no name", None, "write `Tensor x`")
        token = self.take()
        if token.text in [parameter.name for parameter in before]:
            raise self.error(f"parameter `{token.text}` is given twice", token.at, "rename one")
        if token.text in RESERVED or token.text == "_":
            raise self.error(f"`{token.text}` cannot be a parameter", token.at, "rename it")
        if kind in _TENSORS and any(parameter.kind == "tensors" for parameter in before):
            message = "`Tensor[]` is the last tensor of an ONNX op"
            raise self.error(message, at, "move it behind the other tensors")
        if not self.at_operator("="):
            return Parameter(token.text, kind, REQUIRED)
        self.take()
        return Parameter(token.text, kind, self.default(token.text, kind))

    def default(self, name: str, kind: str) -> object:
        at = self.token.at
        value = self.expression()
        if isinstance(value, ListOf):
            items = [item.value for item in value.items if isinstance(item, Number | Literal)]
            if kind.endswith("s") and kind != "tensors" and len(items) == len(value.items):
                if all(_fits(item, kind[:-1]) for item in items):
                    return [_as(item, kind[:-1]) for item in items]
        elif isinstance(value, Number | Literal):
            if kind == "optional" and value.value is None:
                return None
            if kind in _PYTHON and _fits(value.value, kind):
                return _as(value.value, kind)
        message = f"the default of `{name}` does not fit its type"
        raise self.error(message, at, "write a literal of that type")

    def results(self) -> int:
        if not self.at_operator("("):
            self.result()
            return 1
        self.take()
        count = 0
        while not self.at_operator(")"):
            self.result()
            count += 1
            if not self.at_operator(","):
                break
            self.take()
        if not count:
            raise self.error("an op without results replaces nothing", None, "write `Tensor`")
        self.need(")", "the results are separated by `,`")
        return count

    def result(self) -> None:
        at = self.token.at
        if self.type() != "tensor":
            raise self.error("a result is a `Tensor`", at, "write `Tensor`")
        if self.token.kind == "name":
            self.take()


def _fits(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "bool"
    return isinstance(value, _PYTHON[kind])


def _as(value: object, kind: str) -> object:
    return float(value) if kind == "float" and isinstance(value, int) else value

"""Write an equation as ONNX nodes: arithmetic, vocabulary calls, named ops and custom ops.

The walk gives every expression an operand: a tensor, or a plain number that becomes a constant
only beside a tensor, whose dtype it takes. A vocabulary call is written in the first form of the
table that holds in this opset; a named op by its schema, keywords as inputs or attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oprep.converters.equations import folded, shortened
from oprep.converters.frontends.onnx_calls import (
    Asked,
    bind_function,
    custom_operands,
    form_for,
    named_operands,
)
from oprep.converters.frontends.onnx_nodes import NodeWriter
from oprep.converters.frontends.onnx_types import dtype_number
from oprep.converters.frontends.onnx_values import AttributeRef, Tensor
from oprep.converters.graph import ABSENT, Attribute, Many
from oprep.converters.normal import BINARY, COMPARED, number_of, substitute
from oprep.opsets.computing import compute
from oprep.opsets.errors import ExitCode
from oprep.opsets.expression import UNKNOWN, evaluate, format_expression
from oprep.opsets.rule import CustomOp
from oprep.opsets.syntax import (
    Binary,
    Call,
    Equation,
    Expression,
    ListOf,
    Literal,
    Maybe,
    Name,
    Number,
    Rest,
    Unary,
)
from oprep.opsets.vocabulary import Slot, vocabulary

if TYPE_CHECKING:
    from onnx import NodeProto

OPERATORS = {**COMPARED, **BINARY, "//": "floor_divide"}
"""The functions that operators stand for."""


@dataclass(frozen=True, slots=True)
class Emitted:
    """Nodes in topological order, the names of the results, and the domains that the nodes use."""

    nodes: list[NodeProto]
    outputs: list[str]
    imports: set[str]


def emit(
    equation: Equation,
    values: Mapping[str, Any],
    *,
    opset: int,
    fresh: Callable[[str], str],
    dtype: int | Mapping[str, int | None] | None = None,
    results: Sequence[str] | None = None,
    attributes: Mapping[str, Any] | None = None,
    ops: Sequence[CustomOp] = (),
    shape_of: Callable[[str], Sequence[Any] | None] | None = None,
    evaluate_keyword: Callable[[Expression], Any] | None = None,
    where: str = "",
) -> Emitted:
    """Write an equation as nodes of the standard domain's version `opset`.

    `values` gives each variable a tensor name (empty: absent), a sequence of names or `Many` for
    `*rest`, `ABSENT`, or `Attribute(value)`; `attributes` gives further variables plain values or
    an `AttributeRef`. `dtype` is the `TensorProto` dtype of all tensor variables, or by variable;
    where it is unknown numbers get theirs by CastLike. `fresh` makes an unused tensor name from a
    hint. `results` names the outputs. `ops` are custom ops that calls may name. `shape_of` tells
    the shape of a tensor where a form depends on it. `evaluate_keyword` gives the value of a
    keyword or of a variable that is a constant of the graph; UNKNOWN where it is none.
    Raise OprepError (exit EXPECTATION) for what this opset cannot say, RULES for a wrong call.
    """
    writer = NodeWriter(opset, fresh, where)
    variables = {value: name for name, value in values.items() if isinstance(value, str)}
    ask = evaluate_keyword or (lambda expression: UNKNOWN)
    walk = _Walk(writer, tuple(ops), shape_of or (lambda name: None), ask, variables)
    scope = {name: _operand(name, value, dtype) for name, value in values.items()}
    scope |= {name: _plain(value) for name, value in (attributes or {}).items()}
    operands = walk.equation(equation, scope)
    like = next((item for item in scope.values() if isinstance(item, Tensor)), None)
    outputs = _named_outputs(writer, operands, results, like)
    return Emitted(writer.nodes, outputs, writer.domains)


def _operand(name: str, value: Any, dtype: int | Mapping[str, int | None] | None) -> Any:
    known = dtype.get(name) if isinstance(dtype, Mapping) else dtype
    if isinstance(value, str):
        return Tensor(value, known) if value else ABSENT
    if isinstance(value, Many):
        return tuple(_operand(name, item, dtype) for item in value.values)
    if isinstance(value, Attribute):
        return _plain(value.value)
    if isinstance(value, Sequence):
        return tuple(_operand(name, item, dtype) for item in value)
    return value


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _named_outputs(
    writer: NodeWriter, operands: Sequence[Any], results: Sequence[str] | None, like: Tensor | None
) -> list[str]:
    """Give the results their names: by renaming where a node made one, else by Identity."""
    made = {name: node for node in writer.nodes for name in node.output}
    renamed: dict[str, str] = {}
    outputs: list[str] = []
    for i, operand in enumerate(operands):
        settled = writer.settle(operand, like)
        if settled is None:
            raise writer.error("a result of the equation is absent", "give it a value")
        if settled.name not in made or settled.name in renamed or settled.name in outputs:
            settled = writer.standard("Identity", [settled], {})[0]
        if results is not None:
            renamed[settled.name] = results[i]
        outputs.append(renamed.get(settled.name, settled.name))
    for node in writer.nodes if renamed else ():
        for names in (node.input, node.output):
            names[:] = [renamed.get(name, name) for name in names]
    return outputs


@dataclass
class _Walk:
    """Gives each expression its operand; a scope maps variables to operands."""

    writer: NodeWriter
    ops: tuple[CustomOp, ...]
    shape_of: Callable[[str], Sequence[Any] | None]
    ask: Callable[[Expression], Any]
    variables: Mapping[str, str]

    def equation(self, equation: Equation, scope: Mapping[str, Any]) -> list[Any]:
        inner = dict(scope)
        for statement in equation.statements:
            if len(statement.targets) == 1:
                inner[statement.targets[0]] = self.value(statement.value, inner)
                continue
            assert isinstance(statement.value, Call)
            given = self.call(statement.value, inner, len(statement.targets))
            inner |= dict(zip(statement.targets, given, strict=True))
        return [self.value(result, inner) for result in equation.results]

    def value(self, expression: Expression, scope: Mapping[str, Any]) -> Any:
        number = number_of(substitute(expression, _numbers(scope)))
        if number is not None:
            return number.value
        match expression:
            case Name(name) | Maybe(name) | Rest(name):
                if name not in scope:
                    message = f"`{name}` has no value here"
                    raise self.writer.error(message, "bind it in the pattern", ExitCode.RULES)
                return scope[name]
            case Literal(value=value):
                return value
            case ListOf(items=items):
                return self.list_of(items, scope)
            case Unary(operator="-", operand=operand):
                return self.function("neg", [self.value(operand, scope)], {}, 1)[0]
            case Binary(operator=operator, left=left, right=right) if operator in OPERATORS:
                operands = [self.value(left, scope), self.value(right, scope)]
                return self.function(OPERATORS[operator], operands, {}, 1)[0]
            case Call():
                return self.call(expression, scope, 1)[0]
        text = format_expression(expression)
        raise self.writer.error(f"`{text}` is no value of a graph", "write it in a keyword")

    def list_of(self, items: Sequence[Expression], scope: Mapping[str, Any]) -> Any:
        values = [self.value(item, scope) for item in items]
        if any(isinstance(item, Tensor | AttributeRef | tuple) for item in values):
            return tuple(values)
        return values

    def call(self, call: Call, scope: Mapping[str, Any], outputs: int) -> list[Any]:
        arguments: list[Any] = []
        for argument in call.arguments:
            value = self.value(argument, scope)
            arguments += (
                value if isinstance(argument, Rest) and isinstance(value, tuple) else [value]
            )
        keywords = {key: self.keyword(item, scope) for key, item in call.keywords}
        if call.domain is None:
            return self.function(call.function, arguments, keywords, outputs)
        op = self.custom(call)
        if op is not None:
            inputs, plain, kinds = custom_operands(self.writer, op, arguments, keywords, self.plain)
            return self.foreign(op.onnx.domain, op.onnx.type, inputs, plain, kinds, outputs)
        if call.domain in ("aten", "prims"):
            message = f"`{call.domain}::{call.function}` is an op of PyTorch"
            raise self.writer.error(message, "write an ONNX op, or a function in lower case")
        if call.domain:
            plain = {key: self.plain(item) for key, item in keywords.items()}
            return self.foreign(call.domain, call.function, arguments, plain, {}, outputs)
        inputs, plain = named_operands(self.writer, call.function, arguments, keywords, self.plain)
        return list(self.writer.standard(call.function, inputs, plain, outputs))

    def keyword(self, expression: Expression, scope: Mapping[str, Any]) -> Any:
        """Give a keyword's value: a variable as it is, else from what is known, else a tensor."""
        if isinstance(expression, Name | Maybe) and expression.name in scope:
            return scope[expression.name]
        value = evaluate(expression, Asked(scope, self.shape_of))
        value = self.ask(expression) if value is UNKNOWN else value
        return self.value(expression, scope) if value is UNKNOWN else value

    def plain(self, operand: Any) -> Any:
        """Give the value of a variable that is a constant of the graph; others as they are."""
        if not isinstance(operand, Tensor) or operand.name not in self.variables:
            return operand
        value = self.ask(Name(self.variables[operand.name]))
        return operand if value is UNKNOWN else value

    def custom(self, call: Call) -> CustomOp | None:
        name = f"{call.domain}::{call.function}"
        return next((op for op in self.ops if name in (op.name, str(op.onnx))), None)

    def foreign(
        self,
        domain: str,
        op: str,
        arguments: Sequence[Any],
        attributes: Mapping[str, Any],
        kinds: Mapping[str, str],
        outputs: int,
    ) -> list[Any]:
        """Write a node that no schema describes: positions are inputs, keywords are attributes."""
        like = next((item for item in arguments if isinstance(item, Tensor)), None)
        inputs = [self.writer.settle(item, like) for item in arguments]
        results = [Tensor(self.writer.fresh(op.lower())) for _ in range(outputs)]
        known = {key: kinds.get(key) or _kind(value) for key, value in attributes.items()}
        self.writer.append(op, domain, inputs, results, attributes, known)
        return list(results)

    def function(
        self, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any], outputs: int
    ) -> list[Any]:
        """Write a vocabulary call in the first form that holds in this opset."""
        if name not in vocabulary():
            raise self.writer.error(
                f"`{name}` is no function", "name the op as `domain::Op`", ExitCode.RULES
            )
        function = vocabulary()[name]
        if function.outputs not in (0, outputs):
            message = f"`{name}` gives {function.outputs} results, {outputs} are named"
            raise self.writer.error(message, "name all of them", ExitCode.RULES)
        bound = bind_function(self.writer, function, arguments, keywords, self.plain, self.shape_of)
        form = form_for(self.writer, function, bound, self.shape_of)
        asked = Asked(bound, self.shape_of)
        if form.equation is not None:
            return self.equation(shortened(folded(form.equation, asked), bound), bound)
        attributes = {slot.name: _slot(slot, bound, asked) for slot in form.attributes}
        lists = {item.name for item in function.parameters if item.kind in ("ints", "floats")}
        inputs: list[Any] = []
        for slot in form.inputs:
            item = _slot(slot, bound, asked)
            many = slot.many or slot.parameter in lists
            if isinstance(item, tuple) and form.each is not None:
                inputs += [self.value(form.each, {**bound, "item": one}) for one in item]
            elif isinstance(item, tuple):
                inputs += item
            elif slot.dtype:
                inputs.append(self.writer.settle(item, None, dtype_number(slot.dtype)))
            else:
                inputs.append(self.many(item) if many else item)
        return list(self.writer.standard(form.op, inputs, attributes, outputs))

    def many(self, item: Any) -> Any:
        """Make a number the only element of a list."""
        if isinstance(item, AttributeRef) and not item.kind.endswith("s"):
            number = self.writer.reference(item, exact=True)
            return self.writer.standard("Reshape", [number, [1]], {})[0]
        return [item] if isinstance(item, int | float) else item


def _numbers(scope: Mapping[str, Any]) -> dict[str, Expression]:
    """Give the variables that are numbers as literals, so that constants can be folded."""
    return {
        name: Number(value, repr(value))
        for name, value in scope.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _slot(slot: Slot, scope: Mapping[str, Any], asked: Asked) -> Any:
    if slot.value is not None:
        return compute(slot.value, asked)
    return slot.literal if slot.parameter is None else scope[slot.parameter]


def _kind(value: Any) -> str:
    """Choose the attribute kind of a value that no schema describes."""
    if isinstance(value, list):
        kinds = {_kind(item) for item in value}
        return ("FLOAT" if kinds == {"INT", "FLOAT"} else min(kinds, default="INT")) + "S"
    if isinstance(value, str):
        return "STRING"
    return "INT" if isinstance(value, int) else "FLOAT"

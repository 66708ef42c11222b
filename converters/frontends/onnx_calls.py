"""What the arguments of a call are to an ONNX op: its inputs, its attributes, its best form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oprep.converters.equations import Unsaid, folded
from oprep.converters.frontends.onnx_nodes import NodeWriter
from oprep.converters.frontends.onnx_schema import newest_opset, schema, versions
from oprep.converters.frontends.onnx_types import dtype_name
from oprep.converters.frontends.onnx_values import ATTRIBUTE_KINDS, AttributeRef, Tensor
from oprep.converters.graph import ABSENT
from oprep.opsets.arithmetic import Unknown
from oprep.opsets.computing import compute, holds, why_not
from oprep.opsets.errors import ExitCode
from oprep.opsets.expression import UNKNOWN, format_expression, free_variables, variables
from oprep.opsets.rule import REQUIRED, CustomOp
from oprep.opsets.vocabulary import Function, OnnxForm, renames

TENSOR_KINDS = ("tensor", "optional", "tensors")
_NOTHING = (None, False)
"""Defaults that are equal to each other and to an absent input."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a condition over operands can know: numbers, dtypes, and shapes where they are told."""

    scope: Mapping[str, Any]
    shape_of: Callable[[str], Sequence[Any] | None]

    def name(self, name: str) -> object:
        """Give a plain value; a tensor and an attribute of a function have none yet."""
        value = self.scope.get(name, UNKNOWN)
        if value is ABSENT:
            return None
        return UNKNOWN if isinstance(value, Tensor | AttributeRef | tuple) else value

    def call(self, function: str, arguments: tuple[object, ...]) -> object:
        """Answer `dtype(x)`, `rank(x)`, `shape(x)`, `dim(x, i)`, `present(x)`, `is_tensor(x)`."""
        value = self.scope.get(str(arguments[0]), UNKNOWN)
        if function == "present":
            return value is not ABSENT and value is not None
        if function == "is_tensor":
            return isinstance(value, Tensor)
        if isinstance(value, bool | int | float):
            return {"rank": 0, "shape": [], "is_const": True, "value": value}.get(function, UNKNOWN)
        if not isinstance(value, Tensor):
            return UNKNOWN
        if function == "dtype":
            return UNKNOWN if value.dtype is None else dtype_name(value.dtype)
        shape = self.shape_of(value.name)
        if shape is None:
            return UNKNOWN
        sizes: list[object] = [size if isinstance(size, int) else UNKNOWN for size in shape]
        if function == "dim" and isinstance(arguments[1], int):
            return sizes[arguments[1]] if -len(sizes) <= arguments[1] < len(sizes) else UNKNOWN
        return {"rank": len(sizes), "shape": sizes}.get(function, UNKNOWN)


def bind(
    writer: NodeWriter,
    what: str,
    parameters: Sequence[tuple[str, str, Any]],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
) -> dict[str, Any]:
    """Bind arguments to parameters (name, kind, default) as Python does; lists take the rest."""
    names = [name for name, _, _ in parameters]
    bound: dict[str, Any] = {}
    position = 0
    for argument in arguments:
        if position >= len(names):
            message = f"{what} takes {len(names)} arguments, {len(arguments)} are given"
            raise writer.error(message, "remove the rest", ExitCode.RULES)
        name, kind, _ = parameters[position]
        if kind == "tensors" and not isinstance(argument, tuple):
            bound[name] = (*bound.get(name, ()), argument)
            continue
        bound[name] = argument
        position += 1
    for key, value in keywords.items():
        if key not in names or key in bound:
            problem = f"gets `{key}` twice" if key in bound else f"has no parameter `{key}`"
            help = f"its parameters are {', '.join(names)}"
            raise writer.error(f"{what} {problem}", help, ExitCode.RULES)
        bound[key] = value
    for name, _, default in parameters:
        if name not in bound:
            if default is REQUIRED:
                message = f"{what} lacks its argument `{name}`"
                raise writer.error(message, f"write `{name}=…`", ExitCode.RULES)
            bound[name] = default
    return bound


def bind_function(
    writer: NodeWriter,
    function: Function,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    plain: Callable[[Any], Any],
    shape_of: Callable[[str], Sequence[Any] | None],
) -> dict[str, Any]:
    """Give each parameter its operand; `plain` reads constants where no tensor is wanted."""
    formal = [(item.name, item.kind, item.default) for item in function.parameters]
    bound = bind(writer, f"`{function.name}`", formal, arguments, keywords)
    for name, kind, default in formal:
        if kind not in TENSOR_KINDS:
            bound[name] = default if bound[name] is ABSENT else plain(bound[name])
    asked = Asked(bound, shape_of)
    meant = {name: compute(expression, asked) for name, expression in function.means.items()}
    return bound | {key: value for key, value in meant.items() if not isinstance(value, Unknown)}


def form_for(
    writer: NodeWriter,
    function: Function,
    bound: Mapping[str, Any],
    shape_of: Callable[[str], Sequence[Any] | None],
) -> OnnxForm:
    """Choose how this opset says a function with these operands."""
    dtypes = [
        item.dtype
        for parameter in function.parameters
        if parameter.kind in TENSOR_KINDS
        and isinstance(item := bound[parameter.name], Tensor)
        and not item.loose
    ]
    dtype = next((item for item in dtypes if item is not None), None)
    asked = Asked(bound, shape_of)
    name = None if dtype is None else dtype_name(dtype)
    able = [form for form in function.onnx if form.emit and _says(form, function, bound)]
    fitting = [form for form in able if form.agrees_on(name) and not _hindrance(form, asked)]
    for form in fitting:
        if form.covers(writer.opset):
            return form
    later = [form.since for form in fitting if form.since > writer.opset]
    if later:
        raise writer.too_old(f"`{function.name}`", min(later))
    here = [form for form in able if form.covers(writer.opset)]
    reasons = [_hindrance(form, asked) for form in here]
    if here and not any(form.agrees_on(name) for form in here):
        reasons = [f"its op means another thing on {name} than the function"]
    raise writer.error(
        f"`{function.name}` has no form in opset {writer.opset} that holds here",
        f"write it in other ops, or convert the model to a newer opset (up to {newest_opset()})",
        ExitCode.EXPECTATION,
        *[reason for reason in reasons if reason][:3],
    )


def _hindrance(form: OnnxForm, asked: Asked) -> str:
    """Say which condition of a form does not hold, or what in it cannot be computed."""
    for condition in (form.when, form.writes_when):
        if condition is not None and not holds(condition, asked):
            return why_not(condition, asked) or "its condition is unknown"
    for slot in (*form.inputs, *form.attributes):
        if slot.value is not None:
            value = compute(slot.value, asked)
            if isinstance(value, Unknown):
                return value.reason or f"`{format_expression(slot.value)}` is unknown"
    try:
        if form.equation is not None:
            folded(form.equation, asked)
    except Unsaid:
        return "a shape that it asks for is unknown"
    return ""


def _says(form: OnnxForm, function: Function, bound: Mapping[str, Any]) -> bool:
    """Tell whether each parameter that a form does not mention has its default."""
    slots = (*form.inputs, *form.attributes)
    mentioned = {slot.parameter for slot in slots}
    for expression in (form.when, form.each, *(slot.value for slot in slots)):
        mentioned |= set(free_variables(expression)) if expression is not None else set()
    mentioned |= set(variables(form.equation)) if form.equation is not None else set()
    return all(
        item.name in mentioned or _same(bound[item.name], item.default)
        for item in function.parameters
    )


def _same(value: Any, default: object) -> bool:
    plain = None if value is ABSENT else value
    return plain == default or (plain in _NOTHING and default in _NOTHING)


def named_operands(
    writer: NodeWriter,
    op: str,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    plain: Callable[[Any], Any],
) -> tuple[list[Any], dict[str, Any]]:
    """Sort the arguments of a standard op into inputs and attributes of this opset's schema."""
    formal = writer.schema("", op)
    inputs = list(arguments)
    attributes: dict[str, Any] = {}
    for key, value in keywords.items():
        name = _name_here(op, key, writer.opset)
        at = formal.input_index(name)
        if at is not None:
            inputs += [ABSENT] * (at + 1 - len(inputs))
            if inputs[at] is not ABSENT:
                raise writer.error(f"`{op}` gets `{key}` twice", "write it once", ExitCode.RULES)
            inputs[at] = _list_input(op, name, value)
        elif name in formal.attributes:
            attributes[name] = plain(value)
        elif not _is_default(op, key, value):
            raise _no_parameter(writer, op, key)
    _require(writer, op, attributes)
    return inputs, attributes


def _name_here(op: str, parameter: str, opset: int) -> str:
    old = renames().get((op, parameter), ())
    return next((item.name for item in old if item.since <= opset <= item.until), parameter)


def _list_input(op: str, name: str, value: Any) -> Any:
    """Make one number a list where older opsets have a list attribute of that name."""
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    older = [schema("", op, version) for version in versions("", op)]
    kinds = {item.attributes[name].kind for item in older if item and name in item.attributes}
    return [value] if "INTS" in kinds else value


def _is_default(op: str, key: str, value: Any) -> bool:
    """Tell whether a parameter that this opset lacks has the value that the newest gives it."""
    newest = schema("", op, versions("", op)[-1])
    if newest is None or (key not in newest.attributes and newest.input_index(key) is None):
        return False
    default = newest.attributes[key].default if key in newest.attributes else None
    return _same(value, default)


def _no_parameter(writer: NodeWriter, op: str, key: str) -> Exception:
    for version in versions("", op):
        later = schema("", op, version)
        if version > writer.opset and later is not None:
            if key in later.attributes or later.input_index(key) is not None:
                return writer.too_old(f"`{key}` of `{op}`", version)
    help = "correct the name, or leave it out"
    return writer.error(f"`{op}` has no parameter `{key}`", help, ExitCode.RULES)


def _require(writer: NodeWriter, op: str, attributes: Mapping[str, Any]) -> None:
    for name, info in writer.schema("", op).attributes.items():
        if info.required and attributes.get(name) is None:
            message = f"`{op}` lacks its attribute `{name}`"
            raise writer.error(message, f"write `{name}=…`", ExitCode.RULES)


def custom_operands(
    writer: NodeWriter,
    op: CustomOp,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    plain: Callable[[Any], Any],
) -> tuple[list[Any], dict[str, Any], dict[str, str]]:
    """Sort the arguments of a custom op into inputs, attributes, and the attributes' kinds."""
    formal = [
        (item.name, item.kind, None if item.kind == "optional" else item.default)
        for item in op.parameters
    ]
    given = {*[name for name, _, _ in formal[: len(arguments)]], *keywords}
    bound = bind(writer, f"`{op.name or op.onnx}`", formal, arguments, keywords)
    inputs: list[Any] = []
    attributes: dict[str, Any] = {}
    kinds: dict[str, str] = {}
    for name, kind, _ in formal:
        value = bound[name]
        if kind in TENSOR_KINDS:
            inputs += value if isinstance(value, tuple) else [value]
        elif name in given:
            attributes[name], kinds[name] = plain(value), ATTRIBUTE_KINDS[kind]
    return inputs, attributes, kinds

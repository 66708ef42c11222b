"""Write the body of a custom op as a model-local function, so that its node runs anywhere.

From opset 15 on one function serves every dtype and attribute value: numbers become CastLike
constants, attributes are referred to by name. Below, each dtype and each set of attribute values
has a function of its own with the values written in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oprep.converters.frontends import onnx_values as values
from oprep.converters.frontends.onnx_emit import Emitted, emit
from oprep.converters.frontends.onnx_nodes import CAST_LIKE
from oprep.converters.frontends.onnx_values import ATTRIBUTE_KINDS, AttributeRef
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.expression import walk
from oprep.opsets.rule import REQUIRED, CustomOp
from oprep.opsets.syntax import Call, Equation

if TYPE_CHECKING:
    from onnx import FunctionProto

_TENSORS = ("tensor", "optional", "tensors")


def body_function(
    op: CustomOp,
    *,
    opset: int,
    dtype: int | Mapping[str, int | None] | None = None,
    attributes: Mapping[str, Any] | None = None,
    overload: str = "",
    variadic: int = 0,
    imports: Mapping[str, int] | None = None,
    ops: Sequence[CustomOp] = (),
) -> FunctionProto:
    """Make the function that `op.body` is in a model of version `opset`.

    `attributes` writes values in; None refers to the node's attributes (opset 15 and later).
    `dtype`, of all inputs or by parameter, is needed below opset 15 where the body has numbers.
    `variadic` is the number of tensors that a `Tensor[]` parameter stands for. `imports` are the
    model's, `ops` the custom ops that the body may call.
    Raise OprepError (exit EXPECTATION) where this opset cannot say the body.
    """
    body = _checked(op, ops)
    if attributes is None and opset < CAST_LIKE and _plain_parameters(op):
        raise OprepError(
            f"the body of `{op.onnx}` refers to attributes",
            str(op.source),
            (f"that needs opset {CAST_LIKE}, the model has {opset}",),
            "give the attributes' values",
            ExitCode.EXPECTATION,
        )
    inputs = _inputs(op, variadic)
    names: list[str] = []
    for item in inputs.values():
        names += [item] if isinstance(item, str) else item
    fresh = _namer({*names, *(item.name for item in op.parameters)})
    emitted = emit(
        body,
        inputs,
        opset=opset,
        fresh=fresh,
        dtype=dtype,
        results=[fresh("y") for _ in body.results],
        attributes=_attributes(op, attributes),
        ops=ops,
        where=str(op.source),
    )
    return _function(op, names, emitted, opset, overload, attributes is None, imports or {})


def is_generic(op: CustomOp, *, opset: int, ops: Sequence[CustomOp] = ()) -> bool:
    """Tell whether one function serves every dtype and attribute value of an op in this opset."""
    if opset < CAST_LIKE:
        return False
    try:
        body_function(op, opset=opset, variadic=1, ops=ops)
    except OprepError:
        return False
    return True


def equal_bodies(one: FunctionProto, other: FunctionProto) -> bool:
    """Tell whether two functions compute the same, node by node, whatever their inner names."""
    table: dict[Any, int] = {}
    return bool(_shape_of(one, table) == _shape_of(other, table))


def _checked(op: CustomOp, ops: Sequence[CustomOp]) -> Equation:
    """Give the body; refuse an op without one, and a body that leads back to its own op."""
    if op.body is None:
        raise OprepError(
            f"`{op.onnx}` has no body",
            str(op.source),
            help="add a `body`, or pass the library that has the op",
            exit_code=ExitCode.EXPECTATION,
        )
    named = {str(item.onnx): item for item in ops} | {item.name: item for item in ops if item.name}
    waiting, seen = _called(op), set[str]()
    while waiting:
        name = waiting.pop()
        if name in (op.name, str(op.onnx)):
            raise OprepError(
                f"the body of `{op.onnx}` calls itself",
                str(op.source),
                help="write the body in other ops",
                exit_code=ExitCode.RULES,
            )
        if name not in seen and name in named:
            seen.add(name)
            waiting += _called(named[name])
    return op.body


def _called(op: CustomOp) -> list[str]:
    """List the ops of other domains that a body calls."""
    body = op.body or Equation((), ())
    roots = [*(statement.value for statement in body.statements), *body.results]
    calls = [part for root in roots for part in walk(root) if isinstance(part, Call)]
    return [f"{call.domain}::{call.function}" for call in calls if call.domain]


def _plain_parameters(op: CustomOp) -> list[str]:
    return [item.name for item in op.parameters if item.kind not in _TENSORS]


def _inputs(op: CustomOp, variadic: int) -> dict[str, str | tuple[str, ...]]:
    found: dict[str, str | tuple[str, ...]] = {}
    for item in op.parameters:
        if item.kind == "tensors":
            found[item.name] = tuple(f"{item.name}_{i}" for i in range(variadic))
        elif item.kind in _TENSORS:
            found[item.name] = item.name
    return found


def _attributes(op: CustomOp, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Give each attribute its value, or the reference to it."""
    found: dict[str, Any] = {}
    for item in op.parameters:
        if item.kind in _TENSORS:
            continue
        if given is None:
            found[item.name] = AttributeRef(item.name, item.kind)
            continue
        value = given.get(item.name, item.default)
        if value is REQUIRED:
            raise OprepError(
                f"`{op.onnx}` lacks its attribute `{item.name}`",
                str(op.source),
                help=f"write `{item.name}=…` in `with`",
                exit_code=ExitCode.RULES,
            )
        found[item.name] = bool(value) if item.kind == "bool" and value is not None else value
    return found


def _namer(taken: set[str]) -> Callable[[str], str]:
    def fresh(hint: str) -> str:
        name, count = hint, 0
        while name in taken:
            count += 1
            name = f"{hint}_{count}"
        taken.add(name)
        return name

    return fresh


def _function(
    op: CustomOp,
    inputs: Sequence[str],
    emitted: Emitted,
    opset: int,
    overload: str,
    generic: bool,
    imports: Mapping[str, int],
) -> FunctionProto:
    from onnx import FunctionProto, helper

    function = FunctionProto(
        name=op.onnx.type, domain=op.onnx.domain, input=inputs, output=emitted.outputs
    )
    if overload:
        function.overload = overload
    for item in op.parameters if generic else ():
        if item.kind in _TENSORS:
            continue
        if item.default is REQUIRED or item.default is None:
            function.attribute.append(item.name)
        else:
            kind = ATTRIBUTE_KINDS[item.kind]
            function.attribute_proto.append(values.attribute(item.name, kind, item.default))
    function.node.extend(emitted.nodes)
    function.opset_import.append(helper.make_opsetid("", opset))
    for domain in sorted(emitted.imports - {""}):
        function.opset_import.append(helper.make_opsetid(domain, imports.get(domain, 1)))
    return function


def _shape_of(function: FunctionProto, table: dict[Any, int]) -> Any:
    """Describe a function by numbers that `table` gives to equal parts."""

    def number(key: Any) -> int:
        return table.setdefault(key, len(table))

    known = {"": number(("absent",))}
    known |= {name: number(("input", i)) for i, name in enumerate(function.input)}
    nodes: list[int] = []
    for node in function.node:
        attributes = sorted(_attribute_key(item) for item in node.attribute)
        key = (
            node.domain,
            node.op_type,
            node.overload,
            tuple(attributes),
            tuple(known.get(name, -1) for name in node.input),
            len(node.output),
        )
        known |= {name: number((key, i)) for i, name in enumerate(node.output) if name}
        if node.op_type != "Constant":
            nodes.append(number(key))
    used = {node.domain for node in function.node}
    return (
        len(function.input),
        [known.get(name, -1) for name in function.output],
        sorted(nodes),
        sorted(function.attribute),
        sorted(_attribute_key(item) for item in function.attribute_proto),
        sorted(
            (item.domain, item.version) for item in function.opset_import if item.domain in used
        ),
    )


def _attribute_key(item: Any) -> tuple[str, str, str]:
    """Describe an attribute: its name, its type, and its value whatever the encoding."""
    from onnx import AttributeProto, helper, numpy_helper

    if item.ref_attr_name:
        return item.name, "reference", item.ref_attr_name
    if item.type == AttributeProto.TENSOR:
        array = numpy_helper.to_array(item.t)
        return item.name, f"tensor {item.t.data_type} {array.shape}", array.tobytes().hex()
    value = helper.get_attribute_value(item)
    text = value.SerializeToString().hex() if hasattr(value, "SerializeToString") else repr(value)
    return item.name, str(item.type), text

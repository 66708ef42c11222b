"""How torch's exporter writes a custom op: as one node of the op's ONNX domain.

The exporter takes a table from torch ops to functions that write nodes. Each function here writes
the one node: tensors become inputs (a list is spread out, an absent one is left empty), everything
else becomes an attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir
from onnxscript import values
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.rule import CustomOp

Schema = onnx.defs.OpSchema
TYPES = [f"tensor({name})" for name in (
    "float", "float16", "bfloat16", "double", "bool", "string", "complex64", "complex128",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
)]  # fmt: skip
"""The types that a node of a custom op may have; what the op itself takes is its own business."""

KINDS = {
    "float": ir.AttributeType.FLOAT, "int": ir.AttributeType.INT,
    "bool": ir.AttributeType.INT, "str": ir.AttributeType.STRING,
    "List[float]": ir.AttributeType.FLOATS, "List[int]": ir.AttributeType.INTS,
    "List[bool]": ir.AttributeType.INTS, "List[str]": ir.AttributeType.STRINGS,
}  # fmt: skip
"""Types of a torch schema, and the attributes that they become."""

TENSORS = ("Tensor", "Optional[Tensor]")
LISTS = ("List[Tensor]", "List[Optional[Tensor]]")


def modules(exported: ExportedProgram) -> Iterator[GraphModule]:
    """Give every graph of a program, those of branches, loops and regions included."""
    for module in exported.graph_module.modules():
        if isinstance(module, GraphModule):
            yield module


def op_name(node: Node) -> str:
    """Give `namespace::op` of a call, whatever its overload; empty where it calls no op."""
    target = node.target
    return target._schema.name if isinstance(target, OpOverload) else ""


def called_ops(
    exported: ExportedProgram, ops: Sequence[CustomOp]
) -> Iterator[tuple[Node, OpOverload, CustomOp]]:
    """Give every call of one of the ops, with the overload that it calls."""
    named = {op.name: op for op in ops if op.name is not None}
    for module in modules(exported):
        for node in module.graph.nodes:
            op = named.get(op_name(node))
            if op is not None:
                yield node, node.target, op


def translations(
    exported: ExportedProgram, ops: Sequence[CustomOp]
) -> dict[Callable[..., Any], Callable[..., Any]]:
    """Give the exporter's table for the ops that a program calls."""
    return {target: _translation(target, op) for _, target, op in called_ops(exported, ops)}


def _translation(target: OpOverload, op: CustomOp) -> Callable[..., Any]:
    results = len(target._schema.returns)

    def translate(*args: Any, **kwargs: Any) -> Any:
        inputs: list[Any] = []
        attributes: dict[str, ir.Attr] = {}
        for name, kind, value in _bound(target, args, kwargs):
            if kind in LISTS:
                inputs += value or ()
            elif kind in TENSORS:
                inputs.append(value)
            elif value is not None:
                attributes[name] = _attribute(op, name, kind, value)
        schema = _schema(op, len(inputs), results, attributes)
        opset = values.Opset(op.onnx.domain, op.onnx.version)
        return values.Op(opset, op.onnx.type, schema)(*inputs, **attributes)

    return translate


def _bound(
    target: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, str, Any]]:
    """Give name, type and value of each argument that is given, and every absent tensor."""
    for position, argument in enumerate(target._schema.arguments):
        kind = str(argument.type)
        if position < len(args):
            yield argument.name, kind, args[position]
        elif argument.name in kwargs:
            yield argument.name, kind, kwargs[argument.name]
        elif kind in TENSORS or kind in LISTS:
            yield argument.name, kind, None


def _attribute(op: CustomOp, name: str, kind: str, value: Any) -> ir.Attr:
    bare = kind.removeprefix("Optional[").removesuffix("]") if "Optional" in kind else kind
    type = KINDS.get(bare)
    parts = value if isinstance(value, list | tuple) else [value]
    if type is None or any(isinstance(part, ir.Value) for part in parts):
        why = f"`{name}` is of type {kind}" if type is None else f"`{name}` depends on a size"
        raise OprepError(
            f"a call of `{op.name}` cannot be written as an ONNX node",
            str(op.source),
            (f"{why}, an ONNX attribute is a fixed number, string or list of them",),
            "let the op take a tensor there",
            ExitCode.EXPECTATION,
        )
    if isinstance(value, list | tuple):
        plain: Any = [int(part) if isinstance(part, bool) else part for part in value]
    else:
        plain = int(value) if isinstance(value, bool) else value
    return ir.Attr(name, type, float(plain) if type == ir.AttributeType.FLOAT else plain)


def _schema(
    op: CustomOp, inputs: int, results: int, attributes: Mapping[str, ir.Attr]
) -> onnx.defs.OpSchema:
    """Describe one call: as many inputs as it has, each of any type; nothing is registered."""
    optional = Schema.FormalParameterOption.Optional
    return Schema(
        op.onnx.type,
        op.onnx.domain,
        op.onnx.version,
        inputs=[Schema.FormalParameter(f"in_{i}", f"I{i}", param_option=optional)
                for i in range(inputs)],
        outputs=[Schema.FormalParameter(f"out_{i}", f"O{i}") for i in range(results)],
        type_constraints=[
            *((f"I{i}", TYPES, "") for i in range(inputs)),
            *((f"O{i}", TYPES, "") for i in range(results)),
        ],
        attributes=[Schema.Attribute(name, getattr(Schema.AttrType, item.type.name), required=False)
                    for name, item in attributes.items()],
    )  # fmt: skip

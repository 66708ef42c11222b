"""What a model takes and gives: names, kinds, dtypes and dims, as a caller sees them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from oprep.converters.hints import Hint, hints

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

Dims: TypeAlias = "tuple[int | str, ...] | None"


@dataclass(frozen=True)
class Port:
    """One input or output. `kind` is `tensor` or what ONNX calls it; a free dim is a string:

    its own name, or `input.axis` where it has none of its own. Unknown rank: `dims` is None.
    `zeros` are free dims that are declared as 0: mostly free, now and then truly empty.
    """

    name: str
    kind: str
    dtype: str
    dims: Dims
    hint: Hint = field(default=Hint(), compare=False)
    zeros: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Signature:
    """Inputs that a caller has to give, `optional` ones that have a default, and outputs."""

    inputs: tuple[Port, ...]
    optional: tuple[Port, ...]
    outputs: tuple[Port, ...]


def signature(model: ModelProto) -> Signature:
    """Read a model's signature; from IR version 4 on an initializer is an input's default."""
    defaults = {item.name for item in model.graph.initializer}
    defaults |= {item.values.name for item in model.graph.sparse_initializer}
    found = hints(model)
    ports = [_port(item, found.get(item.name, Hint())) for item in model.graph.input]
    overridable = [port for port in ports if port.name in defaults]
    return Signature(
        inputs=tuple(port for port in ports if port.name not in defaults),
        optional=tuple(overridable) if model.ir_version >= 4 else (),
        outputs=tuple(_port(item, Hint()) for item in model.graph.output),
    )


def _port(item: ValueInfoProto, hint: Hint) -> Port:
    kind = (item.type.WhichOneof("value") or "unknown").removesuffix("_type")
    if kind != "tensor":
        return Port(item.name, kind, "", None, hint)
    tensor = item.type.tensor_type
    dims: list[int | str] = []
    zeros = []
    for axis, dim in enumerate(tensor.shape.dim):
        named = dim.dim_param not in ("", "?") and not dim.dim_param.startswith("unk__")
        if dim.HasField("dim_value") and dim.dim_value > 0:
            dims.append(dim.dim_value)
        else:
            name = dim.dim_param if named else f"{item.name}.{axis}"
            dims.append(name)
            zeros += [name] if dim.HasField("dim_value") and dim.dim_value == 0 else []
    shape = tuple(dims) if tensor.HasField("shape") else None
    return Port(item.name, kind, _dtype(tensor.elem_type), shape, hint, tuple(zeros))


def _dtype(number: int) -> str:
    from onnx import TensorProto, helper

    if number == TensorProto.STRING:
        return "string"
    try:
        return str(helper.tensor_dtype_to_np_dtype(number).name)
    except KeyError:
        return f"type {number}"


def not_generated(found: Signature) -> str:
    """Say why no inputs can be made up for a model; empty where they can."""
    for port in found.inputs:
        if port.kind != "tensor":
            article = "an" if port.kind[0] in "aeiou" else "a"
            return f"input `{port.name}` is {article} {port.kind}, which is not generated"
        if port.dtype.startswith("type "):
            return f"input `{port.name}` has element {port.dtype}, which is not generated"
    return ""

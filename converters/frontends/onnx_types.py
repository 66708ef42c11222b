"""What is known of dtypes and shapes in an ONNX model: declared first, inferred only when asked.

Shape inference runs once for the whole model, when the first condition needs a type that is not
declared. A function has one typing for each of its calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnx import FunctionProto, GraphProto, ModelProto, TypeProto, ValueInfoProto

    from oprep.converters.frontends.onnx_graph import OnnxGraph, OnnxView

Shape: TypeAlias = tuple[int | str | None, ...]
Typed: TypeAlias = tuple[str | None, Shape | None]
Typing: TypeAlias = dict[str, Typed]
UNTYPED: Typed = (None, None)


class Types:
    """Types of all regions of one model."""

    def __init__(self, owner: OnnxGraph) -> None:
        """Infer nothing yet."""
        self.owner = owner
        self.inferred = False
        self._declared: dict[int, Typing] = {}
        self._functions: dict[int, list[Typing]] = {}
        self._after: dict[tuple[Any, ...], Typing] | None = None

    def dtypes(self, view: OnnxView, value: str) -> tuple[str | None, ...]:
        """Give the dtype of a value, one per typing of its region."""
        return tuple(typed[0] for typed in self._all(view, value, 0))

    def shapes(self, view: OnnxView, value: str) -> tuple[Shape | None, ...]:
        """Give the shape of a value, one per typing of its region."""
        return tuple(typed[1] for typed in self._all(view, value, 1))

    def _all(self, view: OnnxView, value: str, part: int) -> list[Typed]:
        if view.region.function is not None:
            return self._in_function(view, value)
        scope: OnnxView | None = view
        while scope is not None:
            found = self.declared(scope).get(value)
            if found is not None and found[part] is not None:
                return [found]
            scope = scope.parent
        return [self._infer(view, value)]

    def declared(self, view: OnnxView) -> Typing:
        """Give what a graph itself declares: inputs, outputs, value_info, initializers."""
        key = id(view)
        if key not in self._declared:
            graph: Any = view.graph
            known = dict(_typed(item) for item in (*graph.value_info, *graph.output, *graph.input))
            for tensor in graph.initializer:
                known[tensor.name] = (dtype_name(tensor.data_type), tuple(tensor.dims))
            self._declared[key] = known
        return self._declared[key]

    def _infer(self, view: OnnxView, value: str) -> Typed:
        constant = view.constant(value)
        if constant is not None:
            return constant.dtype, constant.shape
        if self._after is None:
            self._after = self._run()
        scope: OnnxView | None = view
        while scope is not None:
            found = self._after.get(scope.region.path, {}).get(value)
            if found is not None:
                return found
            scope = scope.parent
        return UNTYPED

    def _run(self) -> dict[tuple[Any, ...], Typing]:
        """Run onnx's shape inference on the model without its weights."""
        self.inferred = True
        model = inferred(without_weights(self.owner.model))
        if model is None:
            return {}
        return {path: _graph_typing(graph) for path, graph in walk(model.graph, ())}

    def _in_function(self, view: OnnxView, value: str) -> list[Typed]:
        root = view
        while root.parent is not None:
            root = root.parent
        key = id(root)
        if key not in self._functions:
            self._functions[key] = []  # a recursive function would ask again
            self._functions[key] = list(self._typings(root))
        typings = self._functions[key]
        return [typing.get(value, UNTYPED) for typing in typings] or [UNTYPED]

    def _typings(self, view: OnnxView) -> Iterator[Typing]:
        function: Any = view.graph
        seen: set[tuple[Any, ...]] = set()
        name = f"{function.domain}::{function.name}"
        for caller in self.owner.views:
            for node in caller.region.by_op.get(name, ()):
                proto = caller.nodes[node]
                if proto.overload != function.overload:
                    continue
                got = [self._all_parts(caller, item) for item in proto.input]
                count = max((len(types) for types in got), default=1)
                for i in range(count):
                    inputs = tuple(types[i] if i < len(types) else types[-1] for types in got)
                    key = (inputs, tuple(item.SerializeToString() for item in proto.attribute))
                    if key not in seen:
                        seen.add(key)
                        yield self._typing(function, inputs, proto.attribute)

    def _all_parts(self, caller: OnnxView, value: str) -> list[Typed]:
        if not value:
            return [UNTYPED]
        dtypes, shapes = self.dtypes(caller, value), self.shapes(caller, value)
        return list(zip(dtypes, shapes, strict=False))

    def _typing(self, function: FunctionProto, inputs: tuple[Typed, ...], given: Any) -> Typing:
        model = function_as_model(self.owner.model, function, inputs, given)
        after = inferred(model)
        return _graph_typing(after.graph if after is not None else model.graph)


def dtype_name(kind: int) -> str | None:
    """Give `float32` for an element type number of ONNX; None for none."""
    return _dtype_names().get(kind)


def _dtype_names() -> dict[int, str]:
    global _NAMES
    if _NAMES is None:
        from onnx import TensorProto

        short = {"FLOAT": "float32", "DOUBLE": "float64", "STRING": "str"}
        _NAMES = {
            number: short.get(name, name.lower())
            for name, number in TensorProto.DataType.items()
            if number
        }
    return _NAMES


_NAMES: dict[int, str] | None = None


def dtype_number(name: str) -> int | None:
    """Give the element type number of ONNX for `float32`; None where there is none."""
    return next((number for number, known in _dtype_names().items() if known == name), None)


def _typed(item: ValueInfoProto) -> tuple[str, Typed]:
    return item.name, type_of(item.type)


def type_of(kind: TypeProto) -> Typed:
    """Read a tensor type: dtype and shape, None for what is not said."""
    if not kind.HasField("tensor_type"):
        return UNTYPED
    tensor = kind.tensor_type
    dtype = dtype_name(tensor.elem_type)
    if not tensor.HasField("shape"):
        return dtype, None
    dims: list[int | str | None] = []
    for dim in tensor.shape.dim:
        if dim.HasField("dim_value") and dim.dim_value > 0:
            dims.append(dim.dim_value)
        else:
            dims.append(dim.dim_param or None)
    return dtype, tuple(dims)


def _graph_typing(graph: GraphProto) -> Typing:
    return dict(_typed(item) for item in (*graph.value_info, *graph.output, *graph.input))


def walk(graph: GraphProto, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], GraphProto]]:
    """Yield a graph and the graphs nested in it, each with its path."""
    from oprep.converters.frontends.onnx_graph import WITH_GRAPHS, graphs_of

    yield path, graph
    for index, node in enumerate(graph.node):
        if node.op_type in WITH_GRAPHS or node.domain:
            for name, position, inner in graphs_of(node):
                step = (index, name) if position is None else (index, name, position)
                yield from walk(inner, (*path, step))


def inferred(model: ModelProto) -> ModelProto | None:
    """Run shape inference; None where onnx cannot."""
    import onnx
    from onnx import shape_inference

    try:
        return shape_inference.infer_shapes(model)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError, TypeError):
        return None


def without_weights(model: ModelProto, keep: int = 1024) -> ModelProto:
    """Copy a model with the data of large initializers left out, dims and dtype kept."""
    from onnx import ModelProto

    if model.ByteSize() < 1 << 24:
        return model
    light = ModelProto()
    for field, value in model.ListFields():
        if field.name == "graph":
            continue
        if isinstance(value, int | str | bytes):
            setattr(light, field.name, value)
        elif hasattr(value, "CopyFrom"):
            getattr(light, field.name).CopyFrom(value)
        else:
            getattr(light, field.name).extend(value)
    for field, value in model.graph.ListFields():
        if field.name == "initializer":
            for tensor in value:
                _lighten(light.graph.initializer.add(), tensor, keep)
        elif isinstance(value, int | str | bytes):
            setattr(light.graph, field.name, value)
        elif hasattr(value, "CopyFrom"):
            getattr(light.graph, field.name).CopyFrom(value)
        else:
            getattr(light.graph, field.name).extend(value)
    return light


def _lighten(target: Any, tensor: Any, keep: int) -> None:
    if len(tensor.raw_data) <= keep and tensor.ByteSize() <= 2 * keep:
        target.CopyFrom(tensor)
        return
    target.name, target.data_type = tensor.name, tensor.data_type
    target.dims.extend(tensor.dims)
    target.data_location = tensor.EXTERNAL
    target.external_data.add(key="location", value="left-out")


def function_as_model(
    model: ModelProto, function: FunctionProto, inputs: tuple[Typed, ...], given: Any
) -> ModelProto:
    """Write one call of a function as a model of its own, its attributes put in."""
    from onnx import ModelProto, helper

    made = ModelProto(ir_version=max(model.ir_version, 8))
    made.opset_import.extend(function.opset_import)
    made.functions.extend(model.functions)
    for name, (dtype, shape) in zip(function.input, inputs, strict=False):
        kind = dtype_number(dtype) if dtype else None
        if kind is not None:
            made.graph.input.append(helper.make_tensor_value_info(name, kind, shape))
    values = {item.name: item for item in (*function.attribute_proto, *given)}
    for node in function.node:
        copy = made.graph.node.add()
        copy.CopyFrom(node)
        for attribute in copy.attribute:
            if attribute.ref_attr_name and attribute.ref_attr_name in values:
                name = attribute.name
                attribute.CopyFrom(values[attribute.ref_attr_name])
                attribute.name = name
    for name in function.output:
        made.graph.output.add(name=name)
    made.graph.name = "function"
    return made

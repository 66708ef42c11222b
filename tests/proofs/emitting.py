"""Write equations as models, and custom ops as models with a function."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import FunctionProto, ModelProto, helper

from oprep.converters.frontends.onnx_emit import Emitted, emit
from oprep.opsets.expression import parse_equation
from oprep.opsets.load import load_opset
from oprep.opsets.rule import CustomOp, Source

Arrays = Mapping[str, NDArray[Any]]
HERE = Source("rules.toml", 1)


def namer() -> Callable[[str], str]:
    count = itertools.count()
    return lambda hint: f"{hint}.{next(count)}"


def types_of(feeds: Arrays) -> dict[str, int]:
    return {key: helper.np_dtype_to_tensor_dtype(value.dtype) for key, value in feeds.items()}


def write(
    text: str, values: Sequence[str] | Mapping[str, Any] = ("x",), opset: int = 18, **options: Any
) -> Emitted:
    """Write an equation over tensors of the same names."""
    named = values if isinstance(values, Mapping) else {name: name for name in values}
    return emit(parse_equation(text, HERE), named, opset=opset, fresh=namer(), **options)


def model_of(
    text: str, feeds: Arrays, opset: int = 18, *, known: bool = True, **options: Any
) -> ModelProto:
    """Write an equation as a model; with `known` the dtypes of the inputs are told."""
    emitted = write(text, list(feeds), opset, dtype=types_of(feeds) if known else None, **options)
    outputs = [onnx.ValueInfoProto(name=name) for name in emitted.outputs]
    domains = sorted(emitted.imports - {""})
    return _model(emitted.nodes, feeds, outputs, opset, domains, 10 if opset > 18 else 8, [])


def _model(
    nodes: Sequence[onnx.NodeProto],
    feeds: Arrays,
    outputs: Sequence[onnx.ValueInfoProto],
    opset: int,
    domains: Sequence[str],
    ir_version: int,
    functions: Sequence[FunctionProto],
) -> ModelProto:
    types = types_of(feeds)
    inputs = [
        helper.make_tensor_value_info(key, types[key], value.shape) for key, value in feeds.items()
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(item, 1) for item in domains)]
    return helper.make_model(
        graph, opset_imports=imports, ir_version=ir_version, functions=functions
    )


def custom_op(body: str, schema: str = "(Tensor x) -> Tensor", name: str = "f") -> CustomOp:
    """Declare `acme::f` (`com.acme::F`) as a rule file does."""
    return custom_ops((name, schema, body))[0]


def custom_ops(*rows: tuple[str, str, str]) -> tuple[CustomOp, ...]:
    """Declare several ops (name, schema, body) in one rule file."""
    tables = [
        f"""[[op]]
name = "acme::{name}"
onnx = {{ domain = "com.acme", type = "{name.upper()}" }}
schema = '''{schema}'''
body = '''{body}'''
"""
        for name, schema, body in rows
    ]
    return load_opset("\n".join(["format = 1", *tables]), "rules.toml").ops


def calling(
    functions: Sequence[FunctionProto],
    feeds: Arrays,
    opset: int,
    ir_version: int,
    attributes: Mapping[str, Any] | None = None,
    outputs: int = 1,
    result: NDArray[Any] | None = None,
) -> ModelProto:
    """Make a model with one call of the first function on all inputs."""
    called = functions[0]
    names = [f"out_{i}" for i in range(outputs)]
    node = helper.make_node(
        called.name, list(feeds), names, domain=called.domain, **(attributes or {})
    )
    if called.overload:
        node.overload = called.overload
    like = result if result is not None else next(iter(feeds.values()))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(like.dtype))
    infos = [helper.make_tensor_value_info(name, kind, [None] * like.ndim) for name in names]
    domains = sorted({item.domain for item in functions})
    return _model([node], feeds, infos, opset, domains, ir_version, functions)

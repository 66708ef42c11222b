"""What the sample models are built with: seeded weights, and nodes named as torch's exporter does.

Weights come from Python's own generator, whose stream is promised never to change, so that no
library version changes a file.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

PRODUCER = ("oprep sample models", "1")


def weight(
    name: str, *shape: int, scale: float = 0.5, middle: float = 0.0, dtype: type = np.float32
) -> TensorProto:
    """Draw a tensor from [middle - scale, middle + scale), seeded by its name."""
    return numpy_helper.from_array(
        drawn(name, *shape, scale=scale, middle=middle, dtype=dtype), name
    )


def drawn(
    name: str, *shape: int, scale: float = 0.5, middle: float = 0.0, dtype: type = np.float32
) -> np.ndarray:
    """Draw an array from [middle - scale, middle + scale), seeded by its name."""
    draw = Random(name)
    numbers = [middle + (draw.random() * 2 - 1) * scale for _ in range(math.prod(shape))]
    return np.array(numbers, dtype).reshape(shape)


def from_text(text: str, *weights: TensorProto) -> onnx.ModelProto:
    """Parse a model in ONNX's text syntax and give it its weights."""
    built = parser.parse_model(text)
    built.graph.initializer.extend(weights)
    built.producer_name, built.producer_version = PRODUCER
    return built


class Nodes:
    """Nodes and weights being collected; a node's path is its name and names its output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []

    def add(self, path: str, op: str, *inputs: str, to: str = "", **attributes: Any) -> str:
        """Add a node and give the name of its output."""
        output = to or f"{path}_output_0"
        node = helper.make_node(op, inputs, [output], name=path, **attributes)
        *modules, own = path.strip("/").split("/")
        scopes = ["", *(".".join(modules[:end]) for end in range(1, len(modules) + 1)), own.lower()]
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=str(scopes))
        self.nodes.append(node)
        return output

    def weight(self, path: str, *shape: int, scale: float, middle: float = 0.0) -> str:
        """Add a float32 weight and give its name: the path in dots."""
        name = path.strip("/").replace("/", ".")
        self.weights.append(weight(name, *shape, scale=scale, middle=middle))
        return name

    def linear(self, x: str, path: str, fan_in: int, fan_out: int) -> str:
        """Add a layer as MatMul and Add of its bias."""
        product = self.add(
            f"{path}/MatMul",
            "MatMul",
            x,
            self.weight(f"{path}/weight", fan_in, fan_out, scale=fan_in**-0.5),
        )
        bias = self.weight(f"{path}/bias", fan_out, scale=0.1)
        return self.add(f"{path}/Add", "Add", bias, product)

    def into(self, text: str) -> onnx.ModelProto:
        """Give the model of `text`, whose graph has no node yet, these nodes and weights."""
        built = from_text(text, *self.weights)
        del built.graph.node[:]
        built.graph.node.extend(self.nodes)
        return built

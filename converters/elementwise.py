"""Tell sites that work element by element from those that mix elements, by the ops they replace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

    from oprep.converters.twin import RegionPath, TwinSite

OPS = frozenset({
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift",
    "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "CastLike", "Ceil", "Celu",
    "Clip", "Constant", "Cos", "Cosh", "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu",
    "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN",
    "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg",
    "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign",
    "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh",
    "ThresholdedRelu", "Where", "Xor",
})  # fmt: skip
CONTRIBUTED = frozenset({"BiasGelu", "FastGelu", "Gelu", "QuickGelu"})
STANDARD, MICROSOFT = ("", "ai.onnx"), "com.microsoft"


class Elementwise:
    """Answers for all sites of one model; its graphs are indexed once."""

    def __init__(self, model: ModelProto) -> None:
        """Index who makes what in each graph, and what each function is made of."""
        from oprep.converters.frontends.onnx_types import walk

        self._makers: dict[RegionPath, dict[str, NodeProto]] = {}
        self._constants: set[str] = set()
        self._functions = {(f.domain, f.name, f.overload): f for f in model.functions}
        self._known: dict[Any, bool] = {}
        starts: list[tuple[Any, RegionPath]] = [(model.graph, ())]
        starts += [(function, (("function", *key),)) for key, function in self._functions.items()]
        for start, path in starts:
            for region, graph in walk(start, path):
                self._makers[region] = {name: node for node in graph.node for name in node.output}
                self._constants |= {item.name for item in getattr(graph, "initializer", ())}

    def site(self, site: TwinSite) -> bool:
        """Tell whether every node that a site replaces works element by element.

        Where the inner values are not known apart from the inputs, a node before the site that
        reads nothing else counts as one of it, which only makes the answer more careful.
        """
        makers = self._makers[site.region]
        work = [original for original, _ in site.pairs if original]
        seen = set(work)
        while work:
            node = makers.get(work.pop())
            if node is None or not self._is_elementwise(node):
                return False
            for name in node.input:
                if name not in seen and self._is_inner(name, site, makers):
                    seen.add(name)
                    work.append(name)
        return True

    def _is_inner(self, name: str, site: TwinSite, makers: Mapping[str, NodeProto]) -> bool:
        if site.inner is not None:
            return name in site.inner
        node = makers.get(name)
        if node is None or name not in site.reads or not any(node.input):
            return False
        return all(
            item in site.reads or item in self._constants or self._is_constant(makers.get(item))
            for item in node.input
            if item
        )

    @staticmethod
    def _is_constant(node: NodeProto | None) -> bool:
        return node is not None and node.op_type == "Constant"

    def _is_elementwise(self, node: NodeProto) -> bool:
        key = (node.domain, node.op_type, node.overload)
        if key in self._functions:
            if key not in self._known:
                self._known[key] = False  # what a function that calls itself finds
                self._known[key] = all(map(self._is_elementwise, self._functions[key].node))
            return self._known[key]
        if node.domain == MICROSOFT:
            return node.op_type in CONTRIBUTED
        return node.domain in STANDARD and node.op_type in OPS

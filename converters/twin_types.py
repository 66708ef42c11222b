"""Element types of the values that a twin carries out of branches and loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oprep.converters.frontends.onnx_types import (
    dtype_number,
    function_as_model,
    inferred,
    type_of,
    walk,
    without_weights,
)

if TYPE_CHECKING:
    from onnx import ModelProto

    from oprep.converters.twin import RegionPath, TwinPlan


class TwinTypes:
    """Types of originals and candidates by region, from one run of onnx's shape inference.

    A function is typed as at its first call, and only when asked for.
    """

    def __init__(self, model: ModelProto, plan: TwinPlan) -> None:
        """Note the model; nothing is inferred before the first question."""
        self._model, self._plan = model, plan
        self._typed: dict[RegionPath, dict[RegionPath, dict[str, int]]] = {}
        self._with_sites: ModelProto | None = None

    def of(self, region: RegionPath, name: str) -> int:
        """Give the ONNX element type of a value seen from a region; 0 where it is not known."""
        root = region[:1] if region and region[0][0] == "function" else ()
        if root not in self._typed:
            self._typed[root] = {}  # what a recursive question finds
            self._typed[root] = self._infer(root)
        for length in range(len(region), len(root) - 1, -1):
            found = self._typed[root].get(region[:length], {}).get(name, 0)
            if found:
                return found
        return 0

    def _infer(self, root: RegionPath) -> dict[RegionPath, dict[str, int]]:
        model = self._as_model(root)
        after = inferred(model) or model
        found = {}
        for path, graph in walk(after.graph, ()):
            items = (*graph.value_info, *graph.input, *graph.output)
            kinds = {item.name: dtype_number(type_of(item.type)[0] or "") or 0 for item in items}
            kinds.update({item.name: item.data_type for item in graph.initializer})
            found[(*root, *path)] = kinds
        return found

    def _as_model(self, root: RegionPath) -> ModelProto:
        """Give the main graph, or one call of a function, with the sites' nodes at the end."""
        model = self._sites_added()
        if not root:
            return model
        _, domain, name, overload = root[0]
        key = (domain, name, overload)
        function = next(f for f in model.functions if (f.domain, f.name, f.overload) == key)
        for path, node in self._nodes():
            if (node.domain, node.op_type, node.overload) == key:
                inputs = tuple((self._dtype(path, item), None) for item in node.input)
                return function_as_model(model, function, inputs, node.attribute)
        return function_as_model(model, function, (), ())

    def _dtype(self, region: RegionPath, name: str) -> str | None:
        from oprep.converters.frontends.onnx_types import dtype_name

        return dtype_name(self.of(region, name)) if name else None

    def _nodes(self) -> Any:
        for path, graph in walk(self._model.graph, ()):
            for node in graph.node:
                yield path, node
        for function in self._model.functions:
            root = ("function", function.domain, function.name, function.overload)
            for path, graph in walk(function, (root,)):
                for node in graph.node:
                    yield path, node

    def _sites_added(self) -> ModelProto:
        if self._with_sites is None:
            from onnx import ModelProto

            model = ModelProto()
            model.CopyFrom(without_weights(self._model))
            graphs: dict[RegionPath, Any] = dict(walk(model.graph, ()))
            for function in model.functions:
                root = ("function", function.domain, function.name, function.overload)
                graphs.update(walk(function, (root,)))
            for site in self._plan.sites:
                graphs[site.region].node.extend(site.nodes)
            known = {item.domain for item in model.opset_import}
            for domain, version in self._plan.imports:
                if domain not in known:
                    model.opset_import.add(domain=domain, version=version)
            for function in model.functions:
                inside = {item.domain for item in function.opset_import}
                for domain, version in self._plan.imports:
                    if domain not in inside:
                        function.opset_import.add(domain=domain, version=version)
            have = {(f.domain, f.name, f.overload) for f in model.functions}
            model.functions.extend(
                f for f in self._plan.functions if (f.domain, f.name, f.overload) not in have
            )
            self._with_sites = model
        return self._with_sites

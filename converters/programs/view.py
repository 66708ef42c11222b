"""One fx graph and what the matcher asks about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule, Node

from oprep.converters.graph import PRODUCT, SUM, Constant, Opened, Plain, Region
from oprep.converters.programs.aliases import DROPS, RATES, Aliases
from oprep.converters.programs.constants import Constants, width_beside
from oprep.converters.programs.layout import LIST, Layout, named_arguments, plain

if TYPE_CHECKING:
    from oprep.converters.programs.graph import TorchGraph

_KINDS = {
    PRODUCT: ("mul.Tensor", "mul.Scalar", "div.Tensor", "div.Scalar", "neg", "sqrt", "rsqrt",
              "reciprocal", "square", "pow.Tensor_Scalar", "pow.Tensor_Tensor"),
    SUM: ("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "rsub.Scalar", "rsub.Tensor"),
}  # fmt: skip
EXPONENTS = (-3, -2, -1, -0.5, 0.5, 1, 2, 3, 4)
POWERS = {"neg": 1.0, "sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1.0, "square": 2.0}


def in_place(op: str) -> str:
    """Give the name of the form in place: `aten::mul_.Tensor` of `aten::mul.Tensor`."""
    base, dot, overload = op.partition(".")
    return f"{base}_{dot}{overload}"


ARITHMETIC: Mapping[str, str] = {
    form: kind
    for kind, names in _KINDS.items()
    for name in names
    for form in (f"aten::{name}", in_place(f"aten::{name}"))
}


class TorchView:
    """One region of a program. `fx`, `layouts` and `region` are indexed by node.

    `values` names what each fx node gives, `inner` lists the views of the graphs that a node
    calls, `scope` is the module path of the call around this graph.
    """

    arithmetic: Mapping[str, str] = ARITHMETIC
    simple: Mapping[str, int] = {}
    promotes = True
    constant_values: set[Any] | None = None

    def __init__(
        self,
        region: Region,
        graph_module: GraphModule,
        fx: list[Node],
        layouts: list[Layout | None],
        values: dict[Node, str],
        owner: TorchGraph,
        parent: TorchView | None,
        scope: str,
    ) -> None:
        """Look at one graph."""
        self.region = region
        self.graph_module = graph_module
        self.fx = fx
        self.layouts = layouts
        self.values = values
        self.owner = owner
        self.parent = parent
        self.scope = scope
        self.inner: dict[int, list[TorchView]] = {}
        self.constants = Constants(self)
        self._by_name = {item.name: item for item in graph_module.graph.nodes}

    @cached_property
    def aliases(self) -> Aliases:
        """What shares memory in this graph and what is changed in place."""
        return Aliases(self)

    def constant(self, value: Any) -> Constant | None:
        """Give the constant behind a value; None where it is none, or too large to be named."""
        return self.constants.get(value)

    def is_constant(self, value: Any) -> bool:
        """Tell whether a value is a constant of any size."""
        return self.constants.is_constant(value)

    def written(self, constant: Constant) -> list[Any]:
        """Give the elements of a constant as they were written: 0.1, not 0.10000000149."""
        return self.constants.written(constant)

    def not_constant(self, value: Any) -> str:
        """Say why a value is no constant, for a message."""
        if self.held(value) is not None:
            if self.trained(value):
                return f"`{self.value_name(value)}` is a parameter, which training changes"
            if self.aliases.written(value):
                return f"`{self.value_name(value)}` is changed in place"
        return f"`{self.value_name(value)}` is no constant"

    def open(self, node: int) -> Opened | None:
        """Read a node as part of a product or a sum; None where it is not one."""
        op = self.region.ops[node]
        kind = ARITHMETIC.get(op)
        if kind is None or not self.region.inputs[node]:
            return None
        base = op.removeprefix("aten::").partition(".")[0]
        base = base.removesuffix("_")
        first = self.region.inputs[node][0]
        if base in POWERS:
            return Opened(PRODUCT, ((first, POWERS[base]),), -1.0 if base == "neg" else 1.0)
        second = self._second(node)
        if second is None:
            return None
        if base == "pow":
            exponent = self.constant(second)
            if exponent is None or exponent.scalar not in EXPONENTS:
                return None
            return Opened(PRODUCT, ((first, exponent.scalar),))
        if kind == PRODUCT:
            return Opened(PRODUCT, ((first, 1), (second, -1 if base == "div" else 1)))
        alpha = self.attribute(node, "alpha")
        alpha = 1 if alpha is None else alpha
        if isinstance(alpha, bool) or alpha != 1:
            return None
        if base == "rsub":
            return Opened(SUM, ((second, 1), (first, -1)))
        return Opened(SUM, ((first, 1), (second, -1 if base == "sub" else 1)))

    def _second(self, node: int) -> str | None:
        got = self.region.inputs[node]
        if len(got) > 1:
            second: str = got[1]
            return second
        for name in ("other", "exponent"):
            value = self.attribute(node, name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return Plain(value, width_beside(value, self.fx[node].meta.get("val")))
        return None

    def attribute(self, node: int, name: str) -> Any:
        """Give a plain argument by its name in the schema; None where it is not written."""
        layout = self.layouts[node]
        if layout is None:
            return self.fx[node].kwargs.get(name)
        formal = layout.formal(name)
        if formal is None:
            return None
        return self._plain(named_arguments(layout, self.fx[node]).get(name))

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Node):
            return self.values[value]
        if isinstance(value, list | tuple):
            return [self._plain(item) for item in value]
        return plain(value)

    def attributes(self, node: int) -> Sequence[str]:
        """List the plain arguments that a call writes."""
        layout = self.layouts[node]
        if layout is None:
            return list(self.fx[node].kwargs)
        given = named_arguments(layout, self.fx[node])
        return [item.name for item in layout.formals if item.kind == "plain" and item.name in given]

    def meta(self, value: Any) -> Any:
        """Give the fake tensor (or number) that a value was captured with."""
        node = getattr(value, "node", None)
        if node is None:
            return value.number if isinstance(value, Plain) else None
        made = node.meta.get("val")
        if made is None and node.op == "get_attr":
            return self.held(value)
        return made[value.index] if isinstance(made, tuple | list) else made

    def dtypes(self, value: Any) -> tuple[str | None, ...]:
        """Give the dtype; None where the value is no tensor."""
        made = self.meta(value)
        if isinstance(made, torch.Tensor):
            return (str(made.dtype).removeprefix("torch."),)
        return (None,)

    def shapes(self, value: Any) -> tuple[tuple[int | str | None, ...] | None, ...]:
        """Give the shape, symbols by name; None where the value is no tensor."""
        made = self.meta(value)
        if isinstance(made, torch.Tensor):
            return (tuple(dim if isinstance(dim, int) else str(dim) for dim in made.shape),)
        return (() if isinstance(value, Plain) else None,)

    def gives_floats(self, value: Any) -> bool:
        """Tell whether a value is of a floating type."""
        kind = self.dtypes(value)[0]
        return kind is not None and kind.startswith(("float", "bfloat"))

    @cached_property
    def draws(self) -> bool:
        """Tell whether any node of the region draws random numbers or changes anything."""
        return any(self.random(node) for node in range(len(self.fx)))

    def random(self, node: int) -> bool:
        """Tell whether a node draws random numbers or has an effect beside its result."""
        layout = self.layouts[node]
        if layout is None:
            return any(inner.draws for inner in self.inner.get(node, ()))
        if any(formal.writes for formal in layout.formals) and layout.key != "aten::detach_":
            return True
        if not layout.random or any(self.attribute(node, name) is False for name in DROPS):
            return False
        rates = [item for item in layout.formals if item.name in RATES]
        given = [self.attribute(node, item.name) for item in rates]
        return not any(
            (item.default if rate is None else rate) == 0
            for item, rate in zip(rates, given, strict=True)
        )

    def hazard(self, nodes: Sequence[int], roots: Sequence[Any], reads: frozenset[Any]) -> str:
        """Say which change in place stands in the way of a replacement; empty where none does."""
        return self.aliases.hazard(nodes, roots, reads)

    @cached_property
    def names(self) -> list[str]:
        """The names of all nodes, as messages print them: module path, then node."""
        prefix = f"{self.region.label}: " if self.region.label else ""
        return [
            prefix + (f"{scope}/{item.name}" if (scope := self.scope_of(i)) else item.name)
            for i, item in enumerate(self.fx)
        ]

    def node_name(self, node: int) -> str:
        """Name a node as every message does."""
        return self.names[node]

    def scope_of(self, node: int) -> str:
        """Give the path of the module whose forward made a node."""
        stack = self.modules(node)
        return stack[-1][0] if stack else self.scope

    def modules(self, node: int) -> list[tuple[str, str, str]]:
        """Give the modules around a node, outermost first: path, class, and the call's own key."""
        recorded = self.fx[node].meta.get("nn_module_stack") or {}
        found = []
        for key, entry in recorded.items():
            if not isinstance(entry, tuple) or key.startswith("_"):
                continue
            path, kind = entry
            name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
            found.append((_path(path), name, key))
        return found

    def value_name(self, value: Any) -> str:
        """Name a value as every message does."""
        return str(value.number) if isinstance(value, Plain) else str(value)

    # --- what the neighbours ask -----------------------------------------------------------------

    def held(self, value: Any) -> torch.Tensor | None:
        """Give the tensor that this graph holds under a name, if it does."""
        node = self._by_name.get(str(value))
        if node is None:
            return None
        if node.op == "get_attr":
            found: Any = self.graph_module
            for part in str(node.target).split("."):
                found = getattr(found, part, None)
            return found if isinstance(found, torch.Tensor) else None
        return self.owner.tensor(node.name) if self.parent is None else None

    def trained(self, value: Any) -> bool:
        """Tell whether a value is a parameter of the program."""
        return self.parent is None and self.owner.bound.get(str(value), ("",))[0] == "PARAMETER"

    def home(self, value: Any) -> tuple[TorchView, str] | None:
        """Follow an input of a called graph out to where its value lives."""
        node = self._by_name.get(str(value))
        if node is None or node.op not in ("placeholder", "get_attr"):
            return None
        if node.op == "get_attr" or self.parent is None:
            return self, str(value)
        for caller, views in self.parent.inner.items():
            if self in views:
                given = self.parent.operands(caller, self).get(str(value))
                return None if given is None else (self.parent.home(given) or (self.parent, given))
        return None

    def operands(self, node: int, inner: TorchView) -> dict[str, str]:
        """Tell which value each input of a called graph is given; what a loop carries is not."""
        fx = self.fx[node]
        assert isinstance(fx.target, torch._ops.HigherOrderOperator)
        name, arguments = str(fx.target._name), list(fx.args)
        if name == "cond":
            given = list(arguments[3]) if len(arguments) > 3 else []  # type: ignore[arg-type]
        elif name.startswith("wrap_with"):
            first = next(i for i, item in enumerate(arguments)
                         if isinstance(item, Node) and item.op == "get_attr"
                         and str(item.target) == inner.region.path[-1][1])  # fmt: skip
            given = arguments[first + 1 :]
        else:
            return {}
        inputs = [item.name for item in inner.graph_module.graph.nodes if item.op == "placeholder"]
        return {
            name: self.values[item]
            for name, item in zip(inputs, given, strict=False)
            if isinstance(item, Node)
        }

    def results_in_order(self) -> list[str]:
        """Give the results of this graph in order; empty where one is no value."""
        output = next(item for item in self.graph_module.graph.nodes if item.op == "output")
        found = output.args[0]
        items = found if isinstance(found, tuple | list) else (found,)
        return [self.values[item] if isinstance(item, Node) else "" for item in items]

    def now_called(self, value: str, node: int) -> str:
        """Give the result of the change in place by `node` on a value; else the value itself."""
        layout = self.layouts[node]
        if layout is None:
            return value
        given = named_arguments(layout, self.fx[node])
        targets = [given.get(item.name) for item in layout.formals if item.writes]
        for target, result in zip(targets, self.region.outputs[node], strict=False):
            if isinstance(target, Node) and self.values[target] == value:
                return str(result)
        return value

    def replaced_by(self, value: str, root: str) -> bool:
        """Tell whether `root` is the result of a change in place on `value`."""
        return self.now_called(value, self.region.producer[root]) == root

    def changed(self, node: int) -> bool:
        """Tell whether what a node makes is changed in place by another one."""
        own = self.region.outputs[node]
        roots = {self.aliases.root(value) for value in own}
        return any(self.aliases.root(write.value) in roots for write in self.aliases.writes)

    def spread(self, node: int) -> int:
        """Count the inputs of a node before those of its only list of tensors."""
        layout = self.layouts[node]
        return sum(item.kind != LIST for item in layout.row) if layout is not None else 0


def _path(recorded: str) -> str:
    """Read a module path as torch records it: `L['self'].encoder.0` is `encoder.0`."""
    path = recorded.replace("L['self'].", "").replace("L['self']", "")
    return path.partition("@")[0].strip(".")

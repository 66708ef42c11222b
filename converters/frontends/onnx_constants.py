"""Constants of an ONNX region, whatever their encoding: read once, by value.

Initializers (external data included), Constant nodes of every attribute form, through Identity,
Cast and CastLike, and small arithmetic on constants; in this region or one around it. From IR
version 4 on an initializer that is also a graph input can be overridden and is no constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oprep.converters.graph import Constant

if TYPE_CHECKING:
    import numpy as np
    from onnx import NodeProto, TensorProto

    from oprep.converters.frontends.onnx_graph import OnnxView

    Array = np.ndarray[Any, Any]

SMALL = 16
ULP = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
PASSING = frozenset({"Identity", "Cast", "CastLike"})
UNARY = frozenset({"Neg", "Sqrt", "Reciprocal"})
BINARY = frozenset({"Add", "Sub", "Mul", "Div", "Pow"})
FOLDED = PASSING | UNARY | BINARY | {"Constant"}
_MISSING = object()


class Constants:
    """The constants that one region can see; `overridable` names those a caller may replace."""

    def __init__(self, view: OnnxView) -> None:
        """Read nothing yet: most constants of a large graph are never asked for."""
        self.view = view
        self.known: dict[str, Constant | None] = {}
        self.arrays: dict[str, Array | None] = {}
        self.widths: dict[str, float] = {}
        self._initializers: dict[str, TensorProto] | None = None
        self._possible: set[str] | None = None
        self.overridable: frozenset[str] = frozenset()

    def get(self, value: str) -> Constant | None:
        """Give the constant behind a value; None where it is none or has over 16 elements."""
        found = self.known.get(value, _MISSING)
        if found is _MISSING:
            found = self.known[value] = self._read(value) if self.possible(value) else None
        return found  # type: ignore[return-value]

    def possible(self, value: str) -> bool:
        """Tell whether a value is made of constants alone, of any size."""
        if value in self.own():
            return True
        parent = self.view.parent
        return parent is not None and not self._own(value) and parent.constants.possible(value)

    def own(self) -> set[str]:
        """Give all values of this region that are made of constants alone."""
        if self._possible is None:
            self._possible = self._made_of_constants()
        return self._possible

    def _made_of_constants(self) -> set[str]:
        """Walk the foldable nodes once, in order: no recursion, however long a chain is."""
        region = self.view.region
        found = self._possible = set(self.initializers)
        outer = self.view.parent is not None
        outputs = region.outputs
        for node in sorted(node for op in FOLDED for node in region.by_op.get(op, ())):
            for value in self._operands(node):
                if value not in found and not (outer and self.possible(value)):
                    break
            else:
                found.update(outputs[node])
        return found

    @property
    def initializers(self) -> dict[str, TensorProto]:
        """Initializers of this region that no caller can override."""
        if self._initializers is None:
            graph: Any = self.view.graph
            found: dict[str, TensorProto] = {}
            if self.view.region.kind == "graph":
                found = {item.name: item for item in graph.initializer}
                if self.view.owner.model.ir_version >= 4:
                    names = {item.name for item in graph.input}
                    self.overridable = frozenset(names & found.keys())
                    for name in self.overridable:
                        del found[name]
            self._initializers = found
        return self._initializers

    def overrides(self, value: str) -> bool:
        """Tell whether a caller can give another value for an initializer of this region."""
        _ = self.initializers
        return value in self.overridable

    def is_constant(self, value: str) -> bool:
        """Tell whether a value is a constant of any size."""
        return self.possible(value)

    def _own(self, value: str) -> bool:
        if value in self.view.region.producer:
            return True
        if self.view.region.kind != "graph":
            return True
        graph: Any = self.view.graph
        return value in self.initializers or any(item.name == value for item in graph.input)

    def _read(self, value: str) -> Constant | None:
        node = self.view.region.producer.get(value)
        if node is not None and self.view.region.ops[node] not in FOLDED:
            return None
        array = self.array(value)
        if array is None:
            return None
        dtype = str(array.dtype)
        floating = dtype in ULP or dtype.startswith("float")
        items = tuple(array.reshape(-1).tolist())
        return Constant(items, array.shape, dtype, self.widths.get(value, 0.0), floating)

    def array(self, value: str) -> Array | None:
        """Give the elements of a constant of at most 16, dims kept; None where it is none."""
        region = self.view.region
        work = [value]
        while work:
            last = work[-1]
            if last in self.arrays:
                work.pop()
                continue
            node = region.producer.get(last)
            needs = self._operands(node) if node is not None and self.possible(last) else ()
            open_ = [item for item in needs if item in region.producer and item not in self.arrays]
            if open_:
                work += open_
                continue
            self.arrays[last] = self._array(last) if self.possible(last) else None
        return self.arrays[value]

    def _operands(self, node: int) -> tuple[str, ...]:
        """Give the inputs that decide a constant: of CastLike the first one alone."""
        inputs = tuple(item for item in self.view.region.inputs[node] if item)
        return inputs[:1] if self.view.region.ops[node] in PASSING else inputs

    def _array(self, value: str) -> Array | None:
        region = self.view.region
        node = region.producer.get(value)
        if node is not None:
            return self._computed(value, node)
        tensor = self.initializers.get(value)
        if tensor is not None:
            return self._noted(value, self._tensor(tensor))
        parent = self.view.parent
        if parent is None or self._own(value):
            return None
        array = parent.constants.array(value)
        self.widths[value] = parent.constants.widths.get(value, 0.0)
        return array

    def _noted(self, value: str, array: Array | None) -> Array | None:
        if array is not None:
            self.widths[value] = 2 * ULP.get(str(array.dtype), 0.0)
        return array

    def _tensor(self, tensor: TensorProto) -> Array | None:
        from onnx import numpy_helper

        count = 1
        for dim in tensor.dims:
            count *= dim
        if not 0 < count <= SMALL:
            return None
        try:
            if tensor.data_location == tensor.EXTERNAL:
                return self._external(tensor)
            return numpy_helper.to_array(tensor)
        except (ValueError, TypeError, KeyError):
            return None

    def _external(self, tensor: TensorProto) -> Array | None:
        from onnx import TensorProto, numpy_helper

        read = self.view.owner.external
        raw = read(tensor) if read is not None else None
        if raw is None:
            return None
        inline = TensorProto(data_type=tensor.data_type, dims=tensor.dims, raw_data=raw)
        return numpy_helper.to_array(inline)

    def _computed(self, value: str, node: int) -> Array | None:
        op, got = self.view.region.ops[node], self.view.region.inputs[node]
        if op not in FOLDED:
            return None
        if op == "Constant":
            return self._noted(value, _constant_node(self, self.view.nodes[node]))
        arrays = [self.array(item) for item in self._operands(node)]
        if not arrays or arrays[0] is None or (op in BINARY and len(arrays) != 2):
            return None
        width = sum(self.widths.get(item, 0.0) for item in got)
        result = arrays[0] if op == "Identity" else self._folded(op, node, arrays)
        if result is None or result.size > SMALL:
            return None
        own = 2 * ULP.get(str(result.dtype), 0.0)
        self.widths[value] = max(width, own) if op in PASSING else width + own
        return result

    def _folded(self, op: str, node: int, arrays: list[Array | None]) -> Array | None:
        import numpy as np
        from onnx.helper import tensor_dtype_to_np_dtype

        first, second = arrays[0], arrays[1] if len(arrays) > 1 else None
        if first is None or (op in BINARY and second is None):
            return None
        with np.errstate(all="ignore"):
            if op in UNARY and first.dtype.kind in "iub":
                return None
            if op == "Cast":
                to = self.view.attribute(node, "to")
                return first.astype(tensor_dtype_to_np_dtype(to)) if isinstance(to, int) else None
            if op == "CastLike":
                dtype = self.view.dtypes(self.view.region.inputs[node][1])
                return first.astype(dtype[0]) if len(set(dtype)) == 1 and dtype[0] else None
            if op in UNARY:
                unary: dict[str, Any] = {
                    "Neg": np.negative, "Sqrt": np.sqrt, "Reciprocal": np.reciprocal
                }  # fmt: skip
                made = unary[op](first)
            elif first.dtype.kind in "iu" and op in ("Div", "Pow"):
                return None
            else:
                binary: dict[str, Any] = {
                    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply,
                    "Div": np.divide, "Pow": np.power,
                }  # fmt: skip
                made = binary[op](first, second)
        return np.asarray(made).astype(first.dtype)


def shortest(value: float, dtype: str) -> float:
    """Give the shortest decimal that is this number in its dtype: 0.1, not 0.10000000149.

    So `when = "value(c) == 0.1"` and messages see what was written before it was stored.
    """
    import numpy as np

    if dtype not in ("float16", "float32"):
        return value
    return float(str(np.dtype(dtype).type(value)))


def _constant_node(constants: Constants, node: NodeProto) -> Array | None:
    import numpy as np

    for attribute in node.attribute:
        if attribute.ref_attr_name:
            return None
        name = attribute.name
        if name == "value":
            return constants._tensor(attribute.t)
        if name == "value_float":
            return np.array(attribute.f, np.float32)
        if name == "value_int":
            return np.array(attribute.i, np.int64)
        if name == "value_floats" and 0 < len(attribute.floats) <= SMALL:
            return np.array(attribute.floats, np.float32)
        if name == "value_ints" and 0 < len(attribute.ints) <= SMALL:
            return np.array(attribute.ints, np.int64)
        if name == "value_string":
            return np.array(attribute.s.decode("utf-8", "replace"), object)
    return None

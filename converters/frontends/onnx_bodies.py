"""The model-local functions that the new nodes of a conversion need, one per op or per use.

From opset 15 one function per op; below, one per op, dtype and attribute values, told apart by
`overload` where there are several. A function of that name that the model already has is reused
where it is equal, and refused where it is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from oprep.converters.frontends.onnx_body import body_function, equal_bodies, is_generic
from oprep.converters.frontends.onnx_graph import OnnxGraph, OnnxView, Reference, plain_attribute
from oprep.converters.frontends.onnx_types import dtype_name, dtype_number
from oprep.converters.graph import Attribute, Many, Value, View
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.rule import REQUIRED, CustomOp

if TYPE_CHECKING:
    from onnx import FunctionProto, ModelProto, NodeProto

TENSORS = frozenset({"tensor", "optional", "tensors"})
GENERIC = 15
INT64 = 7
Dtypes: TypeAlias = "tuple[tuple[str, int | None], ...]"


class Place(Protocol):
    """Where new nodes stand: a match, or a node that an exporter wrote."""

    @property
    def view(self) -> View:
        """The region."""

    @property
    def bound(self) -> Mapping[str, Any]:
        """The values that go in, by variable."""

    @property
    def roots(self) -> Sequence[Value]:
        """The values that come out."""


def opset_of(place: Place) -> int:
    """Give the version of the standard domain in the region of a match."""
    assert isinstance(place.view, OnnxView)
    return place.view.opset


class Bodies:
    """Collect the functions while nodes are written, in the order in which they are needed."""

    def __init__(self, graph: OnnxGraph, ops: Mapping[str, CustomOp]) -> None:
        """Begin with no function for the ops, which are given by torch and ONNX name."""
        self.graph = graph
        self.ops = ops
        self.all = tuple(dict.fromkeys(ops.values()))
        self.by_id = {(op.onnx.domain, op.onnx.type): op for op in self.all}
        self.made: dict[tuple[Any, ...], FunctionProto] = {}
        self.counts: dict[tuple[str, str], int] = {}
        self.generic: dict[tuple[str, str, int], bool] = {}
        self.existing = {(item.domain, item.name, item.overload): item
                         for item in graph.model.functions}  # fmt: skip

    def is_generic(self, op: CustomOp, opset: int) -> bool:
        """Tell whether one function serves every use of an op."""
        key = (op.onnx.domain, op.onnx.type, opset)
        if key not in self.generic:
            variadic = any(item.kind == "tensors" for item in op.parameters)
            self.generic[key] = (
                not variadic
                and is_generic(op, opset=opset, ops=self.all)
                and not self._by_dtype(op, opset)
            )
        return self.generic[key]

    def _by_dtype(self, op: CustomOp, opset: int) -> bool:
        """Tell whether integers need other nodes than the generic body has (Div for Floor)."""
        whole: dict[str, int | None] = {
            item.name: INT64 for item in op.parameters if item.kind in TENSORS
        }
        plain = {item.name: item.default for item in op.parameters
                 if item.kind not in TENSORS and item.default is not REQUIRED}  # fmt: skip
        try:
            integer = body_function(op, opset=opset, dtype=whole, attributes=plain, ops=self.all)
            generic = body_function(op, opset=opset, ops=self.all)
        except OprepError:
            return False  # the body has no meaning on integers
        return _steps(integer) != _steps(generic)

    def missing(self, match: Place, used: Sequence[CustomOp]) -> str:
        """Say why a body cannot be written for a match: below opset 15 its dtype must be known."""
        opset = opset_of(match)
        for op in used:
            if op.body is None or self.is_generic(op, opset):
                continue
            for item in match.bound.values():
                if isinstance(item, Attribute) and isinstance(item.value, Reference):
                    return (
                        f"a value of the match is the function's attribute `{item.value.name}`,"
                        f" the body needs its value below opset {GENERIC}"
                    )
            if self._dtype(match) is None:
                return (
                    f"the dtype of `{self._first(match)}` is unknown, the body of `{op.onnx}` "
                    f"needs it" + ("" if opset >= GENERIC else f" below opset {GENERIC}")
                )
        return ""

    def _first(self, match: Place) -> str:
        for value in match.bound.values():
            if isinstance(value, Many) and value.values:
                return str(value.values[0])
            if isinstance(value, str):
                return value
        return "?"

    def _dtype(self, match: Place) -> int | None:
        """Give the dtype of the match's first tensor that is a floating one, else of the first."""
        found: list[str] = []
        for value in [*match.bound.values(), *match.roots]:
            for item in value.values if isinstance(value, Many) else (value,):
                if not isinstance(item, str):
                    continue
                kinds = set(match.view.dtypes(item))
                if len(kinds) == 1 and None not in kinds:
                    found.append(next(iter(kinds)))  # type: ignore[arg-type]
        floating = [kind for kind in found if kind.startswith(("float", "bfloat", "double"))]
        chosen = (floating or found)[:1]
        return dtype_number(chosen[0]) if chosen else None

    def _dtypes(self, match: Place, op: CustomOp, node: NodeProto) -> Dtypes:
        """Give the dtype of each tensor parameter; that of the match where one is not known."""
        whole = self._dtype(match)
        tensors = [item for item in op.parameters if item.kind in TENSORS]
        found: list[tuple[str, int | None]] = []
        for position, item in enumerate(tensors):
            value = node.input[position] if position < len(node.input) else ""
            kinds = set(match.view.dtypes(value)) if value else {None}
            kind = kinds.pop() if len(kinds) == 1 else None
            found.append((item.name, dtype_number(kind) if kind is not None else whole))
        return tuple(found)

    def attend(self, match: Place, nodes: Sequence[NodeProto]) -> None:
        """Make sure that each custom node has its function; set `overload` where one is needed."""
        for node in nodes:
            op = self.by_id.get((node.domain, node.op_type))
            if op is not None and op.body is not None:
                generic = self.is_generic(op, opset_of(match))
                dtypes = None if generic else self._dtypes(match, op, node)
                overload = self.function(op, node, dtypes, opset_of(match))
                if overload or node.overload:
                    node.overload = overload

    def function(self, op: CustomOp, node: NodeProto, dtypes: Dtypes | None, opset: int) -> str:
        """Give the overload under which the function for one use of an op is found."""
        if dtypes is None:
            key: tuple[Any, ...] = (str(op.onnx), None, (), 0)
        else:
            values = {item.name: plain_attribute(item) for item in node.attribute}
            plain = tuple(
                (item.name, repr(values.get(item.name, item.default)))
                for item in op.parameters
                if item.kind not in TENSORS
            )
            key = (str(op.onnx), dtypes, plain, self._variadic(op, node))
        if key not in self.made:
            self.made[key] = self._make(op, node, dtypes, opset, key[3])
        return self.made[key].overload

    def _variadic(self, op: CustomOp, node: NodeProto) -> int:
        fixed = sum(1 for item in op.parameters if item.kind in ("tensor", "optional"))
        many = any(item.kind == "tensors" for item in op.parameters)
        return max(0, len(node.input) - fixed) if many else 0

    def _make(
        self, op: CustomOp, node: NodeProto, dtypes: Dtypes | None, opset: int, variadic: int
    ) -> FunctionProto:
        attributes = None
        if dtypes is not None:
            given = {item.name: plain_attribute(item) for item in node.attribute}
            attributes = {
                item.name: given.get(item.name, item.default)
                for item in op.parameters
                if item.kind not in TENSORS and given.get(item.name, item.default) is not REQUIRED
            }
        name = (op.onnx.domain, op.onnx.type)
        number = self.counts.get(name, 0)
        self.counts[name] = number + 1
        kind = dtype_name(dtypes[0][1] or 0) if dtypes else ""
        overload = "" if not number else f"{kind}_{number}"
        made = body_function(
            op,
            opset=opset,
            dtype=dict(dtypes) if dtypes is not None else None,
            attributes=attributes,
            overload=overload,
            variadic=variadic,
            imports={entry.domain: entry.version for entry in self.graph.model.opset_import},
            ops=self.all,
        )
        self._inner(op, made, dtypes, opset)
        present = self.existing.get((*name, overload))
        if present is not None and not equal_bodies(present, made):
            raise OprepError(
                f"the model already has another function `{op.onnx}`",
                str(op.source),
                (f"the model's: {_written(present)}", f"the rule file's: {_written(made)}"),
                "give the op another `onnx` name",
                ExitCode.EXPECTATION,
            )
        return made

    def _inner(self, op: CustomOp, made: FunctionProto, dtypes: Dtypes | None, opset: int) -> None:
        """Bring along the functions of custom ops that a body calls."""
        for node in made.node:
            inner = self.by_id.get((node.domain, node.op_type))
            if inner is None or inner.body is None or inner is op:
                continue
            first = dtypes[0][1] if dtypes else None
            tensors = (item.name for item in inner.parameters if item.kind in TENSORS)
            known = tuple((name, first) for name in tensors)
            own = None if self.is_generic(inner, opset) else known
            node.overload = self.function(inner, node, own, opset)

    def add_to(self, model: ModelProto) -> list[str]:
        """Put the functions into a model, those it lacks; give their names, sorted.

        They come first: onnx's reference evaluator wants a function before what calls it.
        """
        new = [made for made in self.made.values()
               if (made.domain, made.name, made.overload) not in self.existing]  # fmt: skip
        for position, made in enumerate(new):
            model.functions.insert(position, made)
        return sorted({f"{made.domain}::{made.name}" for made in self.made.values()})


def _steps(function: FunctionProto) -> list[str]:
    return [node.op_type for node in function.node
            if node.op_type not in ("Constant", "CastLike", "Cast")]  # fmt: skip


def _written(function: FunctionProto) -> str:
    """Print a function in ONNX text syntax, on one line."""
    import onnx.printer

    text: str = onnx.printer.to_text(function)
    return " ".join(text.split())


def import_domains(model: ModelProto, used: Mapping[str, tuple[int, str]]) -> None:
    """Add the opset imports that new nodes need; an import of another version is refused.

    `used` maps a domain to the version of its ops and the place of the one that asks for it.
    """
    present = {entry.domain: entry.version for entry in model.opset_import}
    for domain, (version, where) in sorted(used.items()):
        if domain in present:
            if present[domain] != version:
                raise OprepError(
                    f"the model imports `{domain}` in version {present[domain]}",
                    where,
                    (f"the op is of version {version}",),
                    f"write `version = {present[domain]}` in the op's `onnx`",
                    ExitCode.EXPECTATION,
                )
            continue
        model.opset_import.add(domain=domain, version=version)


def import_in_functions(model: ModelProto, changed: set[tuple[str, str, str]]) -> None:
    """Give each changed function the imports of its nodes' domains, as the model has them."""
    present = {entry.domain: entry.version for entry in model.opset_import}
    for function in model.functions:
        if (function.domain, function.name, function.overload) not in changed:
            continue
        own = {entry.domain for entry in function.opset_import}
        for domain in sorted({node.domain for node in _all_nodes(function.node)} - own):
            if domain in present and domain not in ("", "ai.onnx"):
                function.opset_import.add(domain=domain, version=present[domain])


def _all_nodes(nodes: Any) -> Any:
    from oprep.converters.frontends.onnx_graph import graphs_of

    for node in nodes:
        yield node
        for _, _, graph in graphs_of(node):
            yield from _all_nodes(graph.node)

"""Write single ONNX nodes by their schema: what is an input, what an attribute, of which dtype.

Numbers become constants of the dtype that the schema or a neighbour asks for. Where that dtype is
unknown, CastLike gives it (opset 15 and later).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oprep.converters.frontends import onnx_values as values
from oprep.converters.frontends.onnx_schema import (
    FormalInput,
    Schema,
    newest_opset,
    schema,
    standard_domain,
    versions,
)
from oprep.converters.frontends.onnx_types import dtype_name, dtype_number
from oprep.converters.frontends.onnx_values import AttributeRef, Tensor
from oprep.converters.graph import ABSENT
from oprep.opsets.errors import ExitCode, OprepError

if TYPE_CHECKING:
    from onnx import NodeProto

CAST_LIKE = 15
"""The opset that brought CastLike."""

_VALUE_KEYS = {
    "float": "value_float", "floats": "value_floats", "int": "value_int", "ints": "value_ints",
    "bool": "value_int", "bools": "value_ints",
}  # fmt: skip
_INDICES = frozenset(("tensor(int32)", "tensor(int64)"))


@dataclass
class NodeWriter:
    """Collects nodes in topological order; `fresh` makes tensor names that the graph lacks."""

    opset: int
    fresh: Callable[[str], str]
    where: str = ""
    nodes: list[NodeProto] = field(default_factory=list)
    domains: set[str] = field(default_factory=set)
    _constants: dict[tuple[Any, ...], Tensor] = field(default_factory=dict)

    def standard(
        self, op: str, inputs: Sequence[Any], attributes: Mapping[str, Any], outputs: int = 1
    ) -> list[Tensor]:
        """Write a node of the standard domain; numbers among its inputs become constants."""
        return self.by_schema("", op, inputs, attributes, outputs)

    def by_schema(
        self,
        domain: str,
        op: str,
        inputs: Sequence[Any],
        attributes: Mapping[str, Any],
        outputs: int = 1,
    ) -> list[Tensor]:
        """Write a node of an op that `onnx` knows in this opset; refuse what that one lacks."""
        formal = self.schema(domain, op)
        settled = self._settled(formal, inputs)
        kinds = {name: info.kind for name, info in formal.attributes.items()}
        # numbers aside, a result of loose operands alone is a number of no fixed dtype, too
        known = [item for item in inputs if isinstance(item, Tensor | AttributeRef)]
        loose = bool(known) and all(getattr(item, "loose", True) for item in known)
        results = [
            Tensor(self.fresh(op.lower()), dtype, loose and dtype != values.BOOL)
            for dtype in self._output_dtypes(formal, settled, attributes, outputs)
        ]
        self.append(op, domain, settled, results, attributes, kinds)
        return results

    def schema(self, domain: str, op: str) -> Schema:
        """Give the schema of an op in this opset, else say which opset has it."""
        found = schema(domain, op, self.opset)
        if found is not None:
            return found
        first = min(versions(domain, op), default=None)
        if first is None:
            raise self.error(f"`{op}` is no op of ONNX", "correct the name", ExitCode.RULES)
        raise self.too_old(f"`{op}`", first)

    def append(
        self,
        op: str,
        domain: str,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor],
        attributes: Mapping[str, Any],
        kinds: Mapping[str, str],
    ) -> None:
        """Add one node as it is; None among the inputs is an empty slot."""
        from onnx import NodeProto

        node = NodeProto(op_type=op, domain=standard_domain(domain))
        names = [item.name if item else "" for item in inputs]
        while names and not names[-1]:
            names.pop()
        node.input.extend(names)
        node.output.extend(item.name for item in outputs)
        for name, value in attributes.items():
            if isinstance(value, Tensor):
                message = f"`{name}` of `{op}` is an attribute, a tensor is given"
                raise self.error(message, "pass a constant")
            if value is not None and value is not ABSENT:
                node.attribute.append(values.attribute(name, kinds[name], value))
        self.nodes.append(node)
        self.domains.add(node.domain)

    def settle(self, item: Any, like: Tensor | None, dtype: int | None = None) -> Tensor | None:
        """Make an operand a tensor: of `dtype` where that is fixed, else of that of `like`."""
        if item is ABSENT or item is None:
            return None
        wanted = dtype if dtype is not None else like.dtype if like else None
        if isinstance(item, Tensor):
            if not item.loose or (like is None and dtype is None) or item.dtype == wanted:
                return item
            return self._cast(item, like, wanted)
        if isinstance(item, AttributeRef):
            return self.settle(self.reference(item, exact=wanted == values.INT64), like, dtype)
        if isinstance(item, str):
            raise self.error(f'the string "{item}" is no tensor', "write a number or a variable")
        return self._constant(item, like, wanted)

    def reference(self, ref: AttributeRef, *, exact: bool = False) -> Tensor:
        """Make the value of a function's attribute a tensor; float32 unless `exact`."""
        key = _VALUE_KEYS.get(ref.kind)
        if key is None:
            raise self.error(
                f"attribute `{ref.name}` is no number", "pass it to a parameter that takes a string"
            )
        found = self._constants.get((ref, exact))
        if found is None:
            is_float = ref.kind.startswith("float")
            kind = values.FLOAT if is_float else values.INT64
            found = Tensor(self.fresh(ref.name), kind, loose=True)
            kinds = {key: values.ATTRIBUTE_KINDS[ref.kind]}
            self.append("Constant", "", [], [found], {key: ref}, kinds)
            if not is_float and not exact:
                found = self._cast(found, None, values.FLOAT)
            self._constants[ref, exact] = found
        return found

    def error(
        self, message: str, help: str, code: ExitCode = ExitCode.EXPECTATION, *notes: str
    ) -> OprepError:
        """Make an error at the place that this writer was given."""
        return OprepError(message, self.where, notes, help, code)

    def too_old(self, what: str, first: int) -> OprepError:
        """Make the error for what this opset cannot say, and name the opset that can."""
        return self.error(
            f"{what} needs opset {first}, the model has {self.opset}",
            f"convert the model to opset {first} first, or write it in ops that {self.opset} has",
        )

    def _constant(self, value: Any, like: Tensor | None, dtype: int | None) -> Tensor:
        if dtype is None and like is None:
            message = f"nothing says which dtype the number {value!r} has"
            raise self.error(message, "write it beside a tensor, or cast it", ExitCode.RULES)
        if dtype is None and self.opset < CAST_LIKE:
            raise self.error(
                f"the dtype beside the number {value!r} is unknown",
                "run shape inference on the model, or convert it to opset 15 or later",
                ExitCode.EXPECTATION,
                f"CastLike needs opset {CAST_LIKE}, the model has {self.opset}",
            )
        key = (repr(value), dtype, like.name if like and dtype is None else "")
        if key not in self._constants:
            made = values.tensor(value, values.loose_dtype(value) if dtype is None else dtype)
            out = Tensor(self.fresh("constant"), made.data_type, loose=dtype is None)
            self.append("Constant", "", [], [out], {"value": made}, {"value": "TENSOR"})
            self._constants[key] = out if dtype is not None else self._cast(out, like, None)
        return self._constants[key]

    def _cast(self, item: Tensor, like: Tensor | None, dtype: int | None) -> Tensor:
        """Bring a loose tensor to a dtype, or to the unknown one of its neighbour."""
        if dtype is None and like is not None:
            out = Tensor(self.fresh("constant"))
            self.append("CastLike", "", [item, like], [out], {}, {})
            return out
        out = Tensor(self.fresh("constant"), dtype, loose=like is None)
        self.append("Cast", "", [item], [out], {"to": dtype}, {"to": "INT"})
        return out

    def _settled(self, formal: Schema, inputs: Sequence[Any]) -> list[Tensor | None]:
        self._check_count(formal, inputs)
        last = len(formal.inputs) - 1
        slots = [formal.inputs[min(i, last)] for i in range(len(inputs))]
        settled: list[Tensor | None] = []
        for item, slot in zip(inputs, slots, strict=True):
            # the exponent of Pow has a type of its own, but a number there is one of the base's
            alike = [s.type_var == slot.type_var or formal.op == "Pow" for s in slots]
            like = self._neighbour(inputs, alike)
            only = values.dtype_of_type(min(slot.types)) if len(slot.types) == 1 else None
            if slot.types == _INDICES and not any(
                same and isinstance(one, Tensor) for same, one in zip(alike, inputs, strict=True)
            ):
                only = values.INT64
            made = self.settle(item, like, only)
            self._check_type(formal, slot, made)
            settled.append(made)
        return settled

    def _check_count(self, formal: Schema, inputs: Sequence[Any]) -> None:
        most, given = len(formal.inputs), len(inputs)
        if given > most and not formal.variadic_inputs:
            message = f"`{formal.op}` takes at most {most} inputs, {given} are given"
            raise self.error(message, "remove the rest", ExitCode.RULES)
        required = [item for item in inputs[: formal.least_inputs] if item not in (ABSENT, None)]
        if len(required) < formal.least_inputs:
            message = f"`{formal.op}` takes at least {formal.least_inputs} inputs"
            raise self.error(message, "pass the missing ones", ExitCode.RULES)

    def _neighbour(self, inputs: Sequence[Any], alike: Sequence[bool]) -> Tensor | None:
        """Find the tensor whose dtype a number takes: one of its own type before any other."""
        found: list[tuple[int, int, Any]] = []
        for i, (item, same) in enumerate(zip(inputs, alike, strict=True)):
            if isinstance(item, Tensor) and (same or not item.loose):
                found.append(((0 if not item.loose else 1) if same else 2, i, item))
            elif isinstance(item, AttributeRef) and same and item.kind in _VALUE_KEYS:
                found.append((1, i, item))
        if not found:
            return None
        best = min(found, key=lambda entry: entry[:2])[2]
        return self.reference(best) if isinstance(best, AttributeRef) else best

    def _check_type(self, formal: Schema, slot: FormalInput, item: Tensor | None) -> None:
        if item is None or item.dtype is None or values.type_string(item.dtype) in slot.types:
            return
        text, dtype = values.type_string(item.dtype), dtype_name(item.dtype)
        for version in versions(formal.domain, formal.op):
            later = schema(formal.domain, formal.op, version)
            if version > self.opset and later and later.accepts(slot.name, text):
                raise self.too_old(f"`{formal.op}` on {dtype}", version)
        message = f"`{formal.op}` takes no {dtype} as `{slot.name}`"
        note = f"opset {self.opset} is in use, the newest is {newest_opset()}"
        help = "cast it to a dtype that the op takes"
        raise self.error(message, help, ExitCode.EXPECTATION, note)

    def _output_dtypes(
        self,
        formal: Schema,
        inputs: Sequence[Tensor | None],
        attributes: Mapping[str, Any],
        count: int,
    ) -> list[int | None]:
        last = len(formal.inputs) - 1
        by_var: dict[str, int | None] = {}
        for i, item in enumerate(inputs):
            if item is not None:
                by_var.setdefault(formal.inputs[min(i, last)].type_var, item.dtype)
        found: list[int | None] = []
        for i in range(count):
            at = min(i, len(formal.outputs) - 1)
            if i > at and not formal.variadic_outputs:
                message = f"`{formal.op}` has {at + 1} outputs, {count} are named"
                raise self.error(message, "name fewer", ExitCode.RULES)
            types, var = formal.output_types[at], formal.output_type_vars[at]
            if formal.op == "Cast":
                to = attributes.get("to")
                found.append(dtype_number(to) if isinstance(to, str) else to)
            elif len(types) == 1:
                found.append(values.dtype_of_type(next(iter(types))))
            else:
                found.append(by_var.get(var))
        return found

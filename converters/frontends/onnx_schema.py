"""The formal side of standard ONNX ops: inputs, attributes with defaults, outputs, by opset.

One cached view of `onnx.defs`, so that matching and writing read plain values and never touch
the C++ objects twice. Domains that `onnx` does not know (`com.microsoft`) have no schema here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx.defs import OpSchema


FLOATING = ("tensor(float", "tensor(double", "tensor(bfloat16")


@dataclass(frozen=True, slots=True)
class FormalInput:
    """One formal input of an op; a variadic one is the last and takes all that remain.

    `types` are the type strings it accepts (`tensor(float)`), `type_var` the name of its type
    variable, which is equal for two formals of one type.
    """

    name: str
    optional: bool
    variadic: bool
    type_var: str
    types: frozenset[str]


@dataclass(frozen=True, slots=True)
class AttributeInfo:
    """One attribute: its kind as `onnx` writes it (`INT`, `FLOATS`, …) and its default.

    `default` is a plain Python value (float, int, str, list or a message), None where the schema
    gives none.
    """

    kind: str
    required: bool
    default: Any


@dataclass(frozen=True, slots=True)
class Schema:
    """What one op looks like in one opset; `since` is the version of this form of it.

    `output_type_vars` are type variables as in `FormalInput`: equal ones are one type.
    `float_only` says that every output is of a floating type, whatever the inputs are.
    """

    domain: str
    op: str
    since: int
    inputs: tuple[FormalInput, ...]
    attributes: Mapping[str, AttributeInfo]
    outputs: tuple[str, ...]
    output_type_vars: tuple[str, ...]
    output_types: tuple[frozenset[str], ...]
    variadic_inputs: bool
    variadic_outputs: bool
    least_inputs: int
    float_only: bool

    def input_index(self, name: str) -> int | None:
        """Give the position of the input called `name`, None where there is none."""
        return next((i for i, formal in enumerate(self.inputs) if formal.name == name), None)

    def accepts(self, name: str, type_string: str) -> bool:
        """Tell whether the input called `name` takes a type such as `tensor(float)`."""
        return any(formal.name == name and type_string in formal.types for formal in self.inputs)


def standard_domain(domain: str) -> str:
    """Give the one spelling of a domain: `ai.onnx` and the empty one are the same."""
    return "" if domain == "ai.onnx" else domain


@cache
def schema(domain: str, op: str, opset: int) -> Schema | None:
    """Give the schema of an op in an opset; None where `onnx` knows none or it was withdrawn."""
    import onnx.defs

    try:
        found = onnx.defs.get_schema(op, opset, standard_domain(domain))
    except onnx.defs.SchemaError:
        return None
    return None if found.deprecated else _plain(found)


@cache
def versions(domain: str, op: str) -> tuple[int, ...]:
    """Give the opset versions in which an op was defined anew, oldest first; empty if unknown."""
    return tuple(sorted(_versions_by_op().get((standard_domain(domain), op), ())))


@cache
def newest_opset() -> int:
    """Give the newest version of the standard domain that the installed `onnx` knows."""
    import onnx.defs

    return onnx.defs.onnx_opset_version()


@cache
def _versions_by_op() -> dict[tuple[str, str], list[int]]:
    import onnx.defs

    table: dict[tuple[str, str], list[int]] = {}
    for found in onnx.defs.get_all_schemas_with_history():
        if not found.deprecated:
            table.setdefault((found.domain, found.name), []).append(found.since_version)
    return table


def _plain(found: OpSchema) -> Schema:
    from onnx.defs import OpSchema

    option = OpSchema.FormalParameterOption
    inputs = tuple(
        FormalInput(
            formal.name,
            formal.option == option.Optional,
            formal.option == option.Variadic,
            formal.type_str,
            frozenset(formal.types),
        )
        for formal in found.inputs
    )
    outputs = found.outputs
    return Schema(
        domain=found.domain,
        op=found.name,
        since=found.since_version,
        inputs=inputs,
        attributes=MappingProxyType(
            {name: _attribute(item) for name, item in found.attributes.items()}
        ),
        outputs=tuple(formal.name for formal in outputs),
        output_type_vars=tuple(formal.type_str for formal in outputs),
        output_types=tuple(frozenset(formal.types) for formal in outputs),
        variadic_inputs=any(formal.variadic for formal in inputs),
        variadic_outputs=any(formal.option == option.Variadic for formal in outputs),
        least_inputs=found.min_input,
        float_only=bool(outputs)
        and all(kind.startswith(FLOATING) for formal in outputs for kind in formal.types),
    )


def _attribute(item: OpSchema.Attribute) -> AttributeInfo:
    from onnx import AttributeProto
    from onnx.helper import get_attribute_value

    default = None
    if item.default_value.type != AttributeProto.UNDEFINED:
        default = get_attribute_value(item.default_value)
        default = default.decode() if isinstance(default, bytes) else default
        if isinstance(default, list):
            default = [part.decode() if isinstance(part, bytes) else part for part in default]
    kind = str(item.type).rpartition(".")[2]
    return AttributeInfo(kind, item.required, default)

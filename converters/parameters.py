"""The parameters of a vocabulary function as one node has them: as they stand, or computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from oprep.converters.forms import AttributeWant, NodeForm, plain_of
from oprep.converters.normal import Wanted
from oprep.converters.state import State
from oprep.opsets.arithmetic import Unknown
from oprep.opsets.computing import compute
from oprep.opsets.expression import UNKNOWN


def read(state: State, node: int, item: AttributeWant, form: NodeForm, *, raw: bool = False) -> Any:
    """Give a parameter's value, in the one way of writing it unless `raw`; else an `Unknown`."""
    if item.reads is not None:
        value = compute(item.reads, Node(state, node, form))
    else:
        value = state.view.attribute(node, item.name)
        value = item.default if value is None else value
    if raw or item.means is None or isinstance(value, Unknown):
        return value
    return _settled(state, node, item, form, {item.parameter: value}, value)


def meaning(state: State, node: int, item: AttributeWant, form: NodeForm, wanted: Any) -> Any:
    """Give what a pattern says of a parameter in the one way of writing it."""
    plain = unwrapped(wanted)
    return _settled(state, node, item, form, {**form.said, item.parameter: plain}, wanted)


def _settled(
    state: State,
    node: int,
    item: AttributeWant,
    form: NodeForm,
    values: Mapping[str, Any],
    otherwise: Any,
) -> Any:
    assert item.means is not None
    found = compute(item.means, Parameters(state, node, form, values, raw=True))
    return otherwise if isinstance(found, Unknown) else found


def unwrapped(value: Any) -> Any:
    """Give a literal of a pattern as a plain value."""
    if isinstance(value, list):
        return [unwrapped(item) for item in value]
    return value.value if isinstance(value, Wanted) else value


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a condition over the parameters can ask; `values` go before what the node has."""

    state: State
    node: int
    form: NodeForm
    values: Mapping[str, Any] = field(default_factory=dict)
    raw: bool = False

    def name(self, name: str) -> object:
        """Give a parameter's plain value."""
        if name in self.values:
            return self.values[name]
        for item in self.form.attributes:
            if item.parameter == name:
                return read(self.state, self.node, item, self.form, raw=self.raw)
        for parameter, settled in self.form.settled:
            if parameter == name:
                return settled
        value = self._value(name)
        if value == "":
            return self._absent(name)
        constant = self.state.view.constant(value) if value else None
        return UNKNOWN if constant is None else plain_of(constant)

    def call(self, function: str, arguments: tuple[object, ...]) -> object:
        """Answer what a condition asks about a tensor."""
        value = self._value(str(arguments[0])) if arguments else None
        view = self.state.view
        if function == "present":
            return bool(value)
        if not value:
            return UNKNOWN
        if function in ("rank", "shape", "dim"):
            shapes = view.shapes(value)
            if not shapes or any(shape is None for shape in shapes):
                return UNKNOWN
            ranks = {len(shape) for shape in shapes if shape is not None}
            if function == "rank":
                return ranks.pop() if len(ranks) == 1 else UNKNOWN
            if len(set(shapes)) != 1:
                return UNKNOWN
            sizes = list(shapes[0] or ())
            return sizes if function == "shape" else _size(sizes, arguments[1])
        if function == "dtype":
            kinds = set(view.dtypes(value))
            return kinds.pop() if len(kinds) == 1 and None not in kinds else UNKNOWN
        if function == "is_const":
            return view.constant(value) is not None
        return UNKNOWN

    def _value(self, name: str) -> Any:
        got = self.state.inputs[self.node]
        for i, item in enumerate(self.form.inputs):
            if item.parameter == name:
                return got[i] if i < len(got) else ""
        return None

    def _absent(self, name: str) -> object:
        return next(item.absent for item in self.form.inputs if item.parameter == name)


def _size(sizes: list[Any], axis: object) -> object:
    if not isinstance(axis, int) or not -len(sizes) <= axis < len(sizes):
        return UNKNOWN
    return sizes[axis] if isinstance(sizes[axis], int) else UNKNOWN


@dataclass(frozen=True, slots=True)
class Node:
    """What the node itself says: attributes, constant inputs, how many outputs it has."""

    state: State
    node: int
    form: NodeForm

    def name(self, name: str) -> object:
        """Give an attribute or a constant input by the name that the op's schema gives it."""
        if name == "outputs":
            return len(self.state.outputs[self.node])
        if name in self.form.formals:
            value = self.state.view.attribute(self.node, name)
            return self.form.formals[name] if value is None else value
        if name not in self.form.places:
            return UNKNOWN
        at, got = self.form.places.index(name), self.state.inputs[self.node]
        value = got[at] if at < len(got) else ""
        if value == "":
            return None
        constant = self.state.view.constant(value)
        if constant is None:
            return Unknown(self.state.view.not_constant(value))
        return plain_of(constant)

    def call(self, function: str, arguments: tuple[object, ...]) -> object:
        """Answer what is asked about a parameter that is a tensor."""
        found = Parameters(self.state, self.node, self.form).call(function, arguments)
        if function != "shape" or not isinstance(found, list):
            return found
        return [size if isinstance(size, int) else UNKNOWN for size in found]

"""What the matcher sees of a model: regions of nodes and values, the same for every front-end.

Plain lists and dicts, because a matcher that calls a method for each look-up is twice as slow.
A value is a name, unique in its region and empty where an input is absent; in PyTorch programs it
may also be a `Plain` number or a list (`Several`). A node is an index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

Value: TypeAlias = Any

PRODUCT, SUM = "product", "sum"


class Plain(str):
    """A number where a tensor could stand, as `2` in `x * 2`: a value that is its own constant.

    `width` is its relative uncertainty: 2 ulp of the dtype of the tensors beside it.
    """

    number: int | float | bool | complex
    width: float

    def __new__(cls, number: int | float | bool | complex, width: float = 0.0) -> Plain:
        """Make the value of a number; equal numbers of one type are equal values."""
        made = super().__new__(cls, f"={number!r}")
        made.number, made.width = number, width
        return made


class Several(str):
    """A list of tensors that is one argument among other lists, as `hx` of an LSTM."""

    items: tuple[Value, ...]

    def __new__(cls, items: Sequence[Value]) -> Several:
        """Make the value of a list; lists of the same values are equal."""
        made = super().__new__(cls, f"[{', '.join(items)}]")
        made.items = tuple(items)
        return made


WEAK = "number"
"""The dtype of a Python number: it takes that of the tensors beside it."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of at most 16 elements, whatever its encoding in the graph.

    `items` are its elements in row-major order, `width` the relative uncertainty of each (2 ulp
    of the coarsest dtype it went through), `floating` whether its dtype is a floating one.
    """

    items: tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: str
    width: float
    floating: bool

    @property
    def scalar(self) -> Any:
        """Give the only element, or None where there are several or none."""
        return self.items[0] if len(self.items) == 1 else None


class Opened(NamedTuple):
    """One arithmetic node as a product (`base ** exponent` each) or a sum (`sign * term` each)."""

    kind: str
    parts: tuple[tuple[Value, float], ...]
    coefficient: float = 1.0


@dataclass(frozen=True, slots=True)
class Attribute:
    """A variable bound to an attribute (or a number in a call) instead of to a value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Absent:
    """An optional input that is not there."""


ABSENT = Absent()


@dataclass(frozen=True, slots=True)
class Many:
    """The values that a `*rest` stands for."""

    values: tuple[Value, ...]


@dataclass(slots=True)
class Region:
    """One graph with a scope of its own.

    `ops[i]`, `inputs[i]` and `outputs[i]` describe node `i`; nodes are sorted topologically.
    `producer` maps a value to its node, `users` a value to the nodes of this region that read it,
    nested graphs included (once per read). `results` are the values the region gives out.
    `path` leads front-ends and the twin graph to it; `label` is its name in messages.
    """

    label: str
    path: tuple[Any, ...]
    kind: str
    parent: Region | None
    ops: list[str] = field(default_factory=list)
    inputs: list[Sequence[Value]] = field(default_factory=list)
    outputs: list[Sequence[Value]] = field(default_factory=list)
    producer: dict[Value, int] = field(default_factory=dict)
    users: dict[Value, list[int]] = field(default_factory=dict)
    results: frozenset[Value] = frozenset()
    by_op: dict[str, list[int]] = field(default_factory=dict)

    @property
    def function(self) -> tuple[str, str, str] | None:
        """Give (domain, name, overload) of the function that this region lies in, if in one."""
        if self.path and self.path[0][0] == "function":
            return (self.path[0][1], self.path[0][2], self.path[0][3])
        return None


class View(Protocol):
    """What a front-end answers about one region beyond its lists."""

    region: Region
    arithmetic: Mapping[str, str]
    """Which ops belong to the sums-and-products form: op to `product` or `sum`."""
    simple: Mapping[str, int]
    """Of these, ops of two inputs: to the exponent or sign of the second; the first has 1."""

    promotes: bool
    """Whether operands of several dtypes may meet, so that a part of a sum may be an integer."""

    @property
    def constant_values(self) -> set[Value] | None:
        """All values made of constants alone; None where outer regions have to be asked, too."""

    def open(self, node: int) -> Opened | None:
        """Read a node as part of a product or a sum; None where it is not one."""

    def constant(self, value: Value) -> Constant | None:
        """Give the constant behind a value; None where it is none (or can be overridden)."""

    def is_constant(self, value: Value) -> bool:
        """Tell whether a value is a constant of any size."""

    def written(self, constant: Constant) -> list[Any]:
        """Give the elements of a constant as they were written: 0.1, not 0.10000000149."""

    def not_constant(self, value: Value) -> str:
        """Say why a value is no constant, for a message."""

    def attribute(self, node: int, name: str) -> Any:
        """Give an attribute as plain data; None where it is absent."""

    def attributes(self, node: int) -> Sequence[str]:
        """List the attributes that a node carries."""

    def dtypes(self, value: Value) -> tuple[str | None, ...]:
        """Give the dtype, one per call of a function; None where unknown."""

    def shapes(self, value: Value) -> tuple[tuple[int | str | None, ...] | None, ...]:
        """Give the shape, one per call of a function; None where even the rank is unknown."""

    @property
    def names(self) -> Sequence[str]:
        """The names of all nodes, as messages print them."""

    def node_name(self, node: int) -> str:
        """Name a node as every message does."""

    def scope_of(self, node: int) -> str:
        """Give the module path of a node, dots between its parts."""

    def value_name(self, value: Value) -> str:
        """Name a value as every message does."""

    def gives_floats(self, value: Value) -> bool:
        """Tell whether the op that makes a value gives nothing but floating types."""

    @property
    def draws(self) -> bool:
        """Tell whether any node of the region may draw random numbers."""

    def random(self, node: int) -> bool:
        """Tell whether a node draws random numbers or has an effect."""

    def hazard(self, nodes: Sequence[int], roots: Sequence[Value], reads: frozenset[Value]) -> str:
        """Say which change in place stands in the way of a replacement; empty where none does."""

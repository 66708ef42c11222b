"""The twin graph: the original and, beside each site, its replacement fed by the same values.

One run of it gives both sides of every site: main graph, If, Loop, Scan and functions. A value is
carried out of a branch as an extra output (empty where the branch was not taken), out of a loop as
two accumulators (flattened values and shapes, since shapes may change), out of a function as an
extra output of it and of every call. A scan is watched in a loop that repeats its body.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from oprep.opsets.rule import Tolerance

if TYPE_CHECKING:
    from onnx import ModelProto

    from oprep.converters.twin_types import TwinTypes

RegionPath: TypeAlias = tuple[Any, ...]
"""Steps from the model to a graph: `()` is the main graph; a first step
`("function", domain, name, overload)` enters a function; each further step
`(node_index, attribute_name)` enters a graph attribute of that node of the graph so far."""

Column: TypeAlias = tuple[Any, ...]
"""Where a value is found in a run: `("plain", output)`, `("grown", values, shapes)` after a loop,
`("many", columns)` for a function with several calls."""


@dataclass(frozen=True)
class TwinSite:
    """One site in protobuf terms.

    `nodes` are the replacement's NodeProtos with fresh output names, to be placed after node
    `after` of the region; `pairs` are (original value, candidate value) per output of the site;
    `reads` are the site's inputs and inner values, whose size sets the tolerance's floor; `inner`
    are the inner ones among them, None where they are not known apart.
    """

    site: str
    rule: str
    region: RegionPath
    after: int
    nodes: tuple[Any, ...]
    pairs: tuple[tuple[str, str], ...]
    reads: tuple[str, ...]
    tolerance: Tolerance | None
    inner: tuple[str, ...] | None = None


@dataclass(frozen=True)
class TwinPlan:
    """All sites, and what the twin needs beside them: bodies (FunctionProto) and imports."""

    sites: Sequence[TwinSite]
    functions: Sequence[Any]
    imports: Sequence[tuple[str, int]]


@dataclass(frozen=True)
class SiteColumns:
    """Where the values of one site are found; `reached` has one element per run of its region.

    `reached` is None in the main graph, which always runs.
    """

    pairs: tuple[tuple[Column, Column], ...]
    reads: tuple[Column, ...]
    reached: Column | None


@dataclass(frozen=True)
class Twin:
    """A copy of the model that also gives the values of some sites, by index in the plan.

    `refused` says of the sites that could not be watched why not.
    """

    model: ModelProto
    columns: Mapping[int, SiteColumns]
    refused: Mapping[int, str]

    @property
    def outputs(self) -> tuple[str, ...]:
        """Name the model outputs that the columns need."""
        found: dict[str, None] = {}
        for site in self.columns.values():
            pairs = [column for pair in site.pairs for column in pair]
            for column in (*pairs, *site.reads, *([site.reached] if site.reached else ())):
                found.update(dict.fromkeys(outputs_of(column)))
        return tuple(found)


def build_twin(
    model: ModelProto,
    plan: TwinPlan,
    chosen: Sequence[int] | None = None,
    types: TwinTypes | None = None,
) -> Twin:
    """Build the twin of the sites with the indexes `chosen` (all by default); `model` stays.

    `types` may be shared by twins of one plan, so that shapes are inferred only once.
    """
    from oprep.converters.lifting import Lifting
    from oprep.converters.twin_copy import CannotLift
    from oprep.converters.twin_types import TwinTypes

    lifting = Lifting(model, plan, types or TwinTypes(model, plan))
    columns: dict[int, SiteColumns] = {}
    refused: dict[int, str] = {}
    for index in range(len(plan.sites)) if chosen is None else chosen:
        try:
            columns[index] = lifting.site(plan.sites[index])
        except CannotLift as error:
            refused[index] = str(error)
    return Twin(lifting.copy.finish(), columns, refused)


def outputs_of(column: Column) -> Iterator[str]:
    """Name the model outputs that a column is made of."""
    if column[0] == "plain":
        yield column[1]
    else:
        for inner in column[1:] if column[0] == "grown" else column[1]:
            yield from outputs_of(inner)


def decode(column: Column, outputs: Mapping[str, Any]) -> list[Any]:
    """Give the arrays that a column stands for, one per run of its region (or element)."""
    if column[0] == "plain":
        value = outputs[column[1]]
        items = value if isinstance(value, list) else [value]
        return [item for item in items if item is not None]
    if column[0] == "many":
        return [array for inner in column[1] for array in decode(inner, outputs)]
    values, shapes = (decode(inner, outputs) for inner in column[1:])
    return [array for pair in zip(values, shapes, strict=True) for array in _split(*pair)]


def _split(flat: Any, shapes: Any) -> Iterator[Any]:
    """Cut flattened values apart; `shapes` is rank, dims, rank, dims, …."""
    at = start = 0
    while at < len(shapes):
        rank = int(shapes[at])
        shape = [int(dim) for dim in shapes[at + 1 : at + 1 + rank]]
        count = 1
        for dim in shape:
            count *= dim
        yield flat[start : start + count].reshape(shape)
        at, start = at + 1 + rank, start + count

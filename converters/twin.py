"""The twin graph: the original plus, beside each site, its replacement fed by the original's values.

One run of it gives both sides of every site: main graph, If, Loop, Scan and functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oprep.opsets.rule import Tolerance

RegionPath = tuple[Any, ...]
"""Steps from the model to a graph: `()` is the main graph; a first step
`("function", domain, name, overload)` enters a function; each further step
`(node_index, attribute_name)` enters a graph attribute of that node of the graph so far."""


@dataclass(frozen=True)
class TwinSite:
    """One site in protobuf terms.

    `nodes` are the replacement's NodeProtos with fresh output names, to be placed right after node
    `after` of the region; `pairs` are (original value, candidate value) per output of the site;
    `reads` are the site's inputs and inner values, whose size sets the tolerance's floor.
    """

    site: str
    rule: str
    region: RegionPath
    after: int
    nodes: tuple[Any, ...]
    pairs: tuple[tuple[str, str], ...]
    reads: tuple[str, ...]
    tolerance: Tolerance | None


@dataclass(frozen=True)
class TwinPlan:
    """All sites, and what the twin needs beside them: bodies (FunctionProto) and imports."""

    sites: Sequence[TwinSite]
    functions: Sequence[Any]
    imports: Sequence[tuple[str, int]]

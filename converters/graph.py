"""What the matcher sees of a model: regions of nodes and values, the same for every front-end.

Plain lists and dicts, because a matcher that calls a method per look-up is twice as slow.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeAlias

Value: TypeAlias = Hashable
"""A value of a graph: a tensor name in ONNX, an fx node in PyTorch."""


class Region:
    """One graph with its own scope; `parent` is the region whose values it also sees."""

    ops: list[str]
    inputs: list[tuple[Any, ...]]
    outputs: list[tuple[Any, ...]]
    producer: dict[Any, int]

"""What a matcher carries while it tries one place: bindings, matched nodes, and a step count.

Matchers are closures in continuation-passing style: `matcher(state, value, then)` binds and calls
`then`, and undoes its bindings where `then` says no. So every choice can be taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from oprep.converters.graph import Constant, View

Then: TypeAlias = Callable[[], bool]
ScaledThen: TypeAlias = Callable[[float, float], bool]
Matcher: TypeAlias = Callable[["State", Any, Then], bool]
ScaledMatcher: TypeAlias = Callable[["State", Any, ScaledThen], bool]

STEPS = 10_000


class TooManySteps(Exception):
    """The search at one anchor took more than `STEPS` steps."""


class State:
    """The working memory of a match; `why` collects reasons only while explaining."""

    __slots__ = (
        "arithmetic",
        "calls",
        "constants",
        "inputs",
        "integers",
        "nodes",
        "ops",
        "outputs",
        "prepare",
        "producer",
        "products",
        "slots",
        "steps",
        "sums",
        "trees",
        "view",
        "why",
    )

    def __init__(self, view: View, slots: int) -> None:
        """Begin with `slots` unbound variables."""
        region = view.region
        self.view = view
        self.arithmetic = view.arithmetic
        self.ops = region.ops
        self.inputs = region.inputs
        self.outputs = region.outputs
        self.producer = region.producer
        self.slots: list[Any] = [None] * slots
        self.nodes: list[int] = []
        self.constants: list[tuple[Constant, Any, int]] = []
        self.calls: dict[int, int] = {}
        self.trees: list[Any] = []
        self.integers = False
        self.products: dict[Any, Any] = {}
        self.sums: dict[Any, Any] = {}
        self.steps = 0
        self.why: Reasons | None = None
        self.prepare: Callable[[Any], str] | None = None

    def reset(self, slots: int) -> None:
        """Forget the last attempt."""
        self.slots = [None] * slots
        self.nodes.clear()
        self.constants.clear()
        self.calls.clear()
        self.trees.clear()
        self.integers = False
        self.steps = 0

    def step(self) -> None:
        """Count a step and give up past the limit."""
        self.steps += 1
        if self.steps > STEPS:
            raise TooManySteps


class Reasons:
    """Keep the reason of the attempt that came furthest."""

    def __init__(self) -> None:
        """Begin with no reason."""
        self.best = -1.0
        self.text = ""

    def note(self, state: State, text: str, weight: float = 0.0) -> bool:
        """Remember a failed condition; give False so that a matcher can return it."""
        reached = len(state.nodes) + weight
        if reached > self.best:
            self.best, self.text = reached, text
        return False


def shown_ops(ops: Iterable[str]) -> list[str]:
    """Name ops for a message: overloads, forms in place and `out=` forms of one op are one."""
    found: dict[str, None] = {}
    for op in sorted(ops):
        domain, colons, name = op.rpartition("::")
        torch = bool(colons) and "." not in domain
        base = name.partition(".")[0].removesuffix("_") if torch else name
        found[f"`{domain}{colons}{base}`"] = None
    return list(found)


def show(value: Any) -> str:
    """Write a number or other plain value as messages do: short, and a float as a float."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(show(item) for item in value) + "]"
    return str(value)

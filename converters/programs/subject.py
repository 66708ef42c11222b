"""What is to be proven of a program: its sites, and how each replacement is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oprep.converters.graph import Value
from oprep.converters.match import Match
from oprep.converters.programs.program import Example, Program


@dataclass(frozen=True)
class Site:
    """One place and what replaces it: `evaluate(match, values by graph value)` gives its results.

    `ops` names the custom ops that it calls, for messages. It is `Replacement.evaluate`; tests
    plant others.
    """

    match: Match
    evaluate: Callable[[Match, Mapping[Value, Any]], Sequence[Any]]
    ops: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the place as every message has it."""
        return self.match.site

    @property
    def label(self) -> str:
        """The place with the ops that stand in it."""
        ops = ", ".join(f"`{op}`" for op in self.ops)
        return f"`{self.name}` ({ops})" if ops else f"`{self.name}`"


@dataclass(frozen=True)
class Subject:
    """An original and the sites of its conversion; `given` inputs replace generated ones."""

    program: Program
    sites: tuple[Site, ...] = ()
    given: tuple[Example, ...] = ()

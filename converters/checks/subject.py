"""What a check is given: the original, the candidate, the sites, and the runs that all share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from oprep.converters.advice import Found
from oprep.converters.inputs import InputSet
from oprep.converters.randomness import draws
from oprep.converters.report import CheckResult
from oprep.converters.runner import Child
from oprep.converters.runs import Loadable, Runs
from oprep.converters.trials import Trials, try_inputs
from oprep.converters.twin import TwinPlan

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True)
class Options:
    """What the user asked for; `inputs` are (name, arrays by name) and replace generated sets.

    `seconds` limits each run of a model; `memory` the bytes of each child.
    """

    seed: int = 0
    seconds: float = 120.0
    memory: int | None = None
    max_rtol: float | None = None
    max_atol: float | None = None
    inputs: Sequence[tuple[str, Mapping[str, Any]]] = ()


@dataclass
class Subject:
    """One original and its candidate. `plan` is None where no sites are known.

    `found` gathers every comparison; `part` is what leads to the sites, where the original as a
    whole gave no result.

    Used as a context manager: at its end the children are gone.
    """

    model: ModelProto
    original: Loadable
    candidate_model: ModelProto
    candidate: Loadable
    plan: TwinPlan | None = None
    options: Options = Options()
    progress: Callable[[str], None] | None = None
    notes: list[str] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)
    part: Subject | None = None
    _children: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Subject:
        """Give the subject."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the children."""
        self._children.close()

    def say(self, text: str) -> None:
        """Tell what begins, to whoever shows progress."""
        if self.progress is not None:
            self.progress(text)

    def note(self, text: str) -> None:
        """Keep a remark for the report, once."""
        if text not in self.notes:
            self.notes.append(text)

    def fresh(self, *models: Loadable) -> Runs:
        """Start a child of its own that may read the folders of `models`."""
        folders = tuple({item.folder for item in models if item.folder is not None})
        child = self._children.enter_context(Child(readable=folders))
        reset = draws(self.model) or draws(self.candidate_model)
        return Runs(child, self.options.seconds, self.options.memory, reset=reset)

    @cached_property
    def runs(self) -> Runs:
        """The child that runs the original and the twins."""
        return self.fresh(self.original)

    @cached_property
    def other_runs(self) -> Runs:
        """A second process: the candidate as loaded elsewhere, and the original once more."""
        return self.fresh(self.original, self.candidate)

    @cached_property
    def trials(self) -> Trials:
        """The input sets, and what the original made of them."""
        self.say("looking for inputs that the original takes")
        return try_inputs(self.model, self.original, self.runs, self.options)

    @property
    def sets(self) -> tuple[InputSet, ...]:
        """The sets that the original takes."""
        return self.trials.sets


@dataclass(frozen=True)
class Check:
    """One check of `checks/`: its name in the report, and what it does."""

    name: str
    run: Callable[[Subject], tuple[CheckResult, ...]]
    order: int = 0

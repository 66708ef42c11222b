"""Find inputs that the original takes, and keep what it makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from oprep.converters import inputs
from oprep.converters.causes import blamed
from oprep.converters.given import given
from oprep.converters.inputs import InputSet
from oprep.converters.report import InputSetRecord, Verdict
from oprep.converters.runs import Loadable, Opened, Runs, Trouble
from oprep.converters.signature import Signature, not_generated, signature

if TYPE_CHECKING:
    from onnx import ModelProto

    from oprep.converters.checks.subject import Options

ORIGINAL = "original"
WHAT = "the original"
Working: TypeAlias = tuple[dict[str, int], dict[str, float]]
"""Sizes of free dims, and values of single elements, that the original takes."""

LONG_RUNS, PATIENCE = 2, 6
"""Tries that run into the time limit before no further size is tried."""


@dataclass(frozen=True)
class Trials:
    """Sets that ran, their outputs by set name, all sets as records, the runtime that ran them.

    `trouble` says why there is nothing to compare with, where nothing ran.
    """

    sets: tuple[InputSet, ...]
    outputs: Mapping[str, Mapping[str, list[Any]]]
    records: tuple[InputSetRecord, ...]
    opened: Opened | None
    trouble: Trouble | None


def try_inputs(model: ModelProto, original: Loadable, runs: Runs, options: Options) -> Trials:
    """Open the original, make sets for it or take the given ones, and run it on each."""
    found = signature(model)
    asked = given(found, options.inputs)
    opened = runs.open(ORIGINAL, original, WHAT)
    if isinstance(opened, Trouble):
        return Trials((), {}, (), None, blamed(opened, WHAT))
    if asked:
        candidates: Iterator[InputSet] = iter(asked)
    else:
        cannot = not_generated(found)
        if cannot:
            return Trials((), {}, (), opened, Trouble(Verdict.CANNOT_RUN, cannot))
        made = _Search(found, runs, options.seed).sets()
        if isinstance(made, Trouble):
            return Trials((), {}, (), opened, made)
        candidates = iter(made)
    trials = _run_all(candidates, runs, opened)
    runs.close(ORIGINAL)
    return trials


def _run_all(candidates: Iterator[InputSet], runs: Runs, opened: Opened) -> Trials:
    sets: list[InputSet] = []
    outputs: dict[str, Mapping[str, list[Any]]] = {}
    records: list[InputSetRecord] = []
    last: Trouble | None = None
    for item in candidates:
        ended = runs.run(ORIGINAL, item.arrays, keep=item.whole)
        if isinstance(ended, Trouble):
            last = ended
            records.append(record(item, f"{ended.verdict}: {ended.detail}"))
            continue
        sets.append(item)
        records.append(record(item))
        if item.whole:
            outputs[item.name] = ended
    trouble = None
    if not sets:
        verdict = last.verdict if last is not None else Verdict.CANNOT_RUN
        detail = f"the original takes none of {len(records)} input sets"
        trouble = Trouble(verdict, f"{detail}: {last.detail}" if last is not None else detail)
    return Trials(tuple(sets), outputs, tuple(records), opened, trouble)


def record(item: InputSet, refused: str = "") -> InputSetRecord:
    """Describe a set for the report."""
    from oprep.converters.magnitudes import dtype_name

    shapes = tuple(
        (name, dtype_name(array), tuple(int(dim) for dim in array.shape))
        for name, array in item.arrays.items()
    )
    return InputSetRecord(item.name, shapes, refused)


@dataclass
class _Search:
    """Looks for sizes of the free dims, and for values that decide branches.

    A size at which an output is empty, or not finite at all, runs but proves nothing: the search
    goes on for `PATIENCE` sizes, and takes it only where none is better.
    """

    found: Signature
    runs: Runs
    seed: int
    slow: int = 0
    last: Trouble | None = None

    def sets(self) -> list[InputSet] | Trouble:
        """Give all generated sets, at the first size that runs and the next one."""
        choices = inputs.choices(self.found)
        working: list[Working] = []
        weak: list[Working] = []
        for chosen in inputs.sizes(self.found):
            if working and not _larger(chosen, working[0][0]):
                continue
            good, choice = self._best(chosen, choices)
            if choice is not None:
                (working if good else weak).append((chosen, choice))
            if len(working) == 2 or len(weak) >= PATIENCE or self.slow >= LONG_RUNS:
                break
        working = working or weak[:2] or self._empty()
        if not working:
            assert self.last is not None
            detail = f"the original takes no generated inputs: {self.last.detail}"
            return Trouble(self.last.verdict, detail)
        return list(self._sets(working, self._more(working), choices))

    def _empty(self) -> list[Working]:
        """Try dims that are declared as 0 with nothing in them, where no other size runs."""
        chosen = inputs.empty_sizes(self.found) if self.slow < LONG_RUNS else None
        if chosen is None or self._runs(chosen, {}) is None:
            return []
        return [(chosen, {})]

    def _best(
        self, chosen: dict[str, int], choices: list[dict[str, float]]
    ) -> tuple[bool, dict[str, float] | None]:
        """Give the first choice with finite evidence in all outputs, else the first that runs."""
        ran = None
        for choice in choices:
            outputs = self._runs(chosen, choice)
            if outputs is not None:
                if all(_some_finite(arrays) for arrays in outputs.values()):
                    return True, choice
                ran = ran if ran is not None else choice
            if self.slow >= LONG_RUNS:
                break
        return False, ran

    def _more(self, working: list[Working]) -> Working | None:
        """Find a size with more elements, for evidence that a handful of values cannot give."""
        largest, choice = working[-1]
        if inputs.elements(self.found, largest) >= inputs.FEW_ELEMENTS:
            return None
        for chosen in inputs.sizes(self.found):
            size = max(chosen.values(), default=0)
            many = inputs.elements(self.found, chosen) > inputs.ENOUGH_ELEMENTS
            if size != inputs.PLENTY or many or not _larger(chosen, largest):
                continue
            if self._runs(chosen, choice) is not None:
                return chosen, choice
        return None

    def _runs(
        self, chosen: dict[str, int], choice: dict[str, float]
    ) -> dict[str, list[Any]] | None:
        made = inputs.generate(self.found, "normal", chosen, choice, self.seed)
        ended = self.runs.run(ORIGINAL, made.arrays)
        if isinstance(ended, Trouble):
            self.last = ended
            self.slow += ended.verdict is Verdict.TIMED_OUT
            return None
        return ended

    def _sets(
        self, working: list[Working], more: Working | None, choices: list[dict[str, float]]
    ) -> Iterator[InputSet]:
        chosen, choice = working[0]
        for kind in inputs.KINDS:
            yield inputs.generate(self.found, kind, chosen, choice, self.seed)
        for other, its_choice in working[1:]:
            name = "normal, other sizes"
            yield inputs.generate(self.found, "normal", other, its_choice, self.seed, name)
        more_kinds = ("normal", "wide") if more is not None else ()
        for kind in more_kinds:
            assert more is not None
            yield inputs.generate(self.found, kind, *more, self.seed, f"{kind}, more values")
        for other_choice in choices:
            if other_choice == choice:
                continue
            said = ", ".join(f"{name}={value:g}" for name, value in other_choice.items())
            for kind in ("normal", "negated"):
                name = f"{kind}, {said}"
                yield inputs.generate(self.found, kind, chosen, other_choice, self.seed, name)
            for kind in more_kinds:
                assert more is not None
                name = f"{kind}, {said}, more values"
                yield inputs.generate(self.found, kind, more[0], other_choice, self.seed, name)


def _some_finite(arrays: list[Any]) -> bool:
    """Tell whether an output holds something to compare."""
    import numpy as np

    for array in arrays:
        if array.dtype.kind in "OSUTbiu" and array.size:
            return True
        if array.size and bool(np.isfinite(array.reshape(-1)).any()):
            return True
    return False


def _larger(chosen: Mapping[str, int], than: Mapping[str, int]) -> bool:
    """Tell whether a size differs in the dims that grow, not only in a first axis."""
    return max(chosen.values(), default=0) > max(than.values(), default=0)

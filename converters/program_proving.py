"""One proof of a program under way: its two sides, the input sets, and what was found so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from oprep.converters import magnitudes
from oprep.converters.advice import Found
from oprep.converters.causes import ORIGINAL, blamed
from oprep.converters.gradient_comparison import SAME
from oprep.converters.inputs import InputSet
from oprep.converters.program_sides import Caller, Side
from oprep.converters.program_sites import Fed, ProgramSite
from oprep.converters.report import InputSetRecord, Verdict
from oprep.converters.runner import Child
from oprep.converters.runs import Trouble
from oprep.converters.trials import record
from oprep.opsets import tolerances
from oprep.opsets.rule import Tolerance

Ran: TypeAlias = Mapping[str, Any]
"""What a run gave, as a child tells it: outputs, state, gradients."""

STRUCK = (Verdict.CRASHED, Verdict.TIMED_OUT)
GRADIENT_SETS = 4
COARSE = 1e-3
"""The rtol of the finest of the 16-bit floats."""
OFF_KINKS = ("ones", "negated")
"""Usual sets that say little about gradients: all values equal, or the same sizes once more."""


@dataclass(frozen=True)
class ProofOptions:
    """What the user asked for. `grad` is None where the program decides.

    `seconds` limits each run, `memory` the bytes of each child; `start_original` and
    `start_artifact` start the processes.
    """

    seed: int = 0
    seconds: float = 120.0
    memory: int | None = None
    max_rtol: float | None = None
    max_atol: float | None = None
    grad: bool | None = None
    start_original: Callable[[], Caller] = Child
    start_artifact: Callable[[], Caller] = Child


@dataclass
class Proving:
    """The original, and the evidence about it; `ran` is what it made of each set by name."""

    before: Side
    options: ProofOptions
    say: Callable[[str], None]
    sites: tuple[ProgramSite, ...] = ()
    sets: list[Fed] = field(default_factory=list)
    records: list[InputSetRecord] = field(default_factory=list)
    names: tuple[str, ...] = ()
    ran: dict[str, Ran] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)
    exchanging: bool = True

    def open(self) -> Trouble | None:
        """Open the original and learn of its sites."""
        trouble = self.before.open()
        if trouble is not None:
            return blamed(trouble, ORIGINAL)
        self.sites = tuple(ProgramSite.from_plain(item) for item in self.before.told["sites"])
        return None

    def note(self, text: str) -> None:
        """Keep a remark for the report, once."""
        if text not in self.notes:
            self.notes.append(text)

    @property
    def whole(self) -> list[Fed]:
        """The sets that may feed the whole program."""
        return [item for item in self.sets if item.whole]

    @property
    def compares_gradients(self) -> bool:
        """Tell whether gradients are compared: where parameters ask, or the user does."""
        if self.options.grad is not None:
            return self.options.grad
        told = self.before.told
        return bool(told["asks"] or (told["floating"] and not told["frozen"]))

    def try_sets(self) -> Trouble | None:
        """Make the input sets and run the original on each; keep those that it takes."""
        self.say("looking for inputs that the original takes")
        listed = self.before.remember("list_sets", {"seed": self.options.seed})
        if isinstance(listed, Trouble):
            return blamed(listed, ORIGINAL)
        self.names = tuple(listed["names"])
        last: Trouble | None = None
        for number, told in enumerate(listed["sets"]):
            made = self.before.ask("make_set", {"number": number})
            ended = made if isinstance(made, Trouble) else self._tried(told, made["leaves"])
            last = ended if isinstance(ended, Trouble) else last
        if self.sets:
            if self.compares_gradients:
                self._choose_for_gradients()
            return None
        if last is None:
            detail = listed["cannot"] or "no inputs could be made for the original"
            return Trouble(Verdict.CANNOT_RUN, detail)
        words = f"the original takes none of {len(self.records)} input sets: {last.detail}"
        return Trouble(last.verdict, words)

    def _tried(self, told: Mapping[str, Any], leaves: list[Any]) -> Trouble | None:
        item = Fed(told["name"], leaves, told["whole"], told["usual"])
        ended = self.go(self.before, item)
        if isinstance(ended, Trouble):
            refused = f"{ended.verdict}: {ended.detail}"
            self.records.append(record(self.input_set(item), refused))
            return ended
        self.records.append(record(self.input_set(item)))
        self.sets.append(item)
        self.ran[item.name] = ended
        return None

    def _choose_for_gradients(self) -> None:
        """Let gradients be compared where values are usual and lie off most kinks."""
        fit = [i for i, item in enumerate(self.sets) if item.whole and item.usual]
        fit = [i for i in fit if self.sets[i].name not in OFF_KINKS] or fit
        for step, index in enumerate(fit[:GRADIENT_SETS]):
            self.sets[index] = replace(self.sets[index], gradients=True, slopes=step == 0)

    def input_set(self, item: Fed) -> InputSet:
        """Give a set as arrays by name, for the report and for replay."""
        named = zip(self.names, item.leaves, strict=True)
        arrays = {name: leaf["array"] for name, leaf in named if "array" in leaf}
        return InputSet(item.name, arrays, item.whole, item.usual)

    @property
    def exchanged(self) -> list[int]:
        """The sites whose gradient is not meant to be the original's, where all can be exchanged.

        Then the original's gradients are those with these replacements in place.
        """
        own = [i for i, site in enumerate(self.sites) if site.gradient != SAME]
        fit = self.exchanging and all(self.sites[i].exchangeable for i in own)
        return own if fit else []

    @property
    def same_gradients(self) -> bool:
        """Tell whether the original's gradients are a reference."""
        return bool(self.exchanged) or all(site.gradient == SAME for site in self.sites)

    def go(
        self,
        side: Side,
        item: Fed,
        *,
        gradients: bool = False,
        nudged: bool = False,
        **setting: Any,
    ) -> Ran | Trouble:
        """Run one side on a set, always from the same state and seed.

        With `nudged` everything that a site gives is off by a unit in the last place.
        """
        payload = {
            "leaves": item.leaves,
            "gradients": gradients,
            "nudged": nudged,
            "exchanged": self.exchanged if gradients and side is self.before else [],
            "setting": {"seed": self.options.seed, **setting},
        }
        ended = side.ask("run_program", payload)
        if isinstance(ended, Trouble) and ended.verdict in STRUCK:
            ended = replace(ended, detail=f"{ended.detail}{side.struck(payload)}")
        return ended

    @property
    def asked(self) -> Tolerance | None:
        """The loosest tolerance that the rules of the sites ask for, as far as the user allows."""
        asked = [site.tolerance for site in self.sites if site.tolerance is not None]
        if not asked:
            return None
        loosest = tolerances.loosest(*asked)
        return tolerances.clamp(loosest, self.options.max_rtol, self.options.max_atol)

    @property
    def coarsest(self) -> float:
        """The relative precision of the coarsest dtype that a site gives."""
        names = {name for site in self.sites for name in site.dtypes}
        return max((tolerances.by_dtype(name).rtol for name in names), default=0.0)

    @property
    def coarse(self) -> bool:
        """Tell whether a site gives 16-bit floats: then rounding there is seen in the outputs."""
        return self.coarsest >= COARSE

    def asked_behind(self, pairs: Sequence[tuple[Any, Any]]) -> Tolerance | None:
        """Give what is asked of an output, of which `pairs` are arrays, first and nudged.

        Behind 16-bit sites it is as exact as they are, and as what a unit in the last place of
        them does to it.
        """
        floats = [(one, two) for one, two in pairs if magnitudes.kind(one) in ("float", "complex")]
        sizes = [size for one, _ in floats if (size := magnitudes.scale(one).rms)]
        if not self.coarse or not sizes:
            return self.asked
        moved = max(magnitudes.largest_difference(one, two) for one, two in floats)
        atol = max(self.coarsest * min(sizes), tolerances.NOISE_FLOORS * moved)
        behind = Tolerance(self.coarsest, atol)
        return behind if self.asked is None else tolerances.loosest(behind, self.asked)

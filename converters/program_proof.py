"""Prove the conversion of a program: sites, outputs, state and gradients, each side in a child.

The original runs in one process, the artifact in a fresh one that loads what was written. The
checks are those of ONNX conversions, read the same, and add gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, cast

from oprep.converters import magnitudes
from oprep.converters.advice import Found, advised, odd_tolerances, with_advice
from oprep.converters.causes import CANDIDATE, ORIGINAL, blamed
from oprep.converters.checks import outputs_close
from oprep.converters.gradient_comparison import NONE, OWN, Sides, compare_own, compare_same
from oprep.converters.inputs import InputSet
from oprep.converters.program_sides import Caller, Opening, Side
from oprep.converters.program_sites import GRADIENTS, SITES, Fed, ProgramSite, SiteProof
from oprep.converters.prove import Proof
from oprep.converters.report import CheckResult, InputSetRecord, Verdict
from oprep.converters.runner import Child
from oprep.converters.runs import Trouble
from oprep.converters.trials import record
from oprep.opsets import tolerances
from oprep.opsets.rule import Tolerance

OUTPUTS = outputs_close.NAME
THREADS = 4
"""Threads of the run that measures noise; all others have one."""

TINY = 1e-30
"""Less than a unit in the last place of any dtype: a run moves its inputs by some of those then."""

STRUCK = (Verdict.CRASHED, Verdict.TIMED_OUT)
GRADIENT_SETS = 4
GRACE = 10.0


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


def prove_program(
    original: Opening,
    artifact: Opening,
    options: ProofOptions = ProofOptions(),
    progress: Callable[[str], None] | None = None,
) -> Proof:
    """Run all checks; the children are gone afterwards."""
    seconds = options.seconds + GRACE
    before = Side(options.start_original, original, ORIGINAL, seconds, options.memory)
    after = Side(options.start_artifact, artifact, CANDIDATE, seconds, options.memory)
    with ExitStack() as stack:
        stack.callback(before.close)
        stack.callback(after.close)
        return _Proving(before, after, options, progress or (lambda text: None)).run()


@dataclass
class _Proving:
    """One proof under way."""

    before: Side
    after: Side
    options: ProofOptions
    say: Callable[[str], None]
    sets: list[Fed] = field(default_factory=list)
    records: list[InputSetRecord] = field(default_factory=list)
    names: tuple[str, ...] = ()
    ran: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)
    sites: tuple[ProgramSite, ...] = ()

    def run(self) -> Proof:
        """Open both, find inputs, then check what is replaced and what comes out."""
        trouble = self.before.open()
        if trouble is not None:
            return self.proof((self.without(blamed(trouble, ORIGINAL)),))
        self.sites = tuple(ProgramSite.from_plain(item) for item in self.before.told["sites"])
        checks = list(self.signature())
        self.say("looking for inputs that the original takes")
        trouble = self.try_sets()
        if trouble is not None:
            return self.proof((*checks, *self.all_without(trouble)))
        if self.sites:
            self.say(f"proving {len(self.sites)} sites")
            checks += self.prove_sites()
        checks += self.outputs()
        if self.grads:
            checks += self.gradients()
        return self.proof(tuple(checks))

    def proof(self, checks: tuple[CheckResult, ...]) -> Proof:
        """Put everything together, with advice on tolerances."""
        advice = advised(self.found)
        checks = tuple(with_advice(check, advice, self.found) for check in checks)
        for text in odd_tolerances(cast(Any, self.sites), self.found):
            self.note(text)
        if not (self.before.sandboxed and self.after.sandboxed):
            self.note("models ran without file system isolation, which this kernel lacks")
        failed = {c.name for c in checks if c.check == SITES and c.verdict is Verdict.FAIL}
        first = next((site.site for site in self.sites if site.site in failed), None)
        sets = tuple(self.input_set(item) for item in self.sets)
        return Proof(checks, tuple(self.records), first, tuple(self.notes), sets, advice)

    def note(self, text: str) -> None:
        """Keep a remark for the report, once."""
        if text not in self.notes:
            self.notes.append(text)

    @property
    def grads(self) -> bool:
        """Tell whether gradients are compared."""
        if self.options.grad is not None:
            return self.options.grad
        told = self.before.told
        return bool(told["asks"] or (told["floating"] and not told["frozen"]))

    def without(self, trouble: Trouble) -> CheckResult:
        """Give the check of outputs that could not be made."""
        return CheckResult(OUTPUTS, "outputs", trouble.verdict, detail=trouble.detail)

    def all_without(self, trouble: Trouble) -> list[CheckResult]:
        """Give all checks where the original gives nothing to compare with."""
        sites = [
            CheckResult(SITES, site.site, trouble.verdict, site.rule, detail=trouble.detail)
            for site in self.sites
        ]
        return [*sites, self.without(trouble)]

    def signature(self) -> tuple[CheckResult, ...]:
        """Compare what a caller sees of both; an artifact that does not load has none."""
        trouble = self.after.open()
        if trouble is not None:
            trouble = blamed(trouble, CANDIDATE)
            return (CheckResult("signature_kept", "signature", trouble.verdict,
                                detail=trouble.detail),)  # fmt: skip
        detail = difference(self.before.told["signature"], self.after.told["signature"])
        verdict = Verdict.FAIL if detail else Verdict.PASS
        return (CheckResult("signature_kept", "signature", verdict, detail=detail),)

    def try_sets(self) -> Trouble | None:
        """Make the input sets and run the original on each; keep those that it takes."""
        listed = self.before.remember("list_sets", {"seed": self.options.seed})
        if isinstance(listed, Trouble):
            return blamed(listed, ORIGINAL)
        self.names = tuple(listed["names"])
        last: Trouble | None = None
        for number, told in enumerate(listed["sets"]):
            made = self.before.ask("make_set", {"number": number})
            if isinstance(made, Trouble):
                last = made
                continue
            item = Fed(told["name"], made["leaves"], told["whole"], told["usual"])
            ended = self.go(self.before, item)
            refused = f"{ended.verdict}: {ended.detail}" if isinstance(ended, Trouble) else ""
            self.records.append(record(self.input_set(item), refused))
            if isinstance(ended, Trouble):
                last = ended
                continue
            self.sets.append(item)
            self.ran[item.name] = ended
        if self.sets:
            self.choose_for_gradients()
            return None
        if last is None:
            return Trouble(Verdict.CANNOT_RUN, "no inputs could be made for the original")
        words = f"the original takes none of {len(self.records)} input sets: {last.detail}"
        return Trouble(last.verdict, words)

    def choose_for_gradients(self) -> None:
        """Let gradients be compared where values are usual and lie off most kinks."""
        if not self.grads:
            return
        fit = [i for i, item in enumerate(self.sets) if item.whole and item.usual]
        fit = [i for i in fit if self.sets[i].name not in ("ones", "negated")] or fit
        for step, index in enumerate(fit[:GRADIENT_SETS]):
            self.sets[index] = replace(self.sets[index], gradients=True, slopes=step == 0)

    def input_set(self, item: Fed) -> InputSet:
        """Give a set as arrays by name, for the report and for replay."""
        named = zip(self.names, item.leaves, strict=True)
        arrays = {name: leaf["array"] for name, leaf in named if "array" in leaf}
        return InputSet(item.name, arrays, item.whole, item.usual)

    def go(
        self, side: Side, item: Fed, *, gradients: bool = False, **setting: Any
    ) -> dict[str, Any] | Trouble:
        """Run one side on a set, always from the same state and seed."""
        chosen = {"seed": self.options.seed, **setting}
        payload = {"leaves": item.leaves, "gradients": gradients, "setting": chosen}
        ended = side.ask("run_program", payload)
        if isinstance(ended, Trouble) and ended.verdict in STRUCK:
            ended = replace(ended, detail=f"{ended.detail}{side.struck(payload)}")
        return ended

    def prove_sites(self) -> tuple[CheckResult, ...]:
        """Compare every site on every set."""
        limits = (self.options.max_rtol, self.options.max_atol)
        proof = SiteProof(self.before, self.sites, self.sets, limits, self.options.seed,
                          self.notes, self.found)  # fmt: skip
        return proof.run()

    @property
    def asked(self) -> Tolerance | None:
        """The loosest tolerance that the rules of the sites ask for, as far as the user allows."""
        asked = [site.tolerance for site in self.sites if site.tolerance is not None]
        if not asked:
            return None
        loosest = tolerances.loosest(*asked)
        return tolerances.clamp(loosest, self.options.max_rtol, self.options.max_atol)

    @property
    def coarsest(self) -> Tolerance:
        """The relative precision of the coarsest dtype that a site gives."""
        names = {name for site in self.sites for name in site.dtypes}
        return max((tolerances.by_dtype(n) for n in names), default=tolerances.EXACT,
                   key=lambda item: item.rtol)  # fmt: skip

    def asked_of(self, name: str, ran: Mapping[str, Mapping[str, Any]]) -> Tolerance | None:
        """Give what is asked of an output: behind a coarser site it is as coarse as that."""
        coarse, arrays = self.coarsest.rtol, [a for row in ran.values() for a in row[name]]
        kinds = {magnitudes.dtype_name(a) for a in arrays if magnitudes.kind(a) != "exact"}
        if not kinds or all(coarse <= tolerances.by_dtype(kind).rtol for kind in kinds):
            return self.asked
        sizes = [size for a in arrays if (size := magnitudes.scale(a).rms)]
        behind = Tolerance(coarse, coarse * min(sizes, default=0.0))
        return behind if self.asked is None else tolerances.loosest(behind, self.asked)

    def outputs(self) -> list[CheckResult]:
        """Compare outputs, and buffers that a run changes, over all sets of the whole program."""
        self.say("running the converted program")
        whole = [item for item in self.sets if item.whole]
        rows: list[dict[str, dict[str, Any]]] = []
        plain: dict[str, Any] = {}
        for side, setting, verdict in (
            (self.after, plain, None),
            (self.before, plain, Verdict.NOT_DETERMINISTIC),
            (self.before, {"threads": THREADS, "onednn": False}, None),
        ):
            row: dict[str, dict[str, Any]] = {}
            for item in whole:
                ended = self.go(side, item, **setting)
                if isinstance(ended, Trouble):
                    if setting:
                        self.note(f"no noise floor was measured: {ended.detail}")
                        ended = self.ran[item.name]
                    else:
                        who = CANDIDATE if side is self.after else ORIGINAL
                        words = f"{ended.detail} on input set `{item.name}`"
                        trouble = blamed(replace(ended, detail=words), who)
                        trouble = replace(trouble, verdict=verdict or trouble.verdict)
                        return self.every_output(trouble)
                row[item.name] = ended
            rows.append(row)
        first = {item.name: self.ran[item.name] for item in whole}
        after, again, noise = rows
        return self.compared(first, after, again, noise)

    def every_output(self, trouble: Trouble) -> list[CheckResult]:
        """Give one verdict to every output."""
        names = list(next(iter(self.ran.values()))["outputs"])
        return [CheckResult(OUTPUTS, n, trouble.verdict, detail=trouble.detail) for n in names]

    def compared(self, *rows: Mapping[str, Mapping[str, Any]]) -> list[CheckResult]:
        """Compare output by output; `rows` are first, candidate, second and noise run by set."""
        names: dict[str, None] = {}
        for row in rows:
            for ran in row.values():
                names |= dict.fromkeys(values_of(ran))
        sides = [
            {item: {n: arrays_of(values_of(ran).get(n)) for n in names}
             for item, ran in row.items()} for row in rows
        ]  # fmt: skip
        sets = [self.input_set(item) for item in self.sets]
        results = []
        for name in names:
            result = self.result(name, sides, sets)
            if result.verdict is Verdict.PASS:
                result = laid_out(result, name, rows[0], rows[1])
            elif result.verdict is Verdict.FAIL and self.before.told["draws"]:
                result = drawn_apart(result, rows[0], rows[1])
            results.append(result)
        return results

    def result(self, name: str, sides: Sequence[Any], sets: Sequence[InputSet]) -> CheckResult:
        """Compare one output; sets that amplify rounding are left out where others tell more."""
        rows = cast(Any, tuple(sides))
        asked = self.asked_of(name, rows[0])
        result, found = outputs_close.result_of(name, rows, sets, asked)
        if result.verdict is Verdict.NOT_DETERMINISTIC and result.noise:
            each = {s.name: outputs_close.result_of(name, rows, [s], asked)[0] for s in sets}
            quiet = [s for s in sets if each[s.name].verdict is not Verdict.NOT_DETERMINISTIC]
            if any(each[s.name].verdict in (Verdict.PASS, Verdict.FAIL) for s in quiet):
                result, found = outputs_close.result_of(name, rows, quiet, asked)
                left = ", ".join(f"`{s.name}`" for s in sets if s not in quiet)
                self.note(f"output `{name}` of the original is nothing but rounding in {left}")
        self.found += found
        return result

    def gradients(self) -> list[CheckResult]:
        """Compare the gradients to inputs and parameters, end to end."""
        self.say("comparing gradients")
        results: dict[str, CheckResult] = {}
        unit = max(self.coarsest.rtol / 2, TINY)
        for item in self.sets:
            if not item.gradients:
                continue
            before = self.go(self.before, item, gradients=True)
            if isinstance(before, Trouble):
                self.note(f"the original gives no gradients: {before.detail}")
                continue
            after = self.go(self.after, item, gradients=True)
            if isinstance(after, Trouble):
                words = f"gradient lost: {after.detail} on input set `{item.name}`"
                trouble = replace(after, detail=words)
                if after.verdict is Verdict.CANNOT_RUN:
                    trouble = replace(trouble, verdict=Verdict.FAIL)
                return [CheckResult(GRADIENTS, "all", trouble.verdict, detail=trouble.detail)]
            moved = [self.go(self.before, item, gradients=True, aside=way)
                     for way in (unit, -unit)]  # fmt: skip
            for name in before["gradients"]:
                sides = self.sides(name, before, after, moved)
                results[name] = worse(results.get(name), self.gradient(name, sides, item))
        return list(results.values())

    @staticmethod
    def sides(
        name: str, before: Mapping[str, Any], after: Mapping[str, Any], moved: Sequence[Any]
    ) -> Sides:
        """Put together the gradients to one value."""
        others = [one["gradients"][name] for one in moved if not isinstance(one, Trouble)]
        return Sides(name, before["gradients"][name], after["gradients"].get(name), others)

    def gradient(self, name: str, sides: Sides, item: Fed) -> CheckResult:
        """Judge one gradient in one set."""
        kinds = {site.gradient for site in self.sites}
        own = bool(kinds & {OWN, NONE})
        found = compare_own(sides, needed=NONE not in kinds) if own else compare_same(
            sides, self.asked)  # fmt: skip
        asked = "the rules" if self.asked is not None else "dtype and scale"
        return CheckResult(
            GRADIENTS,
            name,
            found.verdict,
            measured=found.numbers,
            tolerance=found.tolerance,
            tolerance_source="own gradients" if own else asked,
            allowed=found.allowed,
            dtype=found.dtype,
            shape=found.shape,
            sets=1,
            detail=found.detail,
            worst_set=item.name if found.numbers is not None else "",
        )


def worse(one: CheckResult | None, other: CheckResult) -> CheckResult:
    """Give the check that says more: a failure before a pass, a pass with numbers before none."""
    if one is None:
        return other
    order = (Verdict.FAIL, Verdict.PASS, Verdict.NOT_FINITE, Verdict.NO_EVIDENCE)
    ranks = [(order.index(item.verdict), item.measured is None) for item in (one, other)]
    kept = one if ranks[0] <= ranks[1] else other
    return replace(kept, sets=one.sets + other.sets)


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Say the first difference between two signatures; empty where there is none."""
    for key, what in (("inputs", "input"), ("outputs", "output"), ("state", "state")):
        rows = (before[key], after[key])
        for number in range(max(map(len, rows))):
            one, other = (row[number] if number < len(row) else "absent" for row in rows)
            if one != other:
                return f"{what} {number} was {one}, is {other}"
    if before["structure"] != after["structure"]:
        return f"the call was {before['structure']}, is {after['structure']}"
    return ""


def values_of(ran: Mapping[str, Any]) -> dict[str, Any]:
    """Give outputs, and buffers that the run changed, by name."""
    state = {f"{name} (buffer)": value for name, value in ran["state"].items()}
    return {**ran["outputs"], **state}


def arrays_of(value: Mapping[str, Any] | None) -> list[Any]:
    """Give the array of one output; a number is an array of one, None is nothing."""
    import numpy as np

    if value is None:
        return []
    if "array" in value:
        return [value["array"]]
    return [] if value["plain"] is None else [np.asarray(value["plain"])]


def laid_out(
    result: CheckResult, name: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> CheckResult:
    """Fail where an output that is right lies in memory in another way."""
    for item in before:
        one, other = (values_of(row[item]).get(name) or {} for row in (before, after))
        if "array" in one and one["array"].size:
            rows = zip(one["array"].shape, one["strides"], other["strides"], strict=True)
            if any(left != right for size, left, right in rows if size > 1):
                detail = f"strides {one['strides']} became {other['strides']}"
                return replace(result, verdict=Verdict.FAIL, measured=None,
                               detail=f"{detail}, in input set `{item}`")  # fmt: skip
    return result


def drawn_apart(
    result: CheckResult, before: Mapping[str, Any], after: Mapping[str, Any]
) -> CheckResult:
    """Where the candidate drew other random numbers, a difference says nothing."""
    item = result.worst_set
    if not item or before[item]["random"] == after[item]["random"]:
        return result
    detail = "the candidate draws other random numbers than the original from the same seed"
    return replace(result, verdict=Verdict.NOT_DETERMINISTIC, detail=detail)

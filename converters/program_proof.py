"""Prove the conversion of a program: sites, outputs, state and gradients, each side in a child.

The original runs in one process, the artifact in a fresh one that loads what was written. The
checks are those of ONNX conversions, read the same, and add gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, cast

from oprep.converters.advice import advised, odd_tolerances, with_advice
from oprep.converters.causes import CANDIDATE, ORIGINAL, blamed
from oprep.converters.program_gradients import compare_gradients
from oprep.converters.program_outputs import compare_outputs, compare_runs, without_result
from oprep.converters.program_proving import ProofOptions, Proving, Ran
from oprep.converters.program_sides import Opening, Side
from oprep.converters.program_sites import SITES, Fed, SiteProof
from oprep.converters.prove import Proof
from oprep.converters.report import CheckResult, Verdict
from oprep.converters.runner import Child
from oprep.converters.runs import Loadable, Opened, Runs, Trouble

__all__ = ["ProofOptions", "outputs_against_onnx", "prove_program"]

DEFAULT = ProofOptions()
GRACE = 10.0
SIGNATURE, METADATA = "signature_kept", "metadata_kept"


def prove_program(
    original: Opening,
    artifact: Opening,
    options: ProofOptions = DEFAULT,
    progress: Callable[[str], None] | None = None,
) -> Proof:
    """Run all checks; the children are gone afterwards."""
    with ExitStack() as stack:
        proving = _proving(original, options, progress, stack)
        after = Side(options.start_artifact, artifact, CANDIDATE, options.seconds + GRACE,
                     options.memory)  # fmt: skip
        stack.callback(after.close)
        checks = _checks(proving, after)
        return _proof(proving, checks, sandboxed=proving.before.sandboxed and after.sandboxed)


def _proving(
    original: Opening,
    options: ProofOptions,
    progress: Callable[[str], None] | None,
    stack: ExitStack,
) -> Proving:
    before = Side(options.start_original, original, ORIGINAL, options.seconds + GRACE,
                  options.memory)  # fmt: skip
    stack.callback(before.close)
    return Proving(before, options, progress or (lambda text: None))


def _checks(proving: Proving, after: Side) -> list[CheckResult]:
    """Open both, find inputs, then check what is replaced and what comes out."""
    trouble = proving.open()
    if trouble is not None:
        return [without_result(trouble)]
    checks = _signature(proving.before, after)
    trouble = proving.try_sets()
    if trouble is not None:
        return [*checks, *_without_inputs(proving, trouble)]
    checks += _sites(proving)
    checks += compare_outputs(proving, after)
    if proving.compares_gradients:
        checks += compare_gradients(proving, after)
    return checks


def _sites(proving: Proving) -> Sequence[CheckResult]:
    """Prove every site on the activations of the original."""
    if not proving.sites:
        return ()
    proving.say(f"proving {len(proving.sites)} sites")
    limits = (proving.options.max_rtol, proving.options.max_atol)
    return SiteProof(proving.before, proving.sites, proving.sets, limits, proving.options.seed,
                     proving.notes, proving.found).run()  # fmt: skip


def _proof(proving: Proving, checks: Sequence[CheckResult], *, sandboxed: bool) -> Proof:
    """Put everything together, with advice on tolerances."""
    advice = advised(proving.found)
    checks = tuple(with_advice(check, advice, proving.found) for check in checks)
    for text in odd_tolerances(cast(Any, proving.sites), proving.found):
        proving.note(text)
    if not sandboxed:
        proving.note("models ran without file system isolation, which this kernel lacks")
    failed = {c.name for c in checks if c.check == SITES and c.verdict is Verdict.FAIL}
    first = next((site.site for site in proving.sites if site.site in failed), None)
    sets = tuple(proving.input_set(item) for item in proving.sets)
    return Proof(checks, tuple(proving.records), first, tuple(proving.notes), sets, advice)


def _without_inputs(proving: Proving, trouble: Trouble) -> list[CheckResult]:
    """Give all checks where the original gives nothing to compare with."""
    sites = [
        CheckResult(SITES, site.site, trouble.verdict, site.rule, detail=trouble.detail)
        for site in proving.sites
    ]
    return [*sites, without_result(trouble)]


def _signature(before: Side, after: Side) -> list[CheckResult]:
    """Compare what a caller sees of both, and the metadata of the artifact with what its ops give.

    An artifact that does not load has neither.
    """
    trouble = after.open()
    if trouble is not None:
        trouble = blamed(trouble, CANDIDATE)
        return [CheckResult(SIGNATURE, "signature", trouble.verdict, detail=trouble.detail)]
    detail = _difference(before.told["signature"], after.told["signature"])
    verdict = Verdict.FAIL if detail else Verdict.PASS
    checks = [CheckResult(SIGNATURE, "signature", verdict, detail=detail)]
    return [*checks, _metadata(before, after)]


def _metadata(before: Side, after: Side) -> CheckResult:
    """Compare what ops give with what is declared; what the original has, too, is none of ours."""
    found = after.ask("propagate", {})
    if isinstance(found, Trouble):
        trouble = blamed(found, CANDIDATE)
        return CheckResult(METADATA, "graph", trouble.verdict, detail=trouble.detail)
    own = before.ask("propagate", {})
    known = () if isinstance(own, Trouble) else own["differences"]
    new = [text for text in found["differences"] if text not in known]
    verdict = Verdict.FAIL if new else Verdict.PASS
    return CheckResult(METADATA, "graph", verdict, detail=new[0] if new else "")


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
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


def outputs_against_onnx(
    original: Opening,
    model: Loadable,
    inputs: Sequence[str],
    outputs: Sequence[int],
    options: ProofOptions = DEFAULT,
    progress: Callable[[str], None] | None = None,
) -> Proof:
    """Prove sites in PyTorch, then compare its eager outputs with those of ONNX Runtime.

    `inputs` are the names of the model's inputs, which are those of the program; `outputs` the
    positions of its outputs among the program's flat ones.
    """
    with ExitStack() as stack:
        proving = _proving(original, options, progress, stack)
        trouble = proving.open()
        if trouble is None and (trouble := proving.try_sets()) is not None:
            checks = _without_inputs(proving, trouble)
            return _proof(proving, checks, sandboxed=proving.before.sandboxed)
        if trouble is not None:
            return _proof(proving, [without_result(trouble)], sandboxed=proving.before.sandboxed)
        sites = _sites(proving)
        folders = () if model.folder is None else (model.folder,)
        runs = Runs(stack.enter_context(Child(readable=folders)), options.seconds, options.memory)
        opened = runs.open(CANDIDATE, model, CANDIDATE)
        if isinstance(opened, Trouble):
            checks = [without_result(blamed(opened, CANDIDATE))]
        else:
            flat = list(next(iter(proving.ran.values()))["outputs"])
            names = [flat[position] for position in outputs]
            checks = compare_runs(proving, _in_onnx(proving, runs, opened, inputs, names), names)
            if opened.reasons:
                reasons = "; ".join(opened.reasons)
                proving.note(f"run by the {opened.runtime} evaluator, since {reasons}")
        sandboxed = proving.before.sandboxed and runs.sandboxed
        return _proof(proving, [*sites, *checks], sandboxed=sandboxed)


def _in_onnx(
    proving: Proving, runs: Runs, opened: Opened, inputs: Sequence[str], outputs: Sequence[str]
) -> Callable[[Fed], Ran | Trouble]:
    """Give what runs a set in ONNX Runtime and names its outputs as the program does."""
    import numpy as np

    def run(item: Fed) -> Ran | Trouble:
        leaves = dict(zip(proving.names, item.leaves, strict=True))
        feeds = {name: leaves[name].get("array", leaves[name].get("plain")) for name in inputs}
        made = runs.run(CANDIDATE, {name: np.asarray(value) for name, value in feeds.items()})
        if isinstance(made, Trouble):
            return made
        found = [made[name] for name in opened.outputs]
        named = {
            name: {"array": arrays[0], "strides": []}
            for name, arrays in zip(outputs, found, strict=True)
            if arrays
        }
        return {"outputs": named, "state": {}, "random": b""}

    return run

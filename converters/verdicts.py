"""From what was found to how the command ends: expectations and verdicts become errors."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from oprep.converters import causes
from oprep.converters.causes import WITHOUT_RESULT, fact, short
from oprep.converters.gradient_comparison import LOST, NEW, ZERO
from oprep.converters.prove import Proof
from oprep.converters.report import CheckResult, MissRecord, Report, RuleOutcome, Verdict
from oprep.converters.settings import PASSING, Settings
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.rule import Opset, Tolerance

NEAREST = 2
_FAILS = {
    "signature_kept": "the converted model has another signature than the original",
    "metadata_kept": "the ops of the converted model give something else than it declares",
}
_TO = re.compile("gradient to `([^`]+)`")
GRADIENTS, FINDINGS = "gradients_close", (LOST, ZERO, NEW)


def expectations_met(report: Report, opsets: Sequence[Opset], model: str) -> None:
    """Raise (exit 6) for the first rule with another number of matches than it expects."""
    for outcome in report.rules:
        if not outcome.met:
            raise _unmet(report.with_status("failed"), outcome, model)
    for opset in opsets:
        own = [outcome for outcome in report.rules if outcome.opset == opset.name]
        if opset.shipped and own and not any(outcome.sites for outcome in own):
            raise OprepError(
                f"opset `{opset.name}` matched nothing in `{model}`",
                f"opset {opset.name}",
                (f"its {_count(len(own), 'rule')} found no site",),
                f"see what there is with `oprep list-ops {model} --opset {opset.name}`",
                ExitCode.EXPECTATION,
                report.with_status("failed"),
            )


def _unmet(report: Report, outcome: RuleOutcome, model: str) -> OprepError:
    count = len(outcome.sites)
    if count:
        found = f"matched {_count(count, 'time')} in `{model}`, {outcome.expect} expected"
    else:
        found = f"matched nothing in `{model}`"
        if outcome.expect != ">=1":
            found += f", {outcome.expect} expected"
    misses = [miss for miss in outcome.misses if miss.site]
    notes = [f"near miss at `{miss.site}`: {miss.reason}" for miss in misses[:NEAREST]]
    if not misses:
        notes = [miss.reason for miss in outcome.misses[:NEAREST]]
    if len(misses) > NEAREST:
        notes.append(
            f"{_count(len(misses) - NEAREST, 'more near miss', 'es')}, see `oprep list-ops -r`"
        )
    too_many = count and not notes
    if too_many or (count and not misses):
        sites = ", ".join(f"`{site.site}`" for site in outcome.sites[:6])
        notes = [f"matched at {sites}" + (" and more" if count > 6 else "")]
    return OprepError(
        f"rule `{outcome.rule}` {found}",
        outcome.source,
        tuple(notes[:3]),
        _advice(outcome, misses, count),
        ExitCode.EXPECTATION,
        report,
    )


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{plural if number != 1 else ''}"


def _advice(outcome: RuleOutcome, misses: Sequence[MissRecord], count: int) -> str:
    if count:
        return f"set `expect = {count}` if that is right, or narrow the rule with `when` or `scope`"
    if misses:
        return 'change the rule where the near miss says, or set `expect = ">=0"`'
    return 'see the model\'s ops with `oprep list-ops`, or set `expect = ">=0"`'


def verified(report: Report, proof: Proof, settings: Settings, model: str) -> Report:
    """Mark what is accepted; raise (exit 4) where a verdict is neither a pass nor accepted."""
    checks = tuple(
        replace(check, accepted=True)
        if check.verdict not in PASSING and str(check.verdict) in settings.accept
        else check
        for check in report.checks
    )
    accepted = tuple(sorted({str(check.verdict) for check in checks if check.accepted}))
    report = replace(report, checks=checks, accepted=accepted)
    bad = [c for c in checks if c.verdict not in PASSING and not c.accepted]
    if bad or not checks:
        failed = report.with_status("failed")
        if not checks:
            raise OprepError(f"nothing of `{model}` could be verified", model,
                             help="give inputs with `--inputs`",
                             exit_code=ExitCode.VERIFICATION, report=failed)  # fmt: skip
        raise _failure(failed, bad, proof, settings, model)
    return report.with_status("accepted" if accepted else "verified")


def _failure(
    report: Report,
    bad: Sequence[CheckResult],
    proof: Proof,
    settings: Settings,
    model: str,
) -> OprepError:
    first, advice = proof.first_differing, proof.advice
    sites = [check for check in bad if check.check == "sites_close"]
    check = next((item for item in sites if item.name == first), None) or (sites or list(bad))[0]
    count = len([item for item in report.checks if item.check == "sites_close"])
    where = f"{model}, {check.dtype}{list(check.shape)}" if check.dtype else model
    failed = check.verdict is Verdict.FAIL
    notes = [_worst(check)] if failed and check.measured is not None else []
    said = _fact(check, count)
    if not notes and check.detail and short(check.detail) != said:
        notes.append(short(check.detail))
    advised = _advised(check, report, advice)
    if failed and advised is not None:
        atol = f" with atol {advised.atol:g}" if advised.atol else ""
        notes.append(f"rtol {advised.rtol:g}{atol} would pass")
    others = len(bad) - 1
    if others:
        has = "it" if others == 1 else "them all"
        notes.append(f"{_count(others, 'more check')} did not pass, `--report FILE.json` has {has}")
    return OprepError(
        said, where, tuple(notes[:3]), _help(check, bool(sites), count, advised, settings),
        ExitCode.VERIFICATION, report,
    )  # fmt: skip


def _worst(check: CheckResult) -> str:
    """Say how far the worst element is off, with digits enough to tell it from what is allowed."""
    numbers = check.measured
    assert numbers is not None
    place = f"worst at {list(numbers.worst_index)}" if numbers.worst_index else "worst"
    text = f"{place}: {_values(numbers.reference, numbers.candidate)}"
    off = abs(numbers.candidate - numbers.reference)
    if math.isfinite(off):
        text += f", {_amounts(off, check.allowed)}"
    return f"{text}, in input set `{check.worst_set}`" if check.worst_set else text


def _values(before: float, after: float) -> str:
    if f"{before:.6g}" == f"{after:.6g}" and before != after:
        return f"{before!r} became {after!r}"
    return f"{before:.6g} became {after:.6g}"


def _amounts(off: float, allowed: float | None) -> str:
    if allowed is None:
        return f"off by {off:.1e}"
    pairs = ((f"{off:.{digits}e}", f"{allowed:.{digits}e}") for digits in range(1, 17))
    one, other = next((pair for pair in pairs if pair[0] != pair[1]), (f"{off:.1e}",) * 2)
    return f"off by {one}, allowed {other}"


def _advised(
    check: CheckResult, report: Report, advice: Mapping[str, Tolerance]
) -> Tolerance | None:
    """Give the tolerance that would let a failed check pass, where one rule can have it."""
    if check.measured is None:
        return None
    rules = {item.rule for item in report.checks if item.check == "sites_close" and item.rule}
    rule = check.rule or (next(iter(rules)) if len(rules) == 1 else None)
    return advice.get(rule) if rule is not None else None


def _fact(check: CheckResult, count: int) -> str:
    verdict = str(check.verdict)
    rule = f" (rule `{check.rule}`)" if check.rule else ""
    site = check.check == "sites_close"
    if check.verdict in WITHOUT_RESULT and check.check in ("sites_close", "outputs_close"):
        return fact(check, f"site `{check.name}`{rule}" if site else f"output `{check.name}`")
    if site:
        said = {
            "fail": f"differs from the reference at site `{check.name}`{rule}",
            "no evidence": f"has no evidence at site `{check.name}`{rule}",
        }.get(verdict, f"is `{verdict}` at site `{check.name}`{rule}")
        return f"the replacement {said}"
    if check.check == GRADIENTS and verdict == "fail":
        return _gradient_fact(check)
    if check.check == "outputs_close":
        after = f" after {_count(count, 'replacement')}" if count else ""
        if verdict == "fail":
            return f"output `{check.name}` differs from the reference{after}"
        return f"output `{check.name}` is `{verdict}`{after}"
    if verdict == "fail" and check.check in _FAILS:
        return _FAILS[check.check]
    if check.check == "package_close" and verdict == "fail":
        return f"output `{check.name}` of the compiled package differs from the reference"
    return f"check `{check.check}` of `{check.name}` is `{verdict}`"


def _gradient_fact(check: CheckResult) -> str:
    """Say what is wrong with a gradient, and to what or where."""
    finding = next((text for text in FINDINGS if check.detail.startswith(text)), "")
    to = _TO.search(check.detail)
    if check.rule:
        place = f"at site `{check.name}` (rule `{check.rule}`)"
        if finding:
            return f"{finding} {place}"
        what = f"the gradient to `{to[1]}`" if to else "the gradient"
        return f"{what} differs from the original's {place}"
    if finding and check.name == "all":
        return f"{finding}: the converted model gives none at all"
    kind, _, name = check.name.rpartition(" ")
    value = f"{kind} `{name}`".strip()
    return f"{finding} to {value}" if finding else (
        f"the gradient to {value} differs from the original's")  # fmt: skip


def _gradient_help(check: CheckResult, at_sites: bool) -> str:
    lost = check.detail.startswith((LOST, ZERO))
    if not check.rule and at_sites:
        return "look at the sites first: `-v` lists them with their numbers"
    if not check.rule:
        return "loosen `tolerance` of the rules if they approximate, or pass `--no-grad`"
    if lost:
        return f'give the op a backward, or set `gradient = "none"` on `{check.rule}`'
    return f'correct the op\'s backward, or set `gradient = "own"` on `{check.rule}` if it is meant'


def _help(
    check: CheckResult, at_sites: bool, count: int, advised: Tolerance | None, settings: Settings
) -> str:
    verdict = check.verdict
    if verdict in (*WITHOUT_RESULT, Verdict.NO_EVIDENCE):
        return causes.advice(check)
    if verdict is not Verdict.FAIL:
        return f"give other inputs with `--inputs`, or pass `--accept '{verdict}'`"
    if check.check == GRADIENTS and advised is None:
        return _gradient_help(check, at_sites)
    if check.measured is None and check.rule:
        return f"let `with` of `{check.rule}` give what it replaces: same dtype, same shape"
    if check.measured is not None and advised is not None:
        return _with_tolerance(check.rule, advised, settings)
    if check.rule:
        return f"check what `{check.rule}` puts in: it computes something else"
    if count and not at_sites and check.check == "outputs_close":
        return "every site passes by itself: the difference grows on its way, see `-v`"
    if count:
        return "look at the sites first: `-v` lists them with their numbers"
    return "see where they differ with `--report FILE.json`"


def _with_tolerance(rule: str | None, advised: Tolerance, settings: Settings) -> str:
    """Say what to write, and what would have to be allowed for that."""
    on = f" on `{rule}`" if rule else " on the rule"
    limits = (("--max-rtol", settings.max_rtol, advised.rtol),
              ("--max-atol", settings.max_atol, advised.atol))  # fmt: skip
    for option, limit, wanted in limits:
        if limit is not None and wanted > limit:
            return f"`{option}` {limit:g} forbids what would pass ({wanted:g}): come closer"
    written = f"{{ rtol = {_float(advised.rtol)}, atol = {_float(advised.atol)} }}"
    return f"set `tolerance = {written}`{on} if it is meant to approximate"


def _float(value: float) -> str:
    return f"{value:.0e}" if value else "0.0"

"""From what was found to how the command ends: expectations and verdicts become errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oprep.converters.prove import Proof
from oprep.converters.report import CheckResult, MissRecord, Report, RuleOutcome
from oprep.converters.settings import PASSING, Settings
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.rule import Opset

NEAREST = 2


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
                (f"its {len(own)} rules found no site",),
                f"see what there is with `oprep list-ops {model} --opset {opset.name}`",
                ExitCode.EXPECTATION,
                report.with_status("failed"),
            )


def _unmet(report: Report, outcome: RuleOutcome, model: str) -> OprepError:
    count = len(outcome.sites)
    if count:
        found = f"matched {count} times in `{model}`, {outcome.expect} expected"
    else:
        found = f"matched nothing in `{model}`"
        if outcome.expect != ">=1":
            found += f", {outcome.expect} expected"
    misses = [miss for miss in outcome.misses if miss.site]
    notes = [f"near miss at `{miss.site}`: {miss.reason}" for miss in misses[:NEAREST]]
    if not misses:
        notes = [miss.reason for miss in outcome.misses[:NEAREST]]
    if len(misses) > NEAREST:
        notes.append(f"{len(misses) - NEAREST} more near misses, see `oprep list-ops -r`")
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


def _advice(outcome: RuleOutcome, misses: Sequence[MissRecord], count: int) -> str:
    if count:
        return f"set `expect = {count}` if that is right, or narrow the rule with `when` or `scope`"
    if misses:
        return 'change `replace` to what the model has, or set `expect = ">=0"`'
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
        raise _failure(failed, bad, proof.first_differing, model)
    return report.with_status("accepted" if accepted else "verified")


def _failure(
    report: Report, bad: Sequence[CheckResult], first: str | None, model: str
) -> OprepError:
    sites = [check for check in bad if check.check == "sites_close"]
    check = next((item for item in sites if item.name == first), None) or (sites or list(bad))[0]
    count = len(report.checks and [c for c in report.checks if c.check == "sites_close"])
    where = f"{model}, {check.dtype}{list(check.shape)}" if check.dtype else model
    notes = []
    if check.measured is not None and str(check.verdict) == "fail":
        numbers = check.measured
        text = (
            f"worst at {list(numbers.worst_index)}: {numbers.reference:.6g} became "
            f"{numbers.candidate:.6g}, off by {numbers.max_abs:.1e}"
        )
        if check.allowed is not None:
            text += f", allowed {check.allowed:.1e}"
        notes.append(text)
    elif check.detail:
        notes.append(check.detail)
    others = len(bad) - 1
    if check.measured is not None and check.measured.passing_rtol is not None:
        notes.append(f"rtol {check.measured.passing_rtol:.1e} would pass")
    if others:
        notes.append(f"{others} more checks did not pass, `--report FILE.json` has them all")
    return OprepError(
        _fact(check, count), where, tuple(notes[:3]), _help(check, len(sites)),
        ExitCode.VERIFICATION, report,
    )  # fmt: skip


def _fact(check: CheckResult, count: int) -> str:
    verdict = str(check.verdict)
    if check.check == "sites_close":
        rule = f" (rule `{check.rule}`)" if check.rule else ""
        said = {
            "fail": f"differs from the reference at site `{check.name}`{rule}",
            "no evidence": f"has no evidence at site `{check.name}`{rule}",
        }.get(verdict, f"is `{verdict}` at site `{check.name}`{rule}")
        return f"the replacement {said}"
    if check.check == "outputs_close":
        after = f" after {count} replacements" if count else ""
        if verdict == "fail":
            return f"output `{check.name}` differs from the reference{after}"
        return f"output `{check.name}` is `{verdict}`{after}"
    return f"check `{check.check}` of `{check.name}` is `{verdict}`"


def _help(check: CheckResult, sites: int) -> str:
    verdict = str(check.verdict)
    if verdict == "fail" and check.rule and check.measured is not None:
        passing = check.measured.passing_rtol
        if passing is not None and passing < 0.1:
            return (
                f"set `tolerance = {{ rtol = {passing * 1.1:.0e}, atol = 0.0 }}` on `{check.rule}` "
                "if it is meant to approximate"
            )
        return f"check what `{check.rule}` puts in: it computes something else"
    if verdict == "fail":
        return "look at the sites first: `-v` lists them with their numbers"
    if verdict in ("no evidence", "not finite", "cannot run"):
        return f"give inputs that reach it with `--inputs`, or pass `--accept '{verdict}'`"
    return f"look at `--report FILE.json`, or pass `--accept '{verdict}'`"

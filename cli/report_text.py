"""Lay out a report for people: one line per rule, per kind of check and for what was written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from oprep.cli.escape import name, sentence
from oprep.cli.figures import (
    NO_DIFFERENCE,
    allowed,
    count,
    deviation,
    differs,
    excess,
    figures,
    miss_line,
    short,
    title,
)
from oprep.converters.report import CheckResult, Report, RuleOutcome, Verdict

_GOOD = (Verdict.PASS, Verdict.UNCHANGED)
_NOUNS = {
    "sites_close": "site",
    "outputs_close": "output",
    "gradients_close": "gradient",
    "package_close": "package output",
}
_WIDEST = 40
_FEW = 10
"""How many sites, near misses or failed checks are listed when nobody asked for all."""


@dataclass(frozen=True)
class Row:
    """One line: what it is about, the subject in its own column, and the rest."""

    kind: str
    subject: str
    text: str = ""
    below: tuple[str, ...] = ()


def report_text(report: Report, *, verbose: bool = False) -> str:
    """Give the report as aligned plain text; with `verbose` every site with its numbers."""
    rows = [
        *_rule_rows(report, verbose),
        *_check_rows(report, verbose),
        *_other_rows(report, verbose),
    ]
    return "".join(f"{line}\n" for line in [*_aligned(rows), last_line(report)])


def last_line(report: Report) -> str:
    """Say in one line how the command ended."""
    accepted = ", ".join(f"`{name(verdict)}`" for verdict in report.accepted)
    words = {"verified": "", "accepted": "", "unchanged": "unchanged, a copy of the input"}
    ending = [words.get(report.status, report.status)]
    ending += [f"accepted: {accepted}"] if accepted else []
    ending += [f"in {report.seconds:.1f} s"] if report.seconds is not None else []
    if report.artifact is not None:
        file = report.artifact.file
        head = f"wrote  {name(file.name)}  sha256 {file.sha256[:16]}…"
    elif report.status == "planned":
        head, ending = f"planned {count(report.matches, 'site')}, no model was written", ending[1:]
    elif report.candidate is not None:
        head = f"{report.status} {name(report.candidate.name)} against {name(report.model.name)}"
        ending = ending[1:]
    else:
        head, ending = f"{report.status}, no model was written", ending[1:]
    return "  " + "  ".join([head, *filter(None, [", ".join(filter(None, ending))])])


def rule_lines(rule: RuleOutcome, *, sites: bool = False, misses: bool = False) -> list[str]:
    """List the sites and the near misses of a rule, where asked for or where they explain it.

    A rule that matched less than expected is explained by its near misses, one that matched more
    by its sites.
    """
    too_many = len(rule.sites) > _wanted_count(rule.expect)
    lines: list[str] = []
    if sites or (too_many and not rule.met):
        for site in rule.sites:
            kept = f" (kept: {', '.join(map(name, site.kept))})" if site.kept else ""
            lines.append(f"site {name(site.site)}{kept}")
    if misses or not (rule.met or too_many):
        lines += map(miss_line, rule.misses)
    return lines


def _rule_rows(report: Report, verbose: bool) -> Iterator[Row]:
    silent = [rule for rule in report.rules if rule.met and not rule.sites]
    hidden = silent if len(silent) > 1 and not verbose else []
    for rule in report.rules:
        if rule in hidden:
            continue
        wanted = "" if rule.met else f" (expected {rule.expect})"
        below = rule_lines(rule, sites=verbose or report.status == "planned", misses=verbose)
        text = f"{len(rule.sites)} matched{wanted}  {name(rule.replacement)}"
        yield Row("rule", name(rule.rule), text, tuple(_few(below, verbose)))
    if hidden:
        yield Row("rule", count(len(hidden), "other"), "0 matched, as they may")


def _check_rows(report: Report, verbose: bool) -> Iterator[Row]:
    for kind in dict.fromkeys(check.check for check in report.checks):
        checks = [check for check in report.checks if check.check == kind]
        noun = _NOUNS.get(kind)
        subject = count(len(checks), noun) if noun else name(kind).replace("_", " ")
        shown = checks if verbose and noun else [c for c in checks if c.verdict not in _GOOD]
        below = _few([_check_line(check) for check in shown], verbose)
        yield Row("verify", subject, _summary(checks), tuple(below))


def _summary(checks: list[CheckResult]) -> str:
    parts: list[str] = []
    verdicts = [check.verdict for check in checks]
    if any(verdict not in _GOOD for verdict in verdicts):
        tally = {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))}
        parts.append(", ".join(f"{number} {verdict}" for verdict, number in tally.items()))
    measured = [check for check in checks if check.measured is not None]
    if measured:
        worst = max(measured, key=excess)
        parts.append(_worst(worst))
        noise = max((check.noise for check in measured if check.noise is not None), default=None)
        parts += [f"noise floor {short(noise)}"] if noise else []
    elif not parts:
        parts.append("pass")
    return ", ".join(parts)


def _worst(check: CheckResult) -> str:
    assert check.measured is not None
    if not differs(check.measured):
        return sentence(check.detail) if check.detail else NO_DIFFERENCE
    return f"worst {short(deviation(check.measured))} ({allowed(check)})"


def _check_line(check: CheckResult) -> str:
    accepted = " (accepted)" if check.accepted else ""
    return f"{check.verdict}{accepted}  {name(title(check))}  {figures(check)}".rstrip()


def _other_rows(report: Report, verbose: bool) -> Iterator[Row]:
    refused = [item for item in report.inputs if item.refused]
    if refused:
        below = [f"{name(item.name)}: {sentence(item.refused)}" for item in refused]
        text = f"{len(refused)} refused by the original"
        subject = count(len(report.inputs), "set")
        yield Row("inputs", subject, text, tuple(_few(below, verbose)))
    for note in report.notes:
        yield Row("note", sentence(note))
    if report.artifact is not None:
        for library in report.artifact.libraries:
            yield Row("needs", f"{name(library)} to run")
        for function in report.artifact.functions if verbose else ():
            yield Row("body", name(function), "as a model-local function")


def _aligned(rows: Iterable[Row]) -> Iterator[str]:
    rows = list(rows)
    width = max((len(row.subject) for row in rows if row.text), default=0)
    width = min(width, _WIDEST)
    for row in rows:
        yield f"  {row.kind:<6} {row.subject:<{width}}  {row.text}".rstrip()
        yield from (f"           {line}" for line in row.below)


def _few(lines: list[str], verbose: bool) -> list[str]:
    if verbose or len(lines) <= _FEW:
        return lines
    return [*lines[:_FEW], f"and {len(lines) - _FEW} more, `-v` lists all"]


def _wanted_count(expect: str) -> int:
    digits = re.search(r"\d+", expect)
    return int(digits[0]) if digits else 0

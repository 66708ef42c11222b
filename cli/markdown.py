"""Write a report as Markdown, for a file or the summary page of a CI job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from oprep.cli.escape import name, sentence
from oprep.cli.figures import (
    NO_DIFFERENCE,
    count,
    deviation,
    differs,
    excess,
    place,
    remarks,
    short,
    title,
)
from oprep.cli.message import error_text
from oprep.converters.report import CheckResult, Report, Verdict
from oprep.opsets.errors import OprepError

_GOOD = (Verdict.PASS, Verdict.UNCHANGED)
_HEAD = ("name", "verdict", "type", "worst", "allowed", "rtol", "atol", "noise floor")
_ROWS = 200
"""A job summary holds 1 MiB: of longer tables the worst rows are kept."""


def markdown(report: Report | None, error: OprepError | None = None) -> str:
    """Give the Markdown document; what comes from a file cannot become markup."""
    parts = list(_report(report)) if report is not None else ["# oprep: failed"]
    if error is not None:
        fence = "`" * (_longest_run(error_text(error)) + 3)
        parts.append(f"{fence}text\n{error_text(error)}{fence}")
    return "\n\n".join(parts) + "\n"


def _report(report: Report) -> Iterator[str]:
    yield f"# oprep {report.command}: {report.status}"
    yield _table(("", "file", "sha256"), _files(report))
    if report.accepted:
        yield f"Accepted: {', '.join(map(_code, report.accepted))}"
    yield from (_plain(note) for note in report.notes)
    if report.rules:
        yield "## Rules"
        yield _table(("rule", "matched", "expected", "replacement"), _rules(report))
    misses = [(rule.rule, miss) for rule in report.rules if not rule.met for miss in rule.misses]
    if misses:
        yield "## Near misses"
        rows = [(_code(rule), _code(miss.site), _plain(miss.reason)) for rule, miss in misses]
        yield _table(("rule", "site", "first condition that failed"), rows)
    for kind in dict.fromkeys(check.check for check in report.checks):
        checks = [check for check in report.checks if check.check == kind]
        yield f"## {_plain(kind.replace('_', ' '))}: {_tally(checks)}"
        yield _checks(checks)


def _files(report: Report) -> list[tuple[str, ...]]:
    rows = [("input", _code(report.model.name), _code(report.model.sha256))]
    rows += [("with", _code(file.name), _code(file.sha256)) for file in report.model.external]
    if report.candidate is not None:
        rows.append(("candidate", _code(report.candidate.name), _code(report.candidate.sha256)))
    if report.artifact is not None:
        file = report.artifact.file
        rows.append(("output", _code(file.name), _code(file.sha256)))
        sides = report.artifact.side_files
        rows += [("beside it", _code(file.name), _code(file.sha256)) for file in sides]
    return [tuple(row) for row in rows]


def _rules(report: Report) -> list[tuple[str, ...]]:
    return [
        (
            _code(rule.rule),
            f"{len(rule.sites)}{'' if rule.met else ' ❌'}",
            _plain(rule.expect),
            _code(rule.replacement),
        )
        for rule in report.rules
    ]


def _tally(checks: list[CheckResult]) -> str:
    verdicts = [check.verdict for check in checks]
    return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in sorted(set(verdicts)))


def _checks(checks: list[CheckResult]) -> str:
    worst_first = sorted(checks, key=lambda check: (check.verdict in _GOOD, -excess(check)))
    rows = [_check(check) for check in worst_first[:_ROWS]]
    left = len(checks) - len(rows)
    more = f"\n\n{count(left, 'more row')} in the JSON report" if left else ""
    return _table(_HEAD, rows) + more


def _check(check: CheckResult) -> tuple[str, ...]:
    tolerance = check.tolerance
    return (
        _code(title(check)),
        f"{check.verdict}{' (accepted)' if check.accepted else ''}",
        _code(f"{check.dtype}{list(check.shape)}") if check.dtype else "",
        _plain(", ".join(_worst(check))),
        short(check.allowed) if check.allowed is not None else "",
        short(tolerance.rtol) if tolerance is not None else "",
        short(tolerance.atol) if tolerance is not None else "",
        short(check.noise) if check.noise is not None else "",
    )


def _worst(check: CheckResult) -> Iterator[str]:
    measured = check.measured
    if measured is not None:
        off = f"{short(deviation(measured))}{place(measured)}"
        yield off if differs(measured) else NO_DIFFERENCE
    yield from remarks(check)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _code(text: str) -> str:
    text = name(text).replace("|", r"\|")
    fence = "`" * (_longest_run(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}" if text else ""


def _plain(text: str) -> str:
    text = sentence(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\|\[\]!*_~#])", r"\\\1", text)


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)

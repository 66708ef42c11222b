"""Write a report as JUnit XML: a test suite per check, a test case per site, output and rule."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from oprep.cli.escape import name, sentence
from oprep.cli.figures import figures, miss_line
from oprep.cli.message import error_text
from oprep.converters.report import CheckResult, Report, RuleOutcome, Verdict
from oprep.opsets.errors import ExitCode, OprepError

_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold at all, not even as a reference."""

_ERRORS = (Verdict.CANNOT_RUN, Verdict.CRASHED, Verdict.TIMED_OUT)
_FOUND = (ExitCode.VERIFICATION, ExitCode.EXPECTATION)
"""Ends that say what was found in the model, not that the command could not do its work."""

_GOOD = (Verdict.PASS, Verdict.UNCHANGED)


def junit_xml(report: Report | None, error: OprepError | None = None) -> str:
    """Give the XML document; an error that no failed case of the report explains becomes one."""
    root = Element("testsuites", name="oprep")
    if report is not None:
        if report.rules:
            _suite(root, "expectations", map(_rule_case, report.rules))
        for kind in dict.fromkeys(check.check for check in report.checks):
            checks = (check for check in report.checks if check.check == kind)
            _suite(root, kind, map(_check_case, checks))
    explained = root.find("*/*/failure") is not None or root.find("*/*/error") is not None
    if error is not None and not (explained and error.exit_code in _FOUND):
        _suite(root, "command", [_error_case(error)])
    for key in ("tests", "failures", "errors"):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in root)))
    indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _suite(root: Element, title: str, cases: Iterable[Element]) -> None:
    suite = SubElement(root, "testsuite", name=_text(title))
    suite.extend(cases)
    counted = {"tests": "testcase", "failures": "*/failure", "errors": "*/error"}
    for key, path in {**counted, "skipped": "*/skipped"}.items():
        suite.set(key, str(len(suite.findall(path))))


def _rule_case(rule: RuleOutcome) -> Element:
    case = _case(rule.rule, "expectations")
    if not rule.met:
        misses = map(miss_line, rule.misses)
        message = f"{len(rule.sites)} matched, expected {rule.expect}"
        _end(case, "failure", "expectation", message, [rule.source, *misses])
    return case


def _check_case(check: CheckResult) -> Element:
    case = _case(check.name, f"{check.check}.{check.rule}" if check.rule else check.check)
    message = f"{check.verdict}: {figures(check)}".removesuffix(": ")
    if check.verdict in _GOOD:
        return case
    if check.accepted:
        SubElement(case, "skipped", message=_text(f"accepted, {message}"))
        return case
    kind = "error" if check.verdict in _ERRORS else "failure"
    _end(case, kind, check.verdict.value, message, _numbers(check))
    return case


def _numbers(check: CheckResult) -> list[str]:
    lines = [f"{check.dtype}{list(check.shape)}"] if check.dtype else []
    if check.measured is not None:
        found = check.measured
        fields = ("elements", "left_out", "max_abs", "max_rel", "rms", "passing_rtol")
        lines += [f"{field} = {getattr(found, field)}" for field in fields]
    if check.tolerance is not None:
        used = check.tolerance
        lines.append(f"rtol = {used.rtol}, atol = {used.atol} {check.tolerance_source}".rstrip())
    return lines


def _error_case(error: OprepError) -> Element:
    case = _case(f"exit {int(error.exit_code)}", "command")
    kind = "failure" if error.exit_code in _FOUND else "error"
    _end(case, kind, error.exit_code.name.lower(), error.message, error_text(error).splitlines())
    return case


def _case(title: str, classname: str) -> Element:
    return Element("testcase", name=name(title), classname=_text(classname))


def _end(case: Element, tag: str, kind: str, message: str, lines: Iterable[str]) -> None:
    element = SubElement(case, tag, type=kind, message=_text(message))
    element.text = "\n".join(map(_text, lines))


def _text(text: str) -> str:
    return _ILLEGAL.sub(lambda match: rf"\u{ord(match[0]):04x}", sentence(text))

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_reports import FAILED, HOSTILE, OPS, OPSETS, REPORTS, STRANGE, VERIFIED, check

from oprep.cli.junit import junit_xml
from oprep.cli.markdown import markdown
from oprep.cli.op_text import aligned, op_tables, rule_text
from oprep.cli.report_text import last_line, report_text
from oprep.converters.report import Verdict
from oprep.opsets.errors import ExitCode, OprepError

ERROR = OprepError(
    "output `logits` differs from the reference after 2 replacements",
    where="encoder.onnx",
    notes=("worst at [4, 7]: 0.812 became 0.843, off by 3.1e-02, allowed 1.1e-05",),
    help="set `tolerance = { rtol = 4e-2 }` if it is meant to approximate",
    exit_code=ExitCode.VERIFICATION,
)

SCHEMA = {
    "testsuites": ({"name", "tests", "failures", "errors", "time", "disabled"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname", "id"},
        {"testcase", "properties", "system-out", "system-err"},
    ),
    "testcase": (
        {"name", "classname", "time", "status", "assertions"},
        {"skipped", "error", "failure", "system-out", "system-err"},
    ),
    "failure": ({"type", "message"}, set()),
    "error": ({"type", "message"}, set()),
    "skipped": ({"type", "message"}, set()),
}
"""Attributes and children of each element in the JUnit schema that Jenkins publishes."""


def assert_is_junit(element):
    attributes, children = SCHEMA[element.tag]
    assert set(element.keys()) <= attributes
    assert {child.tag for child in element} <= children
    if element.tag == "testsuite":
        assert element.get("tests") == str(len(element))
        for key, tag in {"failures": "failure", "errors": "error", "skipped": "skipped"}.items():
            assert element.get(key) == str(len(element.findall(f"*/{tag}")))
    if element.tag in ("testsuite", "testcase"):
        assert element.get("name")
    for child in element:
        assert_is_junit(child)


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_the_golden_text(name, golden):
    golden(f"{name}.txt", report_text(REPORTS[name]))
    golden(f"{name}_verbose.txt", report_text(REPORTS[name], verbose=True))


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_the_golden_json(name, golden):
    golden(f"{name}.json", REPORTS[name].to_json())


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_the_golden_markdown(name, golden):
    error = None if REPORTS[name].ok else ERROR
    golden(f"{name}.md", markdown(REPORTS[name], error))


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_the_golden_junit_xml(name, golden):
    error = None if REPORTS[name].ok else ERROR
    text = junit_xml(REPORTS[name], error)
    assert_is_junit(ElementTree.fromstring(text.encode()))
    golden(f"{name}.xml", text)


def test_an_error_without_a_report_still_gives_every_kind_of_report(golden):
    text = junit_xml(None, ERROR)
    assert_is_junit(ElementTree.fromstring(text.encode()))
    golden("error.xml", text)
    golden("error.md", markdown(None, ERROR))


@given(st.text(max_size=60))
def test_junit_xml_is_well_formed_whatever_the_names_are(text):
    report = VERIFIED.__class__(
        command="convert",
        status="failed",
        model=VERIFIED.model,
        checks=(check(text, text, verdict=Verdict.FAIL, detail=text, rule=text),),
    )
    error = OprepError(text, text, (text,), text)
    root = ElementTree.fromstring(junit_xml(report, error).encode("utf-8", "strict"))
    assert len(root) == 2
    assert len(ElementTree.fromstring(junit_xml(None, error).encode())) == 1


@given(st.text(st.sampled_from("a`|<>[]!*_~#\\\n "), max_size=40))
def test_markdown_tables_keep_their_cells_whatever_the_names_are(text):
    report = VERIFIED.__class__(
        command="convert",
        status="failed",
        model=VERIFIED.model,
        checks=(check("sites_close", "x" + text, verdict=Verdict.FAIL, detail=text),),
    )
    rows = [line for line in markdown(report).splitlines() if line.startswith("|")][3:]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [9, 9, 9]


@pytest.mark.parametrize("code", [ExitCode.VERIFICATION, ExitCode.EXPECTATION])
def test_junit_counts_what_was_found_once(code):
    error = OprepError("a site differs", exit_code=code)
    root = ElementTree.fromstring(junit_xml(FAILED, error))
    assert root.find("testsuite[@name='command']") is None
    assert int(root.get("failures")) + int(root.get("errors")) == len(FAILED.checks)


@pytest.mark.parametrize("code", ExitCode)
def test_junit_is_never_green_after_an_error(code):
    error = OprepError("something", exit_code=code)
    tag = "failure" if code in (4, 6) else "error"
    for report in (None, VERIFIED):
        root = ElementTree.fromstring(junit_xml(report, error))
        assert len(root.findall(f"testsuite[@name='command']/testcase/{tag}")) == 1
    root = ElementTree.fromstring(junit_xml(FAILED, error))
    assert (root.find("testsuite[@name='command']") is None) == (code in (4, 6))


def test_no_difference_is_said_only_where_no_element_differs():
    from dataclasses import replace

    from sample_reports import EXACT

    hidden = check("outputs_close", "y", replace(EXACT, candidate=EXACT.reference))
    report = replace(VERIFIED, checks=(hidden,))
    for text in (report_text(report), report_text(report, verbose=True), markdown(report)):
        assert "no difference" not in text
        assert "2.4e-07" in text


def test_markdown_shows_what_was_allowed_and_from_what():
    from dataclasses import replace

    row = markdown(replace(VERIFIED, checks=(check("outputs_close", "y"),))).splitlines()[-1]
    assert row == (
        "| `y` | pass | `float32[8, 10]` | 2.4e-07 at \\[4, 7\\] | 1.0e-05 | 1.0e-04 | 1.0e-06 "
        "| 8.0e-07 |"
    )


def test_markdown_lets_no_html_and_no_link_out_of_a_file_through():
    text = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", markdown(STRANGE))
    assert "<" not in text
    assert not re.search(r"(?<!\\)\[", text)


def test_no_line_of_any_text_is_a_workflow_command():
    texts = [report_text(STRANGE, verbose=True), markdown(STRANGE), junit_xml(STRANGE)]
    for text in texts:
        assert not [line for line in text.splitlines() if line.lstrip().startswith("::")]
        assert "##vso[" not in text
        assert "\x1b" not in text
        assert HOSTILE not in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("unverified", "not verified"),
        ("accepted", "accepted: `no evidence`"),
        ("unchanged", "unchanged"),
        ("planned", "no model was written"),
        ("failed", "failed, no model was written"),
    ],
)
def test_the_last_line_says_what_is_not_proven(name, words):
    assert words in last_line(REPORTS[name])
    assert report_text(REPORTS[name]).splitlines()[-1] == last_line(REPORTS[name])


def test_a_rule_with_too_few_matches_shows_its_near_misses_and_one_with_too_many_its_sites():
    text = report_text(REPORTS["planned"])
    few, many = text.split("gelu-fast")[1].split("relu  ")
    assert "near miss at blocks.2.mlp.act: constant is 1.5, the rule wants 1.4142135" in few
    assert "near miss" not in many
    assert "site blocks.0.mlp.act" in many


def test_a_long_list_is_cut_unless_all_of_it_is_asked_for():
    checks = tuple(check("sites_close", f"s{i}", verdict=Verdict.FAIL) for i in range(30))
    report = VERIFIED.__class__(
        command="convert", status="failed", model=VERIFIED.model, checks=checks
    )
    assert "and 20 more, `-v` lists all" in report_text(report)
    assert "s29" in report_text(report, verbose=True)


def test_the_worst_check_is_the_one_that_is_furthest_over_what_is_allowed():
    loose = check("sites_close", "a", allowed=1.0)
    tight = check("sites_close", "b", allowed=1e-7)
    for checks in ((loose, tight), (tight, loose)):
        report = VERIFIED.__class__(
            command="convert", status="failed", model=VERIFIED.model, checks=checks
        )
        assert "worst 2.4e-07 (allowed 1.0e-07)" in report_text(report)


def test_the_same_computation_on_both_sides_is_said_instead_of_a_worst_of_zero():
    from dataclasses import replace

    from sample_reports import EXACT

    same = replace(EXACT, candidate=EXACT.reference, max_abs=0.0)
    report = replace(
        VERIFIED, checks=(check("sites_close", "a", same, detail="body and pattern are the same"),)
    )
    assert "verify 1 site" in report_text(report)
    assert "body and pattern are the same" in report_text(report)
    assert "worst" not in report_text(report)


def test_the_json_report_is_strict_json_with_a_schema_number():
    document = json.loads(FAILED.to_json(), parse_constant=pytest.fail)
    assert (document["schema"], document["ok"]) == (1, False)


def test_op_tables_are_the_golden_texts(golden):
    golden("ops.txt", "\n".join(map(aligned, op_tables(OPS))) + "\n".join(rule_text(OPS)) + "\n")
    golden("opsets.txt", "\n".join(map(aligned, op_tables(OPSETS))))

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from sample_reports import ACCEPTED, FAILED, HOSTILE, OPS, OPSETS, PLANNED, UNVERIFIED, VERIFIED

from oprep.opsets.errors import ExitCode, OprepError

FAILURE = OprepError(
    "output `logits` differs from the reference after 2 replacements",
    where="encoder.onnx",
    notes=("worst at [4, 7]: 0.812 became 0.843, off by 3.1e-02, allowed 1.1e-05",),
    help="set `tolerance = { rtol = 4e-2 }` if it is meant to approximate",
    exit_code=ExitCode.VERIFICATION,
    report=FAILED,
)


def test_the_report_goes_to_stderr_and_stdout_stays_empty(oprep, pipeline, arguments):
    pipeline(VERIFIED)
    outcome = oprep(*arguments)
    assert (outcome.code, outcome.out) == (0, "")
    assert "wrote  encoder.acme.onnx  sha256 3f2a" in outcome.err.splitlines()[-1]


def test_json_is_one_document_on_stdout(oprep, pipeline, arguments):
    pipeline(VERIFIED)
    outcome = oprep(*arguments, "--json")
    assert json.loads(outcome.out) == VERIFIED.as_dict()


def test_json_is_one_document_also_for_an_error_and_holds_its_report(oprep, pipeline, arguments):
    pipeline(FAILURE)
    outcome = oprep(*arguments, "--json")
    document = json.loads(outcome.out)
    assert outcome.code == 4
    assert document == {
        "schema": 1,
        "ok": False,
        "error": {
            "message": FAILURE.message,
            "where": "encoder.onnx",
            "notes": list(FAILURE.notes),
            "help": FAILURE.help,
            "exit_code": 4,
        },
        "report": FAILED.as_dict(),
    }


@pytest.mark.parametrize("words", [("convert", "--json"), ("verify", "a", "--json"), ("--json",)])
def test_json_is_one_document_also_for_wrong_usage(words, oprep):
    outcome = oprep(*words)
    assert outcome.code == 2
    assert json.loads(outcome.out)["error"]["exit_code"] == 2


def test_an_error_is_the_last_thing_and_the_run_so_far_stands_before_it(
    oprep, pipeline, arguments, golden
):
    pipeline(FAILURE)
    outcome = oprep(*arguments)
    assert (outcome.code, outcome.out) == (4, "")
    golden("failure.txt", outcome.err)


def test_quiet_prints_the_last_line_only(oprep, pipeline, arguments):
    pipeline(ACCEPTED)
    (line,) = oprep(*arguments, "-q").err.splitlines()
    assert "accepted: `no evidence`" in line


def test_verbose_lists_every_site_with_its_numbers(oprep, pipeline, arguments):
    pipeline(VERIFIED)
    assert "pass  blocks.0.mlp.act  0.8125 became 0.81250024" in oprep(*arguments, "-v").err


def test_a_report_that_is_not_ok_is_exit_4(oprep, pipeline):
    pipeline(FAILED)
    assert oprep("verify", "a.onnx", "b.onnx").code == 4
    pipeline(UNVERIFIED)
    assert oprep("verify", "a.onnx", "b.onnx").code == 0


def test_list_ops_prints_its_table_on_stdout(oprep, pipeline):
    pipeline(OPS)
    outcome = oprep("list-ops", "m.onnx")
    assert outcome.out.splitlines()[0].split() == ["op", "count", "dtypes", "where", "rules"]
    assert (
        outcome.err == "encoder.onnx: 231 nodes, opset ai.onnx 18, com.microsoft 1, IR version 10\n"
    )
    pipeline(OPSETS)
    assert "oprep::Gelu" in oprep("list-ops").out


def test_list_ops_json_is_the_table(oprep, pipeline):
    pipeline(OPS)
    assert oprep("list-ops", "m.onnx", "--json").out == OPS.to_json()


@pytest.mark.parametrize("value", [VERIFIED, FAILURE], ids=["result", "error"])
def test_every_report_file_is_written_whatever_the_end(value, oprep, pipeline, arguments, tmp_path):
    pipeline(value)
    paths = [tmp_path / f"r{suffix}" for suffix in (".json", ".xml", ".md")]
    words = [word for path in paths for word in ("--report", str(path))]
    outcome = oprep(*arguments, *words)
    assert outcome.code == (0 if value is VERIFIED else 4)
    document, xml, text = (path.read_text() for path in paths)
    assert json.loads(document)["ok"] is (value is VERIFIED)
    assert ElementTree.fromstring(xml).tag == "testsuites"
    assert text.startswith("# oprep convert: ")


def test_an_error_without_a_report_is_written_to_the_report_files_too(
    oprep, pipeline, arguments, tmp_path
):
    pipeline(OprepError("`m.onnx` is cut short", exit_code=ExitCode.MODEL))
    path = tmp_path / "r.xml"
    assert oprep(*arguments, "--report", str(path)).code == 3
    assert "is cut short" in path.read_text()


def test_a_report_that_cannot_be_written_is_exit_8(oprep, pipeline, arguments, tmp_path):
    pipeline(VERIFIED)
    outcome = oprep(*arguments, "--report", str(tmp_path / "none" / "r.json"))
    assert outcome.code == 8
    assert outcome.err.count("error: ") == 1


def test_the_job_summary_is_appended_to(oprep, pipeline, arguments, tmp_path, monkeypatch):
    summary = tmp_path / "summary.md"
    summary.write_text("# before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    pipeline(VERIFIED)
    oprep(*arguments)
    pipeline(FAILURE)
    oprep(*arguments)
    text = summary.read_text()
    assert text.startswith("# before\n")
    assert text.index("# oprep convert: verified") < text.index("# oprep convert: failed")


@pytest.mark.parametrize("before", ["", "text", "text\n", "text\n\n", "| a |\n", "\n"])
def test_a_heading_in_the_job_summary_stands_alone(
    before, oprep, pipeline, arguments, tmp_path, monkeypatch
):
    summary = tmp_path / "summary.md"
    summary.write_text(before)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    pipeline(VERIFIED)
    oprep(*arguments)
    head, report, _ = summary.read_text().partition("# oprep convert: verified")
    assert report
    assert head.startswith(before)
    assert not head.strip() or (head.endswith("\n\n") and not head.endswith("\n\n\n"))


@pytest.mark.parametrize("name", ["x" * 300, "none/summary.md", "."])
def test_a_job_summary_that_cannot_be_there_is_a_warning(
    name, oprep, pipeline, arguments, tmp_path, monkeypatch
):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / name))
    pipeline(VERIFIED)
    outcome = oprep(*arguments)
    assert (outcome.code, outcome.err.count("warning: the job summary was not written: ")) == (0, 1)


def test_a_job_summary_that_cannot_be_written_is_a_warning(
    oprep, pipeline, arguments, tmp_path, monkeypatch
):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    pipeline(VERIFIED)
    outcome = oprep(*arguments)
    assert outcome.code == 0
    assert "warning: the job summary was not written" in outcome.err


@pytest.mark.parametrize(
    ("cause", "code", "words"),
    [
        (KeyboardInterrupt(), 130, "error: interrupted"),
        (MemoryError(), 9, "error: ran out of memory"),
        (RecursionError("maximum depth"), 1, "error: internal error: RecursionError"),
        (ValueError("odd"), 1, "error: internal error: ValueError: odd"),
        (OprepError("refused", exit_code=ExitCode.UNTRUSTED), 7, "error: refused"),
    ],
)
def test_every_way_to_end_has_its_exit_code_and_no_traceback(
    cause, code, words, oprep, pipeline, arguments
):
    pipeline(cause)
    outcome = oprep(*arguments)
    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.err.startswith(words)
    assert "Traceback" not in outcome.err


def test_an_internal_error_asks_for_a_report_with_debug(oprep, pipeline, arguments):
    pipeline(ValueError("odd"))
    assert "please report this, with what `--debug` shows" in oprep(*arguments).err


def test_debug_shows_the_traceback_of_any_error_and_its_cause(oprep, pipeline, arguments):
    pipeline(ValueError("odd"))
    shown = oprep(*arguments, "--debug").err
    assert "Traceback" in shown
    assert "ValueError: odd" in shown
    assert shown.splitlines()[-1].startswith("  = help: ")


def test_names_from_a_file_cannot_speak_to_the_terminal_or_the_ci(oprep, pipeline, arguments):
    pipeline(OprepError(HOSTILE, HOSTILE, (HOSTILE,), HOSTILE, ExitCode.MODEL))
    shown = oprep(*arguments).err
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "##vso[" not in shown
    assert not [line for line in shown.splitlines() if line.lstrip().startswith("::")]


def test_progress_and_colour_are_for_terminals_only(oprep, pipeline, arguments):
    calls = pipeline(replace(PLANNED, rules=()))
    shown = oprep(*arguments).err
    assert calls[0]["progress"] is None
    assert "\x1b" not in shown

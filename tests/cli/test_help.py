from __future__ import annotations

import re

import pytest


@pytest.mark.parametrize("command", ["", "convert", "verify", "list-ops"])
def test_help_is_the_golden_text(command, oprep, golden):
    outcome = oprep(*command.split(), "--help")
    assert (outcome.code, outcome.err) == (0, "")
    golden(f"help_{command or 'oprep'}.txt", outcome.out)


@pytest.mark.parametrize("command", ["convert", "verify", "list-ops"])
def test_everyday_options_come_before_every_heading(command, oprep):
    text = oprep(command, "--help").out
    headings = re.findall(r"^(\w.*):$", text, re.MULTILINE)
    assert headings[:2] == ["Arguments", "Options"]
    order = [
        "Rules",
        "Inputs",
        "PyTorch models",
        "Verification",
        "Output and reports",
        "Limits and safety",
    ]
    assert headings[2:] == [heading for heading in order if heading in headings]
    everyday = text.split("Options:")[1].split("\n\n")[0]
    assert "--json" in everyday
    assert "--max-bytes" not in everyday


def test_the_list_of_commands_cuts_no_sentence_short(oprep):
    assert "..." not in oprep("--help").out.split("Commands:")[1]


def test_help_shows_no_command_that_is_not_there(oprep):
    text = oprep("--help").out.split("Commands:")[1]
    assert [line.split()[0] for line in text.strip().splitlines()] == [
        "convert",
        "verify",
        "list-ops",
    ]


@pytest.mark.parametrize("command", ["", "convert", "verify"])
def test_a_command_without_arguments_shows_its_help_and_is_wrong_usage(command, oprep):
    outcome = oprep(*command.split())
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("Usage: oprep")


def test_the_help_text_names_every_verdict_that_can_be_accepted(oprep):
    from oprep.converters.report import Verdict

    refusal = oprep("convert", "m.onnx", "-r", "r.toml", "-o", "o.onnx", "--accept", "good").err
    for verdict in Verdict:
        named = f"`{verdict.value}`" in refusal
        assert named == (verdict not in (Verdict.PASS, Verdict.UNCHANGED)), verdict


def test_shell_completion_is_on(oprep):
    assert "--install-completion" in oprep("--help").out

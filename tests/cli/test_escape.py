from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oprep.cli.escape import NAME_LIMIT, clean, name, sentence
from oprep.cli.message import MESSAGE_LIMIT, error_text
from oprep.opsets.errors import OprepError

NASTY = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from("\n\r\x1b\x07\x7f\x9b\u202e\u2066\u200f\u2028\ufeff\u200b`:#["),
    ),
    max_size=400,
)


@given(NASTY)
def test_nothing_invisible_and_no_line_break_is_left_in_a_name(text):
    shown = name(text)
    assert len(shown) <= NAME_LIMIT
    assert shown.splitlines() in ([], [shown])
    for character in shown:
        assert unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


@given(NASTY)
def test_no_name_starts_a_workflow_command(text):
    assert not name("::" + text).lstrip().startswith("::")
    assert "##[" not in clean("##[" + text)
    assert "##vso[" not in clean(text + "##vso[task.setvariable]")


@pytest.mark.parametrize("text", ["  ::error::x", "\t::error::x", "\u3000::set-output name=a::b"])
def test_blanks_before_a_workflow_command_do_not_hide_it(text):
    assert not clean(text).lstrip().startswith("::")


@given(st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"]), max_size=190))
def test_a_plain_name_is_kept(text):
    if not text.startswith("::") and "##" not in text:
        assert name(text) == text


def test_names_of_other_languages_are_kept():
    assert name("слой/層.λ") == "слой/層.λ"


def test_a_long_name_in_a_sentence_is_cut_and_the_sentence_goes_on():
    text = sentence(f"value `{'x' * 1000}` is read by `y`")
    assert text == f"value `{'x' * 199}…` is read by `y`"


@given(NASTY, NASTY, st.lists(NASTY, max_size=6), NASTY)
def test_a_message_keeps_its_form_whatever_is_in_it(message, where, notes, help):
    text = error_text(OprepError(message, where, tuple(notes), help))
    assert len(text.encode()) <= MESSAGE_LIMIT
    heads = ("error: ", "  --> ", "  = note: ", "  |       ", "  = help: ")
    lines = text.removesuffix("\n").split("\n")
    assert lines == text.splitlines()
    assert all(line.startswith(heads) for line in lines)
    assert sum(line.startswith("  = note: ") for line in lines) == sum(
        note.strip() != "^" for note in notes[:3]
    )


def test_a_message_that_is_too_long_keeps_its_help():
    text = error_text(OprepError("é" * 9000, "w" * 9000, ("n" * 9000,) * 3, "do this"))
    assert len(text.encode()) <= MESSAGE_LIMIT
    assert text.endswith("  = help: do this\n")


@pytest.mark.parametrize("joined", [False, True])
def test_a_caret_stays_under_its_place(joined):
    notes = ("0.5 * x * (1 + erf(x / sqrt(2))", " " * 10 + "^")
    text = error_text(OprepError("bad equation", notes=("\n".join(notes),) if joined else notes))
    first, second = text.splitlines()[1:]
    assert first.index("(1 +") == second.index("^")

"""`--dynamic`: what is written comes out, what is wrong is shown with its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oprep.converters.dynamic_dims import LARGEST, DynamicDim, parse_dynamic
from oprep.opsets.errors import ExitCode, OprepError

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
inputs = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\[\]]{0,12}", fullmatch=True)
sizes = st.none() | st.integers(0, LARGEST)


@st.composite
def dims(draw):
    low, high = draw(sizes), draw(sizes)
    if low is not None and high is not None and high <= low:
        low, high = (high, low) if high < low else (None, high)
    return DynamicDim(draw(inputs), draw(st.integers(-9, 9)), draw(names), low, high)


@given(dims())
def test_what_is_written_is_read_back(dim):
    assert parse_dynamic([str(dim)]) == (dim,)


@given(dims(), st.data())
def test_a_planted_mark_is_refused_at_a_place_in_the_text(dim, data):
    text = str(dim)
    at = data.draw(st.integers(0, len(text)))
    mark = data.draw(st.sampled_from(["#", " ", "=", "]", ":", "[", "-"]))
    broken = text[:at] + mark + text[at:]
    refused, found = None, ()
    try:
        found = parse_dynamic([broken])
    except OprepError as error:
        refused = error
    if refused is None:  # a mark that makes another dim of it
        assert str(found[0]) == broken or mark in "-[]"
        return
    assert refused.exit_code is ExitCode.USAGE
    shown, caret = refused.notes
    assert shown == broken[:79] + ("…" if len(broken) > 80 else broken[79:])
    assert caret.strip() == "^"
    assert 0 <= len(caret) - 1 <= len(broken)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x:0=batch[1:64]", DynamicDim("x", 0, "batch", 1, 64)),
        ("x:0=batch", DynamicDim("x", 0, "batch")),
        ("x:-1=length[:8]", DynamicDim("x", -1, "length", None, 8)),
        ("batch_mask:1=n[2:]", DynamicDim("batch_mask", 1, "n", 2, None)),
    ],
)
def test_the_forms(text, wanted):
    assert parse_dynamic([text]) == (wanted,)


@pytest.mark.parametrize(
    ("text", "wanted", "at"),
    [
        ("", "the name of an input", 0),
        ("x", "`:`", 1),
        ("x:", "an axis", 2),
        ("x:0", "`=`", 3),
        ("x:0=", "a name", 4),
        ("x:0=1a", "a name", 4),
        ("x:0=b[", "the smallest size", 6),
        ("x:0=b[1", "`:`", 7),
        ("x:0=b[1:", "the largest size", 8),
        ("x:0=b[1:2", "`]`", 9),
        ("x:0=b[4:4]", "a size above 4", 8),
        ("x:0=b[1:2]!", "the end", 10),
        ("x:99999999999999999999=b", "an axis", 2),
    ],
)
def test_the_place_of_a_mistake_is_shown(text, wanted, at):
    with pytest.raises(OprepError) as caught:
        parse_dynamic([text])
    assert wanted in caught.value.message
    assert caught.value.notes == (text, " " * at + "^")


def test_one_name_with_two_ranges_is_refused():
    with pytest.raises(OprepError, match="`batch` is given two ranges"):
        parse_dynamic(["x:0=batch[1:64]", "y:0=batch[2:64]"])
    assert len(parse_dynamic(["x:0=batch[1:64]", "y:0=batch"])) == 2


def test_one_axis_with_two_names_is_refused():
    with pytest.raises(OprepError, match="axis 0 of `x` is given twice"):
        parse_dynamic(["x:0=batch", "x:0=other"])

"""The line of every value of a rule file, and the limits that are checked before it is parsed."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.positions import MAX_BYTES, Place, check_limits, positions

FILE = '''# comment with [brackets] = "quotes
format = 1 # [[rule]]

[[op]]
name = "a::b"   # "x
onnx = { domain = "d", type = 'T', version = 1 }

[[rule]]
name='r'
replace = [
  "a",  # ]
  """
x = "1"
y""",
  \'\'\'z\'\'\', """w \\""" """
]
tolerance.rtol = 1.5
"quoted key" = """"a""""
a."b.c" . d = [[1,2],
 {x=2}]
[rule.sub]
k = 1979-05-27T07:32:00Z
[[rule]]
name = ""
when = "multi\\nline"
'''


def test_every_key_and_item_has_its_line():
    places = positions(FILE).places
    assert tomllib.loads(FILE)
    expected = {
        ("format",): 2,
        ("op", 0): 4,
        ("op", 0, "name"): 5,
        ("op", 0, "onnx", "version"): 6,
        ("rule", 0): 8,
        ("rule", 0, "name"): 9,
        ("rule", 0, "replace"): 10,
        ("rule", 0, "replace", 0): 11,
        ("rule", 0, "replace", 2): 15,
        ("rule", 0, "replace", 3): 15,
        ("rule", 0, "tolerance"): 17,
        ("rule", 0, "tolerance", "rtol"): 17,
        ("rule", 0, "quoted key"): 18,
        ("rule", 0, "a", "b.c", "d", 1, "x"): 20,
        ("rule", 0, "sub"): 21,
        ("rule", 0, "sub", "k"): 22,
        ("rule", 1): 23,
        ("rule", 1, "name"): 24,
    }
    assert {path: places[path].line for path in expected} == expected


def test_the_text_of_a_long_string_begins_behind_its_first_newline():
    found = positions(FILE)
    assert found.place(("rule", 0, "replace", 1)) == Place(12, 13, True)
    assert found.place(("rule", 0, "replace", 2)) == Place(15, 15, True)
    assert found.place(("rule", 1, "when")) == Place(25, 25, False)


def test_a_path_that_is_not_written_has_the_place_of_the_table_around_it():
    assert positions(FILE).place(("rule", 1, "with", 3)).line == 23
    assert positions(FILE).place(("nowhere",)).line == 1


def test_a_windows_file_has_the_same_lines():
    assert positions(FILE.replace("\n", "\r\n")).places == positions(FILE).places


keys = st.sampled_from(["a", "b-c", '"d e"', "'f.g'", "h1"])
scalars = st.sampled_from(
    ["1", "-2.5e-3", "true", '"s # ]"', "'l'", '"""m\nn"""', "'''\no'p'''", "2020-01-01", "inf"]
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[\n" + ", # c\n".join(items) + "\n]"),
        st.lists(st.tuples(keys, inner.filter(lambda v: "\n" not in v)), max_size=2,
                 unique_by=lambda pair: pair[0])
        .map(lambda pairs: "{ " + ", ".join(f"{k} = {v}" for k, v in pairs) + " }"),
    ),
    max_leaves=6,
)  # fmt: skip


@st.composite
def files(draw):
    """Draw a TOML file, and the line on which each of its keys stands."""
    text, lines = "", {}
    for index in range(draw(st.integers(1, 3))):
        text += draw(st.sampled_from(["", "\n", "# [x]\n", "  \n"])) + "[[t]]\n"
        for key in draw(st.lists(keys, unique=True, max_size=4)):
            lines["t", index, key.strip("\"'")] = text.count("\n") + 1
            text += f"{key} = {draw(values)}{draw(st.sampled_from(['', ' # c']))}\n"
    return text, lines


def paths(value, path=()):
    """Give the path of everything in a parsed file."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in pairs:
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from paths(item, (*path, key))


@given(files())
def test_every_path_of_any_file_has_a_place_and_every_key_its_line(drawn):
    text, lines = drawn
    places = positions(text).places
    assert set(paths(tomllib.loads(text))) == set(places)
    assert {path: places[path].line for path in lines} == lines


@given(st.one_of(st.text(), st.text("ab[]{}=,.\n\"'#\\ 1\r", max_size=80)))
def test_any_text_is_scanned_to_an_end(text):
    positions(text)
    try:
        assert check_limits(text.encode(), "f") == text
    except OprepError as error:
        assert error.exit_code == ExitCode.RULES  # noqa: PT017


@pytest.mark.parametrize(
    ("data", "message", "where"),
    [
        (b"#" * (MAX_BYTES + 1), "4194305 bytes, at most 4194304", "f"),
        (b"a = 1\nb = '\xff'\n", "not UTF-8: byte 0xff", "f:2"),
        (b"\xef\xbb\xbfa = 1\n", "byte order mark", "f:1"),
        (b"\na = " + b"[" * 33 + b"]" * 33, "nest more than 32 deep", "f:2"),
        (b"a = " + b"[\n" * 40, "nest more than 32 deep", "f:33"),
        (b"a = " + b"{b=" * 33 + b"1" + b"}" * 33, "nest more than 32 deep", "f:1"),
        (b"x = 1\n" + b".".join([b"a"] * 65) + b" = 1", "more than 64 parts", "f:2"),
        (b"[" + b" . ".join([b'"a"'] * 20000) + b"]", "more than 64 parts", "f:1"),
    ],
)
def test_a_file_beyond_the_limits_is_refused(data, message, where):
    with pytest.raises(OprepError, match=message) as caught:
        check_limits(data, "f")
    assert caught.value.where == where
    assert caught.value.exit_code == ExitCode.RULES
    assert caught.value.help


def test_a_file_at_the_limits_is_read():
    text = ".".join(["a"] * 64) + " = " + "[" * 32 + "]" * 32 + " # " + "[." * 100
    text += '\nb = "' + "[." * 100 + '"\nc = 1.5\n'
    assert check_limits(text.encode(), "f") == text
    assert tomllib.loads(text)


@pytest.mark.parametrize(
    "piece",
    ['a\\"""\n', 'x\\"', "'''\n", '"', "'\n", "[", "a.", '"a\\', "a = [1,", "[[a]]\n", "\\", '""'],
)
def test_a_scan_takes_time_in_proportion(piece):
    """A quadratic scan of these would take minutes, not a second."""
    positions(piece * (600_000 // len(piece)))

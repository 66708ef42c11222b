"""The message of each mistake in an equation, with its caret; a golden text for all."""

from __future__ import annotations

import pytest

from oprep.opsets.errors import OprepError
from oprep.opsets.expression import parse_condition, parse_equation
from oprep.opsets.rule import Source

EQUATIONS = [
    "relu(x",
    "relu(x))",
    "relu(x]",
    "relu(x) +",
    "relu(x y)",
    "relu(x) relu(y)",
    "x * * y",
    "+x",
    "x[0]",
    "x.data + 1",
    "max.dim(x)",
    "aten::",
    "aten::relu",
    "aten::relu + 1",
    "'F'(x)",
    "'abc",
    "'a\\q'",
    "x § y",
    "x ^ y",
    "x # squared",
    "2x",
    "1.2.3",
    "1e999",
    "99999999999999999999",
    "a < b < c",
    "x and y",
    "not x",
    "x if y else z",
    "f(k=x if y)",
    "f(k=1, x)",
    "f(k=1, k=2)",
    "f(a.b=1)",
    "f(x '=')",
    "f(*2)",
    "f(*_)",
    "f(pi?)",
    "x?",
    "pi(x)",
    "e = relu(x)\ne * x",
    "x = relu(x); x + 1",
    "y = relu(x); y = erf(x); y",
    "y = relu(x); z = erf(w); x = tanh(y); x",
    "a.b = relu(x)",
    "a, b = x + 1; a",
    "_ = relu(x)",
    "return _",
    "relu(x); erf(x)",
    "relu(x), erf(x)",
    "return relu(x)\nerf(x)",
    "x = 1\n\n\ny = erf(x) %% 2\ny",
    "y == x = 3",
    "",
    " \n ",
    "0.5 * x * (1 + erf(x / sqrt(2)) + 0.5 * x * (1 + erf(x / sqrt(2)) + "
    "0.5 * x * (1 + erf(x / 2)) § + 0.5 * x * (1 + erf(x / sqrt(2)))",
]
CONDITIONS = [
    "",
    "rank(x) ==",
    "rank(x) = 2",
    "rank(x) == 2; rank(y) == 2",
    "rank(x) == 2 rank(y) == 2",
    "1 < rank(x) < 4",
    "dtype(x) in",
    "dtype(x) not 'float32'",
    "a not 'in' b",
    "a + not b",
    "_ == 2",
    "present(b?)",
    "f(*xs)",
    "rank(x) == 2 &&\n rank(y) == 2",
    "shape(x)[0] == 1",
]


@pytest.mark.parametrize(
    ("kind", "parse", "texts"),
    [("equations", parse_equation, EQUATIONS), ("conditions", parse_condition, CONDITIONS)],
)
def test_each_mistake_is_shown_at_its_place_with_one_action(kind, parse, texts, golden):
    messages = []
    for text in texts:
        with pytest.raises(OprepError) as caught:
            parse(text, Source("rules.toml", 12))
        assert len(caught.value.notes) == 2
        messages.append(f"{caught.value}\n")
    golden(f"mistakes_in_{kind}.txt", "\n".join(messages))


def test_the_line_is_that_of_the_mistake():
    with pytest.raises(OprepError) as caught:
        parse_equation("y = erf(x)\n\nz = y y\nz", Source("rules.toml", 7))
    assert caught.value.where == "rules.toml:9"
    assert caught.value.notes == ("z = y y", "      ^")


def test_an_escaped_newline_is_no_line_of_the_file():
    with pytest.raises(OprepError) as caught:
        parse_equation("y = erf(x)\nz = y y", Source("rules.toml", 7), spans_lines=False)
    assert caught.value.where == "rules.toml:7"


def test_a_long_line_is_cut_around_the_caret_and_control_signs_do_not_move_it():
    with pytest.raises(OprepError) as caught:
        parse_equation(f"{'x + ' * 100}\t$ {'+ x' * 100}", Source("rules.toml", 7))
    shown, caret = caught.value.notes
    assert shown[caret.index("^")] == "$"
    assert shown.startswith("...")
    assert shown.endswith("...")
    with pytest.raises(OprepError) as caught:
        parse_equation("'\x1b[31m' $", Source("rules.toml", 7))
    shown, caret = caught.value.notes
    assert shown.isprintable()
    assert shown[caret.index("^")] == "$"

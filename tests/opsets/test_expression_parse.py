"""What the parser makes of an equation, and that the printer writes it back."""

from __future__ import annotations

import ast
import math
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from language.expressions import conditions, equations, plain

from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.expression import (
    bound_names,
    format_equation,
    format_expression,
    free_variables,
    parse_condition,
    parse_equation,
    targets,
    variables,
)
from oprep.opsets.rule import Source
from oprep.opsets.syntax import (
    Binary,
    Call,
    Choose,
    Equation,
    ListOf,
    Literal,
    Maybe,
    Name,
    Number,
    Rest,
    Statement,
    Unary,
)

HERE = Source("rules.toml", 3)
X, Y, Z = Name("x"), Name("y"), Name("z")


def value(text: str) -> object:
    equation = parse_equation(text, HERE)
    assert len(equation.results) == 1
    assert not equation.statements
    return equation.results[0]


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("x - y - z", Binary("-", Binary("-", X, Y), Z)),
        ("x - (y - z)", Binary("-", X, Binary("-", Y, Z))),
        ("x + y * z", Binary("+", X, Binary("*", Y, Z))),
        ("x ** y ** z", Binary("**", X, Binary("**", Y, Z))),
        ("-x ** y", Unary("-", Binary("**", X, Y))),
        ("(-x) ** y", Binary("**", Unary("-", X), Y)),
        ("x ** -y", Binary("**", X, Unary("-", Y))),
        ("x ** -y * z", Binary("*", Binary("**", X, Unary("-", Y)), Z)),
        ("-x * y", Binary("*", Unary("-", X), Y)),
        ("x @ y // z", Binary("//", Binary("@", X, Y), Z)),
        ("x + y < z", Binary("<", Binary("+", X, Y), Z)),
        ("-1", Number(-1, "-1")),
        ("- -1.50", Number(1.5, "1.50")),
        ("-1 ** 2", Unary("-", Binary("**", Number(1, "1"), Number(2, "2")))),
        ("x-1", Binary("-", X, Number(1, "1"))),
        ("1e-3", Number(0.001, "1e-3")),
        ("[1, x,]", ListOf((Number(1, "1"), X))),
        ("(1, x)", ListOf((Number(1, "1"), X))),
        ("(x)", X),
        ("()", ListOf(())),
        ("f()", Call("f")),
        ("f(x,)", Call("f", (X,))),
        ("f(x?, *y, k=z?)", Call("f", (Maybe("x"), Rest("y")), (("k", Maybe("z")),))),
        ("Gelu(x)", Call("Gelu", (X,), (), "")),
        ("ai.onnx::Gelu(x)", Call("Gelu", (X,), (), "")),
        ("com.acme::Gelu(x)", Call("Gelu", (X,), (), "com.acme")),
        ("aten::max.dim(x, dim=y)", Call("max.dim", (X,), (("dim", Y),), "aten")),
        ("'pkg.torch.2.3.0::F'(x)", Call("F", (X,), (), "pkg.torch.2.3.0")),
        ("f(k=True, a='it\\'s', b=None)", Call("f", (), (
            ("k", Literal(True)), ("a", Literal("it's")), ("b", Literal(None))))),
        ("f(e=x, pi=y)", Call("f", (), (("e", X), ("pi", Y)))),
        ("f(k=x if y else z)", Call("f", (), (("k", Choose(Y, X, Z)),))),
        ("f(\n  x,\n  y\n)", Call("f", (X, Y))),
    ],
)  # fmt: skip
def test_an_equation_reads_with_the_precedence_of_python(text, tree):
    assert value(text) == tree


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("not x and y or z", Binary("or", Binary("and", Unary("not", X), Y), Z)),
        ("not x == y", Unary("not", Binary("==", X, Y))),
        ("x or y and z", Binary("or", X, Binary("and", Y, Z))),
        ("x not in (y,)", Binary("not in", X, ListOf((Y,)))),
        ("x if y else z if x else y", Choose(Y, X, Choose(X, Z, Y))),
        ("x and\n y", Binary("and", X, Y)),
        ("not not x", Unary("not", Unary("not", X))),
    ],
)
def test_a_condition_reads_with_the_precedence_of_python(text, tree):
    assert parse_condition(text, HERE) == tree


@pytest.mark.parametrize(("word", "number"), [("pi", math.pi), ("e", math.e), ("-inf", -math.inf)])
def test_the_constants_are_numbers_that_keep_their_names(word, number):
    found = value(word)
    assert found == Number(number, word)
    assert isinstance(found, Number)
    assert found.text == word


def test_a_number_keeps_the_digits_it_was_written_with():
    found = value("1.41420")
    assert isinstance(found, Number)
    assert found.text == "1.41420"


def test_statements_bind_names_and_the_last_gives_the_results():
    assert parse_equation("y = x * x; y + 1", HERE) == Equation(
        (Statement(("y",), Binary("*", X, X)),), (Binary("+", Y, Number(1, "1")),)
    )
    topk = Call("topk", (X, Name("k")))
    assert parse_equation("v, _ = topk(x, k)\n", HERE) == Equation(
        (Statement(("v", "_"), topk),), (Name("v"),)
    )
    assert parse_equation("\n v, i = topk(x, k)\n\n return i, v;", HERE) == Equation(
        (Statement(("v", "i"), topk),), (Name("i"), Name("v"))
    )


def test_names_are_listed_in_order_of_first_appearance():
    equation = parse_equation("s = f(x, _, k=b?) * eps; return s, g(*rest, x)", HERE)
    assert variables(equation) == ("x", "b", "eps", "rest")
    assert targets(equation) == ("s",)
    assert bound_names(equation) == ("x", "b", "eps", "rest", "s")
    assert free_variables(parse_condition("b if rank(a) == 2 else a", HERE)) == ("b", "a")


@given(plain)
def test_a_printed_expression_reads_as_itself(tree):
    assert parse_equation(format_expression(tree), HERE).results == (tree,)


@given(conditions)
def test_a_printed_condition_reads_as_itself(tree):
    wrapped = f"f(k={format_expression(tree)})"
    assert value(wrapped) == Call("f", (), (("k", tree),))


@given(equations())
def test_a_printed_equation_reads_as_itself(equation):
    read = parse_equation(format_equation(equation), HERE)
    assert (read.statements, read.results) == (equation.statements, equation.results)
    assert format_equation(read) == format_equation(equation)


def strict_python(text: str) -> str:
    """Print an expression as Python sees it, with all brackets."""
    return ast.unparse(ast.parse(text, mode="eval"))


@given(st.lists(st.sampled_from(["+", "-", "*", "//", "%", "**", "@"]), min_size=1, max_size=6),
       st.lists(st.booleans(), min_size=7, max_size=7))  # fmt: skip
def test_operators_group_as_in_python(operators, minus):
    signs = ["-" if sign else "" for sign in minus]
    text = f"{signs[0]}a"
    for operator, sign in zip(operators, signs[1:], strict=False):
        text += f" {operator} {sign}a"
    tree = value(text)
    assert ast.dump(ast.parse(brackets(tree))) == ast.dump(ast.parse(strict_python(text)))


def brackets(tree: object) -> str:
    """Print a tree with brackets around every operation."""
    if isinstance(tree, Binary):
        return f"({brackets(tree.left)} {tree.operator} {brackets(tree.right)})"
    if isinstance(tree, Unary):
        return f"(-{brackets(tree.operand)})"
    assert isinstance(tree, Name)
    return tree.name


ALPHABET = "xyz_ (),;=\n.?*+-/<>!'\"[]:#0123456789eE\\@%é\x1b\u2028"
WORDS = ["and", "or", "not", "in", "if", "else", "return", "pi", "::", "x?", "1e9", "f(", "k="]


@given(st.one_of(st.text(), st.text(ALPHABET, max_size=60),
                 st.lists(st.sampled_from([*ALPHABET, *WORDS]), max_size=40).map(" ".join)),
       st.sampled_from([parse_equation, parse_condition]))  # fmt: skip
def test_any_text_is_read_or_refused_with_its_place(text, parse):
    try:
        parse(text, HERE)
    except OprepError as caught:
        error = caught
    else:
        return
    assert error.exit_code == ExitCode.RULES
    assert error.where.startswith("rules.toml:")
    shown, caret = error.notes
    assert caret.strip() == "^"
    assert len(caret) <= len(shown) + 1 or not shown.strip()
    assert shown.isprintable()
    assert error.help
    assert len(str(error)) < 4096


@given(equations(), st.data())
def test_a_sign_that_no_equation_has_is_found_at_its_place(equation, data):
    text = format_equation(equation)
    at = data.draw(st.integers(0, len(text)))
    before = text[:at]
    # not inside a string, a name or a number
    assume("'" not in before and not re.search(r"[:.\w]$|[0-9]e[+-]$", before))
    with pytest.raises(OprepError, match="`§` has no meaning") as caught:
        parse_equation(f"{before}§{text[at:]}", HERE)
    shown, caret = caught.value.notes
    assert shown[caret.index("^")] == "§"


@pytest.mark.parametrize("text", ["(" * 64 + "x" + ")" * 64, "x" + " + x" * 127, "-" * 127 + "x"])
def test_what_is_as_deep_as_allowed_is_read_and_printed(text):
    equation = parse_equation(text, HERE)
    assert parse_equation(format_equation(equation), HERE) == equation


@pytest.mark.parametrize(
    "text",
    [
        "(" * 65 + "x" + ")" * 65,
        "(" * 50000,
        "x" + " + x" * 128,
        "x" + "**x" * 20000,
        "-" * 60000 + "x",
        "f(" * 65 + ")" * 65,
        "[" * 65 + "]" * 65,
        "f(k=" + "not " * 10000 + "x)",
        "f(k=" + "x if x else " * 5000 + "x)",
        "a=x;" * 20000,
        "x" * 70000,
    ],
)
def test_what_is_too_deep_or_long_is_refused_at_once(text):
    with pytest.raises(OprepError):
        parse_equation(text, HERE)

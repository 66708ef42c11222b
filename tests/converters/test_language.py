"""What the rule language promises of ONNX graphs, sentence by sentence, on tiny models."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from oprep.converters.report import Report
from oprep.opsets.errors import OprepError
from tests.corpus.converting import converted, explained, of_type
from tests.corpus.running import Arrays, feeds_for, run_all

TWO = "(Tensor x) -> (Tensor, Tensor)"
PAIR = "(Tensor x, Tensor y) -> (Tensor, Tensor)"


def model(text: str, opset: int = 18, more: str = "") -> onnx.ModelProto:
    """Parse the graph `g` at one opset."""
    ir = 10 if opset > 18 else 8
    head = f'<ir_version: {ir}, opset_import: ["": {opset}{more}]>'
    return onnx.parser.parse_model(f"{head}\ng {text}")


def rule(replace: str, into: str = "acme::f(x)", body: str = "", schema: str = "") -> str:
    """Write a rule; the op's body is the pattern where none is given."""
    signature = f'schema = "{schema}"\n' if schema else ""
    return (
        f"[[op]]\nname = 'acme::f'\n{signature}body = '''{body or replace}'''\n"
        f"[[rule]]\nname = 'r'\nreplace = '''{replace}'''\nwith = '''{into}'''\nexpect = '>=0'\n"
    )


def count(proto: onnx.ModelProto, text: str) -> int:
    """Tell how often the only rule matches."""
    return explained(proto, text).matches


def same(proto: onnx.ModelProto, text: str, feeds: Arrays | None = None) -> Report:
    """Convert without verifying; the artifact gives what the original gives, shapes too."""
    report, made = converted(proto, text=text)
    given = feeds if feeds is not None else feeds_for(proto)
    before, after = run_all([(proto, given), (made, given)])
    for old, new in zip(before, after, strict=True):
        assert (old.shape, old.dtype) == (new.shape, new.dtype)
        np.testing.assert_allclose(old, new, rtol=1e-4, atol=1e-5)
    return report


def right_or_refused(proto: onnx.ModelProto, text: str) -> bool:
    """Tell whether a rule is refused as it is written (exit 5) or does what it says."""
    try:
        same(proto, text)
    except OprepError as error:
        return error.exit_code == 5
    return True


# --- false matches ----------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [7, 11, 13, 18])
@pytest.mark.parametrize("pattern", ["unsqueeze(x, -1)", "Unsqueeze(x, axes=[-1])"])
def test_a_negative_axis_of_unsqueeze_counts_from_the_end_of_the_result(
    opset: int, pattern: str
) -> None:
    made = "Unsqueeze<axes = [{}]>(x)" if opset < 13 else "Unsqueeze(x, a)"
    for axis, matches in ((1, 0), (2, 1)):
        constant = "" if opset < 13 else f"<int64[1] a = {{{axis}}}>"
        proto = model(
            f"(float[2,3] x) => (float y) {constant} {{ y = {made.format(axis)} }}", opset
        )
        proto.graph.output[0].type.tensor_type.ClearField("shape")
        assert count(proto, rule(pattern, body="x")) == matches


@pytest.mark.parametrize("pattern", ["OneHot(i, d, v)", "OneHot(i, d, v, axis=-1)"])
def test_a_negative_axis_of_one_hot_counts_from_the_end_of_the_result(pattern: str) -> None:
    proto = model(
        "(int64[2] i) => (float[3,2] y) <int64 d = {3}, float[2] v = {0, 1}>"
        "{ y = OneHot<axis = 0>(i, d, v) }"
    )
    assert count(proto, rule(pattern, "acme::f(i, d, v)", body="i + d + v")) == 0


FOREIGN = ', "com.microsoft": 1'


def test_a_bare_foreign_op_does_not_lose_its_attributes() -> None:
    proto = model(
        "(float[4] x) => (float[4] y) { y = com.microsoft.QuickGelu<alpha = 1.0>(x) }",
        more=FOREIGN,
    )
    text = rule("com.microsoft::QuickGelu", "acme::f", "x * sigmoid(1.702 * x)")
    assert count(proto, text) == 0


def test_a_bare_foreign_op_forwards_its_attributes_by_name() -> None:
    proto = model(
        "(float[4] x) => (float[4] y) { y = com.microsoft.QuickGelu<alpha = 1.5>(x) }",
        more=FOREIGN,
    )
    schema = "(Tensor x, float alpha) -> Tensor"
    text = rule("com.microsoft::QuickGelu", "acme::f", "x * sigmoid(alpha * x)", schema)
    assert same(proto, text).matches == 1


def test_a_bare_foreign_op_becomes_another_with_its_attributes() -> None:
    proto = model(
        '(float[4] x) => (float[4] y) { y = com.z.Foo<k = 3, s = "a">(x) }', more=', "com.z": 1'
    )
    text = "[[rule]]\nname='r'\nreplace='com.z::Foo'\nwith='com.z::Bar'\nexpect='>=0'\n"
    report, made = converted(proto, text=text, accept=["cannot run"])
    (node,) = of_type(made, "com.z", "Bar") or of_type(made, "com.z", "Foo")
    assert {item.name for item in node.attribute} == {"k", "s"}, report.matches


INTEGERS = "int64[4] a, int64[4] b, int64[4] c"
QUOTIENT = "p = Abs(a) q = Abs(b) r = Abs(c) m = Mul(p, r) d = Div(m, q)"
WHOLE = "abs(a) / abs(b) * abs(c)"


@pytest.mark.parametrize(
    ("head", "tail", "pattern"),
    [
        (f"({INTEGERS}) => (float[4] y)", "y = Cast<to = 1>(d)", f"cast({WHOLE}, 'float32')"),
        (
            f"({INTEGERS}) => (float[4] y)",
            "e = Cast<to = 1>(d) y = Sin(e)",
            f"sin(cast({WHOLE}, 'float32'))",
        ),
        (
            f"(float[4] t, {INTEGERS}) => (int64[4] y)",
            "h = Constant<value_float = 0.5>() k = Greater(t, h) y = Where(k, d, c)",
            f"where(t > 0.5, {WHOLE}, c)",
        ),
        (
            f"(float[9] t, {INTEGERS}) => (float[4] y)",
            "y = Gather<axis = 0>(t, d)",
            f"Gather(t, {WHOLE}, axis=0)",
        ),
    ],
    ids=["cast", "sin of cast", "where", "gather"],
)
def test_integer_division_is_not_reordered_wherever_it_stands(
    head: str, tail: str, pattern: str
) -> None:
    proto = model(f"{head} {{ {QUOTIENT} {tail} }}")
    names = "t, a, b, c" if "t," in head else "a, b, c"
    assert count(proto, rule(pattern, f"acme::f({names})")) == 0


def test_integer_division_is_not_reordered_in_a_second_output() -> None:
    proto = model(
        f"({INTEGERS}, float[9] t) => (float[4] y, int64[4] d) "
        f"{{ {QUOTIENT} y = Gather<axis = 0>(t, p) }}"
    )
    schema = "(Tensor t, Tensor a, Tensor b, Tensor c) -> (Tensor, Tensor)"
    body = f"y = Gather(t, abs(a), axis=0)\nd = {WHOLE}\nreturn y, d"
    assert count(proto, rule(body, "acme::f(t, a, b, c)", body, schema)) == 0


@pytest.mark.parametrize(
    ("graph", "pattern"),
    [
        ("(float x) => (bool[1] y) <float[1] c = {0.2}> { y = Greater(x, c) }", "x > 0.2"),
        ("(float x) => (float[1] y) <float[1] c = {0.2}> { y = Max(c, x) }", "maximum(x, 0.2)"),
        (
            "(float[2,3] x) => (float[1] y) <float[1] c = {0.5}>"
            "{ m = ReduceMean<axes = [0, 1], keepdims = 0>(x) y = Max(m, c) }",
            "maximum(mean(x, dim=[0, 1]), 0.5)",
        ),
        (
            "(bool[2] b, float x) => (float[1,2] y) <float[1,1] c = {0.2}> { y = Where(b, x, c) }",
            "where(b, x, 0.2)",
        ),
    ],
    ids=["compare", "max", "max of a reduction", "where"],
)
def test_a_constant_that_raises_the_rank_is_no_match_in_any_op(graph: str, pattern: str) -> None:
    names = "b, x" if "b," in graph else "x"
    pattern_names = f"acme::f({names})"
    schema = "(Tensor b, Tensor x) -> Tensor" if "b," in graph else "(Tensor x) -> Tensor"
    assert count(model(graph, 13), rule(pattern, pattern_names, schema=schema)) == 0


@pytest.mark.parametrize("pattern", ["Mul(sigmoid(x), c)", "maximum(sigmoid(x), c)"])
def test_a_constant_that_raises_the_rank_does_not_become_an_attribute(pattern: str) -> None:
    op = "Mul" if "Mul" in pattern else "Max"
    proto = model(
        f"(float x) => (float[1] y) <float[1] c = {{0.2}}> {{ r = Sigmoid(x) y = {op}(r, c) }}"
    )
    text = rule(pattern, "acme::f(x, c=c)", schema="(Tensor x, float c) -> Tensor")
    assert count(proto, text) == 0


@pytest.mark.parametrize(
    ("nodes", "pattern"),
    [
        ("r = Relu(b) d = Sub(a, a) s = Add(r, d) y = Add(s, c)", "relu(x) + 2"),
        ("r = Relu(b) s = Add(r, a) d = Sub(s, a) y = Add(d, c)", "relu(x) + 2"),
        ("r = Relu(b) d = Div(a, a) s = Mul(r, d) y = Mul(s, c)", "relu(x) * 2"),
    ],
)
def test_what_cancels_out_may_still_give_the_result_its_shape(nodes: str, pattern: str) -> None:
    proto = model(f"(float[4] a, float[1] b) => (float[4] y) <float c = {{2.0}}> {{ {nodes} }}")
    same(proto, rule(pattern))


@pytest.mark.parametrize("squared", ["q = Mul(r, r)", "q = Pow(r, two)"])
def test_a_squared_root_is_not_what_is_under_it(squared: str) -> None:
    proto = model(
        "(float[8] x) => (float[8] y) <float two = {2.0}>"
        f"{{ r = Sqrt(x) {squared} s = Sigmoid(x) y = Mul(q, s) }}"
    )
    same(proto, rule("x * sigmoid(x)"))


def test_one_name_of_a_statement_is_not_two_random_values() -> None:
    proto = model(
        "(float[4] x) => (float[4] y)"
        "{ r = RandomNormalLike(x) q = RandomNormalLike(x) y = Max(q, r) }"
    )
    assert count(proto, rule("r = RandomNormalLike(x)\nmaximum(r, r)", body="x")) == 0


def test_constants_of_different_sign_or_dtype_are_not_one_variable() -> None:
    proto = model(
        "(float[4] x) => (float[4] y) <float c = {0.0}, float z = {0.0}>"
        "{ d = Neg(z) a = Div(x, c) b = Div(x, d) y = Max(a, b) }"
    )
    assert count(proto, rule("maximum(Div(x, c), Div(x, c))", "acme::f(x, c)", "Div(x, c)")) == 0
    proto = model(
        "(float[4] x) => (float[4] y) <int64 c = {2}, float d = {2.0}>{ y = com.z.Foo(x, c, d) }",
        more=', "com.z": 1',
    )
    assert count(proto, rule("com.z::Foo(x, c, c)", "acme::f(x, c)", "x * c")) == 0


# --- what ends in a traceback or an artifact that does not load -----------------------------------


@pytest.mark.parametrize("pattern", ["x - x + y", "0 * x + y", "(y + relu(x)) - relu(x)"])
def test_terms_that_cancel_in_a_pattern_are_no_traceback(pattern: str) -> None:
    proto = model("(float[4] x, float[4] y) => (float[4] z) { a = Sub(x, x) z = Add(a, y) }")
    text = rule(pattern, "acme::f(x, y)", schema="(Tensor x, Tensor y) -> Tensor")
    assert right_or_refused(proto, text)


def test_a_variable_that_cancels_in_a_pattern_is_not_passed_as_absent() -> None:
    proto = model(
        "(float[4] x, float[4] y) => (float[4] z)"
        "{ a = Div(y, x) b = Mul(a, x) e = Exp(y) z = Div(b, e) }"
    )
    schema = "(Tensor x, Tensor y) -> Tensor"
    assert right_or_refused(proto, rule("(y / x * x) / exp(y)", "acme::f(x, y)", schema=schema))


def test_a_call_in_a_list_is_found_as_it_is_written_out() -> None:
    proto = model(
        "(float[4] x, float[4] y) => (float[8] z)"
        "{ s = Sigmoid(x) m = Mul(x, s) z = Concat<axis = 0>(m, y) }"
    )
    assert same(proto, rule("cat([silu(x), y], dim=0)", "acme::f(x, y)")).matches == 1


def test_a_constant_behind_20000_nodes_is_a_constant() -> None:
    chain = " ".join(f"c{i + 1} = Identity(c{i})" for i in range(20000))
    proto = model(
        f"(float[4] x) => (float[4] y) <float c0 = {{0.5}}> "
        f"{{ {chain} r = Relu(x) y = Mul(r, c20000) }}"
    )
    assert count(proto, rule("relu(x) * 0.5")) == 1


MUTUAL = f"""
[[op]]
name = "acme::f"
schema = "{PAIR}"
body = "return sin(x), cos(y)"
[[op]]
name = "acme::h"
schema = "{PAIR}"
body = "return exp(x), sinh(y)"
[[rule]]
name = "f"
replace = "return sin(x), cos(y)"
with = "p, q = acme::f(x, y); return p, q"
expect = ">=0"
[[rule]]
name = "h"
replace = "return exp(x), sinh(y)"
with = "p, q = acme::h(x, y); return p, q"
expect = ">=0"
"""


def test_two_matches_that_would_wait_for_each_other_are_not_both_taken() -> None:
    proto = model(
        "(float[4] x) => (float[4] o, float[4] p)"
        "{ s = Sin(x) e = Exp(x) a = Abs(e) o = Cos(a) t = Tanh(s) p = Sinh(t) }"
    )
    assert same(proto, MUTUAL).matches <= 1


# --- false misses -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "pattern"),
    [
        ("e = Exp(x) m = Mul(e, x) y = Sqrt(m)", "sqrt(exp(x) * x)"),
        ("e = Exp(x) m = Div(e, two) y = Sqrt(m)", "sqrt(exp(x) / 2)"),
        ("e = Exp(x) m = Sqrt(e) y = Sqrt(m)", "sqrt(sqrt(exp(x)))"),
        ("e = Exp(x) m = Mul(e, two) r = Sqrt(m) y = Div(x, r)", "x / sqrt(exp(x) * 2)"),
    ],
)
def test_a_root_of_a_product_is_found(nodes: str, pattern: str) -> None:
    proto = model(f"(float[4] x) => (float[4] y) <float two = {{2.0}}> {{ {nodes} }}")
    assert count(proto, rule(pattern)) == 1


@pytest.mark.parametrize(
    ("nodes", "pattern"),
    [
        ("h = Mul(x, c) y = Add(x, h)", "x + 2 * x"),
        ("n = Neg(x) y = Sub(n, x)", "-x - x"),
        ("e = Exp(x) f = Exp(x) y = Mul(e, f)", "exp(x) * exp(x)"),
    ],
)
def test_like_terms_and_factors_are_found_as_they_are_written(nodes: str, pattern: str) -> None:
    proto = model(f"(float[4] x) => (float[4] y) <float c = {{2.0}}> {{ {nodes} }}")
    assert count(proto, rule(pattern)) == 1


def test_a_constant_minus_a_variable_is_found() -> None:
    proto = model("(float[4] x) => (float[4] y) <float c = {1.7}> { y = Sub(c, x) }")
    assert count(proto, rule("c - x", "acme::f(c, x)")) == 1


def test_integers_without_a_constant_are_found_in_their_form() -> None:
    proto = model(
        "(int64[4] x, int64[4] z) => (int64[4] y) { a = Abs(x) m = Mul(a, z) y = Add(m, x) }"
    )
    assert count(proto, rule("abs(x) * z + x", "acme::f(x, z)")) == 1


@pytest.mark.parametrize(
    ("graph", "pattern"),
    [
        ("(float[4] x, float[4] z) => (bool[4] y) { m = Mul(x, z) y = Greater(m, z) }",
         "x * z > z"),
        ("(float[4] x, float[4] z) => (int64 y) { m = Mul(x, z) y = ArgMax<keepdims = 0>(m) }",
         "argmax(x * z, dim=0)"),
        ("(float[4] x, float[4] z) => (int64[4] y) { m = Mul(x, z) y = Cast<to = 7>(m) }",
         "cast(x * z, 'int64')"),
    ],
    ids=["compare", "argmax", "cast"],
)  # fmt: skip
def test_a_floating_product_is_found_where_the_result_is_no_float(graph: str, pattern: str) -> None:
    assert count(model(graph), rule(pattern, "acme::f(x, z)")) == 1


def test_a_bound_product_is_a_factor_of_another_product() -> None:
    proto = model(
        "(float[4] x) => (float[4] y) <float c = {2.0}>"
        "{ s = Mul(x, c) g = Sigmoid(s) y = Mul(s, g) }"
    )
    text = rule("s = x * 2\ns * sigmoid(s)")
    assert count(proto, text) == 1
    assert count(proto, text + "when = 'users(s) == 2'\n") == 1
    both = "s = x * 2\nreturn s * sigmoid(s), s"
    assert count(proto, rule(both, "p, q = acme::f(x)\nreturn p, q", both, TWO)) == 1


@pytest.mark.parametrize("dtype", ["float", "float16", "bfloat16"])
def test_a_constant_through_cast_like_is_a_constant(dtype: str) -> None:
    proto = model(
        f"({dtype}[4] x) => ({dtype}[4] y) <double d = {{2.0}}>"
        "{ c = CastLike(d, x) r = Relu(x) y = Mul(r, c) }"
    )
    assert count(proto, rule("relu(x) * 2")) == 1


@pytest.mark.parametrize("pattern", ["erf(x) * (1 / 4)", "erf(x) * sqrt(0.0625)"])
def test_a_function_of_literals_is_a_constant_under_exact_too(pattern: str) -> None:
    proto = model("(float[4] x) => (float[4] y) <float c = {0.25}> { r = Erf(x) y = Mul(r, c) }")
    assert count(proto, rule(pattern)) == 1
    assert count(proto, rule(pattern) + "exact = true\n") == 1


@pytest.mark.parametrize("opset", [7, 10, 11, 12, 13, 18, 22])
def test_a_ratio_left_out_of_dropout_is_a_half_in_every_opset(opset: int) -> None:
    proto = model("(float[4] x) => (float[4] y) { y = Dropout(x) }", opset)
    assert count(proto, rule("Dropout(x, ratio=0.5)", body="x")) == 1
    assert count(proto, rule("Dropout(x)", body="x")) == 1
    assert count(proto, rule("Dropout(x, ratio=0.3)", body="x")) == 0


@pytest.mark.parametrize("opset", [7, 10, 11, 18])
def test_a_bound_left_out_of_clip_is_absent_in_every_opset(opset: int) -> None:
    graph = "(float[4] x) => (float[4] y)"
    older = f"{graph} {{ y = Clip<min = 0.0>(x) }}"
    newer = f"{graph} <float lo = {{0.0}}> {{ y = Clip(x, lo) }}"
    text = rule("Clip(x, min=a?, max=b?)", body="x") + "when = 'present(a) and not present(b)'\n"
    assert count(model(older if opset < 11 else newer, opset), text) == 1


def test_a_scope_with_a_quote_in_it_is_read() -> None:
    proto = model("(float[4] x) => (float[4] y) { y = Relu(x) }")
    scopes = repr(["", "it's", "it's.act", "relu"])
    proto.graph.node[0].metadata_props.add(key="pkg.torch.onnx.name_scopes", value=scopes)
    assert count(proto, rule("relu(x)") + 'scope = "it\'s.*"\n') == 1


def test_a_miss_in_a_function_says_that_the_caller_gives_the_value() -> None:
    proto = model(
        "(float[4] x) => (float[4] y) { y = ff.h<al = 0.3>(x) }"
        '<domain: "ff", opset_import: ["": 18]>'
        "h <al>(i) => (o) { o = LeakyRelu<alpha: float = @al>(i) }",
        more=', "ff": 1',
    )
    report = explained(proto, rule("leaky_relu(x, 0.1)"))
    (miss,) = report.rules[0].misses
    assert "Reference(" not in miss.reason


def test_a_pattern_of_nine_factors_too_many_says_so() -> None:
    names = [f"x{i}" for i in range(11)]
    made = " ".join(f"s{i} = Sigmoid({name})" for i, name in enumerate(names))
    product = "m1 = Mul(s0, s1) " + " ".join(f"m{i} = Mul(m{i - 1}, s{i})" for i in range(2, 11))
    inputs = ", ".join(f"float[4] {name}" for name in names)
    proto = model(f"({inputs}) => (float[4] m10) {{ {made} {product} }}")
    pattern = " * ".join(f"sigmoid({name})" for name in names)
    report = explained(proto, rule(pattern, f"acme::f({', '.join(names)})"))
    assert report.matches == 0
    assert report.rules[0].misses


# --- what holds -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("literal", "value", "matches"),
    [
        ("0.2", 0.2, 1), ("0.2", 0.20001, 0), ("0.1667", 0.16666667, 1), ("0.1667", 0.16676, 0),
        ("1.4142", 1.41421356, 1), ("1.4142", 1.41426, 0), ("sqrt(2)", 1.41421356, 1),
        ("sqrt(2)", 1.4142, 0), ("1.702", 1.7023, 1), ("1.702", 1.7026, 0), ("3.0", 3.001, 0),
        ("3.000", 3.0004, 1), ("1000", 1000.4, 0), ("1.4142e-3", 0.00141424, 1),
        ("pi", 3.14159265, 1),
        ("0.001000", 0.0010004, 1), ("0.001", 0.0010004, 0), ("-2", -2.0, 1),
    ],
)  # fmt: skip
def test_a_literal_is_as_wide_as_it_is_written(literal: str, value: float, matches: int) -> None:
    proto = model(
        f"(float[4] x) => (float[4] y)"
        f"{{ c = Constant<value_float = {value}>() r = Relu(x) y = Mul(r, c) }}"
    )
    assert count(proto, rule(f"relu(x) * {literal}")) == matches


@pytest.mark.parametrize(
    "nodes",
    [
        "d = Constant<value = double {2.0}>() c = Cast<to = 1>(d)",
        "d = Constant<value_ints = [2]>() c = Cast<to = 1>(d)",
        "d = Constant<value_float = 4.0>() c = Sqrt(d)",
        "d = Constant<value_float = 0.5>() c = Reciprocal(d)",
        "d = Constant<value_float = -2.0>() c = Neg(d)",
        "d = Constant<value_float = 4.0>() e = Constant<value_float = 0.5>() c = Pow(d, e)",
        "d = Constant<value_float = 2.0>() e = Identity(d) c = Identity(e)",
        "c = Constant<value = float[1] {2.0}>()",
    ],
)
def test_a_number_is_found_in_every_encoding(nodes: str) -> None:
    proto = model(f"(float[2,3] x) => (float[2,3] y) {{ {nodes} r = Relu(x) y = Mul(r, c) }}")
    assert count(proto, rule("relu(x) * 2")) == 1


@pytest.mark.parametrize(("ir", "matches"), [(3, 1), (4, 0), (8, 0)])
def test_an_initializer_that_is_an_input_is_a_constant_below_ir_4(ir: int, matches: int) -> None:
    proto = model("(float[4] x, float c) => (float[4] y) { r = Relu(x) y = Mul(r, c) }", 9)
    proto.ir_version = ir
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(2.0, np.float32), "c"))
    assert count(proto, rule("relu(x) * 2")) == matches


def test_a_match_with_two_outputs_is_no_cycle_even_through_a_branch() -> None:
    proto = model(
        "(float[4] x, bool c) => (float[4] y) { a = Sin(x) "
        "t = If(c) <then_branch = p () => (float[4] u) { u = Relu(a) },"
        " else_branch = q () => (float[4] v) { v = Abs(a) }> y = Cos(t) }"
    )
    both = "return sin(x), cos(y)"
    assert count(proto, rule(both, "p, q = acme::f(x, y)\nreturn p, q", both, PAIR)) == 0


def test_a_coefficient_variable_takes_the_product_of_all_constants() -> None:
    proto = model(
        "(float[4] x) => (float[4] y) <float c = {4.0}, float d = {0.3}>"
        "{ r = Sigmoid(x) q = Div(r, c) y = Mul(q, d) }"
    )
    text = rule("sigmoid(x) * c", "acme::f(x, c=c)", schema="(Tensor x, float c) -> Tensor")
    assert same(proto, text).matches == 1


def test_a_sum_of_many_inputs_is_left_alone_and_breaks_nothing() -> None:
    count_ = 3000
    nodes = [onnx.helper.make_node("Relu", ["x"], [f"r{i}"]) for i in range(count_)]
    nodes.append(onnx.helper.make_node("Sum", [f"r{i}" for i in range(count_)], ["y"]))
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])],
    )
    opsets = [onnx.helper.make_opsetid("", 18)]
    proto = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    assert count(proto, rule("relu(x) + y", "acme::f(x, y)")) == 0
    assert count(proto, rule("relu(x)")) == count_

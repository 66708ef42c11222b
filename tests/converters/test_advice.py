"""What a failure tells its reader: whose fault, how far off, and an advice that works at once."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

from oprep.converters.advice import rounded_up
from oprep.converters.causes import blamed
from oprep.converters.pipeline import convert
from oprep.converters.report import Report, Verdict
from oprep.converters.runs import Trouble
from oprep.opsets.errors import ExitCode, OprepError

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
RELU = f"{HEAD} g (float[2,8] x) => (float[2,8] y) {{ h = Relu(x) y = Tanh(h) }}"
GELU = (
    f"{HEAD} g (float[4,8] x) => (float[4,8] y) "
    "<float s = {1.4142135}, float one = {1.0}, float half = {0.5}> {"
    " a = Div(x, s) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half) }"
)
ERF = "0.5 * x * (1 + erf(x / sqrt(2)))"
FORM_OF_HELP = re.compile(r"set `tolerance = (\{ rtol = \S+, atol = \S+ \})` on `r` if it is meant")


def rules(body: str, replaced: str = "Relu(x)", extra: str = "", with_: str = "t::op(x)") -> str:
    return (
        f'format = 1\n[[op]]\nname = "t::op"\nbody = "{body}"\n'
        f'[[rule]]\nname = "r"\nreplace = "{replaced}"\nwith = "{with_}"\n{extra}\n'
    )


def run(folder: Path, text: str, rule: str, **options: Any) -> Report:
    path = folder / "m.onnx"
    onnx.save(parser.parse_model(text), path)
    (folder / "r.toml").write_text(rule)
    return convert(path, rules=[folder / "r.toml"], **options)


def refused(folder: Path, text: str, rule: str, **options: Any) -> OprepError:
    with pytest.raises(OprepError) as caught:
        run(folder, text, rule, **options)
    assert caught.value.exit_code == ExitCode.VERIFICATION
    return caught.value


@pytest.mark.parametrize(
    ("model", "body", "replaced"),
    [
        (RELU, "relu(x) * 1.001", "Relu(x)"),
        (RELU, "relu(x) * 1.00003", "Relu(x)"),
        (RELU, "relu(x) + 0.0001", "Relu(x)"),
        (RELU, "where(x > 50, x - 1, relu(x))", "Relu(x)"),
        (GELU, "0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))", ERF),
        (GELU, "0.5 * x * (1 + erf(x / sqrt(2))) * 1.01", ERF),
        (GELU, "0.51 * x * (1 + erf(x / sqrt(2)))", ERF),
    ],
)
def test_the_advised_tolerance_passes_at_the_first_try(
    model: str, body: str, replaced: str, tmp_path: Path
) -> None:
    error = refused(tmp_path, model, rules(body, replaced))
    found = FORM_OF_HELP.match(error.help)
    assert found is not None, error.help
    report = run(tmp_path, model, rules(body, replaced, f"tolerance = {found[1]}"))
    assert report.status == "verified"
    rtol = re.match(r"rtol (\S+)( with atol \S+)? would pass", error.notes[1])
    assert rtol is not None
    assert f"rtol = {float(rtol[1]):.0e}" in error.help or float(rtol[1]) == 0
    for check in error.report.checks:
        if check.verdict is Verdict.FAIL and check.measured.passing_rtol is not None:
            only = f"tolerance = {{ rtol = {check.measured.passing_rtol} }}"
            assert run(tmp_path, model, rules(body, replaced, only)).status == "verified"


@pytest.mark.parametrize("body", ["abs(x)", "relu(x) * 2", "where(x < -20, -0.5, relu(x))"])
def test_no_tolerance_is_advised_for_another_function(body: str, tmp_path: Path) -> None:
    error = refused(tmp_path, RELU, rules(body))
    assert error.help == "check what `r` puts in: it computes something else"


def test_an_advice_beyond_the_users_limit_is_not_given(tmp_path: Path) -> None:
    error = refused(tmp_path, RELU, rules("relu(x) * 1.001"), max_rtol=1e-4)
    assert error.help == "`--max-rtol` 0.0001 forbids what would pass (0.002): come closer"


@given(st.floats(1e-30, 1e30))
def test_rounding_up_leaves_a_margin_and_one_digit(value: float) -> None:
    found = rounded_up(value)
    assert value * 1.04 < found <= value * 2.7
    assert f"{found:.0e}"[0] in "125"
    assert float(f"{found:.0e}") == found
    assert rounded_up(0.0) == 0
    assert rounded_up(math.inf) == math.inf


def test_a_doubled_result_is_no_small_difference_and_the_tolerance_is_called_odd(
    tmp_path: Path,
) -> None:
    report = run(tmp_path, RELU, rules("relu(x) * 2", extra="tolerance = {rtol = 10, atol = 10}"))
    site = next(check for check in report.checks if check.check == "sites_close")
    assert site.verdict is Verdict.PASS
    assert site.measured is not None
    assert site.measured.max_abs > 1
    assert site.measured.max_rel == pytest.approx(1)
    assert site.measured.candidate == 2 * site.measured.reference != 0
    assert "rule `r` allows rtol 10, so values twice as large pass" in report.notes
    assert any("allows atol 10, more than the RMS" in note for note in report.notes)


def test_a_sensible_tolerance_is_not_called_odd(tmp_path: Path) -> None:
    extra = "tolerance = {rtol = 1e-3, atol = 1e-3}"
    assert not any("allows" in n for n in run(tmp_path, RELU, rules("relu(x)", extra=extra)).notes)


def test_what_is_off_and_what_is_allowed_never_look_the_same(tmp_path: Path) -> None:
    """1.00001169 is off by hardly more than the 1.13e-5 allowed at the largest values."""
    for factor in ("1.0000119", "1.0000116"):
        error = refused(tmp_path, RELU, rules(f"relu(x) * {factor}"))
        found = re.search(r"off by (\S+), allowed (\S+),", error.notes[0])
        assert found is not None
        assert found[1] != found[2]


def test_one_other_check_is_one(tmp_path: Path) -> None:
    error = refused(tmp_path, RELU, rules("relu(x) + 0.01"))
    assert "1 more check did not pass, `--report FILE.json` has it" in error.notes
    assert "in input set `" in error.notes[0]


@pytest.mark.parametrize("body", ["cast(relu(x), 'float16')", "unsqueeze(relu(x), 0)"])
def test_another_dtype_or_shape_is_said_to_be_the_fault_of_the_rule(
    body: str, tmp_path: Path
) -> None:
    error = refused(tmp_path, RELU, rules(body))
    assert error.help == "let `with` of `r` give what it replaces: same dtype, same shape"


FOREIGN = (
    '<ir_version: 8, opset_import: ["" : 17, "weird": 1]> '
    "g (float[2,8] x) => (float[2,8] y, float[2,8] z) {"
    " h = Relu(x) y = weird.Foo(h) k = Relu(y) z = Neg(k) }"
)


def test_sites_before_a_foreign_op_are_proven_on_the_part_that_leads_to_them(
    tmp_path: Path,
) -> None:
    error = refused(tmp_path, FOREIGN, rules("relu(x)"))
    assert error.message == "the original itself cannot run here: `weird::Foo` has no kernel"
    assert (
        error.help == "pass `--accept 'cannot run'`, or give `weird::Foo` a `body` in an `[[op]]`"
    )
    found = {c.name: c for c in error.report.checks if c.check == "sites_close"}
    assert [c.verdict for c in found.values()] == [Verdict.PASS, Verdict.CANNOT_RUN]
    assert found["Relu#0"].measured is not None
    assert any("1 of 2" in note for note in error.report.notes)
    outputs = [c.verdict for c in error.report.checks if c.check == "outputs_close"]
    assert outputs == [Verdict.CANNOT_RUN, Verdict.CANNOT_RUN]


def test_a_wrong_site_before_a_foreign_op_is_found(tmp_path: Path) -> None:
    error = refused(tmp_path, FOREIGN, rules("relu(x) * 1.01"), accept=["cannot run"])
    assert error.message == "the replacement differs from the reference at site `Relu#0` (rule `r`)"


PLACES = {
    "branch": "g (float[2,8] x, bool c) => (float[2,8] y, float[2,8] w) { p = weird.Foo(x)"
    " q = Neg(x) y = If(c) <then_branch = t () => (float[2,8] a) { a = Relu(q) },"
    " else_branch = e () => (float[2,8] b) { b = Neg(q) }> w = Abs(p) }",
    "loop": "g (float[2,8] x, int64 n) => (float[2,8] y, float[2,8] w) { p = weird.Foo(x)"
    " q = Neg(x) y = Loop(n, , q) <body = b (int64 i, bool g, float[2,8] s) => "
    "(bool o, float[2,8] a) { o = Identity(g) a = Relu(s) }> w = Abs(p) }",
    "function": "g (float[2,8] x) => (float[2,8] y, float[2,8] w) { p = weird.Foo(x)"
    ' q = Neg(x) y = loc.F(q) w = Abs(p) } <domain: "loc", opset_import: ["": 17]>'
    " F (u) => (v) { k = Relu(u) v = Neg(k) }",
}


@pytest.mark.parametrize("place", PLACES)
def test_sites_elsewhere_are_proven_on_a_part_too(place: str, tmp_path: Path) -> None:
    text = f'<ir_version: 8, opset_import: ["" : 17, "weird": 1, "loc": 1]> {PLACES[place]}'
    right = run(tmp_path, text, rules("relu(x)"), accept=["cannot run"])
    assert [c.verdict for c in right.checks if c.check == "sites_close"] == [Verdict.PASS]
    assert right.accepted == ("cannot run",)
    error = refused(tmp_path, text, rules("relu(x) * 1.01"), accept=["cannot run"])
    assert "differs from the reference at site" in error.message


def test_an_op_that_no_runtime_has_is_the_fault_of_the_rule(tmp_path: Path) -> None:
    rule = rules("relu(x)", with_="com.microsoft::Nope(x)")
    error = refused(tmp_path, RELU, rule)
    assert error.message == "the replacement cannot run at site `Relu#0` (rule `r`)"
    assert error.help == (
        "no such op in the runtime: check `with`, or give `com.microsoft::Nope` a `body` "
        "in an `[[op]]`"
    )


ENDLESS = (
    f"{HEAD} g (float[2,8] x) => (float[2,8] y) <bool c = {{1}}> {{ h = Relu(x) y = Loop(, c, h) "
    "<body = b (int64 i, bool ci, float[2,8] v) => (bool co, float[2,8] vo) "
    "{ co = Identity(ci) vo = Tanh(v) }> }"
)


def test_an_original_that_takes_too_long_asks_for_more_time(tmp_path: Path) -> None:
    error = refused(tmp_path, ENDLESS, rules("relu(x)"), timeout=1.0)
    assert error.message == "the original timed out"
    assert "`--timeout`" in error.help
    site = next(c for c in error.report.checks if c.check == "sites_close")
    assert site.verdict is Verdict.PASS


def test_a_branch_that_nothing_reaches_is_named_in_the_help(tmp_path: Path) -> None:
    text = (
        f"{HEAD} g (float[N] x) => (float[N] y) {{ s = Shape(x) r = Size(s)"
        " three = Constant<value_int = 3>() c = Equal(r, three) y = If(c) <"
        "then_branch = t () => (float[N] a) { a = Relu(x) },"
        "else_branch = e () => (float[N] b) { b = Neg(x) }> }"
    )
    error = refused(tmp_path, text, rules("relu(x)"))
    assert "has no evidence at site" in error.message
    assert error.help.startswith("give inputs that reach `then_branch` of If `y` (condition `c`)")


@pytest.mark.parametrize(
    ("said", "who", "start"),
    [
        ("Foo:Bar(-1) is not a registered function/op", "the original", "`Foo::Bar` has no kernel"),
        (
            "Could not find an implementation for Abs(13) node",
            "the candidate",
            "`Abs` has no kernel",
        ),
    ],
)
def test_a_missing_kernel_is_named(said: str, who: str, start: str) -> None:
    found = blamed(Trouble(Verdict.CANNOT_RUN, f"onnxruntime: {said}"), who)
    itself = "the original itself" if who == "the original" else who
    assert found.detail.startswith(f"{itself} cannot run here: {start}")


def test_memory_is_said_to_be_the_cause() -> None:
    from oprep.converters.causes import advice
    from oprep.converters.report import CheckResult

    for words in ("bad allocation", "Failed to allocate memory for requested buffer of size 24"):
        check = CheckResult(
            "outputs_close", "y", Verdict.CANNOT_RUN, detail=f"the original {words}"
        )
        assert "needs more memory than there is" in advice(check)


def test_a_shape_that_does_not_fit_is_refused_with_the_file_before_anything_runs(
    tmp_path: Path,
) -> None:
    import numpy as np

    np.savez(tmp_path / "in.npz", x=np.zeros((3, 8), np.float32))
    with pytest.raises(OprepError) as caught:
        run(tmp_path, RELU, rules("relu(x)"), inputs=[tmp_path / "in.npz"])
    assert caught.value.exit_code == ExitCode.MODEL
    assert caught.value.message == "input `x` has the wrong shape"
    assert "in.npz" in caught.value.where
    assert caught.value.notes == ("the model wants [2, 8], the file has [3, 8]",)


def test_inputs_that_are_not_made_up_are_no_fault_of_the_original(tmp_path: Path) -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 18]> g (optional(float[2]) o) => (float[2] y) '
        "{ q = OptionalGetElement(o) y = Relu(q) }"
    )
    error = refused(tmp_path, text, rules("relu(x)"))
    wanted = "no inputs could be made: input `o` is an optional, which is not generated"
    assert error.message == wanted


def test_a_declared_zero_says_that_it_is_empty(tmp_path: Path) -> None:
    text = f"{HEAD} g (float[0,8] x) => (float[0,8] y) {{ y = Relu(x) }}"
    error = refused(tmp_path, text, rules("relu(x)"))
    assert {c.verdict for c in error.report.checks if c.check == "sites_close"} == {
        Verdict.NO_EVIDENCE
    }
    assert error.help.startswith("give inputs with at least one element")

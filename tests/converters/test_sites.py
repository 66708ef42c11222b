"""Sites are proven wherever they lie, and planted wrong replacements are found there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from onnx import ModelProto

from oprep.converters.report import Verdict
from oprep.converters.runs import Loadable, Runs, Trouble
from oprep.converters.twin import RegionPath, TwinPlan, TwinSite, build_twin, decode
from oprep.opsets.rule import Tolerance
from tests.converters.proving import MAIN, Pool, check, function, model, outputs, site, sites


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    made = Pool()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def pooled(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oprep.converters.checks.subject.Child", pool.lend)


IN_IF = model(
    """g (float[N] x, bool c) => (float[N] y) {
      y = If(c) <
        then_branch = t () => (float[N] a) { s = Sigmoid(x)
          a = Mul(x, s) },
        else_branch = e () => (float[N] b) { n = Neg(x)
          b = Relu(n) }>
    }"""
)
NESTED_IF = model(
    """g (float[N] x, bool c, bool d) => (float[N] y) {
      y = If(c) <
        then_branch = t () => (float[N] a) {
          a = If(d) <
            then_branch = tt () => (float[N] p) { p = Relu(x) },
            else_branch = te () => (float[N] q) { q = Neg(x) }> },
        else_branch = e () => (float[N] b) { b = Exp(x) }>
    }"""
)
IN_LOOP = model(
    """g (float[N] x, int64 n) => (float[M] y) {
      y = Loop(n, , x) <body = b (int64 i, bool go, float[K] s) => (bool on, float[L] after) {
        on = Identity(go)
        r = Relu(s)
        after = Concat<axis = 0>(r, s) }>
    }"""
)
IF_IN_LOOP = model(
    """g (float[N] x, int64 n) => (float[N] y) {
      y = Loop(n, , x) <body = b (int64 i, bool go, float[N] s) => (bool on, float[N] after) {
        on = Identity(go)
        two = Constant<value_int = 2>()
        odd = Mod(i, two)
        c = Cast<to = 9>(odd)
        after = If(c) <
          then_branch = t () => (float[N] a) { a = Relu(s) },
          else_branch = e () => (float[N] b) { b = Neg(s) }> }>
    }"""
)
STACKING_LOOP = model(
    """g (float[N] x, int64 n) => (float[N] y, float[T, N] all) {
      y, all = Loop(n, , x) <
        body = b (int64 i, bool go, float[N] s) => (bool on, float[N] after, float[N] each) {
          on = Identity(go)
          after = Neg(s)
          each = Relu(after) }>
    }"""
)
LOOP_IN_LOOP = model(
    """g (float[N] x, int64 n) => (float[N] y) {
      y = Loop(n, , x) <body = b (int64 i, bool go, float[N] s) => (bool on, float[N] after) {
        on = Identity(go)
        after = Loop(i, , s) <
          body = c (int64 j, bool g2, float[N] t) => (bool o2, float[N] u) {
            o2 = Identity(g2)
            u = Neg(t) }> }>
    }"""
)
IN_SCAN = model(
    """g (float[N, 3] x, float[3] start) => (float[3] last, float[N, 3] all) {
      last, all = Scan<num_scan_inputs = 1,
        body = b (float[3] st, float[3] xs) => (float[3] so, float[3] os) {
          r = Relu(xs)
          so = Add(st, r)
          os = Tanh(so) }>(start, x)
    }"""
)
BACKWARDS_SCAN = model(
    """g (float[3, N] x, float[3] start) => (float[3] last) {
      last = Scan<num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1],
        body = b (float[3] st, float[3] xs) => (float[3] so) {
          d = Sub(st, xs)
          so = Relu(d) }>(start, x)
    }"""
)
IF_IN_SCAN = model(
    """g (float[N, 3] x, float[3] start) => (float[3] last) {
      last = Scan<num_scan_inputs = 1,
        body = b (float[3] st, float[3] xs) => (float[3] so) {
          total = ReduceSum<keepdims = 0>(xs)
          zero = Constant<value_float = 0.0>()
          c = Greater(total, zero)
          so = If(c) <
            then_branch = t () => (float[3] a) { a = Relu(xs) },
            else_branch = e () => (float[3] b) { b = Neg(xs) }> }>(start, x)
    }"""
)
FUNCTIONS = model(
    """g (float[N] x) => (float[N] y, float[N] z) {
      y = f.inner(x)
      h = f.outer(x)
      z = f.inner(h)
    }
    <domain: "f", opset_import: ["": 17]>
    inner (i) => (o) {
      j = Neg(i)
      o = Relu(j) }
    <domain: "f", opset_import: ["": 17, "f": 1]>
    outer (i) => (o) {
      j = f.inner(i)
      k = Sin(j)
      o = Relu(k) }""",
    extra=', "f": 1',
)
IF_IN_FUNCTION = model(
    """g (float[N] x, bool c) => (float[N] y) { y = f.pick(x, c) }
    <domain: "f", opset_import: ["": 17]>
    pick (i, c) => (o) {
      o = If(c) <then_branch = t () => (float[N] a) { a = Relu(i) },
                 else_branch = e () => (float[N] b) { b = Neg(i) }> }""",
    extra=', "f": 1',
)
FUNCTION_IN_IF = model(
    """g (float[N] x, bool c) => (float[N] y) {
      y = If(c) <then_branch = t () => (float[N] a) { a = f.act(x) },
                 else_branch = e () => (float[N] b) { b = f.act(x) }> }
    <domain: "f", opset_import: ["": 17]> act (i) => (o) { o = Relu(i) }""",
    extra=', "f": 1',
)
MAIN_GRAPH = model("g (float[N] x) => (float[N] y) { y = Relu(x) }")
PICK = function("pick")
PLACES: dict[str, tuple[ModelProto, RegionPath, str, str, str]] = {
    "main": (MAIN_GRAPH, MAIN, "y", "x", "Relu"),
    "then": (IN_IF, ((0, "then_branch"),), "s", "x", "Sigmoid"),
    "else": (IN_IF, ((0, "else_branch"),), "b", "n", "Relu"),
    "nested then": (NESTED_IF, ((0, "then_branch"), (0, "then_branch")), "p", "x", "Relu"),
    "nested else": (NESTED_IF, ((0, "then_branch"), (0, "else_branch")), "q", "x", "Neg"),
    "outer else": (NESTED_IF, ((0, "else_branch"),), "b", "x", "Exp"),
    "loop": (IN_LOOP, ((0, "body"),), "r", "s", "Relu"),
    "loop that stacks": (STACKING_LOOP, ((0, "body"),), "each", "after", "Relu"),
    "if in loop, then": (IF_IN_LOOP, ((0, "body"), (4, "then_branch")), "a", "s", "Relu"),
    "if in loop, else": (IF_IN_LOOP, ((0, "body"), (4, "else_branch")), "b", "s", "Neg"),
    "loop in loop": (LOOP_IN_LOOP, ((0, "body"), (1, "body")), "u", "t", "Neg"),
    "scan": (IN_SCAN, ((0, "body"),), "r", "xs", "Relu"),
    "scan, after": (IN_SCAN, ((0, "body"),), "os", "so", "Tanh"),
    "backwards scan": (BACKWARDS_SCAN, ((0, "body"),), "so", "d", "Relu"),
    "if in scan": (IF_IN_SCAN, ((0, "body"), (3, "then_branch")), "a", "xs", "Relu"),
    "function": (FUNCTIONS, function("inner"), "o", "j", "Relu"),
    "outer function": (FUNCTIONS, function("outer"), "k", "j", "Sin"),
    "if in function": (IF_IN_FUNCTION, (*PICK, (0, "else_branch")), "b", "i", "Neg"),
    "function in if": (FUNCTION_IN_IF, function("act"), "o", "i", "Relu"),
}


def right_and_wrong(place: str) -> tuple[ModelProto, TwinSite, TwinSite]:
    proto, region, value, reads, op = PLACES[place]
    right = site("right", region, value, f"{{out}} = {op}({reads})", [reads])
    off = f"{{t}}_r = {op}({reads}) {{t}}_f = Constant<value_float = 1.01>()"
    wrong = site("wrong", region, value, off + " {out} = Mul({t}_r, {t}_f)", [reads])
    return proto, right, wrong


@pytest.mark.parametrize("place", PLACES)
def test_a_site_is_proven_and_a_wrong_one_found(place: str) -> None:
    proto, right, wrong = right_and_wrong(place)
    proof = check(proto, [right, wrong])
    found = sites(proof)
    assert found["right"].verdict is Verdict.PASS, found["right"].detail
    assert found["right"].measured is not None
    assert found["right"].measured.elements > 4
    assert found["right"].measured.max_abs == 0
    assert found["wrong"].verdict is Verdict.FAIL
    assert found["wrong"].measured is not None
    assert found["wrong"].measured.max_rel == pytest.approx(1e-2, rel=0.1)
    assert proof.first_differing == "wrong"
    assert all(item.verdict is Verdict.PASS for item in outputs(proof).values())


@pytest.mark.parametrize("place", PLACES)
def test_the_twin_leaves_the_original_as_it_was(place: str) -> None:
    proto, right, wrong = right_and_wrong(place)
    before = proto.SerializeToString(deterministic=True)
    twin = build_twin(proto, TwinPlan([right, wrong], [], []))
    assert not twin.refused
    assert proto.SerializeToString(deterministic=True) == before
    kept = list(twin.model.graph.output)[: len(proto.graph.output)]
    assert [item.name for item in kept] == [item.name for item in proto.graph.output]


@pytest.mark.parametrize("proto", [IN_SCAN, BACKWARDS_SCAN, IF_IN_SCAN], ids=["", "back", "if"])
def test_the_loop_beside_a_scan_does_the_same(proto: ModelProto, pool: Pool) -> None:
    item = site("s", ((0, "body"),), "so", "{out} = Identity(so)", [])
    twin = build_twin(proto, TwinPlan([item], [], []))
    shape = (3, 5) if proto is BACKWARDS_SCAN else (5, 3)
    generator = np.random.default_rng(0)
    feeds = {
        "x": generator.standard_normal(shape).astype(np.float32),
        "start": generator.standard_normal(3).astype(np.float32),
    }
    with pool.lend(readable=()) as child:
        runs = Runs(child, 20.0)
        runs.open("twin", Loadable(twin.model.SerializeToString()), "a twin")
        outputs_by_name = runs.run("twin", feeds)
        runs.close("twin")
    assert not isinstance(outputs_by_name, Trouble)
    values = {name: arrays[0] for name, arrays in outputs_by_name.items()}
    steps = decode(twin.columns[0].pairs[0][0], values)
    assert len(steps) == 5
    assert (steps[-1] == values["last"]).all()


def test_every_call_of_a_function_is_evidence() -> None:
    proto, right, _ = right_and_wrong("function")
    twin = build_twin(proto, TwinPlan([right], [], []))
    reads = {name: number for number, name in enumerate(twin.outputs)}
    assert len(decode(twin.columns[0].pairs[0][0], reads)) == 3


@pytest.mark.parametrize(
    ("wrong", "verdict"),
    [
        (
            "{t}_d = Constant<value_float = 1e-4>() {t}_e = Mul({t}_d, x) {t}_q = Relu(x) "
            "{out} = Add({t}_q, {t}_e)",
            Verdict.FAIL,
        ),
        ("{out} = LeakyRelu<alpha = 0.001>(x)", Verdict.FAIL),
        ("{t}_l = Log(x) {t}_x = Exp({t}_l) {out} = Identity({t}_x)", Verdict.FAIL),
        ("{t}_r = Relu(x) {out} = Cast<to = 11>({t}_r)", Verdict.FAIL),
        (
            "{t}_r = Relu(x) {t}_a = Constant<value_ints = [0]>() {out} = Unsqueeze({t}_r, {t}_a)",
            Verdict.FAIL,
        ),
        ("{t}_z = Constant<value_float = 0.0>() {out} = Max(x, {t}_z)", Verdict.PASS),
    ],
    ids=["tiny", "negative values only", "nan", "dtype", "shape", "right"],
)
def test_planted_errors(wrong: str, verdict: Verdict) -> None:
    proto = model("g (float[N] x) => (float[N] y) { y = Relu(x) }")
    found = sites(check(proto, [site("s", MAIN, "y", wrong, ["x"])]))["s"]
    assert found.verdict is verdict, found


def test_a_wrong_dtype_in_a_branch_fails() -> None:
    region = ((0, "then_branch"),)
    item = site("s", region, "s", "{t}_s = Sigmoid(x) {out} = Cast<to = 11>({t}_s)", ["x"])
    found = sites(check(IN_IF, [item]))["s"]
    assert (found.verdict, found.detail) == (Verdict.FAIL, "dtype float32 became float64")


@pytest.mark.parametrize(("opset", "ir"), [(9, 3), (11, 6), (13, 7), (24, 11)])
def test_branches_and_loops_of_all_opsets(opset: int, ir: int) -> None:
    proto = model(
        """g (float[4] x, bool c, int64 n) => (float[4] y, float[4] z) {
          y = If(c) <then_branch = t () => (float[4] a) { a = Relu(x) },
                     else_branch = e () => (float[4] b) { b = Neg(x) }>
          z = Loop(n, , x) <body = b (int64 i, bool go, float[4] s) => (bool on, float[4] after) {
            on = Identity(go)
            after = Tanh(s) }>
        }""",
        opset=opset,
        ir=ir,
    )
    found = sites(
        check(
            proto,
            [
                site("then", ((0, "then_branch"),), "a", "{out} = Relu(x)", ["x"]),
                site("else", ((0, "else_branch"),), "b", "{out} = Neg(x)", ["x"]),
                site("loop", ((1, "body"),), "after", "{out} = Tanh(s)", ["s"]),
            ],
        )
    )
    assert {item.verdict for item in found.values()} == {Verdict.PASS}, found


@pytest.mark.parametrize(("factor", "verdict"), [(1.009, Verdict.PASS), (1.02, Verdict.FAIL)])
def test_the_tolerance_of_the_rule_decides(factor: float, verdict: Verdict) -> None:
    proto = model("g (float[N] x) => (float[N] y) { y = Relu(x) }")
    nodes = f"{{t}}_r = Relu(x) {{t}}_f = Constant<value_float = {factor}>() "
    item = site("s", MAIN, "y", nodes + "{out} = Mul({t}_r, {t}_f)", ["x"], Tolerance(1e-2, 1e-9))
    found = sites(check(proto, [item]))["s"]
    assert found.verdict is verdict
    assert found.tolerance == Tolerance(1e-2, 1e-9)
    assert found.tolerance_source == "the rule"
    limited = sites(check(proto, [item], max_rtol=1e-3))["s"]
    assert limited.verdict is Verdict.FAIL
    assert limited.tolerance == Tolerance(1e-3, 1e-9)


def test_cancellation_is_measured_against_what_the_site_reads() -> None:
    """A small difference of large numbers: what both right forms lose is not the result's size."""
    proto = model(
        """g (float[64] x) => (float[64] y) {
          big = Constant<value_float = 1000.0>()
          a = Add(x, big)
          b = Sub(a, big)
          y = Neg(b)
        }"""
    )
    other = "{out} = Neg(x)"
    seeing = sites(check(proto, [site("s", MAIN, "y", other, ["x", "a", "b"])]))["s"]
    assert seeing.verdict is Verdict.PASS
    assert seeing.measured is not None
    assert seeing.measured.max_abs > 1e-5
    blind = sites(check(proto, [site("s", MAIN, "y", other, ["x"])]))["s"]
    assert blind.verdict is Verdict.FAIL


@pytest.mark.parametrize("dtype", ["float16", "double", "bfloat16"])
def test_other_floating_types(dtype: str) -> None:
    proto = model(f"g ({dtype}[N] x) => ({dtype}[N] y) {{ n = Neg(x) y = Relu(n) }}")
    right = site("right", MAIN, "y", "{out} = Relu(n)", ["n"])
    wrong = site("wrong", MAIN, "y", "{t}_a = Relu(n) {out} = Sqrt({t}_a)", ["n"])
    proof = check(proto, [right, wrong])
    found = sites(proof)
    name = {"double": "float64"}.get(dtype, dtype)
    assert (found["right"].verdict, found["right"].dtype) == (Verdict.PASS, name)
    assert found["wrong"].verdict is Verdict.FAIL
    assert outputs(proof)["y"].verdict is Verdict.PASS
    by_reference = any("onnx reference" in note for note in proof.notes)
    assert by_reference == (dtype == "bfloat16")


def test_integers_are_exact() -> None:
    proto = model("g (int64[N] x) => (int64[N] y) { y = Neg(x) }")
    right = site("right", MAIN, "y", "{out} = Neg(x)", ["x"])
    one = "{t}_o = Constant<value_int = 1>() {t}_m = Neg(x) "
    wrong = site("wrong", MAIN, "y", one + "{out} = Add({t}_m, {t}_o)", ["x"])
    found = sites(check(proto, [right, wrong]))
    assert [found[name].verdict for name in ("right", "wrong")] == [Verdict.PASS, Verdict.FAIL]


def test_a_branch_that_no_input_takes_is_no_evidence_and_is_named() -> None:
    proto = model(
        """g (float[N] x) => (float[N] y) {
          s = Shape(x)
          r = Size(s)
          three = Constant<value_int = 3>()
          c = Equal(r, three)
          y = If(c) <then_branch = t () => (float[N] a) { a = Relu(x) },
                     else_branch = e () => (float[N] b) { b = Neg(x) }>
        }"""
    )
    never = site("never", ((4, "then_branch"),), "a", "{out} = Relu(x)", ["x"])
    always = site("always", ((4, "else_branch"),), "b", "{out} = Neg(x)", ["x"])
    found = sites(check(proto, [never, always]))
    assert found["always"].verdict is Verdict.PASS
    assert found["never"].verdict is Verdict.NO_EVIDENCE
    assert found["never"].detail == (
        "no input set reaches it: `then_branch` of If `y` (condition `c`)"
    )


def test_a_site_that_only_sees_empty_tensors_is_no_evidence() -> None:
    proto = model(
        """g (float[4] x) => (float[M] y) {
          none = Constant<value_ints = [0]>()
          e = Slice(x, none, none)
          y = Relu(e)
        }"""
    )
    found = sites(check(proto, [site("s", MAIN, "y", "{out} = Relu(e)", ["e"])]))["s"]
    assert (found.verdict, found.detail) == (
        Verdict.NO_EVIDENCE,
        "every value that reaches it is empty",
    )


def test_branches_on_constants_are_reached_by_generated_values() -> None:
    proto = model(
        """g (float[N] x, int64 rate) => (float[N] y) {
          hi = Constant<value_int = 16000>()
          c = Equal(rate, hi)
          y = If(c) <then_branch = t () => (float[N] a) { a = Relu(x) },
                     else_branch = e () => (float[N] b) { b = Neg(x) }>
        }"""
    )
    one = site("then", ((2, "then_branch"),), "a", "{out} = Relu(x)", ["x"])
    two = site("else", ((2, "else_branch"),), "b", "{out} = Neg(x)", ["x"])
    proof = check(proto, [one, two])
    assert {item.verdict for item in sites(proof).values()} == {Verdict.PASS}
    names = {item.name for item in proof.inputs}
    assert {"normal, rate=16001", "negated, rate=16001"} <= names


def test_a_replacement_that_cannot_be_loaded_leaves_the_others_proven() -> None:
    proto = model("g (float[N] x) => (float[N] y, float[N] z) { y = Relu(x) z = Neg(x) }")
    bad = site("bad", MAIN, "y", "{out} = nowhere.Missing(x)", ["x"])
    good = site("good", MAIN, "z", "{out} = Neg(x)", ["x"])
    found = sites(check(proto, [bad, good], imports=[("nowhere", 1)]))
    assert found["good"].verdict is Verdict.PASS
    assert found["bad"].verdict is Verdict.CANNOT_RUN
    assert "Missing" in found["bad"].detail


def test_a_replacement_that_hangs_leaves_the_others_proven() -> None:
    proto = model("g (float[2] x) => (float[2] y, float[2] z) { y = Relu(x) z = Neg(x) }")
    endless = (
        "{t}_m = Constant<value_int = 9223372036854775807>() "
        "{out} = Loop({t}_m, , x) <body = b (int64 i, bool go, float[2] s) "
        "=> (bool on, float[2] after) { on = Identity(go) after = Relu(s) }>"
    )
    bad, good = (
        site("bad", MAIN, "y", endless, ["x"]),
        site("good", MAIN, "z", "{out} = Neg(x)", []),
    )
    found = sites(check(proto, [bad, good], seconds=1.0))
    assert found["good"].verdict is Verdict.PASS
    assert found["bad"].verdict is Verdict.TIMED_OUT
    assert "did not end within 1 s" in found["bad"].detail


def test_a_site_whose_original_is_random_is_not_deterministic() -> None:
    proto = model(
        "g (float[8] x) => (float[8] y) { r = RandomNormalLike(x) y = Abs(x) z = Abs(r) }"
    )
    random = site("random", MAIN, "r", "{out} = RandomNormalLike(x)", ["x"])
    steady = site("steady", MAIN, "z", "{out} = Abs(r)", ["r"])
    found = sites(check(proto, [random, steady]))
    assert found["random"].verdict is Verdict.NOT_DETERMINISTIC
    assert found["steady"].verdict is Verdict.PASS


def test_a_large_constant_counts_only_by_its_size() -> None:
    values = ", ".join(["0.5"] * 5000)
    proto = model(
        f"g (float[5000] x) => (float[5000] y) <float[5000] w = {{{values}}}> {{ y = Mul(x, w) }}"
    )
    found = sites(check(proto, [site("s", MAIN, "y", "{out} = Mul(w, x)", ["x", "w"])]))["s"]
    assert found.verdict is Verdict.PASS


def test_a_long_loop_is_recorded_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oprep.converters.lifting.RECORDED", 10)
    proto = model(
        """g (float[4] x) => (float[4] y) {
          n = Constant<value_int = 50>()
          y = Loop(n, , x) <body = b (int64 i, bool go, float[4] s) => (bool on, float[4] after) {
            on = Identity(go)
            after = Neg(s) }>
        }"""
    )
    item = site("s", ((1, "body"),), "after", "{out} = Neg(s)", ["s"])
    found = sites(check(proto, [item]))["s"]
    assert found.verdict is Verdict.PASS
    assert found.measured is not None
    assert found.measured.elements == 3 * 4 * found.sets


def test_a_body_that_the_candidate_needs_is_added_where_the_site_lives() -> None:
    proto, _, _ = right_and_wrong("function")
    body = model(
        """g (float[N] x) => (float[N] y) { y = acme.Act(x) }
        <domain: "acme", opset_import: ["": 17]> Act (x) => (y) { y = Relu(x) }""",
        extra=', "acme": 1',
    ).functions
    item = site("s", function("inner"), "o", "{out} = acme.Act(j)", ["j"])
    found = sites(check(proto, [item], functions=list(body), imports=[("acme", 1)]))["s"]
    assert found.verdict is Verdict.PASS

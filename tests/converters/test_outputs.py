"""End to end: outputs, signature, noise, randomness, refusals, crashes, given inputs, free dims."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto

from oprep.converters.checks import outputs_close, subject
from oprep.converters.inputs import SITES_ALONE
from oprep.converters.prove import prove
from oprep.converters.report import Verdict
from oprep.converters.runs import Loadable
from oprep.converters.signature import signature
from oprep.opsets.errors import OprepError
from tests.converters.proving import MAIN, Pool, check, model, outputs, results, site, sites


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    made = Pool()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def pooled(pool: Pool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Share children among tests, except where a child needs a folder or a module of its own."""
    if "tmp_path" not in request.fixturenames:
        monkeypatch.setattr("oprep.converters.checks.subject.Child", pool.lend)


RELU = model("g (float[N] x) => (float[N] y) { y = Relu(x) }")


def scaled(factor: float) -> ModelProto:
    return model(
        f"""g (float[N] x) => (float[N] y) {{
          r = Relu(x)
          f = Constant<value_float = {factor}>()
          y = Mul(r, f)
        }}"""
    )


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, Verdict.PASS), (1.0001, Verdict.FAIL), (1.01, Verdict.FAIL)]
)
def test_a_candidate_that_is_off_fails(factor: float, verdict: Verdict) -> None:
    proof = check(RELU, candidate=scaled(factor))
    found = outputs(proof)["y"]
    assert found.verdict is verdict
    assert found.measured is not None
    assert found.measured.max_rel == pytest.approx(factor - 1, rel=1e-2, abs=1e-7)
    assert found.noise == 0
    assert sites(proof) == {}


def test_large_values_never_feed_the_whole_model() -> None:
    proof = check(RELU, [site("s", MAIN, "y", "{out} = Relu(x)", ["x"])])
    names = [item.name for item in proof.inputs]
    assert set(SITES_ALONE) <= set(names)
    assert sites(proof)["s"].sets == len(names)
    assert outputs(proof)["y"].sets == len(names) - len(SITES_ALONE)


def test_an_output_that_lost_its_name_or_dims_fails_the_signature() -> None:
    other = model("g (float[M] x) => (float[N] y) { y = Relu(x) }")
    found = results(check(RELU, candidate=other), "signature_kept")["signature"]
    assert found.verdict is Verdict.FAIL
    assert found.detail == "input 0 was `x` float32 [N], is `x` float32 [M]"
    more = model("g (float[N] x) => (float[N] y, float[N] z) { y = Relu(x) z = Neg(x) }")
    found = results(check(RELU, candidate=more), "signature_kept")["signature"]
    assert found.detail == "output 1 was absent, is `z` float32 [N]"


def test_a_candidate_that_cannot_be_loaded_cannot_run() -> None:
    other = model("g (float[N] x) => (float[N] y) { y = acme.Act(x) }", extra=', "acme": 1')
    found = outputs(check(RELU, candidate=other))["y"]
    assert found.verdict is Verdict.CANNOT_RUN
    assert "acme" in found.detail or "Act" in found.detail


@pytest.mark.parametrize(
    "body",
    [
        "g (float[8] x) => (float[8] y) { r = RandomNormalLike(x) y = Add(x, r) }",
        """g (float[64] x) => (float[64] y) {
          half = Constant<value_float = 0.5>()
          yes = Constant<value = bool {1}>()
          y = Dropout(x, half, yes)
        }""",
    ],
    ids=["RandomNormal", "Dropout in training"],
)
def test_an_original_that_draws_without_a_seed_is_not_deterministic(body: str) -> None:
    found = outputs(check(model(body)))["y"]
    assert found.verdict is Verdict.NOT_DETERMINISTIC
    assert found.detail == "the original differs from itself in another process"


def test_a_seeded_dropout_is_compared() -> None:
    proto = model(
        """g (float[64] x) => (float[64] y) {
          half = Constant<value_float = 0.5>()
          yes = Constant<value = bool {1}>()
          y = Dropout<seed = 7>(x, half, yes)
        }"""
    )
    assert outputs(check(proto))["y"].verdict is Verdict.PASS


def test_an_output_that_is_never_finite_is_said_to_be() -> None:
    proto = model(
        """g (float[4] x) => (float[4] y) {
          one = Constant<value_float = 1.0>()
          s = Abs(x)
          t = Add(s, one)
          n = Neg(t)
          y = Log(n)
        }"""
    )
    found = outputs(check(proto))["y"]
    assert found.verdict is Verdict.NOT_FINITE


def test_an_empty_output_is_no_evidence() -> None:
    proto = model(
        """g (float[4] x) => (float[M] y) {
          none = Constant<value_ints = [0]>()
          y = Slice(x, none, none)
        }"""
    )
    found = outputs(check(proto))["y"]
    assert (found.verdict, found.detail) == (Verdict.NO_EVIDENCE, "an empty tensor")


def test_noise_of_the_original_widens_the_tolerance_up_to_a_hundredth_of_the_rms() -> None:
    one = np.array([1.0, -1.0, 1.0], np.float32)
    off = np.float32(1e-4)
    compared, noise = outputs_close.compare_arrays(one, one + 3 * off, one, one + off, None)
    assert compared.verdict is Verdict.PASS
    assert noise == pytest.approx(1e-4, rel=1e-3)
    compared, _ = outputs_close.compare_arrays(one, one + 6 * off, one, one + off, None)
    assert compared.verdict is Verdict.FAIL
    compared, _ = outputs_close.compare_arrays(one, one, one, one + np.float32(0.02), None)
    assert compared.verdict is Verdict.NOT_DETERMINISTIC
    assert "more than 0.01 of its RMS" in compared.detail


def test_integers_that_flip_with_the_noise_are_counted_apart() -> None:
    one, noisy = np.array([3, 4, 5]), np.array([3, 4, 6])
    compared, _ = outputs_close.compare_arrays(one, np.array([3, 4, 9]), one, noisy, None)
    assert compared.verdict is Verdict.PASS
    assert compared.numbers is not None
    assert (compared.numbers.elements, compared.numbers.left_out) == (2, 1)


def test_strings_and_sequences_are_compared() -> None:
    text = model("g (string[N] s) => (string[N] y) { y = Identity(s) }")
    assert outputs(check(text))["y"].verdict is Verdict.PASS
    parts = model("g (float[6] x) => (seq(float[M]) y) { y = SplitToSequence(x) }")
    other = model("g (float[6] x) => (seq(float[M]) y) { n = Neg(x) y = SplitToSequence(n) }")
    assert outputs(check(parts))["y"].verdict is Verdict.PASS
    assert outputs(check(parts, candidate=other))["y"].verdict is Verdict.FAIL


def test_a_sequence_input_asks_for_given_inputs() -> None:
    proto = model("g (seq(float[2]) s) => (int64 n) { n = SequenceLength(s) }")
    found = outputs(check(proto))["n"]
    assert found.verdict is Verdict.CANNOT_RUN
    assert found.detail == "input `s` is a sequence, which is not generated"


def test_an_original_that_never_ends_times_out() -> None:
    proto = model(
        """g (float[2] x) => (float[2] y) {
          n = Constant<value_int = 9223372036854775807>()
          y = Loop(n, , x) <body = b (int64 i, bool go, float[2] s) => (bool on, float[2] after) {
            on = Identity(go)
            after = Relu(s) }>
        }"""
    )
    item = site("s", ((1, "body"),), "after", "{out} = Relu(s)", ["s"])
    proof = check(proto, [item], seconds=0.5)
    assert outputs(proof)["y"].verdict is Verdict.TIMED_OUT
    assert sites(proof)["s"].verdict is Verdict.TIMED_OUT


FAULTY = """
import os
from oprep.converters import sessions
from oprep.converters.sessions import close_model, run_model, run_sites

def open_model(payload, say):
    say("loading " + payload["what"])
    if b"crash_here" in payload["model"] and payload["what"] != "the original":
        os.abort()
    if b"eat_here" in payload["model"] and payload["what"] != "the original":
        raise MemoryError("all of it")
    return sessions.open_model(payload, say)
"""


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "faulty_sessions.py").write_text(FAULTY, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("oprep.converters.runs.TASKS", "faulty_sessions")


@pytest.mark.parametrize("name", ["crash_here", "eat_here"])
@pytest.mark.usefixtures("faulty")
def test_a_crash_is_the_verdict_of_its_site_alone(name: str) -> None:
    proto = model("g (float[N] x) => (float[N] y, float[N] z) { y = Relu(x) z = Neg(x) }")
    bad = site(name, MAIN, "y", "{out} = Relu(x)", ["x"])
    good = [site(f"good{i}", MAIN, "z", "{out} = Neg(x)", ["x"]) for i in range(4)]
    proof = check(proto, [*good[:2], bad, *good[2:]])
    found = sites(proof)
    assert found.pop(name).verdict is Verdict.CRASHED
    assert {item.verdict for item in found.values()} == {Verdict.PASS}
    assert {item.verdict for item in outputs(proof).values()} == {Verdict.PASS}


@pytest.mark.usefixtures("faulty")
def test_a_candidate_that_crashes_is_the_verdict_of_the_outputs() -> None:
    other = model("g (float[N] x) => (float[N] y) { crash_here = Relu(x) y = Relu(crash_here) }")
    found = outputs(check(RELU, candidate=other))["y"]
    assert found.verdict is Verdict.CRASHED
    assert "SIGABRT" in found.detail
    assert "loading the candidate" in found.detail


def test_given_inputs_replace_generated_ones() -> None:
    given = {"x": np.linspace(-1, 1, 5, dtype=np.float32)}
    proof = check(RELU, inputs=[("mine.npz", given)])
    assert [(item.name, item.shapes) for item in proof.inputs] == [
        ("mine.npz", (("x", "float32", (5,)),))
    ]
    assert outputs(proof)["y"].measured.elements == 5  # type: ignore[union-attr]


def test_given_inputs_that_do_not_fit_are_refused_before_anything_runs() -> None:
    with pytest.raises(OprepError) as caught:
        check(RELU, inputs=[("mine.npz", {"z": np.zeros(3, np.float32)})])
    assert caught.value.exit_code == 3


def test_sets_that_the_original_refuses_are_listed_with_the_reason() -> None:
    proto = model(
        """g (float[N] x) => (float[N] y) {
          two = Constant<value_floats = [1.0, 2.0]>()
          s = Add(x, two)
          y = Relu(s) }"""
    )
    sets = [
        ("good", {"x": np.ones(2, np.float32)}),
        ("bad", {"x": np.ones(3, np.float32)}),
    ]
    proof = check(proto, inputs=sets)
    refused = {item.name: item.refused for item in proof.inputs}
    assert refused["good"] == ""
    assert refused["bad"].startswith("cannot run: ")
    assert "by 3" in refused["bad"] or "broadcast" in refused["bad"].lower(), refused
    assert outputs(proof)["y"].verdict is Verdict.PASS
    none = outputs(check(proto, inputs=sets[1:]))["y"]
    assert none.verdict is Verdict.CANNOT_RUN
    assert none.detail.startswith("the original takes none of 1 input sets: ")


def test_free_dims_grow_until_the_original_runs() -> None:
    proto = model(
        """g (float[batch, time] x) => (float[batch, M] y) {
          pads = Constant<value_ints = [0, 9, 0, 9]>()
          p = Pad<mode = "reflect">(x, pads)
          y = Relu(p)
        }""",
    )
    proof = check(proto)
    shapes = {item.name: item.shapes[0][2] for item in proof.inputs}
    assert shapes["normal"] == (3, 16)
    assert shapes["normal, other sizes"] == (2, 32)
    assert outputs(proof)["y"].verdict is Verdict.PASS


def test_sizes_that_give_only_empty_outputs_are_passed_over() -> None:
    proto = model(
        """g (float[time] x) => (float[M] y) {
          five = Constant<value_ints = [5]>()
          end = Constant<value_ints = [100000]>()
          y = Slice(x, five, end)
        }"""
    )
    proof = check(proto)
    assert proof.inputs[0].shapes[0][2] == (8,)
    assert outputs(proof)["y"].verdict is Verdict.PASS


def test_external_data_is_read_from_its_folder(tmp_path: Path) -> None:
    weights = np.arange(2048, dtype=np.float32)
    weights.tofile(tmp_path / "w.bin")
    tensor = TensorProto(name="w", data_type=1, dims=[2048], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "w.bin"), ("offset", "0"), ("length", "8192")):
        tensor.external_data.add(key=key, value=value)
    proto = model("g (float[2048] x) => (float[2048] y) { s = Add(x, w) y = Relu(s) }")
    proto.graph.initializer.append(tensor)
    loadable = Loadable(proto.SerializeToString(), tmp_path)
    from oprep.converters.twin import TwinPlan

    plan = TwinPlan([site("s", MAIN, "y", "{out} = Relu(s)", ["s"])], (), ())
    proof = prove(subject.Subject(proto, loadable, proto, loadable, plan))
    assert sites(proof)["s"].verdict is Verdict.PASS
    found = outputs(proof)["y"]
    assert found.verdict is Verdict.PASS
    assert found.measured is not None
    assert found.measured.rms == pytest.approx(math.sqrt((weights**2).mean()), rel=1e-2)


def test_repeated_node_names_are_run_by_the_reference() -> None:
    proto = model("g (float[N] x) => (float[N] y) { a = Relu(x) y = Neg(a) }")
    proto.graph.node[0].name = proto.graph.node[1].name = "same"
    proof = check(proto, [site("s", MAIN, "y", "{out} = Neg(a)", ["a"])])
    assert sites(proof)["s"].verdict is Verdict.PASS
    assert outputs(proof)["y"].verdict is Verdict.PASS


def test_a_model_that_no_runtime_loads_cannot_run() -> None:
    proto = model("g (float[N] x) => (float[N] y) { y = acme.Act(x) }", extra=', "acme": 1')
    proof = check(proto, [site("s", MAIN, "y", "{out} = Relu(x)", ["x"])])
    assert sites(proof)["s"].verdict is Verdict.CANNOT_RUN
    found = outputs(proof)["y"]
    assert found.verdict is Verdict.CANNOT_RUN
    assert "onnxruntime: " in found.detail
    assert "onnx reference: " in found.detail


def test_the_same_seed_gives_the_same_proof() -> None:
    item = site("s", MAIN, "y", "{out} = Relu(x)", ["x"])
    first, second = (check(RELU, [item], seed=3) for _ in range(2))
    assert first.checks == second.checks
    assert first.inputs == second.inputs
    other = check(RELU, [item], seed=4)
    assert other.checks != first.checks


def test_the_loosest_rule_counts_for_the_outputs() -> None:
    from oprep.opsets.rule import Tolerance

    nodes = "{t}_r = Relu(x) {t}_f = Constant<value_float = 1.01>() {out} = Mul({t}_r, {t}_f)"
    item = site("s", MAIN, "y", nodes, ["x"], Tolerance(2e-2, 0.0))
    found = outputs(check(RELU, [item], candidate=scaled(1.01)))["y"]
    assert found.verdict is Verdict.PASS
    assert found.tolerance_source == "the rules"
    strict = outputs(check(RELU, [item], candidate=scaled(1.01), max_rtol=1e-4))["y"]
    assert strict.verdict is Verdict.FAIL


def test_a_dim_declared_as_zero_is_free_where_that_runs() -> None:
    proto = model("g (float[0, 8] x) => (float[M, 8] y) { y = Relu(x) }")
    found = signature(proto).inputs[0]
    assert (found.dims, found.zeros) == (("x.0", 8), ("x.0",))
    item = site("s", MAIN, "y", "{out} = Relu(x)", ["x"])
    proof = check(proto, [item])
    assert sites(proof)["s"].verdict is Verdict.NO_EVIDENCE
    assert sites(proof)["s"].detail == "every value that reaches it is empty"
    assert outputs(proof)["y"].verdict is Verdict.NO_EVIDENCE
    assert outputs(proof)["y"].detail == "an empty tensor"
    assert {shape for item in proof.inputs for _, _, shape in item.shapes} == {(0, 8)}


def test_an_output_of_zeros_demands_no_exactness() -> None:
    def with_factor(factor: float) -> ModelProto:
        return model(
            f"""g (float[8] x) => (float[8] y) {{
              f = Constant<value_float = {factor}>()
              a = Abs(x)
              y = Mul(a, f)
            }}"""
        )

    assert (
        outputs(check(with_factor(0.0), candidate=with_factor(1e-9)))["y"].verdict is Verdict.PASS
    )
    found = outputs(check(with_factor(0.0), candidate=with_factor(1e-3)))["y"]
    assert found.verdict is Verdict.FAIL


def test_a_failure_shows_the_worst_set_of_usual_scale_and_names_it() -> None:
    shifted = model(
        """g (float[8] x) => (float[8] y) {
          c = Constant<value_float = 0.01>()
          r = Relu(x)
          y = Add(r, c)
        }"""
    )
    relu = model("g (float[8] x) => (float[8] y) { y = Relu(x) }")
    found = outputs(check(relu, candidate=shifted))["y"]
    assert found.worst_set in ("normal", "negated", "wide", "ones")
    assert found.detail == f"in input set `{found.worst_set}`"
    assert found.measured is not None
    assert found.measured.rms > 0.1, "not the set of tiny values, where 0.01 is off by more"

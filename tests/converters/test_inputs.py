"""Generated and given inputs: ranges from the graph, sizes of free dims, seeds, refusals."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice

import numpy as np
import pytest
from onnx import ModelProto, parser

from oprep.converters import inputs
from oprep.converters.given import given
from oprep.converters.hints import hints
from oprep.converters.signature import not_generated, signature
from oprep.opsets.errors import OprepError


def model(body: str, ir: int = 8, opset: int = 17, extra: str = "") -> ModelProto:
    return parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}{extra}]> {body}')


EMBEDDING = model(
    f"""g (int64[batch, time] ids, float[batch, time, 4] x) => (float[batch, time, 4] y)
    <float[7, 4] table = {{{", ".join(["0.5"] * 28)}}}> {{
      flat = Cast<to=6>(ids)
      rows = Gather(table, flat)
      y = Add(rows, x)
    }}"""
)
RATES = model(
    """g (float[batch, n] x, int64 sr) => (float[batch, n] y) {
      hi = Constant<value_int = 16000>()
      lo = Constant<value = int64[1] {8000}>()
      wide = Unsqueeze(sr, zero)
      low = Equal(wide, lo)
      c = Equal(sr, hi)
      zero = Constant<value_ints = [0]>()
      y = If(c) <then_branch = t () => (float[batch, n] a) { a = Relu(x) },
                 else_branch = e () => (float[batch, n] b) { b = Neg(x) }>
    }"""
)


def make(proto: ModelProto, kind: str = "normal", seed: int = 0, **sizes: int) -> dict:
    found = signature(proto)
    chosen = sizes or next(iter(inputs.sizes(found)))
    return dict(inputs.generate(found, kind, chosen, {}, seed).arrays)


def test_an_index_stays_inside_its_table() -> None:
    for kind in inputs.KINDS:
        ids = make(EMBEDDING, kind, batch=16, time=64)["ids"]
        assert ids.dtype == np.int64
        assert ids.min() >= 0
        assert ids.max() <= 6
    assert set(make(EMBEDDING, batch=16, time=64)["ids"].reshape(-1)) == set(range(7))


def test_an_index_into_a_table_is_found_through_functions() -> None:
    proto = model(
        """g (int64[n] ids, int64[n] more) => (float[n, 1] y, float[n, 1] z)
        <float[5, 1] table = {1, 2, 3, 4, 5}> {
          y = f.look(table, ids)
          k = f.same(more)
          z = Gather(table, k)
        }
        <domain: "f", opset_import: ["": 17]>
        look (t, i) => (o) {
          j = Identity(i)
          o = Gather(t, j)
        }
        <domain: "f", opset_import: ["": 17]>
        same (i) => (o) { o = Identity(i) }""",
        extra=', "f": 1',
    )
    assert {name: hint.rows for name, hint in hints(proto).items()} == {"ids": 5, "more": 5}


def test_a_written_out_one_hot_gives_the_range() -> None:
    rows = ", ".join(str(i) for i in range(40))
    proto = model(
        f"g (int32[n, 1] k) => (bool[n, 40] y) <int32[40] r = {{{rows}}}> {{ y = Equal(k, r) }}"
    )
    assert hints(proto)["k"].span == (0.0, 39.0)
    assert make(proto, n=512)["k"].max() == 39


def test_single_integers_take_the_constants_that_they_are_compared_with() -> None:
    found = signature(RATES)
    assert [choice["sr"] for choice in inputs.choices(found)] == [16000, 8000, 16001, 8001]
    made = inputs.generate(found, "zeros", {"batch": 2, "n": 3}, {"sr": 8000}, 0)
    assert made.arrays["sr"] == 8000
    assert made.arrays["sr"].dtype == np.int64
    assert made.arrays["sr"].shape == ()


def test_an_ordered_comparison_gives_both_sides_and_the_edge() -> None:
    proto = model(
        """g (float[1] t, float[2] x) => (float[2] y) <float limit = {0.5}> {
          c = Greater(t, limit)
          y = If(c) <then_branch = p () => (float[2] a) { a = Relu(x) },
                     else_branch = q () => (float[2] b) { b = Neg(x) }>
        }"""
    )
    assert [choice["t"] for choice in inputs.choices(signature(proto))] == [0.5, 1.5, -0.5]


def test_a_single_float_takes_the_ends_of_a_long_constant_that_it_meets() -> None:
    bins = ", ".join(f"{10 * i}.5" for i in range(30))
    proto = model(
        f"""g (float low) => (bool[30] y) <float[30] bins = {{{bins}}}> {{
          y = GreaterOrEqual(bins, low)
        }}"""
    )
    assert [choice["low"] for choice in inputs.choices(signature(proto))] == [0.5, 290.5, 145.5]


def test_a_single_bool_takes_both_values_and_many_are_mixed() -> None:
    proto = model("g (bool b, bool[64] m) => (bool[64] y) { y = And(b, m) }")
    assert [choice["b"] for choice in inputs.choices(signature(proto))] == [1.0, 0.0]
    assert set(make(proto)["m"]) == {True, False}
    assert (make(proto, "negated")["m"] == ~make(proto)["m"]).all()


def test_integers_that_the_graph_says_nothing_about_are_0_to_8() -> None:
    proto = model("g (int64[500] k) => (int64[500] y) { y = Neg(k) }")
    assert set(make(proto)["k"]) == set(range(9))


def test_floats_have_both_signs_and_each_kind_its_size() -> None:
    proto = model("g (float[400] x, float16[400] h) => (float[400] y) { y = Relu(x) }")
    normal, negated = make(proto)["x"], make(proto, "negated")["x"]
    assert (normal < 0).any()
    assert (normal > 0).any()
    assert (negated == -normal).all()
    assert not make(proto, "zeros")["x"].any()
    assert (make(proto, "ones")["x"] == 1).all()
    assert 0 < np.abs(make(proto, "tiny")["x"]).max() < 1e-5
    assert np.abs(make(proto, "wide")["x"]).max() > 50
    assert (np.abs(make(proto, "medium")["x"]) > 50).sum() > 100
    found = signature(proto)
    for kind in ("large", "huge"):
        sizes = np.abs(make(proto, kind)["x"])
        assert sizes.max() / sizes.min() < 11, "a set of large values has one scale"
        assert sizes.min() > 900
        assert np.isfinite(make(proto, kind)["h"]).all()
    alone = [k for k in inputs.KINDS if not inputs.generate(found, k, {}, {}, 0).whole]
    assert alone == ["medium", "large", "huge"]
    usual = [k for k in inputs.KINDS if inputs.generate(found, k, {}, {}, 0).usual]
    assert usual == ["normal", "negated", "wide", "ones"]


def test_free_dims_are_named_or_their_own() -> None:
    proto = model(
        "g (float[batch, 0, unk__1] x, float[batch, 3] z) => (float[batch, 3] y) { y = Relu(z) }"
    )
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -1
    assert signature(proto).inputs[0].dims == ("batch", "x.1", "x.2")
    tries = list(inputs.sizes(signature(proto)))
    assert tries[0] == {"batch": 2, "x.1": 2, "x.2": 2}
    assert {"batch": 2, "x.1": 8, "x.2": 8} in tries
    assert {"batch": 8, "x.1": 8, "x.2": 8} in tries
    assert {"batch": 1, "x.1": 1024, "x.2": 1024} in tries
    assert len(tries) == len({tuple(item.items()) for item in tries})


def test_no_try_has_more_elements_than_memory_can_take() -> None:
    proto = model("g (float[a, b, c, d] x) => (float[a, b, c, d] y) { y = Relu(x) }")
    found = signature(proto)
    for chosen in inputs.sizes(found):
        assert np.prod([chosen[dim] for dim in "abcd"]) <= inputs.MOST_ELEMENTS


def test_a_model_without_free_dims_has_one_try() -> None:
    proto = model("g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }")
    assert list(islice(inputs.sizes(signature(proto)), 5)) == [{}]


def test_an_initializer_is_a_default_from_ir_4_and_no_input_below() -> None:
    text = "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"
    for ir, optional in ((3, ()), (8, ("w",))):
        found = signature(model(text, ir=ir))
        assert [port.name for port in found.inputs] == ["x"]
        assert tuple(port.name for port in found.optional) == optional


def test_sequences_are_not_made_up() -> None:
    proto = model("g (seq(float[2]) s) => (int64 n) { n = SequenceLength(s) }")
    assert not_generated(signature(proto)) == ("input `s` is a sequence, which is not generated")
    maybe = model(
        "g (optional(float[2]) o) => (float[2] y) { y = OptionalGetElement(o) }", opset=18
    )
    assert not_generated(signature(maybe)) == ("input `o` is an optional, which is not generated")


def test_the_same_seed_gives_the_same_arrays_in_any_process() -> None:
    program = (
        "from onnx import parser; from oprep.converters import inputs;"
        "from oprep.converters.signature import signature;"
        'import hashlib; m = parser.parse_model(\'<ir_version: 8, opset_import: ["": 17]> '
        "g (float[64] x, int64[64] k) => (float[64] y) { y = Relu(x) }');"
        "a = inputs.generate(signature(m), 'normal', {}, {}, 7).arrays;"
        "print(hashlib.sha256(b''.join(v.tobytes() for v in a.values())).hexdigest())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": salt},
            capture_output=True,
            check=True,
        ).stdout
        for salt in ("1", "2")
    }
    assert len(seen) == 1
    first, other = (
        make(EMBEDDING, seed=1, batch=8, time=8),
        make(EMBEDDING, seed=2, batch=8, time=8),
    )
    assert (first["x"] != other["x"]).any()


X = np.ones((2, 3), np.float32)
TWO = model("g (float[n, 3] x, int64[n] k) => (float[n, 3] y) { y = Relu(x) }")


def test_given_inputs_are_bound_by_name_or_position() -> None:
    k = np.zeros(2, np.int64)
    for arrays in ({"k": k, "x": X}, {"arr_0": X, "arr_1": k}):
        (only,) = given(signature(TWO), [("samples.npz", arrays)])
        assert only.name == "samples.npz"
        assert only.arrays["x"] is X
        assert only.arrays["k"] is k


@pytest.mark.parametrize(
    ("arrays", "message", "note"),
    [
        ({"x": X}, "the input names are not those of the model", "nothing is given for `k`"),
        ({"arr_0": X}, "1 arrays for 2 inputs", "the model takes `x`, `k`"),
        (
            {"x": X, "k": np.zeros(2, np.int32)},
            "input `k` has the wrong dtype",
            "the model wants int64, the file has int32",
        ),
        (
            {"x": X[0], "k": np.zeros(2, np.int64)},
            "input `x` has the wrong rank",
            "the model wants [n, 3], the file has [3]",
        ),
        (
            {"x": np.ones((2, 4), np.float32), "k": np.zeros(2, np.int64)},
            "input `x` has the wrong shape",
            "the model wants [n, 3], the file has [2, 4]",
        ),
        (
            {"x": X, "k": np.zeros(2, np.int64), "z": X},
            "the input names are not those of the model",
            "there is no input `z`",
        ),
    ],
)
def test_given_inputs_that_do_not_fit_are_refused(
    arrays: dict[str, np.ndarray], message: str, note: str
) -> None:
    with pytest.raises(OprepError) as caught:
        given(signature(TWO), [("samples.npz", arrays)])
    assert caught.value.message == message
    assert caught.value.notes == (note,)
    assert caught.value.where == "samples.npz"
    assert caught.value.exit_code == 3

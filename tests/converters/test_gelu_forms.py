"""GELU in every form is found by the one equation of the shipped opset; what only looks so is not.

Where a test counts sites it also reads the artifact: the new nodes read the right value, and the
artifact gives the original's numbers in ONNX Runtime.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from oprep.converters.report import Report
from tests.corpus import decoys, gelu
from tests.corpus.converting import GELU, converted, nodes, of_type
from tests.corpus.running import feeds_for, run_all

EXPORTS = Path(__file__).resolve().parents[1] / "data" / "exports"
OPSET: dict[str, Any] = {"opset": ["activations"]}
NEW = ("oprep", "Gelu")
ANY_NUMBER = f'{GELU}expect = ">=0"\n'
ENCODED = [
    (encode, dtype)
    for encode in gelu.encodings()
    for dtype in ("float32", "float16")
    if dtype == "float32" or "value_float" not in encode
]
OPSETS = [(9, 3), (11, 6), (13, 7), (15, 8), (20, 9), (23, 11)]


def found(report: Report) -> int:
    """Count the sites of the GELU rule and check that no other rule matched."""
    counts = {rule.rule: len(rule.sites) for rule in report.rules if rule.sites}
    assert set(counts) <= {"gelu"}, counts
    return counts.get("gelu", 0)


def converted_gelu(
    model: onnx.ModelProto | Path, *, verify: bool = True
) -> tuple[int, onnx.ModelProto]:
    """Convert by the shipped opset; give the number of sites and the artifact."""
    report, artifact = converted(model, verify=verify, **OPSET)
    assert report.ok, report.to_json()
    assert len(of_type(artifact, *NEW)) == found(report)
    return found(report), artifact


def assert_same_numbers(original: onnx.ModelProto, artifact: onnx.ModelProto) -> None:
    """Compare both in ONNX Runtime on inputs of both signs, and with both values of a bool."""
    loose = any(
        v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16 for v in original.graph.input
    )
    feeds = [feeds_for(original, seed=seed, bools=bool(seed % 2)) for seed in range(2)]
    jobs = [(model, feed) for feed in feeds for model in (original, artifact)]
    results = run_all(jobs)
    for before, after in zip(results[::2], results[1::2], strict=True):
        for want, got in zip(before, after, strict=True):
            assert want.dtype == got.dtype
            rtol = 4e-3 if loose else 1e-5
            np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


def test_every_form_is_found_by_one_equation() -> None:
    forms = gelu.forms()
    model = gelu.side_by_side(forms)
    count, artifact = converted_gelu(model)
    assert {node.input[0] for node in of_type(artifact, *NEW)} == {"x"}
    left = {node.name.split(".")[0] for node in nodes(artifact) if node.op_type == "Erf"}
    names = list(forms)
    assert not [names[int(one.removeprefix("form"))] for one in left if one.startswith("form")]
    assert count == len(forms)
    assert_same_numbers(model, artifact)


@pytest.mark.parametrize(("encode", "dtype"), ENCODED)
def test_constants_are_read_in_every_encoding(encode: str, dtype: str) -> None:
    model = gelu.side_by_side(gelu.EXPORTED, dtype=dtype, encode=encode)
    count, _ = converted_gelu(model, verify=False)
    assert count == len(gelu.EXPORTED)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_both_float_types_are_proven(dtype: str) -> None:
    model = gelu.side_by_side(gelu.EXPORTED, dtype=dtype)
    count, artifact = converted_gelu(model)
    assert count == len(gelu.EXPORTED)
    assert_same_numbers(model, artifact)


@pytest.mark.parametrize("place", gelu.PLACES)
def test_sites_elsewhere_than_in_the_main_graph_are_found_and_proven(place: str) -> None:
    build, expected = gelu.PLACES[place]
    model = build()
    count, artifact = converted_gelu(model)
    assert count == expected
    assert_same_numbers(model, artifact)


@pytest.mark.parametrize(("opset", "ir_version"), OPSETS)
def test_every_opset_that_has_erf_is_served(opset: int, ir_version: int) -> None:
    listed = (0, 1, 2) if ir_version < 4 else ()
    model = decoys.plain(opset=opset, ir_version=ir_version, also_inputs=listed)
    count, artifact = converted_gelu(model)
    assert count == 1
    assert artifact.ir_version == ir_version
    onnx.checker.check_model(artifact, full_check=True)


@pytest.mark.parametrize("path", sorted(EXPORTS.glob("gelu_[!t]*.onnx")), ids=lambda p: p.stem)
def test_both_exporters_gelu_is_found(path: Path) -> None:
    count, artifact = converted_gelu(path)
    assert count == 2
    assert not [node for node in artifact.graph.node if node.op_type == "Erf"]


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("silu", "silu"),
        ("hardswish", "hardswish"),
        ("hardsigmoid", "hardsigmoid"),
        ("leaky_relu", "leaky-relu"),
    ],
)
@pytest.mark.parametrize("exporter", ["dynamo_18", "torchscript_17"])
def test_both_exporters_other_activations_are_found(name: str, rule: str, exporter: str) -> None:
    report, _ = converted(EXPORTS / f"{name}_{exporter}.onnx", verify=True, **OPSET)
    assert {r.rule: len(r.sites) for r in report.rules if r.sites} == {rule: 2}
    assert report.ok


@pytest.mark.skipif("OPREP_EXPORT" not in os.environ, reason="set OPREP_EXPORT to export again")
def test_the_exporters_still_write_what_is_committed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, EXPORTS / "make.py", tmp_path], check=True, timeout=300)
    for path in EXPORTS.glob("*.onnx"):
        again, before = onnx.load(tmp_path / path.name), onnx.load(path)
        assert [n.op_type for n in again.graph.node] == [n.op_type for n in before.graph.node]


@pytest.mark.parametrize("name", decoys.DECOYS)
def test_what_only_looks_like_gelu_is_left_alone(name: str) -> None:
    report, artifact = converted(decoys.decoys([name]), text=ANY_NUMBER, verify=False)
    assert report.matches == 0
    assert artifact == decoys.decoys([name])


@pytest.mark.parametrize("index", [0, 1, 2])
def test_an_initializer_that_a_caller_may_override_is_no_constant(index: int) -> None:
    model = decoys.plain(also_inputs=(index,))
    report, _ = converted(model, text=ANY_NUMBER)
    assert report.matches == 0
    assert converted_gelu(decoys.plain(), verify=False)[0] == 1


def test_below_ir_4_a_listed_initializer_is_a_constant() -> None:
    model = decoys.plain(opset=9, ir_version=3, also_inputs=(0, 1, 2))
    assert converted_gelu(model, verify=False)[0] == 1


def test_a_constant_that_raises_the_rank_is_no_match() -> None:
    flat = decoys.plain(dims=("batch", 8), encode="initializer [1,1,1]")
    report, _ = converted(flat, text=ANY_NUMBER)
    assert report.matches == 0


@pytest.mark.parametrize("op", ["Div", "Erf", "Add"])
def test_an_inner_value_that_is_read_elsewhere_keeps_its_producer(op: str) -> None:
    model = decoys.inner_value_used(op)
    count, artifact = converted_gelu(model)
    assert count == 1
    assert op in {node.op_type for node in artifact.graph.node}
    assert_same_numbers(model, artifact)


@pytest.mark.parametrize("op", ["Div", "Erf", "Add"])
def test_an_inner_value_that_is_an_output_keeps_its_producer(op: str) -> None:
    model = decoys.plain(also_outputs=(op,))
    count, artifact = converted_gelu(model)
    assert count == 1
    assert [value.name for value in artifact.graph.output] == [v.name for v in model.graph.output]
    assert_same_numbers(model, artifact)


def test_the_report_counts_inner_values_that_stayed() -> None:
    report, _ = converted(decoys.inner_value_used("Erf"), **OPSET)
    (site,) = (site for rule in report.rules for site in rule.sites)
    assert len(site.kept) >= 1


def test_two_sites_around_one_erf_both_go_and_the_erf_with_them() -> None:
    model = decoys.two_that_share_erf()
    count, artifact = converted_gelu(model)
    assert count == 2
    assert "Erf" not in {node.op_type for node in artifact.graph.node}
    assert_same_numbers(model, artifact)


def test_two_sites_around_one_erf_are_both_found_by_a_rule_of_one_equation() -> None:
    report, _ = converted(decoys.two_that_share_erf(), text=GELU)
    assert report.matches == 2


def test_gelu_in_a_longer_product_is_found() -> None:
    model = decoys.in_a_longer_product()
    count, artifact = converted_gelu(model)
    assert count == 1
    assert_same_numbers(model, artifact)


def test_sites_whose_nodes_share_a_name_or_have_none_are_found() -> None:
    model = decoys.duplicate_names()
    count, artifact = converted_gelu(model, verify=False)
    assert count == 2
    onnx.checker.check_model(artifact)

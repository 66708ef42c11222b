"""Real and sample models are converted, every site is proven, the artifact runs by itself.

Numbers are also compared here, by ONNX Runtime in a child, without any of oprep's own checks.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from oprep.converters.pipeline import convert, verify
from oprep.converters.report import CheckResult, Verdict
from oprep.opsets.errors import ExitCode, OprepError
from tests.corpus.real import RULES, SAMPLES, every_case, packaged
from tests.corpus.running import feeds_for, run_all

CASES = [pytest.param(*case[1:], id=case[0]) for case in every_case()]


def site_checks(checks: tuple[CheckResult, ...]) -> list[CheckResult]:
    """Give the checks of single sites."""
    return [check for check in checks if check.rule]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("model", "rules", "expected"), CASES)
def test_every_site_is_proven_with_numbers_and_the_artifact_runs(
    model: Path, rules: Path, expected: dict[str, int], tmp_path: Path
) -> None:
    output = tmp_path / "out.onnx"
    report = convert(model, rules=[rules], output=output)
    assert report.status == "verified"
    assert {rule.rule: len(rule.sites) for rule in report.rules} == expected
    sites = [site.site for rule in report.rules for site in rule.sites]
    proven = {check.name: check for check in site_checks(report.checks)}
    assert set(sites) <= set(proven)
    for site in sites:
        assert proven[site].verdict is Verdict.PASS
        measured = proven[site].measured
        assert measured is not None
        assert measured.elements > 0
    before = onnx.load(model, load_external_data=False)
    assert_same_numbers(before, model, output)


def assert_same_numbers(described: onnx.ModelProto, model: Path, output: Path) -> None:
    """Compare both files in plain ONNX Runtime, a bool input once true and once false."""
    half = any(
        value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
        for value in described.graph.input
    )
    feeds = [
        feeds_for(described, free=size, seed=seed, bools=bool(seed))
        for seed, size in enumerate(SIZES.get(packaged_name(model), (2, 3)))
    ]
    results = run_all([(path, feed) for feed in feeds for path in (model, output)])
    for want, got in zip(results[::2], results[1::2], strict=True):
        for one, two in zip(want, got, strict=True):
            rtol = 1e-2 if half else 1e-4
            np.testing.assert_allclose(two, one, rtol=rtol, atol=rtol * max(1e-3, abs(one).max()))


SIZES = {"swift_f0": (4000, 6000), "magika": (1, 2)}
"""Sizes of free dims that a model accepts, where 2 and 3 are not."""


def packaged_name(model: Path) -> str:
    """Name the package that a model comes from."""
    return next((name for name in SIZES if name in model.parts), "")


def test_magika_has_constants_of_two_shapes_and_both_are_found(tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    rules = RULES / "gelu_tanh.toml"
    report = convert(packaged("magika"), rules=[rules], output=output, verify=False)
    assert report.matches == 2
    assert "Tanh" not in {node.op_type for node in onnx.load(output).graph.node}


def test_verify_accepts_what_convert_wrote_and_refuses_another_model(tmp_path: Path) -> None:
    model, output = SAMPLES / "encoder.onnx", tmp_path / "out.onnx"
    convert(model, rules=[SAMPLES / "gelu.toml"], output=output)
    report = verify(model, output)
    assert report.ok
    assert len(site_checks(report.checks)) >= 4
    broken = onnx.load(output)
    (weight,) = (t for t in broken.graph.initializer if t.name == "pooler.dense.bias")
    weight.raw_data = np.full(16, 0.75, np.float32).tobytes()
    other = tmp_path / "other.onnx"
    other.write_bytes(broken.SerializeToString())
    with pytest.raises(OprepError) as caught:
        verify(model, other)
    assert caught.value.exit_code == ExitCode.VERIFICATION


WRONG = """
format = 1

[[op]]
name = "acme::gelu"
body = "0.5 * x * (1 + erf(x / sqrt({number})))"

[[rule]]
name    = "gelu"
replace = "0.5 * x * (1 + erf(x / sqrt(2)))"
with    = "acme::gelu(x)"
"""


@pytest.mark.parametrize("model", ["encoder.onnx", "branches.onnx", "loop.onnx", "functions.onnx"])
def test_a_wrong_replacement_is_refused_and_nothing_is_written(model: str, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(WRONG.format(number="2.1"))
    with pytest.raises(OprepError) as caught:
        convert(SAMPLES / model, rules=[rules], output=tmp_path / "out.onnx")
    assert caught.value.exit_code == ExitCode.VERIFICATION
    assert [path.name for path in tmp_path.iterdir()] == ["rules.toml"]
    rules.write_text(WRONG.format(number="2"))
    convert(SAMPLES / model, rules=[rules], output=tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").exists()

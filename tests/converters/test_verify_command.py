"""`verify` takes its sites from the sidecar, judges again, and trusts no hash it has not made."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from oprep.converters.pipeline import convert, verify
from oprep.converters.report import Report, Verdict
from oprep.opsets.errors import ExitCode, OprepError

SAMPLES = Path(__file__).parents[2] / "sample_models"
WRONG = """format = 1
[[op]]
name = "acme::gelu"
body = "0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))"
[[rule]]
name = "gelu"
replace = "0.5 * x * (1 + erf(x / sqrt(2)))"
with = "acme::gelu(x)"
"""


def checks(report: Report, name: str) -> list[Verdict]:
    return [check.verdict for check in report.checks if check.check == name]


def converted(folder: Path, model: str, rules: str, **options: object) -> Path:
    output = folder / "out.onnx"
    convert(SAMPLES / model, rules=[SAMPLES / rules], output=output, **options)  # type: ignore[arg-type]
    return output


@pytest.mark.parametrize(
    ("model", "rules", "sites"),
    [
        ("encoder.onnx", "gelu.toml", 4),
        ("loop.onnx", "rules/relu.toml", None),
        ("functions.onnx", "rules/gelu.toml", None),
        ("conv.onnx", "rules/hardswish.toml", None),
    ],
)
def test_every_site_of_the_sidecar_is_proven_again(
    model: str, rules: str, sites: int | None, tmp_path: Path
) -> None:
    output = converted(tmp_path, model, rules)
    recorded = json.loads(output.with_name("out.onnx.oprep.json").read_text())
    wanted = recorded["predicate"]["buildDefinition"]["internalParameters"]["sites"]
    report = verify(SAMPLES / model, output, provenance=True)
    assert report.status == "verified"
    assert len(checks(report, "sites_close")) == len(wanted) == (sites or len(wanted)) > 0


def test_without_a_sidecar_the_outputs_alone_are_compared_and_that_is_said(tmp_path: Path) -> None:
    output = converted(tmp_path, "encoder.onnx", "gelu.toml")
    output.with_name("out.onnx.oprep.json").unlink()
    report = verify(SAMPLES / "encoder.onnx", output)
    assert checks(report, "sites_close") == []
    assert any("no sidecar" in note for note in report.notes)
    with pytest.raises(OprepError, match="has no sidecar") as caught:
        verify(SAMPLES / "encoder.onnx", output, provenance=True)
    assert caught.value.exit_code == ExitCode.VERIFICATION


def test_a_changed_weight_fails_and_provenance_refuses_the_file(tmp_path: Path) -> None:
    output = converted(tmp_path, "encoder.onnx", "gelu.toml")
    model = onnx.load(output)
    weight = next(item for item in model.graph.initializer if len(item.dims) == 2)
    changed = numpy_helper.to_array(weight) * np.float32(1.01)
    weight.CopyFrom(numpy_helper.from_array(changed, weight.name))
    output.write_bytes(model.SerializeToString())
    with pytest.raises(OprepError) as caught:
        verify(SAMPLES / "encoder.onnx", output)
    assert caught.value.exit_code == ExitCode.VERIFICATION
    with pytest.raises(OprepError, match="is not what the sidecar vouches for"):
        verify(SAMPLES / "encoder.onnx", output, provenance=True)


def test_the_sidecar_of_another_original_is_not_believed(tmp_path: Path) -> None:
    output = converted(tmp_path, "encoder.onnx", "gelu.toml")
    with pytest.raises(OprepError, match="is not what the sidecar vouches for"):
        verify(SAMPLES / "conv.onnx", output, provenance=True)


@pytest.mark.parametrize("text", ["{", "[]", '{"subject": []}'])
def test_a_broken_sidecar_is_refused(text: str, tmp_path: Path) -> None:
    output = converted(tmp_path, "encoder.onnx", "gelu.toml")
    output.with_name("out.onnx.oprep.json").write_text(text)
    with pytest.raises(OprepError, match="is no sidecar") as caught:
        verify(SAMPLES / "encoder.onnx", output)
    assert caught.value.exit_code == ExitCode.MODEL


def test_an_approximation_fails_at_its_site_and_passes_once_it_is_accepted(tmp_path: Path) -> None:
    rules = tmp_path / "wrong.toml"
    rules.write_text(WRONG)
    output = tmp_path / "out.onnx"
    with pytest.raises(OprepError, match="differs from the reference at site") as caught:
        convert(SAMPLES / "encoder.onnx", rules=[rules], output=output)
    assert caught.value.exit_code == ExitCode.VERIFICATION
    assert not output.exists()
    report = convert(SAMPLES / "encoder.onnx", rules=[rules], output=output, accept=["fail"])
    assert report.status == "accepted"
    assert report.accepted == ("fail",)
    assert any(check.accepted for check in report.checks)
    sidecar = json.loads(output.with_name("out.onnx.oprep.json").read_text())
    result = sidecar["predicate"]["oprep_verification"]["predicate"]
    assert result["result"] == "WARNED"


def test_a_tolerance_lets_an_approximation_pass_but_not_below_the_floor(tmp_path: Path) -> None:
    rules = tmp_path / "close.toml"
    rules.write_text(WRONG + "tolerance = { rtol = 1e-2, atol = 1e-2 }\n")
    output = tmp_path / "out.onnx"
    report = convert(SAMPLES / "encoder.onnx", rules=[rules], output=output)
    assert set(checks(report, "sites_close")) == {Verdict.PASS}
    with pytest.raises(OprepError) as caught:
        convert(SAMPLES / "encoder.onnx", rules=[rules], output=output, max_atol=1e-6,
                max_rtol=1e-6)  # fmt: skip
    assert caught.value.exit_code == ExitCode.VERIFICATION


def test_saved_inputs_replay_to_the_same_numbers(tmp_path: Path) -> None:
    saved = tmp_path / "inputs"
    output = converted(tmp_path, "encoder.onnx", "gelu.toml", save_inputs=saved)
    folders = sorted(saved.iterdir())
    assert len(folders) > 1
    report = verify(SAMPLES / "encoder.onnx", output, inputs=folders)
    assert len(report.inputs) == len(folders)
    assert report.status == "verified"


def test_a_copy_elsewhere_verifies_with_its_sidecar(tmp_path: Path) -> None:
    output = converted(tmp_path, "encoder.onnx", "gelu.toml")
    other = tmp_path / "elsewhere"
    other.mkdir()
    for path in (output, output.with_name("out.onnx.oprep.json")):
        shutil.copy(path, other / path.name)
    assert verify(SAMPLES / "encoder.onnx", other / "out.onnx", provenance=True).ok

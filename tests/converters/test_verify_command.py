"""`verify` takes its sites from the sidecar, judges again, and trusts no hash it has not made."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from oprep.converters.pipeline import convert, verify
from oprep.converters.report import Report, Verdict
from oprep.converters.sidecar import read_sidecar
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


def edited(output: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what the sidecar says of its sites."""
    path = output.with_name(f"{output.name}.oprep.json")
    data = json.loads(path.read_text())
    change(data["predicate"]["buildDefinition"]["internalParameters"])
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    "tolerance",
    [
        {"rtol": float("nan"), "atol": 0.0},
        {"rtol": -1e-3, "atol": 0.0},
        {"rtol": float("inf"), "atol": 0.0},
        {"rtol": 1e300, "atol": 0.0},
        {"rtol": 0.0, "atol": 1e300},
        {"rtol": True, "atol": 0.0},
        {"rtol": "1", "atol": 0.0},
        {"rtol": 1e-3},
        "1e-3",
    ],
)
def test_a_tolerance_that_is_none_makes_the_sidecar_broken(tolerance: Any, tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    output.write_bytes(b"")
    (tmp_path / "out.onnx.oprep.json").write_text(json.dumps(sidecar_with(tolerance)))
    with pytest.raises(OprepError, match="is no sidecar") as caught:
        read_sidecar(output)
    assert caught.value.exit_code == ExitCode.MODEL


def sidecar_with(tolerance: Any) -> dict[str, Any]:
    site = {"rule": "r", "site": "s", "region": [], "outputs": ["y"], "reads": ["x"]}
    build = {
        "internalParameters": {"sites": [{**site, "tolerance": tolerance}]},
        "resolvedDependencies": [],
    }
    return {"subject": [], "predicate": {"buildDefinition": build}}


def test_a_tolerance_that_a_rule_may_have_is_read(tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    for tolerance in (None, {"rtol": 10, "atol": 0.5}, {"rtol": 0.0, "atol": 0.0}):
        (tmp_path / "out.onnx.oprep.json").write_text(json.dumps(sidecar_with(tolerance)))
        found = read_sidecar(output)
        assert found is not None
        assert found["sites"][0]["tolerance"] == tolerance


def test_tolerances_of_the_sidecar_are_said_to_be_its_own(tmp_path: Path) -> None:
    output = converted(tmp_path, "encoder.onnx", "gelu.toml")
    assert not any("tolerance" in n for n in verify(SAMPLES / "encoder.onnx", output).notes)

    def loosen(parameters: dict[str, Any]) -> None:
        for site in parameters["sites"]:
            site["tolerance"] = {"rtol": 0.5, "atol": 0.0}

    edited(output, loosen)
    notes = verify(SAMPLES / "encoder.onnx", output).notes
    assert "tolerance taken from the sidecar: rtol 0.5, atol 0 of `gelu-erf`" in notes


def test_a_sidecar_without_sites_is_not_silence(tmp_path: Path) -> None:
    output = converted(tmp_path, "encoder.onnx", "gelu.toml")
    edited(output, lambda parameters: parameters.update(sites=[]))
    report = verify(SAMPLES / "encoder.onnx", output)
    assert checks(report, "sites_close") == []
    assert any(note.startswith("the sidecar records no sites, though") for note in report.notes)


def test_files_are_known_by_their_hashes_not_by_their_names(tmp_path: Path) -> None:
    output = converted(tmp_path, "encoder.onnx", "gelu.toml")
    renamed, original = tmp_path / "other.onnx", tmp_path / "before.onnx"
    shutil.copy(output, renamed)
    shutil.copy(output.with_name("out.onnx.oprep.json"), tmp_path / "other.onnx.oprep.json")
    shutil.copy(SAMPLES / "encoder.onnx", original)
    report = verify(original, renamed, provenance=True)
    assert len(checks(report, "sites_close")) == 4
    model = onnx.load(renamed)
    model.doc_string = "changed"
    renamed.write_bytes(model.SerializeToString())
    report = verify(original, renamed)
    assert checks(report, "sites_close") == []
    assert "the sidecar is of other bytes, so the outputs alone are compared" in report.notes
    sidecar = json.loads((tmp_path / "other.onnx.oprep.json").read_text())
    real = sidecar["subject"][0]["digest"]["sha256"]
    with pytest.raises(OprepError) as caught:
        verify(original, renamed, provenance=True)
    assert real[:16] in caught.value.notes[0]

"""PyTorch models written as ONNX models: from file to file, proven, compared again later."""

from __future__ import annotations

import json

import onnx
import pytest
from programs_made import GELU, archive, write

import oprep
from oprep import ExitCode, OprepError


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("to_onnx")
    model, rules = archive(folder), write(folder, "gelu.toml", GELU)
    report = oprep.convert(model, rules=rules, output=folder / "out.onnx")
    return folder, model, report


def test_a_program_becomes_an_onnx_model_with_the_op_and_its_body(made):
    folder, _, report = made
    assert report.status == "verified"
    assert report.artifact.format == "onnx"
    assert report.artifact.functions == ("com.acme::Gelu",)
    proto = onnx.load(folder / "out.onnx")
    assert [node.op_type for node in proto.graph.node if node.domain == "com.acme"] == ["Gelu"]
    assert [item.name for item in proto.graph.input] == ["x"]
    assert not any("stack_trace" in entry.key for node in proto.graph.node
                   for entry in node.metadata_props)  # fmt: skip
    assert {"oprep.rules", "oprep.version"} <= {entry.key for entry in proto.metadata_props}


def test_sites_are_proven_and_outputs_are_those_of_onnx_runtime(made):
    _, _, report = made
    names = {check.check for check in report.checks}
    assert {"sites_close", "outputs_close", "ops_kept"} <= names
    assert all(check.sets > 2 for check in report.checks if check.check == "outputs_close")


def test_the_sidecar_vouches_for_it_and_verify_compares_it_again(made):
    folder, model, report = made
    sidecar = json.loads((folder / "out.onnx.oprep.json").read_text())
    assert sidecar["subject"][0]["digest"]["sha256"] == report.artifact.file.sha256
    again = oprep.verify(model, folder / "out.onnx", provenance=True)
    assert again.status == "verified"


def test_another_model_is_no_conversion_of_it(made, tmp_path):
    _, model, _ = made
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]>'
        "m (float[b, 8] z) => (float[b, 8] y) { y = Relu(z) }"
    )
    other = tmp_path / "other.onnx"
    onnx.save(proto, other)
    with pytest.raises(OprepError) as caught:
        oprep.verify(model, other)
    assert caught.value.exit_code is ExitCode.VERIFICATION
    assert "`z`" in str(caught.value)

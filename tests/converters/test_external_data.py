"""External data stays external: copied as it is, valid elsewhere, the input's never touched."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from oprep.converters.pipeline import convert
from oprep.opsets.errors import ExitCode, OprepError
from tests.corpus.real import SAMPLES
from tests.corpus.running import feeds_for, run_all


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Copy the sample with external data to a folder of its own."""
    shutil.copytree(SAMPLES / "external", tmp_path / "in")
    return tmp_path / "in" / "model.onnx"


def locations(path: Path) -> dict[str, ExternalDataInfo]:
    """Tell where each external tensor of a model lies."""
    loaded = onnx.load(path, load_external_data=False)
    return {t.name: ExternalDataInfo(t) for t in loaded.graph.initializer if uses_external_data(t)}


def convert_to(model: Path, output: Path, **words: Any) -> None:
    """Convert by the shipped opset without verifying."""
    output.parent.mkdir(exist_ok=True)
    convert(model, opset=["activations"], output=output, verify=False, **words)


def outputs(path: Path) -> list[np.ndarray]:
    """Run a model from its file in ONNX Runtime."""
    loaded = onnx.load(path, load_external_data=False)
    (results,) = run_all([(path, feeds_for(loaded))])
    return results


def no_match(folder: Path) -> Path:
    """Write a rule file that matches nothing in the model and allows that."""
    path = folder / "rules.toml"
    rule = 'name = "none"\nreplace = "relu(x)"\nwith = "Tanh(x)"\nexpect = ">=0"'
    path.write_text(f"format = 1\n[[rule]]\n{rule}\n")
    return path


def test_an_artifact_in_another_folder_has_its_data_beside_it(model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out" / "out.onnx"
    convert_to(model, output)
    assert set(locations(output)) == set(locations(model))
    for info in locations(output).values():
        assert Path(info.location).name == info.location
        assert (output.parent / info.location).stat().st_nlink == 1
    before = outputs(model)
    shutil.rmtree(model.parent)
    for want, got in zip(before, outputs(output), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_the_bytes_of_every_tensor_stay(model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out" / "out.onnx"
    convert_to(model, output)
    before = {t.name: t.raw_data for t in onnx.load(model).graph.initializer}
    after = {t.name: t.raw_data for t in onnx.load(output).graph.initializer}
    for name in locations(model):
        assert after[name] == before[name]


def test_the_input_and_its_data_stay_as_they_were(model: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in model.parent.iterdir()}
    convert_to(model, tmp_path / "out" / "out.onnx")
    assert {path.name: path.read_bytes() for path in model.parent.iterdir()} == before


def test_an_artifact_beside_the_input_is_valid_and_leaves_it_valid(model: Path) -> None:
    before = outputs(model)
    output = model.with_name("out.onnx")
    convert_to(model, output)
    for path in (model, output):
        for want, got in zip(before, outputs(path), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_paths_may_be_relative_to_another_working_directory(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    convert_to(Path("in/model.onnx"), Path("out/out.onnx"))
    monkeypatch.chdir("/")
    for want, got in zip(outputs(model), outputs(tmp_path / "out" / "out.onnx"), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_an_unchanged_copy_keeps_model_bytes_and_has_its_data(model: Path, tmp_path: Path) -> None:
    rules = no_match(tmp_path)
    output = tmp_path / "out" / "out.onnx"
    output.parent.mkdir()
    report = convert(model, rules=[rules], output=output, verify=False)
    assert report.status == "unchanged"
    assert output.read_bytes() == model.read_bytes()
    onnx.load(output)


def test_an_unchanged_copy_beside_the_input_leaves_its_data_alone(
    model: Path, tmp_path: Path
) -> None:
    before = {path.name: path.read_bytes() for path in model.parent.iterdir()}
    convert(model, rules=[no_match(tmp_path)], output=model.with_name("copy.onnx"), verify=False)
    kept = {path.name: path.read_bytes() for path in model.parent.iterdir()}
    assert before.items() <= kept.items()
    assert kept["copy.onnx"] == before["model.onnx"]


def test_an_unchanged_copy_that_would_overwrite_other_data_is_refused(
    model: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out" / "out.onnx"
    output.parent.mkdir()
    other = output.with_name("model.onnx.data")
    other.write_bytes(b"of another model")
    with pytest.raises(OprepError) as caught:
        convert(model, rules=[no_match(tmp_path)], output=output, verify=False)
    assert caught.value.exit_code == ExitCode.OUTPUT
    assert other.read_bytes() == b"of another model"
    assert [path.name for path in output.parent.iterdir()] == [other.name]


def test_in_place_replaces_the_model_and_keeps_its_numbers(model: Path) -> None:
    before = outputs(model)
    convert_to(model, model, in_place=True)
    loaded = onnx.load(model)
    assert "Erf" not in {node.op_type for node in loaded.graph.node}
    for want, got in zip(before, outputs(model), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_converting_twice_does_not_grow_the_data(model: Path, tmp_path: Path) -> None:
    output = tmp_path / "out" / "out.onnx"
    convert_to(model, output)
    before = {path.name: path.stat().st_size for path in output.parent.iterdir()}
    convert_to(model, output)
    assert {path.name: path.stat().st_size for path in output.parent.iterdir()} == before


def test_a_constant_in_external_data_is_read(tmp_path: Path) -> None:
    source = tmp_path / "in" / "model.onnx"
    source.parent.mkdir()
    onnx.save(
        onnx.load(SAMPLES / "external" / "model.onnx"),
        source,
        save_as_external_data=True,
        location="all.bin",
        size_threshold=0,
    )
    assert "root" in locations(source)
    os.chmod(source.with_name("all.bin"), 0o644)
    output = tmp_path / "out" / "out.onnx"
    convert_to(source, output)
    assert "Erf" not in {node.op_type for node in onnx.load(output).graph.node}


BIG = 400 * 2**20


def test_data_larger_than_the_memory_allowed_is_streamed(tmp_path: Path) -> None:
    model, output = tmp_path / "in" / "model.onnx", tmp_path / "out" / "out.onnx"
    model.parent.mkdir()
    output.parent.mkdir()
    with (model.parent / "big.bin").open("wb") as data:
        data.truncate(BIG)
    big = onnx.TensorProto(name="big", data_type=onnx.TensorProto.FLOAT, dims=[BIG // 4])
    big.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "big.bin"), ("offset", "0"), ("length", str(BIG))):
        big.external_data.add(key=key, value=value)
    built = onnx.load(SAMPLES / "half.onnx")
    built.graph.initializer.append(big)
    model.write_bytes(built.SerializeToString())
    script = (
        "import sys; from oprep.converters.pipeline import convert; "
        "convert(sys.argv[1], opset=['activations'], output=sys.argv[2], verify=False); "
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    command = [sys.executable, "-c", script, str(model), str(output)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert int(ended.stdout.split()[1]) * 1024 < 250e6
    assert sum(path.stat().st_size for path in output.parent.iterdir()) > BIG

"""Same input, rules and versions give the same bytes, whatever the surroundings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.corpus.real import SAMPLES

SURROUNDINGS = {
    "plain": {"PYTHONHASHSEED": "0", "TZ": "UTC"},
    "another hash seed, zone and language": {
        "PYTHONHASHSEED": "4242",
        "TZ": "Asia/Kathmandu",
        "LANG": "tr_TR.UTF-8",
        "LC_ALL": "C",
        "USER": "somebody",
        "COLUMNS": "40",
    },
}
CASES = [
    ("encoder.onnx", SAMPLES / "gelu.toml"),
    ("functions.onnx", SAMPLES / "rules" / "relu.toml"),
    ("external/model.onnx", SAMPLES / "rules" / "gelu.toml"),
]


def convert_in(folder: Path, name: str, model: Path, rules: Path, extra: dict[str, str]) -> Path:
    """Convert in a process of its own, in `folder`, to `name`."""
    folder.mkdir()
    command = [sys.executable, "-m", "oprep", "convert", str(model), "-r", str(rules)]
    command += ["-o", name, "--no-verify", "--report", "report.json"]
    environment = {**os.environ, **extra}
    subprocess.run(
        command, cwd=folder, env=environment, check=True, timeout=60, capture_output=True
    )
    return folder


@pytest.mark.parametrize(("model", "rules"), CASES, ids=[case[0] for case in CASES])
def test_every_byte_is_the_same_in_other_surroundings(
    model: str, rules: Path, tmp_path: Path
) -> None:
    folders = [
        convert_in(tmp_path / f"run{index}", "out.onnx", SAMPLES / model, rules, extra)
        for index, extra in enumerate(SURROUNDINGS.values())
    ]
    first, second = (
        {path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders
    )
    assert sorted(first) == sorted(second)
    assert [name for name in first if first[name] != second[name]] == []


def test_the_name_of_the_output_stands_in_no_artifact(tmp_path: Path) -> None:
    model, rules = SAMPLES / "external" / "model.onnx", SAMPLES / "rules" / "gelu.toml"
    one = convert_in(tmp_path / "a", "first.onnx", model, rules, {})
    two = convert_in(tmp_path / "b", "second.onnx", model, rules, {})
    assert (one / "first.onnx").read_bytes() == (two / "second.onnx").read_bytes()
    side = [
        (one / "first.onnx.oprep.json").read_text(),
        (two / "second.onnx.oprep.json").read_text(),
    ]
    assert side[0].replace("first.onnx", "NAME") == side[1].replace("second.onnx", "NAME")


def test_no_path_of_this_machine_stands_in_an_artifact(tmp_path: Path) -> None:
    rules = SAMPLES / "gelu.toml"
    folder = convert_in(tmp_path / "run", "out.onnx", SAMPLES / "encoder.onnx", rules, {})
    for path in folder.iterdir():
        assert str(tmp_path).encode() not in path.read_bytes()
        assert str(SAMPLES).encode() not in path.read_bytes()

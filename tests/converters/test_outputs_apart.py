"""No file of a command is written over another one; targets are tried before any work."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from oprep.cli.app import run
from oprep.converters import pipeline, verifying
from oprep.opsets.errors import ExitCode, OprepError

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "sample_models"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder with a model of external data, its rules, an input set and a plan."""
    shutil.copytree(SAMPLES / "external", tmp_path, dirs_exist_ok=True)
    shutil.copy(SAMPLES / "rules" / "gelu.toml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    assert run(["convert", "model.onnx", "-r", "gelu.toml", "--plan-out", "plan.json", "-q"]) == 0
    (tmp_path / "set.npz").write_bytes(b"not read before the check")
    (tmp_path / "sets" / "one").mkdir(parents=True)
    (tmp_path / "sets" / "one" / "input_0.pb").write_bytes(b"a tensor")
    (tmp_path / "link.json").symlink_to("plan.json")
    os.link(tmp_path / "gelu.toml", tmp_path / "hard.onnx")
    return tmp_path


def snapshot(folder: Path) -> dict[str, bytes]:
    found = folder.rglob("*")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found if path.is_file()}


@pytest.fixture
def nothing_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a conversion fail, as a bug would, where it begins to match."""

    def never(*_: object) -> None:
        raise AssertionError("work was done before the check")

    monkeypatch.setattr(pipeline, "Conversion", never)


def data_file() -> str:
    (found,) = {path.name for path in Path().iterdir()} - {
        "model.onnx", "gelu.toml", "plan.json", "set.npz", "sets", "link.json", "hard.onnx",
    }  # fmt: skip
    return found


OVER = {
    "plan over the model": "--plan-out model.onnx",
    "plan over the rules": "--plan-out gelu.toml",
    "plan over the rules by another path": "--plan-out sets/../gelu.toml",
    "plan over the rules by case": "--plan-out GELU.toml",
    "plan over the rules by a hard link": "--plan-out hard.onnx",
    "plan over an input set": "--plan-out set.npz --inputs set.npz",
    "plan over a tensor of a set": "--plan-out sets/one/input_0.pb --inputs sets/one",
    "plan over the plan": "--plan plan.json --plan-out plan.json",
    "plan over external data": "--plan-out DATA",
    "plan and output are one": "--plan-out out.onnx -o ./out.onnx",
    "plan over the sidecar to be": "--plan-out out.onnx.oprep.json -o out.onnx",
    "output over the model": "-o model.onnx",
    "output over the rules": "-o hard.onnx",
    "output over external data": "-o DATA",
    "output over external data, in place": "-o DATA --in-place",
    "sidecar over the plan": "-o plan --plan plan.oprep.json",
    "report over the plan": "-o out.onnx --plan plan.json --report plan.json",
    "report over the plan by a link": "-o out.onnx --plan plan.json --report link.json",
    "report over the sidecar": "-o out.onnx --report out.onnx.oprep.json",
    "report over the sidecar by case": "-o out.onnx --report OUT.onnx.oprep.json",
    "report over the sidecar of the model": "-o out.onnx --report model.onnx.oprep.json",
    "report over a report": "-o out.onnx --report a.xml --report ./a.xml",
    "report over the new plan": "--plan-out new.json --report new.json",
    "sets over a file": "-o out.onnx --save-inputs gelu.toml",
    "sets over sets": "-o out.onnx --inputs sets/one --save-inputs sets",
    "report in no folder": "-o out.onnx --report no/r.xml",
    "report on a folder": "-o out.onnx --report sets.xml",
    "plan in no folder": "--plan-out no/plan.json",
    "plan on a folder": "--plan-out sets",
    "output in no folder": "-o no/out.onnx",
    "output on a folder": "-o sets",
    "sets below a file": "-o out.onnx --save-inputs gelu.toml/sets",
}


@pytest.mark.parametrize("case", OVER)
@pytest.mark.usefixtures("nothing_runs")
def test_what_would_be_written_over_something_else_is_exit_8(
    case: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "sets.xml").mkdir()
    (folder / "sets.xml").rmdir() if case != "report on a folder" else None
    if "plan.oprep.json" in OVER[case]:
        (folder / "plan.json").rename(folder / "plan.oprep.json")
    if "model.onnx.oprep.json" in OVER[case]:
        (folder / "model.onnx.oprep.json").write_text("{}")
    words = OVER[case]
    if "DATA" in words:
        words = words.replace("DATA", data_file())
    before = snapshot(folder)
    assert run(["convert", "model.onnx", "-r", "gelu.toml", *words.split()]) == 8
    assert snapshot(folder) == before
    shown = capsys.readouterr().err
    assert shown.count("error: ") == 1
    assert str(folder) not in shown


VERIFY = {
    "report over the sidecar": "model.onnx out.onnx --report out.onnx.oprep.json",
    "report over the original's sidecar": "model.onnx out.onnx --report model.onnx.oprep.json",
    "report over an input set": "model.onnx out.onnx --report plan.json --inputs plan.json",
    "report over a model": "plan.json out.onnx --report plan.json",
    "report over a report": "model.onnx out.onnx --report r.md --report r.md",
    "report in no folder": "model.onnx out.onnx --report no/r.md",
    "sets over sets": "model.onnx out.onnx --inputs sets/one --save-inputs sets",
}


@pytest.mark.parametrize("case", VERIFY)
def test_verify_writes_over_nothing_either(
    case: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("work was done before the check")

    monkeypatch.setattr(verifying.onnx_model, "open_model", never)
    before = snapshot(folder)
    assert run(["verify", *VERIFY[case].split()]) == 8
    assert snapshot(folder) == before


def in_library(**keywords: object) -> OprepError:
    with pytest.raises(OprepError) as caught:
        pipeline.convert("model.onnx", rules="gelu.toml", **keywords)  # type: ignore[arg-type]
    return caught.value


@pytest.mark.usefixtures("nothing_runs")
def test_the_library_refuses_the_same(folder: Path) -> None:
    before = snapshot(folder)
    for keywords in (
        {"plan_out": "model.onnx"},
        {"plan_out": Path("gelu.toml")},
        {"output": "hard.onnx"},
        {"output": "out.onnx", "also_written": ["OUT.onnx.oprep.json"]},
        {"output": "out.onnx", "save_inputs": "gelu.toml"},
    ):
        assert in_library(**keywords).exit_code is ExitCode.OUTPUT
    assert snapshot(folder) == before


@pytest.mark.parametrize("name", ["x.pt2", "x.pt", "x.PTH", "x.safetensors", "x.npz", "x.toml"])
@pytest.mark.usefixtures("nothing_runs")
def test_a_model_is_not_called_like_something_else(name: str, folder: Path) -> None:
    error = in_library(output=name)
    assert (error.exit_code, error.help) == (ExitCode.USAGE, "name it `x.onnx`")


@pytest.mark.parametrize("name", ["x.txt", "x.ONNX", "x", "x.onnx.new"])
def test_other_names_of_a_model_are_left_to_the_user(name: str, folder: Path) -> None:
    words = ["convert", "model.onnx", "-r", "gelu.toml", "-o", name, "--no-verify", "-q"]
    assert run(words) == 0
    assert (folder / name).is_file()


def test_in_place_replaces_the_model_and_its_sidecar(folder: Path) -> None:
    words = ["convert", "model.onnx", "-r", "gelu.toml", "-o", "model.onnx", "--in-place", "-q"]
    (folder / "model.onnx.oprep.json").write_text("{}")
    assert run([*words, "--no-verify"]) == 0
    assert "in-toto" in (folder / "model.onnx.oprep.json").read_text()


def test_a_dry_run_tries_no_target_for_a_model(folder: Path) -> None:
    before = snapshot(folder)
    assert run(["convert", "model.onnx", "-r", "gelu.toml", "-o", "no/x.onnx", "--dry-run"]) == 0
    assert snapshot(folder) == before


def test_a_folder_that_nothing_can_be_made_in_is_found_before_any_work(
    folder: Path, nothing_runs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: Callable[..., int] = os.open

    def refuse(path: object, flags: int, *mode: int, **more: int) -> int:
        if flags & os.O_CREAT:
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, *mode, **more)

    monkeypatch.setattr(os, "open", refuse)
    for keywords in ({"output": "out.onnx"}, {"plan_out": "p"}, {"also_written": ["r.xml"]}):
        assert in_library(**keywords).notes == ("Permission denied",)

"""Bad input ends in one message with the right exit code; nothing is written, nothing changed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from oprep.cli.app import run
from tests.corpus.broken_rules import BROKEN
from tests.corpus.hostile import ONE_FILE, SAMPLES, Hostile, changed
from tests.corpus.hostile_data import EXTERNAL

HOSTILE = {case.name: case for case in (*ONE_FILE, *EXTERNAL)}
GOOD = SAMPLES / "encoder.onnx"
pytestmark = pytest.mark.timeout(30)


@dataclass(frozen=True)
class Ended:
    """How a command line ended."""

    code: int
    out: str
    err: str


def snapshot(folder: Path) -> dict[str, str]:
    """Describe everything below a folder, without opening what is no regular file."""
    found = {}
    for path in sorted(folder.rglob("*")):
        kind = path.lstat()
        mark = f"{kind.st_mode:o}"
        if path.is_file() and not path.is_symlink():
            mark += hashlib.sha256(path.read_bytes()).hexdigest()
        found[path.relative_to(folder).as_posix()] = mark
    return found


def in_process(words: list[object], capfd: pytest.CaptureFixture[str]) -> Ended:
    """Run a command line in this process."""
    capfd.readouterr()
    try:
        code = run([str(word) for word in words])
    except SystemExit as ended:
        code = int(ended.code or 0)
    out, err = capfd.readouterr()
    return Ended(int(code), out, err)


def assert_refused(ended: Ended, code: int, says: tuple[str, ...]) -> None:
    """Check the form of the message: one, short, printable, with the cause, no traceback."""
    assert ended.code == code, ended.err
    assert ended.out == ""
    errors = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, ended.err
    assert "Traceback" not in ended.err
    assert "internal error" not in ended.err
    assert len(ended.err.encode()) <= 4096
    assert all(sign == "\n" or sign.isprintable() for sign in ended.err), ended.err
    assert not any(line.startswith("::") for line in ended.err.splitlines())
    assert not says or any(word.lower() in ended.err.lower() for word in says), ended.err


@pytest.mark.parametrize("command", ["convert", "list-ops", "verify"])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_model_is_refused(
    name: str, command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    case = HOSTILE[name]
    model = case.make(tmp_path)
    before = snapshot(tmp_path)
    words: list[object] = [command, model]
    if command == "convert":
        words += ["--opset", "activations", "-o", tmp_path / "out.onnx", "--no-verify"]
    if command == "verify":
        words.append(GOOD)
    assert_refused(in_process(words, capfd), case.exit_code, case.says)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_file_is_refused(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    content, says = BROKEN[name]
    rules = tmp_path / "rules.toml"
    rules.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = snapshot(tmp_path)
    words = ["convert", GOOD, "-r", rules, "-o", tmp_path / "out.onnx", "--no-verify"]
    ended = in_process(words, capfd)
    assert_refused(ended, 5, says)
    assert "rules.toml" in ended.err
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe"])
def test_a_rule_file_that_is_no_file_is_refused(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules.toml"
    if kind == "folder":
        rules.mkdir()
    elif kind == "pipe":
        os.mkfifo(rules)
    words = ["convert", GOOD, "-r", rules, "-o", tmp_path / "out.onnx", "--no-verify"]
    assert_refused(in_process(words, capfd), 5, ("rules.toml",))
    assert not (tmp_path / "out.onnx").exists()


def test_a_rule_file_above_its_limit_is_refused_before_it_is_parsed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text("format = 1\n" + "# comment\n" * 500_000)
    words = ["convert", GOOD, "-r", rules, "-o", tmp_path / "out.onnx", "--no-verify"]
    ended = in_process(words, capfd)
    assert_refused(ended, 9, ("4194304",))
    assert "--max-bytes" not in ended.err


def assert_output_refused(
    model: Path, output: Path, capfd: pytest.CaptureFixture[str], code: int = 8
) -> None:
    """Convert to an output that must not be written; the folder stays as it was."""
    before = snapshot(model.parent)
    words = ["convert", model, "--opset", "activations", "-o", output, "--no-verify"]
    assert_refused(in_process(words, capfd), code, ())
    assert snapshot(model.parent) == before


def test_an_output_that_is_the_input_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = Path(shutil.copy(GOOD, tmp_path))
    os.link(model, tmp_path / "hard.onnx")
    (tmp_path / "soft.onnx").symlink_to(model)
    for output in (model, tmp_path / "hard.onnx", tmp_path / "soft.onnx"):
        assert_output_refused(model, output, capfd)


def test_an_output_that_is_no_place_for_a_file_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = Path(shutil.copy(GOOD, tmp_path))
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "dangling.onnx").symlink_to("nowhere.onnx")
    os.mkfifo(tmp_path / "pipe.onnx")
    for name in ("folder.onnx", "dangling.onnx", "pipe.onnx", "no/such/folder.onnx"):
        assert_output_refused(model, tmp_path / name, capfd)


def test_an_output_inside_the_inputs_data_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(SAMPLES / "external", tmp_path / "model")
    model = tmp_path / "model" / "model.onnx"
    assert_output_refused(model, model.with_name("model.onnx.data"), capfd)


def test_a_model_above_max_bytes_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["convert", GOOD, "--opset", "activations", "-o", tmp_path / "out.onnx"]
    ended = in_process([*words, "--max-bytes", "1000"], capfd)
    assert_refused(ended, 9, ("1000", "1,000"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["pipe", "half a model", "data through a hard link"])
def test_the_program_itself_ends_without_traceback(name: str, tmp_path: Path) -> None:
    case: Hostile = HOSTILE[name]
    model = case.make(tmp_path)
    before = snapshot(tmp_path)
    command = [sys.executable, "-m", "oprep", "convert", str(model), "--opset", "activations"]
    command += ["-o", str(tmp_path / "out.onnx")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert_refused(Ended(ended.returncode, ended.stdout, ended.stderr), case.exit_code, case.says)
    assert snapshot(tmp_path) == before


def test_the_model_that_the_damage_is_done_to_is_sound(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = changed(lambda model: None)(tmp_path)
    words = ["convert", model, "--opset", "activations", "-o", tmp_path / "out.onnx"]
    assert in_process([*words, "--no-verify"], capfd).code == 0

"""Real runs of real models in a process of their own: signals, hostile names."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

RULES = """format = 1
[[op]]
name = "acme::relu"
onnx = { domain = "com.acme", type = "Relu" }
body = "relu(x)"
[[rule]]
name    = "relu"
replace = "relu(x)"
with    = "acme::relu(x)"
"""

ENDLESS = """
<ir_version: 8, opset_import: ["" : 17]>
endless (float[4] x) => (float[4] y) {
    trips = Constant <value: tensor = int64 t {1000000000000}> ()
    go = Constant <value: tensor = bool t {1}> ()
    y = Loop (trips, go, x) <body = step (int64 i, bool c, float[4] s) => (bool d, float[4] t) {
        d = Identity (c)
        t = Relu (s)
    }>
}
"""

HOSTILE = "a\n::error::x\x1b[31m##vso[task]\u202e`|" + "y" * 300


def program(*words: str) -> list[str]:
    return [sys.executable, "-m", "oprep", *words]


def children_of(process: int) -> set[int]:
    """Give the processes that have this one as parent."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = status.read_text().rsplit(")", 1)[1].split()[1]
        except OSError:
            continue
        if int(parent) == process:
            found.add(int(status.parent.name))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rules.toml").write_text(RULES)
    return tmp_path


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)],
    ids=["hup", "int", "term"],
)
def test_p26_a_signal_leaves_no_child_and_no_file(number, code, folder, tmp_path_factory):
    import onnx

    onnx.save(onnx.parser.parse_model(ENDLESS), folder / "endless.onnx")
    before = sorted(path.name for path in folder.iterdir())
    temporary = tmp_path_factory.mktemp("temporary")
    env = {**os.environ, "TMPDIR": str(temporary)}
    words = program("convert", "endless.onnx", "-r", "rules.toml", "-o", "out.onnx")
    with subprocess.Popen(words, cwd=folder, env=env, stderr=subprocess.PIPE, text=True) as process:
        children: set[int] = set()
        end = time.monotonic() + 60
        while not children and time.monotonic() < end:
            time.sleep(0.1)
            children = children_of(process.pid)
        assert children
        time.sleep(1)
        children = children_of(process.pid)
        process.send_signal(number)
        _, shown = process.communicate(timeout=30)
    assert process.returncode == code
    assert shown.startswith("error: ")
    assert "Traceback" not in shown
    assert sorted(path.name for path in folder.iterdir()) == before
    assert list(temporary.iterdir()) == []
    assert not [child for child in children if Path(f"/proc/{child}").exists()]


def test_p31_names_in_a_model_cannot_speak_to_terminal_or_ci(folder):
    import onnx
    from onnx import TensorProto, helper

    def value(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])

    node = helper.make_node("Relu", [f"{HOSTILE}1"], [f"{HOSTILE}2"], name=HOSTILE)
    graph = helper.make_graph([node], HOSTILE, [value(f"{HOSTILE}1")], [value(f"{HOSTILE}2")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "hostile.onnx")
    reports = ("--report", "r.xml", "--report", "r.md")
    words = program("convert", "hostile.onnx", "-r", "rules.toml", "-o", "out.onnx", *reports)
    env = {**os.environ, "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    done = subprocess.run(
        [*words, "-v", "--json"],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rules"][0]["sites"][0]["nodes"] == [HOSTILE]
    texts = [(folder / name).read_text() for name in ("r.xml", "r.md", "summary.md")]
    for text in (done.stderr, *texts):
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "##vso[" not in text
        assert not [line for line in text.splitlines() if line.lstrip().startswith("::")]
    assert not [line for line in done.stdout.splitlines() if line.lstrip().startswith("::")]


def test_external_data_is_found_from_another_folder_and_by_a_relative_path(folder, root):
    import shutil

    samples = root / "sample_models"
    shutil.copytree(samples / "external", folder / "models")
    rules = str(samples / "rules" / "gelu.toml")
    for words in (
        ("convert", "models/model.onnx", "-r", rules, "-o", "out.onnx"),
        ("verify", "models/model.onnx", "out.onnx", "--provenance"),
    ):
        done = subprocess.run(
            program(*words), cwd=folder, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["é中", "a\udcff"], ids=["not ASCII", "not UTF-8"])
def test_names_that_the_locale_cannot_say_are_only_names(name, folder, root):
    import shutil

    samples = root / "sample_models"
    shutil.copytree(samples / "external", folder / name / "in")
    shutil.copy(samples / "rules" / "gelu.toml", folder / f"{name}.toml")
    model, out = f"{name}/in/model.onnx", f"{name}/{name}.onnx"
    reports = [w for end in ("json", "xml", "md") for w in ("--report", f"{name}.{end}")]
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    env = {**os.environ, **ascii_only, "GITHUB_STEP_SUMMARY": f"{name}.summary"}
    for words in (
        ("list-ops", model, "-r", f"{name}.toml"),
        ("convert", model, "-r", f"{name}.toml", "--plan-out", f"{name}.plan"),
        ("convert", model, "-r", f"{name}.toml", "-o", out, *reports, "--save-inputs", f"{name}s"),
        ("verify", model, out, "--provenance", "--json", "--inputs", f"{name}s/00-normal"),
    ):
        done = subprocess.run(
            program(*words), cwd=folder, env=env, capture_output=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
    names = {path.name for path in folder.iterdir()}
    ends = (".json", ".xml", ".md", ".plan", ".summary", "s")
    assert {f"{name}{end}" for end in ends} <= names
    done = subprocess.run(
        program("list-ops", f"{name}.none"), cwd=folder, env=env, capture_output=True, check=False
    )
    assert done.returncode == 3
    assert done.stderr.startswith(b"error: there is no file `")

"""What only a real process can show: exit codes, signals, closed pipes, terminals."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

STUB = """
import sys, time
from oprep.converters import listing, pipeline
from oprep.cli.app import run
sys.path.insert(0, {tests!r})
import sample_reports

def answer(*models, progress=None, **keywords):
    if progress is not None:
        progress("verify sites 3/12")
    if models and models[0] is not None and models[0].name == "slow.onnx":
        print("ready", file=sys.stderr, flush=True)
        time.sleep(60)
    return sample_reports.VERIFIED

pipeline.convert = pipeline.verify = answer
listing.list_ops = lambda *models, **keywords: sample_reports.OPS
sys.exit(run(sys.argv[1:]))
"""


@pytest.fixture
def program(tmp_path: Path, root: Path) -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(STUB.format(tests=str(root / "tests")))
    return [sys.executable, str(path)]


def finish(words: list[str], **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, **more)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("module", [("-m", "oprep")])
def test_python_m_oprep_is_the_program(module):
    done = finish([sys.executable, *module, "--version"])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split()[0] == "oprep"
    assert finish([sys.executable, *module, "convert", "-"]).returncode == 2


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"]
)
def test_a_signal_ends_the_run_with_its_exit_code_and_no_traceback(number, code, program):
    words = [*program, "verify", "slow.onnx", "b.onnx"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "ready\n"
        process.send_signal(number)
        rest = process.stderr.read()
    assert process.returncode == code
    assert "Traceback" not in rest
    assert rest.startswith("error: ")


def test_a_reader_that_goes_away_changes_no_exit_code(program):
    reading, writing = os.pipe()
    os.close(reading)
    words = [*program, "verify", "a.onnx", "b.onnx", "--json"]
    done = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(writing)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    assert b"BrokenPipe" not in done.stderr


def test_a_stream_that_cannot_show_a_character_still_gets_the_rest(program):
    words = [*program, "verify", "a.onnx", "b.onnx"]
    done = finish(words, env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert done.returncode == 0
    assert "sha256 3f2a" in done.stderr


def on_terminal(words: list[str], **variables: str) -> str:
    """Run with stdout and stderr on a terminal; give what it showed."""
    master, slave = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "120", **variables}
    with subprocess.Popen(words, stdout=slave, stderr=slave, env=env):
        os.close(slave)
        shown = b""
        while True:
            try:
                block = os.read(master, 65536)
            except OSError:
                break
            if not block:
                break
            shown += block
    os.close(master)
    return shown.decode()


def test_a_terminal_gets_a_table_and_a_status(program):
    env = {"NO_COLOR": ""}
    assert "━" in on_terminal([*program, "list-ops", "m.onnx"], **env)
    assert "verify sites 3/12" in on_terminal([*program, "verify", "a.onnx", "b.onnx"], **env)


def test_no_color_is_obeyed_on_a_terminal(program):
    words = [*program, "verify", "a.onnx"]
    assert "\x1b[1;31m" in on_terminal(words, NO_COLOR="")
    assert "\x1b[" not in on_terminal(words, NO_COLOR="1")


def test_a_dumb_terminal_gets_plain_text(program):
    assert "\x1b" not in on_terminal([*program, "verify", "a.onnx", "b.onnx"], TERM="dumb")

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
    ("number", "code"),
    [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)],
    ids=["hup", "int", "term"],
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


def test_a_hang_up_that_nohup_ignores_stays_ignored(program):
    import shlex
    import time

    words = ["sh", "-c", f"trap '' HUP; exec {shlex.join([*program, 'verify', 'slow.onnx', 'b'])}"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "ready\n"
        process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
    assert process.returncode == 143


ANSWERS = ["list-ops", "list-ops m.onnx --json", "verify a b --json", "--version", "--help"]


@pytest.mark.parametrize("words", ANSWERS)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_an_answer_that_cannot_be_written_is_exit_8(words, program):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*program, *words.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 8
    assert done.stderr.count("error: ") == 1
    assert "error: the answer cannot be written to standard output\n" in done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_words_for_people_that_cannot_be_written_change_nothing(program):
    for words, code in (("verify a b", 0), ("verify a b -q", 0), ("convert -", 2), ("verify", 2)):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [*program, *words.split()],
                stdout=subprocess.PIPE,
                stderr=full,
                timeout=60,
                check=False,
            )
        assert (done.returncode, done.stdout) == (code, b""), words


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_like_the_null_device(closed, program):
    import shlex

    for words, code in (
        ("list-ops", 0),
        ("verify a b --json -q", 0),
        ("--help", 0),
        ("convert", 2),
    ):
        line = f"{shlex.join([*program, *words.split()])} {closed}"
        done = finish(["sh", "-c", line])
        assert done.returncode == code, words
        assert "Traceback" not in done.stderr


def test_no_file_takes_the_number_of_a_closed_stream():
    code = (
        "import os, sys\n"
        "from oprep.cli import render\n"
        "render.open_missing_streams()\n"
        "sys.exit(os.open(os.devnull, os.O_RDONLY))"
    )
    line = f'"{sys.executable}" -c "$0" <&- >&- 2>&-'
    assert finish(["sh", "-c", line, code]).returncode > 2


@pytest.mark.parametrize("words", ANSWERS)
def test_a_reader_that_goes_away_changes_no_exit_code(words, program):
    reading, writing = os.pipe()
    os.close(reading)
    words = [*program, *words.split()]
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
